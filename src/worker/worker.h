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

/* launcher.c */
extern void payguard_worker_register(void); /* in _PG_init while preloading */
extern PGDLLEXPORT void payguard_launcher_main(Datum main_arg);
extern PGDLLEXPORT void payguard_worker_main(Datum main_arg);	/* loop.c */

/* wake.c: shared slots of the workers, and the commit callback */
extern void payguard_wake_request_shmem(void);
extern void payguard_wake_startup_shmem(void);
extern void payguard_wake_init(void);	/* in _PG_init: hook and callbacks */

/*
 * http.c: the only file that includes curl.  A set of calls under way, whose
 * sockets are behind one epoll descriptor.
 */
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
/* Start a call; it must not have been started before.  Money calls are sent once. */
extern void payguard_http_start(HttpCalls *calls, const Gateway *gateway,
								const CallRequest *request, List *auth_headers, void *owner);
/* Let curl work; returns the ended calls (List of HttpCall *), never raises. */
extern List *payguard_http_run(HttpCalls *calls);
extern int	payguard_http_in_flight(const HttpCalls *calls);
/* Give an ended call's resources back. */
extern void payguard_http_release(HttpCalls *calls, HttpCall *call);
extern void payguard_http_destroy(HttpCalls *calls);

#endif							/* PAYGUARD_WORKER_H */
