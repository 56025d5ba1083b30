/*-------------------------------------------------------------------------
 *
 * deliver.c
 *	  Outbox items of the op deliver: events on their way to endpoints.
 *
 * An endpoint is a consumer like any other, whose transaction plans one item
 * for each event that it takes; so the payments themselves never write one.
 * An item carries the request's bytes, without its time and signature, and
 * belongs to no order.  It goes when the endpoint has accepted it.  A lapsed
 * lease is sent again: an event is delivered at least once.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "ledger/consumer.h"
#include "ledger/outbox.h"
#include "utils/array.h"
#include "utils/builtins.h"

/*
 * Items of an endpoint that are due: so many more than these may be planned
 * that a slow endpoint never fills the outbox.
 */
static int
count_due(const char *endpoint)
{
	static LedgerPlan read = {
		"SELECT count(*) FROM payguard.outbox"
		" WHERE op = 'deliver' AND gateway = $1 AND origin = $2 AND next_run_at <= clock_timestamp()",
		2, {TEXTOID, INT8OID}, NULL
	};
	Datum		values[2] = {CStringGetTextDatum(endpoint), Int64GetDatum(payguard_origin())};

	payguard_plan_run(&read, values, NULL);
	return (int) payguard_row_int64(0, 0);
}

/*
 * Plan the delivery of events that this endpoint has not had, up to `limit`
 * due ones; true when there may be more.
 */
bool
payguard_deliver_plan(const char *endpoint, int limit)
{
	static LedgerPlan insert = {
		"INSERT INTO payguard.outbox (origin, next_run_at, op, gateway, request)"
		" SELECT $1, clock_timestamp(), 'deliver', $2, convert_to(concat("
		"   E'POST /\\r\\nContent-Type: application/json\\r\\nwebhook-id: ', e.id, E'\\r\\n\\r\\n',"
		"   jsonb_build_object('type', e.type, 'timestamp',"
		"     to_char(e.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"'),"
		"     'data', e.payload)), 'UTF8')"
		" FROM payguard.events e WHERE e.seq = ANY ($3) ORDER BY e.seq",
		3, {INT8OID, TEXTOID, INT8ARRAYOID}, NULL
	};
	int			room = limit - count_due(endpoint);
	int64	   *seqs;
	int			count;
	Datum		values[3];

	if (room <= 0)
		return false;
	seqs = palloc(sizeof(int64) * room);
	count = payguard_consumer_take(psprintf("%c%s", ENDPOINT_CONSUMER_PREFIX, endpoint), room, seqs);
	if (count == 0)
		return false;
	values[0] = Int64GetDatum(payguard_origin());
	values[1] = CStringGetTextDatum(endpoint);
	values[2] = payguard_seqs_param(seqs, count);
	payguard_plan_run(&insert, values, NULL);
	payguard_outbox_wake(GetCurrentTimestamp());
	return count == room;
}

/*
 * T1 of deliveries: lease those among these ids.  Nothing is locked but the
 * items themselves.
 */
void
payguard_deliver_lease(OutboxTake *take, const Datum *ids, int nids, TimestampTz now)
{
	static LedgerPlan read = {
		"SELECT id, epoch, gateway, tries, request FROM payguard.outbox"
		" WHERE id = ANY ($1) AND op = 'deliver' AND next_run_at <= $2"
		" AND (state = 'ready' OR lease_until < $2) ORDER BY next_run_at, id FOR UPDATE SKIP LOCKED",
		2, {INT8ARRAYOID, TIMESTAMPTZOID}, NULL
	};
	Datum		values[2];
	List	   *items = NIL;
	ListCell   *lc;
	uint64		rows;

	values[0] = PointerGetDatum(construct_array(unconstify(Datum *, ids), nids, INT8OID,
												sizeof(int64), true, 'd'));
	values[1] = TimestampTzGetDatum(now);
	rows = payguard_plan_run(&read, values, NULL);
	for (uint64 i = 0; i < rows; i++)
	{
		OutboxItem *item = palloc0(sizeof(OutboxItem));
		Datum		request;
		bool		isnull;

		item->op = OUTBOX_DELIVER;
		item->id = payguard_row_int64(i, 0);
		item->epoch = payguard_row_int32(i, 1);
		item->gateway = payguard_row_text(i, 2);
		item->tries = payguard_row_int32(i, 3);
		request = payguard_row_datum(i, 4, &isnull);
		item->request = isnull ? NULL : DatumGetByteaPCopy(request);
		items = lappend(items, item);
	}
	foreach(lc, items)
	{
		payguard_outbox_lease(take, lfirst(lc), now);
		take->items = lappend(take->items, lfirst(lc));
	}
}

/*
 * T2 of a delivery.  Accepted: the item goes.  Else it is tried again by the
 * endpoint's schedule; after the last step it rests, for people to see.
 */
void
payguard_deliver_answer(const OutboxItem *item, bool is_accepted)
{
	GatewayTraits traits;
	int64		delay;
	bool		exhausted;

	if (is_accepted)
	{
		payguard_outbox_delete(item->id);
		return;
	}
	payguard_traits_hook(item->gateway, &traits);
	delay = payguard_query_delay(&traits, item->tries - 1, &exhausted);
	if (exhausted)
		ereport(LOG,
				(errmsg("endpoint \"%s\" has not accepted event %s in %d tries",
						item->gateway, item->gateway_reference, item->tries),
				 errhint("Mend the endpoint, then call payguard.resume_gateway().")));
	payguard_outbox_put_off(item, exhausted ? DT_NOEND : GetCurrentTimestamp() + delay);
}

/*
 * Try again what an endpoint did not accept in all its tries.
 */
void
payguard_deliver_revive(const char *endpoint)
{
	static LedgerPlan update = {
		"UPDATE payguard.outbox SET next_run_at = clock_timestamp(), tries = 0"
		" WHERE op = 'deliver' AND gateway = $1 AND next_run_at = 'infinity'",
		1, {TEXTOID}, NULL
	};
	Datum		values[1] = {CStringGetTextDatum(endpoint)};

	if (payguard_plan_run(&update, values, NULL) > 0)
		payguard_outbox_wake(GetCurrentTimestamp());
}
