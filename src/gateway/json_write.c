/*-------------------------------------------------------------------------
 *
 * json_write.c
 *	  Writes JSON: compact, and for what is kept, redacted.
 *
 * What is written here goes into jsonb columns, so it must never hold what
 * jsonb cannot: no number out of numeric's range, no NUL.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "core/redact.h"
#include "gateway/json.h"

/* Append text as a JSON string. */
void
payguard_json_write_text(StringInfo out, const char *text)
{
	const char *p;

	appendStringInfoCharMacro(out, '"');
	for (p = text; *p != '\0'; p++)
	{
		if (*p == '"' || *p == '\\')
			appendStringInfoCharMacro(out, '\\');
		if ((unsigned char) *p < 0x20)
			appendStringInfo(out, "\\u%04x", (unsigned char) *p);
		else
			appendStringInfoCharMacro(out, *p);
	}
	appendStringInfoCharMacro(out, '"');
}

/* A copy of text with its card numbers masked. */
static char *
mask_text(const char *text)
{
	char	   *copy = pstrdup(text);

	payguard_mask_card_numbers(copy, strlen(copy));
	return copy;
}

/* Can jsonb hold this number, and is it no card's? */
static bool
is_plain_number(const char *text)
{
	size_t		length = strlen(text);

	return length <= 100 && strpbrk(text, "eE") == NULL &&
		!payguard_has_card_number(text, length);
}

static void
write_value(StringInfo out, const JsonNode *node, bool redacted)
{
	const JsonNode *member;
	bool		is_object = (node->kind == JSON_KIND_OBJECT);
	bool		first = true;

	if (node->kind == JSON_KIND_STRING)
		payguard_json_write_text(out, redacted ? mask_text(node->text) : node->text);
	else if (node->kind == JSON_KIND_NUMBER && redacted && !is_plain_number(node->text))
		payguard_json_write_text(out, mask_text(node->text));
	else if (node->kind == JSON_KIND_NULL)
		appendStringInfoString(out, "null");
	else if (node->kind != JSON_KIND_ARRAY && !is_object)
		appendStringInfoString(out, payguard_json_scalar(node));
	else
	{
		appendStringInfoChar(out, is_object ? '{' : '[');
		for (member = node->first; member != NULL; member = member->next)
		{
			if (redacted && is_object &&
				payguard_is_secret_member(member->name, strlen(member->name)))
				continue;
			if (!first)
				appendStringInfoChar(out, ',');
			first = false;
			if (is_object)
			{
				payguard_json_write_text(out, redacted ? mask_text(member->name) : member->name);
				appendStringInfoChar(out, ':');
			}
			write_value(out, member, redacted);
		}
		appendStringInfoChar(out, is_object ? '}' : ']');
	}
}

/* Append a value as compact JSON. */
void
payguard_json_write(StringInfo out, const JsonNode *node)
{
	write_value(out, node, false);
}

/* The same with card numbers masked and card verification values dropped. */
void
payguard_json_write_redacted(StringInfo out, const JsonNode *node)
{
	write_value(out, node, true);
}
