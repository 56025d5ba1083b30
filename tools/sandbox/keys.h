/*-------------------------------------------------------------------------
 *
 * keys.h
 *	  Idempotency keys and the answers that were given under them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef KEYS_H
#define KEYS_H

#include <stdbool.h>
#include <stdint.h>

#include "answer.h"

/* longest key, with its end */
#define KEY_SIZE 256

extern bool keys_answer(const char *name, uint64_t fingerprint, Answer *answer);
extern void keys_keep(const char *name, uint64_t fingerprint, const Answer *answer,
					  bool as_error);
extern void keys_reset(void);

#endif							/* KEYS_H */
