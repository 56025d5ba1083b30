/*-------------------------------------------------------------------------
 *
 * clock.c
 *	  The two clocks of the sandbox and their text form.
 *
 * Times that others see (occurred_at) come from the wall clock, waits from
 * the monotonic one, so that a step of the wall clock delays nothing.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "clock.h"

/* Milliseconds of the given clock */
static int64_t
read_clock(clockid_t which)
{
	struct timespec now;

	clock_gettime(which, &now);
	return (int64_t) now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Milliseconds since 1970, UTC */
int64_t
clock_now(void)
{
	return read_clock(CLOCK_REALTIME);
}

/* Milliseconds of a clock that never steps */
int64_t
clock_ticks(void)
{
	return read_clock(CLOCK_MONOTONIC);
}

/* RFC 3339 text, UTC; text has room for CLOCK_TEXT bytes and is returned */
const char *
clock_text(int64_t when, char *text)
{
	time_t		seconds = when / 1000;
	struct tm	parts;

	gmtime_r(&seconds, &parts);
	snprintf(text, CLOCK_TEXT, "%04u-%02u-%02uT%02u:%02u:%02u.%03uZ",
			 (unsigned) (parts.tm_year + 1900) % 10000, (unsigned) parts.tm_mon + 1,
			 (unsigned) parts.tm_mday, (unsigned) parts.tm_hour,
			 (unsigned) parts.tm_min, (unsigned) parts.tm_sec,
			 (unsigned) (when % 1000));
	return text;
}

/* Start of the UTC day that "2026-11-29" names; 0 if it names none */
int
clock_day(const char *text, int64_t *start)
{
	struct tm	parts;
	char		again[16];
	const char *end;

	memset(&parts, 0, sizeof(parts));
	end = strptime(text, "%Y-%m-%d", &parts);
	if (end == NULL || *end != '\0' || strlen(text) != 10)
		return 0;
	*start = (int64_t) timegm(&parts) * 1000;
	strftime(again, sizeof(again), "%Y-%m-%d", &parts);
	return strcmp(again, text) == 0;
}
