/*-------------------------------------------------------------------------
 *
 * reply.c
 *	  Takes the bytes of an HTTP answer apart.
 *
 * No meaning is given to anything here, and no error is raised for bytes that
 * are no answer.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "gateway/adapter.h"
#include "mb/pg_wchar.h"

#define MAX_HEADERS 200

/* Header lines as names and values; lines that are no text are left out. */
List *
payguard_headers_read(const char *raw, size_t length)
{
	List	   *headers = NIL;
	const char *end = raw + length;

	while (raw != NULL && raw < end && list_length(headers) < MAX_HEADERS)
	{
		const char *stop = memchr(raw, '\n', end - raw);
		const char *colon;
		const char *last;

		if (stop == NULL)
			stop = end;
		last = stop;
		while (last > raw && (last[-1] == '\r' || last[-1] == ' ' || last[-1] == '\t'))
			last--;
		colon = memchr(raw, ':', last - raw);
		if (colon != NULL && colon > raw && memchr(raw, '\0', last - raw) == NULL &&
			pg_encoding_verifymbstr(PG_UTF8, raw, last - raw) == last - raw)
		{
			NameValue  *header = palloc(sizeof(NameValue));

			header->name = pnstrdup(raw, colon - raw);
			for (colon++; colon < last && (*colon == ' ' || *colon == '\t'); colon++)
				;
			header->value = pnstrdup(colon, last - colon);
			headers = lappend(headers, header);
		}
		raw = stop + 1;
	}
	return headers;
}
