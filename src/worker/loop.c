/*-------------------------------------------------------------------------
 *
 * loop.c
 *	  The worker of one database: its session, and what it waits for.
 *
 * One WaitEventSet covers the latch, the postmaster's death and the
 * descriptor that stands for all of curl's sockets.  While calls are out
 * there is no transaction, no snapshot and no lock but the session lock that
 * keeps a second worker idle; interrupts are served at every wake-up.
 *
 * SIGTERM ends the worker at once.  Calls under way stay `sending`; the
 * successor makes them unknown and asks the gateways.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "compat.h"
#include "core/settings.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lock.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "worker/batch.h"
#include "worker/deliver.h"

/* The session lock's key: "payg" and a number. */
#define LOCK_KEY_HIGH		0x70617967
#define LOCK_KEY_LOW		1

/* Outcomes wait this long for company, so that they share a flush. */
#define FLUSH_WAIT			(INT64CONST(2) * 1000)
/* The same when many calls are out. */
#define FLUSH_WAIT_BUSY		(INT64CONST(5) * 1000)
/* After parked facts could not be judged. */
#define PARKED_PAUSE		(INT64CONST(300) * USECS_PER_SEC)
/* Orders past their time are looked for this often. */
#define EXPIRY_INTERVAL		(INT64CONST(10) * USECS_PER_SEC)
/* While an endpoint has more events to take, it is looked for sooner. */
#define BUSY_INTERVAL		(INT64CONST(100) * 1000)
/* A worker that was told to go waits this long for its calls. */
#define FAREWELL			(INT64CONST(60) * USECS_PER_SEC)

/* May this worker send? */
typedef enum Standing
{
	STANDING_NEW,				/* not looked yet */
	STANDING_NO_LEDGER,
	STANDING_SECOND,			/* another worker holds the session lock */
	STANDING_NOT_ADOPTED,
	STANDING_PAUSED,			/* payguard.dispatch is off */
	STANDING_READY
} Standing;

static const char *const standing_texts[] = {
	"has not looked at it yet",
	"waits for CREATE EXTENSION payguard",
	"is idle, because another worker is at work",
	"sends nothing until payguard.adopt() is called",
	"sends nothing while payguard.dispatch is off",
	"is at work"
};

static Worker *worker = NULL;
static Standing standing = STANDING_NEW;
static TimestampTz next_look = 0;	/* at the standing and the whole outbox */
static TimestampTz last_batch = 0;
static TimestampTz go_by = 0;	/* 0: nobody told us to go */
static bool has_lock = false;
static bool has_orphaned = false;
static char database_name[NAMEDATALEN];

/* --- the session ------------------------------------------------------------ */

/*
 * Settings that a database or role may have changed and that our statements
 * rely on.  Those of newer servers are skipped where they are not known.
 */
static void
force_settings(void)
{
	static const char *const forced[][2] = {
		{"search_path", "pg_catalog, pg_temp"},
		{"default_transaction_isolation", "read committed"},
		{"default_transaction_read_only", "off"},
		{"default_transaction_deferrable", "off"},
		{"session_replication_role", "origin"},
		{"row_security", "off"},
		{"lock_timeout", "1s"},
		{"statement_timeout", "0"},
		{"transaction_timeout", "0"},
		{"idle_in_transaction_session_timeout", "0"},
		{"max_parallel_workers_per_gather", "0"},
		{"jit", "off"},
		{"enable_seqscan", "off"},
		{"DateStyle", "ISO, YMD"},
		{"IntervalStyle", "postgres"},
		{"bytea_output", "hex"},
		{"application_name", "payguard worker"}
	};

	for (int i = 0; i < (int) lengthof(forced); i++)
		if (GetConfigOption(forced[i][0], true, false) != NULL)
			SetConfigOption(forced[i][0], forced[i][1], PGC_SUSET, PGC_S_OVERRIDE);
}

/*
 * Connect, and make what outlives every batch.
 */
static void
begin_session(Oid database)
{
	MemoryContext context;

	BackgroundWorkerInitializeConnectionByOid(database, InvalidOid, 0);
	force_settings();
	pgstat_report_activity(STATE_IDLE, NULL);

	context = AllocSetContextCreate(TopMemoryContext, "payguard worker", ALLOCSET_DEFAULT_SIZES);
	worker = MemoryContextAllocZero(context, sizeof(Worker));
	worker->context = context;
	worker->batch_context = AllocSetContextCreate(context, "payguard batch",
												  ALLOCSET_DEFAULT_SIZES);
	worker->low_water = SWEEP_ALL;
	/* the rest of the limit is for files of the server's */
	worker->max_calls = Max(max_safe_fds / 3 - 4, 1);
	worker->http = payguard_http_create(context, worker->max_calls);
	payguard_lanes_init(context);
}

/*
 * Serve what other processes ask of us.  Outside transactions, so there is
 * nothing that a cancel could mean.
 */
static void
serve_interrupts(void)
{
	if (ProcDiePending)
		proc_exit(1);
	QueryCancelPending = false;
	CHECK_FOR_INTERRUPTS();
	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
		next_look = 0;
	}
}

/* --- standing ------------------------------------------------------------------ */

/*
 * Take the session lock of this database's worker, if nobody has it.
 */
static bool
take_session_lock(void)
{
	LOCKTAG		tag;

	if (has_lock)
		return true;
	SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, LOCK_KEY_HIGH, LOCK_KEY_LOW, 2);
	has_lock = LockAcquire(&tag, ExclusiveLock, true, true) != LOCKACQUIRE_NOT_AVAIL;
	return has_lock;
}

/*
 * In a transaction: what may this worker do?  The first time that it may, a
 * predecessor's calls are taken over.
 */
static Standing
find_standing(void)
{
	LedgerScope scope;
	bool		is_adopted;

	if (!payguard_ledger_exists())
		return STANDING_NO_LEDGER;
	if (!take_session_lock())
		return STANDING_SECOND;
	payguard_ledger_enter(&scope);
	is_adopted = payguard_instance_adopted();
	if (is_adopted && !has_orphaned)
	{
		int64		count = payguard_outbox_orphan();

		if (count > 0)
			ereport(LOG,
					(errmsg("payguard found " INT64_FORMAT " calls of a worker that has ended", count),
					 errdetail("Their gateways will be asked what became of them.")));
	}
	payguard_ledger_leave(&scope);
	if (!is_adopted)
		return STANDING_NOT_ADOPTED;
	return payguard_dispatch ? STANDING_READY : STANDING_PAUSED;
}

/*
 * Without a ledger there is nowhere to book; say what was lost.
 */
static void
drop_outcomes(void)
{
	List	   *kept = NIL;
	ListCell   *lc;
	MemoryContext old_context = MemoryContextSwitchTo(worker->context);

	foreach(lc, worker->calls)
	{
		Call	   *call = lfirst(lc);

		if (call->evidence == NULL)
		{
			kept = lappend(kept, call);
			continue;
		}
		ereport(LOG,
				(errmsg("payguard cannot book what gateway \"%s\" answered about \"%s\": %s",
						call->item.gateway, call->item.gateway_reference,
						payguard_result_word(call->evidence->result)),
				 errdetail("The extension was dropped while the call was under way.")));
		payguard_call_free(call);
	}
	list_free(worker->calls);
	worker->calls = kept;
	MemoryContextSwitchTo(old_context);
}

/*
 * Find the standing in a transaction of its own; one log line per change.
 */
static void
check_standing(void)
{
	volatile Standing found = STANDING_NEW;

	PG_TRY();
	{
		payguard_batch_begin("payguard: looking whether calls may be made");
		found = find_standing();
		payguard_batch_commit();
		has_orphaned = has_orphaned || found >= STANDING_PAUSED;
	}
	PG_CATCH();
	{
		ErrorData  *error = payguard_batch_abort(worker->batch_context);

		if (standing != STANDING_NEW || next_look == 0)
			ereport(LOG,
					(errcode(error->sqlerrcode),
					 errmsg("payguard could not read the ledger of database \"%s\": %s",
							database_name, error->message)));
	}
	PG_END_TRY();
	MemoryContextSwitchTo(worker->context);
	MemoryContextReset(worker->batch_context);
	if (found != standing && found != STANDING_NEW)
		ereport(LOG,
				(errmsg("payguard worker of database \"%s\" %s",
						database_name, standing_texts[found])));
	standing = found;
	if (standing == STANDING_NO_LEDGER && worker->calls != NIL)
		drop_outcomes();
}

/*
 * Judge parked facts again, whose order may have come meanwhile.  Apart from
 * everything else: one that cannot be judged must not stop the calls.
 */
static void
retry_parked_facts(TimestampTz now)
{
	static TimestampTz not_before = 0;

	if (standing < STANDING_NOT_ADOPTED || now < not_before)
		return;
	PG_TRY();
	{
		LedgerScope scope;

		payguard_batch_begin("payguard: judging parked facts");
		payguard_ledger_enter(&scope);
		(void) payguard_retry_parked(0, BATCH_SIZE);
		payguard_ledger_leave(&scope);
		payguard_batch_commit();
	}
	PG_CATCH();
	{
		ErrorData  *error = payguard_batch_abort(worker->batch_context);

		not_before = now + PARKED_PAUSE;
		ereport(LOG,
				(errcode(error->sqlerrcode),
				 errmsg("payguard could not judge parked facts in database \"%s\": %s",
						database_name, error->message)));
	}
	PG_END_TRY();
	MemoryContextSwitchTo(worker->context);
	MemoryContextReset(worker->batch_context);
}

/*
 * Now and then: end the orders whose time is over.
 */
static void
expire_orders(TimestampTz now)
{
	static TimestampTz since = DT_NOBEGIN;
	static TimestampTz not_before = 0;

	if (standing != STANDING_READY || now < not_before)
		return;
	not_before = now + EXPIRY_INTERVAL;
	PG_TRY();
	{
		LedgerScope scope;

		payguard_batch_begin("payguard: ending orders whose time is over");
		payguard_ledger_enter(&scope);
		if (payguard_expire_orders(&since, BATCH_SIZE))
			not_before = now;
		payguard_ledger_leave(&scope);
		payguard_batch_commit();
	}
	PG_CATCH();
	{
		ErrorData  *error = payguard_batch_abort(worker->batch_context);

		ereport(LOG,
				(errcode(error->sqlerrcode),
				 errmsg("payguard could not end expired orders in database \"%s\": %s",
						database_name, error->message)));
	}
	PG_END_TRY();
	MemoryContextSwitchTo(worker->context);
	MemoryContextReset(worker->batch_context);
}

/* --- when to do what --------------------------------------------------------------- */

/*
 * When should ended calls be booked?  DT_NOEND: there are none.
 */
static TimestampTz
find_booking_time(TimestampTz now)
{
	int			in_flight = payguard_http_in_flight(worker->http);
	int64		wait = in_flight > BATCH_SIZE ? FLUSH_WAIT_BUSY : FLUSH_WAIT;
	TimestampTz result = DT_NOEND;
	int			count = 0;
	ListCell   *lc;

	foreach(lc, worker->calls)
	{
		Call	   *call = lfirst(lc);

		if (call->evidence == NULL)
			continue;
		if (call->not_before <= now)
			count++;
		result = Min(result, Max(call->ended_at + (in_flight == 0 ? 0 : wait), call->not_before));
	}
	return count >= BATCH_SIZE ? now : result;
}

/*
 * When should due items be taken?  A backlog may wait for a batch's worth of
 * free slots, for as long as outcomes would.
 */
static TimestampTz
find_taking_time(TimestampTz now)
{
	int			free_slots = payguard_batch_free_slots(worker);
	TimestampTz waiting;
	TimestampTz result;

	if (standing != STANDING_READY || go_by != 0 || free_slots == 0)
		return DT_NOEND;
	waiting = payguard_lanes_reopened(free_slots);
	if (!TIMESTAMP_IS_NOEND(waiting))
	{
		/* what waited for the lane may be older than the mark */
		worker->low_water = Min(worker->low_water, waiting);
		worker->next_due = now;
		result = now;
	}
	else if (!worker->more)
		result = Min(worker->next_due, payguard_lanes_next_opening());
	else if (free_slots >= BATCH_SIZE || payguard_http_in_flight(worker->http) == 0)
		result = now;
	else
		result = last_batch + FLUSH_WAIT_BUSY;
	return Max(result, worker->take_after);
}

/*
 * Somebody committed an item: look there, and then.  If it is the first one of
 * a new ledger, find out that there is one.
 */
static void
note_wake_up(void)
{
	TimestampTz due = payguard_slot_collect();

	worker->low_water = Min(worker->low_water, due);
	worker->next_due = Min(worker->next_due, due);
	if (!TIMESTAMP_IS_NOEND(due) && standing < STANDING_PAUSED && standing != STANDING_SECOND)
		next_look = 0;
}

/*
 * From time to time: may we still send, have gateways changed, and is there
 * anything in the outbox that nobody woke us for?
 */
static void
look_around(TimestampTz now)
{
	bool		is_busy;

	check_standing();
	retry_parked_facts(now);
	expire_orders(now);
	is_busy = standing == STANDING_READY && payguard_deliver_events(worker);
	payguard_lanes_forget();
	worker->low_water = SWEEP_ALL;
	worker->next_due = now;
	next_look = now + (is_busy ? BUSY_INTERVAL : (TimestampTz) payguard_poll_interval * 1000);
}

/*
 * Were we told to go?  Calls under way are given their time, since nobody is
 * going to take them over.
 */
static void
heed_farewell(TimestampTz now)
{
	if (go_by == 0 && !payguard_slot_is_wanted())
		go_by = now + FAREWELL;
	if (go_by != 0 && (worker->calls == NIL || now >= go_by))
	{
		ereport(LOG,
				(errmsg("payguard worker of database \"%s\" ends, because payguard.databases does not list it",
						database_name)));
		proc_exit(0);
	}
}

/*
 * Let curl work, and make evidence of what has ended.
 */
static void
run_calls(void)
{
	List	   *ended;
	ListCell   *lc;

	if (payguard_http_in_flight(worker->http) == 0)
		return;
	ended = payguard_http_run(worker->http);
	foreach(lc, ended)
	{
		HttpCall   *call = lfirst(lc);

		payguard_call_end(call->owner, worker->http, call);
	}
	list_free(ended);
}

/*
 * One turn: whatever can be done now.
 */
static void
take_turn(void)
{
	TimestampTz now = GetCurrentTimestamp();
	bool		may_take;

	heed_farewell(now);
	note_wake_up();
	if (now >= next_look)
		look_around(now);
	run_calls();

	now = GetCurrentTimestamp();
	may_take = find_taking_time(now) <= now;
	if (!may_take && find_booking_time(now) > now)
		return;
	/* outcomes free slots, so a backlog is taken with them */
	if (!may_take && worker->more && now >= worker->take_after)
		may_take = standing == STANDING_READY && go_by == 0;
	if (standing >= STANDING_NOT_ADOPTED)
		payguard_batch_run(worker, may_take);
	last_batch = now;
}

/*
 * Milliseconds to wait at most.
 */
static long
find_timeout(void)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz until = Min(next_look, find_taking_time(now));
	long		timeout;
	long		http_timeout = payguard_http_timeout(worker->http);

	if (standing >= STANDING_NOT_ADOPTED)
		until = Min(until, find_booking_time(now));
	timeout = Min(TimestampDifferenceMilliseconds(now, until), payguard_poll_interval);
	return http_timeout >= 0 ? Min(timeout, http_timeout) : timeout;
}

/*
 * Everything that can wake us.
 */
static WaitEventSet *
make_wait_event_set(void)
{
	WaitEventSet *set = payguard_wait_event_set(3);

	AddWaitEventToSet(set, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, NULL);
	AddWaitEventToSet(set, WL_EXIT_ON_PM_DEATH, PGINVALID_SOCKET, NULL, NULL);
	AddWaitEventToSet(set, WL_SOCKET_READABLE, payguard_http_descriptor(worker->http), NULL, NULL);
	return set;
}

/*
 * Entry point of a worker.  The exit code is 0 only when it was told to go.
 */
void
payguard_worker_main(Datum main_arg)
{
	WaitEventSet *set;
	WaitEvent	events[3];
	Oid			database;

	/* flags only: a handler that raised an error could do so inside curl */
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	database = payguard_slot_attach(main_arg);
	BackgroundWorkerUnblockSignals();
	if (!OidIsValid(database))
		proc_exit(0);

	strlcpy(database_name, MyBgworkerEntry->bgw_extra, sizeof(database_name));
	begin_session(database);
	set = make_wait_event_set();
	for (;;)
	{
		serve_interrupts();
		take_turn();
		if (WaitEventSetWait(set, find_timeout(), events, lengthof(events), PG_WAIT_EXTENSION) > 0)
			ResetLatch(MyLatch);
	}
}
