/*-------------------------------------------------------------------------
 *
 * callback.c
 *	  apply_callback and verify_callback.
 *
 * What is refused or ignored is counted and not stored.  What is signed is
 * stored before it is acknowledged: judging it runs in a subtransaction, and
 * a fact whose judging fails is parked with the SQLSTATE.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "api/argument.h"
#include "core/crashpoint.h"
#include "funcapi.h"
#include "gateway/gateway.h"
#include "ledger/ledger.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"

#define NAME_MAX_LENGTH		200
#define URL_MAX_LENGTH		2000
#define BODY_MAX_SIZE		(1024 * 1024)

PG_FUNCTION_INFO_V1(payguard_apply_callback);
PG_FUNCTION_INFO_V1(payguard_verify_callback);

/* The arguments that both functions share. */
typedef struct CallbackCall
{
	const Gateway *gateway;
	Jsonb	   *headers;
	bytea	   *body;
	char	   *url;
} CallbackCall;

/*
 * Read and check them; USAGE on the gateway is the caller's.
 */
static void
read_arguments(FunctionCallInfo fcinfo, CallbackCall *call)
{
	char	   *name = payguard_argument_text(fcinfo, 0, "gateway", NAME_MAX_LENGTH);

	if (PG_ARGISNULL(1) || PG_ARGISNULL(2))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("\"%s\" must not be null", PG_ARGISNULL(1) ? "headers" : "body")));
	call->headers = PG_GETARG_JSONB_P(1);
	if (!JB_ROOT_IS_OBJECT(call->headers))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("\"headers\" must be a JSON object"),
				 errhint("Pass the request's headers as {\"name\": \"value\", ...}.")));
	call->body = PG_GETARG_BYTEA_PP(2);
	if (VARSIZE_ANY_EXHDR(call->body) > BODY_MAX_SIZE)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("\"body\" is too large"),
				 errdetail("It has %zu bytes; at most %d are allowed.",
						   (size_t) VARSIZE_ANY_EXHDR(call->body), BODY_MAX_SIZE)));
	call->body = PG_GETARG_BYTEA_P(2);
	call->url = PG_ARGISNULL(3) ? NULL :
		payguard_argument_received_text(fcinfo, 3, "url", URL_MAX_LENGTH);
	call->gateway = payguard_gateway_get(name, true, false);
}

/*
 * Store one item; the fact is kept even when its judging fails.
 */
static void
store_item(const Evidence *evidence, EvidenceOutcome *outcome)
{
	LedgerScope scope;
	MemoryContext context = CurrentMemoryContext;

	payguard_ledger_enter(&scope);
	MemoryContextSwitchTo(context);
	if (!payguard_book_fact(evidence, outcome))
		outcome->order_id = 0;	/* its status is not told */
	PAYGUARD_CRASH_POINT(CRASH_CALLBACK_STORED);
	payguard_ledger_leave(&scope);
}

/*
 * One row of the result.
 */
static void
put_row(ReturnSetInfo *rsinfo, const char *verdict, int http_status, const char *response_body,
		const EvidenceOutcome *outcome)
{
	Datum		values[6];
	bool		nulls[6] = {false};

	values[0] = CStringGetTextDatum(verdict);
	values[1] = Int32GetDatum(http_status);
	values[2] = CStringGetTextDatum(response_body != NULL ? response_body : "");
	nulls[3] = outcome == NULL || outcome->reference == NULL;
	values[3] = nulls[3] ? (Datum) 0 : CStringGetTextDatum(outcome->reference);
	nulls[4] = outcome == NULL || outcome->order_id == 0;
	values[4] = nulls[4] ? (Datum) 0 : CStringGetTextDatum(payguard_order_word(outcome->status));
	nulls[5] = outcome == NULL || outcome->evidence_id == 0;
	values[5] = Int64GetDatum(nulls[5] ? 0 : outcome->evidence_id);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/*
 * apply_callback(gateway, headers, body, url)
 *
 * body is the request's raw bytes.  Answer the gateway with http_status and
 * response_body after COMMIT.  Errors: 22004, 22023 for bad arguments, PG004
 * for a gateway that is not configured or has no webhook secret, 42501
 * without USAGE on it.  The commit is flushed when something was stored.
 */
Datum
payguard_apply_callback(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	CallbackCall call;
	WebhookReading *reading;
	ListCell   *lc;

	InitMaterializedSRF(fcinfo, 0);
	read_arguments(fcinfo, &call);
	reading = payguard_webhook_read(call.gateway, call.headers, call.body, call.url,
									GetCurrentTimestamp());
	foreach(lc, reading->items)
	{
		WebhookItem *item = lfirst(lc);
		EvidenceOutcome outcome;

		switch (item->outcome)
		{
			case WEBHOOK_REFUSED:
				payguard_stats_count(call.gateway->name, COUNTER_CALLBACKS_REFUSED);
				put_row(rsinfo, "refused", reading->refuse_status, NULL, NULL);
				break;
			case WEBHOOK_IGNORED:
				payguard_stats_count(call.gateway->name, COUNTER_CALLBACKS_IGNORED);
				put_row(rsinfo, "ignored", reading->ack_status, reading->ack_body, NULL);
				break;
			case WEBHOOK_UNREADABLE:
			case WEBHOOK_EVIDENCE:
				item->evidence->received_at = GetCurrentTimestamp();
				item->evidence->is_unreadable = item->outcome == WEBHOOK_UNREADABLE;
				store_item(item->evidence, &outcome);
				ForceSyncCommit();
				payguard_stats_count(call.gateway->name, COUNTER_CALLBACKS);
				put_row(rsinfo, payguard_verdict_word(outcome.verdict), reading->ack_status,
						reading->ack_body, &outcome);
				break;
		}
	}
	return (Datum) 0;
}

/*
 * verify_callback(gateway, headers, body, url, at)
 *
 * A dry run by the clock `at`: nothing is stored or counted.  Of a batch the
 * first item is told.  Errors as for apply_callback.
 */
Datum
payguard_verify_callback(PG_FUNCTION_ARGS)
{
	CallbackCall call;
	WebhookReading *reading;
	WebhookItem *item;
	const Evidence *evidence;
	Datum		values[6];
	bool		nulls[6] = {false};
	const char *texts[5] = {NULL};

	read_arguments(fcinfo, &call);
	if (PG_ARGISNULL(4))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("\"%s\" must not be null", "at")));
	reading = payguard_webhook_read(call.gateway, call.headers, call.body, call.url,
									PG_GETARG_TIMESTAMPTZ(4));
	item = linitial(reading->items);
	evidence = item->evidence;

	values[0] = BoolGetDatum(item->outcome != WEBHOOK_REFUSED);
	texts[0] = item->reason;
	if (evidence != NULL)
	{
		texts[1] = evidence->event_id;
		texts[2] = evidence->event_type;
		texts[3] = evidence->gateway_reference;
		texts[4] = item->outcome == WEBHOOK_EVIDENCE ? payguard_result_word(evidence->result) : NULL;
	}
	for (int i = 0; i < 5; i++)
	{
		nulls[i + 1] = texts[i] == NULL;
		values[i + 1] = nulls[i + 1] ? (Datum) 0 : CStringGetTextDatum(texts[i]);
	}
	return payguard_result_row(fcinfo, values, nulls);
}
