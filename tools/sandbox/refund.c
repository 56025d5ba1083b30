/*-------------------------------------------------------------------------
 *
 * refund.c
 *	  What happens to refunds: made, changed, asked for.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "callbacks.h"
#include "clock.h"
#include "keys.h"
#include "ledger.h"
#include "settings.h"
#include "timer.h"

/* A change that a pending refund waits for */
typedef struct Later
{
	uint64_t	generation;
	Refund	   *refund;
	RefundStatus status;
} Later;

/* Send the callback of a refund's state, if it is one that has a callback */
void
announce_refund(Refund *refund, bool plain)
{
	char	   *object;

	if (!callbacks_wanted() ||
		(refund->status != REFUND_SUCCEEDED && refund->status != REFUND_FAILED))
		return;
	object = render_refund(refund, FAULT_NONE);
	callbacks_send(refund->id, refund->events, refund->event, refund->occurred_at, object,
				   plain);
	free(object);
}

/* Take what a refund's present status holds of its charge off the charge */
static void
take_off(Refund *refund)
{
	if (refund->status == REFUND_PENDING)
		refund->charge->reserved -= refund->amount;
	if (refund->status == REFUND_SUCCEEDED)
	{
		refund->charge->refunded -= refund->amount;
		total_of(refund->charge->currency)->refunded -= refund->amount;
		tally.refunds--;
	}
}

/* Move a refund to a status, count the money that this moves, announce it */
void
move_refund(Refund *refund, RefundStatus status)
{
	take_off(refund);
	refund->status = status;
	refund->occurred_at = clock_now();
	refund->event = status == REFUND_SUCCEEDED ? "refund.succeeded" : "refund.failed";
	if (status == REFUND_PENDING)
		refund->charge->reserved += refund->amount;
	if (status == REFUND_SUCCEEDED)
	{
		refund->charge->refunded += refund->amount;
		total_of(refund->charge->currency)->refunded += refund->amount;
		tally.refunds++;
	}
	if (status != REFUND_FAILED)
		refund->code = refund->message = NULL;
	else if (refund->code == NULL)
	{
		refund->code = "refund_declined";
		refund->message = "The refund was declined.";
	}
	refund->events++;
	announce_refund(refund, false);
}

/* A pending refund's time has come (timer) */
static void
move_later(void *argument)
{
	Later	   *later = argument;

	ledger_lock();
	if (later->generation == generation && later->refund->status == REFUND_PENDING)
		move_refund(later->refund, later->status);
	ledger_unlock();
	free(later);
}

/* Leave a refund pending, for a while or for good */
static void
pend(Refund *refund, const FaultPlan *plan)
{
	Later	   *later;

	move_refund(refund, REFUND_PENDING);
	if (plan->outcome == FAULT_PENDING)
		return;
	later = malloc(sizeof(*later));
	later->generation = generation;
	later->refund = refund;
	later->status = plan->outcome == FAULT_PENDING_THEN_PAID ? REFUND_SUCCEEDED : REFUND_FAILED;
	timer_add(plan->wait >= 0 ? plan->wait : settings.pending, move_later, later);
}

/*
 * Make an empty refund a real one of this charge.  It fails, and says why,
 * if the charge has not that much left.
 */
bool
make_refund(Refund *refund, Charge *charge, int64_t amount, const FaultPlan *plan)
{
	int64_t		left = charge->amount - charge->refunded - charge->reserved;

	refund->charge = charge;
	refund->amount = amount;
	refund->next = charge->refunds;
	charge->refunds = refund;
	if (charge->status != CHARGE_PAID)
	{
		refund->code = "charge_not_refundable";
		refund->message = "The charge is not paid.";
	}
	else if (amount > left)
	{
		refund->code = "amount_too_large";
		refund->message = "The charge has not that much left.";
	}
	if (plan->query_lag)
		refund->visible_at = clock_ticks() + (plan->wait >= 0 ? plan->wait : settings.query_lag);
	if (refund->code || plan->outcome == FAULT_DECLINED)
		move_refund(refund, REFUND_FAILED);
	else if (plan->outcome != FAULT_NONE)
		pend(refund, plan);
	else
		move_refund(refund, REFUND_SUCCEEDED);
	return refund->status != REFUND_FAILED;
}

/* Count a refund request; how many came for this reference, this one included */
int64_t
ledger_refund_arrive(const char *name)
{
	int64_t		arrivals;

	ledger_lock();
	tally.refund_arrivals++;
	arrivals = ++find_refund(name, true)->arrivals;
	ledger_unlock();
	return arrivals;
}

/* The charge that a request wants to give back; NULL if there is none */
static Charge *
refunded_charge(const RefundRequest *request)
{
	Reference  *reference = find_reference(request->charge_reference);
	Charge	   *charge = reference ? reference->last : NULL;

	while (charge && request->charge_id && strcmp(charge->id, request->charge_id) != 0)
		charge = charge->older;
	return charge && strcmp(charge->currency, request->currency) == 0 ? charge : NULL;
}

/* Answer with a refund; 402 says a decline, as on its first answer */
static void
answer_refund(Answer *answer, const Refund *refund, Fault spoiled, bool declining)
{
	answer_set(answer, declining && refund->status == REFUND_FAILED ? 402 : 200,
			   render_refund(refund, spoiled));
}

/* Carry out a refund request: once for each key, once for each reference */
void
ledger_refund(const RefundRequest *request, const FaultPlan *plan, Answer *answer)
{
	Refund	   *refund;
	Charge	   *charge;

	ledger_lock();
	refund = find_refund(request->reference, true);
	charge = refunded_charge(request);
	if (keys_answer(request->key, request->fingerprint, answer))
		tally.replays += answer->replayed;
	else if (refund->status != REFUND_NONE)
		answer_error(answer, 409, "reference_used", "There is a refund with this reference.");
	else if (charge == NULL)
		answer_error(answer, 400, "invalid_request", "There is no such charge in this currency.");
	else
	{
		make_refund(refund, charge, request->amount, plan);
		answer_refund(answer, refund, FAULT_NONE, true);
		keys_keep(request->key, request->fingerprint, answer,
				  plan->answer == FAULT_THEN_500_KEPT);
		answer_refund(answer, refund, plan->answer, true);
	}
	ledger_unlock();
}

/* Answer a query for a refund */
void
ledger_refund_query(const char *name, Answer *answer, FaultPlan *plan)
{
	static uint64_t unknown;
	Refund	   *refund;

	ledger_lock();
	tally.queries++;
	refund = find_refund(name, false);
	faults_draw(OP_QUERY, name, refund ? (uint64_t) ++refund->queries : ++unknown, plan);
	if (refund && refund->status != REFUND_NONE && refund->visible_at <= clock_ticks())
		answer_refund(answer, refund, plan->answer, false);
	else
		answer_error(answer, 404, "not_found", "There is no refund with this reference.");
	ledger_unlock();
}
