/*-------------------------------------------------------------------------
 *
 * registry.c
 *	  From a foreign server and its user mapping to a Gateway.
 *
 * Gateways are cached for the backend and dropped by invalidation callbacks.
 * A Gateway that somebody may still hold must not be freed: what has become
 * stale is retired and freed at the transaction's end.  Only catalogs are
 * read, through the system caches; only the mapping for PUBLIC counts, since
 * any role with USAGE can make a mapping of its own.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/reloptions.h"
#include "access/xact.h"
#include "catalog/pg_user_mapping.h"
#include "commands/defrem.h"
#include "compat.h"
#include "core/errcode.h"
#include "foreign/foreign.h"
#include "gateway/adapter.h"
#include "gateway/options.h"
#include "gateway/secret.h"
#include "miscadmin.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

#define WRAPPER_NAME	"payguard"
#define SECRET_FILES	3

typedef struct CachedGateway
{
	char		name[NAMEDATALEN];	/* hash key */
	Gateway    *gateway;		/* NULL: none, or retired */
	uint64		generation;		/* of the catalogs that it was made from */
	SecretFile	files[SECRET_FILES];
} CachedGateway;

static HTAB *cache = NULL;

/* Counts changes of servers, mappings and wrappers. */
static uint64 catalog_generation = 1;

/* Stale gateways (Gateway *), to be freed when the transaction ends. */
static List *retired = NIL;

static void
note_catalog_change(Datum arg, int cacheid, uint32 hashvalue)
{
	catalog_generation++;
}

/* Nobody holds a Gateway past the transaction, so what is stale can go now. */
static void
free_retired(XactEvent event, void *arg)
{
	ListCell   *cell;

	if (retired == NIL || event == XACT_EVENT_PRE_COMMIT ||
		event == XACT_EVENT_PARALLEL_PRE_COMMIT || event == XACT_EVENT_PRE_PREPARE)
		return;
	foreach(cell, retired)
		payguard_gateway_free(lfirst(cell));
	list_free(retired);
	retired = NIL;
}

static void
initialize_cache(void)
{
	HASHCTL		control;

	memset(&control, 0, sizeof(control));
	control.keysize = NAMEDATALEN;
	control.entrysize = sizeof(CachedGateway);
	control.hcxt = TopMemoryContext;
	cache = hash_create("payguard gateways", 16, &control,
						HASH_ELEM | HASH_STRINGS | HASH_CONTEXT);
	CacheRegisterSyscacheCallback(FOREIGNSERVEROID, note_catalog_change, (Datum) 0);
	CacheRegisterSyscacheCallback(USERMAPPINGOID, note_catalog_change, (Datum) 0);
	CacheRegisterSyscacheCallback(FOREIGNDATAWRAPPEROID, note_catalog_change, (Datum) 0);
	RegisterXactCallback(free_retired, NULL);
}

/* Take the entry's gateway out of the cache; it is freed when nobody can hold it. */
static void
retire(CachedGateway *entry)
{
	MemoryContext old;

	if (entry->gateway == NULL)
		return;
	old = MemoryContextSwitchTo(TopMemoryContext);
	retired = lappend(retired, entry->gateway);
	MemoryContextSwitchTo(old);
	entry->gateway = NULL;
}

static bool
is_fresh(const CachedGateway *entry)
{
	int			i;

	if (entry->gateway == NULL || entry->generation != catalog_generation)
		return false;
	for (i = 0; i < SECRET_FILES; i++)
		if (!payguard_secret_unchanged(&entry->files[i]))
			return false;
	return true;
}

/* Options of the mapping for PUBLIC; NIL when there is none. */
static List *
public_mapping_options(Oid serverid)
{
	HeapTuple	tuple = SearchSysCache2(USERMAPPINGUSERSERVER, ObjectIdGetDatum(InvalidOid),
										ObjectIdGetDatum(serverid));
	List	   *options = NIL;
	Datum		datum;
	bool		isnull;

	if (!HeapTupleIsValid(tuple))
		return NIL;
	datum = SysCacheGetAttr(USERMAPPINGUSERSERVER, tuple, Anum_pg_user_mapping_umoptions,
							&isnull);
	if (!isnull)
		options = untransformRelOptions(datum);
	ReleaseSysCache(tuple);
	return options;
}

/* A secret from its option or its file; NULL when neither is there. */
static char *
read_secret(const char *gateway, List *options, const char *name, SecretFile *file)
{
	const char *value = payguard_option_get(options, name);
	const char *path = payguard_option_get(options, psprintf("%s_file", name));

	if (path == NULL)
		return value != NULL ? pstrdup(value) : NULL;
	file->path = pstrdup(path);
	return payguard_secret_read(gateway, path, file);
}

/* Secrets separated by blanks. */
static List *
split_secrets(const char *text)
{
	List	   *secrets = NIL;

	while (text !=NULL && *text !='\0')
	{
		size_t		length = strcspn(text, " \t");

		if (length > 0)
			secrets = lappend(secrets, pnstrdup(text, length));
		text	  +=length + strspn(text +length, " \t");
	}
	return secrets;
}

static char *
copy_option(List *options, const char *name, const char *otherwise)
{
	const char *value = payguard_option_get(options, name);

	if (value == NULL)
		value = otherwise;
	return value != NULL ? pstrdup(value) : NULL;
}

static void
fill_traits(GatewayTraits *traits, const Adapter *adapter, List *options)
{
	const char *schedule = payguard_option_get(options, "query_schedule");
	const char *surplus = payguard_option_get(options, "surplus");

	const char *mode = payguard_option_get(options, "mode");

	payguard_adapter_traits(adapter, traits);
	traits->mode = (mode != NULL && strcmp(mode, "test") == 0) ? MODE_TEST : MODE_LIVE;
	traits->send_window = payguard_option_duration(options, "send_window", DEFAULT_SEND_WINDOW);
	traits->pending_lifetime = payguard_option_duration(options, "pending_lifetime",
														DEFAULT_PENDING_LIFETIME);
	traits->refund_surplus = (surplus != NULL && strcmp(surplus, "refund") == 0);
	if (schedule != NULL)
		traits->query_steps = payguard_schedule_read(schedule, traits->query_schedule);
	if (traits->query_steps == 0)
		traits->query_steps = payguard_schedule_read(DEFAULT_QUERY_SCHEDULE,
													 traits->query_schedule);
}

/* PG004 for a server whose adapter is not there. */
static void
refuse_adapter(const char *gateway, const char *adapter)
{
	const char *nearest = adapter != NULL ? payguard_adapter_nearest(adapter) : NULL;

	ereport(ERROR,
			(errcode(ERRCODE_PAYGUARD_GATEWAY),
			 adapter != NULL ?
			 errmsg("adapter \"%s\" of gateway \"%s\" does not exist", adapter, gateway) :
			 errmsg("gateway \"%s\" has no adapter", gateway),
			 nearest != NULL ? errhint("Perhaps you meant the adapter \"%s\".", nearest) :
			 errhint("Set the option adapter of server \"%s\" to an adapter that exists.", gateway)));
}

/* Make the Gateway of a server in a context of its own, under the caller's. */
static Gateway *
build_gateway(const ForeignServer *server, const Adapter *adapter, SecretFile *files)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "payguard gateway",
												  ALLOCSET_SMALL_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	Gateway    *gateway = palloc0(sizeof(Gateway));
	List	   *mapping = public_mapping_options(server->serverid);
	List	   *options = server->options;

	gateway->context = context;
	gateway->serverid = server->serverid;
	gateway->name = pstrdup(server->servername);
	gateway->adapter = adapter;
	gateway->adapter_name = pstrdup(adapter->name);
	gateway->base_url = copy_option(options, "base_url", "");
	/* Paths begin with a slash, so the base must not end with one. */
	while (gateway->base_url[0] != '\0' && gateway->base_url[strlen(gateway->base_url) - 1] == '/')
		gateway->base_url[strlen(gateway->base_url) - 1] = '\0';
	gateway->total_timeout = payguard_option_duration(options, "total_timeout",
													  DEFAULT_TOTAL_TIMEOUT);
	gateway->connect_timeout = Min(payguard_option_duration(options, "connect_timeout",
															DEFAULT_CONNECT_TIMEOUT),
								   gateway->total_timeout);
	gateway->max_in_flight = payguard_option_integer(options, "max_in_flight",
													 payguard_gateway_is_endpoint(gateway) ?
													 ENDPOINT_MAX_IN_FLIGHT : 0);
	gateway->rate_limit = payguard_option_integer(options, "rate_limit", 0);
	gateway->webhook_url = copy_option(options, "webhook_url", NULL);
	gateway->proxy = copy_option(options, "proxy", "");
	gateway->ca_file = copy_option(options, "ca_file", NULL);
	gateway->api_key = read_secret(gateway->name, mapping, "api_key", &files[0]);
	gateway->api_user = read_secret(gateway->name, mapping, "api_user", &files[1]);
	gateway->webhook_secrets = split_secrets(read_secret(gateway->name, mapping,
														 "webhook_secret", &files[2]));
	fill_traits(&gateway->traits, adapter, options);
	gateway->mode = gateway->traits.mode;
	MemoryContextSwitchTo(old);
	return gateway;
}

/* The server of that name if it is one of ours, else NULL. */
static ForeignServer *
find_server(const char *name)
{
	ForeignServer *server;

	if (strlen(name) >= NAMEDATALEN)
		return NULL;
	server = GetForeignServerByName(name, true);
	if (server == NULL ||
		strcmp(GetForeignDataWrapper(server->fdwid)->fdwname, WRAPPER_NAME) != 0)
		return NULL;
	return server;
}

/* Make the entry's gateway anew; false when the server cannot be used. */
static bool
refresh_entry(const char *name, bool missing_ok)
{
	uint64		generation = catalog_generation;
	ForeignServer *server = find_server(name);
	SecretFile	files[SECRET_FILES];
	const char *adapter_name;
	const Adapter *adapter;
	CachedGateway *entry;
	Gateway    *gateway;
	bool		found;

	if (server == NULL)
	{
		if (!missing_ok)
			ereport(ERROR,
					(errcode(ERRCODE_PAYGUARD_GATEWAY),
					 errmsg("gateway \"%s\" does not exist", name),
					 errhint("A gateway is made by CREATE SERVER ... FOREIGN DATA WRAPPER payguard.")));
		return false;
	}
	adapter_name = payguard_option_get(server->options, "adapter");
	adapter = adapter_name != NULL ? payguard_adapter_get(adapter_name) : NULL;
	if (adapter == NULL)
	{
		if (!missing_ok)
			refuse_adapter(name, adapter_name);
		return false;
	}

	memset(files, 0, sizeof(files));
	gateway = build_gateway(server, adapter, files);
	entry = hash_search(cache, name, HASH_ENTER, &found);
	entry->gateway = NULL;
	MemoryContextSetParent(gateway->context, TopMemoryContext);
	entry->gateway = gateway;
	entry->generation = generation;
	memcpy(entry->files, files, sizeof(files));
	return true;
}

/*
 * The gateway of that name, for this transaction.  With check_usage the
 * current user must hold USAGE on the server (42501).  PG004 when it does not
 * exist, is not payguard's, or names an adapter that does not exist; with
 * missing_ok NULL comes back for those.
 */
const Gateway *
payguard_gateway_get(const char *name, bool check_usage, bool missing_ok)
{
	CachedGateway *entry;

	if (cache == NULL)
		initialize_cache();

	/*
	 * A cached entry asks no system cache, which is where changes by others
	 * would be heard of.
	 */
	AcceptInvalidationMessages();
	entry = strlen(name) < NAMEDATALEN ? hash_search(cache, name, HASH_FIND, NULL) : NULL;
	if (entry == NULL || !is_fresh(entry))
	{
		if (entry != NULL)
			retire(entry);
		if (!refresh_entry(name, missing_ok))
			return NULL;
		entry = hash_search(cache, name, HASH_FIND, NULL);
	}
	if (check_usage && payguard_gateway_is_endpoint(entry->gateway))
		ereport(ERROR,
				(errcode(ERRCODE_PAYGUARD_GATEWAY),
				 errmsg("gateway \"%s\" is an endpoint for events", name),
				 errhint("Use a gateway that takes payments.")));
	if (check_usage)
	{
		AclResult	result = payguard_server_aclcheck(entry->gateway->serverid, GetUserId());

		if (result != ACLCHECK_OK)
			aclcheck_error(result, OBJECT_FOREIGN_SERVER, name);
	}
	return entry->gateway;
}

static char *
copy_text(const char *text)
{
	return text !=NULL ? pstrdup(text) : NULL;
}

/*
 * A copy that outlives the transaction.  The adapter is shared: it lives as
 * long as the backend.
 */
Gateway *
payguard_gateway_copy(const Gateway *gateway, MemoryContext parent)
{
	MemoryContext context = AllocSetContextCreate(parent, "payguard gateway",
												  ALLOCSET_SMALL_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	Gateway    *copy = palloc(sizeof(Gateway));
	ListCell   *cell;

	*copy = *gateway;
	copy->context = context;
	copy->name = pstrdup(gateway->name);
	copy->adapter_name = pstrdup(gateway->adapter_name);
	copy->base_url = pstrdup(gateway->base_url);
	copy->webhook_url = copy_text(gateway->webhook_url);
	copy->proxy = pstrdup(gateway->proxy);
	copy->ca_file = copy_text(gateway->ca_file);
	copy->api_key = copy_text(gateway->api_key);
	copy->api_user = copy_text(gateway->api_user);
	copy->webhook_secrets = NIL;
	foreach(cell, gateway->webhook_secrets)
		copy->webhook_secrets = lappend(copy->webhook_secrets, pstrdup(lfirst(cell)));
	MemoryContextSwitchTo(old);
	return copy;
}

/* Free a gateway, after overwriting its secrets. */
void
payguard_gateway_free(Gateway *gateway)
{
	ListCell   *cell;

	if (gateway->api_key != NULL)
		memset(gateway->api_key, 0, strlen(gateway->api_key));
	if (gateway->api_user != NULL)
		memset(gateway->api_user, 0, strlen(gateway->api_user));
	foreach(cell, gateway->webhook_secrets)
		memset(lfirst(cell), 0, strlen(lfirst(cell)));
	MemoryContextDelete(gateway->context);
}

/*
 * Traits by name, for decisions on stored facts.  Raises nothing for a gateway
 * that is gone or whose secrets cannot be read: a fact is judged all the same,
 * at worst as if the gateway had no key and no query.
 */
void
payguard_gateway_traits(const char *name, GatewayTraits *traits)
{
	CachedGateway *entry = NULL;
	ForeignServer *server;
	const char *adapter_name = NULL;
	const Adapter *adapter = NULL;

	if (cache == NULL)
		initialize_cache();
	AcceptInvalidationMessages();
	if (name != NULL && strlen(name) < NAMEDATALEN)
		entry = hash_search(cache, name, HASH_FIND, NULL);
	if (entry != NULL && entry->gateway != NULL && entry->generation == catalog_generation)
	{
		*traits = entry->gateway->traits;
		return;
	}

	memset(traits, 0, sizeof(*traits));
	server = name != NULL ? find_server(name) : NULL;
	if (server != NULL)
		adapter_name = payguard_option_get(server->options, "adapter");
	if (adapter_name != NULL)
		adapter = payguard_adapter_get(adapter_name);
	if (adapter != NULL)
	{
		fill_traits(traits, adapter, server->options);
		return;
	}
	traits->not_found_settles = INT64CONST(60000000);
	traits->mode = MODE_NOT_TOLD;
	strlcpy(traits->retry_suffix, DEFAULT_RETRY_SUFFIX, sizeof(traits->retry_suffix));
	traits->send_window = DEFAULT_SEND_WINDOW;
	traits->pending_lifetime = DEFAULT_PENDING_LIFETIME;
	traits->query_steps = payguard_schedule_read(DEFAULT_QUERY_SCHEDULE, traits->query_schedule);
}
