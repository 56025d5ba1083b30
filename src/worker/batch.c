/*-------------------------------------------------------------------------
 *
 * batch.c
 *	  The worker's transactions: T2 of calls that have ended, T1 of new ones.
 *
 * Up to 64 outcomes and the next leases share one transaction: outcomes
 * first, their orders locked in sorted order, those that somebody else holds
 * left for the next batch.  When it fails, each outcome gets a transaction of
 * its own, and one that fails alone is stored unjudged.  An outcome stays in
 * memory until the transaction that books it has committed.
 *
 * Calls begin only after the commit, which the outbox has asked to be
 * flushed.  No transaction is open when a function of this file returns.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "core/crashpoint.h"
#include "core/settings.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "worker/batch.h"

/* Takes that meet a gateway for the first time are tried again. */
#define MAX_ROUNDS			10

/* Seconds between attempts when the ledger cannot be written. */
#define LAST_BACKOFF		60

/* --- transactions -------------------------------------------------------- */

/*
 * Begin a transaction with a snapshot.
 */
void
payguard_batch_begin(const char *activity)
{
	/* else now() and the statistics would show the worker's start */
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	/* raised from off, and never lowered from what is stronger */
	if (synchronous_commit == SYNCHRONOUS_COMMIT_OFF)
		(void) set_config_option("synchronous_commit", "local", PGC_USERSET, PGC_S_SESSION,
								 GUC_ACTION_LOCAL, true, 0, false);
	PushActiveSnapshot(GetTransactionSnapshot());
	pgstat_report_activity(STATE_RUNNING, activity);
}

/*
 * Commit; from here on what was done is durable.
 */
void
payguard_batch_commit(void)
{
	PopActiveSnapshot();
	payguard_ledger_commit();
	/* autovacuum learns of a worker's changes by nothing else */
	pgstat_report_stat(true);
	pgstat_report_activity(STATE_IDLE, NULL);
}

/*
 * After an error: abort the transaction and hand out the error.
 */
ErrorData *
payguard_batch_abort(MemoryContext context)
{
	ErrorData  *error;

	MemoryContextSwitchTo(context);
	error = CopyErrorData();
	HOLD_INTERRUPTS();
	QueryCancelPending = false;
	AbortCurrentTransaction();
	FlushErrorState();
	RESUME_INTERRUPTS();
	MemoryContextSwitchTo(context);
	pgstat_report_stat(true);
	pgstat_report_activity(STATE_IDLE, NULL);
	return error;
}

/*
 * One log line about a failed transaction.  The error's detail and statement
 * stay out of the log, since they may quote values.
 */
static void
tell_failure(const char *what, const ErrorData *error)
{
	ereport(LOG,
			(errcode(error->sqlerrcode),
			 errmsg("payguard could not %s: %s", what, error->message),
			 errdetail("The SQLSTATE is %s.", unpack_sql_state(error->sqlerrcode))));
}

/* --- T2: outcomes ---------------------------------------------------------- */

/*
 * Is the order among those that could be locked?
 */
static bool
is_locked(List *locked, int64 order_id)
{
	ListCell   *lc;

	foreach(lc, locked)
	{
		if (*(int64 *) lfirst(lc) == order_id)
			return true;
	}
	return false;
}

/*
 * Book the outcomes whose orders can be locked.
 */
static void
book_outcomes(Batch *batch)
{
	List	   *order_ids = NIL;
	List	   *locked;
	ListCell   *lc;

	if (batch->outcomes == NIL)
		return;
	foreach(lc, batch->outcomes)
	{
		Call	   *call = lfirst(lc);

		if (call->item.op != OUTBOX_DELIVER)
			order_ids = lappend(order_ids, &call->item.order_id);
	}
	locked = payguard_outbox_lock_orders(order_ids);
	foreach(lc, batch->outcomes)
	{
		Call	   *call = lfirst(lc);

		if (call->item.op != OUTBOX_DELIVER && !is_locked(locked, call->item.order_id))
			continue;
		payguard_outbox_answer(&call->item, call->evidence);
		batch->booked = lappend(batch->booked, call);
	}
}

/* --- a batch ---------------------------------------------------------------- */

/*
 * The transaction itself; errors get out.
 */
static void
run_transaction(Batch *batch)
{
	LedgerScope scope;

	batch->stage = STAGE_BOOK;
	payguard_batch_begin("payguard: booking and leasing");
	payguard_ledger_enter(&scope);
	/* not SPI's context: leased items must outlive it */
	MemoryContextSwitchTo(batch->worker->batch_context);
	book_outcomes(batch);
	batch->stage = STAGE_TAKE;
	if (batch->take)
		payguard_batch_take(batch);
	batch->stage = STAGE_COMMIT;
	payguard_ledger_leave(&scope);
	if (batch->booked != NIL)
		PAYGUARD_CRASH_POINT(CRASH_BOOKED_NOT_COMMITTED);
	if (batch->must_repeat)
	{
		AbortCurrentTransaction();
		pgstat_report_activity(STATE_IDLE, NULL);
	}
	else
		/* after this the leases are on disk and the outcomes are booked */
		payguard_batch_commit();
	if (batch->booked != NIL)
		PAYGUARD_CRASH_POINT(CRASH_BOOKED_COMMITTED);
	MemoryContextSwitchTo(batch->worker->batch_context);
}

/*
 * Try one transaction; NULL when it committed, else the error.  What it had
 * booked and leased is not.
 */
static ErrorData *
try_transaction(Batch *batch)
{
	ErrorData  *volatile error = NULL;

	batch->booked = NIL;
	batch->items = NIL;
	batch->must_repeat = false;
	batch->more = false;
	batch->next_due = DT_NOEND;
	PG_TRY();
	{
		run_transaction(batch);
	}
	PG_CATCH();
	{
		error = payguard_batch_abort(batch->worker->batch_context);
		batch->booked = NIL;
		batch->items = NIL;
	}
	PG_END_TRY();
	return error;
}

/*
 * The outcomes are booked: forget their calls.
 */
static void
forget_booked(Worker *worker, List *booked)
{
	ListCell   *lc;

	foreach(lc, booked)
	{
		Call	   *call = lfirst(lc);

		worker->calls = list_delete_ptr(worker->calls, call);
		payguard_call_free(call);
	}
}

/*
 * The leases are on disk: begin the calls.
 */
static void
begin_calls(Worker *worker, List *items)
{
	ListCell   *lc;

	foreach(lc, items)
	{
		Call	   *call;
		MemoryContext old_context;

		PAYGUARD_CRASH_POINT(CRASH_SEND_COMMITTED);
		call = payguard_call_begin(lfirst(lc), worker->http, worker->context);
		old_context = MemoryContextSwitchTo(worker->context);
		worker->calls = lappend(worker->calls, call);
		MemoryContextSwitchTo(old_context);
	}
}

/*
 * The transaction is committed: what follows from it.
 */
static void
finish_batch(Batch *batch)
{
	Worker	   *worker = batch->worker;

	if (batch->booked != NIL || batch->items != NIL)
		payguard_slot_count(1, 0);
	forget_booked(worker, batch->booked);
	if (batch->take)
	{
		worker->more = batch->more;
		worker->next_due = batch->next_due;
		worker->low_water = batch->low_water;
		worker->take_backoff = 0;
		begin_calls(worker, batch->items);
	}
}

/*
 * Book this outcome no sooner than after so many microseconds.
 */
static void
put_off(Call *call, int64 wait)
{
	call->not_before = GetCurrentTimestamp() + wait;
}

/*
 * Outcomes whose orders were held by others join the next batch, a little
 * later.
 */
static void
put_off_skipped(Batch *batch)
{
	ListCell   *lc;

	foreach(lc, batch->outcomes)
	{
		if (!list_member_ptr(batch->booked, lfirst(lc)))
			put_off(lfirst(lc), SKIPPED_WAIT);
	}
}

/*
 * The next pause after a failure, in seconds: 1, 2, 4, ... 60.
 */
static int
next_backoff(int backoff)
{
	return backoff == 0 ? 1 : Min(backoff * 2, LAST_BACKOFF);
}

/* --- when a batch fails ------------------------------------------------------ */

/*
 * Failures that have nothing to do with the outcome itself: it is booked
 * again in the next round.
 */
static bool
is_transient(int sqlstate)
{
	return sqlstate == ERRCODE_T_R_SERIALIZATION_FAILURE ||
		sqlstate == ERRCODE_T_R_DEADLOCK_DETECTED ||
		sqlstate == ERRCODE_LOCK_NOT_AVAILABLE ||
		sqlstate == ERRCODE_QUERY_CANCELED;
}

/*
 * Store an outcome unjudged; false when even that failed.
 */
static bool
park_outcome(Worker *worker, Call *call, int sqlstate)
{
	volatile bool is_parked = false;

	PG_TRY();
	{
		LedgerScope scope;
		bool		is_free = call->item.op == OUTBOX_DELIVER;

		payguard_batch_begin("payguard: parking an outcome");
		payguard_ledger_enter(&scope);
		if (!is_free)
			is_free = payguard_outbox_lock_orders(list_make1(&call->item.order_id)) != NIL;
		if (is_free)
			payguard_outbox_park(&call->item, call->evidence, sqlstate);
		payguard_ledger_leave(&scope);
		payguard_batch_commit();
		is_parked = is_free;
	}
	PG_CATCH();
	{
		tell_failure("store an outcome", payguard_batch_abort(worker->batch_context));
	}
	PG_END_TRY();
	MemoryContextSwitchTo(worker->batch_context);
	return is_parked;
}

/*
 * Book one outcome in a transaction of its own; false when it could not even
 * be stored.  It stays in memory until it is.
 */
static bool
book_alone(Worker *worker, Call *call)
{
	Batch		batch = {0};
	ErrorData  *error;

	batch.worker = worker;
	batch.outcomes = list_make1(call);
	error = try_transaction(&batch);
	if (error == NULL)
	{
		put_off_skipped(&batch);
		finish_batch(&batch);
		return true;
	}
	if (is_transient(error->sqlerrcode))
	{
		put_off(call, SKIPPED_WAIT);
		return true;
	}
	if (!park_outcome(worker, call, error->sqlerrcode))
		return false;
	tell_failure("judge an outcome, which is parked", error);
	forget_booked(worker, list_make1(call));
	return true;
}

/*
 * Book the outcomes of a failed batch one by one.  When one cannot even be
 * stored, the trouble is not the outcome's, and all wait a while.
 */
static void
book_one_by_one(Worker *worker, List *outcomes)
{
	bool		is_stored = true;
	ListCell   *lc;

	foreach(lc, outcomes)
	{
		Call	   *call = lfirst(lc);

		if (is_stored)
			is_stored = book_alone(worker, call);
		if (!is_stored)
		{
			if (worker->book_backoff == 0 || lc == list_head(outcomes))
				worker->book_backoff = next_backoff(worker->book_backoff);
			put_off(call, worker->book_backoff * USECS_PER_SEC);
		}
	}
	if (is_stored)
		worker->book_backoff = 0;
}

/*
 * A take failed: leave the outbox alone for a while.
 */
static void
back_off(Worker *worker)
{
	worker->take_backoff = next_backoff(worker->take_backoff);
	worker->take_after = GetCurrentTimestamp() + worker->take_backoff * USECS_PER_SEC;
}

/*
 * The batch failed.  Over a gateway's configuration: that lane is shut now,
 * so try again.  In the take: book without it.  Else: one by one.  Returns
 * whether the same batch should be tried again.
 */
static bool
handle_failure(Batch *batch, const ErrorData *error)
{
	Worker	   *worker = batch->worker;

	if (payguard_lane_check_failed(error->message))
		return true;
	if (batch->take && (batch->stage == STAGE_TAKE || batch->outcomes == NIL))
	{
		tell_failure("lease gateway calls", error);
		back_off(worker);
		batch->take = false;
		return batch->outcomes != NIL;
	}
	tell_failure("book a batch, its outcomes are booked one by one", error);
	book_one_by_one(worker, batch->outcomes);
	return false;
}

/*
 * Up to one batch of outcomes that may be booked now.
 */
static List *
choose_outcomes(Worker *worker)
{
	TimestampTz now = GetCurrentTimestamp();
	List	   *result = NIL;
	ListCell   *lc;

	foreach(lc, worker->calls)
	{
		Call	   *call = lfirst(lc);

		if (call->evidence == NULL || call->not_before > now)
			continue;
		result = lappend(result, call);
		if (list_length(result) == BATCH_SIZE)
			break;
	}
	return result;
}

/*
 * Slots in which a call could be begun: an outcome that is not booked keeps
 * its slot, so that memory is bounded when booking fails.
 */
int
payguard_batch_free_slots(const Worker *worker)
{
	return Max(Min(payguard_max_in_flight, worker->max_calls) - list_length(worker->calls), 0);
}

/*
 * Book outcomes, lease, begin calls.
 */
void
payguard_batch_run(Worker *worker, bool may_take)
{
	MemoryContext old_context = MemoryContextSwitchTo(worker->batch_context);
	Batch		batch = {0};
	bool		repeat = true;

	batch.worker = worker;
	batch.outcomes = choose_outcomes(worker);
	batch.take = may_take;
	for (int round = 0; repeat && round < MAX_ROUNDS; round++)
	{
		ErrorData  *error = try_transaction(&batch);

		if (error != NULL)
			repeat = handle_failure(&batch, error);
		else
			repeat = batch.must_repeat;
		if (error == NULL && !repeat)
		{
			put_off_skipped(&batch);
			finish_batch(&batch);
		}
	}
	if (repeat)
	{
		/* gateways change as fast as we look: do not spin */
		back_off(worker);
		put_off_skipped(&batch);
	}
	MemoryContextSwitchTo(old_context);
	MemoryContextReset(worker->batch_context);
}
