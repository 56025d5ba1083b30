/*-------------------------------------------------------------------------
 *
 * options.h
 *	  The options of servers and user mappings, and how their values are read.
 *
 * Private to gateway/.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYGUARD_GATEWAY_OPTIONS_H
#define PAYGUARD_GATEWAY_OPTIONS_H

#include "gateway/gateway.h"

/* Defaults, in microseconds */
#define DEFAULT_CONNECT_TIMEOUT		INT64CONST(10000000)
#define DEFAULT_TOTAL_TIMEOUT		INT64CONST(30000000)
#define DEFAULT_SEND_WINDOW			INT64CONST(120000000)
#define DEFAULT_PENDING_LIFETIME	INT64CONST(7200000000)
#define DEFAULT_QUERY_SCHEDULE		"5s,15s,1min,5min,15min,1h,3h,6h,12h,24h"

/* Value of an option in a list of DefElem, or NULL. */
extern const char *payguard_option_get(List *options, const char *name);

/* Same with a default; the validator has seen to it that the text is valid. */
extern int64 payguard_option_duration(List *options, const char *name, int64 otherwise);
extern int	payguard_option_integer(List *options, const char *name, int otherwise);

/* Read "5s,15s"; the number of steps, 0 when it is no schedule. */
extern int	payguard_schedule_read(const char *text, int64_t *steps);

/* url.c: NULL when the URL is good, else what is wrong with it. */
extern const char *payguard_url_check(const char *url, bool *is_plain_remote);

/* Secrets are bounded; more is a wrong file. */
#define SECRET_MAX_SIZE		8192

#endif							/* PAYGUARD_GATEWAY_OPTIONS_H */
