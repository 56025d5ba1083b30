/*-------------------------------------------------------------------------
 *
 * faults.h
 *	  Which fault meets which request.
 *
 *-------------------------------------------------------------------------
 */
#ifndef FAULTS_H
#define FAULTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* What a request asks for.  Faults are kept for each. */
typedef enum Op
{
	OP_CHARGE,
	OP_REFUND,
	OP_QUERY,					/* of a charge or a refund */
	OP_CLOSE,
	OP_CONNECTION,				/* a connection, before anything was read */
	OP_COUNT
} Op;

typedef enum Fault
{
	FAULT_NONE,

	/* the request is not carried out */
	FAULT_REFUSE,
	FAULT_ERROR_500,
	FAULT_ERROR_503,
	FAULT_RATE_LIMITED,

	/* it is carried out, and then the answer goes wrong */
	FAULT_THEN_FIN,
	FAULT_THEN_RST,
	FAULT_THEN_SILENCE,
	FAULT_THEN_500,
	FAULT_THEN_500_KEPT,
	FAULT_THEN_HTML,
	FAULT_THEN_TRUNCATED,
	FAULT_THEN_UNFRAMED,
	FAULT_THEN_CUT_HEADER,
	FAULT_THEN_GARBAGE,
	FAULT_THEN_WRONG_AMOUNT,
	FAULT_THEN_OTHER_REFERENCE,
	FAULT_SLOW,

	/* how a charge or refund comes out */
	FAULT_DECLINED,
	FAULT_PENDING,
	FAULT_PENDING_THEN_PAID,
	FAULT_PENDING_THEN_FAILED,

	/* eventual consistency; a close that finds the charge paid */
	FAULT_QUERY_LAG,
	FAULT_CLOSE_TOO_LATE,
	FAULT_COUNT
} Fault;

/* What was drawn for one request */
typedef struct FaultPlan
{
	Fault		answer;
	Fault		outcome;
	bool		query_lag;
	bool		close_too_late;
	int64_t		wait;			/* of slow, pending_then_* or query_lag; -1: the setting */
} FaultPlan;

extern const char *faults_set_rate(const char *name, double rate);
extern const char *faults_set_rates(json_t *rates);
extern json_t *faults_rates(void);
extern const char *faults_plan_reference(const char *reference, const char *name,
										 int64_t times, int64_t wait);
extern void faults_forget_references(void);
extern void faults_draw(Op op, const char *reference, uint64_t arrival, FaultPlan *plan);
extern bool faults_refuse_connection(uint64_t number);
extern json_t *faults_counts(bool reset);
extern const char *fault_name(int fault);

#endif							/* FAULTS_H */
