/*-------------------------------------------------------------------------
 *
 * render.c
 *	  Charges and refunds as JSON objects of the wire format.
 *
 * Every value in them is of a checked alphabet, so nothing needs escaping.
 *
 *-------------------------------------------------------------------------
 */
#include "clock.h"
#include "ledger.h"

const char *const charge_words[] = {
	[CHARGE_PENDING] = "pending",
	[CHARGE_PAID] = "paid",
	[CHARGE_FAILED] = "failed",
	[CHARGE_CLOSED] = "closed",
	[CHARGE_REVERSED] = "reversed",
};

const char *const refund_words[] = {
	[REFUND_NONE] = "none",
	[REFUND_PENDING] = "pending",
	[REFUND_SUCCEEDED] = "succeeded",
	[REFUND_FAILED] = "failed",
};

/* The amount as a spoiled answer gives it: not the right one */
static long long
shown_amount(int64_t amount, Fault spoiled)
{
	return amount + (spoiled == FAULT_THEN_WRONG_AMOUNT);
}

/* A quoted text or null */
static void
quote(const char *text, char *quoted, size_t size)
{
	snprintf(quoted, size, text ? "\"%s\"" : "null", text);
}

/*
 * The charge object.  spoiled is the fault that the answer meets; callbacks
 * and settlement files are never spoiled.
 */
char *
render_charge(const Charge *charge, Fault spoiled)
{
	char		when[CLOCK_TEXT];
	char		code[64];
	char		message[128];
	char		client[96] = "{}";

	quote(charge->code, code, sizeof(code));
	quote(charge->message, message, sizeof(message));
	if (charge->status == CHARGE_PENDING)
		snprintf(client, sizeof(client), "{\"client_secret\": \"secret_%s\"}", charge->id);
	return answer_format("{\"id\": \"%s\", \"reference\": \"%s%s\", \"status\": \"%s\", "
						 "\"amount\": %lld, \"currency\": \"%s\", \"code\": %s, \"message\": %s, "
						 "\"client\": %s, \"occurred_at\": \"%s\"}",
						 charge->id,
						 spoiled == FAULT_THEN_OTHER_REFERENCE ? "other-" : "",
						 charge->reference->name, charge_words[charge->status],
						 shown_amount(charge->amount, spoiled), charge->currency,
						 code, message, client, clock_text(charge->occurred_at, when));
}

/* The refund object */
char *
render_refund(const Refund *refund, Fault spoiled)
{
	char		when[CLOCK_TEXT];
	char		code[64];
	char		message[128];

	quote(refund->code, code, sizeof(code));
	quote(refund->message, message, sizeof(message));
	return answer_format("{\"id\": \"%s\", \"reference\": \"%s%s\", \"status\": \"%s\", "
						 "\"charge_id\": \"%s\", \"charge_reference\": \"%s\", "
						 "\"amount\": %lld, \"currency\": \"%s\", \"code\": %s, \"message\": %s, "
						 "\"client\": {}, \"occurred_at\": \"%s\"}",
						 refund->id,
						 spoiled == FAULT_THEN_OTHER_REFERENCE ? "other-" : "",
						 refund->name, refund_words[refund->status],
						 refund->charge->id, refund->charge->reference->name,
						 shown_amount(refund->amount, spoiled), refund->charge->currency,
						 code, message, clock_text(refund->occurred_at, when));
}
