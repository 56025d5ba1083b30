/*-------------------------------------------------------------------------
 *
 * wake.c
 *	  The workers' slots in shared memory, and how a commit wakes a worker.
 *
 * A transaction that plans a gateway call remembers when the earliest one is
 * due.  Its commit lowers the mark in the slot of its database's worker and
 * then sets that worker's latch.  NOTIFY would cost half of all claims.  The
 * outbox alone is the truth: a wake-up that gets lost (COMMIT PREPARED, a
 * crash) costs at most one poll interval.
 *
 * Nothing that can raise an error may be called in the commit callback: the
 * commit record is written by then, so an error would be a PANIC.  Shared
 * memory holds no pointer to anything but shared memory.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "ledger/ledger.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "storage/spin.h"
#include "utils/timestamp.h"
#include "worker/worker.h"

/* One worker's place, free while database is InvalidOid. */
typedef struct WorkerSlot
{
	slock_t		mutex;			/* guards all of the rest */
	Oid			database;
	uint32		generation;		/* goes up with every reservation */
	int			pid;			/* 0: reserved, not attached */
	Latch	   *latch;			/* of the worker's PGPROC, in shared memory */
	bool		must_go;		/* its database left the list */
	TimestampTz lowered;		/* earliest due time committed since collected */
	uint64		batches;
	uint64		calls;
} WorkerSlot;

typedef struct WorkerSlots
{
	int			total;
	WorkerSlot	slots[FLEXIBLE_ARRAY_MEMBER];
} WorkerSlots;

static WorkerSlots *shared = NULL;

/* The worker's own slot. */
static WorkerSlot *my_slot = NULL;

/* Earliest due time that the current transaction has planned. */
static TimestampTz planned = DT_NOEND;

/*
 * One slot for each background worker that could run at all.
 */
static Size
slots_size(void)
{
	return add_size(offsetof(WorkerSlots, slots),
					mul_size(max_worker_processes, sizeof(WorkerSlot)));
}

/*
 * Ask for shared memory; from shmem_request_hook.
 */
void
payguard_wake_request_shmem(void)
{
	RequestAddinShmemSpace(slots_size());
}

/*
 * Find or make the slots; from shmem_startup_hook.  After a crash the
 * postmaster makes them anew.
 */
void
payguard_wake_startup_shmem(void)
{
	bool		found;

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	shared = ShmemInitStruct("payguard workers", slots_size(), &found);
	if (!found)
	{
		memset(shared, 0, slots_size());
		shared->total = max_worker_processes;
		for (int i = 0; i < shared->total; i++)
		{
			SpinLockInit(&shared->slots[i].mutex);
			shared->slots[i].lowered = DT_NOEND;
		}
	}
	LWLockRelease(AddinShmemInitLock);
}

/*
 * Lower the mark of our database's worker, then wake it.  Runs after the
 * commit: no memory, no lock but a spinlock, no error.
 */
static void
wake_worker(TimestampTz due)
{
	if (shared == NULL)
		return;
	for (int i = 0; i < shared->total; i++)
	{
		WorkerSlot *slot = &shared->slots[i];
		Latch	   *latch = NULL;

		if (slot->database != MyDatabaseId)
			continue;
		SpinLockAcquire(&slot->mutex);
		if (slot->database == MyDatabaseId)
		{
			if (due < slot->lowered)
				slot->lowered = due;
			latch = slot->latch;
		}
		SpinLockRelease(&slot->mutex);

		/*
		 * Another process may have that PGPROC by now; it copes with a
		 * wake-up.
		 */
		if (latch != NULL)
			SetLatch(latch);
	}
}

/*
 * At the end of the transaction that planned calls.  After PREPARE the rows
 * are not visible yet; the worker's sweep finds them later.
 */
static void
wake_at_commit(XactEvent event, void *arg)
{
	TimestampTz due = planned;

	switch (event)
	{
		case XACT_EVENT_COMMIT:
			planned = DT_NOEND;
			if (!TIMESTAMP_IS_NOEND(due))
				wake_worker(due);
			break;
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
			planned = DT_NOEND;
			break;
		default:
			break;
	}
}

/*
 * The outbox's hook: this transaction plans a call that is due then.  If only
 * the subtransaction aborts, the worker wakes for nothing.
 */
static void
remember_planned(TimestampTz due)
{
	static bool is_registered = false;

	if (!is_registered)
	{
		RegisterXactCallback(wake_at_commit, NULL);
		is_registered = true;
	}
	if (due < planned)
		planned = due;
}

/*
 * At library load.  Sessions that plan nothing pay nothing: the callback is
 * registered with the first plan.
 */
void
payguard_wake_init(void)
{
	payguard_outbox_wake_hook = remember_planned;
}

/*
 * Number of slots; 0 when the library was not preloaded.
 */
int
payguard_slot_total(void)
{
	return shared == NULL ? 0 : shared->total;
}

/*
 * What a slot holds now.
 */
void
payguard_slot_read(int slot_no, WorkerStatus *status)
{
	WorkerSlot *slot = &shared->slots[slot_no];

	SpinLockAcquire(&slot->mutex);
	status->database = slot->database;
	status->pid = slot->pid;
	status->generation = slot->generation;
	status->batches = slot->batches;
	status->calls = slot->calls;
	SpinLockRelease(&slot->mutex);
}

/*
 * Reserve a free slot for a worker that is about to be started; -1 when none
 * is free.  Only the launcher calls this, so no two look for one at once.
 */
int
payguard_slot_reserve(Oid database, uint32 *generation)
{
	for (int i = 0; i < payguard_slot_total(); i++)
	{
		WorkerSlot *slot = &shared->slots[i];

		if (OidIsValid(slot->database))
			continue;
		SpinLockAcquire(&slot->mutex);
		slot->database = database;
		slot->pid = 0;
		slot->latch = NULL;
		slot->must_go = false;
		slot->lowered = DT_NOEND;
		slot->batches = 0;
		slot->calls = 0;
		*generation = ++slot->generation;
		SpinLockRelease(&slot->mutex);
		return i;
	}
	return -1;
}

/*
 * Give up a reservation that no worker has taken.
 */
void
payguard_slot_cancel(int slot_no, uint32 generation)
{
	WorkerSlot *slot = &shared->slots[slot_no];

	SpinLockAcquire(&slot->mutex);
	if (slot->generation == generation && slot->pid == 0)
		slot->database = InvalidOid;
	SpinLockRelease(&slot->mutex);
}

/*
 * Tell the worker in this slot to go.
 */
void
payguard_slot_ask_to_go(int slot_no)
{
	WorkerSlot *slot = &shared->slots[slot_no];
	Latch	   *latch;

	SpinLockAcquire(&slot->mutex);
	slot->must_go = true;
	latch = slot->latch;
	SpinLockRelease(&slot->mutex);
	if (latch != NULL)
		SetLatch(latch);
}

/*
 * Slot and generation as a background worker's argument.
 */
Datum
payguard_slot_argument(int slot_no, uint32 generation)
{
	return Int64GetDatum((int64) (((uint64) generation << 32) | (uint32) slot_no));
}

/*
 * At the worker's exit, however it ends: the slot is free again.
 */
static void
detach_slot(int code, Datum arg)
{
	WorkerSlot *slot = my_slot;

	if (slot == NULL)
		return;
	my_slot = NULL;
	SpinLockAcquire(&slot->mutex);
	slot->database = InvalidOid;
	slot->pid = 0;
	slot->latch = NULL;
	SpinLockRelease(&slot->mutex);
}

/*
 * Take the slot that the launcher has reserved; returns its database, or
 * InvalidOid when the reservation was given up meanwhile.
 */
Oid
payguard_slot_attach(Datum argument)
{
	uint64		value = (uint64) DatumGetInt64(argument);
	uint32		slot_no = (uint32) value;
	uint32		generation = (uint32) (value >> 32);
	Oid			database = InvalidOid;
	WorkerSlot *slot;

	if (slot_no >= (uint32) payguard_slot_total())
		return InvalidOid;
	slot = &shared->slots[slot_no];
	SpinLockAcquire(&slot->mutex);
	if (slot->generation == generation && slot->pid == 0 && OidIsValid(slot->database))
	{
		database = slot->database;
		slot->pid = MyProcPid;
		slot->latch = &MyProc->procLatch;
	}
	SpinLockRelease(&slot->mutex);
	if (OidIsValid(database))
	{
		my_slot = slot;
		on_shmem_exit(detach_slot, (Datum) 0);
	}
	return database;
}

/*
 * Does the launcher still want this worker?
 */
bool
payguard_slot_is_wanted(void)
{
	bool		must_go;

	SpinLockAcquire(&my_slot->mutex);
	must_go = my_slot->must_go;
	SpinLockRelease(&my_slot->mutex);
	return !must_go;
}

/*
 * Earliest due time that was committed since the last call.  To be called
 * before the snapshot is taken that looks for due items: what commits later
 * lowers the mark again.
 */
TimestampTz
payguard_slot_collect(void)
{
	TimestampTz lowered;

	SpinLockAcquire(&my_slot->mutex);
	lowered = my_slot->lowered;
	my_slot->lowered = DT_NOEND;
	SpinLockRelease(&my_slot->mutex);
	return lowered;
}

/*
 * Count this worker's work.
 */
void
payguard_slot_count(int batches, int calls)
{
	SpinLockAcquire(&my_slot->mutex);
	my_slot->batches += batches;
	my_slot->calls += calls;
	SpinLockRelease(&my_slot->mutex);
}
