/*-------------------------------------------------------------------------
 *
 * claim.c
 *	  claim_order and renew_claim.
 *
 * A claim reads first; only a claimable order is locked and changed.  The
 * request bytes of a worker's charge are rendered here, before anything is
 * written, so that what cannot be sent is refused with nothing stored.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "api/argument.h"
#include "core/errcode.h"
#include "core/settings.h"
#include "gateway/gateway.h"
#include "ledger/claim.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/jsonb.h"

#define NAME_MAX_LENGTH	200
#define LEASE_MAX		(INT64CONST(7) * USECS_PER_DAY)

PG_FUNCTION_INFO_V1(payguard_claim_order);
PG_FUNCTION_INFO_V1(payguard_renew_claim);

/* What the caller asks for. */
typedef struct ClaimCall
{
	char	   *reference;
	char	   *request_key;
	char	   *gateway;		/* NULL: the order's */
	CallBy		call_by;
	Jsonb	   *payment;
	int64		lease;			/* microseconds; -1 default */
} ClaimCall;

/* What the caller is told. */
typedef struct ClaimAnswer
{
	const char *verdict;
	bool		claimed;
	OrderStatus status;
	const AttemptView *attempt; /* NULL: none to tell of */
	ClaimInput *input;			/* when claimed */
	int32		attempt_no;
} ClaimAnswer;

/*
 * Read and check the arguments.
 */
static void
read_arguments(FunctionCallInfo fcinfo, ClaimCall *call)
{
	char	   *call_by;
	bool		isnull;

	call->reference = payguard_argument_text(fcinfo, 0, "reference", REFERENCE_MAX_LENGTH);
	call->request_key = payguard_argument_text(fcinfo, 1, "request_key", REQUEST_KEY_MAX_LENGTH);
	call->gateway = payguard_argument_optional_text(fcinfo, 2, "gateway", NAME_MAX_LENGTH);
	call_by = payguard_argument_text(fcinfo, 3, "call_by", NAME_MAX_LENGTH);
	if (!payguard_call_by_read(call_by, &call->call_by) || call->call_by == CALL_BY_GATEWAY)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("unrecognized call_by \"%s\"", call_by),
				 errhint("Use \"worker\" or \"application\".")));
	call->payment = DatumGetJsonbP(payguard_argument_object(fcinfo, 4, "payment", true, &isnull));
	call->lease = payguard_argument_duration(fcinfo, 5, "lease", LEASE_MAX);
	if (call->lease > 0 && call->call_by == CALL_BY_WORKER)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("a lease can be chosen only when call_by is \"application\""),
				 errhint("Leave \"lease\" out: the worker has leases of its own.")));
}

/*
 * The fingerprint of a request: reference, gateway, call_by, payment.
 */
static void
make_fingerprint(const ClaimCall *call, const char *gateway, unsigned char *fingerprint)
{
	char	   *payment = JsonbToCString(NULL, &call->payment->root, VARSIZE(call->payment));
	const char *call_by = payguard_call_by_word(call->call_by);
	BytesView	parts[4];

	parts[0] = (BytesView) {call->reference, strlen(call->reference)};
	parts[1] = (BytesView) {gateway, strlen(gateway)};
	parts[2] = (BytesView) {call_by, strlen(call_by)};
	parts[3] = (BytesView) {payment, strlen(payment)};
	payguard_digest(parts, 4, fingerprint);
}

/*
 * The request key was used before: for this very request, or by mistake.
 */
static void
check_replay(const OrderView *view, const ClaimCall *call)
{
	const char *gateway = call->gateway != NULL ? call->gateway : view->keyed.gateway;
	unsigned char fingerprint[SHA256_SIZE];

	make_fingerprint(call, gateway, fingerprint);
	if (view->keyed.order_id == view->id && view->keyed.fingerprint != NULL &&
		VARSIZE(view->keyed.fingerprint) - VARHDRSZ == SHA256_SIZE &&
		memcmp(VARDATA(view->keyed.fingerprint), fingerprint, SHA256_SIZE) == 0)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_PAYGUARD_KEY_REUSED),
			 errmsg("request key was used with other parameters"),
			 view->keyed.order_id == view->id ?
			 errdetail("It belongs to attempt %d of order \"%s\", which is %s.",
					   view->keyed.no, view->reference, payguard_order_word(view->status)) :
			 errdetail("It belongs to another order."),
			 errhint("Use a new request key for a new request, and the same parameters for a repeated one.")));
}

/*
 * Why the claim cannot be won, from what was read; NULL when it can.
 */
static const char *
judge_view(const OrderView *view, ClaimAnswer *answer)
{
	answer->status = view->status;
	answer->attempt = view->latest.exists ? &view->latest : NULL;
	switch (view->status)
	{
		case ORDER_PAID:
		case ORDER_REFUNDED:
		case ORDER_REVERSED:
			return "already_paid";
		case ORDER_CLOSED:
			return "closed";
		case ORDER_PROCESSING:
		case ORDER_UNKNOWN:
			return "in_progress";
		case ORDER_CREATED:
		case ORDER_FAILED:
			break;
	}
	if (view->entitled_elsewhere)
		return "already_paid";
	return NULL;
}

/*
 * The gateway that is to charge, checked for what the claim needs of it.
 */
static const Gateway *
choose_gateway(const ClaimCall *call, const OrderView *view)
{
	const char *name = call->gateway != NULL ? call->gateway : view->gateway;
	const Gateway *gateway;

	if (name == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_PAYGUARD_GATEWAY),
				 errmsg("order \"%s\" has no gateway", view->reference),
				 errhint("Name one in create_order() or claim_order().")));
	gateway = payguard_gateway_get(name, true, false);
	if (call->call_by == CALL_BY_WORKER &&
		(!payguard_adapter_has_op(gateway->adapter, CALL_CHARGE) ||
		 !payguard_adapter_charges_by_worker(gateway->adapter)))
		ereport(ERROR,
				(errcode(ERRCODE_PAYGUARD_GATEWAY),
				 errmsg("gateway \"%s\" cannot be charged by the worker", name),
				 errhint("Claim with call_by => 'application', call the gateway, and tell the result by record_attempt().")));
	return gateway;
}

/*
 * Reference, keys, lease or request bytes of the attempt to be.
 */
static ClaimInput *
prepare_input(const ClaimCall *call, const OrderView *view, const Gateway *gateway)
{
	ClaimInput *input = palloc0(sizeof(ClaimInput));
	int			attempt_no = view->attempt_no + 1;
	char	   *reference = palloc(GATEWAY_REFERENCE_SIZE);
	char	   *key = palloc(IDEMPOTENCY_KEY_SIZE);
	unsigned char *fingerprint = palloc(SHA256_SIZE);

	payguard_reference_derive(view->reference, attempt_no,
							  payguard_adapter_retry_suffix(gateway->adapter), reference);
	if (!payguard_adapter_reference_fits(gateway->adapter, reference))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("reference \"%s\" does not fit gateway \"%s\"", reference, gateway->name),
				 errhint("It must match %s.", payguard_adapter_reference_pattern(gateway->adapter))));
	payguard_idempotency_key(view->reference, attempt_no, key);
	make_fingerprint(call, gateway->name, fingerprint);
	input->call_by = call->call_by;
	input->request_key = call->request_key;
	input->fingerprint = fingerprint;
	input->gateway = pstrdup(gateway->name);
	input->mode = gateway->mode;
	input->gateway_reference = reference;
	input->idempotency_key = key;

	if (call->call_by == CALL_BY_APPLICATION)
	{
		char	   *token = palloc(LEASE_TOKEN_SIZE);
		unsigned char random[8];

		if (!pg_strong_random(random, sizeof(random)))
			ereport(ERROR,
					(errcode(ERRCODE_INTERNAL_ERROR),
					 errmsg("could not generate random values")));
		payguard_lease_token_make(view->id, attempt_no, 0, random, token);
		input->lease_token = token;
		input->lease_until = GetCurrentTimestamp() + (call->lease > 0 ? call->lease :
													  gateway->total_timeout +
													  (int64) payguard_lease_margin * 1000);
	}
	else
	{
		CallFacts	facts = {0};
		CallRequest *request;

		facts.op = CALL_CHARGE;
		facts.reference = reference;
		facts.order_reference = view->reference;
		facts.idempotency_key = key;
		facts.money = view->money;
		facts.payment = call->payment;
		facts.attempt_no = attempt_no;
		request = payguard_request_render(gateway, &facts);
		(void) payguard_request_auth(gateway, request); /* PG004 now, not later */
		input->request = payguard_request_freeze(request);
	}
	return input;
}

/*
 * An order past its time ends here, unless a fact waits for it.
 */
static void
expire(const OrderView *view, ClaimAnswer *answer)
{
	EvidenceOutcome outcome;

	payguard_expire_order(view->id, view->gateway, &outcome);
	answer->status = outcome.status;
	answer->verdict = outcome.status == ORDER_CLOSED ? "closed" :
		payguard_order_has_money(outcome.status) ? "already_paid" : "in_progress";
}

/*
 * The claim is won.  A parked fact may say at once that it cannot be.
 */
static void
finish_won(const ClaimCall *call, const OrderView *view, ClaimInput *input, ClaimAnswer *answer)
{
	answer->verdict = "claimed";
	answer->claimed = true;
	answer->status = ORDER_PROCESSING;
	answer->input = input;
	answer->attempt_no = view->attempt_no + 1;
	if (call->call_by == CALL_BY_APPLICATION && input->lease_token == NULL)
	{
		answer->verdict = "in_progress";
		answer->claimed = false;
		answer->attempt = &payguard_order_view(call->reference, NULL)->latest;
	}
	else if (view->has_parked && payguard_retry_parked(view->id, 0) > 0)
	{
		OrderView  *after = payguard_order_view(call->reference, NULL);

		answer->status = after->status;
		answer->attempt = &after->latest;
		answer->claimed = after->status == ORDER_PROCESSING &&
			(after->latest.state == ATTEMPT_CLAIMED || after->latest.state == ATTEMPT_SENDING);
		if (!answer->claimed)
			answer->verdict = after->status == ORDER_FAILED ? "failed" :
				after->status == ORDER_CLOSED ? "closed" :
				payguard_order_has_money(after->status) ? "already_paid" : "in_progress";
	}
}

/*
 * Answer from a view that cannot be won.  False when it can.
 */
static bool
answer_without_claim(const ClaimCall *call, const OrderView *view, ClaimAnswer *answer)
{
	if (view == NULL)
		payguard_no_such_order(call->reference);
	if (view->keyed.exists)
	{
		check_replay(view, call);
		answer->verdict = "replayed";
		answer->status = view->status;
		answer->attempt = &view->keyed;
		return true;
	}
	answer->verdict = judge_view(view, answer);
	return answer->verdict != NULL;
}

/*
 * The second half, for an order that looked claimable: enter the ledger again
 * with the request prepared, and take it or learn who did.
 */
static void
try_claim(const ClaimCall *call, OrderView *view, ClaimInput *input, ClaimAnswer *answer)
{
	payguard_instance_require();
	if (view->has_expiry && view->expires_at <= GetCurrentTimestamp() && !view->has_parked)
	{
		expire(view, answer);
		return;
	}
	if (call->call_by == CALL_BY_APPLICATION)
	{
		switch (payguard_order_may_call(view, input->gateway))
		{
			case SEND_ASK_FIRST:
				/* perhaps a claim that a failover lost: the gateway is asked at once */
				input->lease_token = NULL;
				input->lease_until = GetCurrentTimestamp();
				break;
			case SEND_HOLD:
				payguard_order_hold(view);
				answer->verdict = "in_progress";
				return;
			case SEND_NOW:
			case SEND_DROP:
				break;
		}
	}
	switch (payguard_order_claim(view, input))
	{
		case CLAIM_WON:
			finish_won(call, view, input, answer);
			return;
		case CLAIM_KEY_TAKEN:
			ereport(ERROR,
					(errcode(ERRCODE_PAYGUARD_KEY_REUSED),
					 errmsg("request key was used with other parameters"),
					 errdetail("It belongs to another order."),
					 errhint("Use a new request key for a new request, and the same parameters for a repeated one.")));
			break;
		case CLAIM_LOST:
			view = payguard_order_view(call->reference, call->request_key);
			/* still claimable: the rival has not committed yet */
			if (!answer_without_claim(call, view, answer))
				answer->verdict = "in_progress";
			break;
	}
}

/*
 * The answer as a row, in the caller's memory context.
 */
static void
fill_row(const ClaimAnswer *answer, Datum *values, bool *nulls)
{
	const AttemptView *attempt = answer->attempt;
	const ClaimInput *input = answer->claimed ? answer->input : NULL;
	const char *gateway = input ? input->gateway : attempt ? attempt->gateway : NULL;
	const char *reference = input ? input->gateway_reference : attempt ? attempt->gateway_reference : NULL;
	const char *key = input ? input->idempotency_key : attempt ? attempt->idempotency_key : NULL;
	const char *token = input ? input->lease_token : NULL;
	bool		has_client = attempt != NULL && attempt->has_client &&
		attempt->state == ATTEMPT_PENDING;

	values[0] = BoolGetDatum(answer->claimed);
	values[1] = CStringGetTextDatum(answer->verdict);
	values[2] = CStringGetTextDatum(payguard_order_word(answer->status));
	nulls[3] = input == NULL && attempt == NULL;
	values[3] = Int32GetDatum(input ? answer->attempt_no : attempt ? attempt->no : 0);
	nulls[4] = gateway == NULL;
	values[4] = nulls[4] ? (Datum) 0 : CStringGetTextDatum(gateway);
	nulls[5] = reference == NULL;
	values[5] = nulls[5] ? (Datum) 0 : CStringGetTextDatum(reference);
	nulls[6] = key == NULL;
	values[6] = nulls[6] ? (Datum) 0 : CStringGetTextDatum(key);
	nulls[7] = token == NULL;
	values[7] = nulls[7] ? (Datum) 0 : CStringGetTextDatum(token);
	nulls[8] = token == NULL;
	values[8] = TimestampTzGetDatum(token != NULL ? input->lease_until : 0);
	nulls[9] = !has_client;
	values[9] = has_client ? datumCopy(attempt->client, false, -1) : (Datum) 0;
}

/*
 * claim_order(reference, request_key, gateway, call_by, payment, lease)
 *
 * Errors: 22004, 22023 for bad arguments, PG001 for a request key used with
 * other parameters, PG002 for no such order, PG004 for the gateway, PG007 for
 * card data, PG009 for a copy that was not adopted, 42501 without USAGE on
 * the gateway.
 */
Datum
payguard_claim_order(PG_FUNCTION_ARGS)
{
	MemoryContext context = CurrentMemoryContext;
	MemoryContext spi_context;
	ClaimCall	call;
	ClaimAnswer answer = {0};
	LedgerScope scope;
	OrderView  *view;
	Datum		values[10];
	bool		nulls[10] = {false};
	bool		done;

	read_arguments(fcinfo, &call);
	payguard_ledger_enter(&scope);
	spi_context = MemoryContextSwitchTo(context);
	view = payguard_order_view(call.reference, call.request_key);
	done = answer_without_claim(&call, view, &answer);
	if (!done)
	{
		ClaimInput *input;

		MemoryContextSwitchTo(spi_context);
		payguard_ledger_leave(&scope);
		input = prepare_input(&call, view, choose_gateway(&call, view));
		payguard_ledger_enter(&scope);
		spi_context = MemoryContextSwitchTo(context);
		try_claim(&call, view, input, &answer);
	}
	fill_row(&answer, values, nulls);
	MemoryContextSwitchTo(spi_context);
	payguard_ledger_leave(&scope);
	return payguard_result_row(fcinfo, values, nulls);
}

/*
 * renew_claim(lease_token, lease) -> the lease's new end
 *
 * The new lease counts from now.  PG005 when it has lapsed, was reported, or
 * the token is not recognized.
 */
Datum
payguard_renew_claim(PG_FUNCTION_ARGS)
{
	char	   *token = payguard_argument_text(fcinfo, 0, "lease_token", LEASE_TOKEN_SIZE);
	int64		lease = payguard_argument_duration(fcinfo, 1, "lease", LEASE_MAX);
	TimestampTz lease_until = GetCurrentTimestamp() + lease;
	LedgerScope scope;
	int64		order_id;
	int64		refund_id;
	int			attempt_no;
	bool		renewed;

	if (lease < 0)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("\"%s\" must not be null", "lease")));
	payguard_ledger_enter(&scope);
	renewed = payguard_lease_token_read(token, &order_id, &attempt_no, &refund_id) &&
		refund_id == 0 &&
		payguard_lease_renew(order_id, attempt_no, token, lease_until);
	payguard_ledger_leave(&scope);
	if (!renewed)
		ereport(ERROR,
				(errcode(ERRCODE_PAYGUARD_LEASE),
				 errmsg("lease has lapsed or its token is not recognized"),
				 errhint("Tell what is known by record_attempt(); a lapsed lease cannot be renewed.")));
	PG_RETURN_TIMESTAMPTZ(lease_until);
}
