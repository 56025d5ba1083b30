/*-------------------------------------------------------------------------
 *
 * options.c
 *	  Validates the options of servers and user mappings.
 *
 * The validator reads no table, since pg_dump restores servers before rows,
 * and must never repeat the value of a secret.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/reloptions.h"
#include "catalog/pg_foreign_data_wrapper.h"
#include "catalog/pg_foreign_server.h"
#include "catalog/pg_foreign_table.h"
#include "catalog/pg_user_mapping.h"
#include "commands/defrem.h"
#include "fmgr.h"
#include "gateway/adapter.h"
#include "gateway/options.h"
#include "miscadmin.h"
#include "utils/builtins.h"

typedef enum OptionKind
{
	OPTION_TEXT,
	OPTION_URL,
	OPTION_DURATION,
	OPTION_COUNT,
	OPTION_MODE,
	OPTION_SURPLUS,
	OPTION_SCHEDULE,
	OPTION_BOOLEAN,
	OPTION_PROXY,
	OPTION_FILE,
	OPTION_SECRET
} OptionKind;

static const struct
{
	const char *name;
	bool		of_mapping;		/* else of the server */
	bool		superuser_only;
	OptionKind	kind;
}			known_options[] = {
	{"adapter", false, false, OPTION_TEXT},
	{"base_url", false, false, OPTION_URL},
	{"mode", false, false, OPTION_MODE},
	{"connect_timeout", false, false, OPTION_DURATION},
	{"total_timeout", false, false, OPTION_DURATION},
	{"max_in_flight", false, false, OPTION_COUNT},
	{"rate_limit", false, false, OPTION_COUNT},
	{"surplus", false, false, OPTION_SURPLUS},
	{"send_window", false, false, OPTION_DURATION},
	{"pending_lifetime", false, false, OPTION_DURATION},
	{"query_schedule", false, false, OPTION_SCHEDULE},
	{"webhook_url", false, false, OPTION_URL},
	{"proxy", false, true, OPTION_PROXY},
	{"ca_file", false, true, OPTION_FILE},
	{"allow_http", false, true, OPTION_BOOLEAN},
	{"api_key", true, false, OPTION_SECRET},
	{"api_user", true, false, OPTION_SECRET},
	{"webhook_secret", true, false, OPTION_SECRET},
	{"api_key_file", true, true, OPTION_FILE},
	{"api_user_file", true, true, OPTION_FILE},
	{"webhook_secret_file", true, true, OPTION_FILE}
};

PG_FUNCTION_INFO_V1(payguard_fdw_validator);

/* Value of an option, or NULL. */
const char *
payguard_option_get(List *options, const char *name)
{
	ListCell   *cell;

	foreach(cell, options)
	{
		DefElem    *option = lfirst(cell);

		if (strcmp(option->defname, name) == 0)
			return defGetString(option);
	}
	return NULL;
}

/* A duration in microseconds; the default when it is absent. */
int64
payguard_option_duration(List *options, const char *name, int64 otherwise)
{
	const char *text = payguard_option_get(options, name);
	int64		value = text !=NULL ? payguard_duration_read(text) : -1;

	return value >= 0 ? value : otherwise;
}

/* Whole numbers up to a million; -1 for all else. */
static int
read_count(const char *text)
{
	if (text[0] == '\0' || strlen(text) > 7 || strspn(text, "0123456789") != strlen(text) ||
		atoi(text) > 1000000)
		return -1;
	return atoi(text);
}

/* A whole number; the default when it is absent. */
int
payguard_option_integer(List *options, const char *name, int otherwise)
{
	const char *text = payguard_option_get(options, name);
	int			value = text !=NULL ? read_count(text) : -1;

	return value >= 0 ? value : otherwise;
}

/*
 * Read a schedule: durations separated by commas, none shorter than the one
 * before.  Returns the number of steps, 0 when it is no schedule.
 */
int
payguard_schedule_read(const char *text, int64_t *steps)
{
	int			count = 0;

	for (;;)
	{
		size_t		length = strcspn(text, ",");
		char	   *step = pnstrdup(text, length);
		char	   *end = step + length;

		while (*step == ' ')
			step++;
		while (end > step && end[-1] == ' ')
			*--end = '\0';
		if (count == QUERY_SCHEDULE_MAX)
			return 0;
		steps[count] = payguard_duration_read(step);
		if (steps[count] <= 0 || (count > 0 && steps[count] < steps[count - 1]))
			return 0;
		count++;
		if (text[length] == '\0')
			return count;
		text	  +=length + 1;
	}
}

static void
refuse_value(const char *name, const char *detail, const char *hint)
{
	ereport(ERROR,
			(errcode(ERRCODE_FDW_INVALID_ATTRIBUTE_VALUE),
			 errmsg("invalid value for option \"%s\"", name),
			 errdetail_internal("%s", detail),
			 hint != NULL ? errhint("%s", hint) : 0));
}

/* Options that make payguard read files or send elsewhere are an administrator's. */
static void
require_superuser(const char *name)
{
	if (!superuser())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to set option \"%s\"", name),
				 errhint("Only a superuser may set it.")));
}

/* The option is not known here: name the nearest that is. */
static void
refuse_option(const char *name, bool of_mapping)
{
	const char *names[lengthof(known_options)];
	const char *nearest;
	int			count = 0;
	size_t		i;

	for (i = 0; i < lengthof(known_options); i++)
		if (known_options[i].of_mapping == of_mapping)
			names[count++] = known_options[i].name;
	for (i = 0; i < lengthof(known_options); i++)
		if (known_options[i].of_mapping != of_mapping && strcmp(known_options[i].name, name) == 0)
			ereport(ERROR,
					(errcode(ERRCODE_FDW_INVALID_OPTION_NAME),
					 errmsg("invalid option \"%s\"", name),
					 of_mapping ? errhint("Set it on the server, not on the user mapping.") :
					 errhint("Set it in the user mapping for PUBLIC, not on the server.")));
	nearest = payguard_nearest_word(name, names, count);
	ereport(ERROR,
			(errcode(ERRCODE_FDW_INVALID_OPTION_NAME),
			 errmsg("invalid option \"%s\"", name),
			 nearest != NULL ? errhint("Perhaps you meant the option \"%s\".", nearest) :
			 errhint("Valid options are described in doc/gateways.md.")));
}

static void
check_url(const char *name, const char *value, bool allow_http)
{
	bool		is_plain_remote;
	const char *error = payguard_url_check(value, &is_plain_remote);

	/* The URL is not repeated: its user part may hold a password. */
	if (error != NULL)
		refuse_value(name, psprintf("The URL cannot be used because %s.", error), NULL);
	if (is_plain_remote && !allow_http)
		refuse_value(name, "The URL is not encrypted and does not lead to this machine.",
					 "Use https://, or let a superuser set allow_http.");
}

static void
check_word(const char *name, const char *value, const char *first, const char *second)
{
	if (strcmp(value, first) != 0 && strcmp(value, second) != 0)
		refuse_value(name, psprintf("Expected \"%s\" or \"%s\".", first, second), NULL);
}

/* Secrets go into headers, so they hold no control characters; the error is silent about it. */
static void
check_secret(const char *name, const char *value)
{
	const char *p;

	if (value[0] == '\0' || strlen(value) > SECRET_MAX_SIZE)
		refuse_value(name, psprintf("Expected between 1 and %d bytes.", SECRET_MAX_SIZE), NULL);
	for (p = value; *p != '\0'; p++)
		if ((unsigned char) *p < 0x20 || *p == 0x7f)
			refuse_value(name, "It contains a control character.", NULL);
}

static void
check_file(const char *name, const char *value)
{
	if (!is_absolute_path(value))
		refuse_value(name, "Expected an absolute path.", NULL);
}

/* A proxy: the schemes that libcurl knows, no credentials, or nothing. */
static void
check_proxy(const char *name, const char *value)
{
	bool		is_plain_remote;
	const char *error;

	if (value[0] == '\0')
		return;
	error = payguard_url_check(value, &is_plain_remote);
	if (error != NULL)
		refuse_value(name, psprintf("The proxy's URL cannot be used because %s.", error), NULL);
}

static void
check_value(OptionKind kind, const char *name, const char *value, bool allow_http)
{
	int64_t		steps[QUERY_SCHEDULE_MAX];
	bool		flag;

	switch (kind)
	{
		case OPTION_TEXT:
			if (value[0] == '\0')
				refuse_value(name, "Expected a name.", NULL);
			break;
		case OPTION_URL:
			check_url(name, value, allow_http);
			break;
		case OPTION_DURATION:
			if (payguard_duration_read(value) <= 0)
				refuse_value(name, "Expected a duration with its unit, such as \"10s\" or \"2 min\".",
							 NULL);
			break;
		case OPTION_COUNT:
			if (read_count(value) < 1)
				refuse_value(name, "Expected a whole number from 1 to 1000000.", NULL);
			break;
		case OPTION_MODE:
			check_word(name, value, "live", "test");
			break;
		case OPTION_SURPLUS:
			check_word(name, value, "review", "refund");
			break;
		case OPTION_SCHEDULE:
			if (payguard_schedule_read(value, steps) == 0)
				refuse_value(name, psprintf("Expected up to %d durations in ascending order, such as \"5s,15s,1min\".",
											QUERY_SCHEDULE_MAX), NULL);
			break;
		case OPTION_BOOLEAN:
			if (!parse_bool(value, &flag))
				refuse_value(name, "Expected a Boolean value.", NULL);
			break;
		case OPTION_PROXY:
			check_proxy(name, value);
			break;
		case OPTION_FILE:
			check_file(name, value);
			break;
		case OPTION_SECRET:
			check_secret(name, value);
			break;
	}
}

/* A secret comes from the option or from its file; both would hide one. */
static void
check_together(List *options, bool of_mapping)
{
	static const char *const secrets[] = {"api_key", "api_user", "webhook_secret"};
	size_t		i;

	if (of_mapping)
	{
		for (i = 0; i < lengthof(secrets); i++)
			if (payguard_option_get(options, secrets[i]) != NULL &&
				payguard_option_get(options, psprintf("%s_file", secrets[i])) != NULL)
				ereport(ERROR,
						(errcode(ERRCODE_FDW_INVALID_OPTION_NAME),
						 errmsg("conflicting options \"%s\" and \"%s_file\"",
								secrets[i], secrets[i]),
						 errhint("Drop one of them.")));
	}
	else if (payguard_option_duration(options, "connect_timeout", 0) >
			 payguard_option_duration(options, "total_timeout", DEFAULT_TOTAL_TIMEOUT))
		refuse_value("connect_timeout", "It is longer than total_timeout.", NULL);
}

/*
 * Validator of the foreign-data wrapper payguard.  Refuses unknown options and
 * bad values (class HV), and 42501 for options that only a superuser may set.
 */
Datum
payguard_fdw_validator(PG_FUNCTION_ARGS)
{
	List	   *options = untransformRelOptions(PG_GETARG_DATUM(0));
	Oid			catalog = PG_GETARG_OID(1);
	bool		of_mapping = (catalog == UserMappingRelationId);
	bool		allow_http = false;
	const char *text;
	ListCell   *cell;
	size_t		i;

	if (catalog == ForeignTableRelationId || catalog == ForeignDataWrapperRelationId ||
		(catalog != ForeignServerRelationId && !of_mapping))
	{
		if (options != NIL)
			ereport(ERROR,
					(errcode(ERRCODE_FDW_INVALID_OPTION_NAME),
					 errmsg("invalid option \"%s\"", ((DefElem *) linitial(options))->defname),
					 errdetail("Neither the foreign-data wrapper nor its foreign tables have options."),
					 errhint("Describe a gateway with CREATE SERVER and CREATE USER MAPPING FOR PUBLIC.")));
		PG_RETURN_VOID();
	}

	text = payguard_option_get(options, "allow_http");

	if (text !=NULL)
		(void) parse_bool(text, &allow_http);
	foreach(cell, options)
	{
		DefElem    *option = lfirst(cell);

		for (i = 0; i < lengthof(known_options); i++)
			if (known_options[i].of_mapping == of_mapping &&
				strcmp(known_options[i].name, option->defname) == 0)
				break;
		if (i == lengthof(known_options))
			refuse_option(option->defname, of_mapping);
		if (known_options[i].superuser_only)
			require_superuser(option->defname);
		check_value(known_options[i].kind, option->defname, defGetString(option), allow_http);
	}
	if (!of_mapping && payguard_option_get(options, "adapter") == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FDW_DYNAMIC_PARAMETER_VALUE_NEEDED),
				 errmsg("option \"%s\" is required", "adapter"),
				 errhint("It names the kind of gateway, such as \"generic\".")));
	check_together(options, of_mapping);
	PG_RETURN_VOID();
}
