/*-------------------------------------------------------------------------
 *
 * facts.c
 *	  What the ledger holds, in the form that decisions look at.
 *
 * Reads only.  The caller holds the order's lock before it reads facts.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "ledger/door.h"
#include "ledger/instance.h"
#include "utils/builtins.h"

/*
 * One look-up of (order, attempt) by two texts; false when there is no row.
 */
static bool
look_up(LedgerPlan *plan, const char *first, const char *second,
		int64 *order_id, int32 *attempt_no)
{
	Datum		values[2];

	values[0] = CStringGetTextDatum(first);
	values[1] = CStringGetTextDatum(second);
	if (payguard_plan_run(plan, values, NULL) == 0)
		return false;
	*order_id = payguard_row_int64(0, 0);
	*attempt_no = payguard_row_int32(0, 1);
	return true;
}

/*
 * The order whose reference, with or without an attempt's suffix, this is.
 */
static bool
find_by_order_reference(const char *gateway_reference, const char *retry_suffix,
						int64 *order_id, int32 *attempt_no)
{
	static LedgerPlan by_reference = {
		"SELECT id FROM payguard.orders WHERE reference = $1", 1, {TEXTOID}, NULL
	};
	char		reference[GATEWAY_REFERENCE_SIZE];
	int			no;
	Datum		values[1];

	if (strlen(gateway_reference) >= sizeof(reference) ||
		!payguard_reference_split(gateway_reference, retry_suffix, reference, &no))
		return false;
	values[0] = CStringGetTextDatum(reference);
	if (payguard_plan_run(&by_reference, values, NULL) == 0)
		return false;
	*order_id = payguard_row_int64(0, 0);
	*attempt_no = no;
	return true;
}

/*
 * Which order and attempt does a fact speak of?  By what it carries, else by
 * the attempt's reference, the gateway's own id, or the order's reference.
 * False: none that is known here.
 */
bool
payguard_find_order(const Evidence *evidence, const GatewayTraits *traits,
					int64 *order_id, int32 *attempt_no)
{
	static LedgerPlan by_attempt = {
		"SELECT order_id, no FROM payguard.attempts WHERE gateway = $1 AND gateway_reference = $2",
		2, {TEXTOID, TEXTOID}, NULL
	};
	static LedgerPlan by_provider_id = {
		"SELECT order_id, attempt_no FROM payguard.payments WHERE gateway = $1 AND provider_id = $2"
		" UNION ALL"
		" SELECT order_id, attempt_no FROM payguard.provider_ids WHERE gateway = $1 AND provider_id = $2"
		" LIMIT 1",
		2, {TEXTOID, TEXTOID}, NULL
	};

	if (evidence->order_id != 0)
	{
		*order_id = evidence->order_id;
		*attempt_no = evidence->attempt_no;
		return true;
	}
	if (evidence->gateway_reference != NULL)
	{
		if (look_up(&by_attempt, evidence->gateway, evidence->gateway_reference,
					order_id, attempt_no))
			return true;
		if (find_by_order_reference(evidence->gateway_reference, traits->retry_suffix,
									order_id, attempt_no))
			return true;
	}
	if (evidence->provider_id != NULL &&
		look_up(&by_provider_id, evidence->gateway, evidence->provider_id, order_id, attempt_no))
		return true;
	return false;
}

/*
 * Lock the order, waiting for whoever holds it.  False: it is not there.
 */
bool
payguard_lock_order(int64 order_id)
{
	static LedgerPlan lock = {
		"SELECT id FROM payguard.orders WHERE id = $1 FOR NO KEY UPDATE", 1, {INT8OID}, NULL
	};
	Datum		values[1] = {Int64GetDatum(order_id)};

	return payguard_plan_run(&lock, values, NULL) > 0;
}

/*
 * The order's part of the row that read_facts() got.
 */
static void
fill_order(DoorFacts *facts)
{
	facts->order.status = payguard_order_status_of(payguard_row_text(0, 0));
	if (payguard_money_parse(payguard_row_text(0, 1), payguard_row_text(0, 2),
							 &facts->order.money) != MONEY_OK)
		elog(ERROR, "order " INT64_FORMAT " has an invalid amount", facts->order_id);
	facts->reference = payguard_row_text(0, 3);
	facts->order_gateway = payguard_row_text(0, 4);
	facts->latest_no = payguard_row_int32(0, 5);
	facts->order.close_requested = payguard_row_bool(0, 6);
	facts->order.is_refunded = payguard_row_bool(0, 7);
	facts->once = payguard_row_bool(0, 8);
	facts->customer = payguard_row_text(0, 9);
	facts->product = payguard_row_text(0, 10);
	facts->has_parked = payguard_row_bool(0, 11);
}

/*
 * The attempt's part: whether the fact fits it, and what the table asks of it.
 */
static void
fill_attempt(DoorFacts *facts, const Evidence *evidence, const GatewayTraits *traits)
{
	AttemptFacts *attempt = &facts->attempt;
	char	   *state = payguard_row_text(0, 12);
	const char *word;
	TimestampTz lease_until;
	TimestampTz sent_at;
	bool		no_lease;
	bool		not_sent;
	bool		isnull;

	if (state == NULL)
	{
		attempt->gateway_matches = (facts->order_gateway == NULL ||
									strcmp(facts->order_gateway, evidence->gateway) == 0) &&
			(evidence->mode == MODE_NOT_TOLD || evidence->mode == traits->mode);
		return;
	}
	attempt->exists = true;
	attempt->is_current = facts->attempt_no == facts->latest_no;
	attempt->state = payguard_attempt_state_of(state);
	facts->attempt_gateway = payguard_row_text(0, 13);
	attempt->gateway_matches = strcmp(facts->attempt_gateway, evidence->gateway) == 0 &&
		(evidence->mode == MODE_NOT_TOLD ||
		 strcmp(payguard_mode_word(evidence->mode), payguard_row_text(0, 14)) == 0);
	(void) payguard_call_by_read(payguard_row_text(0, 15), &attempt->call_by);
	word = payguard_row_text(0, 16);
	attempt->token_matches = word != NULL && evidence->lease_token != NULL &&
		strcmp(word, evidence->lease_token) == 0;
	lease_until = payguard_row_time(0, 17, &no_lease);
	attempt->lease_live = !no_lease && lease_until > GetCurrentTimestamp();
	facts->attempt_provider_id = payguard_row_text(0, 18);
	attempt->id_known = facts->attempt_provider_id != NULL || evidence->provider_id != NULL;
	sent_at = payguard_row_time(0, 19, &not_sent);
	attempt->created_at = payguard_row_time(0, 20, &isnull);
	attempt->key_from = attempt->created_at;
	attempt->reported = payguard_row_bool(0, 21);
	facts->attempt_reference = payguard_row_text(0, 22);
	attempt->settles_from = !no_lease && attempt->call_by == CALL_BY_APPLICATION ?
		lease_until : not_sent ? attempt->created_at : sent_at;
	facts->never_sent_here = attempt->call_by == CALL_BY_APPLICATION ? word == NULL : not_sent;
}

/*
 * The payments' part: the counted one, and the one of the fact's id.
 */
static void
fill_payment(DoorFacts *facts, const Evidence *evidence)
{
	PaymentFacts *payment = &facts->payment;
	char	   *counted_gateway = payguard_row_text(0, 23);
	char	   *counted_id = payguard_row_text(0, 24);
	int64		owner = payguard_row_int64(0, 26);
	int64		named = payguard_row_int64(0, 30);
	char	   *state;

	payment->counted_exists = counted_id != NULL;
	if (owner != 0 && owner != facts->order_id)
		facts->foreign_order_id = owner;
	else if (owner == 0 && named != 0 && named != facts->order_id)
		facts->foreign_order_id = named;
	payment->is_foreign = facts->foreign_order_id != 0;

	if (owner == facts->order_id)
	{
		char	   *reason = payguard_row_text(0, 28);

		payment->is_known = true;
		payment->is_counted = payguard_row_bool(0, 27);
		payment->is_mismatch = reason != NULL && strcmp(reason, "mismatch") == 0;
		(void) payguard_payment_read(payguard_row_text(0, 29), &payment->state);
	}
	else if (evidence->provider_id == NULL && payment->counted_exists &&
			 strcmp(counted_gateway, evidence->gateway) == 0 &&
			 (state = payguard_row_text(0, 25)) != NULL &&
			 facts->attempt.exists && facts->attempt.state == ATTEMPT_SUCCEEDED)
	{
		/* a fact without an id about the attempt that paid */
		payment->is_known = true;
		payment->is_counted = true;
		(void) payguard_payment_read(state, &payment->state);
	}
}

/*
 * Of an order that is older than a failover a send may be missing here.  It
 * happened after the order was made and before the switch; a query that was
 * answered since has told of it.
 */
static void
fill_failover(DoorFacts *facts)
{
	static LedgerPlan read = {
		"SELECT o.created_at, EXISTS (SELECT FROM payguard.evidence e WHERE e.order_id = o.id"
		"   AND e.attempt_no = $2 AND e.source = 'query'"
		"   AND e.result NOT IN ('unknown', 'not_sent') AND e.received_at > $3)"
		" FROM payguard.orders o WHERE o.id = $1 AND o.created_at < $3",
		3, {INT8OID, INT4OID, TIMESTAMPTZOID}, NULL
	};
	AttemptFacts *attempt = &facts->attempt;
	TimestampTz switched_at;
	Datum		values[3];
	bool		isnull;

	if (!attempt->exists || !payguard_instance_switched(&switched_at))
		return;
	values[0] = Int64GetDatum(facts->order_id);
	values[1] = Int32GetDatum(facts->attempt_no);
	values[2] = TimestampTzGetDatum(switched_at);
	if (payguard_plan_run(&read, values, NULL) == 0)
		return;
	attempt->key_from = payguard_row_time(0, 0, &isnull);
	attempt->ask_first = !payguard_row_bool(0, 1);
	attempt->settles_from = facts->never_sent_here ? switched_at :
		Max(attempt->settles_from, switched_at);
}

/*
 * What only some rows of the table ask for: the attempt's history, and whether
 * the order may still give what it sells.
 */
static void
fill_history(DoorFacts *facts, const Evidence *evidence, const GatewayTraits *traits)
{
	static LedgerPlan history = {
		"SELECT"
		" COALESCE(bool_or(e.source = 'answer' AND e.result <> 'not_sent'), false),"
		" COALESCE(bool_or(e.result = 'pending'), false),"
		/* one that is parked was not judged, and may be this very fact */
		" count(*) FILTER (WHERE e.result = 'not_found' AND e.verdict <> 'parked' AND e.received_at >= $3),"
		" COALESCE(bool_or(e.id = a.decided_by AND e.result IN ('not_sent', 'not_found')), false),"
		" EXISTS (SELECT FROM payguard.orders o JOIN payguard.entitlements t ON t.customer = o.customer"
		"   AND t.product = o.product WHERE o.id = $1 AND o.once AND t.order_id <> o.id)"
		" FROM payguard.evidence e"
		" LEFT JOIN payguard.attempts a ON a.order_id = e.order_id AND a.no = e.attempt_no"
		" WHERE e.order_id = $1 AND e.attempt_no = $2",
		3, {INT8OID, INT4OID, TIMESTAMPTZOID}, NULL
	};
	AttemptFacts *attempt = &facts->attempt;
	Datum		values[3];

	values[0] = Int64GetDatum(facts->order_id);
	values[1] = Int32GetDatum(facts->attempt_no);
	values[2] = TimestampTzGetDatum(attempt->settles_from + traits->not_found_settles);
	payguard_plan_run(&history, values, NULL);
	attempt->may_have_left = payguard_row_bool(0, 0);
	attempt->positive_known = payguard_row_bool(0, 1) ||
		attempt->state == ATTEMPT_PENDING || facts->attempt_provider_id != NULL;
	attempt->settled_not_found = (int) payguard_row_int64(0, 2);
	attempt->failure_inferred = attempt->state == ATTEMPT_FAILED && payguard_row_bool(0, 3);
	facts->order.entitled_elsewhere = payguard_row_bool(0, 4);
}

/*
 * The latest word on the reversal of the payment that the fact names.
 */
static void
fill_reversal(DoorFacts *facts, const Evidence *evidence)
{
	static LedgerPlan latest = {
		"SELECT COALESCE(occurred_at, received_at), result::text FROM payguard.evidence"
		" WHERE order_id = $1 AND result IN ('reversed', 'reinstated')"
		" AND verdict IN ('applied', 'duplicate', 'hint')"
		" AND ($2 IS NULL OR provider_id IS NULL OR provider_id = $2)"
		" ORDER BY 1 DESC, result LIMIT 1",
		2, {INT8OID, TEXTOID}, NULL
	};
	PaymentFacts *payment = &facts->payment;
	Datum		values[2];
	char		nulls[3] = "  ";
	bool		isnull;

	values[0] = Int64GetDatum(facts->order_id);
	values[1] = payguard_text_param(evidence->provider_id, &nulls[1]);
	if (payguard_plan_run(&latest, values, nulls) == 0)
		return;
	payment->has_reversal = true;
	payment->reversal_at = payguard_row_time(0, 0, &isnull);
	(void) payguard_result_read(payguard_row_text(0, 1), &payment->reversal_result);
}

/*
 * Read all that the decision on this fact looks at.
 */
void
payguard_read_facts(const Evidence *evidence, const GatewayTraits *traits,
					int64 order_id, int32 attempt_no, DoorFacts *facts)
{
	static LedgerPlan read = {
		"SELECT o.status::text, o.amount, o.currency, o.reference, o.gateway, o.attempt_no,"
		" o.close_requested_at IS NOT NULL, o.refunded_amount >= o.amount, o.once,"
		" o.customer, o.product,"
		" EXISTS (SELECT FROM payguard.evidence e WHERE e.order_id = o.id AND e.verdict = 'parked')"
		" OR EXISTS (SELECT FROM payguard.evidence e WHERE e.charge_id = $4 AND e.gateway = $3"
		"   AND e.verdict = 'parked' AND e.order_id IS NULL),"
		" a.state::text, a.gateway, a.mode::text, a.call_by::text, a.lease_token, a.lease_until,"
		" a.provider_id, a.sent_at, a.created_at, a.answered_at IS NOT NULL, a.gateway_reference,"
		" p.gateway, p.provider_id, p.state::text,"
		" q.order_id, q.counted, q.reason, q.state::text, i.order_id"
		" FROM payguard.orders o"
		" LEFT JOIN payguard.attempts a ON a.order_id = o.id AND a.no = $2"
		" LEFT JOIN payguard.payments p ON p.order_id = o.id AND p.counted"
		" LEFT JOIN payguard.payments q ON q.gateway = $3 AND q.provider_id = $4"
		" LEFT JOIN payguard.provider_ids i ON i.gateway = $3 AND i.provider_id = $4"
		" WHERE o.id = $1",
		4, {INT8OID, INT4OID, TEXTOID, TEXTOID}, NULL
	};
	Datum		values[4];
	char		nulls[5] = "    ";

	memset(facts, 0, sizeof(*facts));
	facts->order_id = order_id;
	facts->attempt_no = attempt_no;
	values[0] = Int64GetDatum(order_id);
	values[1] = Int32GetDatum(attempt_no);
	values[2] = CStringGetTextDatum(evidence->gateway);
	values[3] = payguard_text_param(evidence->provider_id, &nulls[3]);
	if (payguard_plan_run(&read, values, nulls) == 0)
		elog(ERROR, "order " INT64_FORMAT " is gone", order_id);

	fill_order(facts);
	fill_attempt(facts, evidence, traits);
	fill_payment(facts, evidence);

	switch (evidence->result)
	{
		case EVIDENCE_RESULT_NOT_SENT:
		case EVIDENCE_RESULT_NOT_FOUND:
		case EVIDENCE_RESULT_PENDING:
			fill_failover(facts);
			fill_history(facts, evidence, traits);
			break;
		case EVIDENCE_RESULT_UNKNOWN:
			fill_failover(facts);
			break;
		case EVIDENCE_RESULT_REVERSED:
		case EVIDENCE_RESULT_REINSTATED:
			fill_reversal(facts, evidence);
			break;
		default:
			break;
	}
	if (facts->attempt.exists && evidence->result != EVIDENCE_RESULT_FAILED &&
		!payguard_order_has_money(facts->order.status) &&
		(evidence->result != EVIDENCE_RESULT_PAID || evidence->provider_id == NULL))
		facts->attempt.query_tries = payguard_outbox_tries(order_id, attempt_no);
}
