/*-------------------------------------------------------------------------
 *
 * request.c
 *	  Renders requests, freezes them for the outbox, authenticates them.
 *
 * A frozen request is sent again byte for byte, so nothing that changes may
 * be in it.  No secret may ever be in it either: what authenticates is made
 * at sending.  No byte that could end a header or a path gets through.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "core/errcode.h"
#include "gateway/adapter.h"

#define MAX_HEADER_LINE 8192

static const char *const op_names[CALL_OP_COUNT] = {
	"charge", "query", "refund", "refund_query", "close", "settlement"
};

/* May this text be a header's value: printable ASCII, not empty. */
static bool
is_header_value(const char *text)
{
	const char *p;

	if (text[0] == '\0' || text[0] == ' ')
		return false;
	for (p = text; *p != '\0'; p++)
		if ((unsigned char) *p < 0x20 || (unsigned char) *p > 0x7e)
			return false;
	return p[-1] != ' ';
}

/* "Name: value"; 22023 when the value may not stand in a header. */
static char *
make_header(const char *name, const char *value)
{
	if (!is_header_value(value))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("value of request header \"%s\" is not printable ASCII", name),
				 errhint("Use references and payment members without control characters and without letters outside ASCII.")));
	return psprintf("%s: %s", name, value);
}

/* Append the members of a flat body as name=value pairs. */
static void
append_form(StringInfo out, const RenderScope *scope, const BodyNode *body, char before)
{
	const BodyNode *member;

	for (member = body->first; member != NULL; member = member->next)
	{
		const char *value = member->literal;

		if (member->template != NULL)
			value = payguard_template_text(scope, member->template, TEMPLATE_USE_TEXT);
		if (value == NULL)
			continue;
		if (out->len > 0 || before == '?')
			appendStringInfoChar(out, before);
		before = '&';
		payguard_percent_encode(out, member->name, true);
		appendStringInfoChar(out, '=');
		payguard_percent_encode(out, value, true);
	}
}

/* Append a body as JSON; false when it has no value and is left out. */
static bool
append_json(StringInfo out, const RenderScope *scope, const BodyNode *body)
{
	const BodyNode *member;
	bool		is_object = (body->kind == JSON_KIND_OBJECT);
	bool		first = true;

	if (body->template != NULL)
		return payguard_template_json(scope, body->template, out);
	if (body->literal != NULL)
	{
		appendStringInfoString(out, body->literal);
		return true;
	}
	appendStringInfoChar(out, is_object ? '{' : '[');
	for (member = body->first; member != NULL; member = member->next)
	{
		int			start = out->len;

		if (!first)
			appendStringInfoChar(out, ',');
		if (is_object)
		{
			payguard_json_write_text(out, member->name);
			appendStringInfoChar(out, ':');
		}
		if (append_json(out, scope, member))
			first = false;
		else
		{
			out->len = start;
			out->data[start] = '\0';
		}
	}
	appendStringInfoChar(out, is_object ? '}' : ']');
	return true;
}

/* The idempotency key as an additional member of the body's end. */
static void
append_key_member(StringInfo body, const Operation *op, const Adapter *adapter, const char *key)
{
	if (op->content == CONTENT_JSON && body->len >= 2 && body->data[body->len - 1] == '}')
	{
		body->data[--body->len] = '\0';
		if (body->len > 1)
			appendStringInfoChar(body, ',');
		payguard_json_write_text(body, adapter->key_name);
		appendStringInfoChar(body, ':');
		payguard_json_write_text(body, key);
		appendStringInfoChar(body, '}');
	}
	else if (op->content == CONTENT_FORM)
	{
		if (body->len > 0)
			appendStringInfoChar(body, '&');
		payguard_percent_encode(body, adapter->key_name, true);
		appendStringInfoChar(body, '=');
		payguard_percent_encode(body, key, true);
	}
}

/* PG004 or 22023: why there is no way to make this call. */
static void
refuse_call(const Gateway *gateway, const CallFacts *facts)
{
	const Operation *op = gateway->adapter->ops[facts->op];
	RenderScope scope;

	if (op == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_PAYGUARD_GATEWAY),
				 errmsg("gateway \"%s\" has no operation \"%s\"", gateway->name,
						op_names[facts->op]),
				 errdetail("Its adapter \"%s\" does not define one.", gateway->adapter_name)));
	scope.gateway = gateway;
	scope.facts = facts;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("request \"%s\" to gateway \"%s\" needs a value for \"%s\"",
					op_names[facts->op], gateway->name,
					payguard_variable_name(payguard_template_missing(&scope, op->variables)))));
}

/* A purchase without its reference could be made twice: it must not go out. */
static void
check_reference(const RenderScope *scope, const Operation *op)
{
	const unsigned naming = 1u << VARIABLE_REFERENCE;

	if (payguard_template_missing(scope, op->variables & naming) != 0)
		refuse_call(scope->gateway, scope->facts);
}

/* Money that the gateway cannot be told exactly must not go out as something else. */
static void
check_amount(const RenderScope *scope, const Operation *op)
{
	if ((op->variables & (1u << VARIABLE_AMOUNT)) && scope->facts->money.currency[0] == '\0')
		refuse_call(scope->gateway, scope->facts);
	if ((op->variables & (1u << VARIABLE_AMOUNT)) &&
		payguard_template_missing(scope, 1u << VARIABLE_AMOUNT) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("gateway \"%s\" cannot be told this amount of \"%s\" exactly",
						scope->gateway->name, scope->facts->money.currency)));
}

/* Headers of the document, of the content and of the key. */
static List *
render_headers(const RenderScope *scope, const Operation *op)
{
	const Adapter *adapter = scope->gateway->adapter;
	List	   *headers = NIL;
	ListCell   *cell;

	if (op->content == CONTENT_JSON)
		headers = lappend(headers, pstrdup("Content-Type: application/json"));
	else if (op->content == CONTENT_FORM)
		headers = lappend(headers, pstrdup("Content-Type: application/x-www-form-urlencoded"));
	if (adapter->key_place == KEY_PLACE_HEADER &&
		(scope->facts->op == CALL_CHARGE || scope->facts->op == CALL_REFUND))
	{
		if (scope->facts->idempotency_key == NULL)
			refuse_call(scope->gateway, scope->facts);
		headers = lappend(headers,
						  make_header(adapter->key_name, adapter->key_quoted ?
									  psprintf("\"%s\"", scope->facts->idempotency_key) :
									  scope->facts->idempotency_key));
	}
	foreach(cell, op->headers)
	{
		HeaderTemplate *header = lfirst(cell);
		char	   *value = payguard_template_text(scope, header->value, TEMPLATE_USE_TEXT);

		if (value != NULL)
			headers = lappend(headers, make_header(header->name, value));
	}
	return headers;
}

/*
 * Render a request.  PG004 when the adapter has no such op; 22023 when a value
 * is missing or may not stand where the template puts it.
 */
CallRequest *
payguard_request_render(const Gateway *gateway, const CallFacts *facts)
{
	const Adapter *adapter = gateway->adapter;
	const Operation *op = payguard_operation_choose(gateway, facts);
	CallRequest *request = palloc0(sizeof(CallRequest));
	RenderScope scope;
	StringInfoData path;
	StringInfoData body;

	if (op == NULL)
		refuse_call(gateway, facts);
	if (gateway->base_url[0] == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_PAYGUARD_GATEWAY),
				 errmsg("gateway \"%s\" has no base_url", gateway->name),
				 errhint("Set the option base_url of server \"%s\".", gateway->name)));
	scope.gateway = gateway;
	scope.facts = facts;
	check_reference(&scope, op);
	check_amount(&scope, op);
	request->method = op->method;
	request->headers = render_headers(&scope, op);

	initStringInfo(&path);
	appendStringInfoString(&path, payguard_template_text(&scope, op->path, TEMPLATE_USE_PATH));
	if (op->content == CONTENT_QUERY && op->body != NULL)
		append_form(&path, &scope, op->body, strchr(path.data, '?') != NULL ? '&' : '?');
	request->path = path.data;

	if (op->content == CONTENT_JSON || op->content == CONTENT_FORM)
	{
		initStringInfo(&body);
		if (op->body != NULL && op->content == CONTENT_JSON)
			(void) append_json(&body, &scope, op->body);
		else if (op->body != NULL)
			append_form(&body, &scope, op->body, '&');
		if (adapter->key_place == KEY_PLACE_BODY && facts->idempotency_key != NULL &&
			(facts->op == CALL_CHARGE || facts->op == CALL_REFUND))
			append_key_member(&body, op, adapter, facts->idempotency_key);
		request->body = body.data;
		request->body_length = body.len;
	}
	return request;
}

/* The frozen form: "POST /x\r\nName: v\r\n\r\nbody". */
bytea *
payguard_request_freeze(const CallRequest *request)
{
	StringInfoData out;
	ListCell   *cell;

	initStringInfo(&out);
	appendStringInfoSpaces(&out, VARHDRSZ);
	appendStringInfo(&out, "%s %s\r\n", request->method, request->path);
	foreach(cell, request->headers)
		appendStringInfo(&out, "%s\r\n", (char *) lfirst(cell));
	appendStringInfoString(&out, "\r\n");
	if (request->body != NULL)
		appendBinaryStringInfo(&out, request->body, request->body_length);
	SET_VARSIZE(out.data, out.len);
	return (bytea *) out.data;
}

static void
refuse_frozen(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("frozen request is damaged"),
			 errhint("Do not change the table payguard.outbox by hand.")));
}

/* The next line without its end; moves the position behind it. */
static char *
thaw_line(const char **position, const char *end)
{
	const char *p;

	for (p = *position; p + 1 < end; p++)
	{
		if (p[0] == '\r' && p[1] == '\n')
		{
			char	   *line = pnstrdup(*position, p - *position);

			*position = p + 2;
			return line;
		}
		if ((unsigned char) *p < 0x20 || (unsigned char) *p > 0x7e || p - *position > MAX_HEADER_LINE)
			break;
	}
	refuse_frozen();
	return NULL;				/* keep the compiler quiet */
}

/*
 * Read the frozen form back, exactly: freezing the result gives the same
 * bytes.  XX001 when it is not one of ours.
 */
CallRequest *
payguard_request_thaw(const bytea *frozen)
{
	static const char *const methods[] = {"GET", "POST", "PUT", "PATCH", "DELETE"};
	const char *position = VARDATA_ANY(frozen);
	const char *end = position + VARSIZE_ANY_EXHDR(frozen);
	CallRequest *request = palloc0(sizeof(CallRequest));
	char	   *line = thaw_line(&position, end);
	char	   *blank = strchr(line, ' ');
	size_t		i;

	if (blank == NULL || blank[1] != '/' || strchr(blank + 1, ' ') != NULL)
		refuse_frozen();
	*blank = '\0';
	for (i = 0; i < lengthof(methods); i++)
		if (strcmp(line, methods[i]) == 0)
			request->method = methods[i];
	if (request->method == NULL)
		refuse_frozen();
	request->path = blank + 1;

	for (line = thaw_line(&position, end); line[0] != '\0'; line = thaw_line(&position, end))
	{
		char	   *colon = strchr(line, ':');

		if (colon == NULL || colon == line || colon[1] != ' ' || !is_header_value(colon + 2))
			refuse_frozen();
		request->headers = lappend(request->headers, line);
	}
	request->body_length = end - position;
	if (request->body_length > 0 || strcmp(request->method, "GET") != 0)
	{
		char	   *body = palloc(request->body_length + 1);

		/* Not pnstrdup(), which ends at a NUL. */
		memcpy(body, position, request->body_length);
		body[request->body_length] = '\0';
		request->body = body;
	}
	return request;
}
