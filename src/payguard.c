/*-------------------------------------------------------------------------
 *
 * payguard.c
 *	  Module entry: settings, shared memory, worker registration.
 *
 * Nothing else happens here.  Loading never fails: without
 * shared_preload_libraries the SQL functions work and no worker does.  curl
 * is never touched in the postmaster or in a user's backend.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>

#include "core/crashpoint.h"
#include "core/settings.h"
#include "fmgr.h"
#include "gateway/gateway.h"
#include "ledger/ledger.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/guc.h"
#include "utils/varlena.h"
#include "worker/worker.h"

PG_MODULE_MAGIC;

extern PGDLLEXPORT void _PG_init(void);

char	   *payguard_databases = NULL;
char	   *payguard_instance = NULL;
bool		payguard_dispatch = true;
int			payguard_max_in_flight = 256;
int			payguard_max_gateways = 32;
int			payguard_poll_interval = 1000;
int			payguard_order_lifetime = 0;
int			payguard_lease_margin = 10000;
int			payguard_retention = 0;
bool		payguard_log_calls = false;
char	   *payguard_crash_at = NULL;

static shmem_request_hook_type prev_shmem_request_hook = NULL;
static shmem_startup_hook_type prev_shmem_startup_hook = NULL;

/*
 * payguard.databases must be a list of names; whether they exist is the
 * launcher's business.
 */
static bool
check_databases(char **newval, void **extra, GucSource source)
{
	char	   *raw = pstrdup(*newval);
	List	   *names;
	bool		is_list = SplitGUCList(raw, ',', &names);

	list_free(names);
	pfree(raw);
	if (!is_list)
		GUC_check_errdetail("List syntax is invalid.");
	return is_list;
}

/*
 * Settings of the server as a whole.  A library that is loaded later cannot
 * define a setting of the postmaster's; it shows the configured value.
 */
static void
define_server_settings(void)
{
	GucContext	at_start = process_shared_preload_libraries_in_progress ?
	PGC_POSTMASTER : PGC_SIGHUP;

	DefineCustomStringVariable("payguard.databases",
							   "Databases whose payments are sent.",
							   "A worker runs for each.  An empty list means none.",
							   &payguard_databases, "", PGC_SIGHUP, GUC_LIST_INPUT,
							   check_databases, NULL, NULL);
	DefineCustomStringVariable("payguard.instance",
							   "Label that tells this server from copies of it.",
							   "A copy with another label calls no gateway until it is adopted.",
							   &payguard_instance, "", at_start, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("payguard.max_gateways",
							"Number of gateways with statistics of their own.",
							"Further gateways share one more place.",
							&payguard_max_gateways, 32, 1, 10000, at_start, 0,
							NULL, NULL, NULL);
	DefineCustomBoolVariable("payguard.log_calls",
							 "Writes a line to the server log for each ended gateway call.",
							 NULL, &payguard_log_calls, false, PGC_SIGHUP, 0,
							 NULL, NULL, NULL);
}

/*
 * Settings of the workers.
 */
static void
define_worker_settings(void)
{
	DefineCustomBoolVariable("payguard.dispatch",
							 "Lets the workers start gateway calls.",
							 "Answers of calls under way are booked in any case.",
							 &payguard_dispatch, true, PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("payguard.max_in_flight",
							"Gateway calls that one worker has under way at most.",
							"A third of the files that a process may open is the bound in any case.",
							&payguard_max_in_flight, 256, 1, 10000, PGC_SIGHUP, 0,
							NULL, NULL, NULL);
	DefineCustomIntVariable("payguard.poll_interval",
							"Time between two looks for due calls when nothing woke the worker.",
							NULL, &payguard_poll_interval, 1000, 100, 60000, PGC_SIGHUP,
							GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("payguard.lease_margin",
							"Time that a lease outlasts the total timeout of its call.",
							NULL, &payguard_lease_margin, 10000, 1000, 3600000, PGC_SIGHUP,
							GUC_UNIT_MS, NULL, NULL, NULL);
}

/*
 * Settings of the ledger.
 */
static void
define_ledger_settings(void)
{
	DefineCustomIntVariable("payguard.order_lifetime",
							"Time after which an order expires that nobody has claimed.",
							"0 means that only orders with a lifetime of their own expire.",
							&payguard_order_lifetime, 0, 0, INT_MAX, PGC_SIGHUP,
							GUC_UNIT_MIN, NULL, NULL, NULL);
	DefineCustomIntVariable("payguard.retention",
							"Time for which finished orders and their evidence are kept.",
							"0 means for ever.",
							&payguard_retention, 0, 0, INT_MAX, PGC_SIGHUP,
							GUC_UNIT_MIN, NULL, NULL, NULL);
}

/*
 * payguard.crash_at must name a point that there is.
 */
static bool
check_crash_at(char **newval, void **extra, GucSource source)
{
	if (payguard_crash_is_valid(*newval))
		return true;
	GUC_check_errdetail("Expected is a point's name, optionally followed by a colon and how many times it is reached, and by another colon and \"process\", \"postmaster\" or \"server\".");
	return false;
}

static void
assign_crash_at(const char *newval, void *extra)
{
	payguard_crash_arm(newval);
}

/*
 * The setting that only tests use.
 */
static void
define_test_setting(void)
{
	DefineCustomStringVariable("payguard.crash_at",
							   "For tests only: the point at which a process kills itself or the server.",
							   NULL, &payguard_crash_at, "", PGC_SUSET,
							   GUC_NOT_IN_SAMPLE | GUC_SUPERUSER_ONLY,
							   check_crash_at, assign_crash_at, NULL);
}

/*
 * Ask for shared memory.
 */
static void
request_shmem(void)
{
	if (prev_shmem_request_hook)
		prev_shmem_request_hook();
	payguard_wake_request_shmem();
	payguard_stats_request_shmem();
}

/*
 * Find or make what is in shared memory.
 */
static void
startup_shmem(void)
{
	if (prev_shmem_startup_hook)
		prev_shmem_startup_hook();
	payguard_wake_startup_shmem();
	payguard_stats_startup_shmem();
}

/*
 * Module load.
 */
void
_PG_init(void)
{
	define_server_settings();
	define_worker_settings();
	define_ledger_settings();
	define_test_setting();
	MarkGUCPrefixReserved("payguard");

	payguard_traits_hook = payguard_gateway_traits;
	payguard_wake_init();

	if (!process_shared_preload_libraries_in_progress)
		return;

	prev_shmem_request_hook = shmem_request_hook;
	shmem_request_hook = request_shmem;
	prev_shmem_startup_hook = shmem_startup_hook;
	shmem_startup_hook = startup_shmem;

	/* pg_upgrade's servers must not pay */
	if (!IsBinaryUpgrade)
		payguard_worker_register();
}
