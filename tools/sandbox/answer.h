/*-------------------------------------------------------------------------
 *
 * answer.h
 *	  What a request is answered with, before it becomes bytes.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ANSWER_H
#define ANSWER_H

#include <stdbool.h>
#include <stdint.h>

typedef enum Act
{
	ACT_SEND,					/* an HTTP answer */
	ACT_FIN,					/* close without one */
	ACT_RST,					/* reset without one */
	ACT_SILENCE,				/* nothing until the client gives up */
	ACT_RAW						/* the body is all that is sent, then close */
} Act;

typedef struct Answer
{
	Act			act;
	int			status;
	const char *type;			/* NULL: JSON */
	char	   *body;			/* malloc'd */
	bool		replayed;
	int			retry_after;	/* seconds; 0: no such header */
	int64_t		wait;			/* before the answer, ms */
} Answer;

#define ANSWER_500 "{\"error\": {\"code\": \"internal_error\", \"message\": \"Something went wrong.\"}}"

extern void answer_set(Answer *answer, int status, char *body);
extern void answer_error(Answer *answer, int status, const char *code, const char *message);
extern char *answer_format(const char *format,...) __attribute__((format(printf, 1, 2)));

#endif							/* ANSWER_H */
