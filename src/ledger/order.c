/*-------------------------------------------------------------------------
 *
 * order.c
 *	  Moves orders as the one door decides.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "ledger/door.h"
#include "utils/builtins.h"

/*
 * One listed move of the order.
 */
static void
set_status(const DoorFacts *facts, OrderStatus status, const Evidence *evidence, int64 evidence_id)
{
	static LedgerPlan update = {
		"UPDATE payguard.orders SET status = $2::payguard.order_state, decided_by = $3,"
		" paid_at = COALESCE(paid_at, $4), attempt_no = GREATEST(attempt_no, $5),"
		" gateway = COALESCE(gateway, $6), updated_at = clock_timestamp()"
		" WHERE id = $1",
		6, {INT8OID, TEXTOID, INT8OID, TIMESTAMPTZOID, INT4OID, TEXTOID}, NULL
	};
	Datum		values[6];
	char		nulls[7] = "      ";

	values[0] = Int64GetDatum(facts->order_id);
	values[1] = CStringGetTextDatum(payguard_order_word(status));
	values[2] = Int64GetDatum(evidence_id);
	values[3] = TimestampTzGetDatum(evidence->has_occurred_at ?
									evidence->occurred_at : evidence->received_at);
	if (status != ORDER_PAID)
		nulls[3] = 'n';
	values[4] = Int32GetDatum(facts->attempt_no);
	values[5] = payguard_text_param(facts->attempt_no > 0 ? evidence->gateway : NULL, &nulls[5]);
	payguard_plan_run(&update, values, nulls);
}

/*
 * Move the order as decided: in one step, or in two where the way leads
 * through a state of its own (booked and reversed; failed and closed).
 */
void
payguard_order_move(const DoorFacts *facts, const Decision *decision,
					const Evidence *evidence, int64 evidence_id)
{
	if (decision->payment == PAYMENT_COUNT_AND_REVERSE)
		set_status(facts, ORDER_PAID, evidence, evidence_id);
	if (decision->move_order)
		set_status(facts, decision->order_to, evidence, evidence_id);
	if (decision->close_after)
		set_status(facts, ORDER_CLOSED, evidence, evidence_id);
}

/*
 * close_order on an order that is under way: the wish is kept until proof.
 */
void
payguard_order_keep_wish(const DoorFacts *facts)
{
	static LedgerPlan update = {
		"UPDATE payguard.orders SET close_requested_at = COALESCE(close_requested_at, clock_timestamp()),"
		" updated_at = clock_timestamp() WHERE id = $1",
		1, {INT8OID}, NULL
	};
	Datum		values[1] = {Int64GetDatum(facts->order_id)};

	payguard_plan_run(&update, values, NULL);
}
