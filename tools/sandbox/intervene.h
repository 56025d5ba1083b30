/*-------------------------------------------------------------------------
 *
 * intervene.h
 *	  What a gateway does of its own accord, when a test asks for it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef INTERVENE_H
#define INTERVENE_H

#include "ledger.h"

extern void intervene_charge(const char *name, int64_t amount, const char *currency,
							 Answer *answer);
extern const char *intervene_charge_status(const char *name, const char *status);
extern const char *intervene_refund(const char *charge_name, const char *name, int64_t amount);
extern const char *intervene_refund_status(const char *name, const char *status);
extern const char *intervene_resend(const char *name, bool new_id);

#endif							/* INTERVENE_H */
