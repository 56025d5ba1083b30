/*-------------------------------------------------------------------------
 *
 * operation.c
 *	  The ops of an adapter: compiled from a document, chosen for a call.
 *
 * An op says what is sent, what is taken from the answer and what that means.
 * Which way of an op is chosen must follow from the call's facts alone, since
 * the answer is read by the rules of the way that was sent.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "gateway/adapter.h"

/* Headers of an op: name -> template. */
static List *
compile_headers(const Place *place)
{
	List	   *headers = NIL;
	JsonNode   *member;
	const unsigned allowed = ~(1u << VARIABLE_API_USER | 1u << VARIABLE_API_KEY);

	if (place->node->kind != JSON_KIND_OBJECT)
		payguard_place_refuse(place, "an object of header names and values");
	for (member = place->node->first; member != NULL; member = member->next)
	{
		Place		inner = payguard_place_member(place, member->name, member);
		HeaderTemplate *header = palloc(sizeof(HeaderTemplate));

		if (strspn(member->name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") !=
			strlen(member->name) || member->name[0] == '\0')
			payguard_place_refuse(&inner, "a header's name of letters, digits and dashes");
		header->name = member->name;
		header->value = payguard_template_compile(&inner, allowed);
		headers = lappend(headers, header);
	}
	return headers;
}

/* Method, path, headers and body. */
static void
compile_request(const Place *place, Operation *op)
{
	static const Word contents[] = {
		{"none", CONTENT_NONE}, {"json", CONTENT_JSON}, {"form", CONTENT_FORM},
		{"query", CONTENT_QUERY}, {NULL, 0}
	};
	static const Word methods[] = {
		{"GET", 0}, {"POST", 1}, {"PUT", 2}, {"PATCH", 3}, {"DELETE", 4}, {NULL, 0}
	};
	const unsigned allowed = ~(1u << VARIABLE_API_USER | 1u << VARIABLE_API_KEY |
							   1u << VARIABLE_PAYMENT);
	Place		member;

	if (!payguard_place_find(place, "method", &member))
		payguard_place_refuse(place, "a member \"method\"");
	op->method = methods[payguard_place_word(&member, "method", methods)].word;
	if (!payguard_place_find(place, "path", &member))
		payguard_place_refuse(place, "a member \"path\"");
	if (payguard_place_string(&member)[0] != '/')
		payguard_place_refuse(&member, "a path that begins with \"/\"");
	if (strpbrk(payguard_place_string(&member), " #\r\n\t") != NULL)
		payguard_place_refuse(&member, "a path without blanks and \"#\"");
	op->path = payguard_template_compile(&member, allowed);
	op->variables = op->path->variables;
	if (payguard_place_find(place, "content", &member))
		op->content = payguard_place_word(&member, "form", contents);
	if (payguard_place_find(place, "headers", &member))
		op->headers = compile_headers(&member);
	if (payguard_place_find(place, "body", &member))
	{
		if (op->content == CONTENT_NONE)
			payguard_place_refuse(&member, "\"content\" to say how the body is written");
		if (member.node->kind != JSON_KIND_OBJECT)
			payguard_place_refuse(&member, "an object");
		if (strcmp(op->method, "GET") == 0 && op->content != CONTENT_QUERY)
			payguard_place_refuse(&member, "\"content\": \"query\" for GET");
		op->body = payguard_body_compile(&member, op->content != CONTENT_JSON);
		op->variables |= payguard_body_variables(op->body);
	}
}

/* One way to make a call. */
static Operation *
compile_variant(const Place *place, CallOp kind)
{
	static const char *const names[] = {
		"method", "path", "content", "headers", "body", "answer", "take", "rules", "retry_after"
	};
	static const char *const retry_names[] = {"http", "header"};
	static const Word answers[] = {
		{"json", ANSWER_JSON}, {"form", ANSWER_FORM}, {"headers", ANSWER_HEADERS}, {NULL, 0}
	};
	static const HttpRange default_retry[] = {{429, 429}, {503, 503}};
	Operation  *op = palloc0(sizeof(Operation));
	Place		member;
	Place		inner;

	payguard_place_check_members(place, names, lengthof(names));
	compile_request(place, op);
	if (payguard_place_find(place, "answer", &member))
		op->answer = payguard_place_word(&member, "form", answers);
	if (payguard_place_find(place, "take", &member))
		payguard_take_compile(&member, &op->take);
	if (!payguard_place_find(place, "rules", &member))
		payguard_place_refuse(place, "a member \"rules\"");
	op->rules = payguard_rules_compile(&member, kind == CALL_REFUND || kind == CALL_REFUND_QUERY ?
									   RULES_OF_REFUND : RULES_OF_CHARGE, &op->take);

	op->retry_ranges = (HttpRange *) default_retry;
	op->retry_count = lengthof(default_retry);
	op->retry_header = "Retry-After";
	if (payguard_place_find(place, "retry_after", &member))
	{
		payguard_place_check_members(&member, retry_names, lengthof(retry_names));
		if (payguard_place_find(&member, "http", &inner))
			op->retry_ranges = payguard_ranges_compile(&inner, &op->retry_count);
		if (payguard_place_find(&member, "header", &inner))
			op->retry_header = payguard_place_string(&inner);
	}
	return op;
}

/* An op: one way, or a list of ways of which the first that can be filled counts. */
Operation *
payguard_operation_compile(const Place *place, CallOp kind)
{
	Operation  *first = NULL;
	Operation **link = &first;
	JsonNode   *element;
	int			index = 0;

	if (place->node->kind == JSON_KIND_OBJECT)
		return compile_variant(place, kind);
	if (place->node->kind != JSON_KIND_ARRAY || place->node->count == 0)
		payguard_place_refuse(place, "an object, or a list of objects");
	if (kind != CALL_QUERY && kind != CALL_REFUND_QUERY)
		payguard_place_refuse(place, "an object (only queries may be done in several ways)");
	for (element = place->node->first; element != NULL; element = element->next)
	{
		Place		inner = payguard_place_element(place, index++, element);

		*link = compile_variant(&inner, kind);
		link = &(*link)->next;
	}
	return first;
}

/*
 * The way to make this call: the first whose variables the facts fill.  Of a
 * body's variables only those that name the purchase count, for members
 * without a value are left out.  NULL when the adapter has no such op or no
 * way can be filled.
 */
const Operation *
payguard_operation_choose(const Gateway *gateway, const CallFacts *facts)
{
	const unsigned naming = 1u << VARIABLE_REFERENCE | 1u << VARIABLE_PROVIDER_ID;
	const Operation *op = gateway->adapter->ops[facts->op];
	RenderScope scope;

	scope.gateway = gateway;
	scope.facts = facts;
	for (; op != NULL; op = op->next)
		if (payguard_template_missing(&scope, op->path->variables |
									  (op->variables & (op->content == CONTENT_QUERY ? naming : 0))) == 0)
			return op;
	return NULL;
}
