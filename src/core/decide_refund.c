/*-------------------------------------------------------------------------
 *
 * decide_refund.c
 *	  The decision table of refunds: what one fact about a refund leads to.
 *
 * Pure, like decide.c.  A refund's state is the latest definite word of the
 * gateway; a failure that we inferred yields to any of them.  A refund whose
 * answer was lost is asked about, or sent again under the same key, and never
 * failed by time.
 *
 *-------------------------------------------------------------------------
 */
#include "core/state.h"

#include <string.h>

#define SECOND				INT64_C(1000000)
#define RESEND_DELAY_MIN	(1 * SECOND)
#define RESEND_DELAY_MAX	(15 * SECOND)
#define NOT_FOUND_NEEDED	2

typedef struct RefundJudgement
{
	const RefundFacts *refund;
	const GatewayTraits *traits;
	const Evidence *evidence;
	int64_t		now;
} RefundJudgement;

/* A decision that moves nothing. */
static RefundDecision
leave(Verdict verdict)
{
	RefundDecision decision;

	memset(&decision, 0, sizeof(decision));
	decision.verdict = verdict;
	decision.next = NEXT_CALL_LEAVE;
	return decision;
}

/* Has the refund not come to its end? */
static bool
is_open(const RefundFacts *refund)
{
	return refund->exists && refund->state != REFUND_SUCCEEDED && refund->state != REFUND_FAILED;
}

/* Move the refund if the machine lists it; says whether it moves. */
static bool
move(RefundDecision *decision, const RefundJudgement *j, RefundState to)
{
	if (j->refund->state == to || !payguard_refund_may_become(j->refund->state, to))
		return false;
	decision->move = true;
	decision->to = to;
	return true;
}

/* When the fact happened, as far as anybody knows. */
static int64_t
fact_time(const Evidence *evidence)
{
	return evidence->has_occurred_at ? evidence->occurred_at : evidence->received_at;
}

/* Would the gateway take the same bytes for the same refund? */
static bool
may_replay(const RefundJudgement *j)
{
	if (j->refund->by_application || !j->traits->can_replay)
		return false;
	if (j->evidence->replayed && j->evidence->transport.http_status >= 500)
		return false;
	return j->traits->reference_unique ||
		(j->traits->has_key && j->now < j->refund->created_at + j->traits->key_live);
}

/* Can the gateway be asked what became of the refund? */
static bool
may_ask(const RefundJudgement *j)
{
	return j->traits->can_query_refund_by_reference ||
		(j->traits->can_query_refund && j->refund->id_known);
}

/* Plan the next question: a query, the same bytes, or a person. */
static void
plan_question(RefundDecision *decision, const RefundJudgement *j)
{
	bool		exhausted;
	int64_t		delay = payguard_query_delay(j->traits, j->refund->query_tries, &exhausted);

	decision->next_in = j->evidence->retry_after > delay ? j->evidence->retry_after : delay;
	if (may_ask(j))
		decision->next = NEXT_CALL_QUERY;
	else if (may_replay(j))
		decision->next = NEXT_CALL_RESEND;
	else
	{
		decision->next = NEXT_CALL_LEAVE;
		decision->review = "outcome of a refund cannot be asked for";
	}
	if (exhausted && decision->review == NULL && j->refund->state != REFUND_PROCESSING)
		decision->review = "no answer to any status query of a refund";
}

/* The refund failed, with proof. */
static void
fail(RefundDecision *decision, const RefundJudgement *j, const char *code)
{
	move(decision, j, REFUND_FAILED);
	decision->verdict = VERDICT_APPLIED;
	decision->next = NEXT_CALL_NONE;
	decision->event = "refund.failed";
	decision->code = code;
}

/* A refund that we did not make: booked as external, if its payment is here. */
static RefundDecision
decide_external(const RefundJudgement *j)
{
	RefundDecision decision = leave(VERDICT_APPLIED);

	if (!j->refund->payment_known || !j->refund->order_has_money ||
		j->evidence->provider_id == NULL || !j->evidence->has_money)
		return leave(VERDICT_PARKED);
	if (strcmp(j->evidence->money.currency, j->refund->money.currency) != 0)
	{
		decision = leave(VERDICT_MISMATCH);
		decision.review = "refund in another currency";
		return decision;
	}
	decision.make_external = true;
	decision.to = REFUND_SUCCEEDED;
	decision.event = "refund.succeeded";
	return decision;
}

/*
 * The failure of a refund that we did not make.  It is kept as a row, so that
 * an older word of its success which arrives later does not count.
 */
static RefundDecision
decide_external_failed(const RefundJudgement *j)
{
	RefundDecision decision = decide_external(j);

	if (!decision.make_external)
		return decision.verdict == VERDICT_PARKED && !j->refund->payment_known ?
			decision : leave(j->refund->order_has_money ? VERDICT_HINT : VERDICT_PARKED);
	decision.to = REFUND_FAILED;
	decision.event = NULL;
	return decision;
}

static RefundDecision
decide_succeeded(const RefundJudgement *j)
{
	RefundDecision decision = leave(VERDICT_APPLIED);

	if (!j->refund->exists)
		return decide_external(j);
	if (!j->refund->gateway_matches ||
		(j->evidence->has_money &&
		 !payguard_money_equal(&j->evidence->money, &j->refund->money)))
	{
		decision = leave(VERDICT_MISMATCH);
		decision.review = "refund mismatch";
		decision.note = "another amount, currency or gateway than the refund's";
		/* as the call's own answer it leaves the refund unknown, and asks */
		if (is_open(j->refund) && (j->evidence->source == EVIDENCE_SOURCE_ANSWER ||
								   j->evidence->source == EVIDENCE_SOURCE_APPLICATION))
		{
			const char *review = decision.review;

			if (j->refund->state != REFUND_PROCESSING)
				move(&decision, j, REFUND_UNKNOWN);
			plan_question(&decision, j);
			decision.review = review;
		}
		return decision;
	}
	if (!j->evidence->has_money)
	{
		decision = leave(VERDICT_HINT);
		if (is_open(j->refund))
			plan_question(&decision, j);
		return decision;
	}
	if (j->refund->state == REFUND_SUCCEEDED)
	{
		if (!j->refund->id_differs)
			return leave(VERDICT_DUPLICATE);
		decision = decide_external(j);
		decision.review = "a refund was paid back twice";
		return decision;
	}
	if (j->refund->state == REFUND_FAILED && j->refund->has_definite &&
		fact_time(j->evidence) < j->refund->definite_at)
		return leave(VERDICT_STALE);
	move(&decision, j, REFUND_SUCCEEDED);
	decision.next = NEXT_CALL_NONE;
	decision.event = "refund.succeeded";
	return decision;
}

static RefundDecision
decide_failed(const RefundJudgement *j)
{
	RefundDecision decision;

	if (!j->refund->exists)
		return decide_external_failed(j);
	if (j->refund->state == REFUND_FAILED)
		return leave(VERDICT_DUPLICATE);
	/* a gateway takes its word back; an operator's slip does not */
	if (j->refund->state == REFUND_SUCCEEDED &&
		(j->evidence->source == EVIDENCE_SOURCE_OPERATOR ||
		 (j->refund->has_definite && fact_time(j->evidence) <= j->refund->definite_at)))
		return leave(VERDICT_STALE);
	decision = leave(VERDICT_APPLIED);
	fail(&decision, j, NULL);
	return decision;
}

static RefundDecision
decide_pending(const RefundJudgement *j)
{
	RefundDecision decision;

	if (!j->refund->exists)
		return leave(j->refund->payment_known ? VERDICT_HINT : VERDICT_PARKED);
	if (!is_open(j->refund))
	{
		decision = leave(VERDICT_STALE);
		if (j->refund->state == REFUND_FAILED && !j->refund->has_definite)
			decision.review = "pending after an inferred failure of a refund";
		return decision;
	}
	decision = leave(VERDICT_HINT);
	if (move(&decision, j, REFUND_PROCESSING))
		decision.verdict = VERDICT_APPLIED;
	plan_question(&decision, j);
	return decision;
}

static RefundDecision
decide_not_sent(const RefundJudgement *j)
{
	RefundDecision decision = leave(VERDICT_STALE);
	const RefundFacts *refund = j->refund;

	if (!is_open(refund))
		return decision;
	if (refund->by_application)
	{
		if (j->evidence->source == EVIDENCE_SOURCE_APPLICATION &&
			refund->token_matches && refund->lease_live && !refund->reported)
			fail(&decision, j, NULL);
		else
		{
			decision.verdict = VERDICT_FENCED;
			plan_question(&decision, j);
		}
		return decision;
	}
	if (refund->may_have_left ||
		(refund->state != REFUND_PENDING && refund->state != REFUND_SUBMITTED))
		plan_question(&decision, j);
	else if (j->evidence->is_stop)
		fail(&decision, j, NULL);
	else if (j->now < refund->created_at + j->traits->send_window)
	{
		int64_t		delay = j->now - refund->created_at;

		decision.verdict = VERDICT_HINT;
		decision.next = NEXT_CALL_RESEND;
		decision.next_in = delay < RESEND_DELAY_MIN ? RESEND_DELAY_MIN :
			delay > RESEND_DELAY_MAX ? RESEND_DELAY_MAX : delay;
	}
	else
		fail(&decision, j, "not_sent");
	return decision;
}

static RefundDecision
decide_unknown(const RefundJudgement *j)
{
	RefundDecision decision;
	bool		from_call = j->evidence->source == EVIDENCE_SOURCE_ANSWER ||
		j->evidence->source == EVIDENCE_SOURCE_APPLICATION;

	if (!is_open(j->refund))
		return leave(from_call ? VERDICT_STALE : VERDICT_HINT);
	decision = leave(VERDICT_HINT);
	if (j->evidence->source == EVIDENCE_SOURCE_APPLICATION &&
		!(j->refund->token_matches && j->refund->lease_live))
		decision.verdict = VERDICT_FENCED;
	else if (from_call && j->refund->state != REFUND_PROCESSING &&
			 move(&decision, j, REFUND_UNKNOWN))
		decision.verdict = VERDICT_APPLIED;
	plan_question(&decision, j);
	return decision;
}

static RefundDecision
decide_not_found(const RefundJudgement *j)
{
	int64_t		unsettled = j->refund->settles_from + j->traits->not_found_settles - j->now;
	RefundDecision decision = leave(VERDICT_HINT);

	if (!is_open(j->refund))
		return leave(VERDICT_STALE);
	plan_question(&decision, j);
	if (unsettled <= 0 && j->refund->positive_known)
	{
		decision.review = "the gateway does not find a refund that it told of";
		return decision;
	}
	if (unsettled > 0 || j->refund->settled_not_found + 1 < NOT_FOUND_NEEDED)
	{
		int			steps = j->traits->query_steps;
		int64_t		soon = unsettled > 0 ? unsettled :
			steps > 0 ? j->traits->query_schedule[steps - 1] : SECOND;

		if (decision.next == NEXT_CALL_QUERY && decision.next_in > soon &&
			j->evidence->retry_after <= soon)
		{
			decision.next_in = soon;
			decision.review = NULL;
		}
		return decision;
	}
	decision.review = NULL;
	if (j->refund->by_application)
		fail(&decision, j, "not_found");
	else if (may_replay(j))
	{
		decision.next = NEXT_CALL_RESEND;
		decision.next_in = 0;
		decision.note = "the gateway has no such refund: the same bytes are sent again";
	}
	else if (j->traits->not_found_is_proof)
		fail(&decision, j, "not_found");
	else
		decision.review = "the gateway does not find the refund";
	return decision;
}

RefundDecision
payguard_decide_refund(const RefundFacts *refund, const GatewayTraits *traits,
					   const Evidence *evidence, int64_t now)
{
	RefundJudgement j = {refund, traits, evidence, now};
	RefundDecision decision;

	if (evidence->is_unreadable)
	{
		decision = leave(VERDICT_UNREADABLE);
		decision.review = "a signed callback was not understood";
		return decision;
	}
	if (evidence->is_hint)
	{
		decision = leave(VERDICT_HINT);
		if (is_open(refund) && may_ask(&j))
			decision.next = NEXT_CALL_QUERY_NOW;
		return decision;
	}
	switch (evidence->result)
	{
		case EVIDENCE_RESULT_SUCCEEDED:
		case EVIDENCE_RESULT_PAID:
			decision = decide_succeeded(&j);
			break;
		case EVIDENCE_RESULT_FAILED:
		case EVIDENCE_RESULT_CLOSED:
			decision = decide_failed(&j);
			break;
		case EVIDENCE_RESULT_PENDING:
			decision = decide_pending(&j);
			break;
		case EVIDENCE_RESULT_NOT_SENT:
			decision = evidence->source == EVIDENCE_SOURCE_QUERY ?
				decide_unknown(&j) : decide_not_sent(&j);
			break;
		case EVIDENCE_RESULT_UNKNOWN:
			decision = decide_unknown(&j);
			break;
		case EVIDENCE_RESULT_NOT_FOUND:
			decision = decide_not_found(&j);
			break;
		default:
			decision = leave(VERDICT_PARKED);
			break;
	}
	if (evidence->needs_review && decision.review == NULL)
		decision.review = evidence->code != NULL ? evidence->code : "a refund's answer needs a person";
	return decision;
}
