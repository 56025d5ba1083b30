/*-------------------------------------------------------------------------
 *
 * operator.h
 *	  What operators decide, done to the ledger.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYGUARD_OPERATOR_H
#define PAYGUARD_OPERATOR_H

#include "ledger/claim.h"

typedef enum OperatorDecision
{
	OPERATOR_PAID,
	OPERATOR_FAILED,
	OPERATOR_REVERSED,
	OPERATOR_REVIEWED,			/* looked at; nothing about money is said */
	OPERATOR_KEPT				/* an uncounted payment is kept */
} OperatorDecision;

extern void payguard_operator_resolve(const OrderView *view, OperatorDecision decision,
									  const char *reason, const char *provider_id,
									  int32 attempt_no, EvidenceOutcome *outcome);
/* False: there is no such refund. */
extern bool payguard_operator_resolve_refund(int64 refund_id, EvidenceResult result,
											 const char *reason, const char *provider_id,
											 EvidenceOutcome *outcome);
/* view NULL: dismiss the fact. */
extern void payguard_operator_judge(int64 evidence_id, const OrderView *view,
									const char *reason, EvidenceOutcome *outcome);

#endif							/* PAYGUARD_OPERATOR_H */
