/*-------------------------------------------------------------------------
 *
 * once.c
 *	  begin_once and finish_once: the guard for any other write of the
 *	  application that moves money.
 *
 * The unique key decides who is first; a rival waits for the first one's
 * commit or takes its place after its rollback.  The fingerprint tells a
 * repeated request from another one under the same key.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "api/argument.h"
#include "core/errcode.h"
#include "ledger/once.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/jsonb.h"

#define SCOPE_MAX_LENGTH	200
#define KEY_MAX_LENGTH		255

PG_FUNCTION_INFO_V1(payguard_begin_once);
PG_FUNCTION_INFO_V1(payguard_finish_once);

/*
 * sha256 of a JSON value; jsonb has one text for one value.
 */
static bytea *
make_fingerprint(Jsonb *request)
{
	char	   *image = JsonbToCString(NULL, &request->root, VARSIZE(request));
	BytesView	part = {image, strlen(image)};
	bytea	   *fingerprint = palloc(VARHDRSZ + SHA256_SIZE);

	SET_VARSIZE(fingerprint, VARHDRSZ + SHA256_SIZE);
	payguard_digest(&part, 1, (unsigned char *) VARDATA(fingerprint));
	return fingerprint;
}

/*
 * begin_once(scope, key, request) -> (first, state, response)
 *
 * first is true for exactly one caller, who does the work and calls
 * finish_once, in the same transaction where that can be.  state started with
 * first false: somebody began and has not finished.  Errors: 22004, 22023 for
 * bad arguments, PG001 when the key was used with another request, PG007.
 */
Datum
payguard_begin_once(PG_FUNCTION_ARGS)
{
	char	   *name = payguard_argument_text(fcinfo, 0, "scope", SCOPE_MAX_LENGTH);
	char	   *key = payguard_argument_text(fcinfo, 1, "key", KEY_MAX_LENGTH);
	bool		isnull;
	Datum		request = payguard_argument_object(fcinfo, 2, "request", true, &isnull);
	bytea	   *fingerprint = make_fingerprint(DatumGetJsonbP(request));
	MemoryContext context = CurrentMemoryContext;
	LedgerScope scope;
	OnceView	view;
	Datum		values[3];
	bool		nulls[3] = {false};

	payguard_ledger_enter(&scope);
	MemoryContextSwitchTo(context);
	payguard_once_begin(name, key, fingerprint, &view);
	payguard_ledger_leave(&scope);
	if (!view.is_same)
		ereport(ERROR,
				(errcode(ERRCODE_PAYGUARD_KEY_REUSED),
				 errmsg("key was used with another request"),
				 errhint("Use a new key for a new request, and the same request for a repeated one.")));
	values[0] = BoolGetDatum(view.is_first);
	values[1] = CStringGetTextDatum(view.is_finished ? "finished" : "started");
	nulls[2] = !view.has_response;
	values[2] = view.response;
	return payguard_result_row(fcinfo, values, nulls);
}

/*
 * finish_once(scope, key, response)
 *
 * Keeps the answer for those who ask again.  The same answer again changes
 * nothing.  Errors: 22004, 22023 for bad arguments, PG001 when it was finished
 * with another answer, PG005 when it was not begun, PG007.  The commit is
 * flushed.
 */
Datum
payguard_finish_once(PG_FUNCTION_ARGS)
{
	char	   *name = payguard_argument_text(fcinfo, 0, "scope", SCOPE_MAX_LENGTH);
	char	   *key = payguard_argument_text(fcinfo, 1, "key", KEY_MAX_LENGTH);
	bool		isnull;
	Datum		response = payguard_argument_object(fcinfo, 2, "response", true, &isnull);
	LedgerScope scope;
	OnceFinish	finish;

	payguard_ledger_enter(&scope);
	finish = payguard_once_finish(name, key, response);
	payguard_ledger_leave(&scope);
	switch (finish)
	{
		case ONCE_FINISHED:
			break;
		case ONCE_OTHER_RESPONSE:
			ereport(ERROR,
					(errcode(ERRCODE_PAYGUARD_KEY_REUSED),
					 errmsg("it was finished with another response"),
					 errhint("Read the response that counts by begin_once().")));
			break;
		case ONCE_NOT_BEGUN:
			ereport(ERROR,
					(errcode(ERRCODE_PAYGUARD_LEASE),
					 errmsg("it was not begun"),
					 errhint("Call begin_once() first, and do the work only when it says first.")));
			break;
	}
	ForceSyncCommit();
	PG_RETURN_VOID();
}
