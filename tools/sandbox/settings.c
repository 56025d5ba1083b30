/*-------------------------------------------------------------------------
 *
 * settings.c
 *	  Every setting of the sandbox: one table for the command line, the
 *	  control interface and the help text.
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "settings.h"

typedef enum SettingKind
{
	KIND_NUMBER,
	KIND_FLAG,
	KIND_RATE,
	KIND_TEXT
} SettingKind;

typedef struct Setting
{
	const char *name;
	SettingKind kind;
	void	   *place;			/* texts: NULL, see which */
	SettingText which;
	int64_t		least;
	int64_t		most;
	bool		running;		/* may it change while the program runs? */
	const char *help;
} Setting;

Settings	settings = {
	.control_port = -1, .threads = 2, .seed = 1,
	.slow = 2000, .silence = 120000, .pending = 1000, .query_lag = 2000,
	.retry_after = 1, .key_lifetime = 86400000, .fee = 60,
	.callback_tries = 10, .callback_backoff = 200, .callback_timeout = 10000,
	.callback_parallel = 16
};

static char texts[TEXT_COUNT][SETTING_TEXT] = {"", "", "sandbox-key", "", ""};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

#define HOUR INT64_C(3600000)
#define NUMBER(field, least, most, running, help) \
	{#field, KIND_NUMBER, &settings.field, 0, least, most, running, help}
#define FLAG(field, running, help) \
	{#field, KIND_FLAG, &settings.field, 0, 0, 1, running, help}
#define RATE(field, help) \
	{#field, KIND_RATE, &settings.field, 0, 0, 1, true, help}
#define TEXT(field, which, running, help) \
	{#field, KIND_TEXT, NULL, which, 0, 0, running, help}

static const Setting table[] = {
	NUMBER(port, 0, 65535, false, "port on 127.0.0.1; 0 = any free one (default)"),
	TEXT(port_file, TEXT_PORT_FILE, false, "file to write the port to once it listens"),
	NUMBER(control_port, -1, 65535, false, "second port that no fault touches; 0 = any, -1 = none (default)"),
	TEXT(control_port_file, TEXT_CONTROL_PORT_FILE, false, "file to write the control port to"),
	TEXT(api_key, TEXT_API_KEY, true, "key that requests must carry (default sandbox-key)"),
	NUMBER(threads, 1, 64, false, "threads that serve connections (default 2)"),
	NUMBER(seed, 0, INT64_MAX, true, "seed of all draws (default 1)"),
	FLAG(die_with_parent, false, "end when the parent process ends"),

	NUMBER(latency, 0, HOUR, true, "wait before every answer, ms (default 0)"),
	NUMBER(slow, 0, HOUR, true, "wait of the fault slow, ms (default 2000)"),
	NUMBER(silence, 0, HOUR, true, "longest silence of charge_then_silence, ms (default 120000)"),
	NUMBER(pending, 0, 24 * HOUR, true, "time to the end of pending_then_*, ms (default 1000)"),
	NUMBER(query_lag, 0, HOUR, true, "how long the fault query_lag hides a charge, ms (default 2000)"),
	NUMBER(retry_after, 0, 3600, true, "Retry-After of 429 and 503, seconds (default 1)"),
	NUMBER(key_lifetime, 0, 720 * HOUR, true, "life of an idempotency key, ms (default 24 hours)"),
	NUMBER(fee, 0, 10000, true, "fee in the settlement file, 1/100 percent (default 60)"),
	FLAG(no_idempotency, true, "ignore idempotency keys, as a gateway that has none"),
	FLAG(no_unique_reference, true, "let a reference be charged again"),

	TEXT(webhook_secret, TEXT_WEBHOOK_SECRET, true, "whsec_...; several separated by blanks; none = no signature"),
	TEXT(callback_url, TEXT_CALLBACK_URL, true, "where callbacks go; none = no callbacks"),
	NUMBER(callback_delay, 0, HOUR, true, "wait before every callback, ms"),
	NUMBER(callback_shuffle, 0, HOUR, true, "further random wait up to this, ms: callbacks overtake each other"),
	RATE(callback_duplicate, "part of the callbacks that is sent twice under one webhook-id"),
	RATE(callback_again, "part that is sent again under a new webhook-id"),
	RATE(callback_lost, "part that is never sent"),
	NUMBER(callback_tries, 1, 100, true, "how often a callback is tried until a 2xx (default 10)"),
	NUMBER(callback_backoff, 1, HOUR, true, "wait before the second try, ms, then doubled up to 5 s (default 200)"),
	NUMBER(callback_timeout, 1, HOUR, true, "how long an answer may take, ms (default 10000)"),
	NUMBER(callback_parallel, 1, 256, true, "callbacks in flight at most (default 16)"),
};

#define TABLE_SIZE ((int) (sizeof(table) / sizeof(table[0])))

/* Are two names the same, with - and _ taken for one? */
static bool
same_name(const char *a, const char *b)
{
	for (; *a || *b; a++, b++)
		if ((*a == '-' ? '_' : *a) != (*b == '-' ? '_' : *b))
			return false;
	return true;
}

/* Parse and store a number or flag; false if it is none or out of range */
static bool
set_number(const Setting *setting, const char *value)
{
	char	   *end;
	long long	number;

	if (setting->kind == KIND_FLAG && (strcmp(value, "true") == 0 || strcmp(value, "on") == 0))
		value = "1";
	if (setting->kind == KIND_FLAG && (strcmp(value, "false") == 0 || strcmp(value, "off") == 0))
		value = "0";
	errno = 0;
	number = strtoll(value, &end, 10);
	if (errno || end == value || *end || number < setting->least || number > setting->most)
		return false;
	*(_Atomic int64_t *) setting->place = number;
	return true;
}

/* Parse and store a rate; false if it is none */
static bool
set_rate(const Setting *setting, const char *value)
{
	char	   *end;
	double		rate = strtod(value, &end);

	if (end == value || *end || !(rate >= 0 && rate <= 1))
		return false;
	*(_Atomic double *) setting->place = rate;
	return true;
}

/* Store a text; false if it is too long */
static bool
set_text(const Setting *setting, const char *value)
{
	if (strlen(value) >= SETTING_TEXT)
		return false;
	pthread_mutex_lock(&lock);
	strcpy(texts[setting->which], value);
	pthread_mutex_unlock(&lock);
	return true;
}

/* Set one setting by name; NULL, or what is wrong */
const char *
settings_set(const char *name, const char *value, bool running)
{
	for (int i = 0; i < TABLE_SIZE; i++)
	{
		bool		done;

		if (!same_name(table[i].name, name))
			continue;
		if (running && !table[i].running)
			return "can only be set at the start";
		done = table[i].kind == KIND_TEXT ? set_text(&table[i], value) :
			table[i].kind == KIND_RATE ? set_rate(&table[i], value) :
			set_number(&table[i], value);
		return done ? NULL : "value out of range";
	}
	return "no such setting";
}

/* Set what a JSON object names, while running; NULL, or what is wrong */
const char *
settings_configure(json_t *object)
{
	const char *name;
	json_t	   *value;

	json_object_foreach(object, name, value)
	{
		char		number[64];
		const char *text = json_string_value(value);
		const char *wrong;

		if (json_is_integer(value))
			snprintf(number, sizeof(number), "%lld", (long long) json_integer_value(value));
		else if (json_is_real(value))
			snprintf(number, sizeof(number), "%.17g", json_real_value(value));
		else
			snprintf(number, sizeof(number), "%d", json_is_true(value));
		wrong = settings_set(name, text ? text : json_is_null(value) ? "" : number, true);
		if (wrong)
			return wrong;
	}
	return NULL;
}

/* All settings but the secrets, as the control interface shows them */
json_t *
settings_json(void)
{
	json_t	   *object = json_object();

	for (int i = 0; i < TABLE_SIZE; i++)
	{
		const Setting *setting = &table[i];
		char		text[SETTING_TEXT];
		json_t	   *value;

		if (setting->kind == KIND_TEXT)
		{
			if (setting->which == TEXT_API_KEY || setting->which == TEXT_WEBHOOK_SECRET)
				continue;
			settings_text(setting->which, text);
			value = json_string(text);
		}
		else if (setting->kind == KIND_RATE)
			value = json_real(*(_Atomic double *) setting->place);
		else
			value = json_integer(*(_Atomic int64_t *) setting->place);
		json_object_set_new(object, setting->name, value);
	}
	return object;
}

/* Copy a text setting; text has room for SETTING_TEXT bytes */
void
settings_text(SettingText which, char *text)
{
	pthread_mutex_lock(&lock);
	strcpy(text, texts[which]);
	pthread_mutex_unlock(&lock);
}

/* The i-th setting's help, name and argument (NULL: none); NULL after the last */
const char *
settings_usage(int i, const char **name, const char **argument)
{
	static const char *const arguments[] = {"N", NULL, "RATE", "TEXT"};

	if (i >= TABLE_SIZE)
		return NULL;
	*name = table[i].name;
	*argument = arguments[table[i].kind];
	return table[i].help;
}
