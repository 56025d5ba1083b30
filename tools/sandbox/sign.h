/*-------------------------------------------------------------------------
 *
 * sign.h
 *	  Signatures as Standard Webhooks ask for them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SIGN_H
#define SIGN_H

#include <stddef.h>
#include <stdint.h>

extern const char *sign_check_secrets(const char *secrets);
extern size_t sign_webhook(const char *secrets, const char *id, int64_t timestamp,
						   const char *body, char *signature, size_t size);

#endif							/* SIGN_H */
