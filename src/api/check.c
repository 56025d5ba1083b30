/*-------------------------------------------------------------------------
 *
 * check.c
 *	  check(): every invariant that does not hold; no rows = healthy.
 *
 * Each rule is a query of its own.  All run as the tables' owner, read only,
 * and with the one snapshot of the calling statement, so that two rules never
 * disagree about a payment that is being booked meanwhile.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "api/check.h"
#include "catalog/pg_type.h"
#include "core/settings.h"
#include "funcapi.h"
#include "gateway/builtin.h"
#include "ledger/ledger.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/snapmgr.h"
#include "utils/varlena.h"

PG_FUNCTION_INFO_V1(payguard_check);

#define CHECK_ARGS	4

/*
 * Names of the built-in adapters, as text[].
 */
static Datum
builtin_adapter_names(void)
{
	ArrayBuildState *state = initArrayResult(TEXTOID, CurrentMemoryContext, false);
	const PayguardBuiltinAdapter *builtin;

	for (builtin = payguard_builtin_adapters; builtin->name; builtin++)
		state = accumArrayResult(state, CStringGetTextDatum(builtin->name), false,
								 TEXTOID, CurrentMemoryContext);
	return makeArrayResult(state, CurrentMemoryContext);
}

/*
 * Was the library preloaded by the postmaster?  Without it nothing is sent.
 */
static bool
is_preloaded(void)
{
	const char *setting = GetConfigOption("shared_preload_libraries", true, false);
	List	   *libraries = NIL;
	ListCell   *cell;

	if (setting == NULL || !SplitDirectoriesString(pstrdup(setting), ',', &libraries))
		return false;
	foreach(cell, libraries)
	{
		const char *library = lfirst(cell);
		const char *slash = strrchr(library, '/');
		const char *name = slash ? slash + 1 : library;

		if (strcmp(name, "payguard") == 0 || strcmp(name, "payguard" DLSUFFIX) == 0)
			return true;
	}
	return false;
}

/*
 * Run one rule, and add a row for each violation.
 */
static void
run_rule(const CheckRule *rule, Datum *args, ReturnSetInfo *result)
{
	static Oid	argtypes[CHECK_ARGS] = {INT8OID, TEXTARRAYOID, BOOLOID, TEXTOID};
	int			rc = SPI_execute_with_args(rule->sql, CHECK_ARGS, argtypes, args, NULL, true, 0);
	uint64		i;

	if (rc != SPI_OK_SELECT)
		elog(ERROR, "rule %s failed: %s", rule->name, SPI_result_code_string(rc));
	for (i = 0; i < SPI_processed; i++)
	{
		HeapTuple	tuple = SPI_tuptable->vals[i];
		char	   *object = SPI_getvalue(tuple, SPI_tuptable->tupdesc, 1);
		char	   *detail = SPI_getvalue(tuple, SPI_tuptable->tupdesc, 2);
		Datum		values[3];
		bool		nulls[3] = {false, false, false};

		values[0] = CStringGetTextDatum(rule->name);
		values[1] = CStringGetTextDatum(object ? object : "");
		values[2] = CStringGetTextDatum(detail ? psprintf("%s (%s)", rule->meaning, detail)
										: rule->meaning);
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	SPI_freetuptable(SPI_tuptable);
}

/*
 * check()
 */
Datum
payguard_check(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	const CheckRule *rule;
	LedgerScope scope;
	Datum		args[CHECK_ARGS];

	InitMaterializedSRF(fcinfo, 0);
	payguard_ledger_enter(&scope);
	payguard_ledger_plan_by_index(&scope, false);
	args[0] = Int64GetDatum(payguard_origin());
	args[1] = builtin_adapter_names();
	args[2] = BoolGetDatum(is_preloaded());
	args[3] = CStringGetTextDatum(payguard_databases ? payguard_databases : "");

	/* read-only statements share the active snapshot */
	PushActiveSnapshot(GetTransactionSnapshot());
	for (rule = payguard_money_rules; rule->name; rule++)
		run_rule(rule, args, result);
	for (rule = payguard_house_rules; rule->name; rule++)
		run_rule(rule, args, result);
	PopActiveSnapshot();

	payguard_ledger_leave(&scope);
	return (Datum) 0;
}
