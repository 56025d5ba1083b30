/*-------------------------------------------------------------------------
 *
 * form.c
 *	  Decodes application/x-www-form-urlencoded.
 *
 * Pairs whose bytes are no text (NUL, not UTF-8) are left out rather than
 * repaired: a value that was repaired could match where the real one did not.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "gateway/adapter.h"
#include "mb/pg_wchar.h"

static int
hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

/* Decoded text, or NULL when it is none. */
static char *
decode_part(const char *text, size_t length)
{
	char	   *out = palloc(length + 1);
	size_t		used = 0;
	size_t		i;

	for (i = 0; i < length; i++)
	{
		char		c = text[i];

		if (c == '+')
			c = ' ';
		else if (c == '%' && i + 2 < length &&
				 hex_value(text[i + 1]) >= 0 && hex_value(text[i + 2]) >= 0)
		{
			c = (char) (hex_value(text[i + 1]) << 4 | hex_value(text[i + 2]));
			i += 2;
		}
		if (c == '\0')
			return NULL;
		out[used++] = c;
	}
	out[used] = '\0';
	return pg_encoding_verifymbstr(PG_UTF8, out, used) == (int) used ? out : NULL;
}

/* The pairs in their order (List of NameValue *). */
List *
payguard_form_read(const char *text, size_t length)
{
	List	   *pairs = NIL;
	const char *end = text +length;

	while (text <end)
	{
		const char *stop = memchr(text, '&', end - text);
		const char *equals;
		NameValue  *pair = palloc(sizeof(NameValue));

		if (stop == NULL)
			stop = end;
		equals = memchr(text, '=', stop - text);
		pair->name = decode_part(text, (equals != NULL ? equals : stop) - text);
		pair->value = (equals != NULL) ? decode_part(equals + 1, stop - equals - 1) : "";
		if (pair->name != NULL && pair->value != NULL && stop > text)
			pairs = lappend(pairs, pair);
		text = stop + 1;
	}
	return pairs;
}
