/*-------------------------------------------------------------------------
 *
 * check.h
 *	  A rule of check(): what must hold, as a query for what does not.
 *
 * check.c runs the rules; check_money.c has those about orders and money,
 * check_house.c those about the installation.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYGUARD_API_CHECK_H
#define PAYGUARD_API_CHECK_H

/*
 * The query returns object and detail for each violation.  Its parameters:
 * $1 bigint the origin of this copy, $2 text[] the built-in adapters, $3
 * boolean whether the library was preloaded, $4 text payguard.databases.
 */
typedef struct CheckRule
{
	const char *name;
	const char *meaning;		/* what the violation means, and what to do */
	const char *sql;
} CheckRule;

/* Both end with a NULL name. */
extern const CheckRule payguard_money_rules[];
extern const CheckRule payguard_house_rules[];

#endif							/* PAYGUARD_API_CHECK_H */
