/*-------------------------------------------------------------------------
 *
 * answer.c
 *	  What a request is answered with, before it becomes bytes.
 *
 *-------------------------------------------------------------------------
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "answer.h"

/* sprintf into new memory */
char *
answer_format(const char *format,...)
{
	va_list		arguments;
	char	   *text;
	int			length;

	va_start(arguments, format);
	length = vasprintf(&text, format, arguments);
	va_end(arguments);
	if (length < 0)
		abort();
	return text;
}

/* Answer with a status and a body, which becomes the answer's */
void
answer_set(Answer *answer, int status, char *body)
{
	free(answer->body);
	answer->status = status;
	answer->body = body;
}

/* Answer with an error object; code and message need no escaping */
void
answer_error(Answer *answer, int status, const char *code, const char *message)
{
	answer_set(answer, status,
			   answer_format("{\"error\": {\"code\": \"%s\", \"message\": \"%s\"}}",
							 code, message));
}
