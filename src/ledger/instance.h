/*-------------------------------------------------------------------------
 *
 * instance.h
 *	  Adopting a copy of the ledger.
 *
 * Which copy this is, and whether it may pay, is asked by ledger.h's
 * payguard_origin(), payguard_instance_adopted() and
 * payguard_instance_require().  All run inside a ledger scope.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYGUARD_LEDGER_INSTANCE_H
#define PAYGUARD_LEDGER_INSTANCE_H

#include "postgres.h"

#include "datatype/timestamp.h"

/*
 * Adopt an empty ledger.  For create_order alone, before it inserts; in a
 * ledger that holds anything this changes nothing.
 */
extern void payguard_instance_adopt_first(void);

/*
 * Let this copy pay, whatever it holds, and take over the waiting calls.
 * Returns how many outbox items were not ours before.
 */
extern int64 payguard_instance_adopt(const char *reason);

/* Went on under a new timeline?  Then `since` is when that was noticed. */
extern bool payguard_instance_switched(TimestampTz *since);

#endif							/* PAYGUARD_LEDGER_INSTANCE_H */
