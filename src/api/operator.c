/*-------------------------------------------------------------------------
 *
 * operator.c
 *	  What the people who run payguard call: adopt, grant_access, adapter.
 *
 * Whoever decides something says why; the ledger keeps the reason with the
 * session's user.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "api/argument.h"
#include "catalog/namespace.h"
#include "catalog/pg_namespace.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "gateway/builtin.h"
#include "gateway/gateway.h"
#include "ledger/instance.h"
#include "ledger/ledger.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/syscache.h"

PG_FUNCTION_INFO_V1(payguard_adopt);
PG_FUNCTION_INFO_V1(payguard_grant_access);
PG_FUNCTION_INFO_V1(payguard_adapter);
PG_FUNCTION_INFO_V1(payguard_pause_gateway);
PG_FUNCTION_INFO_V1(payguard_resume_gateway);

/* What a kind of role needs beside USAGE of the schema. */
typedef struct AccessKind
{
	const char *name;
	const char *functions;		/* in payguard, separated by blanks */
	const char *tables;			/* to read; "" = none */
} AccessKind;

static const AccessKind access_kinds[] = {
	{"application",
		"create_order claim_order record_attempt renew_claim order_status request_refund close_order close_attempt"
	" next_events begin_once finish_once enforce_transitions",
	""},
	{"callback",
		"apply_callback verify_callback",
	""},
	{"operator",
		"why check order_status verify_callback adopt adapter request_refund close_order close_attempt"
	" resolve_order resolve_refund resolve_evidence pause_gateway resume_gateway",
		"orders attempts payments refunds reviews provider_ids order_slots entitlements"
	" evidence outbox events instances event_deliveries event_consumers once_keys gateway_pauses"},
	{"monitor",
		"check order_status",
	""},
};

/*
 * The reason that a person gives: mandatory, and free of card data.
 */
static char *
read_reason(FunctionCallInfo fcinfo, int argument)
{
	char	   *reason = payguard_argument_prose(fcinfo, argument, "reason");

	if (reason == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("\"reason\" must not be null"),
				 errhint("Say in a few words why; it is kept with your name.")));
	if (reason[strspn(reason, " \t\r\n")] == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("\"reason\" must not be blank"),
				 errhint("Say in a few words why; it is kept with your name.")));
	return reason;
}

/*
 * adopt(reason): let this copy of the ledger pay.
 */
Datum
payguard_adopt(PG_FUNCTION_ARGS)
{
	char	   *reason = read_reason(fcinfo, 0);
	LedgerScope scope;
	int64		taken_over;

	PreventCommandIfReadOnly("payguard.adopt()");
	payguard_ledger_enter(&scope);
	taken_over = payguard_instance_adopt(reason);
	payguard_ledger_leave(&scope);

	/* whoever is told that this copy may pay must find it so after a crash */
	ForceSyncCommit();
	PG_RETURN_INT64(taken_over);
}

/*
 * The kind of that name; 22023 for any other.
 */
static const AccessKind *
find_access_kind(const char *name)
{
	int			i;

	for (i = 0; i < (int) lengthof(access_kinds); i++)
		if (strcmp(access_kinds[i].name, name) == 0)
			return &access_kinds[i];
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("unrecognized access: \"%s\"", name),
			 errhint("Valid values are \"application\", \"callback\", \"operator\" and \"monitor\".")));
	return NULL;				/* keep compiler quiet */
}

/*
 * Only who owns the schema may grant.  GRANT itself only warns a role that
 * holds some right of its own but no grant option.
 */
static void
check_schema_owner(void)
{
	Oid			schema = get_namespace_oid("payguard", false);
	HeapTuple	tuple = SearchSysCache1(NAMESPACEOID, ObjectIdGetDatum(schema));
	Oid			owner;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for schema %u", schema);
	owner = ((Form_pg_namespace) GETSTRUCT(tuple))->nspowner;
	ReleaseSysCache(tuple);
	if (!has_privs_of_role(GetUserId(), owner))
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_SCHEMA, "payguard");
}

/*
 * Run "GRANT <what> <names, qualified> TO <role>".  names is a list separated
 * by blanks; an empty one grants nothing.
 */
static void
run_grant(const char *what, const char *names, const char *role)
{
	StringInfoData sql;
	const char *name = names;
	int			rc;

	if (*names == '\0')
		return;
	initStringInfo(&sql);
	appendStringInfoString(&sql, what);
	while (*name != '\0')
	{
		size_t		length = strcspn(name, " ");

		appendStringInfo(&sql, "%s payguard.%s", name == names ? "" : ",",
						 quote_identifier(pnstrdup(name, length)));
		name += length;
		name += strspn(name, " ");
	}
	appendStringInfo(&sql, " TO %s", quote_identifier(role));
	rc = SPI_execute(sql.data, false, 0);
	if (rc != SPI_OK_UTILITY)
		elog(ERROR, "GRANT failed: %s", SPI_result_code_string(rc));
}

/*
 * grant_access(role, access): grant what a kind of role needs.  Runs with the
 * caller's own rights.
 */
Datum
payguard_grant_access(PG_FUNCTION_ARGS)
{
	const AccessKind *kind;
	char	   *role;

	if (PG_ARGISNULL(0) || PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("\"role\" and \"access\" must not be null"),
				 errhint("Name a role and one of \"application\", \"callback\", \"operator\" and \"monitor\".")));
	role = GetUserNameFromId(PG_GETARG_OID(0), false);
	kind = find_access_kind(payguard_argument_text(fcinfo, 1, "access", NAMEDATALEN));
	check_schema_owner();

	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	if (SPI_execute(psprintf("GRANT USAGE ON SCHEMA payguard TO %s", quote_identifier(role)),
					false, 0) != SPI_OK_UTILITY)
		elog(ERROR, "GRANT failed");
	run_grant("GRANT EXECUTE ON FUNCTION", kind->functions, role);
	run_grant("GRANT SELECT ON TABLE", kind->tables, role);
	if (SPI_finish() != SPI_OK_FINISH)
		elog(ERROR, "SPI_finish failed");
	PG_RETURN_VOID();
}

/*
 * adapter(name): the document that is compiled in, NULL if there is none.
 */
Datum
payguard_adapter(PG_FUNCTION_ARGS)
{
	const PayguardBuiltinAdapter *builtin;
	char	   *name;

	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("\"name\" must not be null"),
				 errhint("Name an adapter, such as \"stripe\".")));
	name = text_to_cstring(PG_GETARG_TEXT_PP(0));
	for (builtin = payguard_builtin_adapters; builtin->name; builtin++)
		if (strcmp(builtin->name, name) == 0)
			PG_RETURN_DATUM(DirectFunctionCall1(jsonb_in, CStringGetDatum(builtin->spec)));
	PG_RETURN_NULL();
}

/*
 * The gateway's name, which must be one of payguard's: a pause of a name that
 * was misspelled would pause nothing.
 */
static char *
read_gateway(FunctionCallInfo fcinfo)
{
	char	   *name = payguard_argument_text(fcinfo, 0, "name", NAMEDATALEN - 1);

	(void) payguard_gateway_get(name, false, false);
	return name;
}

/*
 * pause_gateway(name) -> was it at work?
 *
 * Calls under way end; no others begin.  Errors: 22004, 22023, PG004.
 */
Datum
payguard_pause_gateway(PG_FUNCTION_ARGS)
{
	char	   *name = read_gateway(fcinfo);
	LedgerScope scope;
	bool		changed;

	payguard_ledger_enter(&scope);
	changed = payguard_outbox_pause(name);
	payguard_ledger_leave(&scope);
	PG_RETURN_BOOL(changed);
}

/*
 * resume_gateway(name) -> was it paused?
 *
 * Its waiting calls go out.  Errors: 22004, 22023, PG004.
 */
Datum
payguard_resume_gateway(PG_FUNCTION_ARGS)
{
	char	   *name = payguard_argument_text(fcinfo, 0, "name", NAMEDATALEN - 1);
	LedgerScope scope;
	bool		changed;

	payguard_ledger_enter(&scope);
	changed = payguard_outbox_resume(name);
	payguard_ledger_leave(&scope);
	PG_RETURN_BOOL(changed);
}
