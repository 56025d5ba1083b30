/*-------------------------------------------------------------------------
 *
 * signature.c
 *	  Message authentication codes and their text forms.
 *
 * HMAC is written out over libcrypto's digests, because the interfaces that
 * have it differ between libcrypto 1.1 and 3.  No error is raised here and no
 * comparison may end early: what is compared may come from an attacker.
 *
 *-------------------------------------------------------------------------
 */
#include "core/signature.h"

#include <string.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>

#define HMAC_MAX_BLOCK	128		/* of sha512 */

static const EVP_MD *
digest_of(SignatureAlgorithm algorithm)
{
	switch (algorithm)
	{
		case SIGNATURE_HMAC_SHA256:
			return EVP_sha256();
		case SIGNATURE_HMAC_SHA1:
			return EVP_sha1();
		case SIGNATURE_HMAC_SHA512:
			return EVP_sha512();
	}
	return NULL;
}

/* Digest of a block followed by parts; false when libcrypto fails. */
static bool
hash_parts(const EVP_MD *md, const unsigned char *block, size_t block_size,
		   const BytesView *parts, int count, unsigned char *result)
{
	EVP_MD_CTX *context = EVP_MD_CTX_new();
	bool		ok;
	int			i;

	ok = context != NULL && EVP_DigestInit_ex(context, md, NULL) == 1 &&
		EVP_DigestUpdate(context, block, block_size) == 1;
	for (i = 0; ok && i < count; i++)
		ok = EVP_DigestUpdate(context, parts[i].data, parts[i].length) == 1;
	ok = ok && EVP_DigestFinal_ex(context, result, NULL) == 1;
	EVP_MD_CTX_free(context);
	return ok;
}

/*
 * Code over the concatenated parts.  code has SIGNATURE_MAX_SIZE bytes.
 * Returns the code's length, or 0 when libcrypto fails.
 */
size_t
payguard_hmac(SignatureAlgorithm algorithm, const void *key, size_t key_length,
			  const BytesView *parts, int count, unsigned char *code)
{
	const EVP_MD *md = digest_of(algorithm);
	unsigned char pad[HMAC_MAX_BLOCK];
	unsigned char inner[SIGNATURE_MAX_SIZE];
	BytesView	inner_part;
	size_t		block_size;
	size_t		size;
	size_t		i;
	bool		ok = true;

	if (md == NULL)
		return 0;
	block_size = (algorithm == SIGNATURE_HMAC_SHA512) ? 128 : 64;
	size = (algorithm == SIGNATURE_HMAC_SHA512) ? 64 : (algorithm == SIGNATURE_HMAC_SHA1) ? 20 : 32;

	memset(pad, 0, sizeof(pad));
	if (key_length > block_size)
		ok = hash_parts(md, key, key_length, NULL, 0, pad);
	else if (key_length > 0)
		memcpy(pad, key, key_length);

	for (i = 0; i < block_size; i++)
		pad[i] ^= 0x36;
	ok = ok && hash_parts(md, pad, block_size, parts, count, inner);
	for (i = 0; i < block_size; i++)
		pad[i] ^= 0x36 ^ 0x5c;
	inner_part.data = inner;
	inner_part.length = size;
	ok = ok && hash_parts(md, pad, block_size, &inner_part, 1, code);
	OPENSSL_cleanse(pad, sizeof(pad));
	return ok ? size : 0;
}

/* Plain sha256 of some bytes; zeros when libcrypto fails. */
void
payguard_sha256(const void *data, size_t length, unsigned char *digest)
{
	if (!hash_parts(EVP_sha256(), data, length, NULL, 0, digest))
		memset(digest, 0, SHA256_SIZE);
}

/* Do both texts agree?  Only the lengths may show in the time taken. */
bool
payguard_equal_constant_time(const void *a, size_t a_length,
							 const void *b, size_t b_length)
{
	return a_length == b_length && CRYPTO_memcmp(a, b, a_length) == 0;
}

/* Lower-case hexadecimal digits; text has 2 * length + 1 bytes. */
void
payguard_hex_encode(const unsigned char *bytes, size_t length, char *text)
{
	static const char digits[] = "0123456789abcdef";
	size_t		i;

	for (i = 0; i < length; i++)
	{
		text[		2 * i] = digits[bytes[i] >> 4];
		text[		2 * i + 1] = digits[bytes[i] & 15];
	}
	text[		2 * length] = '\0';
}

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

/* Number of bytes, or -1 for bad text or too little room. */
int
payguard_hex_decode(const char *text, size_t length, unsigned char *bytes, size_t size)
{
	size_t		i;

	if (length % 2 != 0 || length / 2 > size)
		return -1;
	for (i = 0; i < length / 2; i++)
	{
		int			high = hex_value(text[2 * i]);
		int			low = hex_value(text[2 * i + 1]);

		if (high < 0 || low < 0)
			return -1;
		bytes[i] = (unsigned char) (high << 4 | low);
	}
	return (int) (length / 2);
}

static const char base64[] =
"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* Padded base64; text has 4 * ((length + 2) / 3) + 1 bytes. */
void
payguard_base64_encode(const unsigned char *bytes, size_t length, char *text)
{
	size_t		i;

	for (i = 0; i < length; i += 3)
	{
		unsigned	group = bytes[i] << 16;

		if (i + 1 < length)
			group |= bytes[i + 1] << 8;
		if (i + 2 < length)
			group |= bytes[i + 2];
		*text ++= base64[group >> 18];
		*text ++= base64[group >> 12 & 63];
		*text ++= (i + 1 < length) ? base64[group >> 6 & 63] : '=';
		*text ++= (i + 2 < length) ? base64[group & 63] : '=';
	}
	*text = '\0';
}

/*
 * Number of bytes, or -1 for bad text or too little room.  Strict: padded,
 * without blanks, and no bits set that mean nothing, so that a value has one
 * text only.
 */
int
payguard_base64_decode(const char *text, size_t length, unsigned char *bytes, size_t size)
{
	size_t		count = 0;
	size_t		i;

	if (length % 4 != 0)
		return -1;
	for (i = 0; i < length; i += 4)
	{
		unsigned	group = 0;
		int			padding = 0;
		int			j;

		for (j = 0; j < 4; j++)
		{
			char		c = text[i + j];
			const char *found = (c != '\0') ? strchr(base64, c) : NULL;

			if (c == '=' && i + 4 == length && j >= 2)
				padding++;
			else if (found == NULL || padding > 0)
				return -1;
			group = group << 6 | (padding > 0 ? 0 : (unsigned) (found - base64));
		}
		if (count + 3 - padding > size)
			return -1;
		if ((padding == 1 && (group & 0xff) != 0) || (padding == 2 && (group & 0xffff) != 0))
			return -1;
		bytes[count++] = group >> 16 & 0xff;
		if (padding < 2)
			bytes[count++] = group >> 8 & 0xff;
		if (padding < 1)
			bytes[count++] = group & 0xff;
	}
	return (int) count;
}
