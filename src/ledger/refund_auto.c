/*-------------------------------------------------------------------------
 *
 * refund_auto.c
 *	  Refunds that payguard makes by itself: surplus payments, and money that
 *	  came for a closed order, where the gateway's option says so.
 *
 * The wish is a refund that waits: its row is there and reserves the money,
 * and the gateway is asked about the payment (and about the counted one, when
 * it is surplus).  Only when its answers since then say that they are paid
 * does the refund go out.  Where an operator decided the counted payment, a
 * person decides about the other one, too.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "ledger/refund.h"
#include "utils/builtins.h"

#define AUTO_PREFIX		"payguard:give-back:"
#define NOT_CONFIRMED	"a payment to give back was not confirmed"
/* A question without an answer is asked again after this. */
#define ASK_AGAIN		(INT64CONST(60) * USECS_PER_SEC)

/*
 * Ask the gateway about an attempt now.
 */
static void
ask(const char *gateway, int64 order_id, int32 attempt_no)
{
	OutboxPlan	plan = {0};

	plan.op = OUTBOX_QUERY;
	plan.gateway = gateway;
	plan.order_id = order_id;
	plan.attempt_no = attempt_no;
	plan.next_run_at = GetCurrentTimestamp();
	payguard_outbox_plan(&plan);
}

/*
 * Ask about the attempt of the counted payment.  False: an operator decided
 * it, or there is nobody to ask.
 */
static bool
ask_about_counted(int64 order_id)
{
	static LedgerPlan read = {
		"SELECT p.gateway, p.attempt_no FROM payguard.payments p"
		" JOIN payguard.orders o ON o.id = p.order_id"
		" WHERE p.order_id = $1 AND p.counted AND p.attempt_no IS NOT NULL"
		" AND NOT EXISTS (SELECT FROM payguard.evidence e WHERE e.order_id = o.id"
		"   AND e.source = 'operator' AND e.result = 'paid' AND e.verdict = 'applied')",
		1, {INT8OID}, NULL
	};
	Datum		values[1] = {Int64GetDatum(order_id)};
	GatewayTraits traits;
	char	   *gateway;
	int32		attempt_no;

	if (payguard_plan_run(&read, values, NULL) == 0)
		return false;
	gateway = payguard_row_text(0, 0);
	attempt_no = payguard_row_int32(0, 1);
	payguard_traits_hook(gateway, &traits);
	if (!traits.can_query)
		return false;
	ask(gateway, order_id, attempt_no);
	return true;
}

/*
 * Give this payment back, after proof.  Where that cannot be, a person must.
 */
void
payguard_refund_want(const DoorFacts *facts, const Evidence *evidence, bool is_surplus)
{
	char	   *request_key = psprintf(AUTO_PREFIX "%s", evidence->provider_id);
	char	   *gateway_reference = palloc(REFUND_REFERENCE_SIZE);
	char	   *key = palloc(IDEMPOTENCY_KEY_SIZE);
	unsigned char fingerprint[SHA256_SIZE];
	BytesView	part = {request_key, strlen(request_key)};
	RefundInput input = {0};
	RefundScope scope;
	char		token[LEASE_TOKEN_SIZE];

	if (!payguard_refund_scope(facts->reference, request_key, evidence->provider_id, true, &scope) ||
		!scope.has_payment || scope.keyed.id != 0)
		return;
	if (scope.left == 0 || facts->attempt_no == 0 ||
		(is_surplus && !ask_about_counted(facts->order_id)))
	{
		payguard_review_add_other(facts->order_id, is_surplus ? "surplus" : "late money on a closed order");
		return;
	}
	ask(evidence->gateway, facts->order_id, facts->attempt_no);
	payguard_refund_reference(facts->reference, request_key, gateway_reference);
	payguard_refund_key(facts->reference, request_key, key);
	payguard_digest(&part, 1, fingerprint);
	input.request_key = request_key;
	input.fingerprint = fingerprint;
	input.gateway_reference = gateway_reference;
	input.idempotency_key = key;
	input.reason = is_surplus ? "surplus payment" : "late money on a closed order";
	input.money = scope.paid;
	input.money.minor = scope.left;
	input.waits_for_proof = true;
	(void) payguard_refund_create(&scope, &input, token);
}

/*
 * Does a refund of this order wait for proof?
 */
static bool
is_waited_for(int64 order_id)
{
	static LedgerPlan read = {
		"SELECT FROM payguard.refunds r WHERE r.order_id = $1 AND r.state = 'pending'"
		" AND starts_with(r.request_key, '" AUTO_PREFIX "')"
		" AND NOT EXISTS (SELECT FROM payguard.outbox x WHERE x.order_id = $1 AND x.refund_id = r.id"
		"   AND x.op IN ('refund', 'refund_query'))",
		1, {INT8OID}, NULL
	};
	Datum		values[1] = {Int64GetDatum(order_id)};

	return payguard_plan_run(&read, values, NULL) > 0;
}

/*
 * A query about a paid order did not confirm the payment that it asked about.
 * If a refund waits for that: ask again, or leave it to a person.
 */
void
payguard_refund_unconfirmed(const DoorFacts *facts, const Evidence *evidence, OrderStatus status,
							int64 evidence_id)
{
	OutboxPlan	plan = {0};

	if (!is_waited_for(facts->order_id))
		return;
	switch (evidence->result)
	{
		case EVIDENCE_RESULT_UNKNOWN:
		case EVIDENCE_RESULT_NOT_SENT:
		case EVIDENCE_RESULT_NOT_FOUND:
		case EVIDENCE_RESULT_PENDING:
			plan.op = OUTBOX_QUERY;
			plan.gateway = evidence->gateway;
			plan.order_id = facts->order_id;
			plan.attempt_no = facts->attempt_no;
			plan.next_run_at = GetCurrentTimestamp() + ASK_AGAIN;
			plan.own_id = evidence->outbox_id;
			plan.own_epoch = evidence->outbox_epoch;
			payguard_outbox_plan(&plan);
			break;
		default:
			payguard_review_add(facts, evidence, status, NOT_CONFIRMED, evidence_id);
			break;
	}
}

/*
 * A query has confirmed a payment of this order: send the refunds that waited
 * for that, each once all its payments were confirmed after it was made.  What
 * still waits when no other question is planned (two charges of one reference,
 * of which the gateway tells only one) is for a person.
 */
void
payguard_refund_release(const DoorFacts *facts, const Evidence *evidence, OrderStatus status,
						int64 evidence_id)
{
	static LedgerPlan ready = {
		"SELECT r.id, r.gateway FROM payguard.refunds r"
		" WHERE r.order_id = $1 AND r.state = 'pending'"
		" AND starts_with(r.request_key, '" AUTO_PREFIX "')"
		" AND NOT EXISTS (SELECT FROM payguard.payments p"
		"   WHERE p.order_id = $1 AND (p.counted OR p.gateway = r.gateway AND p.provider_id = r.charge_id)"
		"   AND NOT EXISTS (SELECT FROM payguard.evidence e WHERE e.order_id = $1"
		"     AND e.source = 'query' AND e.result = 'paid' AND e.gateway = p.gateway"
		"     AND e.provider_id = p.provider_id AND e.received_at > r.created_at))",
		1, {INT8OID}, NULL
	};
	Datum		values[1] = {Int64GetDatum(facts->order_id)};
	uint64		rows = payguard_plan_run(&ready, values, NULL);
	SPITupleTable *table = SPI_tuptable;

	for (uint64 i = 0; i < rows; i++)
	{
		OutboxPlan	plan = {0};
		bool		isnull;

		plan.op = OUTBOX_REFUND;
		plan.gateway = SPI_getvalue(table->vals[i], table->tupdesc, 2);
		plan.order_id = facts->order_id;
		plan.refund_id = DatumGetInt64(SPI_getbinval(table->vals[i], table->tupdesc, 1, &isnull));
		plan.next_run_at = GetCurrentTimestamp();
		payguard_outbox_plan(&plan);
	}
	if (is_waited_for(facts->order_id) &&
		!payguard_outbox_asks(facts->order_id, evidence->outbox_id))
		payguard_review_add(facts, evidence, status, NOT_CONFIRMED, evidence_id);
}
