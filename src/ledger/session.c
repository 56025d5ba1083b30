/*-------------------------------------------------------------------------
 *
 * session.c
 *	  How the ledger runs statements: as the tables' owner, with kept plans.
 *
 * payguard's functions are SECURITY INVOKER, like any function in the
 * catalog, and switch to the owner of the tables only while their own
 * statements run, as foreign-key triggers do.  Tables, functions and types of
 * payguard's own are qualified in a statement; all else is resolved under the
 * search_path that a scope forces.  It must be in force whenever a plan runs
 * and not only when it is made: the server analyzes a kept plan again under
 * the path that it finds, and the caller's path must never decide which
 * operators run as the owner.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"

#include "commands/extension.h"
#include "jit/jit.h"
#include "ledger/ledger.h"
#include "miscadmin.h"
#include "optimizer/cost.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#define LEDGER_SEARCH_PATH	"pg_catalog, pg_temp"

static Oid	orders_owner(void);
static void force_setting(LedgerScope *scope, const char *name, const char *value);

/*
 * Owner of payguard.orders, which stands for all tables.  The catalog cache
 * keeps it and drops it by invalidation.  Error 55000 without the extension.
 */
static Oid
orders_owner(void)
{
	Oid			namespace_oid = get_namespace_oid("payguard", true);
	HeapTuple	tuple;
	Oid			owner;

	tuple = SearchSysCache2(RELNAMENSP, CStringGetDatum("orders"),
							ObjectIdGetDatum(namespace_oid));
	if (!HeapTupleIsValid(tuple))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("extension \"payguard\" is not installed in this database"),
				 errhint("Use CREATE EXTENSION payguard.")));
	owner = ((Form_pg_class) GETSTRUCT(tuple))->relowner;
	ReleaseSysCache(tuple);
	return owner;
}

/*
 * Set a setting until the scope is left.
 */
static void
force_setting(LedgerScope *scope, const char *name, const char *value)
{
	if (scope->guc_nest_level == 0)
		scope->guc_nest_level = NewGUCNestLevel();
	(void) set_config_option(name, value, PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
}

/*
 * Connect SPI and act as the tables' owner under the ledger's settings.  An
 * error before the matching leave is undone by the abort of the
 * (sub)transaction, which restores the user, the settings and SPI's stack.  A
 * scope within another finds the settings as it wants them.
 */
void
payguard_ledger_enter(LedgerScope *scope)
{
	Oid			owner = orders_owner();

	GetUserIdAndSecContext(&scope->save_userid, &scope->save_sec_context);
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	SetUserIdAndSecContext(owner,
						   scope->save_sec_context | SECURITY_LOCAL_USERID_CHANGE |
						   SECURITY_NOFORCE_RLS);
	scope->guc_nest_level = 0;
	if (strcmp(namespace_search_path, LEDGER_SEARCH_PATH) != 0)
		force_setting(scope, "search_path", LEDGER_SEARCH_PATH);
	if (enable_seqscan)
		payguard_ledger_plan_by_index(scope, true);

	/*
	 * A scan that no index helps would now be costed so high that the server
	 * spent seconds to compile its expressions.
	 */
	if (jit_enabled)
		force_setting(scope, "jit", "off");
}

/*
 * Plan by indexes, whatever the statistics say: the ledger's statements look
 * up single rows, and a plan that was made while a table was small would scan
 * it for ever after.  Statements over whole tables switch this off for the
 * rest of their scope.
 */
void
payguard_ledger_plan_by_index(LedgerScope *scope, bool by_index)
{
	force_setting(scope, "enable_seqscan", by_index ? "off" : "on");
}

/*
 * Undo payguard_ledger_enter().
 */
void
payguard_ledger_leave(const LedgerScope *scope)
{
	if (scope->guc_nest_level != 0)
		AtEOXact_GUC(true, scope->guc_nest_level);
	SetUserIdAndSecContext(scope->save_userid, scope->save_sec_context);
	if (SPI_finish() != SPI_OK_FINISH)
		elog(ERROR, "SPI_finish failed");
}

/*
 * Commit the transaction as the tables' owner, for the worker, which is a
 * superuser: deferred triggers run in the commit, and whoever owns the tables
 * may have hung some on them.
 */
void
payguard_ledger_commit(void)
{
	Oid			save_userid;
	int			save_sec_context;

	GetUserIdAndSecContext(&save_userid, &save_sec_context);
	if (payguard_ledger_exists())
		SetUserIdAndSecContext(orders_owner(),
							   save_sec_context | SECURITY_LOCAL_USERID_CHANGE);
	CommitTransactionCommand();
	SetUserIdAndSecContext(save_userid, save_sec_context);
}

/*
 * Is the extension there in this database?  Needs a transaction, no SPI.
 */
bool
payguard_ledger_exists(void)
{
	Oid			namespace_oid;

	if (!OidIsValid(get_extension_oid("payguard", true)))
		return false;
	namespace_oid = get_namespace_oid("payguard", true);
	return OidIsValid(namespace_oid) &&
		OidIsValid(get_relname_relid("outbox", namespace_oid));
}

/*
 * Prepare the statement when this backend meets it first.  Its plan does not
 * depend on the parameters' values.
 */
static void
prepare_plan(LedgerPlan *plan)
{
	MemoryContext context = CurrentMemoryContext;
	SPIPlanPtr	prepared = SPI_prepare_cursor(plan->sql, plan->nargs, plan->argtypes,
											  CURSOR_OPT_GENERIC_PLAN);

	if (prepared == NULL)
		elog(ERROR, "SPI_prepare failed: %s", SPI_result_code_string(SPI_result));
	if (SPI_keepplan(prepared) != 0)
		elog(ERROR, "SPI_keepplan failed");
	plan->plan = prepared;
	MemoryContextSwitchTo(context);
}

/*
 * Run a statement with a snapshot of its own; returns the number of rows.
 * Rows are in SPI_tuptable until the next statement.  Unlike SPI's own
 * functions this leaves the current memory context as it was.
 */
uint64
payguard_plan_run(LedgerPlan *plan, Datum *values, const char *nulls)
{
	MemoryContext context = CurrentMemoryContext;
	int			rc;

	if (plan->plan == NULL)
		prepare_plan(plan);
	rc = SPI_execute_plan(plan->plan, values, nulls, false, 0);
	MemoryContextSwitchTo(context);
	if (rc < 0)
		elog(ERROR, "SPI_execute_plan failed: %s", SPI_result_code_string(rc));
	return SPI_processed;
}

/*
 * Run a read with the latest snapshot, so that at repeatable read and
 * serializable it sees what others have committed until now.
 */
uint64
payguard_plan_read_latest(LedgerPlan *plan, Datum *values, const char *nulls)
{
	MemoryContext context = CurrentMemoryContext;
	int			rc;

	if (plan->plan == NULL)
		prepare_plan(plan);
	if (!IsolationUsesXactSnapshot())
		return payguard_plan_run(plan, values, nulls);

	/* only what goes on to write looks so closely; a parallel worker cannot */
	PreventCommandIfParallelMode("functions of payguard that write");

	/* what this transaction wrote itself must be visible, too */
	CommandCounterIncrement();
	PushActiveSnapshot(GetLatestSnapshot());
	rc = SPI_execute_snapshot(plan->plan, values, nulls, GetActiveSnapshot(),
							  InvalidSnapshot, true, false, 0);
	PopActiveSnapshot();
	MemoryContextSwitchTo(context);
	if (rc < 0)
		elog(ERROR, "SPI_execute_snapshot failed: %s", SPI_result_code_string(rc));
	return SPI_processed;
}

/*
 * A column of the current result as it is.
 */
Datum
payguard_row_datum(uint64 row, int column, bool *isnull)
{
	Assert(row < SPI_processed);
	return SPI_getbinval(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, column + 1, isnull);
}

/*
 * A column as text, whatever its type; NULL for null.
 */
char *
payguard_row_text(uint64 row, int column)
{
	return SPI_getvalue(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, column + 1);
}

int64
payguard_row_int64(uint64 row, int column)
{
	bool		isnull;
	Datum		datum = payguard_row_datum(row, column, &isnull);

	return isnull ? 0 : DatumGetInt64(datum);
}

int32
payguard_row_int32(uint64 row, int column)
{
	bool		isnull;
	Datum		datum = payguard_row_datum(row, column, &isnull);

	return isnull ? 0 : DatumGetInt32(datum);
}

bool
payguard_row_bool(uint64 row, int column)
{
	bool		isnull;
	Datum		datum = payguard_row_datum(row, column, &isnull);

	return isnull ? false : DatumGetBool(datum);
}

TimestampTz
payguard_row_time(uint64 row, int column, bool *isnull)
{
	Datum		datum = payguard_row_datum(row, column, isnull);

	return *isnull ? 0 : DatumGetTimestampTz(datum);
}

/*
 * A text parameter; sets its mark in SPI's array of nulls.
 */
Datum
payguard_text_param(const char *text, char *null)
{
	*null = text == NULL ? 'n' : ' ';
	return text == NULL ? (Datum) 0 : CStringGetTextDatum(text);
}

/*
 * The word of an enum column that C must know.
 */
OrderStatus
payguard_order_status_of(const char *word)
{
	OrderStatus status;

	if (word == NULL || !payguard_order_read(word, &status))
		elog(ERROR, "unrecognized order status \"%s\"", word ? word : "null");
	return status;
}

AttemptState
payguard_attempt_state_of(const char *word)
{
	AttemptState state;

	if (word == NULL || !payguard_attempt_read(word, &state))
		elog(ERROR, "unrecognized attempt state \"%s\"", word ? word : "null");
	return state;
}
