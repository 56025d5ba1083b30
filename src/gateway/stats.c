/*-------------------------------------------------------------------------
 *
 * stats.c
 *	  Counters of each gateway in shared memory.
 *
 * Slots are given out once and never back, so that a reader needs no lock for
 * a slot's counters; what finds no slot is counted in the last one.  Without
 * preloading there is no shared memory, and counting does nothing.  The hooks
 * that ask for the memory are set by payguard.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "core/settings.h"
#include "gateway/gateway.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"

#define TRANCHE_NAME	"payguard gateway stats"

typedef struct StatsSlot
{
	Oid			database;		/* InvalidOid: free, or the overflow slot */
	char		gateway[NAMEDATALEN];
	pg_atomic_uint64 counters[GATEWAY_COUNTERS];
	pg_atomic_uint64 latency[GATEWAY_LATENCY_BUCKETS];
	pg_atomic_uint64 latency_sum;
} StatsSlot;

typedef struct StatsArea
{
	LWLock	   *lock;			/* guards giving out slots */
	int			slots;			/* the overflow slot, the last one, not
								 * included */
	StatsSlot	slot[FLEXIBLE_ARRAY_MEMBER];
} StatsArea;

static StatsArea *area = NULL;

/* The slot that was used last, since calls come in runs. */
static StatsSlot *last_slot = NULL;

static Size
area_size(void)
{
	return add_size(offsetof(StatsArea, slot),
					mul_size(payguard_max_gateways + 1, sizeof(StatsSlot)));
}

/* Ask for the memory: in shmem_request_hook. */
void
payguard_stats_request_shmem(void)
{
	RequestAddinShmemSpace(area_size());
	RequestNamedLWLockTranche(TRANCHE_NAME, 1);
}

static void
initialize_slot(StatsSlot *slot)
{
	int			i;

	slot->database = InvalidOid;
	slot->gateway[0] = '\0';
	for (i = 0; i < GATEWAY_COUNTERS; i++)
		pg_atomic_init_u64(&slot->counters[i], 0);
	for (i = 0; i < GATEWAY_LATENCY_BUCKETS; i++)
		pg_atomic_init_u64(&slot->latency[i], 0);
	pg_atomic_init_u64(&slot->latency_sum, 0);
}

/* Find or make the area: in shmem_startup_hook. */
void
payguard_stats_startup_shmem(void)
{
	bool		found;
	int			i;

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	last_slot = NULL;
	area = ShmemInitStruct("payguard gateway stats", area_size(), &found);
	if (!found)
	{
		area->lock = &(GetNamedLWLockTranche(TRANCHE_NAME))->lock;
		area->slots = payguard_max_gateways;
		for (i = 0; i <= area->slots; i++)
			initialize_slot(&area->slot[i]);
	}
	LWLockRelease(AddinShmemInitLock);
}

static bool
is_slot_of(const StatsSlot *slot, const char *gateway)
{
	return slot->database == MyDatabaseId &&
		strncmp(slot->gateway, gateway, NAMEDATALEN - 1) == 0;
}

/* The slot of a gateway of this database; the overflow slot when all are taken. */
static StatsSlot *
find_slot(const char *gateway)
{
	StatsSlot  *slot = NULL;
	int			i;

	if (last_slot != NULL && is_slot_of(last_slot, gateway))
		return last_slot;
	LWLockAcquire(area->lock, LW_SHARED);
	for (i = 0; i < area->slots && slot == NULL && area->slot[i].database != InvalidOid; i++)
		if (is_slot_of(&area->slot[i], gateway))
			slot = &area->slot[i];
	LWLockRelease(area->lock);

	if (slot == NULL)
	{
		LWLockAcquire(area->lock, LW_EXCLUSIVE);
		for (i = 0; i < area->slots && slot == NULL; i++)
		{
			if (area->slot[i].database == InvalidOid)
			{
				strlcpy(area->slot[i].gateway, gateway, NAMEDATALEN);
				area->slot[i].database = MyDatabaseId;
			}
			if (is_slot_of(&area->slot[i], gateway))
				slot = &area->slot[i];
		}
		LWLockRelease(area->lock);
	}
	if (slot == NULL)
		return &area->slot[area->slots];
	last_slot = slot;
	return slot;
}

/* Count one. */
void
payguard_stats_count(const char *gateway, GatewayCounter counter)
{
	if (area == NULL || gateway == NULL || !OidIsValid(MyDatabaseId))
		return;
	pg_atomic_fetch_add_u64(&find_slot(gateway)->counters[counter], 1);
}

/* Count a call's latency: bucket i holds what took less than 2^i ms. */
void
payguard_stats_latency(const char *gateway, int milliseconds)
{
	StatsSlot  *slot;
	int			bucket = 0;

	if (area == NULL || gateway == NULL || !OidIsValid(MyDatabaseId) || milliseconds < 0)
		return;
	while (bucket < GATEWAY_LATENCY_BUCKETS - 1 && milliseconds >= (1 << bucket))
		bucket++;
	slot = find_slot(gateway);
	pg_atomic_fetch_add_u64(&slot->latency[bucket], 1);
	pg_atomic_fetch_add_u64(&slot->latency_sum, milliseconds);
}

static void
copy_slot(StatsSlot *slot, GatewayStats *stats)
{
	int			i;

	stats->database = slot->database;
	strlcpy(stats->gateway, slot->gateway, NAMEDATALEN);
	for (i = 0; i < GATEWAY_COUNTERS; i++)
		stats->counters[i] = pg_atomic_read_u64(&slot->counters[i]);
	for (i = 0; i < GATEWAY_LATENCY_BUCKETS; i++)
		stats->latency[i] = pg_atomic_read_u64(&slot->latency[i]);
	stats->latency_sum = pg_atomic_read_u64(&slot->latency_sum);
}

/*
 * Copies of the slots in use, of all databases, and of the overflow slot (an
 * empty name).  Returns their number; 0 without preloading.
 */
int
payguard_stats_read(GatewayStats **stats)
{
	int			count = 0;
	int			i;

	*stats = NULL;
	if (area == NULL)
		return 0;
	*stats = palloc0(sizeof(GatewayStats) * (area->slots + 1));
	LWLockAcquire(area->lock, LW_SHARED);
	for (i = 0; i <= area->slots; i++)
		if (i == area->slots || area->slot[i].database != InvalidOid)
			copy_slot(&area->slot[i], &(*stats)[count++]);
	LWLockRelease(area->lock);
	return count;
}

/* Column name of a counter. */
const char *
payguard_counter_word(GatewayCounter counter)
{
	static const char *const words[GATEWAY_COUNTERS] = {
		"calls", "paid", "failed", "unknown", "not_sent", "callbacks", "callbacks_refused",
		"callbacks_ignored", "duplicate_sends"
	};

	return words[counter];
}
