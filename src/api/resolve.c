/*-------------------------------------------------------------------------
 *
 * resolve.c
 *	  What an operator decides: resolve_order, resolve_refund, resolve_evidence.
 *
 * An operator's word is evidence like any other: it goes through the one door
 * and keeps who said it and why.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "api/argument.h"
#include "core/errcode.h"
#include "ledger/claim.h"
#include "ledger/operator.h"
#include "miscadmin.h"
#include "utils/builtins.h"

#define ID_MAX_LENGTH	255
#define WORD_MAX_LENGTH	64

PG_FUNCTION_INFO_V1(payguard_resolve_order);
PG_FUNCTION_INFO_V1(payguard_resolve_evidence);
PG_FUNCTION_INFO_V1(payguard_resolve_refund);

/*
 * Who says it and why; the reason is mandatory.
 */
static char *
read_reason(FunctionCallInfo fcinfo, int n)
{
	char	   *reason = payguard_argument_prose(fcinfo, n, "reason");

	if (reason == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("\"%s\" must not be null", "reason"),
				 errhint("Say why, for those who look at this order later.")));
	if (strspn(reason, " \t\r\n") == strlen(reason))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("\"%s\" must not be empty", "reason"),
				 errhint("Say why, for those who look at this order later.")));
	return psprintf("%s: %s", GetUserNameFromId(GetSessionUserId(), false), reason);
}

/*
 * The word for what an operator decided about an order.
 */
static OperatorDecision
read_decision(FunctionCallInfo fcinfo)
{
	char	   *word = payguard_argument_text(fcinfo, 1, "result", WORD_MAX_LENGTH);
	static const struct
	{
		const char *word;
		OperatorDecision decision;
	}			words[] = {
		{"paid", OPERATOR_PAID}, {"failed", OPERATOR_FAILED}, {"reversed", OPERATOR_REVERSED},
		{"reviewed", OPERATOR_REVIEWED}, {"kept", OPERATOR_KEPT}
	};

	for (int i = 0; i < (int) lengthof(words); i++)
		if (strcmp(word, words[i].word) == 0)
			return words[i].decision;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("unrecognized result \"%s\"", word),
			 errhint("Use paid, failed, reversed, reviewed or kept.")));
}

/*
 * Verdict, status and evidence id as a row.
 */
static Datum
make_row(FunctionCallInfo fcinfo, const EvidenceOutcome *outcome)
{
	Datum		values[3];
	bool		nulls[3] = {false};

	values[0] = CStringGetTextDatum(payguard_verdict_word(outcome->verdict));
	nulls[1] = outcome->order_id == 0;
	values[1] = nulls[1] ? (Datum) 0 : CStringGetTextDatum(payguard_order_word(outcome->status));
	values[2] = Int64GetDatum(outcome->evidence_id);
	return payguard_result_row(fcinfo, values, nulls);
}

/*
 * resolve_order(reference, result, reason, provider_id, attempt_no)
 *
 * paid needs the gateway's id and stays on the review list; failed, reversed
 * and reviewed take the order off it; kept says that an uncounted payment,
 * named by its id, is kept.  Errors: 22004, 22023 for bad arguments, PG002,
 * PG003 when that cannot be, PG007.  The commit is flushed.
 */
Datum
payguard_resolve_order(PG_FUNCTION_ARGS)
{
	char	   *reference = payguard_argument_text(fcinfo, 0, "reference", REFERENCE_MAX_LENGTH);
	OperatorDecision decision = read_decision(fcinfo);
	char	   *reason = read_reason(fcinfo, 2);
	char	   *provider_id = payguard_argument_optional_text(fcinfo, 3, "provider_id", ID_MAX_LENGTH);
	int32		attempt_no = PG_ARGISNULL(4) ? 0 : PG_GETARG_INT32(4);
	MemoryContext context = CurrentMemoryContext;
	EvidenceOutcome outcome;
	LedgerScope scope;
	OrderView  *view;

	if ((decision == OPERATOR_PAID || decision == OPERATOR_KEPT) && provider_id == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("\"%s\" must not be null", "provider_id"),
				 errhint("Give the gateway's own id of the payment.")));
	payguard_ledger_enter(&scope);
	MemoryContextSwitchTo(context);
	view = payguard_order_view(reference, NULL);
	if (view == NULL)
		payguard_no_such_order(reference);
	payguard_operator_resolve(view, decision, reason, provider_id, attempt_no, &outcome);
	payguard_ledger_leave(&scope);
	ForceSyncCommit();
	return make_row(fcinfo, &outcome);
}

/*
 * resolve_evidence(evidence_id, reference, reason)
 *
 * Says which order a parked fact is about, so that it is judged; reference
 * null dismisses a parked or unreadable one.  Errors: 22004, 22023 for bad
 * arguments, PG002, PG003 for a fact that was judged already, PG007.
 */
Datum
payguard_resolve_evidence(PG_FUNCTION_ARGS)
{
	char	   *reference = payguard_argument_optional_text(fcinfo, 1, "reference", REFERENCE_MAX_LENGTH);
	char	   *reason = read_reason(fcinfo, 2);
	MemoryContext context = CurrentMemoryContext;
	EvidenceOutcome outcome;
	LedgerScope scope;
	OrderView  *view = NULL;

	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("\"%s\" must not be null", "evidence_id")));
	payguard_ledger_enter(&scope);
	MemoryContextSwitchTo(context);
	if (reference != NULL && (view = payguard_order_view(reference, NULL)) == NULL)
		payguard_no_such_order(reference);
	payguard_operator_judge(PG_GETARG_INT64(0), view, reason, &outcome);
	payguard_ledger_leave(&scope);
	ForceSyncCommit();
	return make_row(fcinfo, &outcome);
}

/*
 * resolve_refund(refund_id, result, reason, provider_id)
 *
 * succeeded or failed, as evidence through the one door.  Errors: 22004, 22023
 * for bad arguments, PG007.  The commit is flushed.
 */
Datum
payguard_resolve_refund(PG_FUNCTION_ARGS)
{
	char	   *word = payguard_argument_text(fcinfo, 1, "result", WORD_MAX_LENGTH);
	char	   *reason = read_reason(fcinfo, 2);
	char	   *provider_id = payguard_argument_optional_text(fcinfo, 3, "provider_id", ID_MAX_LENGTH);
	MemoryContext context = CurrentMemoryContext;
	EvidenceResult result;
	EvidenceOutcome outcome;
	LedgerScope scope;
	bool		is_known;

	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("\"%s\" must not be null", "refund_id")));
	if (!payguard_result_read(word, &result) ||
		(result != EVIDENCE_RESULT_SUCCEEDED && result != EVIDENCE_RESULT_FAILED))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("unrecognized result \"%s\"", word),
				 errhint("Use succeeded or failed.")));
	payguard_ledger_enter(&scope);
	MemoryContextSwitchTo(context);
	is_known = payguard_operator_resolve_refund(PG_GETARG_INT64(0), result, reason, provider_id, &outcome);
	payguard_ledger_leave(&scope);
	if (!is_known)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("refund %lld does not exist", (long long) PG_GETARG_INT64(0)),
				 errhint("Look at payguard.refunds.")));
	ForceSyncCommit();
	return make_row(fcinfo, &outcome);
}
