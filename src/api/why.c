/*-------------------------------------------------------------------------
 *
 * why.c
 *	  why(): the whole story of an order, and what happens next.
 *
 * It is read by somebody who was woken up by it: each row is a sentence, in
 * the order in which things happened, and the last rows say what payguard
 * will do by itself, what it waits for, and what a person must decide.
 * Nothing secret is in it: no lease token, no client data, no payload.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "api/argument.h"
#include "catalog/pg_type.h"
#include "core/key.h"
#include "core/settings.h"
#include "core/state.h"
#include "funcapi.h"
#include "ledger/ledger.h"
#include "lib/stringinfo.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(payguard_why);

#define TIME_FORMAT		"'YYYY-MM-DD HH24:MI:SSOF'"

/*
 * Each part of the story selects: at, rank (among what happened at once), id,
 * what, detail.
 */
#define STORY_OF_ORDER \
	"SELECT o.created_at AS at, 1 AS rank, o.id AS id, 'order' AS what," \
	" format('made: %s %s', o.amount, o.currency)" \
	" || coalesce(', customer \"' || o.customer || '\"', '')" \
	" || coalesce(', product \"' || o.product || '\"', '')" \
	" || CASE WHEN o.once THEN ', to be bought once' ELSE '' END" \
	" || coalesce(', to be paid until ' || to_char(o.expires_at, " TIME_FORMAT "), '') AS detail" \
	" FROM payguard.orders o WHERE o.id = $1" \
	" UNION ALL SELECT o.close_requested_at, 1, o.id, 'order'," \
	" 'the application asked to close it'" \
	" FROM payguard.orders o WHERE o.id = $1 AND o.close_requested_at IS NOT NULL"

#define STORY_OF_ATTEMPTS \
	"SELECT a.created_at, 2, a.no, 'attempt'," \
	" format(CASE a.call_by" \
	"   WHEN 'worker' THEN 'attempt %s claimed: the worker charges it at gateway \"%s\" as \"%s\"'" \
	"   WHEN 'application' THEN 'attempt %s claimed: the application charges it itself at gateway \"%s\" as \"%s\"'" \
	"   ELSE 'attempt %s came to light by a fact, no claim had made it: gateway \"%s\", reference \"%s\"' END," \
	"   a.no, a.gateway, a.gateway_reference)" \
	" || CASE a.mode WHEN 'test' THEN ' (test mode, no real money)' ELSE '' END" \
	" FROM payguard.attempts a WHERE a.order_id = $1" \
	" UNION ALL SELECT greatest(a.sent_at, a.created_at), 3, a.no, 'sent'," \
	" format('attempt %s: from here on the request may have reached gateway \"%s\"', a.no, a.gateway)" \
	" FROM payguard.attempts a WHERE a.order_id = $1 AND a.sent_at IS NOT NULL"

#define SOURCE_IN_WORDS \
	" CASE e.source" \
	"   WHEN 'answer' THEN CASE WHEN e.transport IS NULL THEN 'payguard found'" \
	"     WHEN e.transport ->> 'http' = '0' THEN 'the call ended without an answer'" \
	"     ELSE 'the gateway answered' END" \
	"   WHEN 'application' THEN 'the application said'" \
	"   WHEN 'callback' THEN 'a callback said'" \
	"   WHEN 'query' THEN CASE WHEN e.transport ->> 'http' = '0' THEN 'the gateway was asked and gave no answer'" \
	"     ELSE 'the gateway was asked and said' END" \
	"   WHEN 'settlement' THEN 'a settlement file said'" \
	"   WHEN 'operator' THEN 'an operator decided'" \
	"   ELSE 'payguard found the order past its time' END"

#define RESULT_IN_WORDS \
	" CASE e.result" \
	"   WHEN 'paid' THEN 'paid'" \
	"   WHEN 'failed' THEN 'failed'" \
	"   WHEN 'closed' THEN 'closed without payment'" \
	"   WHEN 'pending' THEN 'still pending'" \
	"   WHEN 'unknown' THEN 'nothing definite (unknown), money may have moved'" \
	"   WHEN 'not_sent' THEN 'the request did not leave (not_sent)'" \
	"   WHEN 'not_found' THEN 'there is no such thing (not_found)'" \
	"   WHEN 'reversed' THEN 'the payment was reversed'" \
	"   WHEN 'reinstated' THEN 'the reversal was taken back (reinstated)'" \
	"   ELSE 'the money was given back (succeeded)' END"

#define VERDICT_IN_WORDS \
	" CASE e.verdict" \
	"   WHEN 'applied' THEN 'applied'" \
	"   WHEN 'duplicate' THEN 'a duplicate, known already'" \
	"   WHEN 'stale' THEN 'stale, something newer or stronger was known'" \
	"   WHEN 'surplus' THEN 'surplus, a second payment of a paid order'" \
	"   WHEN 'mismatch' THEN 'a mismatch, it does not fit the order'" \
	"   WHEN 'parked' THEN 'parked until it makes sense'" \
	"   WHEN 'hint' THEN 'only a hint, nothing moved by it'" \
	"   WHEN 'fenced' THEN 'fenced, it came under a lapsed lease'" \
	"   WHEN 'unreadable' THEN 'unreadable, signed but not understood'" \
	"   ELSE 'dismissed by an operator' END"

#define STORY_OF_EVIDENCE \
	"SELECT e.received_at, 4, e.id, e.source::text," \
	" concat_ws(', '," \
	SOURCE_IN_WORDS " || ': ' ||" RESULT_IN_WORDS "," \
	"   e.amount || ' ' || coalesce(e.currency, '(no currency)')," \
	"   'attempt ' || e.attempt_no," \
	"   'refund ' || e.refund_id," \
	"   'charge \"' || e.charge_id || '\"'," \
	"   'id \"' || e.provider_id || '\"'," \
	"   'code ' || e.code," \
	"   'message \"' || left(e.message, 200) || '\"'," \
	"   'HTTP ' || nullif(e.transport ->> 'http', '0')," \
	"   'curl error ' || nullif(e.transport ->> 'curl', '0')," \
	"   (e.transport ->> 'ms') || ' ms'," \
	"   'happened ' || to_char(e.occurred_at, " TIME_FORMAT ")," \
	"   CASE WHEN e.deliveries > 1 THEN 'delivered ' || e.deliveries || ' times' END)" \
	" || ' -> ' ||" VERDICT_IN_WORDS " || coalesce(': ' || e.note, '')" \
	" || format(' (evidence %s)', e.id)" \
	" FROM payguard.evidence e WHERE e.order_id = $1"

#define STORY_OF_MONEY \
	"SELECT p.paid_at, 5, 0, 'payment'," \
	" format('gateway \"%s\" took %s %s as \"%s\"', p.gateway, p.amount, p.currency, p.provider_id)" \
	" || coalesce(', fee ' || p.fee, '')" \
	" || CASE WHEN p.counted THEN ': this is what the order counts as paid'" \
	"    WHEN p.reason = 'surplus' THEN ': not counted, the order had its payment (surplus)'" \
	"    ELSE ': not counted, it does not fit the order (mismatch)' END" \
	" || CASE p.state WHEN 'paid' THEN '' ELSE '; now ' || p.state END" \
	" FROM payguard.payments p WHERE p.order_id = $1" \
	" UNION ALL SELECT f.created_at, 6, f.id, 'refund'," \
	" format('refund %s of %s from charge \"%s\" ', f.id, f.amount, f.charge_id)" \
	" || CASE WHEN f.external THEN 'was made at the gateway itself' ELSE 'was requested' END" \
	" || coalesce(' (' || f.reason || ')', '') || '; now ' || f.state" \
	" FROM payguard.refunds f WHERE f.order_id = $1"

#define STORY_OF_EVENTS \
	"SELECT v.created_at, 7, v.seq, 'event'," \
	" format('%s was told to followers, because of evidence %s', v.type, v.cause)" \
	" FROM payguard.events v WHERE v.aggregateid = $2" \
	" UNION ALL SELECT r.since, 8, 0, 'review'," \
	" 'put on the operators'' list: ' || array_to_string(r.reasons, '; ')" \
	" FROM payguard.reviews r WHERE r.order_id = $1"

static LedgerPlan read_story = {
	.sql = "SELECT at, what, detail FROM ("
	STORY_OF_ORDER
	" UNION ALL " STORY_OF_ATTEMPTS
	" UNION ALL " STORY_OF_EVIDENCE
	" UNION ALL " STORY_OF_MONEY
	" UNION ALL " STORY_OF_EVENTS
	") AS story ORDER BY at, rank, id",
	.nargs = 2,
	.argtypes = {INT8OID, TEXTOID}
};

static LedgerPlan read_head = {
	.sql = "SELECT o.id, o.status::text, o.expires_at, a.call_by = 'application', a.lease_until,"
	" array_to_string(r.reasons, '; ')"
	" FROM payguard.orders o"
	" LEFT JOIN payguard.attempts a ON a.order_id = o.id AND a.no = o.attempt_no"
	" LEFT JOIN payguard.reviews r ON r.order_id = o.id"
	" WHERE o.reference = $1",
	.nargs = 1,
	.argtypes = {TEXTOID}
};

/* What the last rows are made of. */
typedef struct OrderHead
{
	int64		id;
	OrderStatus status;
	TimestampTz expires_at;		/* DT_NOEND: never */
	bool		by_application; /* the application calls the latest attempt */
	TimestampTz lease_until;	/* of the latest attempt; DT_NOBEGIN: none */
	char	   *review;			/* reasons, or NULL */
} OrderHead;

/*
 * A time as people read it.
 */
static const char *
time_text(TimestampTz time)
{
	if (!TIMESTAMP_NOT_FINITE(time))
		time -= time % USECS_PER_SEC;
	return pstrdup(timestamptz_to_str(time));
}

/*
 * Add a row to the result.
 */
static void
add_row(ReturnSetInfo *result, TimestampTz at, const char *what, const char *detail)
{
	Datum		values[3];
	bool		nulls[3] = {false, false, false};

	values[0] = TimestampTzGetDatum(at);
	values[1] = CStringGetTextDatum(what);
	values[2] = CStringGetTextDatum(detail);
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/*
 * The order's state, as far as the last rows need it; false if there is none.
 */
static bool
read_order_head(const char *reference, OrderHead *head)
{
	Datum		values[1] = {CStringGetTextDatum(reference)};
	HeapTuple	tuple;
	TupleDesc	desc;
	Datum		value;
	bool		is_null;

	if (payguard_plan_run(&read_head, values, NULL) == 0)
		return false;
	tuple = SPI_tuptable->vals[0];
	desc = SPI_tuptable->tupdesc;
	head->id = DatumGetInt64(SPI_getbinval(tuple, desc, 1, &is_null));
	if (!payguard_order_read(SPI_getvalue(tuple, desc, 2), &head->status))
		elog(ERROR, "unrecognized order status");
	value = SPI_getbinval(tuple, desc, 3, &is_null);
	head->expires_at = is_null ? DT_NOEND : DatumGetTimestampTz(value);
	value = SPI_getbinval(tuple, desc, 4, &is_null);
	head->by_application = !is_null && DatumGetBool(value);
	value = SPI_getbinval(tuple, desc, 5, &is_null);
	head->lease_until = is_null ? DT_NOBEGIN : DatumGetTimestampTz(value);
	head->review = SPI_getvalue(tuple, desc, 6);
	return true;
}

/*
 * Everything that happened.
 */
static void
tell_story(ReturnSetInfo *result, const OrderHead *head, const char *reference)
{
	Datum		values[2];
	uint64		count;
	uint64		i;

	values[0] = Int64GetDatum(head->id);
	values[1] = CStringGetTextDatum(reference);
	count = payguard_plan_run(&read_story, values, NULL);
	for (i = 0; i < count; i++)
	{
		HeapTuple	tuple = SPI_tuptable->vals[i];
		bool		is_null;

		add_row(result,
				DatumGetTimestampTz(SPI_getbinval(tuple, SPI_tuptable->tupdesc, 1, &is_null)),
				SPI_getvalue(tuple, SPI_tuptable->tupdesc, 2),
				SPI_getvalue(tuple, SPI_tuptable->tupdesc, 3));
	}
}

/*
 * What a planned call will do, in words.
 */
static const char *
call_subject(const PlannedCall *call)
{
	if (call->op == OUTBOX_CHARGE)
		return psprintf("attempt %d is sent to the gateway", call->attempt_no);
	if (call->op == OUTBOX_QUERY)
		return psprintf("the gateway is asked what became of attempt %d", call->attempt_no);
	if (call->op == OUTBOX_CLOSE)
		return psprintf("the gateway is asked to close attempt %d", call->attempt_no);
	if (call->op == OUTBOX_REFUND)
		return psprintf("refund " INT64_FORMAT " is sent to the gateway", call->refund_id);
	if (call->op == OUTBOX_REFUND_QUERY)
		return psprintf("the gateway is asked what became of refund " INT64_FORMAT, call->refund_id);
	return psprintf("a call of kind %s is made", payguard_outbox_op_word(call->op));
}

/*
 * One row for a planned call: what, when, the how-manieth try, what stops it.
 */
static void
tell_planned_call(ReturnSetInfo *result, const OrderHead *head, const PlannedCall *call)
{
	TimestampTz now = GetCurrentTimestamp();
	StringInfoData text;

	initStringInfo(&text);
	if (head->by_application && call->op == OUTBOX_QUERY && head->lease_until > now)
		appendStringInfo(&text, "waiting for the application's report until %s; then ",
						 time_text(head->lease_until));
	appendStringInfoString(&text, call_subject(call));
	if (call->is_under_way)
		appendStringInfo(&text, ": this is under way (try %d)", Max(call->tries, 1));
	else if (call->next_run_at <= now)
		appendStringInfo(&text, " as soon as a worker takes it, due since %s (try %d)",
						 time_text(call->next_run_at), call->tries + 1);
	else
		appendStringInfo(&text, " at %s (try %d)", time_text(call->next_run_at), call->tries + 1);
	if (call->is_foreign)
		appendStringInfoString(&text, "; but not before payguard.adopt(): this copy has not been adopted");
	else if (!payguard_dispatch)
		appendStringInfoString(&text, "; but not while payguard.dispatch is off");
	add_row(result, call->next_run_at, "next", text.data);
}

/*
 * What the order itself waits for when no call is planned; NULL when a person
 * is asked anyway and there is nothing to add.
 */
static const char *
order_outlook(const OrderHead *head, TimestampTz now)
{
	switch (head->status)
	{
		case ORDER_CREATED:
			if (head->expires_at <= now)
				return "it is past its time and will be closed";
			return "waiting for payguard.claim_order()";
		case ORDER_FAILED:
			if (head->expires_at <= now)
				return "it is past its time and will be closed";
			return "no money moved; payguard.claim_order() with a new request key may try again";
		case ORDER_PROCESSING:
		case ORDER_UNKNOWN:
			if (head->lease_until > now && head->by_application)
				return psprintf("waiting for the application's report until %s",
								time_text(head->lease_until));
			if (head->lease_until > now)
				return psprintf("waiting for the answer of a call until %s",
								time_text(head->lease_until));
			if (head->review)
				return NULL;
			return "nothing is planned and nothing is waited for, which must not be: see payguard.check()";
		case ORDER_PAID:
		case ORDER_CLOSED:
		case ORDER_REFUNDED:
		case ORDER_REVERSED:
			if (head->review)
				return NULL;
			return psprintf("nothing: the order is settled (%s)", payguard_order_word(head->status));
	}
	return NULL;				/* keep compiler quiet */
}

/*
 * What happens next.
 */
static void
tell_outlook(ReturnSetInfo *result, const OrderHead *head)
{
	List	   *calls = payguard_outbox_planned(head->id);
	TimestampTz now = GetCurrentTimestamp();
	ListCell   *cell;

	foreach(cell, calls)
		tell_planned_call(result, head, (PlannedCall *) lfirst(cell));
	if (head->review)
		add_row(result, now, "next", psprintf("an operator must decide: %s", head->review));
	if (calls == NIL)
	{
		const char *outlook = order_outlook(head, now);

		if (outlook)
			add_row(result, now, "next", outlook);
	}
}

/*
 * why(reference)
 */
Datum
payguard_why(PG_FUNCTION_ARGS)
{
	char	   *reference = payguard_argument_text(fcinfo, 0, "reference", REFERENCE_MAX_LENGTH);
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	LedgerScope scope;
	OrderHead	head;

	InitMaterializedSRF(fcinfo, 0);
	payguard_ledger_enter(&scope);
	if (!read_order_head(reference, &head))
		payguard_no_such_order(reference);
	tell_story(result, &head, reference);
	tell_outlook(result, &head);
	payguard_ledger_leave(&scope);
	return (Datum) 0;
}
