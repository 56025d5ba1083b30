/*-------------------------------------------------------------------------
 *
 * consumer.h
 *	  Consumers of events: which events a consumer has not had yet.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYGUARD_CONSUMER_H
#define PAYGUARD_CONSUMER_H

#include "ledger/ledger.h"

/* Events that one call may take: each is locked until the transaction ends. */
#define EVENTS_AT_ONCE_MAX	1000

/* Names that begin with this are those of endpoints, which the worker serves. */
#define ENDPOINT_CONSUMER_PREFIX	'@'

/*
 * Take up to `max` events that this consumer has not had and that no other
 * session is about to give it, oldest first, and note that it has them.
 * Never waits.  Writes their seqs and returns their number.
 */
extern int	payguard_consumer_take(const char *consumer, int max, int64 *seqs);

/* int8[] of seqs, as a parameter. */
extern Datum payguard_seqs_param(const int64 *seqs, int count);

#endif							/* PAYGUARD_CONSUMER_H */
