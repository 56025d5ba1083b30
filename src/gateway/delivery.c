/*-------------------------------------------------------------------------
 *
 * delivery.c
 *	  Events to endpoints: requests signed as Standard Webhooks say.
 *
 * An endpoint is a server of the adapter "events".  Its base_url is the whole
 * address, and its webhook_secret signs; with several, while one replaces
 * another, each signs.  Time and signature are made at sending.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/reloptions.h"
#include "access/table.h"
#include "catalog/pg_foreign_server.h"
#include "core/errcode.h"
#include "core/signature.h"
#include "foreign/foreign.h"
#include "gateway/adapter.h"
#include "gateway/options.h"
#include "lib/stringinfo.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#define SECRET_PREFIX	"whsec_"
#define ID_HEADER		"webhook-id: "

/* Does this server take events and no payments? */
bool
payguard_gateway_is_endpoint(const Gateway *gateway)
{
	return strcmp(gateway->adapter_name, ENDPOINT_ADAPTER) == 0;
}

/* Is this row of pg_foreign_server one of ours with the adapter "events"? */
static bool
is_endpoint_row(Relation relation, HeapTuple tuple)
{
	Form_pg_foreign_server form = (Form_pg_foreign_server) GETSTRUCT(tuple);
	const char *adapter;
	Datum		options;
	bool		isnull;

	if (strcmp(GetForeignDataWrapper(form->srvfdw)->fdwname, "payguard") != 0)
		return false;
	options = heap_getattr(tuple, Anum_pg_foreign_server_srvoptions,
						   RelationGetDescr(relation), &isnull);
	if (isnull)
		return false;
	adapter = payguard_option_get(untransformRelOptions(options), "adapter");
	return adapter != NULL && strcmp(adapter, ENDPOINT_ADAPTER) == 0;
}

/* Names of all endpoints. */
List *
payguard_endpoint_names(void)
{
	Relation	relation = table_open(ForeignServerRelationId, AccessShareLock);
	SysScanDesc scan = systable_beginscan(relation, InvalidOid, false, NULL, 0, NULL);
	List	   *names = NIL;
	HeapTuple	tuple;

	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
		if (is_endpoint_row(relation, tuple))
			names = lappend(names,
							pstrdup(NameStr(((Form_pg_foreign_server) GETSTRUCT(tuple))->srvname)));
	systable_endscan(scan);
	table_close(relation, AccessShareLock);
	return names;
}

/* The key of a secret: base64, with or without its prefix; -1 if it is none. */
static int
read_key(const char *secret, unsigned char **key)
{
	size_t		length;

	if (strncmp(secret, SECRET_PREFIX, strlen(SECRET_PREFIX)) == 0)
		secret += strlen(SECRET_PREFIX);
	length = strlen(secret);
	*key = palloc(length + 1);
	return payguard_base64_decode(secret, length, *key, length);
}

/* Why nothing can be delivered there; NULL when it can. */
const char *
payguard_delivery_hindrance(const Gateway *gateway)
{
	ListCell   *cell;

	if (gateway->base_url[0] == '\0')
		return "it has no base_url";
	if (gateway->webhook_secrets == NIL)
		return "it has no webhook_secret";
	foreach(cell, gateway->webhook_secrets)
	{
		unsigned char *key;
		int			length = read_key(lfirst(cell), &key);

		if (length > 0)
			memset(key, 0, length);
		pfree(key);
		if (length <= 0)
			return "its webhook_secret is not base64";
	}
	return NULL;
}

static void
refuse_frozen(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("frozen request is damaged"),
			 errhint("Do not change the table payguard.outbox by hand.")));
}

/* The request of an item.  The address is the endpoint's own, as it stands. */
CallRequest *
payguard_delivery_thaw(const bytea *frozen)
{
	CallRequest *request;

	if (frozen == NULL)
		refuse_frozen();
	request = payguard_request_thaw(frozen);
	request->path = "";
	return request;
}

/* The event's id, which is in the request's headers. */
const char *
payguard_delivery_id(const CallRequest *request)
{
	ListCell   *cell;

	foreach(cell, request->headers)
	{
		const char *header = lfirst(cell);

		if (strncmp(header, ID_HEADER, strlen(ID_HEADER)) == 0)
			return header + strlen(ID_HEADER);
	}
	refuse_frozen();
	return NULL;				/* keep the compiler quiet */
}

/* Append one signature over "id.timestamp.body". */
static void
append_signature(StringInfo out, const char *secret, const char *id, const char *timestamp,
				 const CallRequest *request)
{
	BytesView	parts[5] = {
		{id, strlen(id)}, {".", 1}, {timestamp, strlen(timestamp)}, {".", 1},
		{request->body, request->body_length}
	};
	unsigned char code[SIGNATURE_MAX_SIZE];
	char		encoded[2 * SIGNATURE_MAX_SIZE + 8];
	unsigned char *key;
	int			key_length = read_key(secret, &key);
	size_t		length = 0;

	if (key_length > 0)
	{
		length = payguard_hmac(SIGNATURE_HMAC_SHA256, key, key_length, parts, lengthof(parts), code);
		memset(key, 0, key_length);
	}
	pfree(key);
	if (length == 0)
		ereport(ERROR,
				(errcode(ERRCODE_PAYGUARD_GATEWAY),
				 errmsg("event cannot be signed"),
				 errhint("Set the option webhook_secret to \"whsec_\" and base64.")));
	payguard_base64_encode(code, length, encoded);
	appendStringInfo(out, " v1,%s", encoded);
}

/* Headers with time and signatures. */
List *
payguard_delivery_sign(const Gateway *gateway, const CallRequest *request, int64 now)
{
	const char *id = payguard_delivery_id(request);
	char	   *timestamp = psprintf(INT64_FORMAT, (int64) timestamptz_to_time_t(now));
	StringInfoData signatures;
	ListCell   *cell;

	initStringInfo(&signatures);
	foreach(cell, gateway->webhook_secrets)
		append_signature(&signatures, lfirst(cell), id, timestamp, request);
	return list_make2(psprintf("webhook-timestamp: %s", timestamp),
					  psprintf("webhook-signature:%s", signatures.data));
}

/* What became of it.  Any complete answer of 2xx is acceptance. */
Evidence *
payguard_delivery_read(const HttpReply *reply)
{
	Evidence   *evidence = palloc0(sizeof(Evidence));
	int			status = reply->transport.http_status;

	evidence->source = EVIDENCE_SOURCE_ANSWER;
	evidence->mode = MODE_NOT_TOLD;
	evidence->transport = reply->transport;
	if (reply->complete && status >= 200 && status <= 299)
		evidence->result = EVIDENCE_RESULT_SUCCEEDED;
	else if (reply->transport.prereq_count == 0)
		evidence->result = EVIDENCE_RESULT_NOT_SENT;
	else
		evidence->result = EVIDENCE_RESULT_UNKNOWN;
	return evidence;
}
