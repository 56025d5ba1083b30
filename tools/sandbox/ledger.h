/*-------------------------------------------------------------------------
 *
 * ledger.h
 *	  The gateway's own books: orders, references, charges and refunds.
 *
 * Everything here is guarded by one lock.  Functions named ledger_* take
 * it themselves; all others want it held.
 *
 *-------------------------------------------------------------------------
 */
#ifndef LEDGER_H
#define LEDGER_H

#include <stdbool.h>
#include <stdint.h>
#include <uthash.h>

#include "answer.h"
#include "faults.h"
#include "random.h"

/* longest reference, with its end */
#define REFERENCE_SIZE 65

typedef enum ChargeStatus
{
	CHARGE_PENDING,
	CHARGE_PAID,
	CHARGE_FAILED,
	CHARGE_CLOSED,
	CHARGE_REVERSED
} ChargeStatus;

typedef enum RefundStatus
{
	REFUND_NONE,				/* asked for, but never made */
	REFUND_PENDING,
	REFUND_SUCCEEDED,
	REFUND_FAILED
} RefundStatus;

struct Charge;

/* A reference without its _r2, _r3, ...: what should be paid once */
typedef struct Order
{
	char	   *name;
	struct Reference *last;		/* its references, newest first */
	int64_t		arrivals;		/* charge requests that arrived */
	int64_t		charges;		/* charges that moved money, ever */
	UT_hash_handle hh;
} Order;

typedef struct Reference
{
	char	   *name;
	Order	   *order;
	struct Reference *older;	/* of the same order */
	struct Charge *last;		/* its charges, newest first; at most one if
								 * references are unique */
	int64_t		arrivals;
	int64_t		queries;
	int64_t		closes;
	UT_hash_handle hh;
} Reference;

typedef struct Charge
{
	Reference  *reference;
	struct Charge *older;		/* of the same reference */
	struct Charge *next;		/* of all, in order of creation */
	struct Refund *refunds;
	char		id[RANDOM_ID];
	char		currency[4];
	ChargeStatus status;
	int64_t		amount;
	int64_t		refunded;		/* succeeded */
	int64_t		reserved;		/* pending */
	const char *code;			/* of a failure, or NULL */
	const char *message;
	const char *event;			/* type of the last callback */
	int64_t		events;
	int64_t		occurred_at;	/* last change */
	int64_t		paid_at;		/* 0: no money ever moved */
	int64_t		reversed_at;	/* 0: never */
	int64_t		visible_at;		/* queries do not see it before (ticks) */
} Charge;

typedef struct Refund
{
	char	   *name;
	Charge	   *charge;
	struct Refund *next;		/* of the same charge */
	char		id[RANDOM_ID];
	RefundStatus status;
	int64_t		amount;
	const char *code;
	const char *message;
	const char *event;
	int64_t		arrivals;
	int64_t		queries;
	int64_t		events;
	int64_t		occurred_at;
	int64_t		visible_at;
	UT_hash_handle hh;
} Refund;

/* Sums of one currency */
typedef struct Total
{
	int64_t		charged;
	int64_t		refunded;
} Total;

/* What the summary counts beside the rows themselves */
typedef struct Tally
{
	int64_t		charge_arrivals;
	int64_t		charges;
	int64_t		declined;
	int64_t		refund_arrivals;
	int64_t		refunds;
	int64_t		replays;
	int64_t		queries;
	int64_t		closes;
} Tally;

/* A charge request, already checked for form */
typedef struct ChargeRequest
{
	const char *key;			/* or NULL */
	const char *reference;
	int64_t		amount;
	const char *currency;
	uint64_t	fingerprint;
	Fault		outcome;		/* FAULT_NONE: paid */
	bool		outcome_given;	/* by the payment object; else the plan decides */
	int64_t		wait;			/* of pending_then_*; -1: the setting */
} ChargeRequest;

/* A refund request, already checked for form */
typedef struct RefundRequest
{
	const char *key;
	const char *reference;
	const char *charge_reference;
	const char *charge_id;		/* or NULL: the reference's newest */
	int64_t		amount;
	const char *currency;
	uint64_t	fingerprint;
} RefundRequest;

/* ledger.c */
extern Order *orders;
extern Reference *references;
extern Refund *refunds;
extern Charge *charges;			/* oldest first */
extern Tally tally;
extern Total totals[26 * 26 * 26];
extern uint64_t generation;

extern void ledger_lock(void);
extern void ledger_unlock(void);
extern void ledger_reset(void);
extern int64_t ledger_arrive(const char *name);
extern Total *total_of(const char *currency);
extern Reference *find_reference(const char *name);
extern Refund *find_refund(const char *name, bool make);
extern Charge *make_charge(const char *name, int64_t amount, const char *currency);

/* charge.c */
extern void move_charge(Charge *charge, ChargeStatus status, const char *event);
extern void announce_charge(Charge *charge, bool plain);
extern void ledger_charge(const ChargeRequest *request, const FaultPlan *plan, Answer *answer);
extern void ledger_query(const char *name, Answer *answer, FaultPlan *plan);
extern void ledger_close(const char *name, Answer *answer, FaultPlan *plan);

/* refund.c */
extern bool make_refund(Refund *refund, Charge *charge, int64_t amount, const FaultPlan *plan);
extern void move_refund(Refund *refund, RefundStatus status);
extern void announce_refund(Refund *refund, bool plain);
extern int64_t ledger_refund_arrive(const char *name);
extern void ledger_refund(const RefundRequest *request, const FaultPlan *plan, Answer *answer);
extern void ledger_refund_query(const char *name, Answer *answer, FaultPlan *plan);

/* render.c */
extern const char *const charge_words[];
extern const char *const refund_words[];
extern char *render_charge(const Charge *charge, Fault spoiled);
extern char *render_refund(const Refund *refund, Fault spoiled);

#endif							/* LEDGER_H */
