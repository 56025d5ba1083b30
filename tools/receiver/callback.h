/*-------------------------------------------------------------------------
 *
 * callback.h
 *	  Hands one callback to payguard and reads the answer for the gateway.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CALLBACK_H
#define CALLBACK_H

#include <stddef.h>

typedef struct Reply
{
	int			status;			/* HTTP */
	char	   *body;			/* malloc'd */
	char		verdict[32];
} Reply;

extern void callback_apply(const char *gateway, const char *headers, const char *body,
						   size_t length, const char *url, Reply *reply);

#endif							/* CALLBACK_H */
