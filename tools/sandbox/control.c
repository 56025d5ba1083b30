/*-------------------------------------------------------------------------
 *
 * control.c
 *	  The interface for tests, below /_sandbox/.
 *
 *-------------------------------------------------------------------------
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "callbacks.h"
#include "control.h"
#include "http.h"
#include "intervene.h"
#include "listener.h"
#include "report.h"
#include "settings.h"
#include "sign.h"

/* One command: its place, where a * stands for a name, and its function */
typedef struct Command
{
	const char *method;
	const char *place;
	void		(*carry_out) (const char *name, json_t *body, Answer *answer);
} Command;

/* Answer with a JSON object, which is used up */
static void
answer_json(Answer *answer, json_t *object)
{
	answer_set(answer, 200, json_dumps(object, JSON_INDENT(2) | JSON_REAL_PRECISION(12)));
	json_decref(object);
}

/* Answer that a command was carried out, or why not */
static void
answer_done(Answer *answer, const char *wrong)
{
	if (wrong)
		answer_error(answer, strncmp(wrong, "there is no", 11) == 0 ? 404 : 400,
					 "not_done", wrong);
	else
		answer_set(answer, 200, answer_format("{\"ok\": true}"));
}

/* An integer member, or what stands for it if it is missing */
static json_int_t
integer_member(const json_t *object, const char *name, json_int_t missing)
{
	const json_t *value = json_object_get(object, name);

	return json_is_integer(value) ? json_integer_value(value) : missing;
}

/* GET health */
static void
health(const char *name, json_t *body, Answer *answer)
{
	(void) name;
	(void) body;
	answer_done(answer, NULL);
}

/* GET summary */
static void
summary(const char *name, json_t *body, Answer *answer)
{
	json_t	   *object = report_summary();

	(void) name;
	(void) body;
	http_add_counts(object);
	listener_add_counts(object);
	callbacks_add_counts(object);
	json_object_set_new(object, "faults", faults_counts(false));
	answer_json(answer, object);
}

/* GET orders.csv */
static void
list_orders(const char *name, json_t *body, Answer *answer)
{
	(void) name;
	(void) body;
	answer_set(answer, 200, report_orders());
	answer->type = "text/csv; charset=utf-8";
}

/* GET orders/{order} */
static void
show_order(const char *name, json_t *body, Answer *answer)
{
	json_t	   *object = report_order(name);

	(void) body;
	if (object)
		answer_json(answer, object);
	else
		answer_done(answer, "there is no such order");
}

/* GET config */
static void
show_config(const char *name, json_t *body, Answer *answer)
{
	(void) name;
	(void) body;
	answer_json(answer, settings_json());
}

/* POST config */
static void
configure(const char *name, json_t *body, Answer *answer)
{
	const char *secrets = json_string_value(json_object_get(body, "webhook_secret"));
	const char *wrong = secrets ? sign_check_secrets(secrets) : NULL;

	(void) name;
	answer_done(answer, wrong ? wrong : settings_configure(body));
}

/* GET faults */
static void
show_rates(const char *name, json_t *body, Answer *answer)
{
	(void) name;
	(void) body;
	answer_json(answer, json_pack("{so so}", "rates", faults_rates(), "met", faults_counts(false)));
}

/* POST faults: {"rates": {"charge_then_fin": 0.1, "query.slow": 0.2}} */
static void
set_rates(const char *name, json_t *body, Answer *answer)
{
	json_t	   *rates = json_object_get(body, "rates");

	(void) name;
	answer_done(answer, json_is_object(rates) ? faults_set_rates(rates) : "rates is no object");
}

/* POST faults/{reference}: {"fault": "charge_then_fin", "times": 1, "ms": 500} */
static void
plan_fault(const char *name, json_t *body, Answer *answer)
{
	const char *fault = json_string_value(json_object_get(body, "fault"));

	answer_done(answer, fault == NULL ? "fault is missing" :
				faults_plan_reference(name, fault, integer_member(body, "times", -1),
									  integer_member(body, "ms", -1)));
}

/* POST charges: {"reference": ..., "amount": ..., "currency": ...} */
static void
charge_unasked(const char *name, json_t *body, Answer *answer)
{
	const char *reference = json_string_value(json_object_get(body, "reference"));
	const char *currency = json_string_value(json_object_get(body, "currency"));
	json_int_t	amount = integer_member(body, "amount", 0);

	(void) name;
	if (!reference || !currency || amount <= 0 ||
		!api_reference_valid(reference) || !api_currency_valid(currency))
		answer_done(answer, "reference, amount or currency is missing or malformed");
	else
		intervene_charge(reference, amount, currency, answer);
}

/* POST charges/{reference}/status: {"status": "reversed"} */
static void
set_charge(const char *name, json_t *body, Answer *answer)
{
	answer_done(answer, intervene_charge_status(name,
												json_string_value(json_object_get(body, "status"))));
}

/* POST charges/{reference}/refund: {"amount": 100, "reference": ...} */
static void
refund_unasked(const char *name, json_t *body, Answer *answer)
{
	const char *reference = json_string_value(json_object_get(body, "reference"));

	if (reference && !api_reference_valid(reference))
		answer_done(answer, "the reference is malformed");
	else
		answer_done(answer, intervene_refund(name, reference, integer_member(body, "amount", 0)));
}

/* POST refunds/{reference}/status: {"status": "failed"} */
static void
set_refund(const char *name, json_t *body, Answer *answer)
{
	answer_done(answer, intervene_refund_status(name,
												json_string_value(json_object_get(body, "status"))));
}

/* POST callbacks/resend: {"reference": ..., "new_id": true} */
static void
resend(const char *name, json_t *body, Answer *answer)
{
	const char *reference = json_string_value(json_object_get(body, "reference"));

	(void) name;
	answer_done(answer, reference == NULL ? "reference is missing" :
				intervene_resend(reference, json_is_true(json_object_get(body, "new_id"))));
}

/* POST outage: {"ms": 500, "drop_connections": true} */
static void
outage(const char *name, json_t *body, Answer *answer)
{
	json_int_t	wait = integer_member(body, "ms", 1000);

	(void) name;
	if (wait < 0 || wait > 3600000)
	{
		answer_done(answer, "ms is out of range");
		return;
	}
	listener_outage(wait, json_is_true(json_object_get(body, "drop_connections")));
	answer_done(answer, NULL);
}

/* POST reset */
static void
reset(const char *name, json_t *body, Answer *answer)
{
	(void) name;
	(void) body;
	ledger_reset();
	callbacks_reset();
	faults_forget_references();
	json_decref(faults_counts(true));
	http_reset_counts();
	listener_reset_counts();
	answer_done(answer, NULL);
}

static const Command commands[] = {
	{"GET", "health", health},
	{"GET", "summary", summary},
	{"GET", "orders.csv", list_orders},
	{"GET", "orders/*", show_order},
	{"GET", "config", show_config},
	{"POST", "config", configure},
	{"GET", "faults", show_rates},
	{"POST", "faults", set_rates},
	{"POST", "faults/*", plan_fault},
	{"POST", "charges", charge_unasked},
	{"POST", "charges/*/status", set_charge},
	{"POST", "charges/*/refund", refund_unasked},
	{"POST", "refunds/*/status", set_refund},
	{"POST", "callbacks/resend", resend},
	{"POST", "outage", outage},
	{"POST", "reset", reset},
};

/* Does path fit place?  What stands at its * is copied to name. */
static bool
fits(const char *place, const char *path, char *name)
{
	size_t		head = strcspn(place, "*");
	const char *tail = place + head + 1;
	size_t		length;

	name[0] = '\0';
	if (place[head] == '\0')
		return strcmp(place, path) == 0;
	if (strncmp(place, path, head) != 0)
		return false;
	path += head;
	length = strcspn(path, "/");
	if (length == 0 || length >= REFERENCE_SIZE || strcmp(path + length, tail) != 0)
		return false;
	snprintf(name, REFERENCE_SIZE, "%.*s", (int) length, path);
	return true;
}

/* Answer any request below /_sandbox/ */
void
control_answer(const Call *call, Answer *answer)
{
	const char *path = call->path + strlen(CONTROL_PREFIX);
	char		name[REFERENCE_SIZE];
	json_t	   *body;

	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
	{
		if (strcmp(commands[i].method, call->method) != 0 || !fits(commands[i].place, path, name))
			continue;
		body = json_loadb(call->body ? call->body : "", call->length, 0, NULL);
		if (call->length && !json_is_object(body))
			answer_done(answer, "the body is not a JSON object");
		else
			commands[i].carry_out(name, body, answer);
		json_decref(body);
		return;
	}
	answer_done(answer, "there is no such command");
}
