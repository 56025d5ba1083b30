/*-------------------------------------------------------------------------
 *
 * state.h
 *	  The state machines and the decision table.
 *
 * core/state.c is the only place that lists which states follow which, and
 * core/decide.c the only place that says what a fact leads to.  Both are pure:
 * no memory, no clock, no database.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYGUARD_STATE_H
#define PAYGUARD_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/evidence.h"

typedef enum OrderStatus
{
	ORDER_CREATED,
	ORDER_PROCESSING,			/* claimed: a call may be on its way */
	ORDER_UNKNOWN,				/* money may have moved; the gateway is being asked */
	ORDER_PAID,
	ORDER_FAILED,				/* proof that no money moved; may be claimed again */
	ORDER_CLOSED,
	ORDER_REFUNDED,
	ORDER_REVERSED
} OrderStatus;

typedef enum AttemptState
{
	ATTEMPT_CLAIMED,
	ATTEMPT_SENDING,
	ATTEMPT_PENDING,
	ATTEMPT_SUCCEEDED,
	ATTEMPT_FAILED,
	ATTEMPT_UNKNOWN,
	ATTEMPT_SURPLUS
} AttemptState;

typedef enum PaymentState
{
	PAYMENT_PAID,
	PAYMENT_REFUNDING,
	PAYMENT_REFUNDED,
	PAYMENT_REVERSED,
	PAYMENT_KEPT
} PaymentState;

typedef enum RefundState
{
	REFUND_PENDING,
	REFUND_SUBMITTED,
	REFUND_PROCESSING,
	REFUND_SUCCEEDED,
	REFUND_FAILED,
	REFUND_UNKNOWN
} RefundState;

typedef enum CallBy
{
	CALL_BY_WORKER,
	CALL_BY_APPLICATION,
	CALL_BY_GATEWAY				/* the attempt was made by a fact */
} CallBy;

extern const char *payguard_order_word(OrderStatus status);
extern const char *payguard_attempt_word(AttemptState state);
extern const char *payguard_payment_word(PaymentState state);
extern const char *payguard_refund_word(RefundState state);
extern const char *payguard_call_by_word(CallBy call_by);
extern bool payguard_order_read(const char *word, OrderStatus *status);
extern bool payguard_attempt_read(const char *word, AttemptState *state);
extern bool payguard_payment_read(const char *word, PaymentState *state);
extern bool payguard_refund_read(const char *word, RefundState *state);
extern bool payguard_call_by_read(const char *word, CallBy *call_by);

/* Is this move listed?  Staying in a state is always allowed. */
extern bool payguard_order_may_become(OrderStatus from, OrderStatus to);
extern bool payguard_attempt_may_become(AttemptState from, AttemptState to);
extern bool payguard_payment_may_become(PaymentState from, PaymentState to);
extern bool payguard_refund_may_become(RefundState from, RefundState to);

/* Can a claim take an order in this status? */
extern bool payguard_order_claimable(OrderStatus status);
/* paid, refunded or reversed: money was counted for it */
extern bool payguard_order_has_money(OrderStatus status);
/* Does this result justify that end state (the guard asks)? */
extern bool payguard_result_proves_order(EvidenceResult result, OrderStatus status);
extern bool payguard_result_proves_attempt(EvidenceResult result, AttemptState state);

/*
 * What a gateway can do and how long things take, as far as decisions need it.
 * gateway/ fills it from the adapter and the server's options; times are
 * microseconds.
 */
#define QUERY_SCHEDULE_MAX	16

typedef struct GatewayTraits
{
	bool		has_key;		/* an idempotency key is honoured */
	int64_t		key_live;		/* for how long, less the margin */
	bool		reference_unique;	/* a reference is unique for ever */
	bool		can_query;		/* by reference, or by id once it is known */
	bool		can_query_by_reference;
	bool		can_close;
	bool		can_query_refund;	/* by reference, or by id once it is known */
	bool		can_query_refund_by_reference;
	bool		can_replay;		/* the adapter lists `replay` for unknown */
	bool		not_found_is_proof;
	int64_t		not_found_settles;
	int64_t		send_window;	/* how long what was not sent is sent again */
	int64_t		pending_lifetime;
	bool		refund_surplus; /* option surplus 'refund' */
	GatewayMode mode;			/* of the gateway; MODE_NOT_TOLD when it is gone */
	char		retry_suffix[RETRY_SUFFIX_SIZE];	/* of references of later attempts ("_r") */
	int			query_steps;
	int64_t		query_schedule[QUERY_SCHEDULE_MAX];
} GatewayTraits;

/* What the ledger holds, as far as the table asks for it. */
typedef struct OrderFacts
{
	OrderStatus status;
	Money		money;
	bool		close_requested;
	bool		is_refunded;	/* nothing of the counted payment is left */
	bool		entitled_elsewhere; /* another order holds what this would give */
} OrderFacts;

typedef struct AttemptFacts
{
	bool		exists;			/* the fact names an attempt that is here */
	bool		is_current;		/* it is the order's latest */
	bool		gateway_matches;	/* same gateway and mode as the fact's */
	AttemptState state;
	CallBy		call_by;
	bool		lease_live;		/* an application's lease has not lapsed */
	bool		token_matches;	/* the fact came with this attempt's token */
	bool		may_have_left;	/* a send had, or may have had, a prereq count > 0 */
	bool		reported;		/* the application reported something already */
	bool		ask_first;		/* a send may have been lost in a failover */
	bool		positive_known; /* pending or a provider id was ever told */
	bool		id_known;		/* the gateway's id of the charge is known */
	bool		failure_inferred;	/* failed without the gateway saying so */
	int64_t		created_at;		/* bounds the first send from below */
	int64_t		key_from;		/* ... a send that a failover lost included */
	int64_t		settles_from;	/* not_found counts from here */
	int			settled_not_found;	/* earlier not_found facts after settling */
	int			query_tries;	/* steps of the schedule already used */
} AttemptFacts;

typedef struct PaymentFacts
{
	bool		counted_exists; /* the order has a counted payment */
	bool		is_counted;		/* ... and its id is the fact's */
	bool		is_known;		/* a payment of that id is here, for this order */
	bool		is_mismatch;	/* ... uncounted, for its amount */
	bool		is_foreign;		/* that id belongs to another order */
	PaymentState state;			/* of the payment of that id */
	bool		has_reversal;	/* reversed or reinstated was told before */
	int64_t		reversal_at;
	EvidenceResult reversal_result;
} PaymentFacts;

typedef enum PaymentAction
{
	PAYMENT_LEAVE,
	PAYMENT_COUNT,				/* book it as the payment that counts */
	PAYMENT_BOOK_SURPLUS,		/* book it, uncounted, reason surplus */
	PAYMENT_BOOK_MISMATCH,		/* book it, uncounted, reason mismatch */
	PAYMENT_PROMOTE,			/* the mismatch row becomes the counted one */
	PAYMENT_REVERSE,
	PAYMENT_REINSTATE,
	PAYMENT_COUNT_AND_REVERSE
} PaymentAction;

typedef enum NextCall
{
	NEXT_CALL_LEAVE,			/* what is planned stays planned */
	NEXT_CALL_NONE,				/* the attempt is decided: drop what is planned */
	NEXT_CALL_QUERY,			/* ask at the schedule's next step */
	NEXT_CALL_QUERY_NOW,		/* ask at once */
	NEXT_CALL_RESEND,			/* the same bytes again */
	NEXT_CALL_CLOSE				/* ask the gateway to close */
} NextCall;

/* Events, as bits */
#define EVENT_ORDER_PAID			0x0001
#define EVENT_ORDER_PAID_LATE		0x0002
#define EVENT_ORDER_FAILED			0x0004
#define EVENT_ORDER_CLOSED			0x0008
#define EVENT_ORDER_REFUNDED		0x0010
#define EVENT_ORDER_REVERSED		0x0020
#define EVENT_ORDER_REINSTATED		0x0040
#define EVENT_ORDER_SURPLUS			0x0080
#define EVENT_ORDER_MISMATCH		0x0100

typedef struct Decision
{
	Verdict		verdict;
	bool		make_attempt;	/* the fact made an attempt (call_by gateway) */
	bool		move_attempt;
	AttemptState attempt_to;
	bool		move_order;
	OrderStatus order_to;
	PaymentAction payment;
	bool		close_after;	/* a wished close is done: failed, then closed */
	bool		keep_wish;		/* close_order: remember that it was asked */
	bool		give_back;		/* the payment is to be refunded by itself */
	NextCall	next;
	int64_t		next_in;		/* microseconds from now, for the next call */
	unsigned	events;
	const char *review;			/* reason for the operators' list, or NULL */
	const char *note;			/* one sentence for evidence.note, or NULL */
	const char *code;			/* our own code for the attempt, or NULL */
} Decision;

/*
 * What does this fact lead to?  `now` is the time of the judgement.  The
 * verdicts are those of the table in the design; the caller moves rows.
 */
extern Decision payguard_decide(const OrderFacts *order, const AttemptFacts *attempt,
								const PaymentFacts *payment, const GatewayTraits *traits,
								const Evidence *evidence, int64_t now);

/* What the ledger holds of the refund that a fact names. */
typedef struct RefundFacts
{
	bool		exists;			/* one of ours, or an external row */
	RefundState state;
	bool		by_application; /* the application calls the gateway */
	bool		lease_live;
	bool		token_matches;
	bool		reported;
	bool		may_have_left;	/* a send may have had a prereq count > 0 */
	bool		positive_known; /* processing or the gateway's id was ever told */
	bool		id_known;
	bool		id_differs;		/* the fact names another id than the known one */
	bool		gateway_matches;
	bool		payment_known;	/* the payment that it gives back is here */
	bool		order_has_money;
	Money		money;			/* the refund's; the payment's where there is none */
	int64_t		created_at;
	int64_t		settles_from;
	int			settled_not_found;
	int			query_tries;
	bool		has_definite;	/* the gateway told succeeded or failed before */
	int64_t		definite_at;
} RefundFacts;

typedef struct RefundDecision
{
	Verdict		verdict;
	bool		make_external;	/* a refund made at the gateway by hand */
	bool		move;
	RefundState to;
	NextCall	next;
	int64_t		next_in;
	const char *event;			/* refund.succeeded, refund.failed, or NULL */
	const char *review;
	const char *note;
	const char *code;
} RefundDecision;

/* What does this fact about a refund lead to? */
extern RefundDecision payguard_decide_refund(const RefundFacts *refund, const GatewayTraits *traits,
											 const Evidence *evidence, int64_t now);

/* Delay until the next query after `tries` ones; exhausted = daily and review. */
extern int64_t payguard_query_delay(const GatewayTraits *traits, int tries, bool *exhausted);

/* May a charge go out now (the worker's under the order's lock, in T1)? */
typedef enum SendVerdict
{
	SEND_NOW,
	SEND_ASK_FIRST,				/* query before it is charged */
	SEND_HOLD,					/* cannot be asked about: waits for adopt() */
	SEND_DROP					/* the attempt is over, or may not go out any more */
} SendVerdict;

extern SendVerdict payguard_may_send(const OrderFacts *order, const AttemptFacts *attempt,
									 const GatewayTraits *traits, int64_t now);
/* The same for a charge that a failover may have lost; key_from as above. */
extern SendVerdict payguard_may_send_again(const GatewayTraits *traits, int64_t key_from,
										   int64_t now);

#endif							/* PAYGUARD_STATE_H */
