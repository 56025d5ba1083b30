/*-------------------------------------------------------------------------
 *
 * operator.c
 *	  What operators decide, done to the ledger.
 *
 * About money an operator speaks through the one door.  Taking an order off
 * the list, or keeping an uncounted payment, moves no money and no state of
 * an order; it leaves evidence all the same.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "core/errcode.h"
#include "ledger/door.h"
#include "ledger/operator.h"
#include "utils/builtins.h"

/*
 * What an operator said, without a result of its own.
 */
static void
fill_evidence(const OrderView *view, const char *reason, const char *provider_id,
			  int32 attempt_no, Evidence *evidence)
{
	memset(evidence, 0, sizeof(*evidence));
	evidence->source = EVIDENCE_SOURCE_OPERATOR;
	evidence->gateway = view->latest.exists ? view->latest.gateway :
		view->gateway != NULL ? view->gateway : "";
	evidence->order_id = view->id;
	evidence->attempt_no = attempt_no != 0 ? attempt_no : view->latest.no;
	evidence->provider_id = provider_id;
	evidence->mode = MODE_NOT_TOLD;
	evidence->received_at = GetCurrentTimestamp();
	evidence->note = reason;
}

/*
 * Take the order off the operators' list.
 */
static void
remove_review(int64 order_id)
{
	static LedgerPlan delete = {
		"DELETE FROM payguard.reviews WHERE order_id = $1", 1, {INT8OID}, NULL
	};
	Datum		values[1] = {Int64GetDatum(order_id)};

	payguard_plan_run(&delete, values, NULL);
}

/*
 * Mark an uncounted payment as kept.  PG003 when there is none of that id.
 */
static void
keep_payment(const OrderView *view, const char *provider_id)
{
	static LedgerPlan keep = {
		"UPDATE payguard.payments SET state = 'kept'"
		" WHERE order_id = $1 AND provider_id = $2 AND NOT counted AND state = 'paid'",
		2, {INT8OID, TEXTOID}, NULL
	};
	Datum		values[2] = {Int64GetDatum(view->id), CStringGetTextDatum(provider_id)};

	if (payguard_plan_run(&keep, values, NULL) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_PAYGUARD_TRANSITION),
				 errmsg("order \"%s\" has no such payment to keep", view->reference),
				 errhint("Only an uncounted payment in state paid can be kept; look at payguard.payments.")));
}

/*
 * Store what was decided where no money is spoken of.
 */
static void
store_decision(const OrderView *view, const Evidence *evidence, EvidenceOutcome *outcome)
{
	DoorFacts	facts;

	memset(&facts, 0, sizeof(facts));
	facts.order_id = view->id;
	facts.attempt_no = evidence->attempt_no;
	memset(outcome, 0, sizeof(*outcome));
	outcome->evidence_id = payguard_evidence_store(evidence, &facts, VERDICT_DISMISSED, NULL);
	outcome->verdict = VERDICT_DISMISSED;
	outcome->order_id = view->id;
	outcome->reference = view->reference;
	outcome->status = view->status;
}

/*
 * Decide about an order.  See api/resolve.c for what users are told.
 */
void
payguard_operator_resolve(const OrderView *view, OperatorDecision decision,
						  const char *reason, const char *provider_id,
						  int32 attempt_no, EvidenceOutcome *outcome)
{
	Evidence	evidence;

	(void) payguard_lock_order(view->id);
	fill_evidence(view, reason, provider_id, attempt_no, &evidence);
	switch (decision)
	{
		case OPERATOR_PAID:
			evidence.result = EVIDENCE_RESULT_PAID;
			evidence.has_money = true;
			evidence.money = view->money;
			payguard_apply_evidence(&evidence, outcome);
			return;
		case OPERATOR_FAILED:
		case OPERATOR_REVERSED:
			evidence.result = decision == OPERATOR_FAILED ?
				EVIDENCE_RESULT_FAILED : EVIDENCE_RESULT_REVERSED;
			payguard_apply_evidence(&evidence, outcome);
			if (outcome->verdict == VERDICT_APPLIED)
				remove_review(view->id);
			return;
		case OPERATOR_KEPT:
			keep_payment(view, provider_id);
			evidence.result = EVIDENCE_RESULT_PAID;
			store_decision(view, &evidence, outcome);
			return;
		case OPERATOR_REVIEWED:
			remove_review(view->id);
			evidence.result = EVIDENCE_RESULT_UNKNOWN;
			store_decision(view, &evidence, outcome);
			return;
	}
}

/*
 * Decide about a refund.
 */
bool
payguard_operator_resolve_refund(int64 refund_id, EvidenceResult result, const char *reason,
								 const char *provider_id, EvidenceOutcome *outcome)
{
	static LedgerPlan read = {
		"SELECT r.order_id, r.gateway, r.gateway_reference, r.charge_id, r.amount, p.currency"
		" FROM payguard.refunds r JOIN payguard.payments p"
		" ON p.gateway = r.gateway AND p.provider_id = r.charge_id WHERE r.id = $1",
		1, {INT8OID}, NULL
	};
	Datum		values[1] = {Int64GetDatum(refund_id)};
	Evidence	evidence = {0};

	if (payguard_plan_run(&read, values, NULL) == 0)
		return false;
	evidence.source = EVIDENCE_SOURCE_OPERATOR;
	evidence.result = result;
	evidence.is_refund = true;
	evidence.refund_id = refund_id;
	evidence.order_id = payguard_row_int64(0, 0);
	evidence.gateway = payguard_row_text(0, 1);
	evidence.gateway_reference = payguard_row_text(0, 2);
	evidence.charge_id = payguard_row_text(0, 3);
	evidence.has_money = payguard_money_parse(payguard_row_text(0, 4), payguard_row_text(0, 5),
											  &evidence.money) == MONEY_OK;
	evidence.provider_id = provider_id;
	evidence.mode = MODE_NOT_TOLD;
	evidence.received_at = GetCurrentTimestamp();
	evidence.note = reason;
	payguard_apply_evidence(&evidence, outcome);
	return true;
}

/*
 * The fact, if it may still be judged.  PG003 otherwise.
 */
static ParkedFact *
find_unjudged(int64 evidence_id, bool only_parked)
{
	ParkedFact *fact = payguard_parked_find(evidence_id, only_parked);

	if (fact == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_PAYGUARD_TRANSITION),
				 errmsg("evidence %lld cannot be resolved", (long long) evidence_id),
				 errhint(only_parked ?
						 "Only a parked fact can be given to an order." :
						 "Only a parked or unreadable fact can be dismissed.")));
	return fact;
}

/*
 * Give a parked fact to an order, or dismiss it.
 */
void
payguard_operator_judge(int64 evidence_id, const OrderView *view,
						const char *reason, EvidenceOutcome *outcome)
{
	ParkedFact *fact;

	memset(outcome, 0, sizeof(*outcome));
	outcome->evidence_id = evidence_id;
	/* lock order everywhere: the order before the evidence */
	if (view != NULL && !payguard_lock_order(view->id))
		elog(ERROR, "order " INT64_FORMAT " is gone", view->id);
	fact = find_unjudged(evidence_id, view != NULL);
	if (view == NULL)
	{
		payguard_evidence_dismiss(evidence_id, reason);
		outcome->verdict = VERDICT_DISMISSED;
		return;
	}
	fact->evidence.order_id = view->id;
	fact->evidence.note = reason;
	payguard_apply_stored(fact, view->id,
						  fact->evidence.attempt_no != 0 ? fact->evidence.attempt_no : view->latest.no,
						  outcome);
}
