/*-------------------------------------------------------------------------
 *
 * duration.c
 *	  Reads durations of options and documents ("10s", "24 hours").
 *
 * A number without unit is refused, because nobody can tell seconds from
 * milliseconds by looking at it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "gateway/adapter.h"

/* Ten years: longer ones are mistakes, and sums of them still fit. */
#define MAX_DURATION	(INT64CONST(3650) * 24 * 3600 * 1000000)

static const struct
{
	const char *unit;
	int64		microseconds;
}			units[] = {
	{"ms", INT64CONST(1000)},
	{"s", INT64CONST(1000000)},
	{"sec", INT64CONST(1000000)},
	{"second", INT64CONST(1000000)},
	{"seconds", INT64CONST(1000000)},
	{"m", INT64CONST(60000000)},
	{"min", INT64CONST(60000000)},
	{"minute", INT64CONST(60000000)},
	{"minutes", INT64CONST(60000000)},
	{"h", INT64CONST(3600000000)},
	{"hour", INT64CONST(3600000000)},
	{"hours", INT64CONST(3600000000)},
	{"d", INT64CONST(86400000000)},
	{"day", INT64CONST(86400000000)},
	{"days", INT64CONST(86400000000)}
};

/*
 * A whole number and its unit, perhaps with a blank between them; in
 * microseconds, or -1 when it is none.
 */
int64
payguard_duration_read(const char *text)
{
	int64		number = 0;
	const char *p = text;
	size_t		i;

	if (*p < '0' || *p > '9')
		return -1;
	for (; *p >= '0' && *p <= '9'; p++)
	{
		number = number * 10 + (*p - '0');
		if (number > MAX_DURATION)
			return -1;
	}
	while (*p == ' ')
		p++;
	for (i = 0; i < lengthof(units); i++)
		if (strcmp(p, units[i].unit) == 0)
			return number <= MAX_DURATION / units[i].microseconds ?
				number * units[i].microseconds : -1;
	return -1;
}
