/*-------------------------------------------------------------------------
 *
 * worker.h
 *	  The worker's rooms: launcher, loop, HTTP, wake-up.
 *
 * The launcher keeps one worker for each database of payguard.databases.
 * A worker leases due outbox items (T1), calls the gateways while no
 * transaction, snapshot or lock is held, and books the answers (T2).
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYGUARD_WORKER_H
#define PAYGUARD_WORKER_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "gateway/gateway.h"

/* --- launcher.c, loop.c: entry points -------------------------------------- */

extern void payguard_worker_register(void); /* in _PG_init while preloading */
extern PGDLLEXPORT void payguard_launcher_main(Datum main_arg);
extern PGDLLEXPORT void payguard_worker_main(Datum main_arg);	/* loop.c */

/* --- wake.c: shared slots of the workers, and the commit callback ----------- */

extern void payguard_wake_request_shmem(void);
extern void payguard_wake_startup_shmem(void);
extern void payguard_wake_init(void);	/* in _PG_init: hook and callbacks */

/* What one slot holds, as of one moment. */
typedef struct WorkerStatus
{
	Oid			database;		/* InvalidOid: the slot is free */
	int			pid;			/* 0: reserved, the worker has not started yet */
	uint32		generation;		/* of this reservation */
	uint64		batches;		/* transactions with outcomes or leases */
	uint64		calls;			/* gateway calls that have ended */
} WorkerStatus;

/* Number of slots; 0 when the library was not preloaded. */
extern int	payguard_slot_total(void);
extern void payguard_slot_read(int slot, WorkerStatus *status);

/*
 * The launcher's side.  A reservation carries a generation, so that a worker
 * which starts after its reservation was given up finds that out.
 */
extern int	payguard_slot_reserve(Oid database, uint32 *generation);
extern void payguard_slot_cancel(int slot, uint32 generation);
extern void payguard_slot_ask_to_go(int slot);
extern Datum payguard_slot_argument(int slot, uint32 generation);

/* The worker's side.  InvalidOid: this start came too late. */
extern Oid	payguard_slot_attach(Datum argument);
extern bool payguard_slot_is_wanted(void);

/* Earliest due time that was committed since the last call; DT_NOEND: none. */
extern TimestampTz payguard_slot_collect(void);
extern void payguard_slot_count(int batches, int calls);

/* --- http.c: the only file that includes curl ------------------------------- */

/* A set of calls under way, whose sockets are behind one epoll descriptor. */
typedef struct HttpCalls HttpCalls;

typedef struct HttpCall
{
	void	   *owner;			/* the caller's */
	HttpReply	reply;			/* filled when it has ended */
} HttpCall;

extern HttpCalls *payguard_http_create(MemoryContext context, int max_calls);

/* Readable when payguard_http_run() has something to do. */
extern int	payguard_http_descriptor(const HttpCalls *calls);

/* Milliseconds until run() must be called whatever the descriptor says; -1 none. */
extern long payguard_http_timeout(const HttpCalls *calls);

/* Start a call; it must not have been started before.  Any call is sent once. */
extern void payguard_http_start(HttpCalls *calls, const Gateway *gateway,
								const CallRequest *request, List *auth_headers, void *owner);

/* Let curl work; returns the ended calls (List of HttpCall *), never raises. */
extern List *payguard_http_run(HttpCalls *calls);
extern int	payguard_http_in_flight(const HttpCalls *calls);

/* Give an ended call's resources back. */
extern void payguard_http_release(HttpCalls *calls, HttpCall *call);
extern void payguard_http_destroy(HttpCalls *calls);

#endif							/* PAYGUARD_WORKER_H */
