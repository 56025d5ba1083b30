/*-------------------------------------------------------------------------
 *
 * source.c
 *	  Where a value comes from: "json:/id", "header:Retry-After", functions.
 *
 * Expressions are compiled from a document and evaluated on what a gateway
 * sent.  Evaluation must never raise an error: what cannot be found or
 * converted is not there.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "gateway/adapter.h"
#include "utils/builtins.h"
#include "utils/formatting.h"

#define MAX_ARGUMENTS	12
#define MAX_NESTING		8

typedef enum SourceKind
{
	SOURCE_JSON,
	SOURCE_HEADER,
	SOURCE_FORM,
	SOURCE_QUERY,
	SOURCE_CONST,
	SOURCE_HTTP,
	SOURCE_SPLIT,
	SOURCE_URLDECODE,
	SOURCE_LOWER,
	SOURCE_UPPER,
	SOURCE_UNIX,
	SOURCE_UNIX_MS,
	SOURCE_RFC3339,
	SOURCE_CONCAT
} SourceKind;

struct Source
{
	SourceKind	kind;
	char	   *text;			/* name of a header or field, constant,
								 * separator */
	JsonPointer *pointer;
	int			index;			/* split: which piece, from 1 */
	int			nargs;
	Source	   *args[MAX_ARGUMENTS];
	Source	   *next;			/* tried when this one has nothing */
};

/* An expression that is being read. */
typedef struct Expression
{
	const Place *place;
	const char *position;
	int			nesting;
} Expression;

static const Word prefixes[] = {
	{"json:", SOURCE_JSON},
	{"header:", SOURCE_HEADER},
	{"form:", SOURCE_FORM},
	{"query:", SOURCE_QUERY},
	{"const:", SOURCE_CONST},
	{NULL, 0}
};

static const Word functions[] = {
	{"split", SOURCE_SPLIT},
	{"urldecode", SOURCE_URLDECODE},
	{"lower", SOURCE_LOWER},
	{"upper", SOURCE_UPPER},
	{"unix", SOURCE_UNIX},
	{"unix_ms", SOURCE_UNIX_MS},
	{"rfc3339", SOURCE_RFC3339},
	{"concat", SOURCE_CONCAT},
	{NULL, 0}
};

static Source *read_expression(Expression *expression);

static void
skip_blanks(Expression *expression)
{
	while (*expression->position == ' ')
		expression->position++;
}

/* Refuse what is no source, naming the nearest word that begins one. */
static void
refuse_expression(const Expression *expression)
{
	static const char *const words[] = {
		"json", "header", "form", "query", "const", "http", "split", "urldecode",
		"lower", "upper", "unix", "unix_ms", "rfc3339", "concat"
	};
	size_t		length = strspn(expression->position, "abcdefghijklmnopqrstuvwxyz_0123456789");

	if (length == 0)
		payguard_place_refuse(expression->place,
							  "a source such as \"json:/id\", \"header:NAME\" or \"lower(json:/status)\"");
	payguard_place_refuse_word(expression->place, "source",
							   pnstrdup(expression->position, length), words, lengthof(words));
}

/* A constant in single quotes; a quote in it is doubled. */
static char *
read_quoted(Expression *expression)
{
	StringInfoData out;

	initStringInfo(&out);
	for (expression->position++; *expression->position != '\0'; expression->position++)
	{
		if (*expression->position == '\'')
		{
			expression->position++;
			if (*expression->position != '\'')
				return out.data;
		}
		appendStringInfoChar(&out, *expression->position);
	}
	payguard_place_refuse(expression->place, "a closing single quote");
}

/* The arguments of split(): a source, a separator and a number. */
static void
finish_split(Expression *expression, Source *source)
{
	const Source *index = source->nargs == 3 ? source->args[2] : NULL;
	const Source *separator = source->nargs == 3 ? source->args[1] : NULL;

	if (index == NULL || index->kind != SOURCE_CONST || separator->kind != SOURCE_CONST ||
		separator->text[0] == '\0' || atoi(index->text) < 1 || atoi(index->text) > 1000)
		payguard_place_refuse(expression->place,
							  "split(source, 'separator', number) with a number from 1");
	source->text = separator->text;
	source->index = atoi(index->text);
	source->nargs = 1;
}

/* A function's arguments, the position being after its name. */
static Source *
read_function(Expression *expression, SourceKind kind)
{
	Source	   *source = palloc0(sizeof(Source));

	source->kind = kind;
	expression->position++;		/* the opening parenthesis */
	if (++expression->nesting > MAX_NESTING)
		payguard_place_refuse(expression->place, "less deeply nested functions");
	for (;;)
	{
		skip_blanks(expression);
		if (source->nargs == MAX_ARGUMENTS)
			payguard_place_refuse(expression->place, "fewer arguments");
		source->args[source->nargs++] = read_expression(expression);
		skip_blanks(expression);
		if (*expression->position == ')')
			break;
		if (*expression->position != ',')
			payguard_place_refuse(expression->place, "a comma or a closing parenthesis");
		expression->position++;
	}
	expression->position++;
	expression->nesting--;
	if (kind == SOURCE_SPLIT)
		finish_split(expression, source);
	else if (kind != SOURCE_CONCAT && source->nargs != 1)
		payguard_place_refuse(expression->place, "one argument");
	return source;
}

/* The text after a prefix: all of it, or within a function up to its end. */
static char *
read_operand(Expression *expression)
{
	size_t		length = expression->nesting > 0 ?
	strcspn(expression->position, ",)") : strlen(expression->position);
	char	   *text = pnstrdup(expression->position, length);

	expression->position += length;
	while (length > 0 && text[length - 1] == ' ')
		text[	  --length] = '\0';
	return text;
}

static Source *
read_expression(Expression *expression)
{
	Source	   *source = palloc0(sizeof(Source));
	int			i;

	if (*expression->position == '\'')
	{
		source->kind = SOURCE_CONST;
		source->text = read_quoted(expression);
		return source;
	}
	if (expression->nesting > 0 && *expression->position >= '0' && *expression->position <= '9')
	{
		source->kind = SOURCE_CONST;
		source->text = read_operand(expression);
		return source;
	}
	for (i = 0; functions[i].word != NULL; i++)
	{
		size_t		length = strlen(functions[i].word);

		if (strncmp(expression->position, functions[i].word, length) == 0 &&
			expression->position[length] == '(')
		{
			expression->position += length;
			return read_function(expression, functions[i].value);
		}
	}
	for (i = 0; prefixes[i].word != NULL; i++)
		if (strncmp(expression->position, prefixes[i].word, strlen(prefixes[i].word)) == 0)
			break;
	if (prefixes[i].word != NULL)
	{
		source->kind = prefixes[i].value;
		expression->position += strlen(prefixes[i].word);
		source->text = read_operand(expression);
	}
	else if (strcmp(read_operand(expression), "http") == 0)
		source->kind = SOURCE_HTTP;
	else
	{
		expression->position = expression->place->node->text;
		refuse_expression(expression);
	}

	if (source->kind == SOURCE_JSON)
	{
		source->pointer = payguard_json_pointer(source->text);
		if (source->pointer == NULL)
			payguard_place_refuse(expression->place, "a JSON pointer such as \"json:/data/id\"");
	}
	else if (source->text !=NULL && source->text[0] == '\0' && source->kind != SOURCE_CONST)
		payguard_place_refuse(expression->place, "a name after the colon");
	return source;
}

/* Compile one expression, or a list of which the first that exists counts. */
Source *
payguard_source_compile(const Place *place)
{
	Expression	expression;
	Source	   *source;

	if (place->node->kind == JSON_KIND_ARRAY)
	{
		Source	   *first = NULL;
		Source	  **link = &first;
		JsonNode   *element;
		int			index = 0;

		for (element = place->node->first; element != NULL; element = element->next)
		{
			Place		inner = payguard_place_element(place, index++, element);

			if (element->kind == JSON_KIND_ARRAY)
				payguard_place_refuse(&inner, "a source");
			*link = payguard_source_compile(&inner);
			link = &(*link)->next;
		}
		if (first == NULL)
			payguard_place_refuse(place, "at least one source");
		return first;
	}
	expression.place = place;
	expression.position = payguard_place_string(place);
	expression.nesting = 0;
	source = read_expression(&expression);
	skip_blanks(&expression);
	if (*expression.position != '\0')
		payguard_place_refuse(place, "nothing after the source");
	return source;
}

/* Does the source give a time? */
bool
payguard_source_is_time(const Source *source)
{
	for (; source != NULL; source = source->next)
		if (source->kind != SOURCE_UNIX && source->kind != SOURCE_UNIX_MS &&
			source->kind != SOURCE_RFC3339)
			return false;
	return true;
}

/* Value of a header, compared without case; NULL when it is not there. */
const char *
payguard_header_find(List *headers, const char *name)
{
	ListCell   *cell;

	foreach(cell, headers)
	{
		NameValue  *header = lfirst(cell);

		if (pg_strcasecmp(header->name, name) == 0)
			return header->value;
	}
	return NULL;
}

static Taken
take_text(const char *text)
{
	Taken		taken;

	memset(&taken, 0, sizeof(taken));
	taken.present = (text !=NULL);
	taken.text = text;

	return taken;
}

/* A header or field; one that is there twice with different values is ambiguous. */
static Taken
take_named(List *list, const char *name, bool ignore_case)
{
	Taken		taken = take_text(NULL);
	ListCell   *cell;

	foreach(cell, list)
	{
		NameValue  *pair = lfirst(cell);

		if (ignore_case ? pg_strcasecmp(pair->name, name) != 0 : strcmp(pair->name, name) != 0)
			continue;
		if (taken.present && strcmp(taken.text, pair->value) != 0)
			taken.ambiguous = true;
		taken.present = true;
		taken.text = pair->value;
	}
	return taken;
}

static Taken
take_json(const Source *source, const ReadScope *scope)
{
	Taken		taken = take_text(NULL);
	JsonNode   *node = NULL;

	switch (scope->json == NULL ? JSON_LOOKUP_ABSENT :
			payguard_json_find(scope->json, source->pointer, &node))
	{
		case JSON_LOOKUP_ABSENT:
			break;
		case JSON_LOOKUP_AMBIGUOUS:
			taken.ambiguous = true;
			break;
		case JSON_LOOKUP_FOUND:
			taken.present = true;
			taken.json = node;
			taken.text = payguard_json_scalar(node);
			break;
	}
	return taken;
}

/* The piece of that number, or NULL. */
static const char *
split_text(const char *text, const char *separator, int index)
{
	const char *end;

	for (; index > 1; index--)
	{
		text = strstr(text, separator);

		if (text == NULL)
			return NULL;
		text	  +=strlen(separator);
	}
	end = strstr(text, separator);
	return end != NULL ? pnstrdup(text, end - text) : text;
}

static Taken
take_concat(const Source *source, const ReadScope *scope)
{
	StringInfoData out;
	Taken		taken = take_text(NULL);
	int			i;

	initStringInfo(&out);
	for (i = 0; i < source->nargs; i++)
	{
		Taken		part = payguard_source_take(source->args[i], scope);

		taken.ambiguous |= part.ambiguous;
		if (part.text == NULL)
			return taken;
		appendStringInfoString(&out, part.text);
	}
	taken.present = true;
	taken.text = out.data;
	return taken;
}

/* The value of a function of one argument. */
static Taken
take_function(const Source *source, const ReadScope *scope)
{
	Taken		taken = payguard_source_take(source->args[0], scope);

	taken.json = NULL;
	if (taken.text == NULL)
	{
		taken.present = false;
		return taken;
	}
	switch (source->kind)
	{
		case SOURCE_SPLIT:
			taken.text = split_text(taken.text, source->text, source->index);
			break;
		case SOURCE_URLDECODE:
			{
				List	   *form = payguard_form_read(psprintf("x=%s", taken.text),
													  strlen(taken.text) + 2);

				taken.text = form != NIL ? ((NameValue *) linitial(form))->value : NULL;
				break;
			}
		case SOURCE_LOWER:
			taken.text = asc_tolower(taken.text, strlen(taken.text));
			break;
		case SOURCE_UPPER:
			taken.text = asc_toupper(taken.text, strlen(taken.text));
			break;
		case SOURCE_UNIX:
			taken.has_time = payguard_time_read_unix(taken.text, 1000000, &taken.time);
			break;
		case SOURCE_UNIX_MS:
			taken.has_time = payguard_time_read_unix(taken.text, 1000, &taken.time);
			break;
		case SOURCE_RFC3339:
			taken.has_time = payguard_time_read_rfc3339(taken.text, &taken.time);
			break;
		default:
			break;
	}
	taken.present = (taken.text !=NULL);
	return taken;
}

/*
 * Evaluate: the first of the list that exists.  An empty string exists; null
 * does not.
 */
Taken
payguard_source_take(const Source *source, const ReadScope *scope)
{
	Taken		taken = take_text(NULL);

	for (; source != NULL && !taken.present && !taken.ambiguous; source = source->next)
	{
		switch (source->kind)
		{
			case SOURCE_JSON:
				taken = take_json(source, scope);
				break;
			case SOURCE_HEADER:
				taken = take_named(scope->headers, source->text, true);
				break;
			case SOURCE_FORM:
				taken = take_named(scope->form, source->text, false);
				break;
			case SOURCE_QUERY:
				taken = take_named(scope->query, source->text, false);
				break;
			case SOURCE_CONST:
				taken = take_text(source->text);
				break;
			case SOURCE_HTTP:
				taken = take_text(psprintf("%d", scope->http_status));
				break;
			case SOURCE_CONCAT:
				taken = take_concat(source, scope);
				break;
			default:
				taken = take_function(source, scope);
				break;
		}
	}
	return taken;
}
