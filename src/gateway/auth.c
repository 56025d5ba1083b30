/*-------------------------------------------------------------------------
 *
 * auth.c
 *	  What authenticates a request, made at the moment of sending.
 *
 * The results hold secrets: they must not be logged, stored or put into an
 * error, and are freed with the call.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "core/errcode.h"
#include "gateway/adapter.h"

/* PG004 for a secret that is missing or cannot be sent; never its value. */
static void
refuse_secret(const Gateway *gateway, const char *option, const char *reason)
{
	ereport(ERROR,
			(errcode(ERRCODE_PAYGUARD_GATEWAY),
			 errmsg("option \"%s\" of gateway \"%s\" %s", option, gateway->name, reason),
			 errhint("Set it in the user mapping for PUBLIC on server \"%s\".", gateway->name)));
}

/* A secret of this gateway that may stand in a header. */
static const char *
require_secret(const Gateway *gateway, const char *option, const char *value)
{
	const char *p;

	if (value == NULL || value[0] == '\0')
		refuse_secret(gateway, option, "is not set");
	for (p = value; *p != '\0'; p++)
		if ((unsigned char) *p < 0x20 || (unsigned char) *p > 0x7e)
			refuse_secret(gateway, option, "is not printable ASCII");
	return value;
}

/* Text of an auth template. */
static char *
auth_text(const Gateway *gateway, const Template *template)
{
	RenderScope scope;
	CallFacts	no_facts;

	if (template->variables & (1u << VARIABLE_API_KEY))
		(void) require_secret(gateway, "api_key", gateway->api_key);
	if (template->variables & (1u << VARIABLE_API_USER))
		(void) require_secret(gateway, "api_user", gateway->api_user);
	memset(&no_facts, 0, sizeof(no_facts));
	scope.gateway = gateway;
	scope.facts = &no_facts;
	return payguard_template_text(&scope, template, TEMPLATE_USE_TEXT);
}

/* "Basic ...": user and password, or the key alone as user. */
static char *
basic_header(const Gateway *gateway)
{
	const char *key = require_secret(gateway, "api_key", gateway->api_key);
	char	   *pair;
	char	   *encoded;

	if (gateway->api_user != NULL)
		pair = psprintf("%s:%s", require_secret(gateway, "api_user", gateway->api_user), key);
	else
		pair = psprintf("%s:", key);
	encoded = palloc(4 * ((strlen(pair) + 2) / 3) + 1);
	payguard_base64_encode((const unsigned char *) pair, strlen(pair), encoded);
	return psprintf("Authorization: Basic %s", encoded);
}

/*
 * Headers that authenticate (List of char *).  PG004 when the secret that the
 * adapter needs is not configured.
 */
List *
payguard_request_auth(const Gateway *gateway, const CallRequest *request)
{
	const Adapter *adapter = gateway->adapter;

	switch (adapter->auth)
	{
		case AUTH_BEARER:
			return list_make1(psprintf("Authorization: Bearer %s",
									   require_secret(gateway, "api_key", gateway->api_key)));
		case AUTH_BASIC:
			return list_make1(basic_header(gateway));
		case AUTH_HEADER:
			return list_make1(psprintf("%s: %s", adapter->auth_header,
									   auth_text(gateway, adapter->auth_value)));
		case AUTH_FORM:			/* in the body: payguard_request_seal() */
		case AUTH_NONE:
			break;
	}
	return NIL;
}

/*
 * The request as it goes out: for adapters that authenticate by form fields, a
 * copy with these added to the body; for all others the request itself.
 */
const CallRequest *
payguard_request_seal(const Gateway *gateway, const CallRequest *request)
{
	const Adapter *adapter = gateway->adapter;
	CallRequest *sealed;
	StringInfoData body;
	ListCell   *cell;

	if (adapter->auth != AUTH_FORM)
		return request;
	initStringInfo(&body);
	if (request->body != NULL)
		appendBinaryStringInfo(&body, request->body, request->body_length);
	foreach(cell, adapter->auth_fields)
	{
		HeaderTemplate *field = lfirst(cell);

		if (body.len > 0)
			appendStringInfoChar(&body, '&');
		payguard_percent_encode(&body, field->name, true);
		appendStringInfoChar(&body, '=');
		payguard_percent_encode(&body, auth_text(gateway, field->value), true);
	}
	sealed = palloc(sizeof(CallRequest));
	*sealed = *request;
	sealed->body = body.data;
	sealed->body_length = body.len;
	return sealed;
}
