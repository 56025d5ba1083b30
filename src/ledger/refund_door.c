/*-------------------------------------------------------------------------
 *
 * refund_door.c
 *	  Facts about refunds: the part of the one door that moves them.
 *
 * A fact moves the refund that it names, or makes an external one; sums and
 * states of payment and order are then derived anew, so that every order of
 * arrival ends in the same ones.  Runs under the order's lock.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "ledger/refund.h"
#include "utils/builtins.h"
#include "utils/numeric.h"

/* What a fact about a refund names. */
typedef struct RefundTarget
{
	int64		order_id;
	int64		refund_id;		/* 0: none of that name is here */
	char	   *gateway;		/* of the charge given back */
	char	   *charge_id;
} RefundTarget;

/*
 * One look-up; false when there is no row.
 */
static bool
look_up(LedgerPlan *plan, Datum first, Datum second, RefundTarget *target)
{
	Datum		values[2] = {first, second};

	if (payguard_plan_run(plan, values, NULL) == 0)
		return false;
	target->order_id = payguard_row_int64(0, 0);
	target->refund_id = payguard_row_int64(0, 1);
	target->gateway = payguard_row_text(0, 2);
	target->charge_id = payguard_row_text(0, 3);
	return true;
}

/*
 * Which refund does the fact speak of, or at least which payment?
 */
static bool
find_target(const Evidence *evidence, RefundTarget *target)
{
	static LedgerPlan by_id = {
		"SELECT order_id, id, gateway, charge_id FROM payguard.refunds WHERE id = $1 AND $2 IS NULL",
		2, {INT8OID, TEXTOID}, NULL
	};
	static LedgerPlan by_reference = {
		"SELECT order_id, id, gateway, charge_id FROM payguard.refunds"
		" WHERE gateway = $1 AND gateway_reference = $2",
		2, {TEXTOID, TEXTOID}, NULL
	};
	static LedgerPlan by_provider_id = {
		"SELECT order_id, id, gateway, charge_id FROM payguard.refunds"
		" WHERE gateway = $1 AND provider_id = $2",
		2, {TEXTOID, TEXTOID}, NULL
	};
	static LedgerPlan by_charge = {
		"SELECT order_id, 0::bigint, gateway, provider_id FROM payguard.payments"
		" WHERE gateway = $1 AND provider_id = $2",
		2, {TEXTOID, TEXTOID}, NULL
	};
	Datum		gateway = CStringGetTextDatum(evidence->gateway);

	memset(target, 0, sizeof(*target));
	if (evidence->refund_id != 0)
	{
		Datum		values[2] = {Int64GetDatum(evidence->refund_id), (Datum) 0};

		if (payguard_plan_run(&by_id, values, " n") == 0)
			return false;
		target->order_id = payguard_row_int64(0, 0);
		target->refund_id = payguard_row_int64(0, 1);
		target->gateway = payguard_row_text(0, 2);
		target->charge_id = payguard_row_text(0, 3);
		return true;
	}
	/* the gateway's own id first: a reference may have been paid back twice */
	if (evidence->provider_id != NULL &&
		look_up(&by_provider_id, gateway, CStringGetTextDatum(evidence->provider_id), target))
		return true;
	if (evidence->gateway_reference != NULL &&
		look_up(&by_reference, gateway, CStringGetTextDatum(evidence->gateway_reference), target))
		return true;
	return evidence->charge_id != NULL &&
		look_up(&by_charge, gateway, CStringGetTextDatum(evidence->charge_id), target);
}

/*
 * The payment that the refund gives back.
 */
static void
read_payment_facts(const RefundTarget *target, RefundFacts *facts)
{
	static LedgerPlan read = {
		"SELECT amount, currency FROM payguard.payments"
		" WHERE order_id = $1 AND gateway = $2 AND provider_id = $3",
		3, {INT8OID, TEXTOID, TEXTOID}, NULL
	};
	Datum		values[3];

	if (target->charge_id == NULL)
		return;
	values[0] = Int64GetDatum(target->order_id);
	values[1] = CStringGetTextDatum(target->gateway);
	values[2] = CStringGetTextDatum(target->charge_id);
	facts->payment_known = payguard_plan_run(&read, values, NULL) > 0;
	if (facts->payment_known)
		(void) payguard_money_parse(payguard_row_text(0, 0), payguard_row_text(0, 1), &facts->money);
}

/*
 * The history that decisions ask for.
 */
static void
read_history(const RefundTarget *target, const GatewayTraits *traits, RefundFacts *facts)
{
	static LedgerPlan read = {
		"SELECT"
		" COALESCE(bool_or(source = 'answer' AND result <> 'not_sent'), false),"
		" COALESCE(bool_or(result = 'pending'), false),"
		" count(*) FILTER (WHERE result = 'not_found' AND verdict <> 'parked' AND received_at >= $2),"
		" max(COALESCE(occurred_at, received_at)) FILTER (WHERE verdict IN ('applied', 'duplicate')"
		/* neither what we inferred nor what an operator said */
		"   AND result IN ('succeeded', 'failed', 'closed') AND source <> 'operator'"
		"   AND (transport IS NOT NULL OR source <> 'answer'))"
		" FROM payguard.evidence WHERE order_id = $3 AND refund_id = $1",
		3, {INT8OID, TIMESTAMPTZOID, INT8OID}, NULL
	};
	Datum		values[3];
	bool		isnull;

	values[0] = Int64GetDatum(target->refund_id);
	values[1] = TimestampTzGetDatum(facts->settles_from + traits->not_found_settles);
	values[2] = Int64GetDatum(target->order_id);
	payguard_plan_run(&read, values, NULL);
	facts->may_have_left = payguard_row_bool(0, 0);
	facts->positive_known = payguard_row_bool(0, 1) || facts->positive_known;
	facts->settled_not_found = (int) payguard_row_int64(0, 2);
	facts->definite_at = payguard_row_time(0, 3, &isnull);
	facts->has_definite = !isnull;
}

/*
 * All that the decision looks at.
 */
static void
read_refund_facts(const Evidence *evidence, const GatewayTraits *traits,
				  const RefundTarget *target, RefundFacts *facts)
{
	static LedgerPlan read = {
		"SELECT state::text, gateway, amount, lease_token, lease_until, provider_id, sent_at,"
		" created_at, answered_at IS NOT NULL, external FROM payguard.refunds WHERE id = $1",
		1, {INT8OID}, NULL
	};
	Datum		values[1] = {Int64GetDatum(target->refund_id)};
	TimestampTz lease_until;
	TimestampTz sent_at;
	char	   *token;
	char	   *id;
	bool		no_lease;
	bool		not_sent;
	bool		isnull;

	memset(facts, 0, sizeof(*facts));
	read_payment_facts(target, facts);
	if (target->refund_id == 0 || payguard_plan_run(&read, values, NULL) == 0)
		return;
	facts->exists = true;
	(void) payguard_refund_read(payguard_row_text(0, 0), &facts->state);
	facts->gateway_matches = strcmp(payguard_row_text(0, 1), evidence->gateway) == 0;
	(void) payguard_money_parse(payguard_row_text(0, 2), facts->money.currency, &facts->money);
	token = payguard_row_text(0, 3);
	facts->by_application = token != NULL;
	facts->token_matches = token != NULL && evidence->lease_token != NULL &&
		strcmp(token, evidence->lease_token) == 0;
	lease_until = payguard_row_time(0, 4, &no_lease);
	facts->lease_live = !no_lease && lease_until > GetCurrentTimestamp();
	id = payguard_row_text(0, 5);
	facts->id_known = id != NULL || evidence->provider_id != NULL;
	facts->id_differs = id != NULL && evidence->provider_id != NULL &&
		strcmp(id, evidence->provider_id) != 0;
	facts->positive_known = id != NULL || facts->state == REFUND_PROCESSING;
	sent_at = payguard_row_time(0, 6, &not_sent);
	facts->created_at = payguard_row_time(0, 7, &isnull);
	facts->reported = payguard_row_bool(0, 8);
	facts->settles_from = facts->by_application && !no_lease ? lease_until :
		not_sent ? facts->created_at : sent_at;
	read_history(target, traits, facts);
	facts->query_tries = payguard_outbox_refund_tries(target->order_id, target->refund_id);
}

/*
 * A refund that was made at the gateway by hand.
 */
static int64
insert_external(const RefundTarget *target, const Evidence *evidence, RefundState state,
				int64 evidence_id)
{
	static LedgerPlan insert = {
		"INSERT INTO payguard.refunds (order_id, gateway, charge_id, amount, external, state,"
		" provider_id, decided_by, answered_at)"
		" VALUES ($1, $2, $3, $4::numeric, true, $8::payguard.refund_state, $5, $6, $7)"
		" ON CONFLICT (gateway, provider_id) DO NOTHING RETURNING id",
		8, {INT8OID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, INT8OID, TIMESTAMPTZOID, TEXTOID}, NULL
	};
	char		amount[MONEY_TEXT_SIZE];
	Datum		values[8];

	payguard_money_format(&evidence->money, amount);
	values[0] = Int64GetDatum(target->order_id);
	values[1] = CStringGetTextDatum(target->gateway);
	values[2] = CStringGetTextDatum(target->charge_id);
	values[3] = CStringGetTextDatum(amount);
	values[4] = CStringGetTextDatum(evidence->provider_id);
	values[5] = Int64GetDatum(evidence_id);
	values[6] = TimestampTzGetDatum(evidence->received_at);
	values[7] = CStringGetTextDatum(payguard_refund_word(state));
	return payguard_plan_run(&insert, values, NULL) > 0 ? payguard_row_int64(0, 0) : 0;
}

/*
 * A fact that was stored before its refund was known belongs to it from now
 * on: later facts are compared with its time.
 */
static void
link_evidence(int64 evidence_id, int64 refund_id)
{
	static LedgerPlan update = {
		"UPDATE payguard.evidence SET refund_id = $2 WHERE id = $1 AND refund_id IS NULL",
		2, {INT8OID, INT8OID}, NULL
	};
	Datum		values[2] = {Int64GetDatum(evidence_id), Int64GetDatum(refund_id)};

	if (refund_id != 0)
		payguard_plan_run(&update, values, NULL);
}

/*
 * Move a refund as decided, or keep what a fact tells of it.
 */
static void
move_refund(const RefundTarget *target, const RefundDecision *decision,
			const Evidence *evidence, int64 evidence_id)
{
	static LedgerPlan update = {
		"UPDATE payguard.refunds SET state = $2::payguard.refund_state,"
		/* an id that another row has was booked as a refund by hand before: both stay */
		" provider_id = CASE WHEN EXISTS (SELECT FROM payguard.refunds o WHERE o.gateway = refunds.gateway"
		"   AND o.provider_id = $3 AND o.id <> $1) THEN provider_id ELSE COALESCE($3, provider_id) END,"
		" decided_by = $4, answered_at = $5 WHERE id = $1",
		5, {INT8OID, TEXTOID, TEXTOID, INT8OID, TIMESTAMPTZOID}, NULL
	};
	Datum		values[5];
	char		nulls[6] = "     ";

	if (!decision->move)
		return;
	values[0] = Int64GetDatum(target->refund_id);
	values[1] = CStringGetTextDatum(payguard_refund_word(decision->to));
	values[2] = payguard_text_param(evidence->provider_id, &nulls[2]);
	values[3] = Int64GetDatum(evidence_id);
	values[4] = TimestampTzGetDatum(evidence->received_at);
	payguard_plan_run(&update, values, nulls);
}

/*
 * Derive the payment's state from its refunds.  A reversed one stays so.
 */
static void
derive_payment(const RefundTarget *target, bool *exceeds)
{
	static LedgerPlan update = {
		"WITH sums AS (SELECT"
		"  COALESCE(sum(r.amount) FILTER (WHERE r.state = 'succeeded'), 0) AS back,"
		"  COALESCE(sum(r.amount) FILTER (WHERE r.state <> 'failed'), 0) AS promised,"
		"  COALESCE(bool_or(r.state NOT IN ('succeeded', 'failed')), false) AS open"
		"  FROM payguard.refunds r WHERE r.order_id = $1 AND r.gateway = $2 AND r.charge_id = $3),"
		" wanted AS (SELECT p.gateway, p.provider_id, s.promised > p.amount AS exceeds,"
		"  CASE WHEN s.back >= p.amount THEN 'refunded'::payguard.payment_state"
		"   WHEN s.open THEN 'refunding' ELSE 'paid' END AS state"
		"  FROM payguard.payments p, sums s"
		"  WHERE p.order_id = $1 AND p.gateway = $2 AND p.provider_id = $3),"
		" moved AS (UPDATE payguard.payments p SET state = w.state FROM wanted w"
		"  WHERE p.gateway = w.gateway AND p.provider_id = w.provider_id"
		"  AND p.state <> 'reversed' AND p.state <> w.state"
		"  AND NOT (p.state = 'kept' AND w.state = 'paid'))"
		" SELECT exceeds FROM wanted",
		3, {INT8OID, TEXTOID, TEXTOID}, NULL
	};
	Datum		values[3];

	values[0] = Int64GetDatum(target->order_id);
	values[1] = CStringGetTextDatum(target->gateway);
	values[2] = CStringGetTextDatum(target->charge_id);
	*exceeds = payguard_plan_run(&update, values, NULL) > 0 && payguard_row_bool(0, 0);
}

/*
 * Derive sums and status of the order from the refunds of its counted
 * payment.  Returns the status after.
 */
static OrderStatus
derive_order(const DoorFacts *facts, const RefundTarget *target, int64 evidence_id)
{
	static LedgerPlan update = {
		"WITH sums AS (SELECT"
		"  COALESCE(sum(r.amount) FILTER (WHERE NOT r.external AND r.state <> 'failed'), 0) AS own,"
		"  COALESCE(sum(r.amount) FILTER (WHERE r.state = 'succeeded'), 0) AS back"
		"  FROM payguard.payments p LEFT JOIN payguard.refunds r ON r.order_id = p.order_id"
		"   AND r.gateway = p.gateway AND r.charge_id = p.provider_id"
		"  WHERE p.order_id = $1 AND p.counted AND p.gateway = $3 AND p.provider_id = $4"
		"  HAVING count(p.order_id) > 0),"
		" wanted AS (SELECT s.own, s.back, CASE WHEN o.status NOT IN ('paid', 'refunded') THEN o.status"
		"   WHEN s.back >= o.amount THEN 'refunded'::payguard.order_state ELSE 'paid' END AS status"
		"  FROM payguard.orders o, sums s WHERE o.id = $1)"
		" UPDATE payguard.orders o SET refund_reserved = LEAST(w.own, o.amount),"
		"  refunded_amount = w.back, status = w.status,"
		"  decided_by = CASE WHEN w.status <> o.status THEN $2 ELSE o.decided_by END,"
		"  updated_at = clock_timestamp()"
		" FROM wanted w WHERE o.id = $1"
		" AND (o.refund_reserved, o.refunded_amount, o.status) IS DISTINCT FROM"
		"  (LEAST(w.own, o.amount), w.back, w.status)"
		" RETURNING o.status::text",
		4, {INT8OID, INT8OID, TEXTOID, TEXTOID}, NULL
	};
	Datum		values[4];

	values[0] = Int64GetDatum(facts->order_id);
	values[1] = Int64GetDatum(evidence_id);
	values[2] = CStringGetTextDatum(target->gateway);
	values[3] = CStringGetTextDatum(target->charge_id);
	if (payguard_plan_run(&update, values, NULL) == 0)
		return facts->order.status;
	return payguard_order_status_of(payguard_row_text(0, 0));
}

/*
 * Plan, bring forward or drop the refund's calls.
 */
static void
plan_refund_calls(const RefundTarget *target, const Evidence *evidence,
				  const RefundDecision *decision, EvidenceOutcome *outcome)
{
	OutboxPlan	plan = {0};

	plan.op = OUTBOX_REFUND_QUERY;
	plan.gateway = target->gateway;
	plan.order_id = target->order_id;
	plan.refund_id = target->refund_id;
	plan.next_run_at = GetCurrentTimestamp() + decision->next_in;
	plan.own_id = evidence->outbox_id;
	plan.own_epoch = evidence->outbox_epoch;
	if (target->refund_id == 0)
		return;
	switch (decision->next)
	{
		case NEXT_CALL_NONE:
			payguard_outbox_drop_refund(target->order_id, target->refund_id);
			outcome->outbox_dropped = true;
			break;
		case NEXT_CALL_QUERY:
		case NEXT_CALL_QUERY_NOW:
			payguard_outbox_plan(&plan);
			break;
		case NEXT_CALL_RESEND:
			payguard_outbox_resend(&plan);
			break;
		case NEXT_CALL_LEAVE:
		case NEXT_CALL_CLOSE:
			break;
	}
}

/*
 * Events, reviews and entitlement that follow.
 */
static void
tell_followers(DoorFacts *facts, const Evidence *evidence, const RefundDecision *decision,
			   OrderStatus status, bool exceeds, int64 evidence_id)
{
	if (decision->event != NULL)
		payguard_event_write(facts, evidence, status, decision->event, evidence_id);
	if (status != facts->order.status)
	{
		if (status == ORDER_REFUNDED)
			payguard_events_write(facts, evidence, status, EVENT_ORDER_REFUNDED, evidence_id);
		payguard_entitlement_follow(facts, evidence, status, evidence_id);
	}
	if (decision->review != NULL)
		payguard_review_add(facts, evidence, status, decision->review, evidence_id);
	if (exceeds)
		payguard_review_add(facts, evidence, status, "refunds exceed the payment", evidence_id);
}

/*
 * Judge one fact under the order's lock.  existing is a parked fact's id or 0.
 */
static void
apply_locked(const Evidence *evidence, int64 existing, const GatewayTraits *traits,
			 RefundTarget *target, EvidenceOutcome *outcome)
{
	DoorFacts	facts;
	RefundFacts refund;
	RefundDecision decision;
	Evidence	stored = *evidence;
	int64		evidence_id = existing;
	bool		exceeds = false;

	payguard_read_facts(evidence, traits, target->order_id, 0, &facts);
	read_refund_facts(evidence, traits, target, &refund);
	refund.order_has_money = payguard_order_has_money(facts.order.status);
	decision = payguard_decide_refund(&refund, traits, evidence, GetCurrentTimestamp());

	stored.refund_id = target->refund_id;
	if (existing == 0)
	{
		bool		is_parked;

		evidence_id = payguard_evidence_store(&stored, &facts, decision.verdict, decision.note);
		if (evidence_id == 0)
		{
			if (!payguard_inbox_repeat(evidence, outcome, &is_parked))
				elog(ERROR, "callback is in the inbox and cannot be read");
			return;
		}
	}
	else if (decision.verdict != VERDICT_PARKED)
		payguard_evidence_settle(existing, &facts, decision.verdict, decision.note);

	outcome->verdict = decision.verdict;
	outcome->evidence_id = evidence_id;
	outcome->order_id = target->order_id;
	outcome->reference = facts.reference;
	outcome->status = facts.order.status;
	if (decision.make_external)
		stored.refund_id = insert_external(target, evidence, decision.to, evidence_id);
	if (existing != 0 || decision.make_external)
		link_evidence(evidence_id, stored.refund_id);
	move_refund(target, &decision, evidence, evidence_id);
	if ((decision.move || decision.make_external) && target->charge_id != NULL)
	{
		derive_payment(target, &exceeds);
		outcome->status = derive_order(&facts, target, evidence_id);
	}
	stored.money = decision.make_external ? evidence->money : refund.money;
	tell_followers(&facts, &stored, &decision, outcome->status, exceeds, evidence_id);
	plan_refund_calls(target, evidence, &decision, outcome);
}

/*
 * The one door, for facts about refunds.
 */
void
payguard_apply_refund_evidence(const Evidence *evidence, EvidenceOutcome *outcome)
{
	GatewayTraits traits;
	RefundTarget target;
	int64		existing = 0;
	bool		is_parked;
	bool		is_callback = evidence->source == EVIDENCE_SOURCE_CALLBACK;

	memset(outcome, 0, sizeof(*outcome));
	payguard_traits_hook(evidence->gateway, &traits);
	if (is_callback && payguard_inbox_repeat(evidence, outcome, &is_parked))
	{
		if (!is_parked)
			return;
		existing = outcome->evidence_id;
	}
	if (!find_target(evidence, &target) || !payguard_lock_order(target.order_id))
	{
		if (existing == 0)
			payguard_store_unmatched(evidence, outcome);
		return;
	}
	if (is_callback && existing == 0 && payguard_inbox_repeat(evidence, outcome, &is_parked))
	{
		if (!is_parked)
			return;
		existing = outcome->evidence_id;
	}
	/* what the lock waited for may have made the refund */
	(void) find_target(evidence, &target);
	apply_locked(evidence, existing, &traits, &target, outcome);
}

/*
 * A stored fact again.  See refund.h.
 */
void
payguard_apply_stored_refund(const ParkedFact *fact, EvidenceOutcome *outcome)
{
	GatewayTraits traits;
	RefundTarget target;

	outcome->verdict = VERDICT_PARKED;
	payguard_traits_hook(fact->evidence.gateway, &traits);
	if (find_target(&fact->evidence, &target) && payguard_lock_order(target.order_id))
		apply_locked(&fact->evidence, fact->id, &traits, &target, outcome);
}
