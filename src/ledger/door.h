/*-------------------------------------------------------------------------
 *
 * door.h
 *	  What the files behind the one door share; for the ledger only.
 *
 * evidence.c runs the door: facts.c reads what the decision looks at,
 * attempt.c, payment.c, order.c and event.c move rows as it says.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYGUARD_DOOR_H
#define PAYGUARD_DOOR_H

#include "ledger/ledger.h"

/* Why an order is on the operators' list that nobody can be asked about. */
#define REVIEW_WAITS_FOR_ADOPT	"waits for adopt() after a failover"

/* What the ledger holds about the order and attempt that a fact names. */
typedef struct DoorFacts
{
	int64		order_id;
	char	   *reference;
	char	   *order_gateway;	/* NULL: not chosen yet */
	int32		latest_no;		/* orders.attempt_no */
	bool		once;
	char	   *customer;
	char	   *product;
	bool		has_parked;		/* parked facts wait for this order */

	int32		attempt_no;		/* the attempt named; 0 none */
	char	   *attempt_gateway;
	char	   *attempt_reference;
	char	   *attempt_provider_id;
	bool		never_sent_here;	/* if it was sent, then before a failover */

	int64		foreign_order_id;	/* the order that the provider id belongs to */

	OrderFacts	order;
	AttemptFacts attempt;
	PaymentFacts payment;
} DoorFacts;

/* facts.c */
extern bool payguard_find_order(const Evidence *evidence, const GatewayTraits *traits,
								int64 *order_id, int32 *attempt_no);
extern bool payguard_lock_order(int64 order_id);
extern void payguard_read_facts(const Evidence *evidence, const GatewayTraits *traits,
								int64 order_id, int32 attempt_no, DoorFacts *facts);

/* attempt.c */
extern void payguard_attempt_number(DoorFacts *facts);
extern void payguard_attempt_make(const DoorFacts *facts, const Evidence *evidence,
								  AttemptState state, const GatewayTraits *traits,
								  int64 evidence_id);
extern void payguard_attempt_move(const DoorFacts *facts, const Evidence *evidence,
								  const Decision *decision, int64 evidence_id);
extern void payguard_attempts_stop_others(const DoorFacts *facts);

/* payment.c */
extern bool payguard_payment_book(const DoorFacts *facts, const Evidence *evidence,
								  PaymentAction action);
extern void payguard_payment_move(const DoorFacts *facts, const Evidence *evidence,
								  PaymentAction action);
extern void payguard_provider_id_note(const DoorFacts *facts, const Evidence *evidence);

/* order.c */
extern void payguard_order_move(const DoorFacts *facts, const Decision *decision,
								const Evidence *evidence, int64 evidence_id);
extern void payguard_order_keep_wish(const DoorFacts *facts);

/* entitlement.c: `once` orders */
extern void payguard_entitlement_follow(const DoorFacts *facts, const Evidence *evidence,
										OrderStatus status, int64 evidence_id);

/* event.c */
extern void payguard_events_write(const DoorFacts *facts, const Evidence *evidence,
								  OrderStatus status, unsigned events, int64 evidence_id);
extern void payguard_event_write(const DoorFacts *facts, const Evidence *evidence,
								 OrderStatus status, const char *type, int64 evidence_id);
extern void payguard_review_add(const DoorFacts *facts, const Evidence *evidence,
								OrderStatus status, const char *reason, int64 evidence_id);
extern void payguard_review_add_other(int64 order_id, const char *reason);

/* inbox.c: the evidence table */
extern bool payguard_inbox_repeat(const Evidence *evidence, EvidenceOutcome *outcome,
								  bool *is_parked);
extern int64 payguard_evidence_store(const Evidence *evidence, const DoorFacts *facts,
									 Verdict verdict, const char *note);
extern void payguard_evidence_settle(int64 evidence_id, const DoorFacts *facts,
									 Verdict verdict, const char *note);
/* Parked facts of an order, or (0) of none, as List of ParkedFact *. */
typedef struct ParkedFact
{
	int64		id;
	Evidence	evidence;
} ParkedFact;

extern List *payguard_parked_list(int64 order_id, int limit);
/* One fact by id that is parked, or (unless only_parked) unreadable; or NULL. */
extern ParkedFact *payguard_parked_find(int64 evidence_id, bool only_parked);
extern void payguard_evidence_dismiss(int64 evidence_id, const char *note);

/* evidence.c: a fact whose order is not known waits for one. */
extern void payguard_store_unmatched(const Evidence *evidence, EvidenceOutcome *outcome);
/* evidence.c: judge a stored fact about an order whose lock is held. */
extern void payguard_apply_stored(const ParkedFact *fact, int64 order_id, int32 attempt_no,
								  EvidenceOutcome *outcome);

#endif							/* PAYGUARD_DOOR_H */
