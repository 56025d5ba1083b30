/*-------------------------------------------------------------------------
 *
 * record.c
 *	  record_attempt: what a gateway answered to the application itself.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "api/argument.h"
#include "core/errcode.h"
#include "core/redact.h"
#include "ledger/claim.h"
#include "ledger/refund.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"

#define ID_MAX_LENGTH	255

PG_FUNCTION_INFO_V1(payguard_record_attempt);

/*
 * The result's word; only what an application can know.  A refund succeeds
 * where a charge is paid.
 */
static EvidenceResult
read_result(FunctionCallInfo fcinfo, bool is_refund)
{
	char	   *word = payguard_argument_text(fcinfo, 1, "result", ID_MAX_LENGTH);
	EvidenceResult result;

	if (payguard_result_read(word, &result))
		switch (result)
		{
			case EVIDENCE_RESULT_PAID:
			case EVIDENCE_RESULT_SUCCEEDED:
				if (is_refund == (result == EVIDENCE_RESULT_SUCCEEDED))
					return result;
				break;
			case EVIDENCE_RESULT_FAILED:
			case EVIDENCE_RESULT_PENDING:
			case EVIDENCE_RESULT_UNKNOWN:
			case EVIDENCE_RESULT_NOT_SENT:
			case EVIDENCE_RESULT_CLOSED:
				return result;
			default:
				break;
		}
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("unrecognized result \"%s\"", word),
			 errhint("Use %s, failed, closed, pending, unknown or not_sent.  When in doubt use unknown.",
					 is_refund ? "succeeded" : "paid")));
}

/*
 * A JSON object argument as text, NULL for null.
 */
static char *
read_object(FunctionCallInfo fcinfo, int n, const char *name)
{
	bool		isnull;
	Datum		object = payguard_argument_object(fcinfo, n, name, false, &isnull);
	Jsonb	   *jsonb;

	if (isnull)
		return NULL;
	jsonb = DatumGetJsonbP(object);
	return JsonbToCString(NULL, &jsonb->root, VARSIZE(jsonb));
}

/*
 * Whose report this is.  A token that no attempt has is PG005; a lapsed one
 * is judged all the same.
 */
static void
find_attempt(const char *token, Evidence *evidence)
{
	int64		order_id;
	int64		refund_id;
	int			attempt_no;
	char	   *gateway;
	char	   *reference;
	char	   *charge_id = NULL;
	bool		is_known = payguard_lease_token_read(token, &order_id, &attempt_no, &refund_id);

	if (is_known)
		is_known = refund_id != 0 ?
			payguard_refund_lease_known(order_id, refund_id, token, &gateway, &reference, &charge_id) :
			payguard_lease_known(order_id, attempt_no, token, &gateway, &reference);
	if (!is_known)
		ereport(ERROR,
				(errcode(ERRCODE_PAYGUARD_LEASE),
				 errmsg("lease token is not recognized"),
				 errhint("Use the lease_token that claim_order() or request_refund() returned.")));
	evidence->order_id = order_id;
	evidence->attempt_no = attempt_no;
	evidence->refund_id = refund_id;
	evidence->is_refund = refund_id != 0;
	evidence->charge_id = charge_id;
	evidence->gateway = gateway;
	evidence->gateway_reference = reference;
	evidence->lease_token = token;
}

/*
 * record_attempt(lease_token, result, provider_id, amount, currency, code,
 *				  message, client, details, occurred_at)
 *
 * Amount in major units; amount and currency go together.  Errors: 22004,
 * 22023 for bad arguments, PG005 for a token that is not recognized, PG007
 * for card data.  The commit is flushed.
 */
Datum
payguard_record_attempt(PG_FUNCTION_ARGS)
{
	char	   *token = payguard_argument_text(fcinfo, 0, "lease_token", LEASE_TOKEN_SIZE);
	Evidence	evidence = {0};
	EvidenceOutcome outcome;
	LedgerScope scope;
	Datum		values[5];
	bool		nulls[5] = {false};
	MemoryContext context = CurrentMemoryContext;
	MemoryContext spi_context;

	evidence.source = EVIDENCE_SOURCE_APPLICATION;
	evidence.provider_id = payguard_argument_optional_text(fcinfo, 2, "provider_id", ID_MAX_LENGTH);
	evidence.has_money = payguard_argument_money(fcinfo, 3, 4, false, &evidence.money);
	evidence.code = payguard_argument_optional_text(fcinfo, 5, "code", ID_MAX_LENGTH);
	evidence.message = payguard_argument_prose(fcinfo, 6, "message");
	evidence.client_json = read_object(fcinfo, 7, "client");
	evidence.payload_json = read_object(fcinfo, 8, "details");
	evidence.has_occurred_at = !PG_ARGISNULL(9);
	evidence.occurred_at = evidence.has_occurred_at ? PG_GETARG_TIMESTAMPTZ(9) : 0;
	evidence.mode = MODE_NOT_TOLD;
	evidence.received_at = GetCurrentTimestamp();

	payguard_ledger_enter(&scope);
	find_attempt(token, &evidence);
	evidence.result = read_result(fcinfo, evidence.is_refund);
	payguard_apply_evidence(&evidence, &outcome);
	spi_context = MemoryContextSwitchTo(context);
	values[0] = CStringGetTextDatum(payguard_verdict_word(outcome.verdict));
	values[1] = CStringGetTextDatum(payguard_order_word(outcome.status));
	values[2] = CStringGetTextDatum(outcome.reference);
	nulls[3] = evidence.is_refund;
	values[3] = Int32GetDatum(outcome.attempt_no);
	values[4] = Int64GetDatum(outcome.evidence_id);
	MemoryContextSwitchTo(spi_context);
	payguard_ledger_leave(&scope);
	ForceSyncCommit();
	return payguard_result_row(fcinfo, values, nulls);
}
