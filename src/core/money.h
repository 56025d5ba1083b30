/*-------------------------------------------------------------------------
 *
 * money.h
 *	  Amounts of money, exact, by the exponents of ISO 4217.
 *
 * Inside the library money is a count of minor units with its currency;
 * decimal text exists only where SQL or a gateway wants it.  There is no
 * floating point and no rounding anywhere: text that a currency cannot hold
 * exactly is refused.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYGUARD_MONEY_H
#define PAYGUARD_MONEY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Largest amount: 10^17 - 1 minor units, so that no sum of two overflows. */
#define MONEY_MAX_MINOR		INT64_C(99999999999999999)

/* Room for the decimal text of any amount, sign, point and NUL included. */
#define MONEY_TEXT_SIZE		32

typedef struct Money
{
	int64_t		minor;			/* count of minor units */
	char		currency[4];	/* ISO 4217 code, upper case, NUL-terminated */
} Money;

typedef enum MoneyError
{
	MONEY_OK,
	MONEY_BAD_CURRENCY,			/* not an ISO 4217 currency that is in use */
	MONEY_BAD_NUMBER,			/* not a plain decimal number */
	MONEY_TOO_PRECISE,			/* more decimals than the currency has */
	MONEY_NOT_POSITIVE,			/* zero or less */
	MONEY_TOO_LARGE				/* above MONEY_MAX_MINOR */
} MoneyError;

/* Number of decimals of a currency (three upper-case letters), or -1. */
extern int	payguard_money_exponent(const char *currency);

/*
 * Read a decimal number in major units ("399", "399.00", "4e2" is refused),
 * exactly.  Trailing zeros beyond the currency's decimals are accepted.
 */
extern MoneyError payguard_money_parse(const char *text, const char *currency,
									   Money *money);

/* The same with an explicit number of decimals, for gateways with their own
 * exponents; the result is still in ISO minor units. */
extern MoneyError payguard_money_from_minor(const char *digits, const char *currency,
											int decimals, Money *money);

/* Write in major units with exactly the currency's decimals ("399.00"). */
extern void payguard_money_format(const Money *money, char *text);

/* Write as a count of units of 10^-decimals; false when that is not exact. */
extern bool payguard_money_to_minor(const Money *money, int decimals, char *text);

extern bool payguard_money_equal(const Money *a, const Money *b);

#endif							/* PAYGUARD_MONEY_H */
