/*-------------------------------------------------------------------------
 *
 * lease.c
 *	  T1: which outbox items the worker may call now.
 *
 * Due items of our own origin are leased under their orders' locks, taken in
 * sorted order and skipping what others hold.  A charge goes out only if the
 * order still waits for this attempt; the attempt is marked `sending` and the
 * commit is flushed before the first byte.  A lapsed lease of a charge is
 * evidence of an unknown outcome, never a reason to send again.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "core/settings.h"
#include "ledger/door.h"
#include "ledger/instance.h"
#include "ledger/outbox.h"
#include "ledger/refund.h"
#include "utils/array.h"
#include "utils/builtins.h"

/* An item whose fact could not be judged is looked at again after this. */
#define PARKED_WAIT		(INT64CONST(60) * USECS_PER_SEC)

/* A due row with what T1 must know of its order and attempt. */
typedef struct Candidate
{
	OutboxItem *item;
	bool		lapsed;			/* its lease ended without an answer */
	OrderFacts	order;
	AttemptFacts attempt;
	char	   *status_word;
	TimestampTz attempt_lease_until;
	bool		attempt_has_lease;
} Candidate;

/*
 * Step 1: find due rows without locking anything.  Returns their order ids
 * and ids; notes whether more were there, and how many are deliveries, which
 * have no order.
 */
static int
find_due(OutboxTake *take, TimestampTz now, Datum **ids, List **order_ids, int *ndeliveries)
{
	static LedgerPlan scan = {
		"SELECT id, order_id, next_run_at, op = 'deliver' FROM payguard.outbox x"
		" WHERE next_run_at <= $1 AND next_run_at >= $2 AND origin = $3"
		" AND (state = 'ready' OR lease_until < $1)"
		" AND op IN ('charge', 'query', 'close', 'refund', 'refund_query', 'deliver')"
		" AND NOT gateway = ANY ($4) AND NOT id = ANY ($5)"
		" AND NOT EXISTS (SELECT FROM payguard.gateway_pauses p WHERE p.gateway = x.gateway)"
		" ORDER BY next_run_at LIMIT $6",
		6, {TIMESTAMPTZOID, TIMESTAMPTZOID, INT8OID, TEXTARRAYOID, INT8ARRAYOID, INT8OID}, NULL
	};
	Datum		values[6];
	Datum	   *closed = palloc(sizeof(Datum) * Max(list_length(take->closed_gateways), 1));
	Datum	   *in_flight = palloc(sizeof(Datum) * Max(list_length(take->in_flight), 1));
	ListCell   *lc;
	int			nclosed = 0;
	int			nflight = 0;
	uint64		rows;

	foreach(lc, take->closed_gateways)
		closed[nclosed++] = CStringGetTextDatum((char *) lfirst(lc));
	foreach(lc, take->in_flight)
		in_flight[nflight++] = Int64GetDatum(*(int64 *) lfirst(lc));

	values[0] = TimestampTzGetDatum(now);
	values[1] = TimestampTzGetDatum(take->since);
	values[2] = Int64GetDatum(payguard_origin());
	values[3] = PointerGetDatum(construct_array(closed, nclosed, TEXTOID, -1, false, 'i'));
	values[4] = PointerGetDatum(construct_array(in_flight, nflight, INT8OID, sizeof(int64), true, 'd'));
	values[5] = Int64GetDatum(take->limit + 1);
	rows = payguard_plan_run(&scan, values, NULL);

	take->more = rows > (uint64) take->limit;
	take->low_water = now;
	if (take->more)
		rows = take->limit;
	*ids = palloc(sizeof(Datum) * Max(rows, 1));
	*order_ids = NIL;
	*ndeliveries = 0;
	for (uint64 i = 0; i < rows; i++)
	{
		bool		isnull;

		(*ids)[i] = Int64GetDatum(payguard_row_int64(i, 0));
		if (payguard_row_bool(i, 3))
			(*ndeliveries)++;
		else
		{
			int64	   *order_id = palloc(sizeof(int64));

			*order_id = payguard_row_int64(i, 1);
			*order_ids = lappend(*order_ids, order_id);
		}
		if (take->more)
			take->low_water = payguard_row_time(i, 2, &isnull);
	}
	return (int) rows;
}

/*
 * When is the next item due that is not due yet?
 */
static TimestampTz
find_next_due(TimestampTz now)
{
	static LedgerPlan read = {
		"SELECT next_run_at FROM payguard.outbox"
		" WHERE next_run_at > $1 AND next_run_at < 'infinity' AND origin = $2"
		" ORDER BY next_run_at LIMIT 1",
		2, {TIMESTAMPTZOID, INT8OID}, NULL
	};
	Datum		values[2] = {TimestampTzGetDatum(now), Int64GetDatum(payguard_origin())};
	bool		isnull;

	if (payguard_plan_run(&read, values, NULL) == 0)
		return DT_NOEND;
	return payguard_row_time(0, 0, &isnull);
}

/*
 * One row of read_candidates().
 */
static Candidate *
read_candidate(uint64 row)
{
	Candidate  *candidate = palloc0(sizeof(Candidate));
	OutboxItem *item = palloc0(sizeof(OutboxItem));
	CallBy		call_by = CALL_BY_WORKER;
	Datum		request;
	bool		isnull;
	char	   *state;

	candidate->item = item;
	item->id = payguard_row_int64(row, 0);
	item->epoch = payguard_row_int32(row, 1);
	item->op = payguard_outbox_op_of(payguard_row_text(row, 2));
	item->gateway = payguard_row_text(row, 3);
	item->order_id = payguard_row_int64(row, 4);
	item->attempt_no = payguard_row_int32(row, 5);
	item->tries = payguard_row_int32(row, 6);
	request = payguard_row_datum(row, 7, &isnull);
	item->request = isnull ? NULL : DatumGetByteaPCopy(request);
	candidate->lapsed = strcmp(payguard_row_text(row, 8), "sending") == 0;
	item->order_reference = payguard_row_text(row, 9);
	candidate->order.status = payguard_order_status_of(payguard_row_text(row, 10));
	(void) payguard_money_parse(payguard_row_text(row, 11), payguard_row_text(row, 12),
								&item->money);
	candidate->attempt.is_current = item->attempt_no == payguard_row_int32(row, 13);
	candidate->order.close_requested = payguard_row_bool(row, 14);
	state = payguard_row_text(row, 15);
	if (state != NULL)
	{
		candidate->attempt.exists = true;
		candidate->attempt.state = payguard_attempt_state_of(state);
		(void) payguard_call_by_read(payguard_row_text(row, 16), &call_by);
		candidate->attempt.call_by = call_by;
	}
	item->gateway_reference = payguard_row_text(row, 17);
	item->idempotency_key = payguard_row_text(row, 18);
	item->provider_id = payguard_row_text(row, 19);
	candidate->attempt_lease_until = payguard_row_time(row, 20, &isnull);
	candidate->attempt_has_lease = !isnull;
	candidate->order.entitled_elsewhere = payguard_row_bool(row, 21);
	candidate->attempt.ask_first = payguard_row_bool(row, 22);
	candidate->attempt.key_from = payguard_row_time(row, 23, &isnull);
	item->refund_id = payguard_row_int64(row, 24);
	return candidate;
}

/*
 * Step 2, after the locks: read the rows again with what decides about them.
 * Rows that changed meanwhile and are no longer due drop out.
 */
static List *
read_candidates(Datum *ids, int nids, List *locked, TimestampTz now, TimestampTz switched_at)
{
	static LedgerPlan read = {
		"SELECT x.id, x.epoch, x.op::text, x.gateway, x.order_id, x.attempt_no, x.tries,"
		" x.request, x.state::text, o.reference, o.status::text, o.amount, o.currency,"
		" o.attempt_no, o.close_requested_at IS NOT NULL, a.state::text, a.call_by::text,"
		" a.gateway_reference, a.idempotency_key, a.provider_id, a.lease_until,"
		" o.once AND EXISTS (SELECT FROM payguard.entitlements e WHERE e.customer = o.customer"
		"   AND e.product = o.product AND e.order_id <> o.id),"
		" o.created_at < $4 AND NOT EXISTS (SELECT FROM payguard.evidence e"
		"   WHERE e.order_id = x.order_id AND e.attempt_no = x.attempt_no AND e.source = 'query'"
		"   AND e.result NOT IN ('unknown', 'not_sent') AND e.received_at > $4),"
		" o.created_at, x.refund_id"
		" FROM payguard.outbox x"
		" JOIN payguard.orders o ON o.id = x.order_id"
		" LEFT JOIN payguard.attempts a ON a.order_id = x.order_id AND a.no = x.attempt_no"
		" WHERE x.id = ANY ($1) AND x.order_id = ANY ($2) AND x.next_run_at <= $3"
		" AND (x.state = 'ready' OR x.lease_until < $3)"
		" ORDER BY x.next_run_at, x.id",
		4, {INT8ARRAYOID, INT8ARRAYOID, TIMESTAMPTZOID, TIMESTAMPTZOID}, NULL
	};
	Datum	   *order_ids = palloc(sizeof(Datum) * Max(list_length(locked), 1));
	Datum		values[4];
	List	   *candidates = NIL;
	ListCell   *lc;
	int			n = 0;
	uint64		rows;

	foreach(lc, locked)
		order_ids[n++] = Int64GetDatum(*(int64 *) lfirst(lc));
	values[0] = PointerGetDatum(construct_array(ids, nids, INT8OID, sizeof(int64), true, 'd'));
	values[1] = PointerGetDatum(construct_array(order_ids, n, INT8OID, sizeof(int64), true, 'd'));
	values[2] = TimestampTzGetDatum(now);
	values[3] = TimestampTzGetDatum(switched_at);
	rows = payguard_plan_run(&read, values, NULL);
	for (uint64 i = 0; i < rows; i++)
		candidates = lappend(candidates, read_candidate(i));
	return candidates;
}

/*
 * A fact that this file tells the door about an item that will not go out.
 * False: it could not be judged and is parked; the item is asked about later,
 * and the other items of this take are not held up.
 */
bool
payguard_lease_tell(const OutboxItem *item, EvidenceResult result, const char *code, bool is_stop)
{
	Evidence	evidence = {0};
	EvidenceOutcome outcome;

	evidence.source = EVIDENCE_SOURCE_ANSWER;
	evidence.result = result;
	evidence.is_stop = is_stop;
	evidence.gateway = item->gateway;
	evidence.gateway_reference = item->gateway_reference;
	evidence.order_id = item->order_id;
	evidence.attempt_no = item->attempt_no;
	evidence.refund_id = item->refund_id;
	evidence.is_refund = item->refund_id != 0;
	evidence.mode = MODE_NOT_TOLD;
	evidence.code = code;
	evidence.received_at = GetCurrentTimestamp();
	evidence.outbox_id = item->id;
	evidence.outbox_epoch = item->epoch;
	if (payguard_book_fact(&evidence, &outcome))
		return true;
	if (item->op == OUTBOX_CHARGE || item->op == OUTBOX_REFUND)
		payguard_outbox_ask_later(item, GetCurrentTimestamp() + PARKED_WAIT);
	else
		payguard_outbox_move(item->id, GetCurrentTimestamp() + PARKED_WAIT);
	return false;
}

/*
 * The charge will not go out: an attempt that never left ends by our own
 * evidence, and a wished close is done.  One that may have left before a
 * failover is asked about meanwhile, and its bytes rest.
 */
static void
drop_charge(const Candidate *candidate)
{
	const OutboxItem *item = candidate->item;
	const AttemptFacts *attempt = &candidate->attempt;
	bool		unsent = attempt->exists &&
		(attempt->state == ATTEMPT_CLAIMED || attempt->state == ATTEMPT_SENDING);

	if (unsent &&
		!payguard_lease_tell(item, EVIDENCE_RESULT_NOT_SENT,
				   candidate->order.close_requested ? "close_requested" : "superseded", true))
		return;
	/* where the door ended the attempt, it has dropped the item as well */
	if ((unsent && attempt->ask_first && attempt->is_current) ||
		(attempt->exists && attempt->state == ATTEMPT_UNKNOWN))
		payguard_outbox_move(item->id, DT_NOEND);
	else
		payguard_outbox_delete(item->id);
}

/*
 * A charge that is due: may it go out?
 */
static bool
may_charge(const Candidate *candidate)
{
	const OutboxItem *item = candidate->item;
	GatewayTraits traits;

	if (candidate->lapsed)
	{
		(void) payguard_lease_tell(item, EVIDENCE_RESULT_UNKNOWN, "lease_lapsed", false);
		/* unless the door planned the same bytes again, they rest */
		payguard_outbox_rest(item->id, item->epoch);
		return false;
	}
	payguard_traits_hook(item->gateway, &traits);
	switch (payguard_may_send(&candidate->order, &candidate->attempt, &traits,
							  GetCurrentTimestamp()))
	{
		case SEND_NOW:
			if (item->request != NULL)
				return true;
			drop_charge(candidate);
			break;
		case SEND_ASK_FIRST:
			payguard_outbox_ask_later(item, GetCurrentTimestamp());
			break;
		case SEND_HOLD:
			payguard_outbox_move(item->id, DT_NOEND);
			payguard_review_add_other(item->order_id, REVIEW_WAITS_FOR_ADOPT);
			break;
		case SEND_DROP:
			drop_charge(candidate);
			break;
	}
	return false;
}

/*
 * A question that is due: does the attempt still wait for its answer?  An
 * application's claim whose lease lapsed unreported becomes unknown first.
 */
static bool
may_ask(const Candidate *candidate, TimestampTz now)
{
	const OutboxItem *item = candidate->item;
	const AttemptFacts *attempt = &candidate->attempt;

	/* a failed one is asked about as well, when a later fact contradicts it */
	if (!attempt->exists)
	{
		payguard_outbox_delete(item->id);
		return false;
	}
	if (attempt->call_by != CALL_BY_APPLICATION || attempt->state != ATTEMPT_SENDING)
		return true;

	if (candidate->attempt_has_lease && candidate->attempt_lease_until > now)
	{
		payguard_outbox_move(item->id, candidate->attempt_lease_until);
		return false;
	}
	(void) payguard_lease_tell(item, EVIDENCE_RESULT_UNKNOWN, "lease_lapsed", false);
	return false;
}

/*
 * Lease one item: epoch, tries and lease go up in the row and in the struct.
 */
void
payguard_outbox_lease(OutboxTake *take, OutboxItem *item, TimestampTz now)
{
	static LedgerPlan update = {
		"UPDATE payguard.outbox SET state = 'sending', epoch = epoch + 1, tries = tries + 1,"
		" lease_until = $2 WHERE id = $1",
		2, {INT8OID, TIMESTAMPTZOID}, NULL
	};
	Datum		values[2];

	values[0] = Int64GetDatum(item->id);
	values[1] = TimestampTzGetDatum(now + take->total_timeout(item->gateway) + take->lease_margin);
	payguard_plan_run(&update, values, NULL);
	item->epoch++;
	item->tries++;
}

/*
 * The intent to send: after this commit is flushed, the charge may have left.
 */
static void
mark_sending(const OutboxItem *item, TimestampTz now)
{
	static LedgerPlan update = {
		"UPDATE payguard.attempts SET state = 'sending', sent_at = $3"
		" WHERE order_id = $1 AND no = $2",
		3, {INT8OID, INT4OID, TIMESTAMPTZOID}, NULL
	};
	Datum		values[3] = {Int64GetDatum(item->order_id), Int32GetDatum(item->attempt_no),
	TimestampTzGetDatum(now)};

	payguard_plan_run(&update, values, NULL);
}

/*
 * T1.  See ledger.h.
 */
void
payguard_outbox_take(OutboxTake *take)
{
	TimestampTz now = GetCurrentTimestamp();
	bool		sends_money = false;
	Datum	   *ids;
	List	   *order_ids;
	List	   *locked;
	ListCell   *lc;
	TimestampTz switched_at;
	int			nids;
	int			ndeliveries;

	take->items = NIL;
	take->next_due = DT_NOEND;
	nids = find_due(take, now, &ids, &order_ids, &ndeliveries);
	if (order_ids != NIL)
	{
		if (!payguard_instance_switched(&switched_at))
			switched_at = DT_NOBEGIN;
		locked = payguard_outbox_lock_orders(order_ids);
		foreach(lc, read_candidates(ids, nids, locked, now, switched_at))
		{
			Candidate  *candidate = lfirst(lc);
			OutboxItem *item = candidate->item;
			bool		go = item->refund_id != 0 ?
				payguard_refund_may_call(item, candidate->lapsed) :
				item->op == OUTBOX_CHARGE ? may_charge(candidate) : may_ask(candidate, now);

			if (!go)
				continue;
			if (item->op == OUTBOX_CHARGE)
			{
				mark_sending(item, now);
				sends_money = true;
			}
			else if (item->op == OUTBOX_REFUND)
				sends_money = true;
			payguard_outbox_lease(take, item, now);
			take->items = lappend(take->items, item);
		}
		if (list_length(locked) < list_length(order_ids))
			take->low_water = take->since;	/* skipped ones are still due */
	}
	if (ndeliveries > 0)
		payguard_deliver_lease(take, ids, nids, now);
	if (!take->more)
		take->next_due = find_next_due(now);
	if (sends_money)
		ForceSyncCommit();
}
