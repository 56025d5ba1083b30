/*-------------------------------------------------------------------------
 *
 * crashpoint.h
 *	  Places where a test may have the process or the server die.
 *
 * payguard promises that it may die between any two steps.  Killing it at
 * arbitrary moments finds most of what is wrong with that, but neither all of
 * it nor the same thing twice; so the steps that matter have names, and the
 * setting payguard.crash_at (for tests only, superuser only) chooses one.
 *
 * Without the setting a point costs one comparison that is always false, and
 * nothing else is done there.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYGUARD_CRASHPOINT_H
#define PAYGUARD_CRASHPOINT_H

#include <stdbool.h>

/* The points, in the order in which a payment passes them. */
typedef enum CrashPoint
{
	CRASH_NOWHERE,
	CRASH_ORDER_CREATED,		/* create_order: the row is inserted */
	CRASH_CLAIM_BEGUN,			/* claim_order: before the order is moved */
	CRASH_CLAIM_MOVED,			/* claim_order: after it, without its attempt */
	CRASH_SEND_COMMITTED,		/* worker: T1 is durable, nothing has left */
	CRASH_SEND_HANDED_OVER,		/* worker: the request is curl's */
	CRASH_ANSWER_BEGUN,			/* worker: the first bytes of the answer */
	CRASH_ANSWER_READ,			/* worker: the answer is whole, T2 has not begun */
	CRASH_DOOR_PAYMENT_BOOKED,	/* the door: payment, and nothing else yet */
	CRASH_DOOR_EVIDENCE_STORED, /* the door: evidence, and no row moved yet */
	CRASH_DOOR_EVENTS_NEXT,		/* the door: all moved, no event yet */
	CRASH_BOOKED_NOT_COMMITTED, /* worker: the end of T2 */
	CRASH_BOOKED_COMMITTED,		/* worker: T2 is durable */
	CRASH_CALLBACK_STORED,		/* apply_callback: stored, not returned yet */
	CRASH_PARKED_RETRIED		/* a parked fact was judged again */
} CrashPoint;

/* The point that is armed; for the macro below only. */
extern CrashPoint payguard_crash_armed;

#define PAYGUARD_CRASH_POINT(point) \
	do { \
		if (payguard_crash_armed == (point)) \
			payguard_crash_reached(); \
	} while (0)

extern void payguard_crash_reached(void);

/*
 * The setting: "point[:nth[:who]]".  The nth time (1) that a process comes to
 * that point, who dies by SIGKILL: process (itself; the default), postmaster
 * (this process goes on until it notices) or server (both).  It happens once:
 * the file payguard_crashed.POINT in the data directory says that it has, and
 * while it is there nothing dies at that point.  An empty text arms nothing.
 */
extern bool payguard_crash_is_valid(const char *setting);
extern void payguard_crash_arm(const char *setting);

#endif							/* PAYGUARD_CRASHPOINT_H */
