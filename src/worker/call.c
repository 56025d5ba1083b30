/*-------------------------------------------------------------------------
 *
 * call.c
 *	  One gateway call: from a leased item to Evidence.
 *
 * Everything here runs outside transactions, so nothing may read a table or
 * a catalog.  A request that cannot be made is evidence, not an error: the
 * lease is committed, and its outcome must be booked whatever it is.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "core/crashpoint.h"
#include "core/settings.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "worker/call.h"

/*
 * Copy a text that may be missing.
 */
static char *
copy_text(const char *text)
{
	return text == NULL ? NULL : pstrdup(text);
}

/*
 * Copy the item into the current context, which outlives the batch.
 */
static void
copy_item(OutboxItem *copy, const OutboxItem *item)
{
	*copy = *item;
	copy->gateway = copy_text(item->gateway);
	copy->order_reference = copy_text(item->order_reference);
	copy->gateway_reference = copy_text(item->gateway_reference);
	copy->idempotency_key = copy_text(item->idempotency_key);
	copy->provider_id = copy_text(item->provider_id);
	copy->charge_reference = copy_text(item->charge_reference);
	copy->charge_id = copy_text(item->charge_id);
	if (item->request != NULL)
	{
		copy->request = palloc(VARSIZE(item->request));
		memcpy(copy->request, item->request, VARSIZE(item->request));
	}
}

/*
 * What gateway/ calls it.  Settlements are not taken yet, and deliveries are
 * no question to a gateway.
 */
static CallOp
call_op(OutboxOp op)
{
	switch (op)
	{
		case OUTBOX_CHARGE:
			return CALL_CHARGE;
		case OUTBOX_QUERY:
			return CALL_QUERY;
		case OUTBOX_REFUND:
			return CALL_REFUND;
		case OUTBOX_REFUND_QUERY:
			return CALL_REFUND_QUERY;
		case OUTBOX_CLOSE:
			return CALL_CLOSE;
		case OUTBOX_SETTLEMENT:
		case OUTBOX_DELIVER:
			break;
	}
	elog(ERROR, "unexpected outbox op %d", (int) op);
	return CALL_QUERY;			/* keep the compiler quiet */
}

/*
 * The facts that templates and answers are read by.
 */
static void
fill_facts(Call *call)
{
	const OutboxItem *item = &call->item;
	CallFacts  *facts = &call->facts;

	facts->reference = item->gateway_reference;
	facts->order_reference = item->order_reference;
	facts->idempotency_key = item->idempotency_key;
	facts->provider_id = item->provider_id;
	facts->charge_reference = item->charge_reference;
	facts->charge_id = item->charge_id;
	facts->money = item->money;
	facts->attempt_no = item->attempt_no;
	facts->op = call_op(item->op);
}

/*
 * Count and, if wanted, log an ended call.  Neither key nor body nor URL is
 * in the line.
 */
static void
report_end(const Call *call, const HttpReply *reply)
{
	static const char *const op_words[CALL_OP_COUNT] = {
		"charge", "query", "refund", "refund query", "close", "settlement"
	};
	const Transport *transport = &reply->transport;
	const char *name = call->lane->name;

	payguard_stats_count(name, COUNTER_CALLS);
	payguard_stats_latency(name, transport->milliseconds);
	if (transport->prereq_count > 1)
		payguard_stats_count(name, COUNTER_DUPLICATE_SENDS);
	switch (call->evidence->result)
	{
		case EVIDENCE_RESULT_PAID:
		case EVIDENCE_RESULT_SUCCEEDED:
			if (call->item.op != OUTBOX_DELIVER)
				payguard_stats_count(name, COUNTER_PAID);
			break;
		case EVIDENCE_RESULT_FAILED:
		case EVIDENCE_RESULT_CLOSED:
			payguard_stats_count(name, COUNTER_FAILED);
			break;
		case EVIDENCE_RESULT_UNKNOWN:
			payguard_stats_count(name, COUNTER_UNKNOWN);
			break;
		case EVIDENCE_RESULT_NOT_SENT:
			payguard_stats_count(name, COUNTER_NOT_SENT);
			break;
		default:
			break;
	}
	payguard_slot_count(0, 1);
	if (payguard_log_calls)
		ereport(LOG,
				(errmsg("payguard: %s of \"%s\" at gateway \"%s\": %s",
						call->item.op == OUTBOX_DELIVER ? "delivery" : op_words[call->facts.op],
						call->item.gateway_reference, name,
						payguard_result_word(call->evidence->result)),
				 errdetail("HTTP status %d, curl code %d, sent %d times, %d ms.",
						   transport->http_status, transport->curl_code,
						   transport->prereq_count, transport->milliseconds)));
}

/*
 * Turn a reply into the call's evidence, and leave the lane.
 */
static void
read_reply(Call *call, const HttpReply *reply)
{
	MemoryContext old_context = MemoryContextSwitchTo(call->context);

	if (call->item.op == OUTBOX_DELIVER)
		call->evidence = payguard_delivery_read(reply);
	else
		call->evidence = payguard_answer_read(call->gateway->gateway, &call->facts, reply);
	call->ended_at = GetCurrentTimestamp();
	call->evidence->received_at = call->ended_at;
	MemoryContextSwitchTo(old_context);
	report_end(call, reply);
}

/*
 * The request could not be made: nothing left, and the reason is kept.  It
 * says nothing about whether the gateway answers.
 */
static void
end_unsent(Call *call, const ErrorData *error)
{
	HttpReply	reply;

	memset(&reply, 0, sizeof(reply));
	reply.transport.is_call = true;
	reply.headers = "";
	reply.body = "";
	reply.error = error->message;
	read_reply(call, &reply);
	call->evidence->code = "request_invalid";
	call->evidence->message = MemoryContextStrdup(call->context, error->message);
	call->lane->in_flight--;
}

/*
 * Make the request and hand it to curl.  May raise an error, but only before
 * curl has the call.
 */
static void
send_request(Call *call, HttpCalls *http)
{
	const Gateway *gateway = call->gateway->gateway;
	CallRequest *request;

	if (call->item.op == OUTBOX_DELIVER)
	{
		request = payguard_delivery_thaw(call->item.request);
		call->item.gateway_reference = pstrdup(payguard_delivery_id(request));
		payguard_http_start(http, gateway, request,
							payguard_delivery_sign(gateway, request, GetCurrentTimestamp()), call);
		return;
	}
	fill_facts(call);
	if (call->item.request != NULL)
		request = payguard_request_thaw(call->item.request);
	else
		request = payguard_request_render(gateway, &call->facts);
	payguard_http_start(http, gateway, payguard_request_seal(gateway, request),
						payguard_request_auth(gateway, request), call);
	PAYGUARD_CRASH_POINT(CRASH_SEND_HANDED_OVER);
}

/*
 * Begin the call of an item.  Its lane must be usable.
 */
Call *
payguard_call_begin(const OutboxItem *item, HttpCalls *http, MemoryContext parent)
{
	MemoryContext context = AllocSetContextCreate(parent, "payguard call", ALLOCSET_SMALL_SIZES);
	MemoryContext old_context = MemoryContextSwitchTo(context);
	Call	   *call = palloc0(sizeof(Call));

	call->context = context;
	copy_item(&call->item, item);
	call->lane = payguard_lane_find(item->gateway);
	call->gateway = payguard_lane_begin(call->lane);
	PG_TRY();
	{
		send_request(call, http);
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		end_unsent(call, error);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(old_context);
	return call;
}

/*
 * The call has ended: make its evidence.  The reply's bytes belong to the
 * handle, which is needed again, so they are copied first.
 */
void
payguard_call_end(Call *call, HttpCalls *http, HttpCall *ended)
{
	MemoryContext old_context = MemoryContextSwitchTo(call->context);
	HttpReply	reply = ended->reply;

	reply.headers = pnstrdup(reply.headers, reply.headers_length);
	reply.error = pstrdup(reply.error);
	reply.body = memcpy(palloc(reply.body_length + 1), reply.body, reply.body_length + 1);
	MemoryContextSwitchTo(old_context);
	payguard_http_release(http, ended);

	payguard_lane_end(call->lane, reply.complete);
	read_reply(call, &reply);
	PAYGUARD_CRASH_POINT(CRASH_ANSWER_READ);
}

/*
 * Forget the call.
 */
void
payguard_call_free(Call *call)
{
	payguard_lane_gateway_release(call->gateway);
	MemoryContextDelete(call->context);
}
