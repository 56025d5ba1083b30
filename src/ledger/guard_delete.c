/*-------------------------------------------------------------------------
 *
 * guard_delete.c
 *	  Which rows of the ledger may be deleted: finished orders that are older
 *	  than payguard.retention, their children first.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "core/errcode.h"
#include "core/settings.h"
#include "core/state.h"
#include "ledger/guard.h"
#include "ledger/ledger.h"

/* What keeps an order from being deleted: its state, its age, its children. */
#define ORDER_IS_OLD \
	"(o.status IN ('paid', 'failed', 'closed', 'refunded', 'reversed')" \
	" AND $2 > 0 AND o.updated_at < clock_timestamp() - $2 * interval '1 minute')"

static LedgerPlan read_child_may_go = {
	.sql = "SELECT 1 FROM payguard.orders o WHERE o.id = $1 AND " ORDER_IS_OLD,
	.nargs = 2,
	.argtypes = {INT8OID, INT4OID}
};

static LedgerPlan read_event_may_go = {
	.sql = "SELECT 1 FROM payguard.orders o WHERE o.reference = $1 AND " ORDER_IS_OLD,
	.nargs = 2,
	.argtypes = {TEXTOID, INT4OID}
};

/* The order's own row is gone by the time its trigger runs. */
static LedgerPlan read_order_is_held = {
	.sql = "SELECT 1 WHERE EXISTS (SELECT FROM payguard.attempts WHERE order_id = $1)"
	" OR EXISTS (SELECT FROM payguard.payments WHERE order_id = $1 AND counted)"
	" OR EXISTS (SELECT FROM payguard.payments WHERE order_id = $1 AND NOT counted)"
	" OR EXISTS (SELECT FROM payguard.refunds WHERE order_id = $1)"
	" OR EXISTS (SELECT FROM payguard.evidence WHERE order_id = $1)"
	" OR EXISTS (SELECT FROM payguard.events WHERE aggregateid = $2)"
	" OR EXISTS (SELECT FROM payguard.reviews WHERE order_id = $1)"
	" OR EXISTS (SELECT FROM payguard.order_slots WHERE customer = $3 AND product = $4 AND order_id = $1)"
	" OR EXISTS (SELECT FROM payguard.entitlements WHERE customer = $3 AND product = $4 AND order_id = $1)",
	.nargs = 4,
	.argtypes = {INT8OID, TEXTOID, TEXTOID, TEXTOID}
};

static LedgerPlan read_is_past = {
	.sql = "SELECT 1 WHERE $1 > 0 AND $2 < clock_timestamp() - $1 * interval '1 minute'",
	.nargs = 2,
	.argtypes = {INT4OID, TIMESTAMPTZOID}
};

/*
 * May this order go?  It is finished and old, and nothing is left of it.
 */
static bool
order_may_go(const RowChange *row)
{
	static const char *const columns[] = {"id", "reference", "customer", "product"};
	Datum		values[4];
	Datum		age[2];
	char		nulls[5] = "    ";
	OrderStatus status;
	int			i;

	if (!payguard_order_read(payguard_guard_state_word(row->old->tts_values[row->table->state_attno - 1]), &status))
		elog(ERROR, "unrecognized order status");
	if (status == ORDER_CREATED || status == ORDER_PROCESSING || status == ORDER_UNKNOWN)
		return false;
	age[0] = Int32GetDatum(payguard_retention);
	age[1] = row->old->tts_values[payguard_guard_column(row, "updated_at") - 1];
	if (payguard_plan_run(&read_is_past, age, NULL) == 0)
		return false;
	for (i = 0; i < (int) lengthof(columns); i++)
	{
		int			index = payguard_guard_column(row, columns[i]) - 1;

		values[i] = row->old->tts_values[index];
		nulls[i] = row->old->tts_isnull[index] ? 'n' : ' ';
	}
	return payguard_plan_read_latest(&read_order_is_held, values, nulls) == 0;
}

/*
 * May this child of an order go?  When its order may, and is still there.
 */
static bool
child_may_go(const RowChange *row)
{
	bool		is_event = strcmp(row->table->name, "events") == 0;
	int			index = payguard_guard_column(row, is_event ? "aggregateid" : "order_id") - 1;
	Datum		values[2];

	if (row->old->tts_isnull[index])
		return false;
	values[0] = row->old->tts_values[index];
	values[1] = Int32GetDatum(payguard_retention);
	return payguard_plan_read_latest(is_event ? &read_event_may_go : &read_child_may_go,
									 values, NULL) > 0;
}

/*
 * Check the DELETE of a row.
 */
void
payguard_guard_delete(const RowChange *row)
{
	bool		is_order = strcmp(row->table->name, "orders") == 0;
	LedgerScope scope;
	bool		may_go;

	payguard_ledger_enter(&scope);
	may_go = is_order ? order_may_go(row) : child_may_go(row);
	payguard_ledger_leave(&scope);
	if (!may_go)
		ereport(ERROR,
				(errcode(ERRCODE_PAYGUARD_TRANSITION),
				 errmsg("%s \"%s\" in table \"%s\" cannot be deleted",
						row->table->noun, payguard_guard_label(row), row->table->name),
				 errdetail("Only finished orders that are older than payguard.retention may be deleted, after their attempts, payments, refunds, evidence and events."),
				 errhint("To end an order use payguard.close_order(); to keep less, set payguard.retention."),
				 errtable(row->relation)));
}
