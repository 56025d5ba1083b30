/*-------------------------------------------------------------------------
 *
 * launcher.c
 *	  Keeps one worker for each database of payguard.databases.
 *
 * The launcher is connected to no database, so it sees the shared catalogs
 * only, and looks there whether a listed database exists: a worker that is
 * pointed at one that does not would fail for ever, and noisily.  Workers are
 * held by their slots in shared memory, so a launcher that was restarted
 * finds those of its predecessor.  They end without being restarted by the
 * postmaster; the launcher starts them again, after a pause that doubles.
 *
 * Nothing here touches payments.  No transaction is open while it waits.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_database.h"
#include "core/settings.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/varlena.h"
#include "worker/worker.h"

/* Pauses between starts of a database's worker, in seconds. */
#define FIRST_PAUSE			1
#define LAST_PAUSE			60
/* A worker that lived so long (seconds) starts again with the first pause. */
#define LONG_LIFE			60
/* Look at pg_database so often (ms) when all is well. */
#define CALM_INTERVAL		30000
/* A reservation without a handle is given up after so long (seconds). */
#define ORPHAN_LIFE			10

/* What the log knows about a database. */
typedef enum DatabaseState
{
	DATABASE_NEW,
	DATABASE_MISSING,
	DATABASE_CLOSED,			/* allows no connections */
	DATABASE_CROWDED,			/* no background worker slot was free */
	DATABASE_WAITING,			/* its worker ended and will be started again */
	DATABASE_SERVED
} DatabaseState;

typedef struct ServedDatabase
{
	char		name[NAMEDATALEN];
	Oid			oid;			/* InvalidOid: there is none */
	bool		is_open;		/* allows connections */
	bool		is_listed;		/* by payguard.databases, as of now */
	DatabaseState state;
	BackgroundWorkerHandle *handle; /* of a worker that we started */
	int			slot;			/* reserved for it; -1: none */
	uint32		generation;
	TimestampTz started_at;
	TimestampTz start_after;
	int			pause;			/* seconds */
} ServedDatabase;

static List *databases = NIL;	/* of ServedDatabase * */
static MemoryContext launcher_context = NULL;
static MemoryContext turn_context = NULL;

/*
 * Register the launcher; in _PG_init while preloading.
 */
void
payguard_worker_register(void)
{
	BackgroundWorker worker;

	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	/* not on a standby: it begins when that is promoted */
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = 5;
	snprintf(worker.bgw_library_name, BGW_MAXLEN, "payguard");
	snprintf(worker.bgw_function_name, BGW_MAXLEN, "payguard_launcher_main");
	snprintf(worker.bgw_name, BGW_MAXLEN, "payguard launcher");
	snprintf(worker.bgw_type, BGW_MAXLEN, "payguard launcher");
	RegisterBackgroundWorker(&worker);
}

/*
 * The entry of a name, made when it is new.
 */
static ServedDatabase *
find_database(const char *name)
{
	MemoryContext old_context;
	ServedDatabase *database;
	ListCell   *lc;

	foreach(lc, databases)
	{
		database = lfirst(lc);
		if (strcmp(database->name, name) == 0)
			return database;
	}
	old_context = MemoryContextSwitchTo(launcher_context);
	database = palloc0(sizeof(ServedDatabase));
	strlcpy(database->name, name, NAMEDATALEN);
	database->slot = -1;
	databases = lappend(databases, database);
	MemoryContextSwitchTo(old_context);
	return database;
}

/*
 * Read payguard.databases.  Names are as in the catalog, without folding.
 */
static void
read_list(void)
{
	char	   *raw = pstrdup(payguard_databases);
	List	   *names;
	ListCell   *lc;

	foreach(lc, databases)
		((ServedDatabase *) lfirst(lc))->is_listed = false;
	/* the setting's check has seen to the syntax */
	if (!SplitGUCList(raw, ',', &names))
		return;
	foreach(lc, names)
		find_database(lfirst(lc))->is_listed = true;
}

/*
 * Look the databases up in pg_database, in a transaction of its own.
 */
static void
read_catalog(void)
{
	Relation	relation;
	TableScanDesc scan;
	HeapTuple	tuple;
	ListCell   *lc;

	foreach(lc, databases)
		((ServedDatabase *) lfirst(lc))->oid = InvalidOid;

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	(void) GetTransactionSnapshot();
	relation = table_open(DatabaseRelationId, AccessShareLock);
	scan = table_beginscan_catalog(relation, 0, NULL);
	while (HeapTupleIsValid(tuple = heap_getnext(scan, ForwardScanDirection)))
	{
		Form_pg_database form = (Form_pg_database) GETSTRUCT(tuple);

		foreach(lc, databases)
		{
			ServedDatabase *database = lfirst(lc);

			if (strcmp(database->name, NameStr(form->datname)) != 0)
				continue;
			database->oid = form->oid;
			database->is_open = form->datallowconn &&
				form->datconnlimit != DATCONNLIMIT_INVALID_DB;
		}
	}
	table_endscan(scan);
	table_close(relation, AccessShareLock);
	CommitTransactionCommand();
	MemoryContextSwitchTo(turn_context);
}

/*
 * One log line when the state of a database changes.
 */
static void
tell_state(ServedDatabase *database, DatabaseState state)
{
	if (database->state == state)
		return;
	database->state = state;
	switch (state)
	{
		case DATABASE_MISSING:
			ereport(LOG,
					(errmsg("payguard waits for database \"%s\", which does not exist",
							database->name)));
			break;
		case DATABASE_CLOSED:
			ereport(LOG,
					(errmsg("payguard waits for database \"%s\", which allows no connections",
							database->name)));
			break;
		case DATABASE_CROWDED:
			ereport(LOG,
					(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
					 errmsg("payguard could not start the worker of database \"%s\"",
							database->name),
					 errhint("You might need to increase max_worker_processes.")));
			break;
		case DATABASE_WAITING:
			ereport(LOG,
					(errmsg("payguard worker of database \"%s\" has ended and will be started again",
							database->name)));
			break;
		case DATABASE_NEW:
		case DATABASE_SERVED:
			break;
	}
}

/*
 * The slot of a database's worker, or -1.
 */
static int
find_slot(Oid oid, WorkerStatus *status)
{
	for (int i = 0; i < payguard_slot_total(); i++)
	{
		payguard_slot_read(i, status);
		if (status->database == oid)
			return i;
	}
	return -1;
}

/*
 * Ask workers to go whose database is not wanted, and give up reservations
 * that a predecessor of this launcher has left.
 */
static void
clear_slots(TimestampTz now, TimestampTz launcher_start)
{
	WorkerStatus status;

	for (int i = 0; i < payguard_slot_total(); i++)
	{
		ServedDatabase *wanted = NULL;
		ListCell   *lc;

		payguard_slot_read(i, &status);
		if (!OidIsValid(status.database))
			continue;
		foreach(lc, databases)
		{
			ServedDatabase *database = lfirst(lc);

			if (database->is_listed && database->oid == status.database)
				wanted = database;
		}
		if (wanted == NULL && status.pid != 0)
			payguard_slot_ask_to_go(i);
		if (status.pid == 0 && (wanted == NULL || wanted->handle == NULL) &&
			now >= launcher_start + (TimestampTz) ORPHAN_LIFE * USECS_PER_SEC)
			payguard_slot_cancel(i, status.generation);
	}
}

/*
 * The worker of a database has ended, or could not start: pause before the
 * next start.
 */
static void
plan_start(ServedDatabase *database, TimestampTz now)
{
	bool		lived_long = now >= database->started_at +
	(TimestampTz) LONG_LIFE * USECS_PER_SEC;

	database->pause = lived_long ? FIRST_PAUSE :
		Max(Min(database->pause * 2, LAST_PAUSE), FIRST_PAUSE);
	database->start_after = now + (TimestampTz) database->pause * USECS_PER_SEC;
}

/*
 * Start a worker; its slot is reserved before it exists.
 */
static void
start_worker(ServedDatabase *database, TimestampTz now)
{
	BackgroundWorker worker;
	MemoryContext old_context;
	bool		is_registered;

	database->started_at = now;
	database->slot = payguard_slot_reserve(database->oid, &database->generation);
	if (database->slot < 0)
	{
		tell_state(database, DATABASE_CROWDED);
		plan_start(database, now);
		return;
	}
	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	worker.bgw_notify_pid = MyProcPid;
	worker.bgw_main_arg = payguard_slot_argument(database->slot, database->generation);
	snprintf(worker.bgw_library_name, BGW_MAXLEN, "payguard");
	snprintf(worker.bgw_function_name, BGW_MAXLEN, "payguard_worker_main");
	snprintf(worker.bgw_name, BGW_MAXLEN, "payguard worker of database \"%s\"", database->name);
	snprintf(worker.bgw_type, BGW_MAXLEN, "payguard worker");
	strlcpy(worker.bgw_extra, database->name, BGW_EXTRALEN);

	/* the handle outlives this turn */
	old_context = MemoryContextSwitchTo(launcher_context);
	is_registered = RegisterDynamicBackgroundWorker(&worker, &database->handle);
	MemoryContextSwitchTo(old_context);
	if (is_registered)
		tell_state(database, DATABASE_SERVED);
	else
	{
		payguard_slot_cancel(database->slot, database->generation);
		tell_state(database, DATABASE_CROWDED);
		plan_start(database, now);
	}
}

/*
 * Has the worker that we started ended?  Then forget it.
 */
static void
notice_end(ServedDatabase *database, TimestampTz now)
{
	pid_t		pid;

	if (database->handle == NULL ||
		GetBackgroundWorkerPid(database->handle, &pid) != BGWH_STOPPED)
		return;
	/* it may have ended before it took its slot */
	payguard_slot_cancel(database->slot, database->generation);
	pfree(database->handle);
	database->handle = NULL;
	plan_start(database, now);
	if (database->is_listed && OidIsValid(database->oid) && database->is_open)
		tell_state(database, DATABASE_WAITING);
}

/*
 * See to one listed database.
 */
static void
serve_database(ServedDatabase *database, TimestampTz now)
{
	WorkerStatus status;

	if (!OidIsValid(database->oid))
		tell_state(database, DATABASE_MISSING);
	else if (!database->is_open)
		tell_state(database, DATABASE_CLOSED);
	else if (database->handle != NULL || find_slot(database->oid, &status) >= 0)
		tell_state(database, DATABASE_SERVED);
	else if (now >= database->start_after)
		start_worker(database, now);
}

/*
 * Look at everything once; returns milliseconds until the next look.
 */
static long
take_turn(TimestampTz launcher_start)
{
	TimestampTz now = GetCurrentTimestamp();
	long		timeout = CALM_INTERVAL;
	ListCell   *lc;

	read_list();
	if (databases == NIL)
		return timeout;
	read_catalog();
	foreach(lc, databases)
		notice_end(lfirst(lc), now);
	clear_slots(now, launcher_start);
	foreach(lc, databases)
	{
		ServedDatabase *database = lfirst(lc);

		if (!database->is_listed)
		{
			database->state = DATABASE_NEW;
			continue;
		}
		serve_database(database, now);
		if (database->state != DATABASE_SERVED)
			timeout = Min(timeout, payguard_poll_interval);
	}
	return timeout;
}

/*
 * Entry point of the launcher.
 */
void
payguard_launcher_main(Datum main_arg)
{
	TimestampTz launcher_start = GetCurrentTimestamp();

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	SetConfigOption("application_name", "payguard launcher", PGC_USERSET, PGC_S_SESSION);
	pgstat_report_activity(STATE_IDLE, NULL);

	launcher_context = AllocSetContextCreate(TopMemoryContext, "payguard launcher",
											 ALLOCSET_SMALL_SIZES);
	turn_context = AllocSetContextCreate(launcher_context, "payguard launcher turn",
										 ALLOCSET_SMALL_SIZES);
	for (;;)
	{
		long		timeout;

		if (ProcDiePending)
			proc_exit(1);
		QueryCancelPending = false;
		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
		MemoryContextSwitchTo(turn_context);
		timeout = take_turn(launcher_start);
		MemoryContextReset(turn_context);
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 timeout, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
	}
}
