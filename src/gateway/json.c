/*-------------------------------------------------------------------------
 *
 * json.c
 *	  Reads JSON that a gateway or an adapter's author wrote.
 *
 * A recursive-descent reader with bounds on size and depth.  It must never
 * raise an error for what it reads, and never lose a digit of a number.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "gateway/json.h"

#include "mb/pg_wchar.h"

typedef struct Reader
{
	const char *position;
	const char *end;
	int			depth;
	const char *error;
} Reader;

static JsonNode *read_value(Reader *reader);

static void *
fail(Reader *reader, const char *error)
{
	if (reader->error == NULL)
		reader->error = error;
	return NULL;
}

static void
skip_blanks(Reader *reader)
{
	while (reader->position < reader->end &&
		   (*reader->position == ' ' || *reader->position == '\t' ||
			*reader->position == '\n' || *reader->position == '\r'))
		reader->position++;
}

/* The next byte that counts, or NUL at the end (a NUL in the input is refused
 * before reading). */
static char
peek(Reader *reader)
{
	skip_blanks(reader);
	return reader->position < reader->end ? *reader->position : '\0';
}

/* Four hexadecimal digits, or -1. */
static int
read_hex4(Reader *reader)
{
	int			value = 0;
	int			i;

	if (reader->end - reader->position < 4)
		return -1;
	for (i = 0; i < 4; i++)
	{
		char		c = reader->position[i];

		if (c >= '0' && c <= '9')
			value = value * 16 + (c - '0');
		else if (c >= 'a' && c <= 'f')
			value = value * 16 + (c - 'a' + 10);
		else if (c >= 'A' && c <= 'F')
			value = value * 16 + (c - 'A' + 10);
		else
			return -1;
	}
	reader->position += 4;
	return value;
}

/*
 * The rest of a \u escape.  What PostgreSQL's text cannot hold, NUL and half
 * a surrogate pair, stays as the escape that it was.
 */
static bool
read_unicode_escape(Reader *reader, StringInfo out)
{
	int			value = read_hex4(reader);
	pg_wchar	code = value;
	unsigned char utf8[8];

	if (value < 0)
		return false;
	if (value >= 0xD800 && value <= 0xDBFF && reader->end - reader->position >= 6 &&
		reader->position[0] == '\\' && reader->position[1] == 'u')
	{
		const char *saved = reader->position;
		int			low;

		reader->position += 2;
		low = read_hex4(reader);
		if (low >= 0xDC00 && low <= 0xDFFF)
			code = 0x10000 + ((value & 0x3FF) << 10) + (low & 0x3FF);
		else
			reader->position = saved;
	}
	if (code == 0 || (code >= 0xD800 && code <= 0xDFFF))
	{
		appendStringInfo(out, "\\u%04x", value);
		return true;
	}
	unicode_to_utf8(code, utf8);
	appendBinaryStringInfo(out, (char *) utf8, pg_utf_mblen(utf8));
	return true;
}

/* A string without escapes, which nearly all are; NULL for any other. */
static char *
read_simple_string(Reader *reader)
{
	const char *start = reader->position + 1;
	const char *p;

	for (p = start; p < reader->end && *p != '"'; p++)
		if (*p == '\\' || (unsigned char) *p < 0x20)
			return NULL;
	if (p == reader->end)
		return NULL;
	reader->position = p + 1;
	return pnstrdup(start, p - start);
}

/* A string, the position being at its opening quote. */
static char *
read_string(Reader *reader)
{
	StringInfoData out;
	char	   *simple = read_simple_string(reader);

	if (simple != NULL)
		return simple;
	initStringInfo(&out);
	reader->position++;
	while (reader->position < reader->end)
	{
		char		c = *reader->position++;

		if (c == '"')
			return out.data;
		if ((unsigned char) c < 0x20)
			return fail(reader, "a control character stands in a string");
		if (c != '\\')
		{
			appendStringInfoCharMacro(&out, c);
			continue;
		}
		if (reader->position == reader->end)
			break;
		c = *reader->position++;
		switch (c)
		{
			case '"':
			case '\\':
			case '/':
				appendStringInfoChar(&out, c);
				break;
			case 'b':
				appendStringInfoChar(&out, '\b');
				break;
			case 'f':
				appendStringInfoChar(&out, '\f');
				break;
			case 'n':
				appendStringInfoChar(&out, '\n');
				break;
			case 'r':
				appendStringInfoChar(&out, '\r');
				break;
			case 't':
				appendStringInfoChar(&out, '\t');
				break;
			case 'u':
				if (read_unicode_escape(reader, &out))
					break;
				/* FALLTHROUGH */
			default:
				return fail(reader, "an escape sequence is not valid");
		}
	}
	return fail(reader, "a string does not end");
}

/* Skip digits; false when there is none. */
static bool
skip_digits(Reader *reader)
{
	const char *start = reader->position;

	while (reader->position < reader->end && *reader->position >= '0' && *reader->position <= '9')
		reader->position++;
	return reader->position > start;
}

static JsonNode *
read_number(Reader *reader, JsonNode *node)
{
	const char *start = reader->position;
	bool		ok = true;

	if (*reader->position == '-')
		reader->position++;
	if (reader->position < reader->end && *reader->position == '0')
		reader->position++;
	else
		ok = skip_digits(reader);
	if (ok && reader->position < reader->end && *reader->position == '.')
	{
		reader->position++;
		ok = skip_digits(reader);
	}
	if (ok && reader->position < reader->end &&
		(*reader->position == 'e' || *reader->position == 'E'))
	{
		reader->position++;
		if (reader->position < reader->end &&
			(*reader->position == '+' || *reader->position == '-'))
			reader->position++;
		ok = skip_digits(reader);
	}
	if (!ok)
		return fail(reader, "a number is not valid");
	node->kind = JSON_KIND_NUMBER;
	node->text = pnstrdup(start, reader->position - start);
	return node;
}

static JsonNode *
read_word(Reader *reader, JsonNode *node, const char *word, JsonKind kind)
{
	size_t		length = strlen(word);

	if ((size_t) (reader->end - reader->position) < length ||
		memcmp(reader->position, word, length) != 0)
		return fail(reader, "a value is not valid");
	reader->position += length;
	node->kind = kind;
	return node;
}

/* Members up to the closing bracket, the position being after the opening one. */
static JsonNode *
read_members(Reader *reader, JsonNode *node, char closing)
{
	JsonNode  **link = &node->first;

	if (peek(reader) == closing)
	{
		reader->position++;
		return node;
	}
	for (;;)
	{
		char	   *name = NULL;
		JsonNode   *member;

		if (closing == '}')
		{
			if (peek(reader) != '"')
				return fail(reader, "an object's member has no name");
			name = read_string(reader);
			if (name == NULL)
				return NULL;
			if (peek(reader) != ':')
				return fail(reader, "a member's name is not followed by a colon");
			reader->position++;
		}
		member = read_value(reader);
		if (member == NULL)
			return NULL;
		member->name = name;
		*link = member;
		link = &member->next;
		node->count++;
		if (peek(reader) == closing)
		{
			reader->position++;
			return node;
		}
		if (peek(reader) != ',')
			return fail(reader, "a comma or a closing bracket is missing");
		reader->position++;
	}
}

static JsonNode *
read_value(Reader *reader)
{
	JsonNode   *node = palloc0(sizeof(JsonNode));
	JsonNode   *result;
	char		c = peek(reader);

	if (reader->depth >= JSON_MAX_DEPTH)
		return fail(reader, "it is nested too deeply");
	reader->depth++;
	node->raw = reader->position;
	if (c == '{' || c == '[')
	{
		node->kind = (c == '{') ? JSON_KIND_OBJECT : JSON_KIND_ARRAY;
		reader->position++;
		result = read_members(reader, node, c == '{' ? '}' : ']');
	}
	else if (c == '"')
	{
		node->kind = JSON_KIND_STRING;
		node->text = read_string(reader);
		result = (node->text !=NULL) ? node : NULL;
	}
	else if (c == '-' || (c >= '0' && c <= '9'))
		result = read_number(reader, node);
	else if (c == 't')
		result = read_word(reader, node, "true", JSON_KIND_TRUE);
	else if (c == 'f')
		result = read_word(reader, node, "false", JSON_KIND_FALSE);
	else if (c == 'n')
		result = read_word(reader, node, "null", JSON_KIND_NULL);
	else
		result = fail(reader, c == '\0' ? "it ends too early" : "a value is not valid");
	reader->depth--;
	node->raw_length = reader->position - node->raw;
	return result;
}

/*
 * Read a document: valid UTF-8 without NUL, one value, nothing after it.  A
 * byte order mark before it is skipped.
 */
JsonNode *
payguard_json_read(const char *input, size_t length, const char **error)
{
	Reader		reader;
	JsonNode   *root;

	*error = NULL;
	if (length > JSON_MAX_SIZE)
		*error = "it is too large";
	else if (length > 0 && memchr(input, '\0', length) != NULL)
		*error = "it contains a NUL byte";
	else if (length > 0 && pg_encoding_verifymbstr(PG_UTF8, input, length) != (int) length)
		*error = "it is not UTF-8";
	if (*error != NULL)
		return NULL;
	if (length >= 3 && memcmp(input, "\xEF\xBB\xBF", 3) == 0)
	{
		input += 3;
		length -= 3;
	}

	reader.position = input;
	reader.end = input + length;
	reader.depth = 0;
	reader.error = NULL;
	root = read_value(&reader);
	if (root != NULL && peek(&reader) != '\0')
	{
		root = NULL;
		reader.error = "something follows after its end";
	}
	*error = reader.error;
	return root;
}

/*
 * Take a pointer apart: "" is the whole document, "/a/0" a member's element;
 * ~1 stands for a slash and ~0 for a tilde.  NULL when it is no pointer.
 */
JsonPointer *
payguard_json_pointer(const char *text)
{
	JsonPointer *pointer = palloc0(sizeof(JsonPointer));
	const char *p;

	if (text[0] != '\0' && text[0] != '/')
		return NULL;
	for (p = text; *p != '\0'; p++)
		pointer->count += (*p == '/');
	pointer->tokens = palloc(sizeof(char *) * (pointer->count + 1));
	pointer->count = 0;
	for (p = text; *p == '/';)
	{
		size_t		length = strcspn(++p, "/");
		char	   *token = palloc(length + 1);
		size_t		used = 0;
		size_t		i;

		for (i = 0; i < length; i++)
		{
			if (p[i] == '~' && (i + 1 == length || (p[i + 1] != '0' && p[i + 1] != '1')))
				return NULL;
			if (p[i] == '~')
				token[used++] = (p[++i] == '0') ? '~' : '/';
			else
				token[used++] = p[i];
		}
		token[used] = '\0';
		pointer->tokens[pointer->count++] = token;
		p += length;
	}
	return pointer;
}

/* The element of that index, or NULL. */
static JsonNode *
find_element(JsonNode *array, const char *token)
{
	JsonNode   *node = array->first;
	int			index;

	if (strspn(token, "0123456789") != strlen(token) || token[0] == '\0' || strlen(token) > 8)
		return NULL;
	for (index = atoi(token); index > 0 && node != NULL; index--)
		node = node->next;
	return node;
}

/*
 * Follow a pointer.  null counts as absent.  *found is set only with
 * JSON_LOOKUP_FOUND.
 */
JsonLookup
payguard_json_find(JsonNode *root, const JsonPointer *pointer, JsonNode **found)
{
	JsonNode   *node = root;
	int			i;

	for (i = 0; node != NULL && i < pointer->count; i++)
	{
		JsonNode   *member;
		JsonNode   *match = NULL;

		if (node->kind == JSON_KIND_ARRAY)
			match = find_element(node, pointer->tokens[i]);
		else if (node->kind == JSON_KIND_OBJECT)
		{
			for (member = node->first; member != NULL; member = member->next)
			{
				if (strcmp(member->name, pointer->tokens[i]) != 0)
					continue;
				if (match != NULL)
					return JSON_LOOKUP_AMBIGUOUS;
				match = member;
			}
		}
		node = match;
	}
	if (node == NULL || node->kind == JSON_KIND_NULL)
		return JSON_LOOKUP_ABSENT;
	*found = node;
	return JSON_LOOKUP_FOUND;
}

/* A member of an object by name, or NULL. */
JsonNode *
payguard_json_member(const JsonNode *object, const char *name)
{
	JsonNode   *member;

	if (object == NULL || object->kind != JSON_KIND_OBJECT)
		return NULL;
	for (member = object->first; member != NULL; member = member->next)
		if (strcmp(member->name, name) == 0)
			return member;
	return NULL;
}

/* Text of a string, number, true or false; NULL for all else. */
const char *
payguard_json_scalar(const JsonNode *node)
{
	switch (node->kind)
	{
		case JSON_KIND_TRUE:
			return "true";
		case JSON_KIND_FALSE:
			return "false";
		case JSON_KIND_NUMBER:
		case JSON_KIND_STRING:
			return node->text;
		default:
			return NULL;
	}
}
