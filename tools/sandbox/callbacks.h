/*-------------------------------------------------------------------------
 *
 * callbacks.h
 *	  Callbacks: queued, delayed, doubled, lost, sent until acknowledged.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CALLBACKS_H
#define CALLBACKS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

extern void callbacks_start(void);
extern bool callbacks_wanted(void);
extern void callbacks_send(const char *object_id, int64_t number, const char *type,
						   int64_t occurred_at, const char *object, bool plain);
extern void callbacks_add_counts(json_t *summary);
extern void callbacks_reset(void);
extern void callbacks_stop(void);

#endif							/* CALLBACKS_H */
