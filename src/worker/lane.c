/*-------------------------------------------------------------------------
 *
 * lane.c
 *	  Lanes: the worker's copy of each gateway, its slots, rate and breaker.
 *
 * A gateway uses its own slots only: max_in_flight if it is set, else as many
 * as leave room for others.  rate_limit is a bucket of tokens.  The breaker
 * opens after calls in a row that got no answer, and lets one probe through
 * after a pause that doubles.
 *
 * Configurations are read inside transactions and used outside, so a lane
 * holds a copy that lives until its last call has ended.  Secrets are in it:
 * nothing here logs more than a gateway's name.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>

#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"
#include "worker/lane.h"

/* Unanswered calls in a row that open the breaker. */
#define BREAKER_LIMIT		5
/* Pauses of the breaker, in milliseconds. */
#define BREAKER_FIRST_PAUSE 1000
#define BREAKER_LAST_PAUSE	60000

static MemoryContext lane_context = NULL;
static List *lanes = NIL;

/* The lane whose configuration is being read; that may raise an error. */
static Lane *checking = NULL;

/*
 * A server or user mapping has changed.
 */
static void
forget_configuration(Datum arg, int cacheid, uint32 hashvalue)
{
	payguard_lanes_forget();
}

/*
 * Once in a worker.
 */
void
payguard_lanes_init(MemoryContext parent)
{
	lane_context = AllocSetContextCreate(parent, "payguard lanes", ALLOCSET_SMALL_SIZES);
	CacheRegisterSyscacheCallback(FOREIGNSERVEROID, forget_configuration, (Datum) 0);
	CacheRegisterSyscacheCallback(USERMAPPINGOID, forget_configuration, (Datum) 0);
	CacheRegisterSyscacheCallback(FOREIGNDATAWRAPPEROID, forget_configuration, (Datum) 0);
}

/*
 * All lanes.
 */
List *
payguard_lanes_all(void)
{
	return lanes;
}

/*
 * Have every lane checked again.
 */
void
payguard_lanes_forget(void)
{
	ListCell   *lc;

	foreach(lc, lanes)
		((Lane *) lfirst(lc))->is_checked = false;
}

/*
 * The lane of that name.
 */
Lane *
payguard_lane_find(const char *name)
{
	MemoryContext old_context;
	Lane	   *lane;
	ListCell   *lc;

	foreach(lc, lanes)
	{
		lane = lfirst(lc);
		if (strcmp(lane->name, name) == 0)
			return lane;
	}
	old_context = MemoryContextSwitchTo(lane_context);
	lane = palloc0(sizeof(Lane));
	lane->name = pstrdup(name);
	lane->tokens_at = GetCurrentTimestamp();
	lane->low_water = DT_NOEND;
	lanes = lappend(lanes, lane);
	MemoryContextSwitchTo(old_context);
	return lane;
}

/*
 * Let go of a configuration; the last one frees it.
 */
void
payguard_lane_gateway_release(LaneGateway *shared)
{
	if (--shared->users > 0)
		return;
	payguard_gateway_free(shared->gateway);
	pfree(shared);
}

/*
 * Is the text the same?  NULL equals NULL.
 */
static bool
is_same_text(const char *a, const char *b)
{
	if (a == NULL || b == NULL)
		return a == b;
	return strcmp(a, b) == 0;
}

/*
 * Are the texts the same, in the same order?
 */
static bool
is_same_list(List *a, List *b)
{
	ListCell   *a_cell;
	ListCell   *b_cell;

	if (list_length(a) != list_length(b))
		return false;
	forboth(a_cell, a, b_cell, b)
	{
		if (strcmp(lfirst(a_cell), lfirst(b_cell)) != 0)
			return false;
	}
	return true;
}

/*
 * Would calls be made in the same way?  Compiled adapters live as long as the
 * process, so their address tells one from another.
 */
static bool
is_same_gateway(const Gateway *a, const Gateway *b)
{
	return a->serverid == b->serverid && a->adapter == b->adapter && a->mode == b->mode &&
		a->connect_timeout == b->connect_timeout && a->total_timeout == b->total_timeout &&
		a->max_in_flight == b->max_in_flight && a->rate_limit == b->rate_limit &&
		is_same_text(a->base_url, b->base_url) && is_same_text(a->webhook_url, b->webhook_url) &&
		is_same_text(a->proxy, b->proxy) && is_same_text(a->ca_file, b->ca_file) &&
		is_same_text(a->api_key, b->api_key) && is_same_text(a->api_user, b->api_user) &&
		is_same_list(a->webhook_secrets, b->webhook_secrets);
}

/*
 * Use this configuration from now on, NULL for none.  Calls under way keep
 * theirs.
 */
static void
install_gateway(Lane *lane, const Gateway *gateway)
{
	LaneGateway *old = lane->current;
	LaneGateway *new = NULL;

	if (gateway != NULL)
	{
		if (old != NULL && is_same_gateway(old->gateway, gateway))
			return;
		new = MemoryContextAlloc(lane_context, sizeof(LaneGateway));
		new->users = 1;
		new->gateway = payguard_gateway_copy(gateway, lane_context);
	}
	lane->current = new;
	if (old != NULL)
		payguard_lane_gateway_release(old);
}

/*
 * One log line when a gateway cannot be called any more, one when it can.
 */
static void
tell_change(Lane *lane, const char *reason)
{
	if (lane->current == NULL && !lane->is_told)
		ereport(LOG,
				(errmsg("payguard cannot call gateway \"%s\": %s", lane->name, reason),
				 errhint("Its calls wait until this is changed.")));
	else if (lane->current != NULL && lane->is_told)
		ereport(LOG,
				(errmsg("payguard can call gateway \"%s\" again", lane->name)));
	lane->is_told = lane->current == NULL;
}

/*
 * Read the lane's gateway, if it may have changed.  Needs a transaction.  An
 * error leaves `checking` behind for payguard_lane_check_failed().
 */
void
payguard_lane_check(Lane *lane)
{
	const Gateway *gateway;
	const char *reason = NULL;

	if (lane->is_checked)
		return;
	checking = lane;
	gateway = payguard_gateway_get(lane->name, false, true);
	if (gateway == NULL)
		reason = "there is no such gateway";
	else if (payguard_gateway_is_endpoint(gateway))
		reason = payguard_delivery_hindrance(gateway);
	else if (gateway->api_key == NULL)
		reason = "it has no API key";
	if (reason != NULL)
		gateway = NULL;
	install_gateway(lane, gateway);
	checking = NULL;
	tell_change(lane, reason);
	lane->is_checked = true;
}

/*
 * The transaction failed; if it was over a gateway's configuration, that lane
 * is shut until it may have changed, so that the others go on.
 */
bool
payguard_lane_check_failed(const char *message)
{
	Lane	   *lane = checking;

	if (lane == NULL)
		return false;
	checking = NULL;
	install_gateway(lane, NULL);
	tell_change(lane, message);
	lane->is_checked = true;
	return true;
}

/*
 * Are there others that could be called?
 */
static bool
has_neighbours(const Lane *lane)
{
	ListCell   *lc;

	foreach(lc, lanes)
	{
		if (lfirst(lc) != lane && ((Lane *) lfirst(lc))->current != NULL)
			return true;
	}
	return false;
}

/*
 * Slots that the lane may use: its own number, else three of four of those
 * that are free, so that a gateway that hangs leaves some for others.
 */
static int
count_slots(Lane *lane, int free_slots)
{
	int			room = free_slots;
	int			own = lane->current->gateway->max_in_flight;

	if (own > 0)
		room = Min(room, own - lane->in_flight);
	else if (has_neighbours(lane))
		room = Min(room, (3 * free_slots - lane->in_flight + 3) / 4);
	return Max(room, 0);
}

/*
 * Fill the bucket by the time that has passed; it holds one second's calls.
 */
static int
count_tokens(Lane *lane, TimestampTz now)
{
	double		rate = lane->current->gateway->rate_limit;
	double		seconds = (double) (now - lane->tokens_at) / USECS_PER_SEC;

	if (rate <= 0)
		return INT_MAX;
	lane->tokens = Min(lane->tokens + Max(seconds, 0) * rate, rate);
	lane->tokens_at = now;
	return (int) lane->tokens;
}

/*
 * How many calls may be started now?
 */
int
payguard_lane_room(Lane *lane, int free_slots)
{
	TimestampTz now = GetCurrentTimestamp();
	int			room = 0;

	if (lane->current != NULL)
	{
		room = Min(count_slots(lane, free_slots), count_tokens(lane, now));
		if (lane->pause > 0)
			room = now >= lane->open_until && lane->in_flight == 0 ? Min(room, 1) : 0;
	}
	lane->was_shut = room == 0;
	return room;
}

/*
 * When does time alone give a lane room: the next token, the next probe?
 */
TimestampTz
payguard_lanes_next_opening(void)
{
	TimestampTz result = DT_NOEND;
	TimestampTz now = GetCurrentTimestamp();
	ListCell   *lc;

	foreach(lc, lanes)
	{
		Lane	   *lane = lfirst(lc);
		TimestampTz opening = DT_NOEND;

		if (!lane->was_shut || lane->current == NULL)
			continue;
		if (lane->pause > 0)
		{
			if (lane->in_flight == 0)
				opening = lane->open_until;
		}
		else if (count_tokens(lane, now) < 1)
			opening = now + (TimestampTz) ((1 - lane->tokens) * USECS_PER_SEC /
										   lane->current->gateway->rate_limit) + 1;
		result = Min(result, opening);
	}
	return result;
}

/*
 * Lanes that got room and had none when they were last asked: how old may the
 * items be that takes have left out meanwhile?
 */
TimestampTz
payguard_lanes_reopened(int free_slots)
{
	TimestampTz result = DT_NOEND;
	ListCell   *lc;

	foreach(lc, lanes)
	{
		Lane	   *lane = lfirst(lc);

		if (lane->was_shut && payguard_lane_room(lane, free_slots) > 0)
			result = Min(result, lane->low_water);
	}
	return result;
}

/*
 * A call begins; returns the configuration that it uses.
 */
LaneGateway *
payguard_lane_begin(Lane *lane)
{
	lane->in_flight++;
	if (lane->current->gateway->rate_limit > 0)
		lane->tokens -= 1;
	lane->current->users++;
	return lane->current;
}

/*
 * The breaker: one answer closes it, calls in a row without one open it, and
 * an unanswered probe doubles the pause.
 */
static void
judge_answer(Lane *lane, bool answered)
{
	bool		was_probe = lane->pause > 0 && GetCurrentTimestamp() >= lane->open_until;

	if (answered)
	{
		if (lane->pause > 0)
			ereport(LOG,
					(errmsg("gateway \"%s\" answers again", lane->name)));
		lane->unanswered = 0;
		lane->pause = 0;
		return;
	}
	lane->unanswered++;
	if (lane->pause == 0 && lane->unanswered >= BREAKER_LIMIT)
	{
		lane->pause = BREAKER_FIRST_PAUSE;
		ereport(LOG,
				(errmsg("gateway \"%s\" does not answer", lane->name),
				 errdetail("The last %d calls got no answer.", lane->unanswered),
				 errhint("One call at a time will be tried until it answers.")));
	}
	else if (was_probe)
		lane->pause = Min(lane->pause * 2, BREAKER_LAST_PAUSE);
	else
		return;
	lane->open_until = GetCurrentTimestamp() + (TimestampTz) lane->pause * 1000;
}

/*
 * A call has ended.
 */
void
payguard_lane_end(Lane *lane, bool answered)
{
	lane->in_flight--;
	judge_answer(lane, answered);
}
