/*-------------------------------------------------------------------------
 *
 * intervene.c
 *	  What a gateway does of its own accord, when a test asks for it.
 *
 * Each function returns NULL, or what is wrong.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "intervene.h"

/* Charge a reference without a request: also one that was charged before */
void
intervene_charge(const char *name, int64_t amount, const char *currency, Answer *answer)
{
	Charge	   *charge;

	ledger_lock();
	charge = make_charge(name, amount, currency);
	move_charge(charge, CHARGE_PAID, NULL);
	answer_set(answer, 200, render_charge(charge, FAULT_NONE));
	ledger_unlock();
}

/* Move a reference's newest charge; any move is allowed */
const char *
intervene_charge_status(const char *name, const char *status)
{
	const char *wrong = "there is no such status";
	Reference  *reference;

	if (status == NULL)
		return "status is missing";
	ledger_lock();
	reference = find_reference(name);
	if (reference == NULL || reference->last == NULL)
		wrong = "there is no such charge";
	else if (strcmp(status, "reinstated") == 0)
	{
		move_charge(reference->last, CHARGE_PAID, "charge.reinstated");
		wrong = NULL;
	}
	else
		for (int i = CHARGE_PENDING; i <= CHARGE_REVERSED; i++)
			if (strcmp(status, charge_words[i]) == 0)
			{
				move_charge(reference->last, i, NULL);
				wrong = NULL;
			}
	ledger_unlock();
	return wrong;
}

/*
 * Refund a charge as from the gateway's own console.  name NULL: the gateway
 * makes one up; amount 0: all that is left.
 */
const char *
intervene_refund(const char *charge_name, const char *name, int64_t amount)
{
	static const FaultPlan no_fault = {.wait = -1};
	const char *wrong = NULL;
	char		made_up[RANDOM_ID];
	Reference  *reference;
	Charge	   *charge;
	Refund	   *refund;

	ledger_lock();
	reference = find_reference(charge_name);
	charge = reference ? reference->last : NULL;
	if (charge == NULL)
		wrong = "there is no such charge";
	else
	{
		random_id(made_up, "con_", charge->id, (uint64_t) charge->events + 1000 +
				  (uint64_t) charge->refunded);
		refund = find_refund(name ? name : made_up, true);
		if (amount <= 0)
			amount = charge->amount - charge->refunded - charge->reserved;
		if (refund->status != REFUND_NONE)
			wrong = "the reference is used";
		else if (!make_refund(refund, charge, amount, &no_fault))
			wrong = refund->message;
	}
	ledger_unlock();
	return wrong;
}

/* Move a refund; any move is allowed */
const char *
intervene_refund_status(const char *name, const char *status)
{
	const char *wrong = "there is no such status";
	Refund	   *refund;

	if (status == NULL)
		return "status is missing";
	ledger_lock();
	refund = find_refund(name, false);
	if (refund == NULL || refund->status == REFUND_NONE)
		wrong = "there is no such refund";
	else
		for (int i = REFUND_PENDING; i <= REFUND_FAILED; i++)
			if (strcmp(status, refund_words[i]) == 0)
			{
				move_refund(refund, i);
				wrong = NULL;
			}
	ledger_unlock();
	return wrong;
}

/* Send the last callback of a charge or refund again */
const char *
intervene_resend(const char *name, bool new_id)
{
	const char *wrong = NULL;
	Reference  *reference;
	Refund	   *refund;

	ledger_lock();
	reference = find_reference(name);
	refund = find_refund(name, false);
	if (reference && reference->last)
	{
		reference->last->events += new_id;
		announce_charge(reference->last, true);
	}
	else if (refund && refund->status != REFUND_NONE)
	{
		refund->events += new_id;
		announce_refund(refund, true);
	}
	else
		wrong = "there is no such charge or refund";
	ledger_unlock();
	return wrong;
}
