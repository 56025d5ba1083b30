/*-------------------------------------------------------------------------
 *
 * orders.c
 *	  create_order: the order exists here before anything is sent anywhere.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "api/argument.h"
#include "core/errcode.h"
#include "core/settings.h"
#include "gateway/gateway.h"
#include "ledger/claim.h"
#include "ledger/instance.h"
#include "utils/builtins.h"
#include "utils/numeric.h"

#define NAME_MAX_LENGTH			200 /* customer, product, gateway */
#define LIFETIME_MAX			(INT64CONST(3660) * USECS_PER_DAY)
/* attempts that a reference must leave room for */
#define ATTEMPT_ROOM			999

PG_FUNCTION_INFO_V1(payguard_create_order);

/*
 * A reference that the application chose must be usable for every attempt at
 * its gateway, and must not look like one of a later attempt.
 */
static void
check_reference(const char *reference, const Gateway *gateway, const char *retry_suffix)
{
	char		order_reference[GATEWAY_REFERENCE_SIZE];
	char		longest[GATEWAY_REFERENCE_SIZE];
	int			attempt_no;

	if (strspn(reference, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz._-") !=
		strlen(reference) || strlen(reference) < 6 || strchr("._-", reference[0]) != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid reference \"%s\"", reference),
				 errhint("Use 6 to %d characters of [0-9A-Za-z._-] that begin with a letter or digit.",
						 REFERENCE_MAX_LENGTH)));
	if (!payguard_reference_split(reference, retry_suffix, order_reference, &attempt_no) ||
		attempt_no != 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("reference \"%s\" ends like one of a later attempt", reference),
				 errhint("Do not end a reference with \"%s\" and a number.", retry_suffix)));
	if (gateway == NULL)
		return;
	payguard_reference_derive(reference, ATTEMPT_ROOM, retry_suffix, longest);
	if (!payguard_adapter_reference_fits(gateway->adapter, reference) ||
		!payguard_adapter_reference_fits(gateway->adapter, longest))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("reference \"%s\" does not fit gateway \"%s\"", reference, gateway->name),
				 errhint("With the suffix \"%s%d\" of a later attempt it must match %s.",
						 retry_suffix, ATTEMPT_ROOM,
						 payguard_adapter_reference_pattern(gateway->adapter))));
}

/*
 * A fresh reference, unpredictable and nearly in the order of time.
 */
static char *
make_reference(void)
{
	unsigned char random[16];
	char	   *reference = palloc(REFERENCE_SIZE);
	int64		unix_ms = GetCurrentTimestamp() / 1000 +
	((int64) (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE)) * SECS_PER_DAY * 1000;

	if (!pg_strong_random(random, sizeof(random)))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate random values")));
	payguard_reference_make(unix_ms, random, reference);
	return reference;
}

/*
 * Read and check the arguments; the reference may still be NULL.
 */
static const Gateway *
read_arguments(FunctionCallInfo fcinfo, CreateInput *input)
{
	const Gateway *gateway = NULL;
	int64		lifetime;
	bool		isnull;

	memset(input, 0, sizeof(*input));
	(void) payguard_argument_money(fcinfo, 0, 1, true, &input->money);
	input->gateway = payguard_argument_optional_text(fcinfo, 2, "gateway", NAME_MAX_LENGTH);
	input->reference = payguard_argument_optional_text(fcinfo, 3, "reference", REFERENCE_MAX_LENGTH);
	input->customer = payguard_argument_optional_text(fcinfo, 4, "customer", NAME_MAX_LENGTH);
	input->product = payguard_argument_optional_text(fcinfo, 5, "product", NAME_MAX_LENGTH);
	input->once = !PG_ARGISNULL(6) && PG_GETARG_BOOL(6);
	if (input->once && (input->customer == NULL || input->product == NULL))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("\"%s\" must not be null when \"once\" is true",
						input->customer == NULL ? "customer" : "product"),
				 errhint("Name the customer and the product that are sold to them only once.")));
	lifetime = payguard_argument_duration(fcinfo, 7, "expires_in", LIFETIME_MAX);
	if (lifetime < 0 && payguard_order_lifetime > 0)
		lifetime = (int64) payguard_order_lifetime * USECS_PER_MINUTE;
	input->has_expiry = lifetime > 0;
	input->expires_at = GetCurrentTimestamp() + Max(lifetime, 0);
	input->metadata = payguard_argument_object(fcinfo, 8, "metadata", true, &isnull);

	input->retry_suffix = DEFAULT_RETRY_SUFFIX;
	if (input->gateway != NULL)
	{
		gateway = payguard_gateway_get(input->gateway, true, false);
		input->retry_suffix = payguard_adapter_retry_suffix(gateway->adapter);
	}
	if (input->reference != NULL)
		check_reference(input->reference, gateway, input->retry_suffix);
	return gateway;
}

/*
 * The same reference, or the same `once` purchase, with other money is a
 * mistake of the caller.
 */
static void
check_same(const OrderRow *order, const CreateInput *input)
{
	char		amount[MONEY_TEXT_SIZE];

	if (payguard_money_equal(&order->money, &input->money))
		return;
	payguard_money_format(&order->money, amount);
	ereport(ERROR,
			(errcode(ERRCODE_PAYGUARD_KEY_REUSED),
			 errmsg("order \"%s\" exists with another amount or currency", order->reference),
			 errdetail("Order \"%s\" is %s and of %s %s.", order->reference,
					   payguard_order_word(order->status), amount, order->money.currency),
			 errhint("Pay that order, or name it in \"replaces\" to close it and make a new one.")));
}

/*
 * replaces: close the order that this one takes the place of.  Only one that
 * cannot have moved money may be replaced, and only once: a closed one passes
 * when the order that took its place was found (is_repeat).
 */
static void
close_replaced(const char *reference, bool is_repeat)
{
	OrderRow   *order = payguard_order_find(reference);
	Evidence	evidence = {0};
	EvidenceOutcome outcome;

	if (order == NULL)
		payguard_no_such_order(reference);
	evidence.source = EVIDENCE_SOURCE_APPLICATION;
	evidence.result = EVIDENCE_RESULT_CLOSED;
	evidence.is_order_wish = true;
	evidence.gateway = order->gateway != NULL ? order->gateway : "";
	evidence.order_id = order->id;
	evidence.mode = MODE_NOT_TOLD;
	evidence.code = "replaced";
	evidence.received_at = GetCurrentTimestamp();
	payguard_apply_evidence(&evidence, &outcome);
	if (outcome.status != ORDER_CLOSED ||
		(outcome.verdict != VERDICT_APPLIED && !is_repeat))
		ereport(ERROR,
				(errcode(ERRCODE_PAYGUARD_TRANSITION),
				 errmsg("order \"%s\" cannot be replaced while it is %s", reference,
						payguard_order_word(outcome.status)),
				 errhint("Only an order that is created or failed can be replaced.")));
}

/*
 * Find or make the order; sets created.
 */
static OrderRow *
find_or_create(CreateInput *input, const char *replaces, bool *created)
{
	/* more than one round only when a rival takes reference or slot */
	for (int round = 0; round < 3; round++)
	{
		OrderRow   *order = input->reference != NULL ?
		payguard_order_find(input->reference) : NULL;

		*created = false;
		if (order != NULL)
			return order;
		if (input->once)
			order = payguard_order_find_once(input->customer, input->product);
		if (order != NULL && replaces != NULL && strcmp(order->reference, replaces) == 0)
			order = NULL;		/* it gives way */
		if (replaces != NULL)
		{
			close_replaced(replaces, order != NULL);
			replaces = NULL;
		}
		if (order != NULL)
			return order;
		if (input->reference == NULL)
			input->reference = make_reference();
		order = payguard_order_create(input);
		if (order != NULL)
		{
			*created = true;
			return order;
		}
	}
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("could not create the order because of concurrent changes"),
			 errhint("Repeat the transaction.")));
}

/*
 * create_order(amount, currency, gateway, reference, customer, product, once,
 *				expires_in, metadata, replaces)
 *
 * Amounts are in major units.  Errors: 22004, 22023 for bad arguments, PG001
 * for a reference or purchase that exists with other money, PG002 and PG003
 * for `replaces`, PG004 for the gateway, PG007 for card data.
 */
Datum
payguard_create_order(PG_FUNCTION_ARGS)
{
	CreateInput input;
	LedgerScope scope;
	OrderRow   *order;
	char	   *replaces;
	char		amount[MONEY_TEXT_SIZE];
	Datum		values[7];
	bool		nulls[7] = {false};
	bool		created;
	MemoryContext context = CurrentMemoryContext;
	MemoryContext spi_context;

	(void) read_arguments(fcinfo, &input);
	replaces = payguard_argument_optional_text(fcinfo, 9, "replaces", REFERENCE_MAX_LENGTH);

	payguard_ledger_enter(&scope);
	payguard_instance_adopt_first();
	order = find_or_create(&input, replaces, &created);
	check_same(order, &input);
	payguard_money_format(&order->money, amount);

	spi_context = MemoryContextSwitchTo(context);
	values[0] = CStringGetTextDatum(order->reference);
	values[1] = CStringGetTextDatum(payguard_order_word(order->status));
	values[2] = BoolGetDatum(created);
	values[3] = DirectFunctionCall3(numeric_in, CStringGetDatum(amount),
									ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1));
	values[4] = CStringGetTextDatum(order->money.currency);
	nulls[5] = order->gateway == NULL;
	values[5] = nulls[5] ? (Datum) 0 : CStringGetTextDatum(order->gateway);
	nulls[6] = !order->has_expiry;
	values[6] = TimestampTzGetDatum(order->expires_at);
	MemoryContextSwitchTo(spi_context);
	payguard_ledger_leave(&scope);
	return payguard_result_row(fcinfo, values, nulls);
}
