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
#include "api/inspect.h"
#include "catalog/pg_type.h"
#include "core/errcode.h"
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
 * The argument `reference`, which must not be null.
 */
Datum
payguard_inspect_reference(FunctionCallInfo fcinfo)
{
	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("reference must not be null"),
				 errhint("Give the reference that payguard.create_order() returned.")));
	return PG_GETARG_DATUM(0);
}

/*
 * PG002 for a reference that no order has.
 */
void
payguard_inspect_no_order(Datum reference)
{
	ereport(ERROR,
			(errcode(ERRCODE_PAYGUARD_NO_SUCH_ORDER),
			 errmsg("there is no order \"%s\"", TextDatumGetCString(reference)),
			 errhint("Give the reference that payguard.create_order() returned; upper and lower case differ.")));
}

/*
 * order_status(reference)
 */
Datum
payguard_order_status(PG_FUNCTION_ARGS)
{
	Datum		reference = payguard_inspect_reference(fcinfo);
	TupleDesc	desc;
	HeapTuple	tuple = NULL;
	LedgerScope scope;

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	desc = BlessTupleDesc(desc);

	payguard_ledger_enter(&scope);
	if (payguard_plan_run(&read_order_status, &reference, NULL) > 0)
		tuple = SPI_copytuple(SPI_tuptable->vals[0]);
	payguard_ledger_leave(&scope);

	if (tuple == NULL)
		payguard_inspect_no_order(reference);
	PG_RETURN_DATUM(heap_copy_tuple_as_datum(tuple, desc));
}
