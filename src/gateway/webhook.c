/*-------------------------------------------------------------------------
 *
 * webhook.c
 *	  What does a callback say?
 *
 * First the signature over the bytes as they came, then their meaning.  What
 * is not signed is never looked at further and never stored; what is signed
 * and not understood is kept for a person.  Nothing that a sender writes may
 * raise an error.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "core/errcode.h"
#include "gateway/adapter.h"

#define MAX_ITEMS	1000

/* A callback that is being read. */
typedef struct Callback
{
	const Gateway *gateway;
	const WebhookSpec *spec;
	ReadScope	scope;			/* json: the item's */
	SignedMessage message;
	WebhookReading *reading;
} Callback;

/* One name with its value, or with an array of them. */
static List *
append_header(List *headers, char *name, JsonbValue *value)
{
	JsonbIterator *iterator;
	JsonbValue	element;
	JsonbIteratorToken token;
	NameValue  *header;

	if (value->type == jbvBinary && JsonContainerIsArray(value->val.binary.data))
	{
		iterator = JsonbIteratorInit(value->val.binary.data);
		while ((token = JsonbIteratorNext(&iterator, &element, true)) != WJB_DONE)
			if (token == WJB_ELEM && element.type == jbvString)
				headers = append_header(headers, name, &element);
		return headers;
	}
	if (value->type != jbvString)
		return headers;
	header = palloc(sizeof(NameValue));
	header->name = name;
	header->value = pnstrdup(value->val.string.val, value->val.string.len);
	return lappend(headers, header);
}

/* The headers of a JSON object; NIL when it is none. */
static List *
read_headers(Jsonb *jsonb)
{
	List	   *headers = NIL;
	JsonbIterator *iterator;
	JsonbValue	key;
	JsonbValue	value;

	if (jsonb == NULL || !JB_ROOT_IS_OBJECT(jsonb))
		return NIL;
	iterator = JsonbIteratorInit(&jsonb->root);
	if (JsonbIteratorNext(&iterator, &key, true) != WJB_BEGIN_OBJECT)
		return NIL;
	while (JsonbIteratorNext(&iterator, &key, true) == WJB_KEY)
	{
		(void) JsonbIteratorNext(&iterator, &value, true);
		headers = append_header(headers, pnstrdup(key.val.string.val, key.val.string.len),
								&value);
	}
	return headers;
}

static WebhookItem *
add_item(Callback *callback, WebhookOutcome outcome, const char *reason)
{
	WebhookItem *item = palloc0(sizeof(WebhookItem));

	item->outcome = outcome;
	item->reason = reason;
	callback->reading->items = lappend(callback->reading->items, item);
	return item;
}

/* The fact of a signed item, as far as the bytes alone tell it. */
static Evidence *
start_evidence(const Callback *callback, const char *bytes, size_t length)
{
	Evidence   *evidence = palloc0(sizeof(Evidence));

	evidence->source = EVIDENCE_SOURCE_CALLBACK;
	evidence->result = EVIDENCE_RESULT_UNKNOWN;
	evidence->gateway = callback->gateway->name;
	evidence->mode = MODE_NOT_TOLD;
	evidence->payload_json = "{}";
	payguard_sha256(bytes, length, evidence->digest);
	return evidence;
}

/* An event id for gateways that send none: the same bytes, the same event. */
static void
ensure_event_id(Evidence *evidence)
{
	char		hex[SHA256_SIZE * 2 + 1];

	if (evidence->event_id != NULL)
		return;
	payguard_hex_encode(evidence->digest, SHA256_SIZE, hex);
	evidence->event_id = psprintf("sha256:%s", hex);
}

static void
add_unreadable(Callback *callback, Evidence *evidence, const char *reason)
{
	WebhookItem *item = add_item(callback, WEBHOOK_UNREADABLE, reason);

	evidence->is_unreadable = true;
	evidence->needs_review = true;
	evidence->result = EVIDENCE_RESULT_UNKNOWN;
	evidence->note = reason;
	ensure_event_id(evidence);
	item->evidence = evidence;
}

/* Is one of the fields that were taken there twice? */
static bool
is_ambiguous(const Fields *fields)
{
	int			i;

	for (i = 0; i < FIELD_COUNT; i++)
		if (fields->taken[i].ambiguous)
			return true;
	return false;
}

/* Read one signed item. */
static void
read_item(Callback *callback, const char *bytes, size_t length)
{
	const WebhookSpec *spec = callback->spec;
	Evidence   *evidence = start_evidence(callback, bytes, length);
	Fields		fields;
	const Rule *rule;
	const Taken *type = &fields.taken[FIELD_TYPE];
	const Taken *reference = &fields.taken[FIELD_REFERENCE];

	memset(&fields, 0, sizeof(fields));
	payguard_fields_take(&spec->take, &callback->scope, &fields);
	rule = payguard_rules_match(spec->rules, &callback->scope, &fields);
	if (rule != NULL && rule->ignore)
	{
		add_item(callback, WEBHOOK_IGNORED, "the adapter ignores this kind of callback");
		return;
	}
	if (rule == NULL && type->text !=NULL && !payguard_rules_know_type(spec->rules, type->text))
	{
		add_item(callback, WEBHOOK_IGNORED, "the adapter has no rule for this type");
		return;
	}
	payguard_evidence_fill(evidence, callback->gateway, &fields);
	if (reference->text !=NULL && reference->text[0] != '\0' &&
		strlen(reference->text) < GATEWAY_REFERENCE_SIZE)
		evidence->gateway_reference = reference->text;
	if (is_ambiguous(&fields))
	{
		add_unreadable(callback, evidence, "a member that counts is there twice");
		return;
	}
	if (rule == NULL)
	{
		add_unreadable(callback, evidence, "type and status do not agree with any rule of the adapter");
		return;
	}
	if (evidence->gateway_reference == NULL && evidence->provider_id == NULL &&
		evidence->charge_id == NULL)
	{
		add_unreadable(callback, evidence, "it names neither a reference nor an id");
		return;
	}
	evidence->result = rule->result;
	evidence->is_refund = rule->about_refund;
	evidence->needs_review = rule->review;
	evidence->is_hint = spec->is_hint;
	if (rule->code != NULL)
		evidence->code = rule->code;
	ensure_event_id(evidence);
	add_item(callback, WEBHOOK_EVIDENCE, NULL)->evidence = evidence;
}

/* Read the elements of a batch, each with its own signature if it carries one. */
static void
read_items(Callback *callback, JsonNode *root)
{
	const WebhookSpec *spec = callback->spec;
	JsonNode   *list = NULL;
	JsonNode   *element;
	const char *refused = NULL;

	if (payguard_json_find(root, spec->items, &list) != JSON_LOOKUP_FOUND ||
		list->kind != JSON_KIND_ARRAY || list->count == 0 || list->count > MAX_ITEMS)
	{
		if (spec->signature.by_item && !spec->signature.none)
			add_item(callback, WEBHOOK_REFUSED, "there is no item that could be signed");
		else
			add_unreadable(callback, start_evidence(callback, callback->message.body,
													callback->message.body_length),
						   "the list of items is missing, empty or too long");
		return;
	}
	for (element = list->first; element != NULL; element = element->next)
	{
		JsonNode   *item = element;

		if (spec->item != NULL &&
			payguard_json_find(element, spec->item, &item) != JSON_LOOKUP_FOUND)
			item = element;
		callback->scope.json = item;
		if (spec->signature.by_item)
			refused = payguard_signature_check(&spec->signature,
											   callback->gateway->webhook_secrets,
											   &callback->message);
		if (refused != NULL)
			add_item(callback, WEBHOOK_REFUSED, refused);
		else
			read_item(callback, item->raw, item->raw_length);
	}
}

/* Read the body: whole, or as a batch. */
static void
read_body(Callback *callback)
{
	const WebhookSpec *spec = callback->spec;
	const char *refused = NULL;
	const char *error = NULL;

	/* Before anything else: nothing is believed of what is not signed. */
	if (!spec->signature.by_item)
		refused = payguard_signature_check(&spec->signature, callback->gateway->webhook_secrets,
										   &callback->message);
	if (refused != NULL)
	{
		add_item(callback, WEBHOOK_REFUSED, refused);
		return;
	}
	if (!spec->is_form)
		callback->scope.json = payguard_json_read(callback->message.body,
												  callback->message.body_length, &error);
	if (spec->signature.by_item && spec->items == NULL && callback->scope.json != NULL)
		refused = payguard_signature_check(&spec->signature, callback->gateway->webhook_secrets,
										   &callback->message);
	if (refused != NULL || (error != NULL && spec->signature.by_item))
		add_item(callback, WEBHOOK_REFUSED, refused != NULL ? refused : "the signature is missing");
	else if (error != NULL)
		add_unreadable(callback, start_evidence(callback, callback->message.body,
												callback->message.body_length),
					   psprintf("the body is not readable: %s", error));
	else if (spec->items != NULL)
		read_items(callback, callback->scope.json);
	else
		read_item(callback, callback->message.body, callback->message.body_length);
}

/* The parameters of a callback's address. */
static List *
read_query(const char *url)
{
	const char *start = url != NULL ? strchr(url, '?') : NULL;

	return start != NULL ? payguard_form_read(start + 1, strcspn(start + 1, "#")) : NIL;
}

/*
 * Read a callback.  PG004 when the adapter has no webhook or the gateway no
 * secret; everything that the sender wrote ends as an item.
 */
WebhookReading *
payguard_webhook_read(const Gateway *gateway, Jsonb *headers, const bytea *body,
					  const char *url, int64 now)
{
	const WebhookSpec *spec = gateway->adapter->webhook;
	Callback	callback;

	if (spec == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_PAYGUARD_GATEWAY),
				 errmsg("gateway \"%s\" sends no callbacks", gateway->name),
				 errdetail("Its adapter \"%s\" does not define any.", gateway->adapter_name)));
	if (!spec->signature.none && gateway->webhook_secrets == NIL)
		ereport(ERROR,
				(errcode(ERRCODE_PAYGUARD_GATEWAY),
				 errmsg("gateway \"%s\" has no webhook secret", gateway->name),
				 errhint("Set the option webhook_secret or webhook_secret_file in the user mapping for PUBLIC on server \"%s\".",
						 gateway->name)));

	memset(&callback, 0, sizeof(callback));
	callback.gateway = gateway;
	callback.spec = spec;
	callback.reading = palloc0(sizeof(WebhookReading));
	callback.reading->ack_status = spec->ack_status;
	callback.reading->ack_body = spec->ack_body;
	callback.reading->refuse_status = spec->refuse_status;
	callback.scope.headers = read_headers(headers);
	callback.scope.query = read_query(url);
	callback.message.scope = &callback.scope;
	callback.message.body = VARDATA_ANY(body);
	callback.message.body_length = VARSIZE_ANY_EXHDR(body);
	callback.message.url = url != NULL ? url : gateway->webhook_url;
	callback.message.now = now;
	if (spec->is_form)
		callback.scope.form = payguard_form_read(callback.message.body,
												 callback.message.body_length);
	read_body(&callback);
	return callback.reading;
}
