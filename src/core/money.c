/*-------------------------------------------------------------------------
 *
 * money.c
 *	  Amounts of money, exact, by the exponents of ISO 4217.
 *
 * Text goes to minor units and back digit by digit.  There must never be a
 * floating-point number or a rounding here: what a currency cannot hold is
 * refused, and the caller says so.
 *
 *-------------------------------------------------------------------------
 */
#include "core/money.h"

#include <stdio.h>
#include <string.h>

/*
 * The currencies in use, by number of decimals.  Metals, testing codes and
 * "no currency" have none and are not money here.  BGN and ANG stay although
 * EUR and XCG replaced them: their payments can still be given back.
 */
static const struct
{
	int			exponent;
	const char *codes;
}			currencies[] = {

	{2,
		"AED AFN ALL AMD ANG AOA ARS AUD AWG AZN BAM BBD BDT BGN BMD BND BOB BOV "
		"BRL BSD BTN BWP BYN BZD CAD CDF CHE CHF CHW CNY COP COU CRC CUP CVE CZK "
		"DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GTQ GYD HKD HNL "
		"HTG HUF IDR ILS INR IRR JMD KES KGS KHR KPW KYD KZT LAK LBP LKR LRD LSL "
		"MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MXV MYR MZN NAD NGN NIO "
		"NOK NPR NZD PAB PEN PGK PHP PKR PLN QAR RON RSD RUB SAR SBD SCR SDG SEK "
		"SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TOP TRY TTD TWD TZS "
		"UAH USD USN UYU UZS VED VES WST XCD XCG YER ZAR ZMW ZWG"
	},
	{0, "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF"},
	{3, "BHD IQD JOD KWD LYD OMR TND"},
	{4, "CLF UYW"}
};

/*
 * Number of decimals of a currency (three upper-case letters), or -1 when it
 * is none that is in use.
 */
int
payguard_money_exponent(const char *currency)
{
	size_t		i;

	if (currency == NULL || strlen(currency) != 3)
		return -1;
	for (i = 0; i < 3; i++)
		if (currency[i] < 'A' || currency[i] > 'Z')
			return -1;

	for (i = 0; i < sizeof(currencies) / sizeof(currencies[0]); i++)
	{
		const char *code;

		for (code = currencies[i].codes; *code != '\0';)
		{
			if (memcmp(code, currency, 3) == 0)
				return currencies[i].exponent;
			code += 3;
			if (*code == ' ')
				code++;
		}
	}
	return -1;
}

/*
 * Read a decimal number as a count of units of 10^-decimals.  Digits beyond
 * `decimals` must be zeros; *units is set only with MONEY_OK.
 */
static MoneyError
read_units(const char *text, int decimals, int64_t *units)
{
	const char *p = text;
	bool		negative = false;
	bool		in_fraction = false;
	bool		too_precise = false;
	bool		too_large = false;
	int			fraction = 0;
	int64_t		value = 0;

	if (*p == '-' || *p == '+')
		negative = (*p++ == '-');
	if (*p < '0' || *p > '9')
		return MONEY_BAD_NUMBER;

	for (; *p != '\0'; p++)
	{
		if (*p == '.' && !in_fraction && p[1] != '\0')
		{
			in_fraction = true;
			continue;
		}
		if (*p < '0' || *p > '9')
			return MONEY_BAD_NUMBER;
		if (in_fraction && fraction == decimals)
		{
			if (*p != '0')
				too_precise = true;
			continue;
		}
		if (in_fraction)
			fraction++;
		if (value > MONEY_MAX_MINOR)
			too_large = true;
		else
			value = value * 10 + (*p - '0');
	}
	for (; fraction < decimals; fraction++)
	{
		if (value > MONEY_MAX_MINOR)
			too_large = true;
		else
			value *= 10;
	}

	if (too_precise)
		return MONEY_TOO_PRECISE;
	if (negative || (value == 0 && !too_large))
		return MONEY_NOT_POSITIVE;
	if (too_large || value > MONEY_MAX_MINOR)
		return MONEY_TOO_LARGE;
	*units = value;
	return MONEY_OK;
}

/*
 * Read a decimal number in major units, exactly.  Only sign, digits and one
 * point with digits on both sides are a number; trailing zeros beyond the
 * currency's decimals are accepted.  *money is set only with MONEY_OK.
 */
MoneyError
payguard_money_parse(const char *text, const char *currency, Money *money)
{
	int			exponent = payguard_money_exponent(currency);
	int64_t		minor;
	MoneyError	error;

	if (exponent < 0)
		return MONEY_BAD_CURRENCY;
	error = read_units(text, exponent, &minor);
	if (error != MONEY_OK)
		return error;
	money->minor = minor;
	memcpy(money->currency, currency, 4);
	return MONEY_OK;
}

/*
 * Read a whole number of units of 10^-decimals (-1: the currency's own) into
 * ISO minor units, exactly.  *money is set only with MONEY_OK.
 */
MoneyError
payguard_money_from_minor(const char *digits, const char *currency,
						  int decimals, Money *money)
{
	int			exponent = payguard_money_exponent(currency);
	int64_t		units;
	MoneyError	error;

	if (exponent < 0)
		return MONEY_BAD_CURRENCY;
	if (strchr(digits, '.') != NULL)
		return MONEY_BAD_NUMBER;
	error = read_units(digits, 0, &units);
	if (error != MONEY_OK)
		return error;

	if (decimals < 0)
		decimals = exponent;
	for (; decimals > exponent; decimals--)
	{
		if (units % 10 != 0)
			return MONEY_TOO_PRECISE;
		units /= 10;
	}
	for (; decimals < exponent; decimals++)
	{
		if (units > MONEY_MAX_MINOR / 10)
			return MONEY_TOO_LARGE;
		units *= 10;
	}
	money->minor = units;
	memcpy(money->currency, currency, 4);
	return MONEY_OK;
}

/*
 * Write in major units with exactly the currency's decimals ("399.00").  text
 * must have room for MONEY_TEXT_SIZE bytes; the money must be a valid one.
 */
void
payguard_money_format(const Money *money, char *text)
{
	int			exponent = payguard_money_exponent(money->currency);
	uint64_t	rest = money->minor < 0 ? -(uint64_t) money->minor : (uint64_t) money->minor;
	char		reversed[MONEY_TEXT_SIZE];
	int			length = 0;
	int			digits = 0;

	do
	{
		reversed[length++] = '0' + rest % 10;
		rest /= 10;
		if (++digits == exponent)
			reversed[length++] = '.';
	} while (rest > 0 || digits <= exponent);
	if (money->minor < 0)
		*text ++= '-';
	while (length > 0)
		*text ++= reversed[--length];
	*text = '\0';
}

/*
 * Write as a count of units of 10^-decimals (-1: the currency's own).  False
 * when that is not exact or does not fit.
 */
bool
payguard_money_to_minor(const Money *money, int decimals, char *text)
{
	int			exponent = payguard_money_exponent(money->currency);
	int64_t		units = money->minor;

	if (exponent < 0)
		return false;
	if (decimals < 0)
		decimals = exponent;
	for (; exponent > decimals; exponent--)
	{
		if (units % 10 != 0)
			return false;
		units /= 10;
	}
	for (; exponent < decimals; exponent++)
	{
		if (units > INT64_MAX / 10)
			return false;
		units *= 10;
	}
	snprintf(text, MONEY_TEXT_SIZE, "%lld", (long long) units);
	return true;
}

/* The same amount in the same currency? */
bool
payguard_money_equal(const Money *a, const Money *b)
{
	return a->minor == b->minor && strcmp(a->currency, b->currency) == 0;
}
