/*-------------------------------------------------------------------------
 *
 * api.c
 *	  The gateway's interface: requests of the wire format.
 *
 * Checks the form of a request, draws its faults, has the ledger carry it
 * out, and spoils the answer if a fault says so: always after the ledger.
 *
 *-------------------------------------------------------------------------
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "keys.h"
#include "ledger.h"
#include "report.h"
#include "settings.h"
#include "spoil.h"

/* what fits a JSON number of every language without loss */
#define LARGEST_AMOUNT INT64_C(9007199254740991)

/* Does a text consist of the letters that references are made of? */
int
api_reference_valid(const char *reference)
{
	size_t		length = strlen(reference);

	return length >= 6 && length < REFERENCE_SIZE &&
		strspn(reference, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
			   "abcdefghijklmnopqrstuvwxyz._-") == length;
}

/* Is it three upper-case letters? */
int
api_currency_valid(const char *currency)
{
	return strlen(currency) == 3 && strspn(currency, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == 3;
}

/* Answer that a request is malformed */
static void
invalid(Answer *answer, const char *message)
{
	answer_error(answer, 400, "invalid_request", message);
}

/* A member that must be a text, or NULL */
static const char *
text_member(const json_t *object, const char *name)
{
	return json_string_value(json_object_get(object, name));
}

/*
 * The members that charges and refunds share.  Returns what is wrong, or
 * NULL.
 */
static const char *
check_money(const json_t *object, const char *key)
{
	const char *reference = text_member(object, "reference");
	const char *currency = text_member(object, "currency");
	const json_t *amount = json_object_get(object, "amount");

	if (!json_is_object(object))
		return "The body is not a JSON object.";
	if (key && (key[0] == '\0' || strlen(key) >= KEY_SIZE))
		return "The idempotency key is empty or too long.";
	if (reference == NULL || !api_reference_valid(reference))
		return "The reference is missing or malformed.";
	if (!json_is_integer(amount) || json_integer_value(amount) <= 0 ||
		json_integer_value(amount) > LARGEST_AMOUNT)
		return "The amount is not a positive integer of minor units.";
	if (currency == NULL || !api_currency_valid(currency))
		return "The currency is missing or malformed.";
	return NULL;
}

/* A hash of all parameters, whatever the order of their members */
static uint64_t
fingerprint(const json_t *object, const char *purpose)
{
	char	   *text = json_dumps(object, JSON_COMPACT | JSON_SORT_KEYS);
	uint64_t	hash = random_bits(0, text, 0, purpose);

	free(text);
	return hash;
}

/* What the payment object says about the outcome */
static void
read_payment(const json_t *payment, ChargeRequest *request)
{
	static const struct
	{
		const char *word;
		Fault		outcome;
	}			words[] = {
		{"ok", FAULT_NONE},
		{"declined", FAULT_DECLINED},
		{"pending", FAULT_PENDING},
		{"pending_then_paid", FAULT_PENDING_THEN_PAID},
		{"pending_then_failed", FAULT_PENDING_THEN_FAILED},
	};
	const char *card = text_member(payment, "card");
	const json_t *wait = json_object_get(payment, "after_ms");

	request->wait = json_is_integer(wait) && json_integer_value(wait) >= 0 ?
		json_integer_value(wait) : -1;
	for (size_t i = 0; card && i < sizeof(words) / sizeof(words[0]); i++)
		if (strcmp(words[i].word, card) == 0)
		{
			request->outcome = words[i].outcome;
			request->outcome_given = true;
		}
}

/* POST /charges */
static void
charge(const Call *call, Answer *answer)
{
	json_t	   *object = json_loadb(call->body, call->length, JSON_REJECT_DUPLICATES, NULL);
	const char *wrong = check_money(object, call->key);
	ChargeRequest request = {.key = call->key};
	FaultPlan	plan;

	if (wrong)
		invalid(answer, wrong);
	else
	{
		request.reference = text_member(object, "reference");
		request.amount = json_integer_value(json_object_get(object, "amount"));
		request.currency = text_member(object, "currency");
		request.fingerprint = fingerprint(object, "charge");
		read_payment(json_object_get(object, "payment"), &request);
		faults_draw(OP_CHARGE, request.reference, ledger_arrive(request.reference), &plan);
		if (!spoil_before(&plan, answer))
		{
			ledger_charge(&request, &plan, answer);
			spoil_after(&plan, answer);
		}
	}
	json_decref(object);
}

/* POST /refunds */
static void
refund(const Call *call, Answer *answer)
{
	json_t	   *object = json_loadb(call->body, call->length, JSON_REJECT_DUPLICATES, NULL);
	const char *wrong = check_money(object, call->key);
	const char *charge_reference = text_member(object, "charge_reference");
	RefundRequest request = {.key = call->key};
	FaultPlan	plan;

	if (wrong == NULL && charge_reference == NULL)
		wrong = "The charge_reference is missing.";
	if (wrong)
		invalid(answer, wrong);
	else
	{
		request.reference = text_member(object, "reference");
		request.charge_reference = charge_reference;
		request.charge_id = text_member(object, "charge_id");
		request.amount = json_integer_value(json_object_get(object, "amount"));
		request.currency = text_member(object, "currency");
		request.fingerprint = fingerprint(object, "refund");
		faults_draw(OP_REFUND, request.reference, ledger_refund_arrive(request.reference), &plan);
		if (!spoil_before(&plan, answer))
		{
			ledger_refund(&request, &plan, answer);
			spoil_after(&plan, answer);
		}
	}
	json_decref(object);
}

/* GET /charges/{reference}, GET /refunds/{reference}, POST /charges/{reference}/close */
static void
one(void (*carry_out) (const char *, Answer *, FaultPlan *), const char *reference,
	Answer *answer)
{
	FaultPlan	plan;

	carry_out(reference, answer, &plan);
	if (!spoil_before(&plan, answer))
		spoil_after(&plan, answer);
}

/* GET /settlements/2026-11-29.csv */
static void
settlement(const char *name, Answer *answer)
{
	size_t		length = strlen(name);
	char		day[16] = "";
	char	   *csv;

	if (length == 14 && strcmp(name + 10, ".csv") == 0)
		snprintf(day, sizeof(day), "%.10s", name);
	csv = report_settlement(day);
	if (csv == NULL)
	{
		answer_error(answer, 404, "not_found", "A settlement is named 2026-11-29.csv.");
		return;
	}
	answer_set(answer, 200, csv);
	answer->type = "text/csv; charset=utf-8";
}

/* Is the authorization Bearer and the key? */
static bool
authorized(const char *authorization)
{
	char		key[SETTING_TEXT];

	settings_text(TEXT_API_KEY, key);
	return authorization && strncasecmp(authorization, "Bearer ", 7) == 0 &&
		strcmp(authorization + 7, key) == 0;
}

/* The rest of path after prefix, if it starts so and goes on; else NULL */
static const char *
after(const char *path, const char *prefix)
{
	size_t		length = strlen(prefix);

	return strncmp(path, prefix, length) == 0 && path[length] ? path + length : NULL;
}

/* Answer any request of the gateway's interface */
void
api_answer(const Call *call, Answer *answer)
{
	bool		get = strcmp(call->method, "GET") == 0;
	bool		post = strcmp(call->method, "POST") == 0;
	const char *name;
	char		reference[REFERENCE_SIZE];
	size_t		length;

	answer->wait = settings.latency;
	if (!authorized(call->authorization))
		answer_error(answer, 401, "unauthorized", "The API key is missing or wrong.");
	else if (post && strcmp(call->path, "/charges") == 0)
		charge(call, answer);
	else if (post && strcmp(call->path, "/refunds") == 0)
		refund(call, answer);
	else if (post && (name = after(call->path, "/charges/")) != NULL &&
			 (length = strlen(name)) > 6 && length - 6 < REFERENCE_SIZE &&
			 strcmp(name + length - 6, "/close") == 0)
	{
		snprintf(reference, sizeof(reference), "%.*s", (int) (length - 6), name);
		one(ledger_close, reference, answer);
	}
	else if (get && (name = after(call->path, "/charges/")) != NULL)
		one(ledger_query, name, answer);
	else if (get && (name = after(call->path, "/refunds/")) != NULL)
		one(ledger_refund_query, name, answer);
	else if (get && (name = after(call->path, "/settlements/")) != NULL)
		settlement(name, answer);
	else
		answer_error(answer, 404, "not_found", "There is nothing here.");
}
