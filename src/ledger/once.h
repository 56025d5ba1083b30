/*-------------------------------------------------------------------------
 *
 * once.h
 *	  Generic idempotency keys of the application.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYGUARD_ONCE_H
#define PAYGUARD_ONCE_H

#include "ledger/ledger.h"

typedef struct OnceView
{
	bool		is_first;
	bool		is_same;		/* the same request as the first one's */
	bool		is_finished;
	bool		has_response;
	Datum		response;		/* jsonb */
} OnceView;

typedef enum OnceFinish
{
	ONCE_FINISHED,
	ONCE_OTHER_RESPONSE,
	ONCE_NOT_BEGUN
} OnceFinish;

extern void payguard_once_begin(const char *scope, const char *key, bytea *fingerprint,
								OnceView *view);
extern OnceFinish payguard_once_finish(const char *scope, const char *key, Datum response);

#endif							/* PAYGUARD_ONCE_H */
