/*-------------------------------------------------------------------------
 *
 * expiry.c
 *	  Ends orders whose time is over and that no money can have moved for.
 *
 * Expiry is evidence like everything else.  An order that is under way, or
 * unknown, is left alone; so is one for which a fact waits.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "ledger/door.h"
#include "utils/builtins.h"

/* An order that was committed late is still found for this long. */
#define EXPIRY_SLACK	(INT64CONST(60) * USECS_PER_SEC)

/*
 * Tell the door that the order's time is over.
 */
void
payguard_expire_order(int64 order_id, const char *gateway, EvidenceOutcome *outcome)
{
	Evidence	evidence = {0};

	evidence.source = EVIDENCE_SOURCE_EXPIRY;
	evidence.result = EVIDENCE_RESULT_CLOSED;
	evidence.is_order_wish = true;
	evidence.gateway = gateway != NULL ? gateway : "";
	evidence.order_id = order_id;
	evidence.mode = MODE_NOT_TOLD;
	evidence.code = "expired";
	evidence.received_at = GetCurrentTimestamp();
	(void) payguard_book_fact(&evidence, outcome);
}

/*
 * End up to `limit` orders whose time ended after *since; moves *since on.
 * Orders that somebody holds are left to the next round.  Returns whether
 * more may be waiting.
 */
bool
payguard_expire_orders(TimestampTz *since, int limit)
{
	static LedgerPlan read = {
		"SELECT o.id, o.gateway, o.expires_at FROM payguard.orders o"
		" WHERE o.expires_at > $1 AND o.expires_at <= $2 AND o.status IN ('created', 'failed')"
		" AND NOT EXISTS (SELECT FROM payguard.evidence e WHERE e.order_id = o.id AND e.verdict = 'parked')"
		" ORDER BY o.expires_at LIMIT $3 FOR NO KEY UPDATE SKIP LOCKED",
		3, {TIMESTAMPTZOID, TIMESTAMPTZOID, INT8OID}, NULL
	};
	TimestampTz now = GetCurrentTimestamp();
	Datum		values[3] = {TimestampTzGetDatum(*since), TimestampTzGetDatum(now), Int64GetDatum(limit)};
	uint64		rows = payguard_plan_run(&read, values, NULL);
	SPITupleTable *table = SPI_tuptable;

	for (uint64 i = 0; i < rows; i++)
	{
		EvidenceOutcome outcome;
		bool		isnull;

		payguard_expire_order(DatumGetInt64(SPI_getbinval(table->vals[i], table->tupdesc, 1, &isnull)),
							  SPI_getvalue(table->vals[i], table->tupdesc, 2), &outcome);
	}
	/* a full round leaves *since: what it closed is not found again */
	if (rows < (uint64) limit)
		*since = Max(*since, now - EXPIRY_SLACK);
	return rows == (uint64) limit;
}
