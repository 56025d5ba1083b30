/*-------------------------------------------------------------------------
 *
 * refunds.c
 *	  request_refund: money back, once for each request.
 *
 * A refund that is under way is handed back in place of a second one.  The
 * request bytes are rendered before anything is written.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "api/argument.h"
#include "core/errcode.h"
#include "core/settings.h"
#include "gateway/gateway.h"
#include "ledger/refund.h"
#include "utils/builtins.h"
#include "utils/numeric.h"

#define ID_MAX_LENGTH	255
#define WORD_MAX_LENGTH	64
/* rounds when the order changes between looking and taking */
#define MAX_ROUNDS		5

PG_FUNCTION_INFO_V1(payguard_request_refund);

/* What the caller asks for. */
typedef struct RefundCall
{
	char	   *reference;
	char	   *request_key;
	bool		has_amount;
	char	   *amount;			/* decimal text; the payment tells the currency */
	char	   *reason;
	bool		by_application;
	char	   *provider_id;
} RefundCall;

/* What the caller is told. */
typedef struct RefundAnswer
{
	const char *verdict;
	bool		created;
	int64		refund_id;
	const char *state;
	Money		money;
	bool		has_refund;
	Money		left;
	const char *gateway;
	const char *gateway_reference;
	const char *idempotency_key;
	const char *charge_id;
	const char *lease_token;
	TimestampTz lease_until;
} RefundAnswer;

/*
 * Read and check the arguments.
 */
static void
read_arguments(FunctionCallInfo fcinfo, RefundCall *call)
{
	char	   *call_by;
	CallBy		who;

	call->reference = payguard_argument_text(fcinfo, 0, "reference", REFERENCE_MAX_LENGTH);
	call->request_key = payguard_argument_text(fcinfo, 1, "request_key", REQUEST_KEY_MAX_LENGTH);
	call->has_amount = !PG_ARGISNULL(2);
	call->amount = call->has_amount ?
		DatumGetCString(DirectFunctionCall1(numeric_out,
											DirectFunctionCall1(numeric_trim_scale, PG_GETARG_DATUM(2)))) : NULL;
	call->reason = payguard_argument_prose(fcinfo, 3, "reason");
	call_by = payguard_argument_text(fcinfo, 4, "call_by", WORD_MAX_LENGTH);
	if (!payguard_call_by_read(call_by, &who) || who == CALL_BY_GATEWAY)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("unrecognized call_by \"%s\"", call_by),
				 errhint("Use \"worker\" or \"application\".")));
	call->by_application = who == CALL_BY_APPLICATION;
	call->provider_id = payguard_argument_optional_text(fcinfo, 5, "provider_id", ID_MAX_LENGTH);
}

/*
 * The fingerprint of a request: what it asks for, default amount included.
 */
static void
make_fingerprint(const RefundCall *call, unsigned char *fingerprint)
{
	const char *texts[4];
	BytesView	parts[4];

	texts[0] = call->reference;
	texts[1] = call->has_amount ? call->amount : "";
	texts[2] = call->by_application ? "application" : "worker";
	texts[3] = call->provider_id != NULL ? call->provider_id : "";
	for (int i = 0; i < 4; i++)
		parts[i] = (BytesView) {texts[i], strlen(texts[i])};
	payguard_digest(parts, 4, fingerprint);
}

/*
 * Tell of a refund that exists already.
 */
static void
answer_existing(const RefundView *refund, const char *verdict, RefundAnswer *answer)
{
	answer->verdict = verdict;
	answer->refund_id = refund->id;
	answer->has_refund = true;
	answer->state = payguard_refund_word(refund->state);
	answer->money = refund->money;
	answer->gateway = refund->gateway;
	answer->gateway_reference = refund->gateway_reference;
	answer->idempotency_key = refund->idempotency_key;
	answer->charge_id = refund->charge_id;
}

/*
 * The amount that is asked for, checked against what is left.
 */
static Money
read_amount(const RefundCall *call, const RefundScope *scope)
{
	Money		money = scope->paid;
	Money		left = scope->paid;
	char		left_text[MONEY_TEXT_SIZE];
	MoneyError	error = MONEY_OK;

	left.minor = scope->left;
	payguard_money_format(&left, left_text);
	if (call->has_amount)
		error = payguard_money_parse(call->amount, scope->paid.currency, &money);
	else
		money.minor = scope->left;
	payguard_refuse_money(error, call->amount, scope->paid.currency);
	if (money.minor > scope->left || scope->left == 0)
		ereport(ERROR,
				(errcode(ERRCODE_PAYGUARD_REFUND_EXCEEDS),
				 errmsg("refund of order \"%s\" exceeds what is left", scope->order_reference),
				 errdetail("%s %s of payment \"%s\" can still be given back.",
						   left_text, left.currency, scope->charge_id),
				 errhint("Refunds whose outcome is unknown count as given back.")));
	return money;
}

/*
 * Answer from what is there; false when a refund can be made.
 */
static bool
answer_without_refund(const RefundCall *call, const RefundScope *scope,
					  const unsigned char *fingerprint, RefundAnswer *answer)
{
	Money		asked;

	answer->left = scope->paid;
	answer->left.minor = scope->left;
	if (scope->keyed.id != 0)
	{
		if (scope->keyed.fingerprint == NULL ||
			memcmp(VARDATA(scope->keyed.fingerprint), fingerprint, SHA256_SIZE) != 0)
			ereport(ERROR,
					(errcode(ERRCODE_PAYGUARD_KEY_REUSED),
					 errmsg("request key was used with other parameters"),
					 errdetail("It belongs to refund %lld of order \"%s\", which is %s.",
							   (long long) scope->keyed.id, scope->order_reference,
							   payguard_refund_word(scope->keyed.state)),
					 errhint("Use a new request key for a new request, and the same parameters for a repeated one.")));
		answer_existing(&scope->keyed, "replayed", answer);
		return true;
	}
	/* an uncounted payment is real money, whatever became of its order */
	if (!payguard_order_has_money(scope->status) &&
		!(scope->has_payment && call->provider_id != NULL))
	{
		answer->verdict = "not_paid";
		return true;
	}
	if (!scope->has_payment)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("order \"%s\" has no such payment", scope->order_reference),
				 errhint("Leave \"provider_id\" out for the payment that counts, or look at payguard.payments.")));
	if (scope->payment_state == PAYMENT_REVERSED)
	{
		answer->verdict = "reversed";
		return true;
	}
	if (scope->in_flight.id == 0)
		return false;
	if (scope->in_flight.state == REFUND_PROCESSING && call->has_amount &&
		payguard_money_parse(call->amount, scope->paid.currency, &asked) == MONEY_OK &&
		!payguard_money_equal(&asked, &scope->in_flight.money))
		return false;
	answer_existing(&scope->in_flight, "in_progress", answer);
	return true;
}

/*
 * The request's bytes for the worker, or the lease of the application.
 */
static void
prepare(const RefundCall *call, const RefundScope *scope, const Gateway *gateway,
		RefundInput *input)
{
	CallFacts	facts = {0};
	CallRequest *request;

	if (call->by_application)
	{
		unsigned char *random = palloc(8);

		if (!pg_strong_random(random, 8))
			ereport(ERROR,
					(errcode(ERRCODE_INTERNAL_ERROR),
					 errmsg("could not generate random values")));
		input->by_application = true;
		input->random8 = random;
		input->lease_until = GetCurrentTimestamp() + gateway->total_timeout +
			(int64) payguard_lease_margin * 1000;
		return;
	}
	if (!payguard_adapter_has_op(gateway->adapter, CALL_REFUND))
		ereport(ERROR,
				(errcode(ERRCODE_PAYGUARD_GATEWAY),
				 errmsg("gateway \"%s\" cannot make refunds by the worker", gateway->name),
				 errhint("Ask with call_by => 'application', call the gateway, and tell the result by record_attempt().")));
	facts.op = CALL_REFUND;
	facts.reference = input->gateway_reference;
	facts.order_reference = scope->order_reference;
	facts.idempotency_key = input->idempotency_key;
	facts.charge_reference = scope->charge_reference;
	facts.charge_id = scope->charge_id;
	facts.money = input->money;
	request = payguard_request_render(gateway, &facts);
	(void) payguard_request_auth(gateway, request); /* PG004 now, not later */
	input->request = payguard_request_freeze(request);
}

/*
 * Make the refund, if the order is still as it was seen.  False: look again.
 */
static bool
take(const RefundCall *call, const RefundScope *seen, const RefundInput *input,
	 const unsigned char *fingerprint, RefundAnswer *answer)
{
	char	   *token = palloc0(LEASE_TOKEN_SIZE);
	RefundScope scope;

	payguard_instance_require();
	if (!payguard_refund_scope(call->reference, call->request_key, call->provider_id, true, &scope))
		payguard_no_such_order(call->reference);
	if (answer_without_refund(call, &scope, fingerprint, answer))
		return true;
	if (scope.left != seen->left || strcmp(scope.charge_id, seen->charge_id) != 0)
		return false;
	answer->refund_id = payguard_refund_create(&scope, input, token);
	answer->created = true;
	answer->verdict = "requested";
	answer->has_refund = true;
	answer->state = input->by_application ? "submitted" : "pending";
	answer->money = input->money;
	answer->left.minor -= input->money.minor;
	answer->gateway = scope.gateway;
	answer->gateway_reference = input->gateway_reference;
	answer->idempotency_key = input->idempotency_key;
	answer->charge_id = scope.charge_id;
	if (input->by_application)
	{
		answer->lease_token = token;
		answer->lease_until = input->lease_until;
	}
	return true;
}

/*
 * The answer as a row.
 */
static Datum
make_row(FunctionCallInfo fcinfo, const RefundAnswer *answer)
{
	const char *texts[7];
	Datum		values[12];
	bool		nulls[12] = {false};
	char		amount[MONEY_TEXT_SIZE];

	values[0] = BoolGetDatum(answer->created);
	values[1] = CStringGetTextDatum(answer->verdict);
	nulls[2] = !answer->has_refund;
	values[2] = Int64GetDatum(answer->refund_id);
	texts[0] = answer->state;
	nulls[4] = !answer->has_refund;
	if (answer->has_refund)
	{
		payguard_money_format(&answer->money, amount);
		values[4] = DirectFunctionCall3(numeric_in, CStringGetDatum(amount),
										ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1));
	}
	nulls[5] = answer->left.currency[0] == '\0';
	if (!nulls[5])
	{
		payguard_money_format(&answer->left, amount);
		values[5] = DirectFunctionCall3(numeric_in, CStringGetDatum(amount),
										ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1));
	}
	texts[1] = answer->gateway;
	texts[2] = answer->gateway_reference;
	texts[3] = answer->idempotency_key;
	texts[4] = answer->charge_id;
	texts[5] = answer->lease_token;
	for (int i = 0; i < 6; i++)
	{
		int			column = i == 0 ? 3 : i + 5;

		nulls[column] = texts[i] == NULL;
		values[column] = nulls[column] ? (Datum) 0 : CStringGetTextDatum(texts[i]);
	}
	nulls[11] = answer->lease_token == NULL;
	values[11] = TimestampTzGetDatum(answer->lease_until);
	return payguard_result_row(fcinfo, values, nulls);
}

/*
 * request_refund(reference, request_key, amount, reason, call_by, provider_id)
 *
 * Amount in major units of the payment's currency; default: all that is left.
 * Errors: 22004, 22023 for bad arguments, PG001 for a request key used with
 * other parameters, PG002 no such order, PG004 for the gateway, PG006 when it
 * exceeds what is left, PG007 card data, PG009 for a copy that was not
 * adopted, 42501 without USAGE on the gateway.
 */
Datum
payguard_request_refund(PG_FUNCTION_ARGS)
{
	MemoryContext context = CurrentMemoryContext;
	unsigned char fingerprint[SHA256_SIZE];
	char		gateway_reference[REFUND_REFERENCE_SIZE];
	char		key[IDEMPOTENCY_KEY_SIZE];
	RefundCall	call;
	RefundAnswer answer = {0};

	read_arguments(fcinfo, &call);
	make_fingerprint(&call, fingerprint);
	payguard_refund_reference(call.reference, call.request_key, gateway_reference);
	payguard_refund_key(call.reference, call.request_key, key);
	for (int round = 0; round < MAX_ROUNDS; round++)
	{
		RefundInput input = {0};
		RefundScope seen;
		LedgerScope scope;
		bool		done;

		payguard_ledger_enter(&scope);
		MemoryContextSwitchTo(context);
		if (!payguard_refund_scope(call.reference, call.request_key, call.provider_id, false, &seen))
			payguard_no_such_order(call.reference);
		done = answer_without_refund(&call, &seen, fingerprint, &answer);
		payguard_ledger_leave(&scope);
		if (done)
			return make_row(fcinfo, &answer);

		input.request_key = call.request_key;
		input.fingerprint = fingerprint;
		input.gateway_reference = gateway_reference;
		input.idempotency_key = key;
		input.reason = call.reason;
		input.money = read_amount(&call, &seen);
		prepare(&call, &seen, payguard_gateway_get(seen.gateway, true, false), &input);

		payguard_ledger_enter(&scope);
		MemoryContextSwitchTo(context);
		done = take(&call, &seen, &input, fingerprint, &answer);
		payguard_ledger_leave(&scope);
		if (done)
			return make_row(fcinfo, &answer);
	}
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("could not make the refund because of concurrent changes"),
			 errhint("Repeat the transaction.")));
}
