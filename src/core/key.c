/*-------------------------------------------------------------------------
 *
 * key.c
 *	  References, idempotency keys and lease tokens.
 *
 * A gateway sees one purchase twice if a key ever changes, so what is derived
 * here is a function of its arguments and of nothing else: no clock, no
 * random source, no setting may be consulted.  The forms are for ever.
 *
 *-------------------------------------------------------------------------
 */
#include "core/key.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include <openssl/evp.h>

#include "core/signature.h"

#define REFERENCE_TIME_LENGTH	10
#define REFERENCE_RANDOM_LENGTH 14
#define REFERENCE_RANDOM_BYTES	16

static const char base36[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";

/*
 * A fresh order reference: time first, so that an index on it grows at one
 * end, then the random bytes as one number in base 36.
 */
void
payguard_reference_make(int64_t unix_ms, const unsigned char *random, char *reference)
{
	unsigned char number[REFERENCE_RANDOM_BYTES];
	uint64_t	time = unix_ms < 0 ? 0 : (uint64_t) unix_ms;
	int			i;
	int			j;

	for (i = REFERENCE_TIME_LENGTH - 1; i >= 0; i--)
	{
		reference[i] = base36[time % 36];
		time /= 36;
	}
	memcpy(number, random, sizeof(number));
	for (i = 0; i < REFERENCE_RANDOM_LENGTH; i++)
	{
		unsigned	rest = 0;

		for (j = 0; j < REFERENCE_RANDOM_BYTES; j++)
		{
			rest = rest * 256 + number[j];
			number[j] = rest / 36;
			rest %= 36;
		}
		reference[REFERENCE_TIME_LENGTH + i] = base36[rest];
	}
	reference[REFERENCE_SIZE - 1] = '\0';
}

/*
 * The gateway reference of an attempt: attempt 1 uses the order's reference,
 * attempt n adds suffix and n.  gateway_reference has GATEWAY_REFERENCE_SIZE
 * bytes.
 */
void
payguard_reference_derive(const char *reference, int attempt_no,
						  const char *retry_suffix, char *gateway_reference)
{
	if (attempt_no <= 1)
		snprintf(gateway_reference, GATEWAY_REFERENCE_SIZE, "%s", reference);
	else
		snprintf(gateway_reference, GATEWAY_REFERENCE_SIZE, "%s%s%d",
				 reference, retry_suffix, attempt_no);
}

/*
 * Split a gateway reference into order reference and attempt number.  Only a
 * number that payguard_reference_derive() would have written counts (2 or
 * more, no leading zero); all else is the reference of attempt 1.  False when
 * the reference is empty or too long for an order.
 */
bool
payguard_reference_split(const char *gateway_reference, const char *retry_suffix,
						 char *reference, int *attempt_no)
{
	size_t		length = strlen(gateway_reference);
	size_t		suffix_length = strlen(retry_suffix);
	size_t		digits = 0;
	size_t		base;
	long		number = 0;
	size_t		i;

	*attempt_no = 1;
	base = length;
	while (digits < length && gateway_reference[length - digits - 1] >= '0' &&
		   gateway_reference[length - digits - 1] <= '9')
		digits++;

	/*
	 * A suffix may end in digits itself, so the longest run is not the only
	 * candidate.
	 */
	for (; digits > 0; digits--)
	{
		if (digits > 9 || length < digits + suffix_length + 1 ||
			gateway_reference[length - digits] == '0' ||
			memcmp(gateway_reference + length - digits - suffix_length,
				   retry_suffix, suffix_length) != 0)
			continue;
		for (i = length - digits; i < length; i++)
			number = number * 10 + (gateway_reference[i] - '0');
		if (number >= 2 && suffix_length > 0)
		{
			*attempt_no = (int) number;
			base = length - digits - suffix_length;
		}
		break;
	}
	if (base == 0 || base > REFERENCE_MAX_LENGTH)
		return false;
	memcpy(reference, gateway_reference, base);
	reference[base] = '\0';
	return true;
}

/* Digits of the digest over a purpose and two texts. */
static void
derive_digits(const char *purpose, const char *first, const char *second, char *hex)
{
	unsigned char digest[SHA256_SIZE];
	BytesView	parts[3];

	parts[0].data = purpose;
	parts[1].data = first;
	parts[2].data = second;
	parts[0].length = strlen(purpose);
	parts[1].length = strlen(first);
	parts[2].length = strlen(second);
	payguard_digest(parts, 3, digest);
	payguard_hex_encode(digest, SHA256_SIZE, hex);
}

/* The idempotency key of an attempt: the same for ever. */
void
payguard_idempotency_key(const char *reference, int attempt_no, char *key)
{
	char		number[16];
	char		hex[SHA256_SIZE * 2 + 1];

	snprintf(number, sizeof(number), "%d", attempt_no);
	derive_digits("payguard idempotency key 1", reference, number, hex);
	memcpy(key, hex, IDEMPOTENCY_KEY_SIZE - 1);
	key[IDEMPOTENCY_KEY_SIZE - 1] = '\0';
}

/* The idempotency key of a refund: the same for ever. */
void
payguard_refund_key(const char *reference, const char *request_key, char *key)
{
	char		hex[SHA256_SIZE * 2 + 1];

	derive_digits("payguard refund key 1", reference, request_key, hex);
	memcpy(key, hex, IDEMPOTENCY_KEY_SIZE - 1);
	key[IDEMPOTENCY_KEY_SIZE - 1] = '\0';
}

/* The reference of a refund: the same for ever, and legal at every gateway. */
void
payguard_refund_reference(const char *reference, const char *request_key,
						  char *refund_reference)
{
	char		hex[SHA256_SIZE * 2 + 1];
	int			i;

	derive_digits("payguard refund reference 1", reference, request_key, hex);
	refund_reference[0] = 'R';
	for (i = 0; i < REFUND_REFERENCE_SIZE - 2; i++)
		refund_reference[i + 1] = hex[i] >= 'a' ? hex[i] - ('a' - 'A') : hex[i];
	refund_reference[REFUND_REFERENCE_SIZE - 1] = '\0';
}

/*
 * A lease token says what it is for: "l1_ORDER_ATTEMPT_RANDOM", or
 * "l1_ORDER_rREFUND_RANDOM" for a refund.  The random part makes it a secret.
 */
void
payguard_lease_token_make(int64_t order_id, int attempt_no, int64_t refund_id,
						  const unsigned char *random8, char *token)
{
	char		hex[17];

	payguard_hex_encode(random8, 8, hex);
	if (refund_id != 0)
		snprintf(token, LEASE_TOKEN_SIZE, "l1_%lld_r%lld_%s",
				 (long long) order_id, (long long) refund_id, hex);
	else
		snprintf(token, LEASE_TOKEN_SIZE, "l1_%lld_%d_%s",
				 (long long) order_id, attempt_no, hex);
}

/* Read a positive number without leading zero up to its end; false for all else. */
static bool
read_number(const char **position, int64_t *number)
{
	const char *p = *position;
	int64_t		value = 0;

	if (*p < '1' || *p > '9')
		return false;
	for (; *p >= '0' && *p <= '9'; p++)
	{
		int			digit = *p - '0';

		if (value > (INT64_MAX - digit) / 10)
			return false;
		value = value * 10 + digit;
	}
	*number = value;
	*position = p;
	return true;
}

/*
 * What is this token for?  Reads exactly what payguard_lease_token_make()
 * writes; attempt_no is 0 in a refund's token, refund_id in an attempt's.
 */
bool
payguard_lease_token_read(const char *token, int64_t *order_id, int *attempt_no,
						  int64_t *refund_id)
{
	const char *p = token;
	int64_t		number;
	bool		is_refund;

	if (strlen(token) >= LEASE_TOKEN_SIZE || strncmp(p, "l1_", 3) != 0)
		return false;
	p += 3;
	if (!read_number(&p, order_id) || *p++ != '_')
		return false;
	is_refund = (*p == 'r');
	if (is_refund)
		p++;
	if (!read_number(&p, &number) || *p++ != '_')
		return false;
	if (strlen(p) != 16 || strspn(p, "0123456789abcdef") != 16)
		return false;
	if (!is_refund && number > INT_MAX)
		return false;
	*attempt_no = is_refund ? 0 : (int) number;
	*refund_id = is_refund ? number : 0;
	return true;
}

/*
 * sha256 over several parts, each preceded by its length as 8 bytes, so that
 * no two lists of parts give the same input.  A failure of libcrypto (no
 * memory) leaves zeros, which equal no real digest.
 */
void
payguard_digest(const BytesView *parts, int count, unsigned char *digest)
{
	EVP_MD_CTX *context = EVP_MD_CTX_new();
	bool		ok;
	int			i;

	memset(digest, 0, SHA256_SIZE);
	ok = context != NULL && EVP_DigestInit_ex(context, EVP_sha256(), NULL) == 1;
	for (i = 0; ok && i < count; i++)
	{
		unsigned char length[8];
		uint64_t	rest = parts[i].length;
		int			j;

		for (j = 7; j >= 0; j--)
		{
			length[j] = rest & 0xff;
			rest >>= 8;
		}
		ok = EVP_DigestUpdate(context, length, sizeof(length)) == 1 &&
			EVP_DigestUpdate(context, parts[i].data, parts[i].length) == 1;
	}
	if (ok && EVP_DigestFinal_ex(context, digest, NULL) != 1)
		memset(digest, 0, SHA256_SIZE);
	EVP_MD_CTX_free(context);
}
