/*-------------------------------------------------------------------------
 *
 * refund_lease.c
 *	  T1 for refunds: which of them the worker may send or ask about now.
 *
 * The counterpart of lease.c, which leases the items.  A refund goes out only
 * while it is open, its payment has not been reversed, and what was given back
 * meanwhile (by hand, or by a refund that had failed) has left room for it; it
 * is marked `submitted` and the commit is flushed before the first byte.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "ledger/outbox.h"
#include "ledger/refund.h"

/*
 * Fill the item with what the call is made of.  False: the refund is gone.
 */
static bool
read_refund(OutboxItem *item, RefundState *state, PaymentState *payment, bool *lease_live,
			bool *has_room)
{
	static LedgerPlan read = {
		"SELECT r.state::text, r.gateway_reference, r.idempotency_key, r.provider_id, r.charge_id,"
		" r.amount, p.currency, p.state::text, a.gateway_reference,"
		" COALESCE(r.lease_until > clock_timestamp(), false),"
		" r.amount + COALESCE((SELECT sum(s.amount) FROM payguard.refunds s WHERE s.order_id = r.order_id"
		"   AND s.gateway = r.gateway AND s.charge_id = r.charge_id AND s.id <> r.id"
		"   AND s.state = 'succeeded'), 0) <= p.amount"
		" FROM payguard.refunds r"
		" JOIN payguard.payments p ON p.gateway = r.gateway AND p.provider_id = r.charge_id"
		" LEFT JOIN payguard.attempts a ON a.order_id = p.order_id AND a.no = p.attempt_no"
		" WHERE r.id = $1",
		1, {INT8OID}, NULL
	};
	Datum		values[1] = {Int64GetDatum(item->refund_id)};

	if (payguard_plan_run(&read, values, NULL) == 0)
		return false;
	(void) payguard_refund_read(payguard_row_text(0, 0), state);
	item->gateway_reference = payguard_row_text(0, 1);
	item->idempotency_key = payguard_row_text(0, 2);
	item->provider_id = payguard_row_text(0, 3);
	item->charge_id = payguard_row_text(0, 4);
	(void) payguard_money_parse(payguard_row_text(0, 5), payguard_row_text(0, 6), &item->money);
	(void) payguard_payment_read(payguard_row_text(0, 7), payment);
	item->charge_reference = payguard_row_text(0, 8);
	*lease_live = payguard_row_bool(0, 9);
	*has_room = payguard_row_bool(0, 10);
	return true;
}

/*
 * The intent to send.
 */
static void
mark_submitted(const OutboxItem *item)
{
	static LedgerPlan update = {
		"UPDATE payguard.refunds SET state = 'submitted', sent_at = clock_timestamp() WHERE id = $1",
		1, {INT8OID}, NULL
	};
	Datum		values[1] = {Int64GetDatum(item->refund_id)};

	payguard_plan_run(&update, values, NULL);
}

/*
 * A refund that is due, under its order's lock: may it go out, or be asked
 * about?  What may not is ended or put off here.
 */
bool
payguard_refund_may_call(OutboxItem *item, bool lapsed)
{
	RefundState state;
	PaymentState payment;
	bool		lease_live;
	bool		has_room;

	if (!read_refund(item, &state, &payment, &lease_live, &has_room))
	{
		payguard_outbox_delete(item->id);
		return false;
	}
	if (item->op == OUTBOX_REFUND_QUERY)
	{
		if (lease_live)
			payguard_outbox_move(item->id, GetCurrentTimestamp() + USECS_PER_SEC);
		else if (state == REFUND_SUBMITTED && !lapsed &&
				 payguard_refund_by_application(item->refund_id))
			(void) payguard_lease_tell(item, EVIDENCE_RESULT_UNKNOWN, "lease_lapsed", false);
		else
			return true;
		return false;
	}
	if (lapsed)
	{
		(void) payguard_lease_tell(item, EVIDENCE_RESULT_UNKNOWN, "lease_lapsed", false);
		payguard_outbox_rest(item->id, item->epoch);
		return false;
	}
	if (payment == PAYMENT_REVERSED || !has_room ||
		state == REFUND_SUCCEEDED || state == REFUND_FAILED || state == REFUND_PROCESSING)
	{
		if (state == REFUND_PENDING &&
			!payguard_lease_tell(item, EVIDENCE_RESULT_NOT_SENT, "superseded", true))
			return false;
		if (state == REFUND_SUBMITTED || state == REFUND_UNKNOWN)
		{
			payguard_outbox_move(item->id, DT_NOEND);
			payguard_review_add_other(item->order_id, "a refund cannot be sent again");
		}
		else
			payguard_outbox_delete(item->id);
		return false;
	}
	mark_submitted(item);
	return true;
}

/*
 * Does the application call the gateway for this refund?
 */
bool
payguard_refund_by_application(int64 refund_id)
{
	static LedgerPlan read = {
		"SELECT FROM payguard.refunds WHERE id = $1 AND lease_token IS NOT NULL",
		1, {INT8OID}, NULL
	};
	Datum		values[1] = {Int64GetDatum(refund_id)};

	return payguard_plan_run(&read, values, NULL) > 0;
}
