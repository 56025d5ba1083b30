/*-------------------------------------------------------------------------
 *
 * claim.c
 *	  The claim: created, failed -> processing, for exactly one caller.
 *
 * A claim reads first, without a lock and with the latest snapshot, so that
 * whoever cannot win learns it for the price of one read.  A claimable row is
 * locked by its tuple id and never waited for: the version that was read is
 * the version that is taken, or the claim is lost.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "core/crashpoint.h"
#include "executor/tuptable.h"
#include "ledger/claim.h"
#include "ledger/door.h"
#include "ledger/instance.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/* Columns of one attempt in the statement of payguard_order_view(). */
#define ATTEMPT_COLUMNS(a) \
	a ".order_id, " a ".no, " a ".state::text, " a ".call_by::text, " a ".request_key, " \
	a ".fingerprint, " a ".gateway, " a ".gateway_reference, " a ".idempotency_key, " \
	a ".lease_until, " a ".client"

/*
 * An attempt from the columns that begin at `first`.
 */
static void
read_attempt(int first, AttemptView *attempt)
{
	bool		isnull;
	Datum		datum;

	attempt->order_id = payguard_row_int64(0, first);
	attempt->exists = attempt->order_id != 0;
	if (!attempt->exists)
		return;
	attempt->no = payguard_row_int32(0, first + 1);
	attempt->state = payguard_attempt_state_of(payguard_row_text(0, first + 2));
	(void) payguard_call_by_read(payguard_row_text(0, first + 3), &attempt->call_by);
	attempt->request_key = payguard_row_text(0, first + 4);
	datum = payguard_row_datum(0, first + 5, &isnull);
	attempt->fingerprint = isnull ? NULL : DatumGetByteaPCopy(datum);
	attempt->gateway = payguard_row_text(0, first + 6);
	attempt->gateway_reference = payguard_row_text(0, first + 7);
	attempt->idempotency_key = payguard_row_text(0, first + 8);
	attempt->lease_until = payguard_row_time(0, first + 9, &isnull);
	attempt->has_lease = !isnull;
	datum = payguard_row_datum(0, first + 10, &isnull);
	attempt->has_client = !isnull;
	if (!isnull)
		attempt->client = datumCopy(datum, false, -1);
}

OrderView *
payguard_order_view(const char *reference, const char *request_key)
{
	static LedgerPlan read = {
		"SELECT o.ctid, o.id, o.reference, o.status::text, o.amount, o.currency, o.gateway,"
		" o.attempt_no, o.expires_at,"
		" o.once AND EXISTS (SELECT FROM payguard.entitlements e WHERE e.customer = o.customer"
		"   AND e.product = o.product AND e.order_id <> o.id),"
		" EXISTS (SELECT FROM payguard.evidence e WHERE e.order_id = o.id AND e.verdict = 'parked'), "
		ATTEMPT_COLUMNS("a") ", " ATTEMPT_COLUMNS("k")
		" FROM payguard.orders o"
		" LEFT JOIN payguard.attempts a ON a.order_id = o.id AND a.no = o.attempt_no"
		" LEFT JOIN payguard.attempts k ON k.request_key = $2"
		" WHERE o.reference = $1",
		2, {TEXTOID, TEXTOID}, NULL
	};
	OrderView  *view;
	Datum		values[2];
	char		nulls[3] = "  ";
	bool		isnull;

	values[0] = CStringGetTextDatum(reference);
	values[1] = payguard_text_param(request_key, &nulls[1]);
	if (payguard_plan_read_latest(&read, values, nulls) == 0)
		return NULL;

	view = palloc0(sizeof(OrderView));
	ItemPointerCopy((ItemPointer) DatumGetPointer(payguard_row_datum(0, 0, &isnull)), &view->tid);
	view->id = payguard_row_int64(0, 1);
	view->reference = payguard_row_text(0, 2);
	view->status = payguard_order_status_of(payguard_row_text(0, 3));
	(void) payguard_money_parse(payguard_row_text(0, 4), payguard_row_text(0, 5), &view->money);
	view->gateway = payguard_row_text(0, 6);
	view->attempt_no = payguard_row_int32(0, 7);
	view->expires_at = payguard_row_time(0, 8, &isnull);
	view->has_expiry = !isnull;
	view->entitled_elsewhere = payguard_row_bool(0, 9);
	view->has_parked = payguard_row_bool(0, 10);
	read_attempt(11, &view->latest);
	read_attempt(22, &view->keyed);
	return view;
}

/*
 * Attempts are claimed one after the other, so once the gateway has told since
 * the switch that it does not know one, a later one was not lost either.  One
 * that it tells of as failed may have had a successor.
 */
SendVerdict
payguard_order_may_call(const OrderView *view, const char *gateway)
{
	static LedgerPlan read = {
		"SELECT o.created_at FROM payguard.orders o WHERE o.id = $1 AND o.created_at < $2"
		" AND NOT EXISTS (SELECT FROM payguard.evidence e WHERE e.order_id = o.id"
		"   AND e.source = 'query' AND e.result = 'not_found' AND e.received_at > $2)",
		2, {INT8OID, TIMESTAMPTZOID}, NULL
	};
	GatewayTraits traits;
	TimestampTz switched_at;
	TimestampTz created_at;
	Datum		values[2];
	bool		isnull;

	if (!payguard_instance_switched(&switched_at))
		return SEND_NOW;
	values[0] = Int64GetDatum(view->id);
	values[1] = TimestampTzGetDatum(switched_at);
	if (payguard_plan_read_latest(&read, values, NULL) == 0)
		return SEND_NOW;
	created_at = payguard_row_time(0, 0, &isnull);
	payguard_traits_hook(gateway, &traits);
	return payguard_may_send_again(&traits, created_at, GetCurrentTimestamp());
}

void
payguard_order_hold(const OrderView *view)
{
	payguard_review_add_other(view->id, REVIEW_WAITS_FOR_ADOPT);
}

bool
payguard_order_lock(int64 order_id)
{
	return payguard_lock_order(order_id);
}

/*
 * Lock the row version that was viewed.  False when somebody holds it or has
 * changed it: no waiting, and no serialization error.
 */
static bool
lock_version(const ItemPointerData *tid)
{
	Oid			relid = get_relname_relid("orders", get_namespace_oid("payguard", false));
	Relation	orders;
	TupleTableSlot *slot;
	Snapshot	snapshot;
	ItemPointerData target = *tid;
	TM_FailureData failure;
	TM_Result	result;

	PreventCommandIfParallelMode("payguard.claim_order()");
	orders = table_open(relid, RowShareLock);
	slot = table_slot_create(orders, NULL);
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	result = table_tuple_lock(orders, &target, snapshot, slot, GetCurrentCommandId(true),
							  LockTupleNoKeyExclusive, LockWaitSkip, 0, &failure);
	UnregisterSnapshot(snapshot);
	ExecDropSingleTupleTableSlot(slot);
	table_close(orders, NoLock);
	return result == TM_Ok;
}

/*
 * The attempt's row.  False when its request key is another claim's.
 */
static bool
insert_attempt(const OrderView *view, const ClaimInput *input)
{
	static LedgerPlan insert = {
		"INSERT INTO payguard.attempts (order_id, no, state, mode, call_by, gateway,"
		" gateway_reference, idempotency_key, request_key, fingerprint, lease_token, lease_until,"
		" sent_at)"
		" VALUES ($1, $2, $3::payguard.attempt_state, $4::payguard.gateway_mode,"
		" $5::payguard.call_by, $6, $7, $8, $9, $10, $11, $12, $13)"
		" ON CONFLICT (request_key) DO NOTHING",
		13, {INT8OID, INT4OID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID,
		BYTEAOID, TEXTOID, TIMESTAMPTZOID, TIMESTAMPTZOID}, NULL
	};
	bool		by_application = input->call_by == CALL_BY_APPLICATION;
	bytea	   *fingerprint = palloc(VARHDRSZ + SHA256_SIZE);
	Datum		values[13];
	char		nulls[14] = "             ";

	SET_VARSIZE(fingerprint, VARHDRSZ + SHA256_SIZE);
	memcpy(VARDATA(fingerprint), input->fingerprint, SHA256_SIZE);
	values[0] = Int64GetDatum(view->id);
	values[1] = Int32GetDatum(view->attempt_no + 1);
	values[2] = CStringGetTextDatum(by_application ? "sending" : "claimed");
	values[3] = CStringGetTextDatum(payguard_mode_word(input->mode));
	values[4] = CStringGetTextDatum(payguard_call_by_word(input->call_by));
	values[5] = CStringGetTextDatum(input->gateway);
	values[6] = CStringGetTextDatum(input->gateway_reference);
	values[7] = CStringGetTextDatum(input->idempotency_key);
	values[8] = CStringGetTextDatum(input->request_key);
	values[9] = PointerGetDatum(fingerprint);
	values[10] = payguard_text_param(input->lease_token, &nulls[10]);
	values[11] = TimestampTzGetDatum(input->lease_until);
	values[12] = TimestampTzGetDatum(GetCurrentTimestamp());
	if (!by_application)
		nulls[11] = nulls[12] = 'n';
	return payguard_plan_run(&insert, values, nulls) > 0;
}

ClaimOutcome
payguard_order_claim(const OrderView *view, const ClaimInput *input)
{
	static LedgerPlan take = {
		"UPDATE payguard.orders SET status = 'processing', attempt_no = $2, gateway = $3,"
		" updated_at = clock_timestamp() WHERE id = $1 AND status IN ('created', 'failed')",
		3, {INT8OID, INT4OID, TEXTOID}, NULL
	};
	OutboxPlan	plan = {0};
	Datum		values[3];

	if (!lock_version(&view->tid))
		return CLAIM_LOST;
	values[0] = Int64GetDatum(view->id);
	values[1] = Int32GetDatum(view->attempt_no + 1);
	values[2] = CStringGetTextDatum(input->gateway);
	PAYGUARD_CRASH_POINT(CRASH_CLAIM_BEGUN);
	if (payguard_plan_run(&take, values, NULL) != 1)
		return CLAIM_LOST;
	PAYGUARD_CRASH_POINT(CRASH_CLAIM_MOVED);
	if (!insert_attempt(view, input))
		return CLAIM_KEY_TAKEN;

	plan.gateway = input->gateway;
	plan.order_id = view->id;
	plan.attempt_no = view->attempt_no + 1;
	plan.request = input->request;
	if (input->call_by == CALL_BY_APPLICATION)
	{
		/* asks what became of it if the application never tells */
		plan.op = OUTBOX_QUERY;
		plan.next_run_at = input->lease_until;
		ForceSyncCommit();
	}
	else
	{
		plan.op = OUTBOX_CHARGE;
		plan.next_run_at = GetCurrentTimestamp();
	}
	payguard_outbox_plan(&plan);
	return CLAIM_WON;
}

bool
payguard_lease_known(int64 order_id, int32 attempt_no, const char *lease_token,
					 char **gateway, char **gateway_reference)
{
	static LedgerPlan read = {
		"SELECT gateway, gateway_reference FROM payguard.attempts"
		" WHERE order_id = $1 AND no = $2 AND lease_token = $3",
		3, {INT8OID, INT4OID, TEXTOID}, NULL
	};
	Datum		values[3] = {Int64GetDatum(order_id), Int32GetDatum(attempt_no),
	CStringGetTextDatum(lease_token)};

	if (payguard_plan_read_latest(&read, values, NULL) == 0)
		return false;
	*gateway = payguard_row_text(0, 0);
	*gateway_reference = payguard_row_text(0, 1);
	return true;
}

bool
payguard_lease_renew(int64 order_id, int32 attempt_no, const char *lease_token,
					 TimestampTz lease_until)
{
	static LedgerPlan renew = {
		"UPDATE payguard.attempts SET lease_until = $4"
		" WHERE order_id = $1 AND no = $2 AND lease_token = $3 AND state = 'sending'"
		" AND lease_until > clock_timestamp()",
		4, {INT8OID, INT4OID, TEXTOID, TIMESTAMPTZOID}, NULL
	};
	Datum		values[4] = {Int64GetDatum(order_id), Int32GetDatum(attempt_no),
	CStringGetTextDatum(lease_token), TimestampTzGetDatum(lease_until)};

	if (!payguard_lock_order(order_id))
		return false;
	return payguard_plan_run(&renew, values, NULL) > 0;
}
