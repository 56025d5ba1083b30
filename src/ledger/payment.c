/*-------------------------------------------------------------------------
 *
 * payment.c
 *	  Every real payment that a gateway confirmed, counted or not.
 *
 * The unique index on counted rows decides which success counts; the primary
 * key decides whose payment an id is.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "ledger/door.h"
#include "utils/builtins.h"
#include "utils/numeric.h"

/*
 * Amount of a fact as SQL numeric.
 */
static Datum
money_datum(const Money *money)
{
	char		text[MONEY_TEXT_SIZE];

	payguard_money_format(money, text);
	return DirectFunctionCall3(numeric_in, CStringGetDatum(text),
							   ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1));
}

/*
 * Book a new payment.  False: a payment of that id came to be meanwhile, and
 * the caller reads the facts again.
 */
bool
payguard_payment_book(const DoorFacts *facts, const Evidence *evidence, PaymentAction action)
{
	static LedgerPlan insert = {
		"INSERT INTO payguard.payments (gateway, provider_id, order_id, attempt_no, counted,"
		" state, amount, currency, fee, reason, paid_at)"
		" VALUES ($1, $2, $3, $4, $5, 'paid', $6, $7, $8::numeric, $9, $10)"
		" ON CONFLICT (gateway, provider_id) DO NOTHING",
		10, {TEXTOID, TEXTOID, INT8OID, INT4OID, BOOLOID, NUMERICOID, TEXTOID, TEXTOID, TEXTOID,
		TIMESTAMPTZOID}, NULL
	};
	const char *reason = action == PAYMENT_BOOK_SURPLUS ? "surplus" :
		action == PAYMENT_BOOK_MISMATCH ? "mismatch" : NULL;
	Datum		values[10];
	char		nulls[11] = "          ";

	values[0] = CStringGetTextDatum(evidence->gateway);
	values[1] = CStringGetTextDatum(evidence->provider_id);
	values[2] = Int64GetDatum(facts->order_id);
	values[3] = Int32GetDatum(facts->attempt_no);
	if (facts->attempt_no == 0)
		nulls[3] = 'n';
	values[4] = BoolGetDatum(reason == NULL);
	values[5] = money_datum(&evidence->money);
	values[6] = CStringGetTextDatum(evidence->money.currency);
	values[7] = payguard_text_param(evidence->fee, &nulls[7]);
	values[8] = payguard_text_param(reason, &nulls[8]);
	values[9] = TimestampTzGetDatum(evidence->has_occurred_at ?
									evidence->occurred_at : evidence->received_at);
	return payguard_plan_run(&insert, values, nulls) > 0;
}

/*
 * Move a payment that is here: count a mismatch that turned out right,
 * reverse, reinstate.  A fact without an id means the counted payment.
 */
void
payguard_payment_move(const DoorFacts *facts, const Evidence *evidence, PaymentAction action)
{
	static LedgerPlan promote = {
		"UPDATE payguard.payments SET counted = true, reason = NULL, amount = $4, currency = $5"
		" WHERE order_id = $1 AND gateway = $2 AND provider_id = $3",
		5, {INT8OID, TEXTOID, TEXTOID, NUMERICOID, TEXTOID}, NULL
	};
	/* what was given back of it until now counts for the order */
	static LedgerPlan take_over = {
		"UPDATE payguard.orders o SET refund_reserved = LEAST(s.own, o.amount), refunded_amount = s.back"
		" FROM (SELECT COALESCE(sum(r.amount) FILTER (WHERE NOT r.external AND r.state <> 'failed'), 0) AS own,"
		"   COALESCE(sum(r.amount) FILTER (WHERE r.state = 'succeeded'), 0) AS back"
		"  FROM payguard.refunds r WHERE r.order_id = $1 AND r.gateway = $2 AND r.charge_id = $3"
		"  HAVING count(*) > 0) AS s WHERE o.id = $1",
		3, {INT8OID, TEXTOID, TEXTOID}, NULL
	};
	static LedgerPlan reinstate = {
		"UPDATE payguard.payments p SET state = CASE"
		"  WHEN s.back >= p.amount THEN 'refunded'::payguard.payment_state"
		"  WHEN s.open THEN 'refunding' ELSE 'paid' END"
		" FROM (SELECT p.provider_id,"
		"   COALESCE(sum(r.amount) FILTER (WHERE r.state = 'succeeded'), 0) AS back,"
		"   COALESCE(bool_or(r.state NOT IN ('succeeded', 'failed')), false) AS open"
		"  FROM payguard.payments p LEFT JOIN payguard.refunds r ON r.order_id = p.order_id"
		"   AND r.gateway = p.gateway AND r.charge_id = p.provider_id"
		"  WHERE p.order_id = $1 AND (p.gateway = $2 AND p.provider_id = $3 OR $3 IS NULL AND p.counted)"
		"  GROUP BY p.provider_id) AS s"
		" WHERE p.order_id = $1 AND p.provider_id = s.provider_id"
		" AND (p.gateway = $2 AND p.provider_id = $3 OR $3 IS NULL AND p.counted)",
		3, {INT8OID, TEXTOID, TEXTOID}, NULL
	};
	static LedgerPlan set_state = {
		"UPDATE payguard.payments SET state = $4::payguard.payment_state"
		" WHERE order_id = $1 AND (gateway = $2 AND provider_id = $3 OR $3 IS NULL AND counted)",
		4, {INT8OID, TEXTOID, TEXTOID, TEXTOID}, NULL
	};
	Datum		values[5];
	char		nulls[6] = "     ";

	values[0] = Int64GetDatum(facts->order_id);
	values[1] = CStringGetTextDatum(evidence->gateway);
	values[2] = payguard_text_param(evidence->provider_id, &nulls[2]);
	if (action == PAYMENT_PROMOTE ||
		(action == PAYMENT_COUNT_AND_REVERSE && facts->payment.is_known))
	{
		values[3] = money_datum(&evidence->money);
		values[4] = CStringGetTextDatum(evidence->money.currency);
		payguard_plan_run(&promote, values, nulls);
		payguard_plan_run(&take_over, values, nulls);
	}
	if (action == PAYMENT_PROMOTE)
		return;
	if (action == PAYMENT_REINSTATE)
	{
		payguard_plan_run(&reinstate, values, nulls);
		return;
	}
	values[3] = CStringGetTextDatum("reversed");
	payguard_plan_run(&set_state, values, nulls);
}

/*
 * Remember the gateway's id of a charge that has no payment row (yet), for
 * callbacks that name only the id.
 */
void
payguard_provider_id_note(const DoorFacts *facts, const Evidence *evidence)
{
	static LedgerPlan insert = {
		"INSERT INTO payguard.provider_ids (gateway, provider_id, order_id, attempt_no)"
		" VALUES ($1, $2, $3, $4) ON CONFLICT (gateway, provider_id) DO NOTHING",
		4, {TEXTOID, TEXTOID, INT8OID, INT4OID}, NULL
	};
	Datum		values[4];

	if (evidence->provider_id == NULL || !facts->attempt.exists || facts->payment.is_known ||
		facts->payment.is_foreign || !facts->attempt.gateway_matches)
		return;
	if (facts->attempt_provider_id != NULL &&
		strcmp(facts->attempt_provider_id, evidence->provider_id) == 0)
		return;
	values[0] = CStringGetTextDatum(evidence->gateway);
	values[1] = CStringGetTextDatum(evidence->provider_id);
	values[2] = Int64GetDatum(facts->order_id);
	values[3] = Int32GetDatum(facts->attempt_no);
	payguard_plan_run(&insert, values, NULL);
}
