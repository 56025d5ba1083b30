/*-------------------------------------------------------------------------
 *
 * template.c
 *	  Text with variables: compiled from a document, filled from a call.
 *
 * "{name}" is a variable, "{{" and "}}" are braces.  A value that is wrong
 * for its place must never get through: paths are percent-encoded here and
 * headers are checked by request.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "gateway/adapter.h"
#include "utils/builtins.h"
#include "utils/formatting.h"
#include "utils/numeric.h"

static const struct
{
	const char *name;
	Variable	variable;
}			variable_names[] = {
	{"reference", VARIABLE_REFERENCE},
	{"order_reference", VARIABLE_ORDER_REFERENCE},
	{"idempotency_key", VARIABLE_IDEMPOTENCY_KEY},
	{"amount", VARIABLE_AMOUNT},
	{"currency", VARIABLE_CURRENCY},
	{"provider_id", VARIABLE_PROVIDER_ID},
	{"charge_reference", VARIABLE_CHARGE_REFERENCE},
	{"charge_id", VARIABLE_CHARGE_ID},
	{"attempt_no", VARIABLE_ATTEMPT_NO},
	{"webhook_url", VARIABLE_WEBHOOK_URL},
	{"api_user", VARIABLE_API_USER},
	{"api_key", VARIABLE_API_KEY},
	{"payment", VARIABLE_PAYMENT},
	{"payment.NAME", VARIABLE_PAYMENT_MEMBER}
};

/* The variable of that name; VARIABLE_NONE when there is none. */
static Variable
find_variable(const char *name)
{
	size_t		i;

	if (strncmp(name, "payment.", 8) == 0 && name[8] != '\0')
		return VARIABLE_PAYMENT_MEMBER;
	for (i = 0; i < lengthof(variable_names); i++)
		if (strcmp(variable_names[i].name, name) == 0)
			return variable_names[i].variable;
	return VARIABLE_NONE;
}

/* Name of the first variable in the set, for messages. */
const char *
payguard_variable_name(unsigned variables)
{
	size_t		i;

	for (i = 0; i < lengthof(variable_names); i++)
		if (variables & (1 << variable_names[i].variable))
			return variable_names[i].name;
	return "";
}

static void
refuse_variable(const Place *place, const char *name, unsigned allowed)
{
	const char *names[lengthof(variable_names)];
	int			count = 0;
	size_t		i;

	for (i = 0; i < lengthof(variable_names); i++)
		if (allowed & (1 << variable_names[i].variable))
			names[count++] = variable_names[i].name;
	payguard_place_refuse_word(place, "variable", name, names, count);
}

static void
append_segment(Template *template, Segment ***link, Variable variable, char *text)
{
	Segment    *segment = palloc0(sizeof(Segment));

	segment->variable = variable;
	segment->text = text;

	**link = segment;
	*link = &segment->next;
	if (variable != VARIABLE_NONE)
		template->variables |= 1 << variable;
}

/*
 * Compile the string at this place.  Only variables in `allowed` (bits) may
 * be named.
 */
Template *
payguard_template_compile(const Place *place, unsigned allowed)
{
	const char *p = payguard_place_string(place);
	Template   *template = palloc0(sizeof(Template));
	Segment   **link = &template->first;
	StringInfoData plain;

	initStringInfo(&plain);
	while (*p != '\0')
	{
		size_t		length;
		char	   *name;
		Variable	variable;

		if ((p[0] == '{' && p[1] == '{') || (p[0] == '}' && p[1] == '}'))
		{
			appendStringInfoChar(&plain, *p);
			p += 2;
			continue;
		}
		if (*p == '}')
			payguard_place_refuse(place, "\"{\" before \"}\" (write \"}}\" for a brace)");
		if (*p != '{')
		{
			appendStringInfoChar(&plain, *p++);
			continue;
		}
		length = strcspn(p, "}");
		if (p[length] == '\0')
			payguard_place_refuse(place, "\"}\" after \"{\" (write \"{{\" for a brace)");
		name = pnstrdup(p + 1, length - 1);
		variable = find_variable(name);
		if (variable == VARIABLE_NONE || !(allowed & (1 << variable)))
			refuse_variable(place, name, allowed);
		if (plain.len > 0)
			append_segment(template, &link, VARIABLE_NONE, pstrdup(plain.data));
		resetStringInfo(&plain);
		append_segment(template, &link, variable,
					   variable == VARIABLE_PAYMENT_MEMBER ? name + strlen("payment.") : NULL);
		p += length + 1;
	}
	if (plain.len > 0)
		append_segment(template, &link, VARIABLE_NONE, pstrdup(plain.data));
	pfree(plain.data);
	return template;
}

/* Name and text of a member of the payment object; NULL when it has none. */
static JsonbValue *
find_payment_member(const CallFacts *facts, const char *name)
{
	JsonbValue *value;

	if (facts->payment == NULL || !JB_ROOT_IS_OBJECT(facts->payment))
		return NULL;
	value = getKeyJsonValueFromContainer(&facts->payment->root, name, strlen(name), NULL);
	return (value != NULL && value->type != jbvNull) ? value : NULL;
}

/* Append a jsonb value as JSON. */
static void
write_jsonb_value(StringInfo out, JsonbValue *value)
{
	switch (value->type)
	{
		case jbvString:
			payguard_json_write_text(out, pnstrdup(value->val.string.val, value->val.string.len));
			break;
		case jbvNumeric:
			appendStringInfoString(out, numeric_normalize(value->val.numeric));
			break;
		case jbvBool:
			appendStringInfoString(out, value->val.boolean ? "true" : "false");
			break;
		case jbvBinary:
			(void) JsonbToCString(out, value->val.binary.data, value->val.binary.len);
			break;
		default:
			appendStringInfoString(out, "null");
			break;
	}
}

/* The amount as the adapter writes it, or NULL when there is none. */
static char *
amount_text(const RenderScope *scope)
{
	const Adapter *adapter = scope->gateway->adapter;
	const Money *money = &scope->facts->money;
	char text[	MONEY_TEXT_SIZE + 2];
	int			length;
	int			decimals = adapter->decimals;

	if (money->currency[0] == '\0')
		return NULL;
	if (decimals < 0)
		decimals = payguard_money_exponent(money->currency);
	if (!payguard_money_to_minor(money, decimals, text))
		return NULL;
	length = strlen(text);
	if (adapter->amount_form == AMOUNT_MINOR || decimals == 0)
		return pstrdup(text);
	if (length <= decimals)
		return psprintf("0.%.*s%s", decimals - length, "0000000000000000", text);
	return psprintf("%.*s.%s", length - decimals, text, text +length - decimals);
}

/* The text of a variable, or NULL when the call has no value for it. */
static const char *
variable_text(const RenderScope *scope, const Segment *segment)
{
	const CallFacts *facts = scope->facts;
	JsonbValue *member;
	StringInfoData out;

	switch (segment->variable)
	{
		case VARIABLE_NONE:
			return segment->text;
		case VARIABLE_REFERENCE:
			return facts->reference;
		case VARIABLE_ORDER_REFERENCE:
			return facts->order_reference;
		case VARIABLE_IDEMPOTENCY_KEY:
			return facts->idempotency_key;
		case VARIABLE_AMOUNT:
			return amount_text(scope);
		case VARIABLE_CURRENCY:
			if (facts->money.currency[0] == '\0')
				return NULL;
			return scope->gateway->adapter->currency_lower ?
				asc_tolower(facts->money.currency, 3) : facts->money.currency;
		case VARIABLE_PROVIDER_ID:
			return facts->provider_id;
		case VARIABLE_CHARGE_REFERENCE:
			return facts->charge_reference;
		case VARIABLE_CHARGE_ID:
			return facts->charge_id;
		case VARIABLE_ATTEMPT_NO:
			return psprintf("%d", facts->attempt_no);
		case VARIABLE_WEBHOOK_URL:
			return scope->gateway->webhook_url;
		case VARIABLE_API_USER:
			return scope->gateway->api_user;
		case VARIABLE_API_KEY:
			return scope->gateway->api_key;
		case VARIABLE_PAYMENT:
			if (facts->payment == NULL)
				return NULL;
			return JsonbToCString(NULL, &facts->payment->root, VARSIZE(facts->payment));
		case VARIABLE_PAYMENT_MEMBER:
			member = find_payment_member(facts, segment->text);
			if (member == NULL)
				return NULL;
			if (member->type == jbvString)
				return pnstrdup(member->val.string.val, member->val.string.len);
			initStringInfo(&out);
			write_jsonb_value(&out, member);
			return out.data;
	}
	return NULL;
}

/* The variables of the set that this call has no value for. */
unsigned
payguard_template_missing(const RenderScope *scope, unsigned variables)
{
	unsigned	missing = 0;
	Segment		segment;
	size_t		i;

	segment.text = NULL;
	segment.next = NULL;
	for (i = 0; i < lengthof(variable_names); i++)
	{
		segment.variable = variable_names[i].variable;
		if (segment.variable != VARIABLE_PAYMENT_MEMBER &&
			(variables & (1 << segment.variable)) && variable_text(scope, &segment) == NULL)
			missing |= 1 << segment.variable;
	}
	return missing;
}

/* Encode all but unreserved characters (RFC 3986), byte by byte. */
void
payguard_percent_encode(StringInfo out, const char *text, bool blank_as_plus)
{
	const char *p;

	for (p = text; *p != '\0'; p++)
	{
		if ((*p >= '0' && *p <= '9') || (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') ||
			*p == '-' || *p == '.' || *p == '_' || *p == '~')
			appendStringInfoCharMacro(out, *p);
		else if (*p == ' ' && blank_as_plus)
			appendStringInfoCharMacro(out, '+');
		else
			appendStringInfo(out, "%%%02X", (unsigned char) *p);
	}
}

/* Text, or NULL when a variable has no value. */
char *
payguard_template_text(const RenderScope *scope, const Template *template, TemplateUse use)
{
	StringInfoData out;
	Segment    *segment;

	initStringInfo(&out);
	for (segment = template->first; segment != NULL; segment = segment->next)
	{
		const char *text = variable_text(scope, segment);

		if (text == NULL)
			return NULL;
		if (use == TEMPLATE_USE_PATH && segment->variable != VARIABLE_NONE)
			payguard_percent_encode(&out, text, false);
		else
			appendStringInfoString(&out, text);
	}
	return out.data;
}

/*
 * Append the value as JSON, or return false when a variable has none.  A
 * template that is exactly one variable keeps the variable's kind: a number
 * for amounts that are numbers, the object for {payment}.
 */
bool
payguard_template_json(const RenderScope *scope, const Template *template, StringInfo out)
{
	const Segment *only = template->first;
	char	   *text;

	if (only != NULL && only->next == NULL && only->variable == VARIABLE_PAYMENT_MEMBER)
	{
		JsonbValue *member = find_payment_member(scope->facts, only->text);

		if (member != NULL)
			write_jsonb_value(out, member);
		return member != NULL;
	}
	text = payguard_template_text(scope, template, TEMPLATE_USE_TEXT);

	if (text == NULL)
		return false;
	if (only != NULL && only->next == NULL &&
		(only->variable == VARIABLE_PAYMENT || only->variable == VARIABLE_ATTEMPT_NO ||
		 (only->variable == VARIABLE_AMOUNT &&
		  scope->gateway->adapter->amount_form != AMOUNT_DECIMAL)))
		appendStringInfoString(out, text);
	else
		payguard_json_write_text(out, text);
	return true;
}

/*
 * Compile a body.  flat: a form's or query's, whose members are templates or
 * literals and no containers.
 */
BodyNode *
payguard_body_compile(const Place *place, bool flat)
{
	BodyNode   *body = palloc0(sizeof(BodyNode));
	BodyNode  **link = &body->first;
	JsonNode   *member;
	int			index = 0;
	const unsigned allowed = ~((1u << VARIABLE_API_USER) | (1u << VARIABLE_API_KEY));

	body->kind = place->node->kind;
	body->name = place->node->name;
	switch (place->node->kind)
	{
		case JSON_KIND_STRING:
			if (place->node->text[0] == '\0')
				body->template = palloc0(sizeof(Template));
			else
				body->template = payguard_template_compile(place, allowed);
			break;
		case JSON_KIND_NULL:
			body->literal = "null";
			break;
		case JSON_KIND_OBJECT:
		case JSON_KIND_ARRAY:
			for (member = place->node->first; member != NULL; member = member->next)
			{
				Place		inner = (member->name != NULL) ?
				payguard_place_member(place, member->name, member) :
				payguard_place_element(place, index++, member);

				if (flat && (member->kind == JSON_KIND_OBJECT || member->kind == JSON_KIND_ARRAY ||
							 member->kind == JSON_KIND_NULL))
					payguard_place_refuse(&inner, "a string, a number, true or false (a form has no nested members; write \"a[b]\" as the name)");
				*link = payguard_body_compile(&inner, flat);
				link = &(*link)->next;
			}
			break;
		default:
			body->literal = payguard_json_scalar(place->node);
			break;
	}
	return body;
}

/* All variables that a body names. */
unsigned
payguard_body_variables(const BodyNode *body)
{
	unsigned	variables = body->template != NULL ? body->template->variables : 0;
	const BodyNode *member;

	for (member = body->first; member != NULL; member = member->next)
		variables |= payguard_body_variables(member);
	return variables;
}
