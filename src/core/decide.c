/*-------------------------------------------------------------------------
 *
 * decide.c
 *	  The decision table: what one fact leads to.
 *
 * A pure function of what the ledger holds and what the fact says.  A fact
 * first moves the attempt or payment that it names; the order follows by the
 * table.  The default is "unknown": paid needs id, amount and currency to
 * match, failed needs proof, and time alone proves nothing.
 *
 *-------------------------------------------------------------------------
 */
#include "core/state.h"

#include <string.h>

#define SECOND				INT64_C(1000000)
#define DAY					(24 * 3600 * SECOND)
#define RESEND_DELAY_MIN	(1 * SECOND)
#define RESEND_DELAY_MAX	(15 * SECOND)
/* how often a settled "not found" must be told before it counts */
#define NOT_FOUND_NEEDED	2

/* What all rows of the table look at. */
typedef struct Judgement
{
	const OrderFacts *order;
	const AttemptFacts *attempt;
	const PaymentFacts *payment;
	const GatewayTraits *traits;
	const Evidence *evidence;
	int64_t		now;
} Judgement;

/* A decision that moves nothing. */
static Decision
leave(Verdict verdict)
{
	Decision	decision;

	memset(&decision, 0, sizeof(decision));
	decision.verdict = verdict;
	decision.next = NEXT_CALL_LEAVE;
	return decision;
}

/* The same, with a word to the operators. */
static Decision
leave_for_review(Verdict verdict, const char *review)
{
	Decision	decision = leave(verdict);

	decision.review = review;
	return decision;
}

/* processing or unknown: the order waits for a fact about its attempt. */
static bool
is_waiting(OrderStatus status)
{
	return status == ORDER_PROCESSING || status == ORDER_UNKNOWN;
}

/* Has the attempt not come to its end? */
static bool
is_open(const AttemptFacts *attempt)
{
	return attempt->exists &&
		(attempt->state == ATTEMPT_CLAIMED || attempt->state == ATTEMPT_SENDING ||
		 attempt->state == ATTEMPT_PENDING || attempt->state == ATTEMPT_UNKNOWN);
}

/* Does the fact speak of the attempt that the order waits for? */
static bool
is_awaited(const Judgement *j)
{
	return is_waiting(j->order->status) && j->attempt->exists && j->attempt->is_current;
}

/* Move the attempt if the machine lists it; says whether it moves. */
static bool
move_attempt(Decision *decision, const Judgement *j, AttemptState to)
{
	if (!j->attempt->exists || j->attempt->state == to ||
		!payguard_attempt_may_become(j->attempt->state, to))
		return false;
	decision->move_attempt = true;
	decision->attempt_to = to;
	return true;
}

/* Move the order if it is not there yet; says whether it moves. */
static bool
move_order(Decision *decision, const Judgement *j, OrderStatus to)
{
	if (j->order->status == to)
		return false;
	decision->move_order = true;
	decision->order_to = to;
	return true;
}

/* When the fact happened, as far as anybody knows. */
static int64_t
fact_time(const Evidence *evidence)
{
	return evidence->has_occurred_at ? evidence->occurred_at : evidence->received_at;
}

/* Would the gateway take the same bytes for the same purchase? */
static bool
may_replay(const Judgement *j)
{
	if (j->attempt->call_by != CALL_BY_WORKER || !j->traits->can_replay)
		return false;
	if (j->evidence->replayed && j->evidence->transport.http_status >= 500)
		return false;			/* the key holds a stored error for ever */
	return j->traits->reference_unique ||
		(j->traits->has_key && j->now < j->attempt->key_from + j->traits->key_live);
}

/* Can the gateway be asked what became of the attempt? */
static bool
may_ask(const Judgement *j)
{
	return j->attempt->exists &&
		(j->traits->can_query_by_reference || (j->traits->can_query && j->attempt->id_known));
}

/* Ask at once, if anything is there that can be asked about. */
static void
ask_now(Decision *decision, const Judgement *j)
{
	if (!may_ask(j))
		return;
	decision->next = NEXT_CALL_QUERY_NOW;
	decision->next_in = 0;
}

/*
 * Has the attempt been pending for longer than its gateway's option allows,
 * and can the gateway end it?  Its answer to that decides as any other.
 */
static bool
is_overdue(const Judgement *j)
{
	return j->attempt->exists && j->attempt->state == ATTEMPT_PENDING && j->traits->can_close &&
		j->now >= j->attempt->settles_from + j->traits->pending_lifetime;
}

/*
 * Plan the next question about an undecided attempt: a query where the
 * gateway can be asked, else the same bytes where it would see one purchase,
 * else a person.
 */
static void
plan_question(Decision *decision, const Judgement *j)
{
	bool		exhausted;
	int64_t		delay = payguard_query_delay(j->traits, j->attempt->query_tries, &exhausted);

	if (j->evidence->retry_after > delay)
		delay = j->evidence->retry_after;
	decision->next_in = delay;

	if (is_overdue(j))
		decision->next = NEXT_CALL_CLOSE;
	else if (may_ask(j))
		decision->next = NEXT_CALL_QUERY;
	else if (may_replay(j))
		decision->next = NEXT_CALL_RESEND;
	else
	{
		decision->next = NEXT_CALL_LEAVE;
		decision->review = "outcome cannot be asked for";
	}
	if (exhausted && decision->review == NULL && j->attempt->state != ATTEMPT_PENDING)
		decision->review = "no answer to any status query";
}

/* A failure with proof: attempt and order fail, and a wished close is done. */
static void
fail(Decision *decision, const Judgement *j, const char *code)
{
	move_attempt(decision, j, ATTEMPT_FAILED);
	move_order(decision, j, ORDER_FAILED);
	decision->verdict = VERDICT_APPLIED;
	decision->events |= EVENT_ORDER_FAILED;
	decision->next = NEXT_CALL_NONE;
	decision->code = code;
	if (j->order->close_requested)
	{
		decision->close_after = true;
		decision->events |= EVENT_ORDER_CLOSED;
	}
}

/*
 * Real money that does not fit: kept beside the books, for a person.  As the
 * charge's own answer it leaves order and attempt unknown, and asks.
 */
static Decision
decide_mismatch(const Judgement *j, const char *note)
{
	Decision	decision = leave_for_review(VERDICT_MISMATCH, "mismatch");

	decision.note = note;
	decision.events = EVENT_ORDER_MISMATCH;
	if (!j->payment->is_known && !j->payment->is_foreign)
		decision.payment = PAYMENT_BOOK_MISMATCH;
	if (is_awaited(j) &&
		(j->evidence->source == EVIDENCE_SOURCE_ANSWER ||
		 j->evidence->source == EVIDENCE_SOURCE_APPLICATION))
	{
		move_attempt(&decision, j, ATTEMPT_UNKNOWN);
		move_order(&decision, j, ORDER_UNKNOWN);
		plan_question(&decision, j);
		decision.review = "mismatch";
	}
	return decision;
}

/*
 * Money that nobody waits for any more: given back by itself where the
 * gateway's option says so and it can be asked first, else for a person.
 */
static void
give_back(Decision *decision, const Judgement *j, const char *review)
{
	decision->give_back = j->traits->refund_surplus && j->traits->can_query &&
		j->evidence->source != EVIDENCE_SOURCE_OPERATOR;
	if (!decision->give_back)
		decision->review = review;
}

/* The money matches: it counts, is known already, or is surplus. */
static Decision
decide_matching_payment(const Judgement *j)
{
	Decision	decision = leave(VERDICT_APPLIED);

	if (j->payment->is_counted)
		return leave(VERDICT_DUPLICATE);
	if (j->payment->is_known && (!j->payment->is_mismatch || j->payment->counted_exists))
		return leave(VERDICT_DUPLICATE);

	decision.make_attempt = !j->attempt->exists;
	if (j->payment->counted_exists)
	{
		decision.verdict = VERDICT_SURPLUS;
		decision.payment = PAYMENT_BOOK_SURPLUS;
		decision.events = EVENT_ORDER_SURPLUS;
		give_back(&decision, j, "surplus");
		decision.next = NEXT_CALL_NONE;
		decision.attempt_to = ATTEMPT_SURPLUS;
		move_attempt(&decision, j, ATTEMPT_SURPLUS);
		return decision;
	}

	decision.payment = j->payment->is_known ? PAYMENT_PROMOTE : PAYMENT_COUNT;
	decision.attempt_to = ATTEMPT_SUCCEEDED;
	move_attempt(&decision, j, ATTEMPT_SUCCEEDED);
	move_order(&decision, j, ORDER_PAID);
	decision.next = NEXT_CALL_NONE;
	decision.events = EVENT_ORDER_PAID;
	if (j->order->status == ORDER_FAILED || j->order->status == ORDER_CLOSED)
		decision.events |= EVENT_ORDER_PAID_LATE;
	if (j->order->status == ORDER_CLOSED)
		give_back(&decision, j, "late money on a closed order");
	return decision;
}

static Decision
decide_paid(const Judgement *j)
{
	const Evidence *evidence = j->evidence;

	if (j->payment->is_foreign)
	{
		Decision	decision = decide_mismatch(j, "the gateway's id belongs to another order");

		decision.review = "payment of another order";
		return decision;
	}
	if (evidence->provider_id == NULL || !evidence->has_money)
	{
		Decision	decision;

		if (j->payment->is_known && j->payment->counted_exists)
			return leave(VERDICT_DUPLICATE);
		decision = leave(VERDICT_HINT);
		decision.note = "paid without id, amount or currency: the gateway is asked";
		if (is_awaited(j))
			plan_question(&decision, j);
		if (evidence->source != EVIDENCE_SOURCE_QUERY)
			ask_now(&decision, j);
		return decision;
	}
	if (!j->attempt->gateway_matches)
		return decide_mismatch(j, "another gateway or mode than the attempt's");
	if (!payguard_money_equal(&evidence->money, &j->order->money))
		return decide_mismatch(j, "another amount or currency than the order's");
	return decide_matching_payment(j);
}

/* failed or closed, with proof. */
static Decision
decide_failed(const Judgement *j)
{
	Decision	decision;

	if (j->order->status == ORDER_CREATED)
		return leave(VERDICT_PARKED);
	if (!j->attempt->exists && is_waiting(j->order->status))
		return leave(VERDICT_PARKED);
	if (is_awaited(j))
	{
		decision = leave(VERDICT_APPLIED);
		fail(&decision, j, NULL);
		return decision;
	}
	if (is_open(j->attempt))
	{
		decision = leave(VERDICT_APPLIED);
		move_attempt(&decision, j, ATTEMPT_FAILED);
		decision.next = NEXT_CALL_NONE;
		return decision;
	}
	if (j->order->status == ORDER_FAILED || j->order->status == ORDER_CLOSED)
		return leave(VERDICT_DUPLICATE);
	return leave(VERDICT_STALE);
}

static Decision
decide_pending(const Judgement *j)
{
	Decision	decision;

	if (j->order->status == ORDER_CREATED)
		return leave(VERDICT_PARKED);
	if (is_awaited(j))
	{
		decision = leave(VERDICT_HINT);
		if (move_attempt(&decision, j, ATTEMPT_PENDING))
			decision.verdict = VERDICT_APPLIED;
		plan_question(&decision, j);
		return decision;
	}
	decision = leave(VERDICT_STALE);
	if ((j->order->status == ORDER_FAILED || j->order->status == ORDER_CLOSED) &&
		j->attempt->exists && j->attempt->failure_inferred)
	{
		decision.review = "pending after an inferred failure";
		if (j->traits->can_close)
			decision.next = NEXT_CALL_CLOSE;
	}
	return decision;
}

/* Nothing left this machine (or so the application says). */
static Decision
decide_not_sent(const Judgement *j)
{
	Decision	decision = leave(VERDICT_STALE);
	const AttemptFacts *attempt = j->attempt;

	if (!is_awaited(j))
	{
		/* an open attempt of a settled order that we stopped ourselves */
		if (j->evidence->is_stop && is_open(attempt) && !attempt->may_have_left &&
			move_attempt(&decision, j, ATTEMPT_FAILED))
		{
			decision.verdict = VERDICT_APPLIED;
			decision.next = NEXT_CALL_NONE;
		}
		return decision;
	}

	if (attempt->call_by == CALL_BY_APPLICATION)
	{
		if (j->evidence->source == EVIDENCE_SOURCE_APPLICATION &&
			attempt->token_matches && attempt->lease_live && !attempt->reported)
			fail(&decision, j, NULL);
		else
		{
			decision.verdict = VERDICT_FENCED;
			plan_question(&decision, j);
		}
		return decision;
	}

	if (j->evidence->is_stop && attempt->ask_first && !may_ask(j))
		return leave_for_review(VERDICT_STALE, "outcome cannot be asked for");
	if (attempt->may_have_left || attempt->ask_first ||
		(attempt->state != ATTEMPT_CLAIMED && attempt->state != ATTEMPT_SENDING))
		plan_question(&decision, j);
	else if (j->evidence->is_stop)
		fail(&decision, j, NULL);
	else if (j->now < attempt->created_at + j->traits->send_window)
	{
		int64_t		delay = j->now - attempt->created_at;

		decision.verdict = VERDICT_HINT;
		decision.next = NEXT_CALL_RESEND;
		decision.next_in = delay < RESEND_DELAY_MIN ? RESEND_DELAY_MIN :
			delay > RESEND_DELAY_MAX ? RESEND_DELAY_MAX : delay;
	}
	else
		fail(&decision, j, "not_sent");
	return decision;
}

/* The answer was lost, unreadable, or says nothing either way. */
static Decision
decide_unknown(const Judgement *j)
{
	Decision	decision;
	bool		from_call = j->evidence->source == EVIDENCE_SOURCE_ANSWER ||
		j->evidence->source == EVIDENCE_SOURCE_APPLICATION;

	if (!is_awaited(j))
		return leave(from_call ? VERDICT_STALE : VERDICT_HINT);

	decision = leave(VERDICT_HINT);
	if (j->evidence->source == EVIDENCE_SOURCE_APPLICATION &&
		!(j->attempt->token_matches && j->attempt->lease_live))
		decision.verdict = VERDICT_FENCED;
	else if (from_call && j->attempt->state != ATTEMPT_PENDING)
	{
		if (move_attempt(&decision, j, ATTEMPT_UNKNOWN))
			decision.verdict = VERDICT_APPLIED;
		if (move_order(&decision, j, ORDER_UNKNOWN))
			decision.verdict = VERDICT_APPLIED;
	}
	plan_question(&decision, j);
	return decision;
}

/*
 * "Not found" counts only after the settle time, and only when it is told
 * twice.  So the gateway is asked soon enough to settle it, even where the
 * schedule would wait longer or has come to its end.
 */
static void
plan_settling_question(Decision *decision, const Judgement *j)
{
	int64_t		unsettled = j->attempt->settles_from + j->traits->not_found_settles - j->now;
	int			steps = j->traits->query_steps;
	int64_t		last_step = steps > 0 ? j->traits->query_schedule[steps - 1] : SECOND;
	int64_t		soon = unsettled > 0 ? unsettled : last_step;

	if (decision->next != NEXT_CALL_QUERY || j->evidence->retry_after > soon)
		return;
	if (decision->next_in > soon)
	{
		decision->next_in = soon;
		decision->review = NULL;
	}
}

/* The gateway says that it has no such charge. */
static Decision
decide_not_found(const Judgement *j)
{
	bool		settled = j->now >= j->attempt->settles_from + j->traits->not_found_settles;
	Decision	decision;

	if (!is_awaited(j))
	{
		decision = leave(VERDICT_STALE);
		if (payguard_order_has_money(j->order->status) && settled && j->attempt->exists &&
			j->attempt->state == ATTEMPT_SUCCEEDED)
			decision.review = "the gateway does not find a paid charge";
		return decision;
	}

	decision = leave(VERDICT_HINT);
	plan_question(&decision, j);
	if (settled && j->attempt->positive_known)
	{
		decision.review = "the gateway does not find a charge that it told of";
		return decision;
	}
	if (!settled || j->attempt->settled_not_found + 1 < NOT_FOUND_NEEDED)
	{
		plan_settling_question(&decision, j);
		return decision;
	}

	/* it has answered, whatever is left of the schedule */
	decision.review = NULL;
	if (j->attempt->call_by == CALL_BY_APPLICATION ||
		/* nobody wants the charge any more, so it would not go out again */
		(may_replay(j) &&
		 payguard_may_send(j->order, j->attempt, j->traits, j->now) == SEND_DROP))
		fail(&decision, j, "not_found");
	else if (may_replay(j))
	{
		decision.next = NEXT_CALL_RESEND;
		decision.next_in = 0;
		decision.note = "the gateway has no such charge: the same bytes are sent again";
	}
	else if (j->traits->not_found_is_proof)
		fail(&decision, j, "not_found");
	else
		decision.review = "the gateway does not find the charge";
	return decision;
}

/*
 * Is this the latest word on the reversal of the payment?  On a tie `reversed`
 * wins, and the same word again is as late.
 */
static bool
is_latest_reversal(const Judgement *j)
{
	int64_t		at = fact_time(j->evidence);

	if (!j->payment->has_reversal)
		return true;
	if (at != j->payment->reversal_at)
		return at > j->payment->reversal_at;
	return j->evidence->result == EVIDENCE_RESULT_REVERSED ||
		j->evidence->result == j->payment->reversal_result;
}

/* A reversal of an order for which no money was counted. */
static Decision
decide_reversed_early(const Judgement *j)
{
	Decision	decision;
	EvidenceSource source = j->evidence->source;
	bool		believed = source == EVIDENCE_SOURCE_ANSWER || source == EVIDENCE_SOURCE_QUERY ||
		source == EVIDENCE_SOURCE_SETTLEMENT || source == EVIDENCE_SOURCE_OPERATOR;

	if (j->order->status == ORDER_CREATED || !believed ||
		j->evidence->provider_id == NULL || !j->evidence->has_money)
	{
		decision = leave(VERDICT_PARKED);
		if (is_awaited(j))
			plan_question(&decision, j);
		if (source == EVIDENCE_SOURCE_CALLBACK)
			ask_now(&decision, j);
		return decision;
	}
	if (j->payment->is_foreign)
		return decide_mismatch(j, "the gateway's id belongs to another order");
	if (!j->attempt->gateway_matches ||
		!payguard_money_equal(&j->evidence->money, &j->order->money))
		return decide_mismatch(j, "another amount, currency, gateway or mode than the order's");

	decision = leave(VERDICT_APPLIED);
	decision.payment = PAYMENT_COUNT_AND_REVERSE;
	decision.make_attempt = !j->attempt->exists;
	decision.attempt_to = ATTEMPT_SUCCEEDED;
	move_attempt(&decision, j, ATTEMPT_SUCCEEDED);
	move_order(&decision, j, ORDER_REVERSED);
	decision.next = NEXT_CALL_NONE;
	decision.events = EVENT_ORDER_PAID | EVENT_ORDER_REVERSED;
	if (j->order->status == ORDER_FAILED || j->order->status == ORDER_CLOSED)
		decision.events |= EVENT_ORDER_PAID_LATE;
	return decision;
}

static Decision
decide_reversed(const Judgement *j)
{
	Decision	decision = leave(VERDICT_APPLIED);

	if (!payguard_order_has_money(j->order->status))
		return decide_reversed_early(j);
	if (!j->payment->is_known)
		return leave(VERDICT_PARKED);
	if (!is_latest_reversal(j))
		return leave(VERDICT_STALE);
	if (j->payment->state == PAYMENT_REVERSED)
		return leave(VERDICT_DUPLICATE);
	decision.payment = PAYMENT_REVERSE;
	if (!j->payment->is_counted)
		return decision;
	move_order(&decision, j, ORDER_REVERSED);
	decision.events = EVENT_ORDER_REVERSED;
	return decision;
}

static Decision
decide_reinstated(const Judgement *j)
{
	Decision	decision = leave(VERDICT_APPLIED);

	if (!payguard_order_has_money(j->order->status) || !j->payment->is_known)
		return leave(VERDICT_PARKED);
	if (!is_latest_reversal(j))
		return leave(VERDICT_STALE);
	if (j->payment->state != PAYMENT_REVERSED)
		return leave(j->payment->has_reversal ? VERDICT_DUPLICATE : VERDICT_HINT);
	decision.payment = PAYMENT_REINSTATE;
	if (!j->payment->is_counted)
		return decision;
	move_order(&decision, j, j->order->is_refunded ? ORDER_REFUNDED : ORDER_PAID);
	decision.events = EVENT_ORDER_REINSTATED;
	return decision;
}

/* close_order, and expiry: the wish that the order itself should end. */
static Decision
decide_close_wish(const Judgement *j)
{
	Decision	decision = leave(VERDICT_APPLIED);

	switch (j->order->status)
	{
		case ORDER_CREATED:
		case ORDER_FAILED:
			move_order(&decision, j, ORDER_CLOSED);
			decision.events = EVENT_ORDER_CLOSED;
			decision.next = NEXT_CALL_NONE;
			return decision;
		case ORDER_CLOSED:
			return leave(VERDICT_DUPLICATE);
		case ORDER_PROCESSING:
		case ORDER_UNKNOWN:
			decision.verdict = VERDICT_HINT;
			if (j->evidence->source != EVIDENCE_SOURCE_EXPIRY)
			{
				decision.keep_wish = true;
				if (j->traits->can_close)
					decision.next = NEXT_CALL_CLOSE;
			}
			return decision;
		case ORDER_PAID:
		case ORDER_REFUNDED:
		case ORDER_REVERSED:
			break;
	}
	return leave(VERDICT_STALE);
}

/* One row of the table. */
static Decision
decide_by_result(const Judgement *j)
{
	const Evidence *evidence = j->evidence;

	switch (evidence->result)
	{
		case EVIDENCE_RESULT_PAID:
			return decide_paid(j);
		case EVIDENCE_RESULT_FAILED:
		case EVIDENCE_RESULT_CLOSED:
			return evidence->is_order_wish ? decide_close_wish(j) : decide_failed(j);
		case EVIDENCE_RESULT_PENDING:
			return decide_pending(j);
		case EVIDENCE_RESULT_NOT_SENT:
			/* a question that did not go out says nothing about the charge */
			return evidence->source == EVIDENCE_SOURCE_QUERY ?
				decide_unknown(j) : decide_not_sent(j);
		case EVIDENCE_RESULT_UNKNOWN:
			return decide_unknown(j);
		case EVIDENCE_RESULT_NOT_FOUND:
			return decide_not_found(j);
		case EVIDENCE_RESULT_REVERSED:
			return decide_reversed(j);
		case EVIDENCE_RESULT_REINSTATED:
			return decide_reinstated(j);
		case EVIDENCE_RESULT_SUCCEEDED:
			break;
	}
	return leave(VERDICT_PARKED);
}

Decision
payguard_decide(const OrderFacts *order, const AttemptFacts *attempt,
				const PaymentFacts *payment, const GatewayTraits *traits,
				const Evidence *evidence, int64_t now)
{
	Judgement	j = {order, attempt, payment, traits, evidence, now};
	Decision	decision;

	if (evidence->is_unreadable)
		return leave_for_review(VERDICT_UNREADABLE, "a signed callback was not understood");
	if (evidence->is_hint)
	{
		decision = leave(VERDICT_HINT);
		if (is_open(attempt))
			ask_now(&decision, &j);
		return decision;
	}
	/* a fact about a refund says nothing about the charge */
	if (evidence->is_refund)
		return leave(VERDICT_PARKED);
	decision = decide_by_result(&j);
	if (evidence->source == EVIDENCE_SOURCE_OPERATOR && decision.verdict == VERDICT_APPLIED &&
		evidence->result == EVIDENCE_RESULT_PAID)
		decision.review = "paid by an operator's word";
	if (evidence->needs_review && decision.review == NULL)
		decision.review = evidence->code != NULL ? evidence->code : "the gateway's answer needs a person";
	return decision;
}

int64_t
payguard_query_delay(const GatewayTraits *traits, int tries, bool *exhausted)
{
	*exhausted = tries >= traits->query_steps;
	return *exhausted ? DAY : traits->query_schedule[tries];
}

/*
 * After a failover a send may be missing from the ledger.  The gateway is
 * asked; one that sees one purchase under one key needs no asking while it
 * remembers the key.
 */
SendVerdict
payguard_may_send_again(const GatewayTraits *traits, int64_t key_from, int64_t now)
{
	if (traits->can_query_by_reference)
		return SEND_ASK_FIRST;
	return traits->reference_unique || (traits->has_key && now < key_from + traits->key_live) ?
		SEND_NOW : SEND_HOLD;
}

SendVerdict
payguard_may_send(const OrderFacts *order, const AttemptFacts *attempt,
				  const GatewayTraits *traits, int64_t now)
{
	if (!is_waiting(order->status) || !attempt->exists || !attempt->is_current ||
		order->close_requested || order->entitled_elsewhere)
		return SEND_DROP;
	if (attempt->call_by != CALL_BY_WORKER)
		return SEND_DROP;
	switch (attempt->state)
	{
		case ATTEMPT_CLAIMED:
		case ATTEMPT_SENDING:
		case ATTEMPT_UNKNOWN:
			return attempt->ask_first ?
				payguard_may_send_again(traits, attempt->key_from, now) : SEND_NOW;
		case ATTEMPT_PENDING:
		case ATTEMPT_SUCCEEDED:
		case ATTEMPT_FAILED:
		case ATTEMPT_SURPLUS:
			break;
	}
	return SEND_DROP;
}
