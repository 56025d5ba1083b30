/*-------------------------------------------------------------------------
 *
 * argument.h
 *	  Checks on what SQL passes in, with the errors that users see.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYGUARD_API_ARGUMENT_H
#define PAYGUARD_API_ARGUMENT_H

#include "postgres.h"

#include "core/money.h"
#include "core/state.h"
#include "fmgr.h"
#include "utils/timestamp.h"

/* A text argument: 22004 for null, 22023 for empty, too long or unprintable. */
extern char *payguard_argument_text(FunctionCallInfo fcinfo, int n, const char *name, int max_length);
/* The same, NULL for null. */
extern char *payguard_argument_optional_text(FunctionCallInfo fcinfo, int n, const char *name,
											 int max_length);
/* The same for what a gateway wrote: card numbers in it are masked where it is
 * kept, and are no reason to refuse a fact. */
extern char *payguard_argument_received_text(FunctionCallInfo fcinfo, int n, const char *name,
											 int max_length);
/* Free text for people: any characters, NULL for null, bounded. */
extern char *payguard_argument_prose(FunctionCallInfo fcinfo, int n, const char *name);
/* A JSON object; null counts as {} when null_is_empty, else NULL is returned.
 * PG007 when it carries card data. */
extern Datum payguard_argument_object(FunctionCallInfo fcinfo, int n, const char *name,
									  bool null_is_empty, bool *isnull);
/* Amount and currency: both or neither null; false when null. */
extern bool payguard_argument_money(FunctionCallInfo fcinfo, int amount, int currency,
									bool required, Money *money);
/* A positive interval as microseconds; -1 for null. */
extern int64 payguard_argument_duration(FunctionCallInfo fcinfo, int n, const char *name, int64 max);

/* PG007 when text carries a card number. */
extern void payguard_refuse_card_data(const char *text, const char *name);

/* 22023 for what is wrong with an amount; returns for MONEY_OK. */
extern void payguard_refuse_money(MoneyError error, const char *amount, const char *currency);

/* PG002 for a reference that is not here. */
extern void payguard_no_such_order(const char *reference) pg_attribute_noreturn();

/* A row of the function's composite result type. */
extern Datum payguard_result_row(FunctionCallInfo fcinfo, Datum *values, bool *nulls);

#endif							/* PAYGUARD_API_ARGUMENT_H */
