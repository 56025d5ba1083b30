/*-------------------------------------------------------------------------
 *
 * batch.h
 *	  The worker's transactions: outcomes in, leases out.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYGUARD_WORKER_BATCH_H
#define PAYGUARD_WORKER_BATCH_H

#include "worker/call.h"

/* Outcomes and leases that share one transaction. */
#define BATCH_SIZE	64

/*
 * The low-water mark of a full sweep: older than anything due.  Not minus
 * infinity, by which the outbox would also judge parked facts again, inside
 * T1: one that cannot be judged would stop all calls.
 */
#define SWEEP_ALL	((TimestampTz) 0)

/* The worker of one database: all that outlives a batch. */
typedef struct Worker
{
	MemoryContext context;
	MemoryContext batch_context;	/* reset after each batch */
	HttpCalls  *http;
	int			max_calls;		/* as http was made for */
	List	   *calls;			/* of Call *: not booked yet */

	TimestampTz low_water;		/* nothing due is older; SWEEP_ALL: not known */
	TimestampTz next_due;		/* look for due items then */
	bool		more;			/* due items were left for want of slots */
	TimestampTz take_after;		/* backoff after a failed take */
	int			take_backoff;	/* seconds; 0: the last take went well */
	int			book_backoff;	/* seconds; 0: outcomes can be stored */
} Worker;

/* Wait this long (microseconds) for orders that somebody else holds. */
#define SKIPPED_WAIT	(INT64CONST(20) * 1000)

/* How far the transaction had come when it failed. */
typedef enum BatchStage
{
	STAGE_BOOK,
	STAGE_TAKE,
	STAGE_COMMIT
} BatchStage;

/* One transaction. */
typedef struct Batch
{
	Worker	   *worker;
	List	   *outcomes;		/* of Call *: to be booked */
	bool		take;			/* lease, too */

	BatchStage	stage;
	List	   *booked;			/* of Call *: booked if this commits */
	List	   *items;			/* of OutboxItem *: leased if this commits */
	bool		must_repeat;	/* a gateway turned out to have less room */
	bool		more;
	TimestampTz next_due;
	TimestampTz low_water;
} Batch;

/* A transaction of the worker's, by all the rules; pgstat is told. */
extern void payguard_batch_begin(const char *activity);
extern void payguard_batch_commit(void);

/* In PG_CATCH: abort; returns the error in that context, which becomes current. */
extern ErrorData *payguard_batch_abort(MemoryContext context);

/*
 * Book outcomes and, if may_take, lease due items and begin their calls.  No
 * error gets out; no outcome is lost before its transaction has committed.
 */
extern void payguard_batch_run(Worker *worker, bool may_take);

/* take.c: T1 inside the batch's transaction and ledger scope. */
extern void payguard_batch_take(Batch *batch);

/* Slots in which a call could be begun. */
extern int	payguard_batch_free_slots(const Worker *worker);

#endif							/* PAYGUARD_WORKER_BATCH_H */
