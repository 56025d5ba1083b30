/*-------------------------------------------------------------------------
 *
 * lane.h
 *	  Lanes: what the worker knows of each gateway that it calls.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYGUARD_WORKER_LANE_H
#define PAYGUARD_WORKER_LANE_H

#include "worker/worker.h"

/* A gateway's configuration outside transactions, shared by calls under way. */
typedef struct LaneGateway
{
	Gateway    *gateway;
	int			users;			/* the lane itself and calls under way */
} LaneGateway;

typedef struct Lane
{
	char	   *name;
	LaneGateway *current;		/* NULL: no call can be made */
	bool		is_checked;		/* current says what the catalogs said */
	bool		is_told;		/* the log knows that no call can be made */
	bool		was_shut;		/* had no room when it was last asked */
	TimestampTz low_water;		/* nothing that waits for it is older */
	int			in_flight;
	double		tokens;			/* calls that rate_limit allows now */
	TimestampTz tokens_at;
	int			unanswered;		/* calls in a row that got no answer */
	int			pause;			/* ms; 0: the breaker is closed */
	TimestampTz open_until;		/* the breaker lets a probe through then */
} Lane;

extern void payguard_lanes_init(MemoryContext parent);

/* The lane of that name, made when it is new.  No catalog is read. */
extern Lane *payguard_lane_find(const char *name);

/* All lanes (List of Lane *). */
extern List *payguard_lanes_all(void);

/* Ask the catalogs again at the next check. */
extern void payguard_lanes_forget(void);

/* In a transaction: read the gateway if it may have changed. */
extern void payguard_lane_check(Lane *lane);

/* After an error: was it a lane's check that failed?  Then it is shut. */
extern bool payguard_lane_check_failed(const char *message);

/* Calls that may be started now, when so many slots of the worker are free. */
extern int	payguard_lane_room(Lane *lane, int free_slots);

/* When has a shut lane room again, as far as time alone can tell? */
extern TimestampTz payguard_lanes_next_opening(void);

/* Low-water mark of the lanes that got room and had none; DT_NOEND: none. */
extern TimestampTz payguard_lanes_reopened(int free_slots);

/* A call begins and ends; answered: a complete answer came. */
extern LaneGateway *payguard_lane_begin(Lane *lane);
extern void payguard_lane_end(Lane *lane, bool answered);
extern void payguard_lane_gateway_release(LaneGateway *gateway);

#endif							/* PAYGUARD_WORKER_LANE_H */
