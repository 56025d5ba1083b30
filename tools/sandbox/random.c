/*-------------------------------------------------------------------------
 *
 * random.c
 *	  Draws and identifiers that depend on nothing but their arguments.
 *
 * A run repeats only if a draw does not depend on which request happened to
 * come first.  So there is no generator with a state: every draw is a hash
 * of (seed, text, number, purpose).
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>

#include "random.h"

/* FNV-1a over a text, continued from hash */
static uint64_t
hash_text(uint64_t hash, const char *text)
{
	for (; *text; text++)
		hash = (hash ^ (unsigned char) *text) * UINT64_C(0x100000001b3);
	return (hash ^ 0xff) * UINT64_C(0x100000001b3);
}

/* The finalizer of splitmix64: spreads every input bit over all output bits */
static uint64_t
spread(uint64_t x)
{
	x += UINT64_C(0x9e3779b97f4a7c15);
	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

/* 64 bits that look random and are a function of the arguments */
uint64_t
random_bits(uint64_t seed, const char *text, uint64_t number, const char *purpose)
{
	uint64_t	hash = UINT64_C(0xcbf29ce484222325) ^ spread(seed);

	hash = hash_text(hash_text(hash, text), purpose);
	return spread(spread(hash) ^ number);
}

/* A number in [0, 1) */
double
random_unit(uint64_t seed, const char *text, uint64_t number, const char *purpose)
{
	return (double) (random_bits(seed, text, number, purpose) >> 11) / 9007199254740992.0;
}

/*
 * An identifier such as ch_0123...: a function of text and number and not of
 * the seed, so that a sandbox which is started anew hands out no id twice
 * for different references.
 */
void
random_id(char *id, const char *prefix, const char *text, uint64_t number)
{
	snprintf(id, RANDOM_ID, "%.6s%016llx%08x", prefix,
			 (unsigned long long) random_bits(1, text, number, prefix),
			 (unsigned) random_bits(2, text, number, prefix));
}
