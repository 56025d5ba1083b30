/*-------------------------------------------------------------------------
 *
 * key.h
 *	  References, idempotency keys and lease tokens.
 *
 * The gateway reference and the idempotency key are functions of the order's
 * reference and the attempt's number and of nothing else, so that a claim
 * which a failover lost and the application makes again is the same purchase
 * to the gateway.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYGUARD_KEY_H
#define PAYGUARD_KEY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REFERENCE_MAX_LENGTH	64
#define REQUEST_KEY_MAX_LENGTH	255

/* 24 characters and NUL */
#define REFERENCE_SIZE			25
/* 40 hexadecimal digits and NUL */
#define IDEMPOTENCY_KEY_SIZE	41
/* what goes between an order's reference and the number of a later attempt */
#define DEFAULT_RETRY_SUFFIX	"_r"
#define RETRY_SUFFIX_SIZE		9	/* 8 characters and NUL */
/* order reference, suffix, number, NUL */
#define GATEWAY_REFERENCE_SIZE	(REFERENCE_MAX_LENGTH + 24)
/* "l1_" order "_" attempt "_" 16 hexadecimal digits and NUL */
#define LEASE_TOKEN_SIZE		64

/* Digest sizes */
#define SHA256_SIZE				32

/*
 * A fresh order reference: 10 characters of time (milliseconds since 1970)
 * and 14 of the given random bytes, in [0-9A-Z].  random must hold 16 bytes.
 */
extern void payguard_reference_make(int64_t unix_ms, const unsigned char *random,
									char *reference);

/* Attempt 1 uses the order's reference; attempt n adds suffix and n ("_r2"). */
extern void payguard_reference_derive(const char *reference, int attempt_no,
									  const char *retry_suffix, char *gateway_reference);

/*
 * Split a gateway reference into order reference and attempt number.  Without
 * a suffix of that form the number is 1.  False when it does not fit.
 */
extern bool payguard_reference_split(const char *gateway_reference, const char *retry_suffix,
									 char *reference, int *attempt_no);

/* The idempotency key of an attempt: the same for ever. */
extern void payguard_idempotency_key(const char *reference, int attempt_no, char *key);

/*
 * Reference and idempotency key of a refund: functions of the order's
 * reference and the refund's request key.  The reference is 24 characters of
 * [0-9A-F] after an R.
 */
#define REFUND_REFERENCE_SIZE	26
extern void payguard_refund_reference(const char *reference, const char *request_key,
									  char *refund_reference);
extern void payguard_refund_key(const char *reference, const char *request_key, char *key);

/* A lease token carries what it is for, so that it needs no index. */
extern void payguard_lease_token_make(int64_t order_id, int attempt_no, int64_t refund_id,
									  const unsigned char *random8, char *token);
extern bool payguard_lease_token_read(const char *token, int64_t *order_id, int *attempt_no,
									  int64_t *refund_id);

/* sha256 over several parts, each preceded by its length. */
typedef struct BytesView
{
	const void *data;
	size_t		length;
} BytesView;

extern void payguard_digest(const BytesView *parts, int count, unsigned char *digest);

#endif							/* PAYGUARD_KEY_H */
