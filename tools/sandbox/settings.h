/*-------------------------------------------------------------------------
 *
 * settings.h
 *	  Every setting of the sandbox: one table for the command line, the
 *	  control interface and the help text.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SETTINGS_H
#define SETTINGS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* longest text of a setting, with its end */
#define SETTING_TEXT 1024

/* Numbers are milliseconds unless said; all may change while requests run. */
typedef struct Settings
{
	_Atomic int64_t port;
	_Atomic int64_t control_port;	/* -1: none */
	_Atomic int64_t threads;
	_Atomic int64_t seed;
	_Atomic int64_t die_with_parent;	/* flag */

	_Atomic int64_t latency;
	_Atomic int64_t slow;
	_Atomic int64_t silence;
	_Atomic int64_t pending;
	_Atomic int64_t query_lag;
	_Atomic int64_t retry_after;	/* seconds */
	_Atomic int64_t key_lifetime;
	_Atomic int64_t fee;		/* in 1/100 percent of the amount */
	_Atomic int64_t no_idempotency; /* flag */
	_Atomic int64_t no_unique_reference;	/* flag */

	_Atomic int64_t callback_delay;
	_Atomic int64_t callback_shuffle;
	_Atomic int64_t callback_tries; /* count */
	_Atomic int64_t callback_backoff;
	_Atomic int64_t callback_timeout;
	_Atomic int64_t callback_parallel;	/* count */
	_Atomic double callback_duplicate;
	_Atomic double callback_again;
	_Atomic double callback_lost;
} Settings;

typedef enum SettingText
{
	TEXT_PORT_FILE,
	TEXT_CONTROL_PORT_FILE,
	TEXT_API_KEY,
	TEXT_WEBHOOK_SECRET,
	TEXT_CALLBACK_URL,
	TEXT_COUNT
} SettingText;

extern Settings settings;

extern const char *settings_set(const char *name, const char *value, bool running);
extern const char *settings_configure(json_t *object);
extern json_t *settings_json(void);
extern void settings_text(SettingText which, char *text);
extern const char *settings_usage(int i, const char **name, const char **argument);

#endif							/* SETTINGS_H */
