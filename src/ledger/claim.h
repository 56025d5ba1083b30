/*-------------------------------------------------------------------------
 *
 * claim.h
 *	  Making orders and claiming them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYGUARD_CLAIM_H
#define PAYGUARD_CLAIM_H

#include "ledger/ledger.h"
#include "storage/itemptr.h"

/* An attempt as claims see it. */
typedef struct AttemptView
{
	bool		exists;
	int64		order_id;
	int32		no;
	AttemptState state;
	CallBy		call_by;
	char	   *request_key;
	bytea	   *fingerprint;
	char	   *gateway;
	char	   *gateway_reference;
	char	   *idempotency_key;
	TimestampTz lease_until;
	bool		has_lease;
	Datum		client;			/* jsonb */
	bool		has_client;
} AttemptView;

/* An order as claims see it. */
typedef struct OrderView
{
	ItemPointerData tid;
	int64		id;
	char	   *reference;
	OrderStatus status;
	Money		money;
	char	   *gateway;		/* NULL: not chosen yet */
	int32		attempt_no;
	TimestampTz expires_at;
	bool		has_expiry;
	bool		entitled_elsewhere; /* another order holds what this would give */
	bool		has_parked;
	AttemptView latest;
	AttemptView keyed;			/* the attempt of the request key, any order's */
} OrderView;

/*
 * Read an order by reference with the latest snapshot, without locking.
 * request_key may be NULL.  NULL: there is none.
 */
extern OrderView *payguard_order_view(const char *reference, const char *request_key);

/*
 * May an application's claim be one that a failover lost?  SEND_NOW: no, or the
 * gateway would see one purchase; SEND_ASK_FIRST: the gateway is to be asked;
 * SEND_HOLD: it cannot be asked.
 */
extern SendVerdict payguard_order_may_call(const OrderView *view, const char *gateway);
/* The order waits for adopt(). */
extern void payguard_order_hold(const OrderView *view);

/* Lock the order, waiting for whoever holds it. */
extern bool payguard_order_lock(int64 order_id);

/* What a claim adds. */
typedef struct ClaimInput
{
	CallBy		call_by;
	const char *request_key;
	const unsigned char *fingerprint;	/* SHA256_SIZE */
	const char *gateway;
	GatewayMode mode;
	const char *gateway_reference;
	const char *idempotency_key;
	const char *lease_token;	/* application only; NULL: it must not call */
	TimestampTz lease_until;	/* application only */
	const bytea *request;		/* worker only: the frozen bytes */
} ClaimInput;

typedef enum ClaimOutcome
{
	CLAIM_WON,
	CLAIM_LOST,					/* somebody holds or changed the order */
	CLAIM_KEY_TAKEN				/* the key came to be used for something else */
} ClaimOutcome;

/*
 * Take the order as it was viewed: it must still be that row version and not
 * be locked by anybody.  Never waits, never raises 40001 for a loser.
 */
extern ClaimOutcome payguard_order_claim(const OrderView *view, const ClaimInput *input);

/* Prolong a live lease; false when it has lapsed. */
extern bool payguard_lease_renew(int64 order_id, int32 attempt_no, const char *lease_token,
								 TimestampTz lease_until);
/* Is this the token of that attempt? */
extern bool payguard_lease_known(int64 order_id, int32 attempt_no, const char *lease_token,
								 char **gateway, char **gateway_reference);

/* --- create.c -------------------------------------------------------------- */

typedef struct CreateInput
{
	const char *reference;
	Money		money;
	const char *gateway;
	const char *customer;
	const char *product;
	bool		once;
	TimestampTz expires_at;
	bool		has_expiry;
	Datum		metadata;		/* jsonb */
	const char *retry_suffix;
} CreateInput;

typedef struct OrderRow
{
	int64		id;
	char	   *reference;
	OrderStatus status;
	Money		money;
	char	   *gateway;
	TimestampTz expires_at;
	bool		has_expiry;
} OrderRow;

/* The order of that reference, NULL if there is none (latest snapshot). */
extern OrderRow *payguard_order_find(const char *reference);
/* The order that holds slot or entitlement of a `once` purchase, or NULL. */
extern OrderRow *payguard_order_find_once(const char *customer, const char *product);
/* Make it; NULL when reference or slot came to be taken meanwhile. */
extern OrderRow *payguard_order_create(const CreateInput *input);

#endif							/* PAYGUARD_CLAIM_H */
