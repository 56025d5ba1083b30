/*-------------------------------------------------------------------------
 *
 * clock.c
 *	  Reads times as gateways write them.
 *
 * Only forms that say their zone are read; a local time is no time.  Nothing
 * here asks for the session's time zone or raises an error.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "gateway/adapter.h"
#include "utils/datetime.h"
#include "utils/timestamp.h"

/* Exactly `count` digits; -1 for all else.  Moves the position. */
static int
read_digits(const char **position, int count)
{
	int			value = 0;

	for (; count > 0; count--, (*position)++)
	{
		if (**position < '0' || **position > '9')
			return -1;
		value = value * 10 + (**position - '0');
	}
	return value;
}

static bool
skip_char(const char **position, char c)
{
	if (**position != c)
		return false;
	(*position)++;
	return true;
}

/* Microseconds since 2000 of a calendar time in UTC; false when there is none. */
static bool
make_time(int year, int month, int day, int hour, int minute, int second, int64 *time)
{
	if (year < 1970 || year > 9999 || month < 1 || month > 12 || day < 1 ||
		day > day_tab[isleap(year)][month - 1] ||
		hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 60)
		return false;
	*time = ((int64) (date2j(year, month, day) - POSTGRES_EPOCH_JDATE) * SECS_PER_DAY +
			 hour * SECS_PER_HOUR + minute * SECS_PER_MINUTE + second) * USECS_PER_SEC;
	return true;
}

/* "2026-11-29T08:53:20.25Z", "2026-11-29 08:53:20+08:00". */
bool
payguard_time_read_rfc3339(const char *text, int64 *time)
{
	const char *p = text;
	int			year = read_digits(&p, 4);
	int			month = skip_char(&p, '-') ? read_digits(&p, 2) : -1;
	int			day = skip_char(&p, '-') ? read_digits(&p, 2) : -1;
	int			hour;
	int			minute;
	int			second;
	int64		fraction = 0;
	int64		unit = 100000;

	if (year < 0 || month < 0 || day < 0 || (*p != 'T' && *p != 't' && *p != ' '))
		return false;
	p++;
	hour = read_digits(&p, 2);
	minute = skip_char(&p, ':') ? read_digits(&p, 2) : -1;
	second = skip_char(&p, ':') ? read_digits(&p, 2) : -1;
	if (!make_time(year, month, day, hour, minute, second, time))
		return false;
	if (skip_char(&p, '.'))
	{
		if (*p < '0' || *p > '9')
			return false;
		for (; *p >= '0' && *p <= '9'; p++, unit /= 10)
			fraction += (*p - '0') * unit;
	}
	if (*p == '+' || *p == '-')
	{
		int			sign = (*p++ == '+') ? -1 : 1;
		int			offset_hour = read_digits(&p, 2);
		int			offset_minute;

		(void) skip_char(&p, ':');
		offset_minute = offset_hour < 0 ? -1 : read_digits(&p, 2);
		if (offset_hour < 0 || offset_hour > 15 || offset_minute < 0 || offset_minute > 59)
			return false;
		*time += sign * (offset_hour * INT64CONST(60) + offset_minute) * USECS_PER_MINUTE;
	}
	else if (*p++ != 'Z' && p[-1] != 'z')
		return false;
	*time += fraction;
	return *p == '\0';
}

/* "Sun, 29 Nov 2026 08:53:20 GMT", the one form that HTTP still writes. */
bool
payguard_time_read_http(const char *text, int64 *time)
{
	static const char *const names = "JanFebMarAprMayJunJulAugSepOctNovDec";
	const char *p = strchr(text, ',');
	const char *month;
	char		name[4];
	int			day;
	int			year;
	int			hour;
	int			minute;
	int			second;

	if (p == NULL || p[1] != ' ')
		return false;
	p += 2;
	day = read_digits(&p, 2);
	if (day < 0 || !skip_char(&p, ' ') || strlen(p) < 20)
		return false;
	strlcpy(name, p, sizeof(name));
	month = strstr(names, name);
	if (month == NULL || (month - names) % 3 != 0)
		return false;
	p += 3;
	year = skip_char(&p, ' ') ? read_digits(&p, 4) : -1;
	hour = skip_char(&p, ' ') ? read_digits(&p, 2) : -1;
	minute = skip_char(&p, ':') ? read_digits(&p, 2) : -1;
	second = skip_char(&p, ':') ? read_digits(&p, 2) : -1;
	return strcmp(p, " GMT") == 0 &&
		make_time(year, (month - names) / 3 + 1, day, hour, minute, second, time);
}

/* Seconds or milliseconds since 1970 as microseconds since 2000. */
bool
payguard_time_read_unix(const char *text, int64 unit, int64 *time)
{
	int64		value;

	if (strspn(text, "0123456789") != strlen(text) || text[0] == '\0' || strlen(text) > 14)
		return false;
	value = strtoll(text, NULL, 10);
	if (value > INT64CONST(253402300800) * (1000000 / unit))
		return false;
	*time = value * unit - INT64CONST(946684800) * USECS_PER_SEC;
	return true;
}
