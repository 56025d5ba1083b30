/*-------------------------------------------------------------------------
 *
 * adapter.c
 *	  The adapters of this backend: found by name, compiled once, asked.
 *
 * Built-in documents never change while the library is loaded, so a compiled
 * adapter lives as long as the backend.  adapter_spec() is the one place that
 * knows where documents come from.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "gateway/adapter.h"
#include "gateway/builtin.h"
#include "mb/pg_wchar.h"
#include "utils/memutils.h"

/* Compiled adapters (const Adapter *), in TopMemoryContext. */
static List *compiled_adapters = NIL;

/* The document of that name, or NULL.  Documents that users define come here. */
static const char *
adapter_spec(const char *name)
{
	const PayguardBuiltinAdapter *builtin;

	for (builtin = payguard_builtin_adapters; builtin->name != NULL; builtin++)
		if (strcmp(builtin->name, name) == 0)
			return builtin->spec;
	return NULL;
}

/*
 * The compiled adapter of that name, or NULL when there is none.  PG008 when
 * its document is not valid.
 */
const Adapter *
payguard_adapter_get(const char *name)
{
	ListCell   *cell;
	const char *spec;
	MemoryContext context;
	MemoryContext old;
	Adapter    *adapter;

	foreach(cell, compiled_adapters)
	{
		adapter = lfirst(cell);
		if (strcmp(adapter->name, name) == 0)
			return adapter;
	}
	spec = adapter_spec(name);
	if (spec == NULL)
		return NULL;

	/*
	 * Under the caller's context until it is whole, so that an error frees
	 * it.
	 */
	context = AllocSetContextCreate(CurrentMemoryContext, "payguard adapter",
									ALLOCSET_SMALL_SIZES);
	old = MemoryContextSwitchTo(context);
	adapter = payguard_adapter_compile(name, spec, strlen(spec));
	MemoryContextSwitchTo(TopMemoryContext);
	compiled_adapters = lappend(compiled_adapters, adapter);
	MemoryContextSetParent(context, TopMemoryContext);
	MemoryContextSwitchTo(old);
	return adapter;
}

/* The name of a known adapter that is near this one, or NULL. */
const char *
payguard_adapter_nearest(const char *name)
{
	const char *names[64];
	int			count;

	for (count = 0; count < (int) lengthof(names) && payguard_builtin_adapters[count].name; count++)
		names[count] = payguard_builtin_adapters[count].name;
	return payguard_nearest_word(name, names, count);
}

/* Does the adapter define this op? */
bool
payguard_adapter_has_op(const Adapter *adapter, CallOp op)
{
	return adapter->ops[op] != NULL;
}

/* Suffix put before the number of a later attempt. */
const char *
payguard_adapter_retry_suffix(const Adapter *adapter)
{
	return adapter->retry_suffix;
}

/* Does a reference fit the adapter's pattern? */
bool
payguard_adapter_reference_fits(const Adapter *adapter, const char *gateway_reference)
{
	int			length = strlen(gateway_reference);
	pg_wchar   *wide = palloc(sizeof(pg_wchar) * (length + 1));
	int			wide_length = pg_mb2wchar_with_len(gateway_reference, wide, length);
	bool		fits;

	fits = pg_regexec((regex_t *) &adapter->reference_regex, wide, wide_length, 0,
					  NULL, 0, NULL, 0) == REG_OKAY;
	pfree(wide);
	return fits;
}

/* The pattern, for hints. */
const char *
payguard_adapter_reference_pattern(const Adapter *adapter)
{
	return adapter->reference_pattern;
}

/* May the worker make charges, or only the application? */
bool
payguard_adapter_charges_by_worker(const Adapter *adapter)
{
	return !adapter->charge_by_application;
}

/*
 * How can a refund be asked about: by our reference, or only by its id?
 */
static void
find_refund_queries(const Adapter *adapter, bool *by_reference, bool *by_any)
{
	const Operation *op;

	*by_reference = false;
	*by_any = adapter->ops[CALL_REFUND_QUERY] != NULL;
	for (op = adapter->ops[CALL_REFUND_QUERY]; op != NULL; op = op->next)
		if ((op->variables & (1u << VARIABLE_REFERENCE)) &&
			!(op->variables & (1u << VARIABLE_PROVIDER_ID)))
			*by_reference = true;
}

/*
 * Traits that follow from the document alone.  A key counts as alive for its
 * life less a tenth of it, at most an hour: clocks differ, and a replay takes
 * time.
 */
void
payguard_adapter_traits(const Adapter *adapter, GatewayTraits *traits)
{
	int64		margin = Min(adapter->key_live / 10, INT64CONST(3600000000));

	traits->has_key = (adapter->key_place != KEY_PLACE_NONE);
	traits->key_live = adapter->key_live - margin;
	traits->reference_unique = adapter->reference_unique;
	traits->can_query_by_reference = (adapter->strategies & STRATEGY_QUERY_REFERENCE) != 0;
	traits->can_query = traits->can_query_by_reference ||
		(adapter->strategies & STRATEGY_QUERY_ID) != 0;
	find_refund_queries(adapter, &traits->can_query_refund_by_reference,
									&traits->can_query_refund);
	traits->can_close = (adapter->ops[CALL_CLOSE] != NULL);
	traits->can_replay = (adapter->strategies & STRATEGY_REPLAY) != 0;
	traits->not_found_is_proof = adapter->not_found_is_proof;
	traits->not_found_settles = adapter->not_found_settles;
	strlcpy(traits->retry_suffix, adapter->retry_suffix, sizeof(traits->retry_suffix));
}
