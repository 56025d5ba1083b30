/*-------------------------------------------------------------------------
 *
 * signature.h
 *	  Message authentication codes and their text forms.
 *
 * Comparisons are constant-time.  Nothing here allocates or raises errors.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYGUARD_SIGNATURE_H
#define PAYGUARD_SIGNATURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/key.h"

#define SIGNATURE_MAX_SIZE		64	/* raw bytes of the largest code */

typedef enum SignatureAlgorithm
{
	SIGNATURE_HMAC_SHA256,
	SIGNATURE_HMAC_SHA1,
	SIGNATURE_HMAC_SHA512
} SignatureAlgorithm;

/* Code over the concatenated parts; returns its length, 0 on failure. */
extern size_t payguard_hmac(SignatureAlgorithm algorithm, const void *key, size_t key_length,
							const BytesView *parts, int count, unsigned char *code);

/* Plain sha256 of some bytes, without payguard_digest()'s lengths. */
extern void payguard_sha256(const void *data, size_t length, unsigned char *digest);

/* Do both texts agree?  The time taken does not depend on where they differ. */
extern bool payguard_equal_constant_time(const void *a, size_t a_length,
										 const void *b, size_t b_length);

/* Text forms.  Encoders NUL-terminate; decoders return -1 for bad text. */
extern void payguard_hex_encode(const unsigned char *bytes, size_t length, char *text);
extern int	payguard_hex_decode(const char *text, size_t length, unsigned char *bytes, size_t size);
extern void payguard_base64_encode(const unsigned char *bytes, size_t length, char *text);
extern int	payguard_base64_decode(const char *text, size_t length, unsigned char *bytes, size_t size);

#endif							/* PAYGUARD_SIGNATURE_H */
