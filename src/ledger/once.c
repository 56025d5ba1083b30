/*-------------------------------------------------------------------------
 *
 * once.c
 *	  Generic idempotency keys of the application.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "ledger/once.h"
#include "utils/builtins.h"
#include "utils/datum.h"

/*
 * Be the first under this key, or learn what the first one did.  Waits for a
 * rival that has not committed; after its rollback the caller is first.
 */
void
payguard_once_begin(const char *scope, const char *key, bytea *fingerprint, OnceView *view)
{
	static LedgerPlan read = {
		"SELECT fingerprint = $3, finished_at IS NOT NULL, response FROM payguard.once_keys"
		" WHERE scope = $1 AND key = $2",
		3, {TEXTOID, TEXTOID, BYTEAOID}, NULL
	};
	static LedgerPlan insert = {
		"INSERT INTO payguard.once_keys (scope, key, fingerprint) VALUES ($1, $2, $3)"
		" ON CONFLICT (scope, key) DO NOTHING",
		3, {TEXTOID, TEXTOID, BYTEAOID}, NULL
	};
	Datum		values[3];
	bool		isnull;

	memset(view, 0, sizeof(*view));
	values[0] = CStringGetTextDatum(scope);
	values[1] = CStringGetTextDatum(key);
	values[2] = PointerGetDatum(fingerprint);
	/* read first, so that a repeated request never meets a serialization error */
	if (payguard_plan_read_latest(&read, values, NULL) == 0)
	{
		view->is_first = payguard_plan_run(&insert, values, NULL) > 0;
		view->is_same = view->is_first;
		if (view->is_first)
			return;
		if (payguard_plan_read_latest(&read, values, NULL) == 0)
			elog(ERROR, "once key is there and cannot be read");
	}
	view->is_same = payguard_row_bool(0, 0);
	view->is_finished = payguard_row_bool(0, 1);
	view->response = payguard_row_datum(0, 2, &isnull);
	view->has_response = !isnull;
	if (view->has_response)
		view->response = datumCopy(view->response, false, -1);
}

/*
 * Keep the answer; the first answer counts.
 */
OnceFinish
payguard_once_finish(const char *scope, const char *key, Datum response)
{
	static LedgerPlan finish = {
		"UPDATE payguard.once_keys SET response = $3, finished_at = clock_timestamp()"
		" WHERE scope = $1 AND key = $2 AND finished_at IS NULL",
		3, {TEXTOID, TEXTOID, JSONBOID}, NULL
	};
	static LedgerPlan read = {
		"SELECT response = $3 FROM payguard.once_keys WHERE scope = $1 AND key = $2",
		3, {TEXTOID, TEXTOID, JSONBOID}, NULL
	};
	Datum		values[3];

	values[0] = CStringGetTextDatum(scope);
	values[1] = CStringGetTextDatum(key);
	values[2] = response;
	if (payguard_plan_run(&finish, values, NULL) > 0)
		return ONCE_FINISHED;
	if (payguard_plan_read_latest(&read, values, NULL) == 0)
		return ONCE_NOT_BEGUN;
	return payguard_row_bool(0, 0) ? ONCE_FINISHED : ONCE_OTHER_RESPONSE;
}
