/*-------------------------------------------------------------------------
 *
 * clock.h
 *	  The two clocks of the sandbox and their text form.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CLOCK_H
#define CLOCK_H

#include <stdint.h>

/* room for 2026-11-29T10:00:00.123Z */
#define CLOCK_TEXT 32

extern int64_t clock_now(void);
extern int64_t clock_ticks(void);
extern const char *clock_text(int64_t when, char *text);
extern int	clock_day(const char *text, int64_t *start);

#endif							/* CLOCK_H */
