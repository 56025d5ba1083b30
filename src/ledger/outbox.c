/*-------------------------------------------------------------------------
 *
 * outbox.c
 *	  The gateway calls to make.  This file alone reads and writes the outbox.
 *
 * A row is planned in the transaction that decides on the call, leased and
 * booked by the worker, and deleted when nothing is left to ask.  The frozen
 * bytes of a charge rest in its row (due at infinity) until the attempt is
 * decided, so that a permitted resend is byte-identical.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "ledger/outbox.h"
#include "utils/array.h"
#include "utils/builtins.h"

void		(*payguard_outbox_wake_hook) (TimestampTz due) = NULL;

static const char *const op_words[] = {
	"charge", "query", "refund", "refund_query", "close", "settlement", "deliver"
};

/*
 * The word of an op, as the enum column spells it.
 */
const char *
payguard_outbox_op_word(OutboxOp op)
{
	return op_words[op];
}

/*
 * Read an op's word back.
 */
OutboxOp
payguard_outbox_op_of(const char *word)
{
	for (int i = 0; i < (int) lengthof(op_words); i++)
		if (strcmp(op_words[i], word) == 0)
			return (OutboxOp) i;
	elog(ERROR, "unrecognized outbox op \"%s\"", word);
	return OUTBOX_QUERY;		/* keep the compiler quiet */
}

/*
 * Tell the worker, when this transaction commits, that something is due.
 */
void
payguard_outbox_wake(TimestampTz due)
{
	if (payguard_outbox_wake_hook != NULL && !TIMESTAMP_IS_NOEND(due))
		payguard_outbox_wake_hook(due);
}

/*
 * Plan a call, or bring a planned one forward.
 */
void
payguard_outbox_plan(const OutboxPlan *plan)
{
	static LedgerPlan upsert = {
		"INSERT INTO payguard.outbox AS x"
		" (origin, order_id, attempt_no, refund_id, next_run_at, op, gateway, request)"
		" VALUES ($1, $2, $3, $4, $5, $6::payguard.outbox_op, $7, $8)"
		" ON CONFLICT (order_id, attempt_no, op, refund_id, day, gateway) WHERE op <> 'deliver'"
		" DO UPDATE SET next_run_at = CASE WHEN x.id = $9 THEN EXCLUDED.next_run_at"
		"   ELSE LEAST(x.next_run_at, EXCLUDED.next_run_at) END,"
		"   state = 'ready', lease_until = NULL, request = COALESCE(x.request, EXCLUDED.request)"
		" WHERE x.state = 'ready' OR (x.id = $9 AND x.epoch = $10)",
		10, {INT8OID, INT8OID, INT4OID, INT8OID, TIMESTAMPTZOID, TEXTOID, TEXTOID, BYTEAOID,
		INT8OID, INT4OID}, NULL
	};
	Datum		values[10];
	char		nulls[11] = "          ";

	values[0] = Int64GetDatum(payguard_origin());
	values[1] = Int64GetDatum(plan->order_id);
	values[2] = Int32GetDatum(plan->attempt_no);
	if (plan->attempt_no == 0)
		nulls[2] = 'n';
	values[3] = Int64GetDatum(plan->refund_id);
	if (plan->refund_id == 0)
		nulls[3] = 'n';
	values[4] = TimestampTzGetDatum(plan->next_run_at);
	values[5] = CStringGetTextDatum(op_words[plan->op]);
	values[6] = CStringGetTextDatum(plan->gateway);
	values[7] = PointerGetDatum(plan->request);
	if (plan->request == NULL)
		nulls[7] = 'n';
	values[8] = Int64GetDatum(plan->own_id);
	values[9] = Int32GetDatum(plan->own_epoch);
	payguard_plan_run(&upsert, values, nulls);
	payguard_outbox_wake(plan->next_run_at);
}

/*
 * Let the frozen bytes of an attempt's charge, or of a refund, go out again.
 */
void
payguard_outbox_resend(const OutboxPlan *plan)
{
	static LedgerPlan charge = {
		"UPDATE payguard.outbox SET state = 'ready', lease_until = NULL, next_run_at = $3"
		" WHERE order_id = $1 AND attempt_no = $2 AND op = 'charge' AND request IS NOT NULL"
		" AND (state = 'ready' OR (id = $4 AND epoch = $5))",
		5, {INT8OID, INT4OID, TIMESTAMPTZOID, INT8OID, INT4OID}, NULL
	};
	static LedgerPlan refund = {
		"UPDATE payguard.outbox SET state = 'ready', lease_until = NULL, next_run_at = $3"
		" WHERE order_id = $1 AND refund_id = $2 AND op = 'refund'"
		" AND (state = 'ready' OR (id = $4 AND epoch = $5))",
		5, {INT8OID, INT8OID, TIMESTAMPTZOID, INT8OID, INT4OID}, NULL
	};
	bool		is_refund = plan->refund_id != 0;
	Datum		values[5];

	values[0] = Int64GetDatum(plan->order_id);
	values[1] = is_refund ? Int64GetDatum(plan->refund_id) : Int32GetDatum(plan->attempt_no);
	values[2] = TimestampTzGetDatum(plan->next_run_at);
	values[3] = Int64GetDatum(plan->own_id);
	values[4] = Int32GetDatum(plan->own_epoch);
	payguard_plan_run(is_refund ? &refund : &charge, values, NULL);
	payguard_outbox_wake(plan->next_run_at);
}

/*
 * Drop what is planned for an attempt.
 */
void
payguard_outbox_drop(int64 order_id, int32 attempt_no)
{
	static LedgerPlan delete = {
		"DELETE FROM payguard.outbox"
		" WHERE order_id = $1 AND attempt_no = $2 AND refund_id IS NULL"
		" AND op IN ('charge', 'query', 'close')",
		2, {INT8OID, INT4OID}, NULL
	};
	Datum		values[2] = {Int64GetDatum(order_id), Int32GetDatum(attempt_no)};

	payguard_plan_run(&delete, values, NULL);
}

/*
 * Drop what is planned for a refund.
 */
void
payguard_outbox_drop_refund(int64 order_id, int64 refund_id)
{
	static LedgerPlan delete = {
		"DELETE FROM payguard.outbox WHERE order_id = $1 AND refund_id = $2"
		" AND op IN ('refund', 'refund_query')",
		2, {INT8OID, INT8OID}, NULL
	};
	Datum		values[2] = {Int64GetDatum(order_id), Int64GetDatum(refund_id)};

	payguard_plan_run(&delete, values, NULL);
}

/*
 * Steps of the schedule that were used for a refund.
 */
int32
payguard_outbox_refund_tries(int64 order_id, int64 refund_id)
{
	static LedgerPlan read = {
		"SELECT COALESCE(max(CASE op WHEN 'refund' THEN tries - 1 ELSE tries END), 0)"
		" FROM payguard.outbox WHERE order_id = $1 AND refund_id = $2"
		" AND op IN ('refund', 'refund_query')",
		2, {INT8OID, INT8OID}, NULL
	};
	Datum		values[2] = {Int64GetDatum(order_id), Int64GetDatum(refund_id)};

	payguard_plan_run(&read, values, NULL);
	return Max(payguard_row_int32(0, 0), 0);
}

/*
 * Is another question about the order's charges planned than this item's own?
 */
bool
payguard_outbox_asks(int64 order_id, int64 own_id)
{
	static LedgerPlan read = {
		"SELECT FROM payguard.outbox WHERE order_id = $1 AND id <> $2 AND op = 'query'"
		" AND next_run_at < 'infinity'",
		2, {INT8OID, INT8OID}, NULL
	};
	Datum		values[2] = {Int64GetDatum(order_id), Int64GetDatum(own_id)};

	return payguard_plan_run(&read, values, NULL) > 0;
}

/*
 * How many steps of the query schedule were used for this attempt: tries of
 * its query or close, or of its charge where the same bytes are the only question.
 */
int32
payguard_outbox_tries(int64 order_id, int32 attempt_no)
{
	static LedgerPlan read = {
		"SELECT COALESCE(max(CASE op WHEN 'charge' THEN tries - 1 ELSE tries END), 0)"
		" FROM payguard.outbox WHERE order_id = $1 AND attempt_no = $2 AND refund_id IS NULL"
		" AND op IN ('charge', 'query', 'close')",
		2, {INT8OID, INT4OID}, NULL
	};
	Datum		values[2] = {Int64GetDatum(order_id), Int32GetDatum(attempt_no)};

	payguard_plan_run(&read, values, NULL);
	return Max(payguard_row_int32(0, 0), 0);
}

/*
 * adopt() takes over what waits: all items belong to this origin from now on,
 * and charges that a failover held back, because nobody could be asked about
 * them, may go out.
 */
int64
payguard_outbox_restamp(int64 origin)
{
	static LedgerPlan update = {
		"UPDATE payguard.outbox SET origin = $1 WHERE origin <> $1",
		1, {INT8OID}, NULL
	};
	static LedgerPlan release = {
		"UPDATE payguard.outbox x SET next_run_at = clock_timestamp()"
		" WHERE op = 'charge' AND state = 'ready' AND next_run_at = 'infinity'"
		" AND EXISTS (SELECT FROM payguard.attempts a WHERE a.order_id = x.order_id"
		"   AND a.no = x.attempt_no AND a.state = 'claimed')"
		" AND NOT EXISTS (SELECT FROM payguard.outbox q WHERE q.order_id = x.order_id"
		"   AND q.attempt_no = x.attempt_no AND q.op = 'query')",
		0, {0}, NULL
	};
	Datum		values[1] = {Int64GetDatum(origin)};
	uint64		count = payguard_plan_run(&update, values, NULL);

	count += payguard_plan_run(&release, NULL, NULL);
	if (count > 0)
		payguard_outbox_wake(GetCurrentTimestamp());
	return (int64) count;
}

/*
 * A predecessor of this worker died with calls under way: let their leases
 * lapse now.  Only what is due can be under way, which is what the index finds.
 */
int64
payguard_outbox_orphan(void)
{
	static LedgerPlan update = {
		"UPDATE payguard.outbox SET lease_until = '-infinity'"
		" WHERE state = 'sending' AND origin = $1 AND next_run_at <= clock_timestamp()",
		1, {INT8OID}, NULL
	};
	Datum		values[1] = {Int64GetDatum(payguard_origin())};

	return (int64) payguard_plan_run(&update, values, NULL);
}

/*
 * Lock these orders in sorted order, skipping what others hold; returns the
 * ids that were locked.
 */
List *
payguard_outbox_lock_orders(List *order_ids)
{
	static LedgerPlan lock = {
		"SELECT id FROM payguard.orders WHERE id = ANY ($1) ORDER BY id"
		" FOR NO KEY UPDATE SKIP LOCKED",
		1, {INT8ARRAYOID}, NULL
	};
	Datum	   *ids = palloc(sizeof(Datum) * Max(list_length(order_ids), 1));
	Datum		values[1];
	List	   *locked = NIL;
	ListCell   *lc;
	int			n = 0;
	uint64		rows;

	foreach(lc, order_ids)
		ids[n++] = Int64GetDatum(*(int64 *) lfirst(lc));
	if (n == 0)
		return NIL;
	values[0] = PointerGetDatum(construct_array(ids, n, INT8OID, sizeof(int64), true, 'd'));
	rows = payguard_plan_run(&lock, values, NULL);
	for (uint64 i = 0; i < rows; i++)
	{
		int64	   *id = palloc(sizeof(int64));

		*id = payguard_row_int64(i, 0);
		locked = lappend(locked, id);
	}
	return locked;
}

/*
 * The call under this lease is over and nothing was planned for the item: its
 * bytes rest.
 */
void
payguard_outbox_rest(int64 id, int32 epoch)
{
	static LedgerPlan rest = {
		"UPDATE payguard.outbox SET state = 'ready', lease_until = NULL, next_run_at = 'infinity'"
		" WHERE id = $1 AND epoch = $2 AND state = 'sending'",
		2, {INT8OID, INT4OID}, NULL
	};
	Datum		values[2] = {Int64GetDatum(id), Int32GetDatum(epoch)};

	payguard_plan_run(&rest, values, NULL);
}

/*
 * The item's call is over and the door planned nothing for it: a charge rests
 * with its bytes, everything else goes.
 */
static void
finish_item(const OutboxItem *item)
{
	static LedgerPlan delete = {
		"DELETE FROM payguard.outbox WHERE id = $1 AND epoch = $2 AND state = 'sending'",
		2, {INT8OID, INT4OID}, NULL
	};
	Datum		values[2] = {Int64GetDatum(item->id), Int32GetDatum(item->epoch)};

	if (item->op == OUTBOX_CHARGE || item->op == OUTBOX_REFUND)
		payguard_outbox_rest(item->id, item->epoch);
	else
		payguard_plan_run(&delete, values, NULL);
}

/*
 * Put an item off whose call told nothing, or whose booking failed.
 */
void
payguard_outbox_put_off(const OutboxItem *item, TimestampTz next_run_at)
{
	static LedgerPlan update = {
		"UPDATE payguard.outbox SET state = 'ready', lease_until = NULL, next_run_at = $3"
		" WHERE id = $1 AND epoch = $2 AND state = 'sending'",
		3, {INT8OID, INT4OID, TIMESTAMPTZOID}, NULL
	};
	Datum		values[3] = {Int64GetDatum(item->id), Int32GetDatum(item->epoch),
	TimestampTzGetDatum(next_run_at)};

	payguard_plan_run(&update, values, NULL);
	payguard_outbox_wake(next_run_at);
}

/*
 * Book the answer of an item through the one door.
 */
void
payguard_outbox_answer(const OutboxItem *item, Evidence *evidence)
{
	EvidenceOutcome outcome;

	if (item->op == OUTBOX_DELIVER)
	{
		payguard_deliver_answer(item, evidence->result == EVIDENCE_RESULT_SUCCEEDED);
		return;
	}
	evidence->order_id = item->order_id;
	evidence->attempt_no = item->attempt_no;
	evidence->refund_id = item->refund_id;
	evidence->gateway = item->gateway;
	evidence->outbox_id = item->id;
	evidence->outbox_epoch = item->epoch;
	payguard_apply_evidence(evidence, &outcome);
	if (outcome.outbox_dropped)
		return;

	if (item->op == OUTBOX_CLOSE &&
		(evidence->result == EVIDENCE_RESULT_UNKNOWN || evidence->result == EVIDENCE_RESULT_NOT_SENT))
	{
		GatewayTraits traits;
		bool		exhausted;

		payguard_traits_hook(item->gateway, &traits);
		payguard_outbox_put_off(item, GetCurrentTimestamp() +
					 payguard_query_delay(&traits, item->tries - 1, &exhausted));
	}
	else
		finish_item(item);
}

/*
 * What became of a charge or refund could not be judged: its bytes rest, and the gateway
 * is asked at that time.
 */
void
payguard_outbox_ask_later(const OutboxItem *item, TimestampTz next_run_at)
{
	OutboxPlan	query = {item->refund_id != 0 ? OUTBOX_REFUND_QUERY : OUTBOX_QUERY, item->gateway,
	item->order_id, item->attempt_no, item->refund_id, next_run_at, NULL, 0, 0};

	payguard_outbox_move(item->id, DT_NOEND);
	payguard_outbox_plan(&query);
}

/*
 * The booking of an answer failed alone: keep the fact, and ask again later.
 */
void
payguard_outbox_park(const OutboxItem *item, Evidence *evidence, int sqlstate)
{
	EvidenceOutcome outcome;
	TimestampTz ask_again = GetCurrentTimestamp() + INT64CONST(60) * USECS_PER_SEC;

	if (item->op == OUTBOX_DELIVER)
	{
		payguard_outbox_put_off(item, ask_again);
		return;
	}
	evidence->order_id = item->order_id;
	evidence->attempt_no = item->attempt_no;
	evidence->refund_id = item->refund_id;
	evidence->gateway = item->gateway;
	payguard_park_evidence(evidence, sqlstate, &outcome);
	if (item->op == OUTBOX_CHARGE || item->op == OUTBOX_REFUND)
		payguard_outbox_ask_later(item, ask_again);
	else
		payguard_outbox_put_off(item, ask_again);
}

/*
 * Take an item out of the outbox that has nothing left to do.
 */
void
payguard_outbox_delete(int64 id)
{
	static LedgerPlan delete = {
		"DELETE FROM payguard.outbox WHERE id = $1", 1, {INT8OID}, NULL
	};
	Datum		values[1] = {Int64GetDatum(id)};

	payguard_plan_run(&delete, values, NULL);
}

/*
 * Move the time of an item that is not under way.
 */
void
payguard_outbox_move(int64 id, TimestampTz next_run_at)
{
	static LedgerPlan update = {
		"UPDATE payguard.outbox SET next_run_at = $2, state = 'ready', lease_until = NULL WHERE id = $1",
		2, {INT8OID, TIMESTAMPTZOID}, NULL
	};
	Datum		values[2] = {Int64GetDatum(id), TimestampTzGetDatum(next_run_at)};

	payguard_plan_run(&update, values, NULL);
	payguard_outbox_wake(next_run_at);
}

/*
 * What is planned for an order, for people to read.  The bytes of a charge
 * that rest at infinity are no planned call.
 */
List *
payguard_outbox_planned(int64 order_id)
{
	static LedgerPlan read = {
		"SELECT op::text, state = 'sending', origin <> $2, attempt_no, refund_id, next_run_at, tries"
		" FROM payguard.outbox WHERE order_id = $1 AND op <> 'deliver' AND next_run_at < 'infinity'"
		" ORDER BY next_run_at, id",
		2, {INT8OID, INT8OID}, NULL
	};
	Datum		values[2] = {Int64GetDatum(order_id), Int64GetDatum(payguard_origin())};
	List	   *calls = NIL;
	uint64		rows = payguard_plan_run(&read, values, NULL);

	for (uint64 i = 0; i < rows; i++)
	{
		PlannedCall *call = palloc(sizeof(PlannedCall));
		bool		isnull;

		call->op = payguard_outbox_op_of(payguard_row_text(i, 0));
		call->is_under_way = payguard_row_bool(i, 1);
		call->is_foreign = payguard_row_bool(i, 2);
		call->attempt_no = payguard_row_int32(i, 3);
		call->refund_id = payguard_row_int64(i, 4);
		call->next_run_at = payguard_row_time(i, 5, &isnull);
		call->tries = payguard_row_int32(i, 6);
		calls = lappend(calls, call);
	}
	return calls;
}

/*
 * Make no calls to a gateway until it is resumed; false: it was paused.
 */
bool
payguard_outbox_pause(const char *gateway)
{
	static LedgerPlan insert = {
		"INSERT INTO payguard.gateway_pauses (gateway, paused_by) VALUES ($1, session_user)"
		" ON CONFLICT (gateway) DO NOTHING",
		1, {TEXTOID}, NULL
	};
	Datum		values[1] = {CStringGetTextDatum(gateway)};

	return payguard_plan_run(&insert, values, NULL) > 0;
}

/*
 * Call a paused gateway again, and send events again that an endpoint has not
 * accepted; false: it was not paused.
 */
bool
payguard_outbox_resume(const char *gateway)
{
	static LedgerPlan delete = {
		"DELETE FROM payguard.gateway_pauses WHERE gateway = $1", 1, {TEXTOID}, NULL
	};
	Datum		values[1] = {CStringGetTextDatum(gateway)};

	payguard_deliver_revive(gateway);
	if (payguard_plan_run(&delete, values, NULL) == 0)
		return false;
	payguard_outbox_wake((TimestampTz) 0);		/* what waited may have been due for long */
	return true;
}
