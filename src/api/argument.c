/*-------------------------------------------------------------------------
 *
 * argument.c
 *	  Checks on what SQL passes in, with the errors that users see.
 *
 * No value that may be a secret or card data is ever repeated in a message,
 * and errors about card data hide the statement from the server's log.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "api/argument.h"
#include "core/errcode.h"
#include "core/redact.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/numeric.h"

#define PROSE_MAX_LENGTH	10000
#define OBJECT_MAX_SIZE		(64 * 1024)

/*
 * An argument carries card data: say which, and nothing of it.
 */
static void
refuse_card_data(const char *name)
{
	ereport(ERROR,
			(errcode(ERRCODE_PAYGUARD_CARD_DATA),
			 errmsg("\"%s\" contains card data", name),
			 errdetail("The value is not repeated here."),
			 errhint("Pass a token of the gateway in place of a card number or verification value."),
			 errhidestmt(true), errhidecontext(true)));
}

void
payguard_refuse_card_data(const char *text, const char *name)
{
	if (text != NULL && payguard_has_card_number(text, strlen(text)))
		refuse_card_data(name);
}

/*
 * Are these bytes free of control characters?
 */
static bool
is_printable(const char *text)
{
	for (const unsigned char *c = (const unsigned char *) text; *c != '\0'; c++)
		if (*c < 0x20 || *c == 0x7f)
			return false;
	return true;
}

/*
 * A text argument without a look for card numbers.
 */
static char *
read_text(FunctionCallInfo fcinfo, int n, const char *name, int max_length)
{
	char	   *value;

	if (PG_ARGISNULL(n))
		return NULL;
	value = text_to_cstring(PG_GETARG_TEXT_PP(n));
	if (value[0] == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("\"%s\" must not be empty", name)));
	if (strlen(value) > (size_t) max_length)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("\"%s\" is too long", name),
				 errdetail("It has %zu bytes; at most %d are allowed.", strlen(value), max_length)));
	if (!is_printable(value))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("\"%s\" must not contain control characters", name)));
	return value;
}

char *
payguard_argument_optional_text(FunctionCallInfo fcinfo, int n, const char *name, int max_length)
{
	char	   *value = read_text(fcinfo, n, name, max_length);

	payguard_refuse_card_data(value, name);
	return value;
}

char *
payguard_argument_received_text(FunctionCallInfo fcinfo, int n, const char *name, int max_length)
{
	return read_text(fcinfo, n, name, max_length);
}

char *
payguard_argument_text(FunctionCallInfo fcinfo, int n, const char *name, int max_length)
{
	if (PG_ARGISNULL(n))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("\"%s\" must not be null", name)));
	return payguard_argument_optional_text(fcinfo, n, name, max_length);
}

char *
payguard_argument_prose(FunctionCallInfo fcinfo, int n, const char *name)
{
	char	   *value;

	if (PG_ARGISNULL(n))
		return NULL;
	value = text_to_cstring(PG_GETARG_TEXT_PP(n));
	if (strlen(value) > PROSE_MAX_LENGTH)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("\"%s\" is too long", name),
				 errdetail("It has %zu bytes; at most %d are allowed.", strlen(value), PROSE_MAX_LENGTH)));
	payguard_refuse_card_data(value, name);
	return value;
}

/*
 * Refuse card numbers in any value, and members that are named like a card
 * verification value, at any depth.
 */
static void
refuse_card_members(Jsonb *object, const char *name)
{
	JsonbIterator *it = JsonbIteratorInit(&object->root);
	JsonbIteratorToken token;
	JsonbValue	value;

	while ((token = JsonbIteratorNext(&it, &value, false)) != WJB_DONE)
	{
		bool		found = false;

		if (token == WJB_KEY)
			found = payguard_is_secret_member(value.val.string.val, value.val.string.len) ||
				payguard_has_card_number(value.val.string.val, value.val.string.len);
		else if ((token == WJB_VALUE || token == WJB_ELEM) && value.type == jbvString)
			found = payguard_has_card_number(value.val.string.val, value.val.string.len);
		else if ((token == WJB_VALUE || token == WJB_ELEM) && value.type == jbvNumeric)
		{
			char	   *digits = DatumGetCString(DirectFunctionCall1(numeric_out,
																	 NumericGetDatum(value.val.numeric)));

			found = payguard_has_card_number(digits, strlen(digits));
		}
		if (found)
			refuse_card_data(name);
	}
}

Datum
payguard_argument_object(FunctionCallInfo fcinfo, int n, const char *name,
						 bool null_is_empty, bool *isnull)
{
	Jsonb	   *object;

	*isnull = PG_ARGISNULL(n) && !null_is_empty;
	if (*isnull)
		return (Datum) 0;
	object = PG_ARGISNULL(n) ?
		DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum("{}"))) :
		PG_GETARG_JSONB_P(n);
	if (!JB_ROOT_IS_OBJECT(object))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("\"%s\" must be a JSON object", name)));
	if (VARSIZE(object) > OBJECT_MAX_SIZE)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("\"%s\" is too large", name),
				 errdetail("It has %u bytes; at most %d are allowed.",
						   (unsigned) VARSIZE(object), OBJECT_MAX_SIZE)));
	refuse_card_members(object, name);
	return JsonbPGetDatum(object);
}

/*
 * Say what is wrong with an amount or currency.
 */
void
payguard_refuse_money(MoneyError error, const char *amount, const char *currency)
{
	switch (error)
	{
		case MONEY_OK:
			return;
		case MONEY_BAD_CURRENCY:
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("unrecognized currency"),
					 errhint("Use an upper-case ISO 4217 code, such as EUR or CNY.")));
			break;
		case MONEY_BAD_NUMBER:
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("invalid amount %s", amount),
					 errhint("Use a finite decimal number in major units, such as 399.00.")));
			break;
		case MONEY_TOO_PRECISE:
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("amount %s has more decimals than %s allows", amount, currency),
					 errdetail("%s has %d decimals; amounts are never rounded.",
							   currency, payguard_money_exponent(currency))));
			break;
		case MONEY_NOT_POSITIVE:
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("amount must be greater than zero")));
			break;
		case MONEY_TOO_LARGE:
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("amount is too large")));
			break;
	}
}

bool
payguard_argument_money(FunctionCallInfo fcinfo, int amount, int currency,
						bool required, Money *money)
{
	char	   *number;
	char	   *code;

	if (PG_ARGISNULL(amount) && PG_ARGISNULL(currency) && !required)
		return false;
	if (PG_ARGISNULL(amount) || PG_ARGISNULL(currency))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("\"%s\" must not be null", PG_ARGISNULL(amount) ? "amount" : "currency")));
	number = DatumGetCString(DirectFunctionCall1(numeric_out, PG_GETARG_DATUM(amount)));
	code = text_to_cstring(PG_GETARG_TEXT_PP(currency));
	payguard_refuse_card_data(code, "currency");
	payguard_refuse_money(payguard_money_parse(number, code, money), number, code);
	return true;
}

int64
payguard_argument_duration(FunctionCallInfo fcinfo, int n, const char *name, int64 max)
{
	Interval   *interval;
	int64		length;

	if (PG_ARGISNULL(n))
		return -1;
	interval = PG_GETARG_INTERVAL_P(n);
	/* each field is bounded first, so that the sum cannot overflow */
	if (abs(interval->month) > 12000 || abs(interval->day) > 366000 ||
		interval->time > PG_INT64_MAX / 4 || interval->time < -(PG_INT64_MAX / 4))
		length = -1;
	else
		length = ((int64) interval->month * DAYS_PER_MONTH + interval->day) * USECS_PER_DAY +
			interval->time;
	if (length <= 0 || length > max)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid \"%s\"", name),
				 errhint("Use an interval longer than zero and not above %lld days.",
						 (long long) (max / USECS_PER_DAY))));
	return length;
}

void
payguard_no_such_order(const char *reference)
{
	payguard_refuse_card_data(reference, "reference");
	ereport(ERROR,
			(errcode(ERRCODE_PAYGUARD_NO_SUCH_ORDER),
			 errmsg("order \"%s\" does not exist", reference),
			 errhint("Make it with payguard.create_order().")));
}

Datum
payguard_result_row(FunctionCallInfo fcinfo, Datum *values, bool *nulls)
{
	TupleDesc	desc;

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "result type is not composite");
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls));
}
