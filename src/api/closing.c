/*-------------------------------------------------------------------------
 *
 * closing.c
 *	  close_order and close_attempt: giving up what has not been paid.
 *
 * What never left is ended here and now.  What may have left is the gateway's
 * to end: it is asked to close, and only its proof closes anything; "too late,
 * it is paid" books the payment.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "api/argument.h"
#include "ledger/claim.h"
#include "utils/builtins.h"

PG_FUNCTION_INFO_V1(payguard_close_order);
PG_FUNCTION_INFO_V1(payguard_close_attempt);

/*
 * The order as it is, locked.  PG002 when there is none, PG009 in a copy that
 * was not adopted.
 */
static OrderView *
lock_order(const char *reference)
{
	OrderView  *view;

	payguard_instance_require();
	view = payguard_order_view(reference, NULL);
	if (view == NULL)
		payguard_no_such_order(reference);
	(void) payguard_order_lock(view->id);
	return payguard_order_view(reference, NULL);
}

/*
 * A fact of the application's own about the order.
 */
static void
tell(const OrderView *view, Evidence *evidence, const char *code, const char *reason)
{
	EvidenceOutcome outcome;

	evidence->gateway = view->latest.exists ? view->latest.gateway :
		view->gateway != NULL ? view->gateway : "";
	evidence->order_id = view->id;
	evidence->mode = MODE_NOT_TOLD;
	evidence->code = code;
	evidence->message = reason;
	evidence->received_at = GetCurrentTimestamp();
	payguard_apply_evidence(evidence, &outcome);
}

/*
 * End an attempt of the worker that has not been sent.
 */
static void
stop_unsent(const OrderView *view, const char *code, const char *reason)
{
	Evidence	evidence = {0};

	if (!view->latest.exists || view->latest.state != ATTEMPT_CLAIMED ||
		view->latest.call_by != CALL_BY_WORKER)
		return;
	evidence.source = EVIDENCE_SOURCE_ANSWER;
	evidence.result = EVIDENCE_RESULT_NOT_SENT;
	evidence.is_stop = true;
	evidence.attempt_no = view->latest.no;
	evidence.gateway_reference = view->latest.gateway_reference;
	tell(view, &evidence, code, reason);
}

/*
 * Can the gateway of the latest attempt be asked to close it?
 */
static bool
can_close(const OrderView *view)
{
	GatewayTraits traits;

	if (!view->latest.exists)
		return false;
	payguard_traits_hook(view->latest.gateway, &traits);
	return traits.can_close;
}

/*
 * The two or three columns of either result.
 */
static Datum
make_row(FunctionCallInfo fcinfo, const char *verdict, const OrderView *view, bool with_attempt)
{
	Datum		values[3];
	bool		nulls[3] = {false};

	values[0] = CStringGetTextDatum(verdict);
	values[1] = CStringGetTextDatum(payguard_order_word(view->status));
	nulls[2] = !with_attempt || !view->latest.exists;
	values[2] = Int32GetDatum(nulls[2] ? 0 : view->latest.no);
	return payguard_result_row(fcinfo, values, nulls);
}

/*
 * close_order(reference, reason)
 *
 * verdict closed | closing (the gateway was asked) | unsupported (it cannot be
 * asked; the wish is kept until proof comes) | already_paid.  Errors: 22004,
 * 22023 for bad arguments, PG002, PG007, PG009.  The commit is flushed.
 */
Datum
payguard_close_order(PG_FUNCTION_ARGS)
{
	char	   *reference = payguard_argument_text(fcinfo, 0, "reference", REFERENCE_MAX_LENGTH);
	char	   *reason = payguard_argument_prose(fcinfo, 1, "reason");
	MemoryContext context = CurrentMemoryContext;
	Evidence	evidence = {0};
	LedgerScope scope;
	OrderView  *view;
	const char *verdict;

	payguard_ledger_enter(&scope);
	MemoryContextSwitchTo(context);
	view = lock_order(reference);
	evidence.source = EVIDENCE_SOURCE_APPLICATION;
	evidence.result = EVIDENCE_RESULT_CLOSED;
	evidence.is_order_wish = true;
	tell(view, &evidence, "close_order", reason);
	stop_unsent(view, "close_requested", reason);
	view = payguard_order_view(reference, NULL);
	payguard_ledger_leave(&scope);
	ForceSyncCommit();

	if (view->status == ORDER_CLOSED)
		verdict = "closed";
	else if (payguard_order_has_money(view->status))
		verdict = "already_paid";
	else
		verdict = can_close(view) ? "closing" : "unsupported";
	return make_row(fcinfo, verdict, view, false);
}

/*
 * close_attempt(reference, reason)
 *
 * Gives up the latest attempt, so that another channel can be tried.  verdict
 * closed (it is over) | closing (the gateway was asked) | too_late (paid) |
 * unsupported.  Errors as for close_order.
 */
Datum
payguard_close_attempt(PG_FUNCTION_ARGS)
{
	char	   *reference = payguard_argument_text(fcinfo, 0, "reference", REFERENCE_MAX_LENGTH);
	char	   *reason = payguard_argument_prose(fcinfo, 1, "reason");
	MemoryContext context = CurrentMemoryContext;
	LedgerScope scope;
	OrderView  *view;
	const char *verdict;

	payguard_ledger_enter(&scope);
	MemoryContextSwitchTo(context);
	stop_unsent(lock_order(reference), "close_attempt", reason);
	view = payguard_order_view(reference, NULL);
	if (payguard_order_has_money(view->status))
		verdict = "too_late";
	else if (view->status != ORDER_PROCESSING && view->status != ORDER_UNKNOWN)
		verdict = "closed";
	else if (can_close(view))
	{
		OutboxPlan	plan = {0};

		plan.op = OUTBOX_CLOSE;
		plan.gateway = view->latest.gateway;
		plan.order_id = view->id;
		plan.attempt_no = view->latest.no;
		plan.next_run_at = GetCurrentTimestamp();
		payguard_outbox_plan(&plan);
		verdict = "closing";
	}
	else
		verdict = "unsupported";
	payguard_ledger_leave(&scope);
	ForceSyncCommit();
	return make_row(fcinfo, verdict, view, true);
}
