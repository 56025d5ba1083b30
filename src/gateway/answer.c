/*-------------------------------------------------------------------------
 *
 * answer.c
 *	  What does a gateway's answer to a call say?
 *
 * The default is unknown.  not_sent needs proof that no request can have left;
 * anything else needs a complete answer that the adapter's rules know and that
 * names our own purchase.  No error may leave this file: a lost answer is a
 * fact, and a fact must be booked.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "gateway/adapter.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/* No gateway makes us wait longer than this. */
#define MAX_RETRY_AFTER INT64CONST(86400000000)

/* An answer that is being read. */
typedef struct Reading
{
	const Gateway *gateway;
	const CallFacts *asked;
	const HttpReply *reply;
	const Operation *op;
	ReadScope	scope;
	Fields		fields;
	Evidence   *evidence;
} Reading;

/* The fact as far as it is known before the answer is looked at. */
static Evidence *
start_evidence(const Gateway *gateway, const CallFacts *asked, const HttpReply *reply)
{
	Evidence   *evidence = palloc0(sizeof(Evidence));
	bool		is_query = (asked->op == CALL_QUERY || asked->op == CALL_REFUND_QUERY);

	evidence->source = is_query ? EVIDENCE_SOURCE_QUERY : EVIDENCE_SOURCE_ANSWER;
	evidence->result = EVIDENCE_RESULT_UNKNOWN;
	evidence->gateway = gateway->name;
	evidence->gateway_reference = asked->reference;
	evidence->attempt_no = asked->attempt_no;
	evidence->is_refund = (asked->op == CALL_REFUND || asked->op == CALL_REFUND_QUERY);
	evidence->mode = MODE_NOT_TOLD;
	evidence->transport = reply->transport;
	evidence->transport.is_call = true;
	evidence->payload_json = "{}";
	payguard_sha256(reply->body != NULL ? reply->body : "",
					reply->body != NULL ? reply->body_length : 0, evidence->digest);
	return evidence;
}

/* Can no request have left?  The table in research part A decides, not the
 * curl code. */
static bool
nothing_left(const HttpReply *reply)
{
	return reply->transport.prereq_count == 0 ||
		(reply->transport.prereq_count == 1 && reply->aborted_by_us);
}

/* The body, in the form that the op expects; false when it is not. */
static bool
read_body(Reading *reading)
{
	const HttpReply *reply = reading->reply;
	const char *error;

	switch (reading->op->answer)
	{
		case ANSWER_HEADERS:
			return true;
		case ANSWER_FORM:
			if (reply->body != NULL)
				reading->scope.form = payguard_form_read(reply->body, reply->body_length);
			return true;
		case ANSWER_JSON:
			break;
	}
	/* 204 has no body by definition; anywhere else an empty one is a cut one. */
	if (reply->body_length == 0 && reply->transport.http_status == 204)
		return true;
	if (reply->body == NULL || reply->body_length == 0)
	{
		reading->evidence->note = "the answer has no body";
		return false;
	}
	reading->scope.json = payguard_json_read(reply->body, reply->body_length, &error);
	if (reading->scope.json == NULL)
		reading->evidence->note = psprintf("the answer's body is not readable: %s", error);
	return reading->scope.json != NULL;
}

/* When does the gateway want to be asked again? */
static void
read_retry_after(Reading *reading)
{
	const char *text = payguard_header_find(reading->scope.headers, reading->op->retry_header);
	const char *date = payguard_header_find(reading->scope.headers, "Date");
	int64		when;
	int64		now;
	int64		wait = 0;

	if (text == NULL ||
		!payguard_ranges_include(reading->op->retry_ranges, reading->op->retry_count,
								 reading->scope.http_status))
		return;
	if (text[0] != '\0' && strspn(text, "0123456789") == strlen(text))
		wait = strlen(text) <= 9 ? strtoll(text, NULL, 10) * 1000000 : MAX_RETRY_AFTER;
	else if (payguard_time_read_http(text, &when))
	{
		/* By the gateway's own clock, if it says it */
		if (date == NULL || !payguard_time_read_http(date, &now))
			now = GetCurrentTimestamp();
		wait = when - now;
	}
	reading->evidence->retry_after = Max(0, Min(wait, MAX_RETRY_AFTER));
}

static void
read_replayed(Reading *reading)
{
	const char *name = reading->gateway->adapter->replayed_header;
	const char *value = name != NULL ? payguard_header_find(reading->scope.headers, name) : NULL;

	if (value == NULL || pg_strcasecmp(value, "true") != 0)
		return;
	reading->evidence->replayed = true;
	if (reading->scope.http_status >= 500)
		reading->evidence->note = "the gateway repeats its stored error; sending again under this key would only repeat it";
}

/* Is one of the fields that were taken there twice? */
static const char *
find_ambiguous(const Fields *fields)
{
	int			i;

	for (i = 0; i < FIELD_COUNT; i++)
		if (fields->taken[i].ambiguous)
			return payguard_field_name(i);
	return NULL;
}

/* Does a taken text differ from the one that we know? */
static bool
differs(const Taken *taken, const char *known)
{
	return taken->present && known != NULL &&
		(taken->text == NULL || strcmp(taken->text, known) != 0);
}

/*
 * Why this answer does not speak of our purchase, or NULL.  An answer that is
 * about another one is never booked to ours, whatever it says.
 */
static const char *
find_stranger(const Reading *reading, const Rule *rule)
{
	const Taken *reference = &reading->fields.taken[FIELD_REFERENCE];
	bool		by_id = (reading->op->variables & (1u << VARIABLE_PROVIDER_ID)) != 0;

	if (rule->result == EVIDENCE_RESULT_UNKNOWN)
		return NULL;
	if (differs(reference, reading->asked->reference))
		return "the answer names another reference";
	if (rule->result == EVIDENCE_RESULT_NOT_FOUND)
		return NULL;
	if (reading->op->take.sources[FIELD_REFERENCE] != NULL && rule->echo && !reference->present)
		return "the answer does not name our reference";
	if (by_id && differs(&reading->fields.taken[FIELD_PROVIDER_ID], reading->asked->provider_id))
		return "the answer names another id than the one that was asked for";
	if (reading->evidence->is_refund &&
		differs(&reading->fields.taken[FIELD_CHARGE_ID], reading->asked->charge_id))
		return "the answer names another charge";
	return NULL;
}

/* Give the answer its meaning. */
static void
judge(Reading *reading)
{
	Evidence   *evidence = reading->evidence;
	const Rule *rule;
	const char *problem;

	payguard_fields_take(&reading->op->take, &reading->scope, &reading->fields);
	rule = payguard_rules_match(reading->op->rules, &reading->scope, &reading->fields);
	problem = find_ambiguous(&reading->fields);
	if (problem != NULL)
	{
		evidence->note = psprintf("the answer has \"%s\" twice", problem);
		evidence->needs_review = true;
		return;
	}
	problem = rule != NULL ? find_stranger(reading, rule) : NULL;
	if (problem != NULL)
	{
		evidence->note = problem;
		return;
	}

	/*
	 * Without a rule the answer is not understood: its ids and money may be
	 * anybody's.  A rule that says unknown may stand on somebody else's too.
	 */
	if (rule == NULL || (rule->result == EVIDENCE_RESULT_UNKNOWN &&
						 !(reading->fields.taken[FIELD_REFERENCE].present &&
						   !differs(&reading->fields.taken[FIELD_REFERENCE],
									reading->asked->reference))))
	{
		memset(&reading->fields.taken[FIELD_PROVIDER_ID], 0, sizeof(Taken));
		memset(&reading->fields.taken[FIELD_AMOUNT], 0, sizeof(Taken));
		memset(&reading->fields.taken[FIELD_CLIENT], 0, sizeof(Taken));
	}
	payguard_evidence_fill(evidence, reading->gateway, &reading->fields);
	if (evidence->is_refund && evidence->charge_id == NULL)
		evidence->charge_id = reading->asked->charge_id;
	if (rule == NULL)
	{
		if (evidence->note == NULL)
			evidence->note = "no rule of the adapter knows this answer";
		return;
	}
	evidence->result = rule->result;
	evidence->needs_review = rule->review;
	if (rule->code != NULL)
		evidence->code = rule->code;
}

static void
read_answer(Reading *reading)
{
	const HttpReply *reply = reading->reply;
	Evidence   *evidence = reading->evidence;

	if (nothing_left(reply))
	{
		evidence->result = EVIDENCE_RESULT_NOT_SENT;
		evidence->note = reply->error != NULL ? pstrdup(reply->error) : "no request left";
		return;
	}
	if (!reply->complete || reply->transport.prereq_count != 1 ||
		reply->transport.http_status < 200)
	{
		evidence->note = reply->transport.prereq_count > 1 ? "no answer came, and a second send was stopped" :
			reply->error != NULL ? pstrdup(reply->error) : "no complete answer came";
		return;
	}
	reading->op = payguard_operation_choose(reading->gateway, reading->asked);
	if (reading->op == NULL)
	{
		evidence->note = "the adapter does not define this call any more";
		return;
	}
	reading->scope.http_status = reply->transport.http_status;
	reading->scope.headers = payguard_headers_read(reply->headers, reply->headers_length);
	read_retry_after(reading);
	read_replayed(reading);
	if (read_body(reading))
		judge(reading);
}

/*
 * What does this answer say?  Raises no error: one that is met on the way (out
 * of memory) makes the answer unknown.
 */
Evidence *
payguard_answer_read(const Gateway *gateway, const CallFacts *asked, const HttpReply *reply)
{
	MemoryContext context = CurrentMemoryContext;
	Evidence   *evidence = start_evidence(gateway, asked, reply);
	Reading    *reading = palloc0(sizeof(Reading));

	reading->gateway = gateway;
	reading->asked = asked;
	reading->reply = reply;
	reading->evidence = evidence;
	PG_TRY();
	{
		read_answer(reading);
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		FlushErrorState();
		evidence = start_evidence(gateway, asked, reply);
		evidence->note = "the answer could not be read";
	}
	PG_END_TRY();
	return evidence;
}
