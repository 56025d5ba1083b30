/*-------------------------------------------------------------------------
 *
 * refund.h
 *	  Refunds: asking for one, sending it, and what facts do to it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYGUARD_REFUND_H
#define PAYGUARD_REFUND_H

#include "ledger/door.h"

/* A refund as requests see it. */
typedef struct RefundView
{
	int64		id;				/* 0: none */
	RefundState state;
	Money		money;
	bytea	   *fingerprint;
	char	   *gateway;
	char	   *gateway_reference;
	char	   *idempotency_key;
	char	   *charge_id;
} RefundView;

/* An order, one of its payments, and its refunds. */
typedef struct RefundScope
{
	int64		order_id;
	char	   *order_reference;
	OrderStatus status;

	bool		has_payment;	/* the one named, or the counted one */
	bool		is_counted;
	PaymentState payment_state;
	char	   *gateway;
	char	   *charge_id;
	char	   *charge_reference;	/* gateway reference of its attempt, or NULL */
	Money		paid;
	int64		left;			/* minor units that can still be given back */

	RefundView	keyed;			/* of this request key */
	RefundView	in_flight;		/* of this payment: pending, submitted, unknown or processing */
} RefundScope;

/* Lock the order and read; false: there is no such order. */
extern bool payguard_refund_scope(const char *reference, const char *request_key,
								  const char *provider_id, bool lock, RefundScope *scope);

typedef struct RefundInput
{
	const char *request_key;
	const unsigned char *fingerprint;
	const char *gateway_reference;
	const char *idempotency_key;
	const char *reason;
	Money		money;
	bool		by_application;
	const unsigned char *random8;	/* for the lease token */
	TimestampTz lease_until;
	const bytea *request;		/* worker: the frozen bytes */
	bool		waits_for_proof;	/* no call yet: the gateway is asked first */
} RefundInput;

/* Reserve the money, store the refund, plan its call.  Returns its id; sets
 * the lease token of an application's. */
extern int64 payguard_refund_create(const RefundScope *scope, const RefundInput *input,
									char *lease_token);

/* Facts about refunds; called by the one door. */
extern void payguard_apply_refund_evidence(const Evidence *evidence, EvidenceOutcome *outcome);
/* A stored one, about an order whose lock is held. */
extern void payguard_apply_stored_refund(const ParkedFact *fact, EvidenceOutcome *outcome);

/* Is this the token of that refund?  Then whose it is. */
extern bool payguard_refund_lease_known(int64 order_id, int64 refund_id, const char *lease_token,
										char **gateway, char **gateway_reference,
										char **charge_id);

/*
 * refund_auto.c: give a payment back by itself, after the gateway has been
 * asked; and send those whose proof has come.
 */
extern void payguard_refund_want(const DoorFacts *facts, const Evidence *evidence, bool is_surplus);
extern void payguard_refund_release(const DoorFacts *facts, const Evidence *evidence,
									OrderStatus status, int64 evidence_id);
extern void payguard_refund_unconfirmed(const DoorFacts *facts, const Evidence *evidence,
										OrderStatus status, int64 evidence_id);

/* refund_lease.c */
extern bool payguard_refund_may_call(OutboxItem *item, bool lapsed);
extern bool payguard_refund_by_application(int64 refund_id);

#endif							/* PAYGUARD_REFUND_H */
