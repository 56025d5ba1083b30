/*-------------------------------------------------------------------------
 *
 * create.c
 *	  Makes orders: once for each reference, once for each `once` purchase.
 *
 * Unique constraints decide between rivals; whoever loses reads what exists.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "core/crashpoint.h"
#include "ledger/claim.h"
#include "utils/builtins.h"
#include "utils/numeric.h"

#define ORDER_COLUMNS \
	"o.id, o.reference, o.status::text, o.amount, o.currency, o.gateway, o.expires_at"

/*
 * The first row of the current result.
 */
static OrderRow *
read_order(void)
{
	OrderRow   *order = palloc0(sizeof(OrderRow));
	bool		isnull;

	order->id = payguard_row_int64(0, 0);
	order->reference = payguard_row_text(0, 1);
	order->status = payguard_order_status_of(payguard_row_text(0, 2));
	(void) payguard_money_parse(payguard_row_text(0, 3), payguard_row_text(0, 4), &order->money);
	order->gateway = payguard_row_text(0, 5);
	order->expires_at = payguard_row_time(0, 6, &isnull);
	order->has_expiry = !isnull;
	return order;
}

OrderRow *
payguard_order_find(const char *reference)
{
	static LedgerPlan read = {
		"SELECT " ORDER_COLUMNS " FROM payguard.orders o WHERE o.reference = $1",
		1, {TEXTOID}, NULL
	};
	Datum		values[1] = {CStringGetTextDatum(reference)};

	return payguard_plan_read_latest(&read, values, NULL) > 0 ? read_order() : NULL;
}

OrderRow *
payguard_order_find_once(const char *customer, const char *product)
{
	static LedgerPlan read = {
		"SELECT " ORDER_COLUMNS " FROM payguard.orders o WHERE o.id = COALESCE("
		"(SELECT e.order_id FROM payguard.entitlements e WHERE e.customer = $1 AND e.product = $2),"
		"(SELECT s.order_id FROM payguard.order_slots s WHERE s.customer = $1 AND s.product = $2))",
		2, {TEXTOID, TEXTOID}, NULL
	};
	Datum		values[2] = {CStringGetTextDatum(customer), CStringGetTextDatum(product)};

	return payguard_plan_read_latest(&read, values, NULL) > 0 ? read_order() : NULL;
}

/*
 * A number for the new order, drawn first so that its slot can name it.
 */
static int64
draw_order_id(void)
{
	static LedgerPlan draw = {
		"SELECT nextval('payguard.orders_id_seq')", 0, {0}, NULL
	};

	payguard_plan_run(&draw, NULL, NULL);
	return payguard_row_int64(0, 0);
}

/*
 * Take the slot of a `once` purchase; false when another order has it.
 */
static bool
take_slot(const CreateInput *input, int64 order_id)
{
	static LedgerPlan insert = {
		"INSERT INTO payguard.order_slots (customer, product, order_id) VALUES ($1, $2, $3)"
		" ON CONFLICT (customer, product) DO NOTHING",
		3, {TEXTOID, TEXTOID, INT8OID}, NULL
	};
	Datum		values[3] = {CStringGetTextDatum(input->customer),
	CStringGetTextDatum(input->product), Int64GetDatum(order_id)};

	return payguard_plan_run(&insert, values, NULL) > 0;
}

OrderRow *
payguard_order_create(const CreateInput *input)
{
	static LedgerPlan insert = {
		"INSERT INTO payguard.orders AS o (id, reference, amount, currency, gateway, customer,"
		" product, once, expires_at, metadata) OVERRIDING SYSTEM VALUE"
		" VALUES ($1, $2, $3::numeric, $4, $5, $6, $7, $8, $9, $10)"
		" ON CONFLICT (reference) DO NOTHING RETURNING " ORDER_COLUMNS,
		10, {INT8OID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, BOOLOID,
		TIMESTAMPTZOID, JSONBOID}, NULL
	};
	char		amount[MONEY_TEXT_SIZE];
	int64		order_id = draw_order_id();
	OrderRow   *order;
	Datum		values[10];
	char		nulls[11] = "          ";

	if (input->once && !take_slot(input, order_id))
		return NULL;
	payguard_money_format(&input->money, amount);
	values[0] = Int64GetDatum(order_id);
	values[1] = CStringGetTextDatum(input->reference);
	values[2] = CStringGetTextDatum(amount);
	values[3] = CStringGetTextDatum(input->money.currency);
	values[4] = payguard_text_param(input->gateway, &nulls[4]);
	values[5] = payguard_text_param(input->customer, &nulls[5]);
	values[6] = payguard_text_param(input->product, &nulls[6]);
	values[7] = BoolGetDatum(input->once);
	values[8] = TimestampTzGetDatum(input->expires_at);
	if (!input->has_expiry)
		nulls[8] = 'n';
	values[9] = input->metadata;
	if (payguard_plan_run(&insert, values, nulls) == 0)
	{
		if (input->once)
		{
			static LedgerPlan give_back = {
				"DELETE FROM payguard.order_slots WHERE customer = $1 AND product = $2 AND order_id = $3",
				3, {TEXTOID, TEXTOID, INT8OID}, NULL
			};
			Datum		slot[3] = {CStringGetTextDatum(input->customer),
			CStringGetTextDatum(input->product), Int64GetDatum(order_id)};

			payguard_plan_run(&give_back, slot, NULL);
		}
		return NULL;
	}
	PAYGUARD_CRASH_POINT(CRASH_ORDER_CREATED);
	order = read_order();
	if (payguard_match_parked(order->id, order->reference, input->retry_suffix))
		order = payguard_order_find(order->reference);
	return order;
}
