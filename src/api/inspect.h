/*-------------------------------------------------------------------------
 *
 * inspect.h
 *	  What the functions that look at one order share.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYGUARD_API_INSPECT_H
#define PAYGUARD_API_INSPECT_H

#include "postgres.h"

#include "fmgr.h"

/* The first argument, a reference; 22004 for null. */
extern Datum payguard_inspect_reference(FunctionCallInfo fcinfo);
/* Raises PG002. */
extern void payguard_inspect_no_order(Datum reference) pg_attribute_noreturn();

#endif							/* PAYGUARD_API_INSPECT_H */
