/*-------------------------------------------------------------------------
 *
 * consumer.c
 *	  Each event once for each consumer, in the consumer's own transaction.
 *
 * A row of event_deliveries says that a consumer has an event.  It commits
 * and rolls back with the consumer's work.  Whoever is about to write one
 * holds a lock on (consumer, event) until its transaction ends; rivals try
 * that lock, and leave the event out when they do not get it, so that nobody
 * waits.  Whoever gets it looks again, since the holder may have committed.
 *
 * The seq of an event is drawn before its transaction commits, so one that is
 * lower may become visible later.  A consumer therefore remembers what it has
 * had and not how far it has come.  What it need not look at any more is below
 * its floor: every event up to there was delivered, and none can come any
 * more.  The second half is known by a mark: the latest seq that was drawn at
 * some moment, and the next transaction id just after.  A transaction takes
 * its id before it draws a seq, so when all ids below the mark's have ended,
 * every seq up to the mark's is visible or will never be.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "ledger/consumer.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/xid8.h"

/* Events that are looked at by one statement. */
#define CHUNK_SIZE		200

/* Passed over so many that the consumer had already: time to lift the floor. */
#define FLOOR_STEP		100

/* Kinds of our locks.  SQL's advisory locks have the kinds 1 and 2. */
#define LOCK_KIND_EVENT	0x7067
#define LOCK_KIND_FLOOR	0x7068

/* What is known of a consumer before a scan. */
typedef struct Consumer
{
	const char *name;
	Datum		name_param;
	bool		is_stored;
	int64		floor;
	int64		mark;
	bool		is_settled;		/* nothing up to the mark can come any more */
	bool		is_foreign;		/* the mark was made by another cluster */
} Consumer;

/* One scan from the floor upward. */
typedef struct EventScan
{
	int64		position;		/* looked at up to here */
	int64		floor;			/* all up to here were delivered */
	bool		is_gapless;		/* ... which holds for all looked at so far */
	int			passed;			/* events that the consumer had already */
	int			max;
	int64	   *seqs;			/* taken */
	int			count;
} EventScan;

/*
 * int8[] of seqs.
 */
Datum
payguard_seqs_param(const int64 *seqs, int count)
{
	Datum	   *items = palloc(sizeof(Datum) * Max(count, 1));

	for (int i = 0; i < count; i++)
		items[i] = Int64GetDatum(seqs[i]);
	return PointerGetDatum(construct_array(items, count, INT8OID, sizeof(int64), true, 'd'));
}

/*
 * Try a lock that lasts until the transaction ends, or the subtransaction is
 * rolled back.
 */
static bool
try_lock(const Consumer *consumer, uint16 kind, int64 seq)
{
	LOCKTAG		tag;
	uint32		name = hash_bytes((const unsigned char *) consumer->name, strlen(consumer->name));

	SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, name, (uint32) seq, kind);
	return LockAcquire(&tag, ExclusiveLock, false, true) != LOCKACQUIRE_NOT_AVAIL;
}

/*
 * What is stored about the consumer.  With the same kind of snapshot as the
 * scan's: it says what the scan is going to see.
 */
static void
read_consumer(Consumer *consumer)
{
	static LedgerPlan read = {
		"SELECT c.floor, c.mark, c.mark_xid <= pg_snapshot_xmin(s), c.mark_xid > pg_snapshot_xmax(s)"
		" FROM payguard.event_consumers c, pg_current_snapshot() AS s WHERE c.consumer = $1",
		1, {TEXTOID}, NULL
	};

	consumer->name_param = CStringGetTextDatum(consumer->name);
	consumer->is_stored = payguard_plan_run(&read, &consumer->name_param, NULL) > 0;
	if (!consumer->is_stored)
		return;
	consumer->floor = payguard_row_int64(0, 0);
	consumer->mark = payguard_row_int64(0, 1);
	consumer->is_settled = payguard_row_bool(0, 2);
	consumer->is_foreign = payguard_row_bool(0, 3);
}

/*
 * The next events after a position; returns their number.
 */
static int
read_chunk(int64 position, int64 *seqs)
{
	static LedgerPlan read = {
		"SELECT seq FROM payguard.events WHERE seq > $1 ORDER BY seq LIMIT 200",
		1, {INT8OID}, NULL
	};
	Datum		values[1] = {Int64GetDatum(position)};
	int			count = (int) payguard_plan_run(&read, values, NULL);

	Assert(count <= CHUNK_SIZE);
	for (int i = 0; i < count; i++)
		seqs[i] = payguard_row_int64(i, 0);
	return count;
}

/*
 * Which of these, in ascending order, has the consumer had?
 */
static void
mark_delivered(const Consumer *consumer, const int64 *seqs, int count, bool *delivered)
{
	static LedgerPlan read = {
		"SELECT event FROM payguard.event_deliveries"
		" WHERE consumer = $1 AND event >= $2 AND event <= $3 ORDER BY event",
		3, {TEXTOID, INT8OID, INT8OID}, NULL
	};
	Datum		values[3] = {consumer->name_param, Int64GetDatum(seqs[0]),
	Int64GetDatum(seqs[count - 1])};
	uint64		rows = payguard_plan_run(&read, values, NULL);
	uint64		row = 0;

	for (int i = 0; i < count; i++)
	{
		while (row < rows && payguard_row_int64(row, 0) < seqs[i])
			row++;
		delivered[i] = row < rows && payguard_row_int64(row, 0) == seqs[i];
	}
}

/*
 * The same for events whose locks we have just got, as of this moment: a
 * rival may have committed since our snapshot, and its row may even be purged
 * by now, when the floor has passed it.
 */
static void
mark_delivered_meanwhile(const Consumer *consumer, const int64 *seqs, int count, bool *delivered)
{
	static LedgerPlan read = {
		"SELECT EXISTS (SELECT FROM payguard.event_deliveries d"
		"   WHERE d.consumer = $1 AND d.event = s.seq)"
		" OR s.seq <= COALESCE((SELECT c.floor FROM payguard.event_consumers c WHERE c.consumer = $1), 0)"
		" FROM unnest($2) WITH ORDINALITY AS s (seq, place) ORDER BY s.place",
		2, {TEXTOID, INT8ARRAYOID}, NULL
	};
	Datum		values[2] = {consumer->name_param, payguard_seqs_param(seqs, count)};

	payguard_plan_read_latest(&read, values, NULL);
	for (int i = 0; i < count; i++)
		delivered[i] = payguard_row_bool(i, 0);
}

/*
 * Take what is free of a chunk.  Returns how many of its events were looked
 * at, all of them unless the scan has enough.
 */
static int
take_chunk(const Consumer *consumer, EventScan *scan, const int64 *seqs, int count)
{
	bool		delivered[CHUNK_SIZE];
	bool		locked[CHUNK_SIZE] = {false};
	bool		meanwhile[CHUNK_SIZE];
	int64		candidates[CHUNK_SIZE];
	int			ncandidates = 0;
	int			looked_at;
	int			next = 0;

	mark_delivered(consumer, seqs, count, delivered);
	for (looked_at = 0; looked_at < count && scan->count + ncandidates < scan->max; looked_at++)
	{
		if (delivered[looked_at])
			continue;
		locked[looked_at] = try_lock(consumer, LOCK_KIND_EVENT, seqs[looked_at]);
		if (locked[looked_at])
			candidates[ncandidates++] = seqs[looked_at];
	}
	if (ncandidates > 0)
		mark_delivered_meanwhile(consumer, candidates, ncandidates, meanwhile);

	for (int i = 0; i < looked_at; i++)
	{
		if (locked[i] && !meanwhile[next])
			scan->seqs[scan->count++] = seqs[i];
		else if (locked[i] || delivered[i])
			scan->passed++;
		else
			scan->is_gapless = false;
		if (locked[i])
			next++;
		if (scan->is_gapless)
			scan->floor = seqs[i];
	}
	return looked_at;
}

/*
 * Look at events from the floor upward until there are enough or no more.  In
 * the latter case the floor may rise to the mark, behind the last event.
 */
static void
scan_events(const Consumer *consumer, EventScan *scan)
{
	int64		seqs[CHUNK_SIZE];
	int			count = 0;
	int			looked_at = 0;

	scan->position = consumer->floor;
	scan->floor = consumer->floor;
	scan->is_gapless = true;
	while (scan->count < scan->max)
	{
		CHECK_FOR_INTERRUPTS();
		/* a chunk was left early where some turned out to be delivered */
		if (looked_at == count)
		{
			count = read_chunk(scan->position, seqs);
			looked_at = 0;
		}
		if (count == 0)
			break;
		looked_at += take_chunk(consumer, scan, seqs + looked_at, count - looked_at);
		scan->position = seqs[looked_at - 1];
		if (looked_at == count && count < CHUNK_SIZE)
			break;
	}
	if (looked_at == count && count < CHUNK_SIZE && scan->is_gapless)
		scan->floor = consumer->mark;
}

/*
 * The consumer has them from now on.
 */
static void
note_deliveries(const Consumer *consumer, const EventScan *scan)
{
	static LedgerPlan insert = {
		"INSERT INTO payguard.event_deliveries (consumer, event)"
		" SELECT $1, s.seq FROM unnest($2) AS s (seq)",
		2, {TEXTOID, INT8ARRAYOID}, NULL
	};
	Datum		values[2] = {consumer->name_param, payguard_seqs_param(scan->seqs, scan->count)};

	if (scan->count > 0)
		payguard_plan_run(&insert, values, NULL);
}

/*
 * The latest seq that was drawn; 0 when that says nothing about the order of
 * drawing, because somebody let sessions draw in advance.
 */
static int64
read_latest_seq(void)
{
	static LedgerPlan read = {
		"SELECT CASE WHEN s.is_called THEN s.last_value ELSE s.last_value - 1 END"
		" FROM payguard.events_seq_seq s, pg_sequence q"
		" WHERE q.seqrelid = 'payguard.events_seq_seq'::regclass AND q.seqcache = 1 AND q.seqincrement > 0",
		0, {0}, NULL
	};

	return payguard_plan_run(&read, NULL, NULL) > 0 ? payguard_row_int64(0, 0) : 0;
}

/*
 * Would our snapshot let us write the consumer's row?  At repeatable read not
 * if somebody else has written it since.
 */
static bool
is_row_current(const Consumer *consumer)
{
	static LedgerPlan read = {
		"SELECT floor, mark FROM payguard.event_consumers WHERE consumer = $1",
		1, {TEXTOID}, NULL
	};
	Datum		values[1] = {consumer->name_param};

	if (!IsolationUsesXactSnapshot())
		return true;
	if (payguard_plan_read_latest(&read, values, NULL) == 0)
		return !consumer->is_stored;
	return consumer->is_stored && payguard_row_int64(0, 0) == consumer->floor &&
		payguard_row_int64(0, 1) == consumer->mark;
}

/*
 * Lift the floor and set a new mark, unless another session is at it.
 */
static void
lift_floor(const Consumer *consumer, int64 floor)
{
	static LedgerPlan upsert = {
		"INSERT INTO payguard.event_consumers AS c (consumer, floor, mark, mark_xid)"
		" VALUES ($1, $2, $3, $4) ON CONFLICT (consumer) DO UPDATE"
		" SET floor = GREATEST(c.floor, EXCLUDED.floor), mark = EXCLUDED.mark, mark_xid = EXCLUDED.mark_xid",
		4, {TEXTOID, INT8OID, INT8OID, XID8OID}, NULL
	};
	Datum		values[4];
	int64		latest = read_latest_seq();

	if (floor - consumer->floor < FLOOR_STEP && latest - consumer->mark < FLOOR_STEP)
		return;
	if (!try_lock(consumer, LOCK_KIND_FLOOR, 0) || !is_row_current(consumer))
		return;
	values[0] = consumer->name_param;
	values[1] = Int64GetDatum(floor);
	values[2] = Int64GetDatum(latest);
	/* after the seq was read: whoever drew one has an id below this */
	values[3] = FullTransactionIdGetDatum(ReadNextFullTransactionId());
	payguard_plan_run(&upsert, values, NULL);
}

/*
 * Take events for a consumer.  See consumer.h.
 */
int
payguard_consumer_take(const char *consumer_name, int max, int64 *seqs)
{
	Consumer	consumer = {0};
	EventScan	scan = {0};

	consumer.name = consumer_name;
	read_consumer(&consumer);
	scan.max = max;
	scan.seqs = seqs;
	scan_events(&consumer, &scan);
	note_deliveries(&consumer, &scan);
	if (scan.passed >= FLOOR_STEP &&
		(!consumer.is_stored || consumer.is_settled || consumer.is_foreign))
		lift_floor(&consumer, consumer.is_settled ? Min(scan.floor, consumer.mark) : consumer.floor);
	return scan.count;
}
