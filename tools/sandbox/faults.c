/*-------------------------------------------------------------------------
 *
 * faults.c
 *	  Which fault meets which request.
 *
 * A fault belongs to a group; one request meets at most one fault of each
 * group.  A fault that was planned for the request's reference comes before
 * the rates.  Rates are drawn from (seed, reference, arrival, group), so a
 * run repeats however its requests interleave.
 *
 *-------------------------------------------------------------------------
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#include "faults.h"
#include "random.h"
#include "settings.h"

typedef enum Group
{
	GROUP_ANSWER,
	GROUP_OUTCOME,
	GROUP_LAG,
	GROUP_CLOSE,
	GROUP_COUNT
} Group;

/* A planned fault of one reference */
typedef struct Planned
{
	Fault		fault;
	Op			op;				/* OP_COUNT: the first money call that comes */
	int64_t		times;			/* -1: always */
	int64_t		wait;
	struct Planned *next;
} Planned;

typedef struct PlannedReference
{
	char	   *reference;
	Planned    *first;
	UT_hash_handle hh;
} PlannedReference;

static const struct
{
	const char *name;
	Group		group;
}			faults[FAULT_COUNT] = {
	[FAULT_NONE] = {"none", GROUP_COUNT},
	[FAULT_REFUSE] = {"refuse", GROUP_ANSWER},
	[FAULT_ERROR_500] = {"error_500", GROUP_ANSWER},
	[FAULT_ERROR_503] = {"error_503_retry_after", GROUP_ANSWER},
	[FAULT_RATE_LIMITED] = {"rate_limited_429", GROUP_ANSWER},
	[FAULT_THEN_FIN] = {"charge_then_fin", GROUP_ANSWER},
	[FAULT_THEN_RST] = {"charge_then_rst", GROUP_ANSWER},
	[FAULT_THEN_SILENCE] = {"charge_then_silence", GROUP_ANSWER},
	[FAULT_THEN_500] = {"charge_then_500", GROUP_ANSWER},
	[FAULT_THEN_500_KEPT] = {"charge_then_500_kept", GROUP_ANSWER},
	[FAULT_THEN_HTML] = {"charge_then_html", GROUP_ANSWER},
	[FAULT_THEN_TRUNCATED] = {"charge_then_truncated", GROUP_ANSWER},
	[FAULT_THEN_UNFRAMED] = {"charge_then_unframed", GROUP_ANSWER},
	[FAULT_THEN_CUT_HEADER] = {"charge_then_cut_header", GROUP_ANSWER},
	[FAULT_THEN_GARBAGE] = {"charge_then_garbage", GROUP_ANSWER},
	[FAULT_THEN_WRONG_AMOUNT] = {"charge_then_wrong_amount", GROUP_ANSWER},
	[FAULT_THEN_OTHER_REFERENCE] = {"charge_then_other_reference", GROUP_ANSWER},
	[FAULT_SLOW] = {"slow", GROUP_ANSWER},
	[FAULT_DECLINED] = {"declined", GROUP_OUTCOME},
	[FAULT_PENDING] = {"pending", GROUP_OUTCOME},
	[FAULT_PENDING_THEN_PAID] = {"pending_then_paid", GROUP_OUTCOME},
	[FAULT_PENDING_THEN_FAILED] = {"pending_then_failed", GROUP_OUTCOME},
	[FAULT_QUERY_LAG] = {"query_lag", GROUP_LAG},
	[FAULT_CLOSE_TOO_LATE] = {"close_too_late", GROUP_CLOSE},
};

static const char *const group_names[GROUP_COUNT] = {"answer", "outcome", "lag", "close"};
static const char *const op_names[OP_COUNT] = {"charge", "refund", "query", "close", "connection"};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static double rates[OP_COUNT][FAULT_COUNT];
static PlannedReference *planned;
static atomic_bool anything;	/* is there any rate or plan?  If not, no lock. */
static _Atomic uint64_t counts[FAULT_COUNT];

/* The name of a fault */
const char *
fault_name(int fault)
{
	return faults[fault].name;
}

/*
 * Find a fault by name: "slow", "refund.slow"; charge_then_fin may also be
 * written then_fin.  op is OP_COUNT if the name has none.
 */
static bool
find_fault(const char *name, Op *op, Fault *fault)
{
	const char *dot = strchr(name, '.');

	*op = OP_COUNT;
	if (dot)
	{
		for (int i = 0; i < OP_CONNECTION; i++)
			if (strlen(op_names[i]) == (size_t) (dot - name) &&
				strncmp(op_names[i], name, dot - name) == 0)
				*op = i;
		if (*op == OP_COUNT)
			return false;
		name = dot + 1;
	}
	for (int i = 0; i < FAULT_COUNT; i++)
	{
		const char *full = faults[i].name;

		*fault = i;
		if (strcmp(full, name) == 0 ||
			(strncmp(full, "charge_then_", 12) == 0 && strcmp(full + 7, name) == 0))
			return true;
	}
	return false;
}

/* The call that a fault without one belongs to, where rates are meant */
static Op
natural_op(Fault fault)
{
	return fault == FAULT_REFUSE ? OP_CONNECTION :
		fault == FAULT_CLOSE_TOO_LATE ? OP_CLOSE : OP_CHARGE;
}

/* Set the rate of one fault; NULL, or what is wrong.  lock is held. */
static const char *
set_rate(const char *name, double rate)
{
	Op			op;
	Fault		fault;
	double		sum = 0;

	if (!find_fault(name, &op, &fault) || fault == FAULT_NONE)
		return "no such fault";
	if (op == OP_COUNT)
		op = natural_op(fault);
	if (!(rate >= 0 && rate <= 1))
		return "a rate is a number from 0 to 1";
	rates[op][fault] = rate;
	for (int i = 0; i < FAULT_COUNT; i++)
		if (faults[i].group == faults[fault].group)
			sum += rates[op][i];
	anything = true;
	return sum > 1.000000001 ? "the rates of one group exceed 1 in sum" : NULL;
}

/* Set the rate of one fault; NULL, or what is wrong */
const char *
faults_set_rate(const char *name, double rate)
{
	const char *wrong;

	pthread_mutex_lock(&lock);
	wrong = set_rate(name, rate);
	pthread_mutex_unlock(&lock);
	return wrong;
}

/* Replace all rates by those of a JSON object; NULL, or what is wrong */
const char *
faults_set_rates(json_t *wanted)
{
	double		before[OP_COUNT][FAULT_COUNT];
	const char *wrong = NULL;
	const char *name;
	json_t	   *rate;

	pthread_mutex_lock(&lock);
	memcpy(before, rates, sizeof(rates));
	memset(rates, 0, sizeof(rates));
	json_object_foreach(wanted, name, rate)
	{
		if (wrong == NULL)
			wrong = set_rate(name, json_is_number(rate) ? json_number_value(rate) : -1);
	}
	if (wrong)
		memcpy(rates, before, sizeof(rates));
	pthread_mutex_unlock(&lock);
	return wrong;
}

/* The rates in force, as a JSON object */
json_t *
faults_rates(void)
{
	json_t	   *object = json_object();
	char		name[80];

	pthread_mutex_lock(&lock);
	for (int op = 0; op < OP_COUNT; op++)
		for (int i = 0; i < FAULT_COUNT; i++)
			if (rates[op][i] > 0)
			{
				snprintf(name, sizeof(name), "%s%s%s",
						 op == (int) natural_op(i) ? "" : op_names[op],
						 op == (int) natural_op(i) ? "" : ".", faults[i].name);
				json_object_set_new(object, name, json_real(rates[op][i]));
			}
	pthread_mutex_unlock(&lock);
	return object;
}

/* Drop what is planned for one reference; lock is held */
static void
forget(PlannedReference *entry)
{
	while (entry->first)
	{
		Planned    *gone = entry->first;

		entry->first = gone->next;
		free(gone);
	}
	HASH_DEL(planned, entry);
	free(entry->reference);
	free(entry);
}

/*
 * Plan a fault for a reference, after those planned before; "none" drops
 * them.  times -1: always.  NULL, or what is wrong.
 */
const char *
faults_plan_reference(const char *reference, const char *name, int64_t times, int64_t wait)
{
	PlannedReference *entry;
	Planned   **last;
	Planned    *new;
	Op			op;
	Fault		fault;

	if (!find_fault(name, &op, &fault))
		return "no such fault";
	pthread_mutex_lock(&lock);
	HASH_FIND_STR(planned, reference, entry);
	if (fault == FAULT_NONE)
	{
		if (entry)
			forget(entry);
		pthread_mutex_unlock(&lock);
		return NULL;
	}
	if (entry == NULL)
	{
		entry = calloc(1, sizeof(*entry));
		entry->reference = strdup(reference);
		HASH_ADD_KEYPTR(hh, planned, entry->reference, strlen(entry->reference), entry);
	}
	for (last = &entry->first; *last; last = &(*last)->next)
		;
	new = calloc(1, sizeof(*new));
	new->fault = fault;
	new->op = fault == FAULT_CLOSE_TOO_LATE ? OP_CLOSE : op;
	new->times = times;
	new->wait = wait;
	*last = new;
	anything = true;
	pthread_mutex_unlock(&lock);
	return NULL;
}

/* Drop all that is planned for references */
void
faults_forget_references(void)
{
	PlannedReference *entry;
	PlannedReference *next;

	pthread_mutex_lock(&lock);
	HASH_ITER(hh, planned, entry, next)
		forget(entry);
	pthread_mutex_unlock(&lock);
}

/* Take the fault of a group that is planned for this reference; lock is held */
static Fault
take_planned(PlannedReference *entry, Op op, Group group, int64_t *wait)
{
	for (Planned **place = &entry->first; *place; place = &(*place)->next)
	{
		Planned    *found = *place;
		Fault		fault = found->fault;
		bool		meant = found->op == op ||
			(found->op == OP_COUNT && (op == OP_CHARGE || op == OP_REFUND));

		if (!meant || faults[fault].group != group)
			continue;
		if (found->wait >= 0)
			*wait = found->wait;
		if (found->times > 0 && --found->times == 0)
		{
			*place = found->next;
			free(found);
		}
		return fault;
	}
	return FAULT_NONE;
}

/* Draw a fault of a group by the rates; lock is held */
static Fault
draw_by_rate(Op op, Group group, const char *reference, uint64_t arrival)
{
	double		draw = -1;
	double		sum = 0;

	for (int i = 0; i < FAULT_COUNT; i++)
	{
		if (faults[i].group != group || rates[op][i] <= 0)
			continue;
		if (draw < 0)
			draw = random_unit(settings.seed, reference, arrival * OP_COUNT + op,
							   group_names[group]);
		sum += rates[op][i];
		if (draw < sum)
			return i;
	}
	return FAULT_NONE;
}

/* Draw all groups for the arrival-th request of this kind and reference */
void
faults_draw(Op op, const char *reference, uint64_t arrival, FaultPlan *plan)
{
	Fault		found[GROUP_COUNT];
	PlannedReference *entry;

	memset(plan, 0, sizeof(*plan));
	plan->wait = -1;
	if (!anything)
		return;
	pthread_mutex_lock(&lock);
	HASH_FIND_STR(planned, reference, entry);
	for (int group = 0; group < GROUP_COUNT; group++)
	{
		found[group] = entry ? take_planned(entry, op, group, &plan->wait) : FAULT_NONE;
		if (found[group] == FAULT_NONE)
			found[group] = draw_by_rate(op, group, reference, arrival);
		counts[found[group]]++;
	}
	if (entry && entry->first == NULL)
		forget(entry);
	pthread_mutex_unlock(&lock);
	plan->answer = found[GROUP_ANSWER];
	plan->outcome = found[GROUP_OUTCOME];
	plan->query_lag = found[GROUP_LAG] != FAULT_NONE;
	plan->close_too_late = found[GROUP_CLOSE] != FAULT_NONE;
}

/* Is the number-th connection closed before anything is read from it? */
bool
faults_refuse_connection(uint64_t number)
{
	bool		refused;

	if (!anything)
		return false;
	pthread_mutex_lock(&lock);
	refused = draw_by_rate(OP_CONNECTION, GROUP_ANSWER, "connection", number) != FAULT_NONE;
	pthread_mutex_unlock(&lock);
	if (refused)
		counts[FAULT_REFUSE]++;
	return refused;
}

/* How often each fault was met, as a JSON object */
json_t *
faults_counts(bool reset)
{
	json_t	   *object = json_object();

	for (int i = FAULT_NONE + 1; i < FAULT_COUNT; i++)
	{
		if (counts[i])
			json_object_set_new(object, faults[i].name, json_integer(counts[i]));
		if (reset)
			counts[i] = 0;
	}
	return object;
}
