/*-------------------------------------------------------------------------
 *
 * random.h
 *	  Draws and identifiers that depend on nothing but their arguments.
 *
 *-------------------------------------------------------------------------
 */
#ifndef RANDOM_H
#define RANDOM_H

#include <stddef.h>
#include <stdint.h>

/* room for a prefix of up to four characters and 24 hexadecimal digits */
#define RANDOM_ID 32

extern uint64_t random_bits(uint64_t seed, const char *text, uint64_t number, const char *purpose);
extern double random_unit(uint64_t seed, const char *text, uint64_t number, const char *purpose);
extern void random_id(char *id, const char *prefix, const char *text, uint64_t number);

#endif							/* RANDOM_H */
