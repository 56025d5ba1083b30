/*-------------------------------------------------------------------------
 *
 * sign.c
 *	  Signatures as Standard Webhooks ask for them.
 *
 * v1,<base64 of HMAC-SHA-256 over id.timestamp.body>, one for each secret,
 * separated by blanks.
 *
 *-------------------------------------------------------------------------
 */
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "answer.h"
#include "settings.h"
#include "sign.h"

#define SECRET_PREFIX "whsec_"
#define BLANKS " \t\n"

/* The bytes of a secret; how many there are, or -1 if it is no secret */
static int
decode_secret(const char *secret, unsigned char *bytes)
{
	size_t		length;
	int			decoded;

	if (strncmp(secret, SECRET_PREFIX, strlen(SECRET_PREFIX)) != 0)
		return -1;
	secret += strlen(SECRET_PREFIX);
	length = strlen(secret);
	if (length == 0 || length % 4 != 0)
		return -1;
	decoded = EVP_DecodeBlock(bytes, (const unsigned char *) secret, (int) length);
	if (decoded < 0)
		return -1;
	return decoded - (secret[length - 1] == '=') - (secret[length - 2] == '=');
}

/* NULL if all secrets are such, else what is wrong */
const char *
sign_check_secrets(const char *secrets)
{
	unsigned char bytes[SETTING_TEXT];
	char		copy[SETTING_TEXT];
	char	   *rest = NULL;

	snprintf(copy, sizeof(copy), "%s", secrets);
	for (char *secret = strtok_r(copy, BLANKS, &rest); secret; secret = strtok_r(NULL, BLANKS, &rest))
		if (decode_secret(secret, bytes) <= 0)
			return "a webhook secret is whsec_ and base64";
	return NULL;
}

/* The value of webhook-signature; its length, 0 if there is no secret */
size_t
sign_webhook(const char *secrets, const char *id, int64_t timestamp, const char *body,
			 char *signature, size_t size)
{
	char	   *signed_text = answer_format("%s.%lld.%s", id, (long long) timestamp, body);
	unsigned char key[SETTING_TEXT];
	unsigned char mac[EVP_MAX_MD_SIZE];
	unsigned char base64[4 * ((EVP_MAX_MD_SIZE + 2) / 3) + 1];
	unsigned int mac_length;
	char		copy[SETTING_TEXT];
	char	   *rest = NULL;
	size_t		used = 0;

	snprintf(copy, sizeof(copy), "%s", secrets);
	for (char *secret = strtok_r(copy, BLANKS, &rest); secret; secret = strtok_r(NULL, BLANKS, &rest))
	{
		int			key_length = decode_secret(secret, key);

		if (key_length <= 0 || used + 64 > size)
			continue;
		HMAC(EVP_sha256(), key, key_length, (unsigned char *) signed_text,
			 strlen(signed_text), mac, &mac_length);
		EVP_EncodeBlock(base64, mac, (int) mac_length);
		used += snprintf(signature + used, size - used, "%sv1,%s", used ? " " : "", base64);
	}
	free(signed_text);
	return used;
}
