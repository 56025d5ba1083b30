/*-------------------------------------------------------------------------
 *
 * events.c
 *	  next_events: events for the application's consumers.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "api/argument.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "ledger/consumer.h"
#include "miscadmin.h"
#include "utils/tuplestore.h"

#define CONSUMER_MAX_LENGTH	200
#define EVENT_COLUMNS		8

PG_FUNCTION_INFO_V1(payguard_next_events);

/*
 * The consumer's name; those of endpoints are the worker's.
 */
static char *
read_consumer(FunctionCallInfo fcinfo)
{
	char	   *consumer = payguard_argument_text(fcinfo, 0, "consumer", CONSUMER_MAX_LENGTH);

	if (consumer[0] == ENDPOINT_CONSUMER_PREFIX)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("\"consumer\" must not begin with \"%c\"", ENDPOINT_CONSUMER_PREFIX),
				 errhint("Such names belong to endpoints, whose events the worker delivers.")));
	return consumer;
}

/*
 * How many events at most.
 */
static int
read_max(FunctionCallInfo fcinfo)
{
	int			max;

	if (PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("\"%s\" must not be null", "max")));
	max = PG_GETARG_INT32(1);
	if (max < 1 || max > EVENTS_AT_ONCE_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("\"max\" must be between 1 and %d", EVENTS_AT_ONCE_MAX),
				 errhint("Each event is locked until your transaction ends; commit, and ask again for more.")));
	return max;
}

/*
 * Add the events to the result, oldest first.
 */
static void
put_events(const int64 *seqs, int count, ReturnSetInfo *result)
{
	static LedgerPlan read = {
		"SELECT id, seq, type, aggregatetype, aggregateid, payload, created_at, cause"
		" FROM payguard.events WHERE seq = ANY ($1) ORDER BY seq",
		1, {INT8ARRAYOID}, NULL
	};
	Datum		parameters[1] = {payguard_seqs_param(seqs, count)};
	uint64		rows = payguard_plan_run(&read, parameters, NULL);

	for (uint64 i = 0; i < rows; i++)
	{
		Datum		values[EVENT_COLUMNS];
		bool		nulls[EVENT_COLUMNS];

		for (int column = 0; column < EVENT_COLUMNS; column++)
			values[column] = payguard_row_datum(i, column, &nulls[column]);
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
}

/*
 * next_events(consumer, max) -> id, seq, type, aggregatetype, aggregateid,
 * payload, created_at, cause
 *
 * Up to max events that this consumer has not had, oldest first.  They are
 * its own when its transaction commits; after a rollback they come again.
 * What another session of this consumer has taken and not yet committed is
 * left out; nobody waits.  Errors: 22004, 22023 for bad arguments, 25006 where
 * nothing can be written, PG007.
 */
Datum
payguard_next_events(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	char	   *consumer = read_consumer(fcinfo);
	int			max = read_max(fcinfo);
	int64	   *seqs = palloc(sizeof(int64) * max);
	LedgerScope scope;
	int			count;

	PreventCommandIfReadOnly("payguard.next_events()");
	InitMaterializedSRF(fcinfo, 0);
	payguard_ledger_enter(&scope);
	count = payguard_consumer_take(consumer, max, seqs);
	if (count > 0)
		put_events(seqs, count, result);
	payguard_ledger_leave(&scope);
	return (Datum) 0;
}
