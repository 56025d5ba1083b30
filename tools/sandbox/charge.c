/*-------------------------------------------------------------------------
 *
 * charge.c
 *	  What happens to charges: made, changed, asked for, closed.
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

/* A change that a pending charge waits for */
typedef struct Later
{
	uint64_t	generation;
	Charge	   *charge;
	ChargeStatus status;
} Later;

/*
 * Send the callback of a charge's state as it is now.  plain: at once, and
 * without the losses and doublings that rates ask for.
 */
void
announce_charge(Charge *charge, bool plain)
{
	char	   *object;

	if (!callbacks_wanted())
		return;
	object = render_charge(charge, FAULT_NONE);
	callbacks_send(charge->id, charge->events, charge->event, charge->occurred_at, object,
				   plain);
	free(object);
}

/*
 * Move a charge to a status, count the money that this moves, and announce
 * it.  event is the callback's type; NULL: charge.<status>.
 */
void
move_charge(Charge *charge, ChargeStatus status, const char *event)
{
	static const char *const events[] = {
		[CHARGE_PENDING] = "charge.pending",
		[CHARGE_PAID] = "charge.paid",
		[CHARGE_FAILED] = "charge.failed",
		[CHARGE_CLOSED] = "charge.closed",
		[CHARGE_REVERSED] = "charge.reversed",
	};

	charge->status = status;
	charge->event = event ? event : events[status];
	charge->occurred_at = clock_now();
	charge->code = status == CHARGE_FAILED ? "card_declined" : NULL;
	charge->message = status == CHARGE_FAILED ? "The card was declined." : NULL;
	if (status == CHARGE_FAILED)
		tally.declined++;
	if (status == CHARGE_REVERSED)
		charge->reversed_at = charge->occurred_at;
	if (status == CHARGE_PAID && charge->paid_at == 0)
	{
		charge->paid_at = charge->occurred_at;
		charge->reference->order->charges++;
		total_of(charge->currency)->charged += charge->amount;
		tally.charges++;
	}
	charge->events++;
	announce_charge(charge, false);
}

/* A pending charge's time has come (timer) */
static void
move_later(void *argument)
{
	Later	   *later = argument;

	ledger_lock();
	if (later->generation == generation && later->charge->status == CHARGE_PENDING)
		move_charge(later->charge, later->status, NULL);
	ledger_unlock();
	free(later);
}

/* Give a new charge its outcome */
static void
settle(Charge *charge, Fault outcome, int64_t wait)
{
	if (outcome == FAULT_NONE)
		move_charge(charge, CHARGE_PAID, NULL);
	else if (outcome == FAULT_DECLINED)
		move_charge(charge, CHARGE_FAILED, NULL);
	else
	{
		move_charge(charge, CHARGE_PENDING, NULL);
		if (outcome != FAULT_PENDING)
		{
			Later	   *later = malloc(sizeof(*later));

			later->generation = generation;
			later->charge = charge;
			later->status = outcome == FAULT_PENDING_THEN_PAID ? CHARGE_PAID : CHARGE_FAILED;
			timer_add(wait >= 0 ? wait : settings.pending, move_later, later);
		}
	}
}

/* Answer with a charge; 402 says a decline, as on its first answer */
static void
answer_charge(Answer *answer, const Charge *charge, Fault spoiled, bool declining)
{
	answer_set(answer, declining && charge->status == CHARGE_FAILED ? 402 : 200,
			   render_charge(charge, spoiled));
}

/* Keep the first answer of a new charge under its key, then spoil it */
static void
keep_and_spoil(const ChargeRequest *request, const FaultPlan *plan, const Charge *charge,
			   Answer *answer)
{
	keys_keep(request->key, request->fingerprint, answer, plan->answer == FAULT_THEN_500_KEPT);
	if (plan->answer == FAULT_THEN_WRONG_AMOUNT || plan->answer == FAULT_THEN_OTHER_REFERENCE)
		answer_charge(answer, charge, plan->answer, true);
}

/* Carry out a charge request: once for each key, once for each reference */
void
ledger_charge(const ChargeRequest *request, const FaultPlan *plan, Answer *answer)
{
	Fault		outcome = request->outcome_given ? request->outcome : plan->outcome;
	Reference  *reference;
	Charge	   *charge;

	ledger_lock();
	reference = find_reference(request->reference);
	if (keys_answer(request->key, request->fingerprint, answer))
		tally.replays += answer->replayed;
	else if (reference && reference->last && !settings.no_unique_reference)
		answer_error(answer, 409, "reference_used", "There is a charge with this reference.");
	else
	{
		charge = make_charge(request->reference, request->amount, request->currency);
		if (plan->query_lag)
			charge->visible_at = clock_ticks() +
				(plan->wait >= 0 ? plan->wait : settings.query_lag);
		settle(charge, outcome, request->wait >= 0 ? request->wait : plan->wait);
		answer_charge(answer, charge, FAULT_NONE, true);
		keep_and_spoil(request, plan, charge, answer);
	}
	ledger_unlock();
}

/* Find the newest charge that queries see; also counts and draws the faults */
static Charge *
look_up(const char *name, Op op, FaultPlan *plan)
{
	static uint64_t unknown;
	Reference  *reference = find_reference(name);
	Charge	   *charge = reference ? reference->last : NULL;
	uint64_t	number;

	if (reference == NULL)
		number = ++unknown;
	else
		number = op == OP_QUERY ? ++reference->queries : ++reference->closes;
	faults_draw(op, name, number, plan);
	return charge && charge->visible_at <= clock_ticks() ? charge : NULL;
}

/* Answer a query for a charge */
void
ledger_query(const char *name, Answer *answer, FaultPlan *plan)
{
	Charge	   *charge;

	ledger_lock();
	tally.queries++;
	charge = look_up(name, OP_QUERY, plan);
	if (charge)
		answer_charge(answer, charge, plan->answer, false);
	else
		answer_error(answer, 404, "not_found", "There is no charge with this reference.");
	ledger_unlock();
}

/* Close a pending charge; one that is paid stays so and is answered */
void
ledger_close(const char *name, Answer *answer, FaultPlan *plan)
{
	Charge	   *charge;

	ledger_lock();
	tally.closes++;
	charge = look_up(name, OP_CLOSE, plan);
	if (charge == NULL)
		answer_error(answer, 404, "not_found", "There is no charge with this reference.");
	else
	{
		bool		refused = plan->answer >= FAULT_REFUSE && plan->answer <= FAULT_RATE_LIMITED;

		if (charge->status == CHARGE_PENDING && !refused)
			move_charge(charge, plan->close_too_late ? CHARGE_PAID : CHARGE_CLOSED, NULL);
		answer_charge(answer, charge, plan->answer, false);
	}
	ledger_unlock();
}
