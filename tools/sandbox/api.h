/*-------------------------------------------------------------------------
 *
 * api.h
 *	  The gateway's interface: requests of the wire format.
 *
 *-------------------------------------------------------------------------
 */
#ifndef API_H
#define API_H

#include <stddef.h>

#include "answer.h"

/* A request as the HTTP side hands it over */
typedef struct Call
{
	const char *method;
	const char *path;
	const char *authorization;	/* or NULL */
	const char *key;			/* Idempotency-Key, or NULL */
	const char *body;
	size_t		length;
} Call;

extern void api_answer(const Call *call, Answer *answer);
extern int	api_reference_valid(const char *reference);
extern int	api_currency_valid(const char *currency);

#endif							/* API_H */
