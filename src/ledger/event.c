/*-------------------------------------------------------------------------
 *
 * event.c
 *	  Business events and the operators' list, written with the change of
 *	  state that they tell of.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "ledger/door.h"
#include "utils/builtins.h"
#include "utils/json.h"

/* Event bits and their types, in the order of writing. */
static const struct
{
	unsigned	bit;
	const char *type;
}			event_types[] = {
	{EVENT_ORDER_PAID, "order.paid"},
	{EVENT_ORDER_PAID_LATE, "order.paid_late"},
	{EVENT_ORDER_FAILED, "order.failed"},
	{EVENT_ORDER_CLOSED, "order.closed"},
	{EVENT_ORDER_REFUNDED, "order.refunded"},
	{EVENT_ORDER_REVERSED, "order.reversed"},
	{EVENT_ORDER_REINSTATED, "order.reinstated"},
	{EVENT_ORDER_SURPLUS, "order.surplus"},
	{EVENT_ORDER_MISMATCH, "order.mismatch"}
};

/*
 * Append a JSON member whose value is a string or null.
 */
static void
append_member(StringInfo json, const char *name, const char *value)
{
	appendStringInfo(json, ", \"%s\": ", name);
	if (value == NULL)
		appendStringInfoString(json, "null");
	else
		escape_json(json, value);
}

/*
 * The payload of an event: what a follower needs without asking back.
 */
static char *
make_payload(const DoorFacts *facts, const Evidence *evidence, OrderStatus status)
{
	char		amount[MONEY_TEXT_SIZE];
	StringInfoData json;

	payguard_money_format(&facts->order.money, amount);
	initStringInfo(&json);
	appendStringInfoString(&json, "{\"reference\": ");
	escape_json(&json, facts->reference);
	append_member(&json, "status", payguard_order_word(status));
	append_member(&json, "amount", amount);
	append_member(&json, "currency", facts->order.money.currency);
	append_member(&json, "customer", facts->customer);
	append_member(&json, "product", facts->product);
	append_member(&json, "gateway", evidence->gateway);
	append_member(&json, "provider_id", evidence->provider_id);
	append_member(&json, "code", evidence->code);
	if (evidence->is_refund)
	{
		payguard_money_format(&evidence->money, amount);
		appendStringInfo(&json, ", \"refund_id\": " INT64_FORMAT, evidence->refund_id);
		append_member(&json, "refund_amount", amount);
	}
	appendStringInfo(&json, ", \"attempt_no\": %d}", facts->attempt_no);
	return json.data;
}

/*
 * Write one event; a type is told once for each fact.
 */
void
payguard_event_write(const DoorFacts *facts, const Evidence *evidence, OrderStatus status,
					 const char *type, int64 evidence_id)
{
	static LedgerPlan insert = {
		"INSERT INTO payguard.events (aggregatetype, aggregateid, type, payload, cause)"
		" VALUES ('order', $1, $2, $3::jsonb, $4) ON CONFLICT (aggregateid, type, cause) DO NOTHING",
		4, {TEXTOID, TEXTOID, TEXTOID, INT8OID}, NULL
	};
	Datum		values[4];

	/* an id before the seq is drawn: consumer.c relies on that order */
	(void) GetTopTransactionId();
	values[0] = CStringGetTextDatum(facts->reference);
	values[1] = CStringGetTextDatum(type);
	values[2] = CStringGetTextDatum(make_payload(facts, evidence, status));
	values[3] = Int64GetDatum(evidence_id);
	payguard_plan_run(&insert, values, NULL);
}

/*
 * Write the events of a decision.
 */
void
payguard_events_write(const DoorFacts *facts, const Evidence *evidence, OrderStatus status,
					  unsigned events, int64 evidence_id)
{
	for (int i = 0; i < (int) lengthof(event_types); i++)
		if (events & event_types[i].bit)
			payguard_event_write(facts, evidence, status, event_types[i].type, evidence_id);
}

/*
 * Put a reason on the operators' list; true when the order was not on it.
 */
static bool
list_for_review(int64 order_id, const char *reason)
{
	static LedgerPlan upsert = {
		"INSERT INTO payguard.reviews AS r (order_id, reasons) VALUES ($1, ARRAY[$2])"
		" ON CONFLICT (order_id) DO UPDATE SET reasons = r.reasons || EXCLUDED.reasons"
		" WHERE NOT EXCLUDED.reasons <@ r.reasons"
		" RETURNING cardinality(r.reasons) = 1",
		2, {INT8OID, TEXTOID}, NULL
	};
	Datum		values[2] = {Int64GetDatum(order_id), CStringGetTextDatum(reason)};

	return payguard_plan_run(&upsert, values, NULL) > 0 && payguard_row_bool(0, 0);
}

/*
 * The order needs a person: list it, and tell followers when it is new there.
 */
void
payguard_review_add(const DoorFacts *facts, const Evidence *evidence, OrderStatus status,
					const char *reason, int64 evidence_id)
{
	if (list_for_review(facts->order_id, reason))
		payguard_event_write(facts, evidence, status, "order.needs_review", evidence_id);
}

/*
 * The same for another order that a fact touches without moving it.
 */
void
payguard_review_add_other(int64 order_id, const char *reason)
{
	(void) list_for_review(order_id, reason);
}
