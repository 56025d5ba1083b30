/*-------------------------------------------------------------------------
 *
 * deliver.h
 *	  Events for endpoints: the worker as their consumer.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYGUARD_WORKER_DELIVER_H
#define PAYGUARD_WORKER_DELIVER_H

#include "worker/batch.h"

/* Plan the delivery of new events to all endpoints; no error gets out.  True
 * when one of them has more than were planned. */
extern bool payguard_deliver_events(Worker *worker);

#endif							/* PAYGUARD_WORKER_DELIVER_H */
