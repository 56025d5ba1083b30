/*-------------------------------------------------------------------------
 *
 * take.c
 *	  T1: which due items the worker leases, gateway by gateway.
 *
 * A gateway whose room is smaller than the batch gets a take of its own, so
 * that none is handed more than it has slots, tokens or probes for.  Runs
 * inside the batch's transaction; no call may begin here, since the leases
 * are not committed.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "core/settings.h"
#include "utils/timestamp.h"
#include "worker/batch.h"

/*
 * For the outbox: how long may a call take?
 */
static int64
read_total_timeout(const char *gateway)
{
	Lane	   *lane = payguard_lane_find(gateway);

	payguard_lane_check(lane);
	/* a gateway that cannot be called is noticed before the commit */
	return lane->current == NULL ? 0 : lane->current->gateway->total_timeout;
}

/*
 * Ids of all calls that are not over for the ledger, and of what this
 * transaction has leased: a take must not see them again.
 */
static List *
list_in_flight(const Batch *batch)
{
	List	   *result = NIL;
	ListCell   *lc;

	foreach(lc, batch->worker->calls)
		result = lappend(result, &((Call *) lfirst(lc))->item.id);
	foreach(lc, batch->items)
		result = lappend(result, &((OutboxItem *) lfirst(lc))->id);
	return result;
}

/*
 * One take: items of all gateways but the closed ones.
 */
static void
take_items(Batch *batch, int limit, List *closed)
{
	OutboxTake	take = {0};
	TimestampTz since = batch->worker->low_water;

	take.limit = limit;
	take.closed_gateways = closed;
	take.in_flight = list_in_flight(batch);
	take.since = since;
	take.lease_margin = (int64) payguard_lease_margin * 1000;
	take.total_timeout = read_total_timeout;
	take.next_due = DT_NOEND;
	take.low_water = since;
	payguard_outbox_take(&take);

	batch->items = list_concat(batch->items, take.items);
	batch->next_due = Min(batch->next_due, take.next_due);
	batch->low_water = Min(batch->low_water, take.low_water);
	if (take.more && take.items != NIL)
		batch->more = true;
	else if (take.more || take.low_water <= since)
		/* orders are held by others: these items wait a little */
		batch->next_due = Min(batch->next_due, GetCurrentTimestamp() + SKIPPED_WAIT);
}

/*
 * Names of all lanes but this one.
 */
static List *
list_other_lanes(const Lane *lane)
{
	List	   *result = NIL;
	ListCell   *lc;

	foreach(lc, payguard_lanes_all())
	{
		if (lfirst(lc) != lane)
			result = lappend(result, ((Lane *) lfirst(lc))->name);
	}
	return result;
}

/*
 * How many of the leased items are this lane's?
 */
static int
count_items(const Batch *batch, const Lane *lane)
{
	int			result = 0;
	ListCell   *lc;

	foreach(lc, batch->items)
	{
		if (strcmp(((OutboxItem *) lfirst(lc))->gateway, lane->name) == 0)
			result++;
	}
	return result;
}

/*
 * A lane that was met only now may be unusable or narrow.  Then its items are
 * more than it has room for, and the transaction is not committed.
 */
static bool
fits_lanes(const Batch *batch, int free_slots)
{
	ListCell   *lc;

	foreach(lc, payguard_lanes_all())
	{
		int			count = count_items(batch, lfirst(lc));

		if (count > 0 && count > payguard_lane_room(lfirst(lc), free_slots))
			return false;
	}
	return true;
}

/*
 * Lease due items: first of each narrow lane, which take few, then of all
 * others together, so that neither kind starves.
 */
void
payguard_batch_take(Batch *batch)
{
	Worker	   *worker = batch->worker;
	int			free_slots = payguard_batch_free_slots(worker) + list_length(batch->booked);
	int			limit = Min(free_slots, BATCH_SIZE);
	List	   *closed = NIL;
	ListCell   *lc;

	batch->low_water = DT_NOEND;
	foreach(lc, payguard_lanes_all())
		payguard_lane_check(lfirst(lc));
	foreach(lc, payguard_lanes_all())
	{
		Lane	   *lane = lfirst(lc);
		int			room = payguard_lane_room(lane, free_slots);

		lane->low_water = room > 0 ? DT_NOEND : Min(lane->low_water, worker->low_water);
		if (room >= limit)
			continue;
		closed = lappend(closed, lane->name);
		room = Min(room, limit - list_length(batch->items));
		if (room > 0)
			take_items(batch, room, list_other_lanes(lane));
	}
	if (list_length(batch->items) < limit)
		take_items(batch, limit - list_length(batch->items), closed);
	else
	{
		batch->more = true;
		batch->low_water = Min(batch->low_water, worker->low_water);
	}
	batch->must_repeat = !fits_lanes(batch, free_slots);
}
