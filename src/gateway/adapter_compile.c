/*-------------------------------------------------------------------------
 *
 * adapter_compile.c
 *	  From an adapter document to an Adapter.
 *
 * Everything that could go wrong with a document must go wrong here, with its
 * path, and nothing later.  Nothing is looked up: the document is all there is.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <ctype.h>

#include "catalog/pg_collation.h"
#include "core/errcode.h"
#include "gateway/adapter.h"
#include "mb/pg_wchar.h"

#define DEFAULT_SETTLES INT64CONST(60000000)
#define DEFAULT_PATTERN "^[0-9A-Za-z._-]{1,64}$"

static void
compile_auth(const Place *document, Adapter *adapter)
{
	static const char *const names[] = {"kind", "name", "value", "fields"};
	static const Word kinds[] = {
		{"none", AUTH_NONE}, {"bearer", AUTH_BEARER}, {"basic", AUTH_BASIC},
		{"header", AUTH_HEADER}, {"form", AUTH_FORM}, {NULL, 0}
	};
	const unsigned allowed = 1u << VARIABLE_API_USER | 1u << VARIABLE_API_KEY;
	Place		auth;
	Place		member;
	JsonNode   *field;

	if (!payguard_place_find(document, "auth", &auth))
		payguard_place_refuse(document, "a member \"auth\"");
	payguard_place_check_members(&auth, names, lengthof(names));
	if (!payguard_place_find(&auth, "kind", &member))
		payguard_place_refuse(&auth, "a member \"kind\"");
	adapter->auth = payguard_place_word(&member, "kind", kinds);
	if (adapter->auth == AUTH_HEADER)
	{
		if (!payguard_place_find(&auth, "name", &member))
			payguard_place_refuse(&auth, "a member \"name\" with the header's name");
		adapter->auth_header = payguard_place_string(&member);
		if (!payguard_place_find(&auth, "value", &member))
			payguard_place_refuse(&auth, "a member \"value\" such as \"{api_key}\"");
		adapter->auth_value = payguard_template_compile(&member, allowed);
	}
	if (adapter->auth == AUTH_FORM)
	{
		if (!payguard_place_find(&auth, "fields", &member) ||
			member.node->kind != JSON_KIND_OBJECT)
			payguard_place_refuse(&auth, "an object \"fields\"");
		for (field = member.node->first; field != NULL; field = field->next)
		{
			Place		inner = payguard_place_member(&member, field->name, field);
			HeaderTemplate *entry = palloc(sizeof(HeaderTemplate));

			entry->name = field->name;
			entry->value = payguard_template_compile(&inner, allowed);
			adapter->auth_fields = lappend(adapter->auth_fields, entry);
		}
	}
}

/* Compile the reference's pattern, which must not need any catalog. */
static void
compile_pattern(const Place *place, Adapter *adapter)
{
	int			length = strlen(adapter->reference_pattern);
	pg_wchar   *wide = palloc(sizeof(pg_wchar) * (length + 1));
	int			wide_length = pg_mb2wchar_with_len(adapter->reference_pattern, wide, length);
	int			code = pg_regcomp(&adapter->reference_regex, wide, wide_length,
								  REG_ADVANCED | REG_NOSUB, C_COLLATION_OID);

	if (code != REG_OKAY)
	{
		char		message[100];

		pg_regerror(code, &adapter->reference_regex, message, sizeof(message));
		payguard_place_refuse(place, psprintf("a regular expression (%s)", message));
	}
}

static void
compile_reference(const Place *document, Adapter *adapter)
{
	static const char *const names[] = {"pattern", "unique", "retry_suffix"};
	static const Word uniques[] = {{"none", false}, {"forever", true}, {NULL, 0}};
	Place		reference;
	Place		member;

	adapter->reference_pattern = DEFAULT_PATTERN;
	adapter->retry_suffix = DEFAULT_RETRY_SUFFIX;
	if (!payguard_place_find(document, "reference", &reference))
		reference = payguard_place_member(document, "reference", document->node);
	else
	{
		payguard_place_check_members(&reference, names, lengthof(names));
		if (payguard_place_find(&reference, "unique", &member))
			adapter->reference_unique = payguard_place_word(&member, "word", uniques);
		if (payguard_place_find(&reference, "retry_suffix", &member))
		{
			adapter->retry_suffix = payguard_place_string(&member);
			if (strlen(adapter->retry_suffix) >= RETRY_SUFFIX_SIZE)
				payguard_place_refuse(&member, "at most 8 characters");
			/* "A", "2", 3 and "A", "", 23 would be the same reference. */
			if (isdigit((unsigned char) adapter->retry_suffix[strlen(adapter->retry_suffix) - 1]))
				payguard_place_refuse(&member, "no digit at its end, where the attempt's number follows");
		}
		if (payguard_place_find(&reference, "pattern", &member))
		{
			adapter->reference_pattern = payguard_place_string(&member);
			reference = member;
		}
	}
	compile_pattern(&reference, adapter);
}

static void
compile_idempotency(const Place *document, Adapter *adapter)
{
	static const char *const names[] = {"in", "name", "quoted", "live", "replayed_header"};
	static const Word places[] = {
		{"none", KEY_PLACE_NONE}, {"header", KEY_PLACE_HEADER}, {"body", KEY_PLACE_BODY},
		{NULL, 0}
	};
	Place		idempotency;
	Place		member;

	if (!payguard_place_find(document, "idempotency", &idempotency))
		return;
	payguard_place_check_members(&idempotency, names, lengthof(names));
	if (!payguard_place_find(&idempotency, "in", &member))
		payguard_place_refuse(&idempotency, "a member \"in\"");
	adapter->key_place = payguard_place_word(&member, "place", places);
	if (payguard_place_find(&idempotency, "replayed_header", &member))
		adapter->replayed_header = payguard_place_string(&member);
	if (adapter->key_place == KEY_PLACE_NONE)
		return;
	if (!payguard_place_find(&idempotency, "name", &member))
		payguard_place_refuse(&idempotency, "a member \"name\"");
	adapter->key_name = payguard_place_string(&member);
	if (!payguard_place_find(&idempotency, "live", &member))
		payguard_place_refuse(&idempotency, "a member \"live\", how long the gateway keeps a key");
	adapter->key_live = payguard_place_duration(&member);
	if (payguard_place_find(&idempotency, "quoted", &member))
		adapter->key_quoted = payguard_place_boolean(&member);
}

static void
compile_amount(const Place *document, Adapter *adapter)
{
	static const char *const names[] = {"as", "decimals"};
	static const Word forms[] = {
		{"minor", AMOUNT_MINOR}, {"decimal", AMOUNT_DECIMAL}, {"number", AMOUNT_NUMBER}, {NULL, 0}
	};
	static const Word cases[] = {{"upper", false}, {"lower", true}, {NULL, 0}};
	Place		amount;
	Place		member;

	adapter->decimals = -1;
	if (!payguard_place_find(document, "amount", &amount))
		payguard_place_refuse(document, "a member \"amount\"");
	payguard_place_check_members(&amount, names, lengthof(names));
	if (!payguard_place_find(&amount, "as", &member))
		payguard_place_refuse(&amount, "a member \"as\"");
	adapter->amount_form = payguard_place_word(&member, "form", forms);
	if (payguard_place_find(&amount, "decimals", &member) &&
		!(member.node->kind == JSON_KIND_STRING && strcmp(member.node->text, "iso4217") == 0))
		adapter->decimals = payguard_place_integer(&member, 0, 6);
	if (payguard_place_find(document, "currency_case", &member))
		adapter->currency_lower = payguard_place_word(&member, "word", cases);
}

static void
compile_ops(const Place *document, Adapter *adapter)
{
	static const char *const names[] = {"charge", "query", "refund", "refund_query", "close"};
	static const CallOp kinds[] = {
		CALL_CHARGE, CALL_QUERY, CALL_REFUND, CALL_REFUND_QUERY, CALL_CLOSE
	};
	Place		ops;
	Place		member;
	size_t		i;
	Operation  *charge;

	if (!payguard_place_find(document, "ops", &ops))
		payguard_place_refuse(document, "a member \"ops\"");
	payguard_place_check_members(&ops, names, lengthof(names));
	for (i = 0; i < lengthof(names); i++)
		if (payguard_place_find(&ops, names[i], &member))
			adapter->ops[kinds[i]] = payguard_operation_compile(&member, kinds[i]);

	charge = adapter->ops[CALL_CHARGE];
	if (charge == NULL)
	{
		if (!adapter->charge_by_application)
			payguard_place_refuse(&ops, "a member \"charge\" (or \"charge_by\": \"application\")");
	}
	else if (!(charge->variables & (1u << VARIABLE_REFERENCE)) ||
			 !(charge->variables & (1u << VARIABLE_AMOUNT)))
	{
		member = payguard_place_member(&ops, "charge", ops.node);
		payguard_place_refuse(&member, "{reference} and {amount} in the charge's path or body");
	}
}

/* Does a way to query use this variable, and not the other? */
static bool
can_query_by(const Adapter *adapter, Variable by, Variable without)
{
	const Operation *op;

	for (op = adapter->ops[CALL_QUERY]; op != NULL; op = op->next)
		if ((op->variables & (1u << by)) && !(op->variables & (1u << without)))
			return true;
	return false;
}

/* A strategy that the rest of the document does not carry is refused. */
static void
check_strategy(const Place *place, const Adapter *adapter, int strategy)
{
	if (strategy == STRATEGY_QUERY_ID &&
		!can_query_by(adapter, VARIABLE_PROVIDER_ID, VARIABLE_NONE))
		payguard_place_refuse(place, "an op \"query\" that uses {provider_id}");
	if (strategy == STRATEGY_QUERY_REFERENCE &&
		!can_query_by(adapter, VARIABLE_REFERENCE, VARIABLE_PROVIDER_ID))
		payguard_place_refuse(place, "an op \"query\" that uses {reference} and no {provider_id}");
	if (strategy == STRATEGY_REPLAY && adapter->key_place == KEY_PLACE_NONE &&
		!adapter->reference_unique)
		payguard_place_refuse(place, "an idempotency key or a unique reference with \"replay\"");
	if (strategy == STRATEGY_CLOSE && adapter->ops[CALL_CLOSE] == NULL)
		payguard_place_refuse(place, "an op \"close\"");
	if (strategy == STRATEGY_WEBHOOK && adapter->webhook == NULL)
		payguard_place_refuse(place, "a member \"webhook\" in the document");
}

static void
compile_unknown(const Place *document, Adapter *adapter)
{
	static const char *const names[] = {
		"strategies", "not_found_settles", "not_found_is_proof"
	};
	static const Word strategies[] = {
		{"query_id", STRATEGY_QUERY_ID}, {"query_reference", STRATEGY_QUERY_REFERENCE},
		{"replay", STRATEGY_REPLAY}, {"close", STRATEGY_CLOSE}, {"webhook", STRATEGY_WEBHOOK},
		{"none", 0}, {NULL, 0}
	};
	Place		unknown;
	Place		member;
	JsonNode   *element;
	int			index = 0;

	adapter->not_found_settles = DEFAULT_SETTLES;
	if (!payguard_place_find(document, "unknown", &unknown))
		payguard_place_refuse(document, "a member \"unknown\": what to do when an answer is lost");
	payguard_place_check_members(&unknown, names, lengthof(names));
	if (!payguard_place_find(&unknown, "strategies", &member) ||
		member.node->kind != JSON_KIND_ARRAY || member.node->count == 0)
		payguard_place_refuse(&unknown, "a list \"strategies\"");
	for (element = member.node->first; element != NULL; element = element->next)
	{
		Place		inner = payguard_place_element(&member, index++, element);
		int			strategy = payguard_place_word(&inner, "strategy", strategies);

		if (strategy == 0 && member.node->count > 1)
			payguard_place_refuse(&inner, "\"none\" to stand alone");
		check_strategy(&inner, adapter, strategy);
		adapter->strategies |= strategy;
	}
	if (payguard_place_find(&unknown, "not_found_settles", &member))
		adapter->not_found_settles = payguard_place_duration(&member);
	if (payguard_place_find(&unknown, "not_found_is_proof", &member))
		adapter->not_found_is_proof = payguard_place_boolean(&member);
}

/*
 * Compile a document in the current memory context.  PG008 says where it is
 * wrong and what was expected.
 */
Adapter *
payguard_adapter_compile(const char *name, const char *spec, size_t length)
{
	static const char *const names[] = {
		"description", "auth", "reference", "idempotency", "amount", "currency_case",
		"charge_by", "ops", "unknown", "webhook", "settlement"
	};
	static const Word charge_bys[] = {{"worker", false}, {"application", true}, {NULL, 0}};
	Adapter    *adapter = palloc0(sizeof(Adapter));
	const char *error;
	char	   *copy = palloc(length + 1);
	Place		document;
	Place		member;

	/* Not pnstrdup(): a NUL in it is for the reader to refuse. */
	memcpy(copy, spec, length);
	copy[length] = '\0';
	document.adapter = adapter->name = pstrdup(name);
	document.path = "";
	document.node = payguard_json_read(copy, length, &error);
	if (document.node == NULL)
		payguard_place_refuse(&document, psprintf("a JSON document; %s", error));
	payguard_place_check_members(&document, names, lengthof(names));
	if (payguard_place_find(&document, "charge_by", &member))
		adapter->charge_by_application = payguard_place_word(&member, "word", charge_bys);
	compile_auth(&document, adapter);
	compile_reference(&document, adapter);
	compile_idempotency(&document, adapter);
	compile_amount(&document, adapter);
	compile_ops(&document, adapter);
	if (payguard_place_find(&document, "webhook", &member))
		adapter->webhook = payguard_webhook_compile(&member);
	compile_unknown(&document, adapter);
	if (payguard_place_find(&document, "settlement", &member))
		adapter->settlement = member.node;
	return adapter;
}
