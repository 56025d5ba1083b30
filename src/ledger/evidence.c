/*-------------------------------------------------------------------------
 *
 * evidence.c
 *	  The one door: every fact about money goes through here.
 *
 * Under the order's lock a fact is judged by core/decide.c, stored with its
 * verdict, and what the decision says is done to attempt, payments, order,
 * events, reviews and outbox, all in the caller's transaction.  A fact is
 * never refused for a business reason; constraints guard decisions, not
 * facts.  Lock order: order, attempt, refund, evidence, outbox.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "core/crashpoint.h"
#include "ledger/refund.h"
#include "utils/elog.h"

void		(*payguard_traits_hook) (const char *gateway, GatewayTraits *traits) = NULL;

/* Bound on rounds of parked facts that set each other free. */
#define PARKED_ROUNDS	10
/* Parked facts of one order that are looked at in a round. */
#define PARKED_OF_ORDER	100

/*
 * Judge the fact.  A payment is booked first, since its primary key may show
 * that the id is another order's; then the facts are read again and the
 * decision is another one.
 */
static Decision
judge(const Evidence *evidence, const GatewayTraits *traits, int64 order_id,
	  int32 attempt_no, DoorFacts *facts)
{
	for (int round = 0; round < 3; round++)
	{
		Decision	decision;

		payguard_read_facts(evidence, traits, order_id, attempt_no, facts);
		decision = payguard_decide(&facts->order, &facts->attempt, &facts->payment,
								   traits, evidence, GetCurrentTimestamp());
		if (decision.make_attempt)
			payguard_attempt_number(facts);
		switch (decision.payment)
		{
			case PAYMENT_COUNT:
			case PAYMENT_COUNT_AND_REVERSE:
			case PAYMENT_BOOK_SURPLUS:
			case PAYMENT_BOOK_MISMATCH:
				if (!facts->payment.is_known &&
					!payguard_payment_book(facts, evidence, decision.payment))
					continue;
				PAYGUARD_CRASH_POINT(CRASH_DOOR_PAYMENT_BOOKED);
				break;
			default:
				break;
		}
		return decision;
	}
	elog(ERROR, "payment keeps changing under the order's lock");
}

/*
 * Plan, bring forward or drop the gateway calls that the decision asks for.
 */
static void
plan_calls(const DoorFacts *facts, const Evidence *evidence, const Decision *decision,
		   EvidenceOutcome *outcome)
{
	OutboxPlan	plan = {0};

	plan.gateway = facts->attempt_gateway != NULL ? facts->attempt_gateway : evidence->gateway;
	plan.order_id = facts->order_id;
	plan.attempt_no = facts->attempt_no;
	plan.next_run_at = GetCurrentTimestamp() + decision->next_in;
	plan.own_id = evidence->outbox_id;
	plan.own_epoch = evidence->outbox_epoch;

	switch (decision->next)
	{
		case NEXT_CALL_LEAVE:
			break;
		case NEXT_CALL_NONE:
			if (facts->attempt_no > 0)
			{
				payguard_outbox_drop(facts->order_id, facts->attempt_no);
				outcome->outbox_dropped = true;
			}
			break;
		case NEXT_CALL_QUERY:
		case NEXT_CALL_QUERY_NOW:
			plan.op = OUTBOX_QUERY;
			payguard_outbox_plan(&plan);
			break;
		case NEXT_CALL_RESEND:
			payguard_outbox_resend(&plan);
			break;
		case NEXT_CALL_CLOSE:
			if (plan.attempt_no == 0)
				plan.attempt_no = facts->latest_no;
			plan.op = OUTBOX_CLOSE;
			payguard_outbox_plan(&plan);
			break;
	}
}

/*
 * Do to the rows what the decision says.  Returns the order's status after.
 */
static OrderStatus
move_rows(DoorFacts *facts, const Evidence *evidence, const Decision *decision,
		  const GatewayTraits *traits, int64 evidence_id)
{
	OrderStatus status = decision->close_after ? ORDER_CLOSED :
		decision->move_order ? decision->order_to : facts->order.status;

	if (decision->make_attempt)
		payguard_attempt_make(facts, evidence, decision->attempt_to, traits, evidence_id);
	else
		payguard_attempt_move(facts, evidence, decision, evidence_id);
	switch (decision->payment)
	{
		case PAYMENT_PROMOTE:
		case PAYMENT_REVERSE:
		case PAYMENT_REINSTATE:
		case PAYMENT_COUNT_AND_REVERSE:
			payguard_payment_move(facts, evidence, decision->payment);
			break;
		case PAYMENT_LEAVE:
			payguard_provider_id_note(facts, evidence);
			break;
		default:
			break;
	}
	payguard_order_move(facts, decision, evidence, evidence_id);
	if (decision->keep_wish)
		payguard_order_keep_wish(facts);

	PAYGUARD_CRASH_POINT(CRASH_DOOR_EVENTS_NEXT);
	payguard_events_write(facts, evidence, status, decision->events, evidence_id);
	if (decision->payment == PAYMENT_COUNT_AND_REVERSE)
		payguard_entitlement_follow(facts, evidence, ORDER_PAID, evidence_id);
	if (status != facts->order.status)
		payguard_entitlement_follow(facts, evidence, status, evidence_id);
	if (decision->review != NULL)
		payguard_review_add(facts, evidence, status, decision->review, evidence_id);
	if (decision->verdict == VERDICT_MISMATCH && facts->foreign_order_id != 0)
		payguard_review_add_other(facts->foreign_order_id, "payment named by another order");
	return status;
}

/*
 * Judge one fact about an order that the caller has locked, and do what
 * follows.  existing is the id of a stored, parked fact, or 0.  Returns
 * whether the order moved.
 */
static bool
apply_to_order(const Evidence *evidence, int64 existing, const GatewayTraits *traits,
			   int64 order_id, int32 attempt_no, EvidenceOutcome *outcome)
{
	DoorFacts	facts;
	Decision	decision = judge(evidence, traits, order_id, attempt_no, &facts);
	int64		evidence_id = existing;
	bool		is_parked;

	if (existing == 0)
	{
		evidence_id = payguard_evidence_store(evidence, &facts, decision.verdict, decision.note);
		if (evidence_id == 0)
		{
			/* the same callback was stored, and parked, before its order was seen */
			if (!payguard_inbox_repeat(evidence, outcome, &is_parked))
				elog(ERROR, "callback is in the inbox and cannot be read");
			if (!is_parked)
				return false;
			evidence_id = existing = outcome->evidence_id;
		}
	}
	if (existing != 0 && decision.verdict != VERDICT_PARKED)
		payguard_evidence_settle(existing, &facts, decision.verdict, decision.note);

	PAYGUARD_CRASH_POINT(CRASH_DOOR_EVIDENCE_STORED);

	outcome->verdict = decision.verdict;
	outcome->evidence_id = evidence_id;
	outcome->order_id = order_id;
	outcome->reference = facts.reference;
	outcome->attempt_no = facts.attempt_no;
	outcome->status = move_rows(&facts, evidence, &decision, traits, evidence_id);
	plan_calls(&facts, evidence, &decision, outcome);
	if (decision.give_back)
		payguard_refund_want(&facts, evidence, decision.payment == PAYMENT_BOOK_SURPLUS);
	else if (evidence->source == EVIDENCE_SOURCE_QUERY &&
			 payguard_order_has_money(facts.order.status))
	{
		if (evidence->result == EVIDENCE_RESULT_PAID && decision.verdict == VERDICT_DUPLICATE)
			payguard_refund_release(&facts, evidence, outcome->status, evidence_id);
		else
			payguard_refund_unconfirmed(&facts, evidence, outcome->status, evidence_id);
	}

	if (outcome->status != facts.order.status && payguard_order_has_money(outcome->status) &&
		(facts.latest_no > 1 || facts.attempt_no < facts.latest_no))
		payguard_attempts_stop_others(&facts);
	/* a parked reversal may wait for a payment that does not move the order */
	return facts.has_parked &&
		(outcome->status != facts.order.status || decision.payment != PAYMENT_LEAVE);
}

/*
 * The fact names no order that is known here: it waits for one.
 */
void
payguard_store_unmatched(const Evidence *evidence, EvidenceOutcome *outcome)
{
	Verdict		verdict = evidence->is_unreadable ? VERDICT_UNREADABLE :
		evidence->is_hint ? VERDICT_HINT : VERDICT_PARKED;
	bool		is_parked;

	outcome->evidence_id = payguard_evidence_store(evidence, NULL, verdict, NULL);
	outcome->verdict = verdict;
	if (outcome->evidence_id == 0 && !payguard_inbox_repeat(evidence, outcome, &is_parked))
		elog(ERROR, "callback is in the inbox and cannot be read");
}

/*
 * The order's status after parked facts have been judged.
 */
static OrderStatus
read_status(int64 order_id)
{
	static LedgerPlan read = {
		"SELECT status::text FROM payguard.orders WHERE id = $1", 1, {INT8OID}, NULL
	};
	Datum		values[1] = {Int64GetDatum(order_id)};

	(void) payguard_plan_run(&read, values, NULL);
	return payguard_order_status_of(payguard_row_text(0, 0));
}

/*
 * The one door.  See ledger.h.
 */
void
payguard_apply_evidence(const Evidence *evidence, EvidenceOutcome *outcome)
{
	GatewayTraits traits;
	int64		existing = 0;
	int64		order_id;
	int32		attempt_no;
	bool		is_parked;

	if (evidence->is_refund)
	{
		payguard_apply_refund_evidence(evidence, outcome);
		return;
	}
	memset(outcome, 0, sizeof(*outcome));
	payguard_traits_hook(evidence->gateway, &traits);

	if (evidence->source == EVIDENCE_SOURCE_CALLBACK &&
		payguard_inbox_repeat(evidence, outcome, &is_parked))
	{
		if (!is_parked)
			return;
		existing = outcome->evidence_id;
	}
	if (!payguard_find_order(evidence, &traits, &order_id, &attempt_no) ||
		!payguard_lock_order(order_id))
	{
		if (existing == 0)
			payguard_store_unmatched(evidence, outcome);
		return;
	}
	if (evidence->source == EVIDENCE_SOURCE_CALLBACK && existing == 0 &&
		payguard_inbox_repeat(evidence, outcome, &is_parked))
	{
		/* stored while this call waited for the lock */
		if (!is_parked)
			return;
		existing = outcome->evidence_id;
	}
	if (apply_to_order(evidence, existing, &traits, order_id, attempt_no, outcome) &&
		payguard_retry_parked(order_id, 0) > 0)
		outcome->status = read_status(order_id);
}

/*
 * Judge a stored fact about an order whose lock is held.
 */
void
payguard_apply_stored(const ParkedFact *fact, int64 order_id, int32 attempt_no,
					  EvidenceOutcome *outcome)
{
	GatewayTraits traits;

	if (fact->evidence.is_refund)
	{
		payguard_apply_stored_refund(fact, outcome);
		return;
	}
	payguard_traits_hook(fact->evidence.gateway, &traits);
	if (apply_to_order(&fact->evidence, fact->id, &traits, order_id, attempt_no, outcome))
		(void) payguard_retry_parked(order_id, 0);
}

/* A stored fact that is judged again. */
typedef struct Retrial
{
	const ParkedFact *fact;
	int64		order_id;
	int32		attempt_no;
	bool		moved;			/* its order moved, so others may be free */
	EvidenceOutcome outcome;
} Retrial;

/*
 * The judging of a stored fact.
 */
static void
judge_again(void *arg)
{
	Retrial    *retrial = arg;
	GatewayTraits traits;

	if (retrial->fact->evidence.is_refund)
	{
		payguard_apply_stored_refund(retrial->fact, &retrial->outcome);
		return;
	}
	payguard_traits_hook(retrial->fact->evidence.gateway, &traits);
	retrial->moved = apply_to_order(&retrial->fact->evidence, retrial->fact->id, &traits,
									retrial->order_id, retrial->attempt_no, &retrial->outcome);
}

/*
 * Judge a stored fact again; one that cannot be judged stays parked and stops
 * nothing.  True when it is parked no more.
 */
static bool
retry_one(const ParkedFact *fact, int64 order_id, int32 attempt_no, bool *moved)
{
	Retrial		retrial = {0};

	retrial.fact = fact;
	retrial.order_id = order_id;
	retrial.attempt_no = attempt_no;
	if (payguard_ledger_try(judge_again, &retrial, "judge a parked fact") != 0)
		return false;
	PAYGUARD_CRASH_POINT(CRASH_PARKED_RETRIED);
	*moved = *moved || retrial.moved;
	return retrial.outcome.verdict != VERDICT_PARKED;
}

/*
 * Parked facts of an order whose lock is held, until none of them moves it.
 */
static int
retry_parked_of_order(int64 order_id)
{
	int			count = 0;

	for (int round = 0; round < PARKED_ROUNDS; round++)
	{
		bool		moved = false;
		ListCell   *lc;

		foreach(lc, payguard_parked_list(order_id, PARKED_OF_ORDER))
		{
			ParkedFact *fact = lfirst(lc);
			GatewayTraits traits;
			int64		found;
			int32		attempt_no = fact->evidence.attempt_no;

			fact->evidence.order_id = 0;
			payguard_traits_hook(fact->evidence.gateway, &traits);
			if (attempt_no == 0 &&
				payguard_find_order(&fact->evidence, &traits, &found, &attempt_no) &&
				found != order_id)
				attempt_no = 0;
			if (retry_one(fact, order_id, attempt_no, &moved))
				count++;
		}
		if (!moved)
			break;
	}
	return count;
}

/*
 * Try parked facts again.  See ledger.h.
 */
int
payguard_retry_parked(int64 order_id, int limit)
{
	int			count = 0;
	ListCell   *lc;

	if (order_id != 0)
		return retry_parked_of_order(order_id);

	foreach(lc, payguard_parked_list(0, limit))
	{
		ParkedFact *fact = lfirst(lc);
		GatewayTraits traits;
		bool		moved = false;
		int64		found;
		int32		attempt_no;

		payguard_traits_hook(fact->evidence.gateway, &traits);
		if (fact->evidence.is_refund)
		{
			if (retry_one(fact, 0, 0, &moved))
				count++;
			continue;
		}
		if (!payguard_find_order(&fact->evidence, &traits, &found, &attempt_no) ||
			payguard_outbox_lock_orders(list_make1(&found)) == NIL)
			continue;
		if (retry_one(fact, found, attempt_no, &moved))
			count++;
		if (moved)
			(void) payguard_retry_parked(found, 0);
	}
	return count;
}

/*
 * Keep a fact whose judging failed.  See ledger.h.
 */
void
payguard_park_evidence(const Evidence *evidence, int sqlstate, EvidenceOutcome *outcome)
{
	GatewayTraits traits;
	DoorFacts	facts;
	int64		order_id;
	int32		attempt_no;
	bool		is_parked;
	const char *note = psprintf("judging it failed with SQLSTATE %s", unpack_sql_state(sqlstate));

	memset(outcome, 0, sizeof(*outcome));
	memset(&facts, 0, sizeof(facts));
	payguard_traits_hook(evidence->gateway, &traits);
	if (payguard_find_order(evidence, &traits, &order_id, &attempt_no))
	{
		facts.order_id = order_id;
		facts.attempt_no = attempt_no;
		payguard_review_add_other(order_id, "a fact could not be judged");
	}
	outcome->verdict = VERDICT_PARKED;
	outcome->order_id = facts.order_id;
	outcome->attempt_no = facts.attempt_no;
	outcome->evidence_id = payguard_evidence_store(evidence, &facts, VERDICT_PARKED, note);
	if (outcome->evidence_id == 0 && !payguard_inbox_repeat(evidence, outcome, &is_parked))
		elog(ERROR, "callback is in the inbox and cannot be read");
}
