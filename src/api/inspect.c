/*-------------------------------------------------------------------------
 *
 * inspect.c
 *	  order_status(): the present state of one order, for the page.
 *
 * It reads as the tables' owner and changes nothing, so it works on a hot
 * standby as well.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "api/argument.h"
#include "catalog/pg_type.h"
#include "core/key.h"
#include "fmgr.h"
#include "funcapi.h"
#include "ledger/ledger.h"
#include "utils/builtins.h"

PG_FUNCTION_INFO_V1(payguard_order_status);

/* The columns of the type order_status_result, in its order */
static LedgerPlan read_order_status = {
	.sql = "SELECT o.reference, o.status::text, o.amount, o.currency, o.refunded_amount,"
	" o.attempt_no, a.state::text, coalesce(a.gateway, o.gateway), a.client, a.code, a.message,"
	" o.status IN ('created', 'failed')"
	" AND (o.expires_at IS NULL OR o.expires_at > clock_timestamp())"
	" AND NOT EXISTS (SELECT FROM payguard.entitlements e"
	"   WHERE o.once AND e.customer = o.customer AND e.product = o.product AND e.order_id <> o.id),"
	" EXISTS (SELECT FROM payguard.reviews r WHERE r.order_id = o.id),"
	" o.paid_at, o.expires_at, o.updated_at"
	" FROM payguard.orders o"
	" LEFT JOIN payguard.attempts a ON a.order_id = o.id AND a.no = o.attempt_no"
	" WHERE o.reference = $1",
	.nargs = 1,
	.argtypes = {TEXTOID}
};

/*
 * order_status(reference)
 */
Datum
payguard_order_status(PG_FUNCTION_ARGS)
{
	char	   *reference = payguard_argument_text(fcinfo, 0, "reference", REFERENCE_MAX_LENGTH);
	Datum		values[1] = {CStringGetTextDatum(reference)};
	TupleDesc	desc;
	HeapTuple	tuple = NULL;
	LedgerScope scope;

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	desc = BlessTupleDesc(desc);

	payguard_ledger_enter(&scope);
	if (payguard_plan_run(&read_order_status, values, NULL) > 0)
		tuple = SPI_copytuple(SPI_tuptable->vals[0]);
	payguard_ledger_leave(&scope);

	if (tuple == NULL)
		payguard_no_such_order(reference);
	PG_RETURN_DATUM(heap_copy_tuple_as_datum(tuple, desc));
}
