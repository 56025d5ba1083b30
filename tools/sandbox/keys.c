/*-------------------------------------------------------------------------
 *
 * keys.c
 *	  Idempotency keys and the answers that were given under them.
 *
 * Guarded by the ledger's lock, so that a key, its charge and its answer
 * appear in one step.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#include "clock.h"
#include "keys.h"
#include "settings.h"

typedef struct Key
{
	char	   *name;
	uint64_t	fingerprint;	/* of the request's parameters */
	int			status;
	char	   *body;
	int64_t		busy_until;		/* the first request is answered then (ticks) */
	int64_t		made_at;		/* ticks */
	UT_hash_handle hh;
} Key;

static Key *keys;

/* Forget one key */
static void
forget(Key *key)
{
	HASH_DEL(keys, key);
	free(key->name);
	free(key->body);
	free(key);
}

/*
 * Answer from a key that was used before: with the first answer, or with
 * the reason why there is none.  False if the key is new or has expired.
 */
bool
keys_answer(const char *name, uint64_t fingerprint, Answer *answer)
{
	int64_t		now = clock_ticks();
	Key		   *key;

	if (name == NULL || settings.no_idempotency)
		return false;
	HASH_FIND_STR(keys, name, key);
	if (key && now - key->made_at >= settings.key_lifetime)
	{
		forget(key);
		key = NULL;
	}
	if (key == NULL)
		return false;
	if (key->fingerprint != fingerprint)
		answer_error(answer, 422, "key_reused", "The key was used with other parameters.");
	else if (now < key->busy_until)
		answer_error(answer, 409, "key_in_use", "The first request with this key is in progress.");
	else
	{
		answer_set(answer, key->status, strdup(key->body));
		answer->replayed = true;
	}
	return true;
}

/*
 * Keep a key's first answer, or a 500 in its place.  Until that answer has
 * been waited for, the request is in progress.
 */
void
keys_keep(const char *name, uint64_t fingerprint, const Answer *answer, bool as_error)
{
	Key		   *key;

	if (name == NULL || settings.no_idempotency)
		return;
	HASH_FIND_STR(keys, name, key);
	if (key)
		forget(key);
	key = calloc(1, sizeof(*key));
	key->name = strdup(name);
	key->fingerprint = fingerprint;
	key->status = as_error ? 500 : answer->status;
	key->body = strdup(as_error ? ANSWER_500 : answer->body);
	key->made_at = clock_ticks();
	key->busy_until = key->made_at + answer->wait;
	HASH_ADD_KEYPTR(hh, keys, key->name, strlen(name), key);
}

/* Forget all keys */
void
keys_reset(void)
{
	Key		   *key;
	Key		   *next;

	HASH_ITER(hh, keys, key, next)
		forget(key);
}
