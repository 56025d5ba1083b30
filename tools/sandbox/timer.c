/*-------------------------------------------------------------------------
 *
 * timer.c
 *	  One thread that calls functions when they are due.
 *
 * Slow and silent answers and charges that change later wait here, so that
 * no thread that serves connections ever sleeps.
 *
 *-------------------------------------------------------------------------
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "clock.h"
#include "heap.h"
#include "timer.h"

typedef struct Timer
{
	TimerFunction function;
	void	   *argument;
} Timer;

static pthread_t thread;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed;
static Heap heap;
static atomic_bool stopping;

/* Call one timer's function; no lock is held */
static void
fire(Timer *timer)
{
	Timer		copy = *timer;

	free(timer);
	copy.function(copy.argument);
}

/* Wait until the first timer is due or the heap has changed; lock is held */
static void
wait_for_due(int64_t due)
{
	struct timespec until;

	if (due == INT64_MAX)
	{
		pthread_cond_wait(&changed, &lock);
		return;
	}
	until.tv_sec = due / 1000;
	until.tv_nsec = due % 1000 * 1000000;
	pthread_cond_timedwait(&changed, &lock, &until);
}

/* The thread */
static void *
timer_main(void *unused)
{
	(void) unused;
	pthread_mutex_lock(&lock);
	while (!stopping)
	{
		int64_t		due = heap_due(&heap);

		if (due > clock_ticks())
		{
			wait_for_due(due);
			continue;
		}
		{
			Timer	   *timer = heap_pop(&heap);

			pthread_mutex_unlock(&lock);
			fire(timer);
			pthread_mutex_lock(&lock);
		}
	}
	pthread_mutex_unlock(&lock);
	return NULL;
}

/* Start the thread */
void
timer_start(void)
{
	pthread_condattr_t attributes;

	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&changed, &attributes);
	pthread_create(&thread, NULL, timer_main, NULL);
}

/*
 * Call function(argument) in wait milliseconds.  After timer_stop() it is
 * called at once, by the caller, so that nothing waits for ever.
 */
void
timer_add(int64_t wait, TimerFunction function, void *argument)
{
	int64_t		due = clock_ticks() + wait;
	Timer	   *timer = malloc(sizeof(Timer));
	bool		late;

	if (timer == NULL)
		abort();
	timer->function = function;
	timer->argument = argument;
	pthread_mutex_lock(&lock);
	late = stopping;
	if (!late)
	{
		if (due < heap_due(&heap))
			pthread_cond_signal(&changed);
		heap_push(&heap, due, timer);
	}
	pthread_mutex_unlock(&lock);
	if (late)
		fire(timer);
}

/* Is the program about to end?  Functions that would wait again do not. */
bool
timer_stopping(void)
{
	return stopping;
}

/* End the thread and call everything that still waits */
void
timer_stop(void)
{
	Timer	   *timer;

	pthread_mutex_lock(&lock);
	stopping = true;
	pthread_cond_signal(&changed);
	pthread_mutex_unlock(&lock);
	pthread_join(thread, NULL);
	while ((timer = heap_pop(&heap)) != NULL)
		fire(timer);
}
