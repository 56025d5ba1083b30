/*-------------------------------------------------------------------------
 *
 * entitlement.c
 *	  One purchase for each customer: the slot of the live order, and what a
 *	  paid order gives.
 *
 * Only orders made with `once` have either.  The primary keys decide; a
 * second paid order is booked all the same and gets nothing.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "ledger/door.h"
#include "utils/builtins.h"

/*
 * Run a statement on (customer, product, order).
 */
static uint64
run_for_order(LedgerPlan *plan, const DoorFacts *facts)
{
	Datum		values[3];

	values[0] = CStringGetTextDatum(facts->customer);
	values[1] = CStringGetTextDatum(facts->product);
	values[2] = Int64GetDatum(facts->order_id);
	return payguard_plan_run(plan, values, NULL);
}

/*
 * Grant, unless another order of this customer and product was paid before.
 */
static void
grant(const DoorFacts *facts, const Evidence *evidence, int64 evidence_id)
{
	static LedgerPlan take_slot = {
		"INSERT INTO payguard.order_slots (customer, product, order_id) VALUES ($1, $2, $3)"
		" ON CONFLICT (customer, product) DO NOTHING",
		3, {TEXTOID, TEXTOID, INT8OID}, NULL
	};
	static LedgerPlan take = {
		"INSERT INTO payguard.entitlements (customer, product, order_id) VALUES ($1, $2, $3)"
		" ON CONFLICT (customer, product) DO NOTHING",
		3, {TEXTOID, TEXTOID, INT8OID}, NULL
	};
	static LedgerPlan holds = {
		"SELECT FROM payguard.entitlements WHERE customer = $1 AND product = $2 AND order_id = $3",
		3, {TEXTOID, TEXTOID, INT8OID}, NULL
	};

	run_for_order(&take_slot, facts);
	if (run_for_order(&take, facts) > 0)
		payguard_event_write(facts, evidence, ORDER_PAID, "entitlement.granted", evidence_id);
	else if (run_for_order(&holds, facts) == 0)
	{
		payguard_event_write(facts, evidence, ORDER_PAID, "order.surplus", evidence_id);
		payguard_review_add(facts, evidence, ORDER_PAID,
							"another order holds the entitlement", evidence_id);
	}
}

/*
 * The order has come to `status`: grant, revoke and release as that asks.
 */
void
payguard_entitlement_follow(const DoorFacts *facts, const Evidence *evidence,
							OrderStatus status, int64 evidence_id)
{
	static LedgerPlan revoke = {
		"DELETE FROM payguard.entitlements WHERE customer = $1 AND product = $2 AND order_id = $3",
		3, {TEXTOID, TEXTOID, INT8OID}, NULL
	};
	static LedgerPlan release = {
		"DELETE FROM payguard.order_slots WHERE customer = $1 AND product = $2 AND order_id = $3",
		3, {TEXTOID, TEXTOID, INT8OID}, NULL
	};

	if (!facts->once)
		return;
	if (status == ORDER_PAID)
		grant(facts, evidence, evidence_id);
	if (status == ORDER_REFUNDED || status == ORDER_REVERSED)
		if (run_for_order(&revoke, facts) > 0)
			payguard_event_write(facts, evidence, status, "entitlement.revoked", evidence_id);
	if (status == ORDER_REFUNDED || status == ORDER_REVERSED || status == ORDER_CLOSED)
		run_for_order(&release, facts);
}
