/*-------------------------------------------------------------------------
 *
 * deliver.c
 *	  Events for endpoints: the worker as their consumer.
 *
 * Each endpoint gets a transaction of its own, so that one that cannot be
 * served stops neither the others nor any payment.  Only so many deliveries
 * are due at a time; what is more waits in the table of events.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/memutils.h"
#include "worker/deliver.h"

/* Due deliveries of one endpoint. */
#define DELIVERIES_AT_ONCE	64

/*
 * The endpoints there are, in the batch's memory context.
 */
static List *
find_endpoints(Worker *worker)
{
	MemoryContext old_context;
	List	   *endpoints;

	payguard_batch_begin("payguard: looking for endpoints");
	old_context = MemoryContextSwitchTo(worker->batch_context);
	endpoints = payguard_endpoint_names();
	MemoryContextSwitchTo(old_context);
	payguard_batch_commit();
	return endpoints;
}

/*
 * Plan for one endpoint.
 */
static bool
plan_deliveries(const char *endpoint)
{
	LedgerScope scope;
	bool		has_more;

	payguard_batch_begin("payguard: planning deliveries of events");
	payguard_ledger_enter(&scope);
	has_more = payguard_deliver_plan(endpoint, DELIVERIES_AT_ONCE);
	payguard_ledger_leave(&scope);
	payguard_batch_commit();
	return has_more;
}

/*
 * In PG_CATCH: the transaction failed.
 */
static void
tell_failure(Worker *worker, const char *endpoint)
{
	ErrorData  *error = payguard_batch_abort(worker->batch_context);

	ereport(LOG,
			(errcode(error->sqlerrcode),
			 errmsg("payguard could not plan the delivery of events to \"%s\": %s",
					endpoint, error->message)));
}

/*
 * Plan for all endpoints.
 */
bool
payguard_deliver_events(Worker *worker)
{
	List	   *volatile endpoints = NIL;
	volatile bool has_more = false;
	ListCell   *lc;

	PG_TRY();
	{
		endpoints = find_endpoints(worker);
	}
	PG_CATCH();
	{
		tell_failure(worker, "all endpoints");
	}
	PG_END_TRY();

	foreach(lc, endpoints)
	{
		const char *endpoint = lfirst(lc);

		PG_TRY();
		{
			has_more |= plan_deliveries(endpoint);
		}
		PG_CATCH();
		{
			tell_failure(worker, endpoint);
		}
		PG_END_TRY();
	}
	MemoryContextSwitchTo(worker->context);
	MemoryContextReset(worker->batch_context);
	return has_more;
}
