/*-------------------------------------------------------------------------
 *
 * rule.c
 *	  Which fields are taken from an answer, and what they mean together.
 *
 * Rules are ordered and the first that matches wins.  There is no default
 * here: who asks decides what no match means, and it never means failed.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "gateway/adapter.h"

static const char *const field_names[FIELD_COUNT] = {
	"reference", "provider_id", "charge_id", "status", "type", "amount", "currency",
	"code", "message", "client", "fee", "occurred_at", "mode", "event_id"
};

const char *
payguard_field_name(Field field)
{
	return field_names[field];
}

/* The field of that name, or -1. */
static int
find_field(const char *name)
{
	int			i;

	for (i = 0; i < FIELD_COUNT; i++)
		if (strcmp(field_names[i], name) == 0)
			return i;
	return -1;
}

/* Compile a `take` object. */
void
payguard_take_compile(const Place *place, Take *take)
{
	JsonNode   *member;

	payguard_place_check_members(place, field_names, FIELD_COUNT);
	for (member = place->node->first; member != NULL; member = member->next)
	{
		Place		inner = payguard_place_member(place, member->name, member);
		int			field = find_field(member->name);

		take->sources[field] = payguard_source_compile(&inner);
		if (field == FIELD_OCCURRED_AT && !payguard_source_is_time(take->sources[field]))
			payguard_place_refuse(&inner, "a time: rfc3339(...), unix(...) or unix_ms(...)");
	}
}

/* Take what the document names. */
void
payguard_fields_take(const Take *take, const ReadScope *scope, Fields *fields)
{
	int			i;

	for (i = 0; i < FIELD_COUNT; i++)
		if (take->sources[i] != NULL)
			fields->taken[i] = payguard_source_take(take->sources[i], scope);
}

/* Read "200-299" or 402. */
static HttpRange
read_range(const Place *place)
{
	const char *text = payguard_json_scalar(place->node);
	HttpRange	range = {0, 0};
	char		after;
	int			count = 0;

	if (text !=NULL && strlen(text) <= 7)
		count = sscanf(text, "%3d-%3d%c", &range.low, &range.high, &after);
	if (count == 1 && strlen(text) == 3)
		range.high = range.low;
	else if (count != 2 || strlen(text) != 7)
		range.low = 0;
	if (range.low < 100 || range.high > 599 || range.high < range.low)
		payguard_place_refuse(place, "an HTTP status such as 402, or a range such as \"200-299\"");
	return range;
}

/* One HTTP status or range, or a list of them. */
HttpRange *
payguard_ranges_compile(const Place *place, int *count)
{
	HttpRange  *ranges;
	JsonNode   *element;

	if (place->node->kind != JSON_KIND_ARRAY)
	{
		ranges = palloc(sizeof(HttpRange));
		ranges[0] = read_range(place);
		*count = 1;
		return ranges;
	}
	ranges = palloc(sizeof(HttpRange) * (place->node->count + 1));
	*count = 0;
	for (element = place->node->first; element != NULL; element = element->next)
	{
		Place		inner = payguard_place_element(place, *count, element);

		ranges[(*count)++] = read_range(&inner);
	}
	return ranges;
}

bool
payguard_ranges_include(const HttpRange *ranges, int count, int status)
{
	int			i;

	for (i = 0; i < count; i++)
		if (status >= ranges[i].low && status <= ranges[i].high)
			return true;
	return false;
}

/* What a condition's value must be: a word, or one of a list. */
static void
compile_values(const Place *place, Condition *condition)
{
	JsonNode   *element;

	if (place->node->kind == JSON_KIND_STRING && strcmp(place->node->text, "present") == 0)
		condition->test = CONDITION_PRESENT;
	else if (place->node->kind == JSON_KIND_STRING && strcmp(place->node->text, "absent") == 0)
		condition->test = CONDITION_ABSENT;
	else if (payguard_json_scalar(place->node) != NULL)
	{
		condition->values = palloc(sizeof(char *));
		condition->values[condition->count++] = payguard_json_scalar(place->node);
	}
	else if (place->node->kind == JSON_KIND_ARRAY && place->node->count > 0)
	{
		condition->values = palloc(sizeof(char *) * place->node->count);
		for (element = place->node->first; element != NULL; element = element->next)
		{
			Place		inner = payguard_place_element(place, condition->count, element);

			if (payguard_json_scalar(element) == NULL)
				payguard_place_refuse(&inner, "a string, a number, true or false");
			condition->values[condition->count++] = payguard_json_scalar(element);
		}
	}
	else
		payguard_place_refuse(place, "a value, a list of values, \"present\" or \"absent\"");
}

/* A condition's name: http, a taken field, or a source. */
static void
compile_condition(const Place *place, const Take *take, Condition *condition)
{
	const char *name = place->node->name;
	int			field = find_field(name);

	memset(condition, 0, sizeof(Condition));
	condition->field = -1;
	if (strcmp(name, "http") == 0)
	{
		condition->is_http = true;
		condition->ranges = payguard_ranges_compile(place, &condition->count);
		return;
	}
	if (field >= 0)
	{
		if (take->sources[field] == NULL)
			payguard_place_refuse(place, psprintf("\"%s\" to be in \"take\"", name));
		condition->field = field;
	}
	else if (strchr(name, ':') != NULL || strchr(name, '(') != NULL)
	{
		JsonNode   *expression = palloc0(sizeof(JsonNode));
		Place		inner = *place;

		expression->kind = JSON_KIND_STRING;
		expression->text = name;
		inner.node = expression;
		condition->source = payguard_source_compile(&inner);
	}
	else
	{
		const char *words[FIELD_COUNT + 1];

		memcpy(words, field_names, sizeof(field_names));
		words[FIELD_COUNT] = "http";
		payguard_place_refuse_word(place, "condition", name, words, FIELD_COUNT + 1);
	}
	compile_values(place, condition);
}

/* The results that may stand in a rule there. */
static const Word *
result_words(RulePlace rule_place)
{
	static const Word charge[] = {
		{"paid", EVIDENCE_RESULT_PAID}, {"failed", EVIDENCE_RESULT_FAILED},
		{"closed", EVIDENCE_RESULT_CLOSED}, {"pending", EVIDENCE_RESULT_PENDING},
		{"unknown", EVIDENCE_RESULT_UNKNOWN}, {"not_found", EVIDENCE_RESULT_NOT_FOUND},
		{"reversed", EVIDENCE_RESULT_REVERSED}, {"reinstated", EVIDENCE_RESULT_REINSTATED},
		{NULL, 0}
	};
	static const Word refund[] = {
		{"succeeded", EVIDENCE_RESULT_SUCCEEDED}, {"failed", EVIDENCE_RESULT_FAILED},
		{"pending", EVIDENCE_RESULT_PENDING}, {"unknown", EVIDENCE_RESULT_UNKNOWN},
		{"not_found", EVIDENCE_RESULT_NOT_FOUND}, {NULL, 0}
	};
	static const Word webhook[] = {
		{"paid", EVIDENCE_RESULT_PAID}, {"failed", EVIDENCE_RESULT_FAILED},
		{"closed", EVIDENCE_RESULT_CLOSED}, {"pending", EVIDENCE_RESULT_PENDING},
		{"unknown", EVIDENCE_RESULT_UNKNOWN}, {"reversed", EVIDENCE_RESULT_REVERSED},
		{"reinstated", EVIDENCE_RESULT_REINSTATED}, {"succeeded", EVIDENCE_RESULT_SUCCEEDED},
		{"ignored", -1}, {NULL, 0}
	};

	switch (rule_place)
	{
		case RULES_OF_CHARGE:
			return charge;
		case RULES_OF_REFUND:
			return refund;
		case RULES_OF_WEBHOOK:
			break;
	}
	return webhook;
}

/* What a rule leads to, apart from its conditions. */
static void
compile_consequence(const Place *place, RulePlace rule_place, Rule *rule)
{
	static const Word abouts[] = {{"charge", false}, {"refund", true}, {NULL, 0}};
	Place		member;
	int			result;

	if (!payguard_place_find(place, "then", &member))
		payguard_place_refuse(place, "a member \"then\"");
	result = payguard_place_word(&member, "result", result_words(rule_place));
	rule->ignore = (result < 0);
	rule->result = rule->ignore ? EVIDENCE_RESULT_UNKNOWN : (EvidenceResult) result;
	rule->about_refund = (rule_place == RULES_OF_REFUND ||
						  rule->result == EVIDENCE_RESULT_SUCCEEDED);
	if (payguard_place_find(place, "about", &member))
	{
		if (rule_place != RULES_OF_WEBHOOK)
			payguard_place_refuse(&member, "\"about\" in a webhook's rules only");
		rule->about_refund = payguard_place_word(&member, "word", abouts);
	}
	rule->echo = true;
	if (payguard_place_find(place, "echo", &member))
		rule->echo = payguard_place_boolean(&member);
	if (!rule->echo && rule->result != EVIDENCE_RESULT_FAILED)
		payguard_place_refuse(&member, "\"echo\": false with \"then\": \"failed\" only");
	if (payguard_place_find(place, "review", &member))
		rule->review = payguard_place_boolean(&member);
	if (payguard_place_find(place, "code", &member))
		rule->code = payguard_place_string(&member);
}

static Rule *
compile_rule(const Place *place, RulePlace rule_place, const Take *take)
{
	static const char *const names[] = {
		"if", "then", "about", "echo", "review", "code", "take"
	};
	Rule	   *rule = palloc0(sizeof(Rule));
	Place		member;
	JsonNode   *condition;

	payguard_place_check_members(place, names, lengthof(names));
	compile_consequence(place, rule_place, rule);
	if (payguard_place_find(place, "take", &member))
		payguard_take_compile(&member, &rule->take);
	if (!payguard_place_find(place, "if", &member) || member.node->kind != JSON_KIND_OBJECT ||
		member.node->count == 0)
		payguard_place_refuse(place, "a member \"if\" with at least one condition");
	rule->conditions = palloc(sizeof(Condition) * member.node->count);
	for (condition = member.node->first; condition != NULL; condition = condition->next)
	{
		Place		inner = payguard_place_member(&member, condition->name, condition);

		compile_condition(&inner, take, &rule->conditions[rule->count++]);
	}
	return rule;
}

/* Compile the list of rules. */
Rule *
payguard_rules_compile(const Place *place, RulePlace rule_place, const Take *take)
{
	Rule	   *first = NULL;
	Rule	  **link = &first;
	JsonNode   *element;
	int			index = 0;

	if (place->node->kind != JSON_KIND_ARRAY || place->node->count == 0)
		payguard_place_refuse(place, "a list of rules");
	for (element = place->node->first; element != NULL; element = element->next)
	{
		Place		inner = payguard_place_element(place, index++, element);

		*link = compile_rule(&inner, rule_place, take);
		link = &(*link)->next;
	}
	return first;
}

static bool
condition_holds(const Condition *condition, const ReadScope *scope, const Fields *fields)
{
	Taken		taken;
	int			i;

	if (condition->is_http)
		return payguard_ranges_include(condition->ranges, condition->count, scope->http_status);
	if (condition->field >= 0)
		taken = fields->taken[condition->field];
	else
		taken = payguard_source_take(condition->source, scope);
	if (taken.ambiguous)
		return false;
	if (condition->test != CONDITION_IS_ONE_OF)
		return taken.present == (condition->test == CONDITION_PRESENT);
	for (i = 0; taken.text !=NULL && i < condition->count; i++)
		if (strcmp(taken.text, condition->values[i]) == 0)
			return true;
	return false;
}

/*
 * The first rule that matches, or NULL.  The fields that the rule itself
 * takes replace those of the op.
 */
const Rule *
payguard_rules_match(const Rule *rules, const ReadScope *scope, Fields *fields)
{
	const Rule *rule;
	int			i;

	for (rule = rules; rule != NULL; rule = rule->next)
	{
		for (i = 0; i < rule->count; i++)
			if (!condition_holds(&rule->conditions[i], scope, fields))
				break;
		if (i == rule->count)
		{
			payguard_fields_take(&rule->take, scope, fields);
			return rule;
		}
	}
	return NULL;
}

/* Does any rule name this type? */
bool
payguard_rules_know_type(const Rule *rules, const char *type)
{
	const Rule *rule;
	int			i;
	int			j;

	for (rule = rules; rule != NULL; rule = rule->next)
		for (i = 0; i < rule->count; i++)
			for (j = 0; rule->conditions[i].field == FIELD_TYPE &&
				 j < rule->conditions[i].count; j++)
				if (strcmp(rule->conditions[i].values[j], type) == 0)
					return true;
	return false;
}
