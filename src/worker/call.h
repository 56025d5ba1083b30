/*-------------------------------------------------------------------------
 *
 * call.h
 *	  One gateway call: from a leased item to Evidence.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYGUARD_WORKER_CALL_H
#define PAYGUARD_WORKER_CALL_H

#include "ledger/ledger.h"
#include "worker/lane.h"

/* Lives until its outcome is committed, in a memory context of its own. */
typedef struct Call
{
	MemoryContext context;
	OutboxItem	item;			/* a deep copy */
	CallFacts	facts;			/* what is asked, in words of gateway/ */
	Lane	   *lane;
	LaneGateway *gateway;		/* as configured when the call began */
	Evidence   *evidence;		/* NULL: still under way */
	TimestampTz ended_at;		/* valid with evidence */
	TimestampTz not_before;		/* booking failed: try again then */
} Call;

/* Begin the call of an item whose lease is committed.  Outside transactions. */
extern Call *payguard_call_begin(const OutboxItem *item, HttpCalls *http, MemoryContext parent);

/* The reply is here: read it, and give it back. */
extern void payguard_call_end(Call *call, HttpCalls *http, HttpCall *ended);

/* The outcome is committed, or can never be. */
extern void payguard_call_free(Call *call);

#endif							/* PAYGUARD_WORKER_CALL_H */
