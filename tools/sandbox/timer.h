/*-------------------------------------------------------------------------
 *
 * timer.h
 *	  One thread that calls functions when they are due.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TIMER_H
#define TIMER_H

#include <stdbool.h>
#include <stdint.h>

typedef void (*TimerFunction) (void *argument);

extern void timer_start(void);
extern void timer_add(int64_t wait, TimerFunction function, void *argument);
extern bool timer_stopping(void);
extern void timer_stop(void);

#endif							/* TIMER_H */
