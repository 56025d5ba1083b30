/*-------------------------------------------------------------------------
 *
 * refund.c
 *	  Asking for a refund: once for each request key, one at a time for an
 *	  order, never above what was paid.
 *
 * Everything is decided under the order's lock.  Refunds that are unknown
 * count as given back until proof says otherwise.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "ledger/refund.h"
#include "utils/builtins.h"
#include "utils/numeric.h"

/*
 * A refund from the columns of the current result that begin at `first`.
 */
static void
read_refund(int first, const char *currency, RefundView *refund)
{
	Datum		fingerprint;
	bool		isnull;

	memset(refund, 0, sizeof(*refund));
	refund->id = payguard_row_int64(0, first);
	(void) payguard_refund_read(payguard_row_text(0, first + 1), &refund->state);
	(void) payguard_money_parse(payguard_row_text(0, first + 2), currency, &refund->money);
	fingerprint = payguard_row_datum(0, first + 3, &isnull);
	refund->fingerprint = isnull ? NULL : DatumGetByteaPCopy(fingerprint);
	refund->gateway = payguard_row_text(0, first + 4);
	refund->gateway_reference = payguard_row_text(0, first + 5);
	refund->idempotency_key = payguard_row_text(0, first + 6);
	refund->charge_id = payguard_row_text(0, first + 7);
}

#define REFUND_COLUMNS \
	"r.id, r.state::text, r.amount, r.fingerprint, r.gateway, r.gateway_reference," \
	" r.idempotency_key, r.charge_id"

/*
 * Refunds that a new request must know of: the one of its key, and one of the
 * same payment that is under way.  Read with the latest snapshot, so that a
 * repeated request is recognized at every isolation level.
 */
static void
read_rivals(const char *request_key, RefundScope *scope)
{
	static LedgerPlan keyed = {
		"SELECT " REFUND_COLUMNS ", COALESCE(p.currency, o.currency) FROM payguard.refunds r"
		" JOIN payguard.orders o ON o.id = r.order_id"
		" LEFT JOIN payguard.payments p ON p.gateway = r.gateway AND p.provider_id = r.charge_id"
		" WHERE r.order_id = $1 AND r.request_key = $2",
		2, {INT8OID, TEXTOID}, NULL
	};
	static LedgerPlan in_flight = {
		"SELECT " REFUND_COLUMNS ", COALESCE(p.currency, o.currency) FROM payguard.refunds r"
		" JOIN payguard.orders o ON o.id = r.order_id"
		" LEFT JOIN payguard.payments p ON p.gateway = r.gateway AND p.provider_id = r.charge_id"
		" WHERE r.order_id = $1 AND r.gateway = $2 AND r.charge_id = $3"
		" AND r.state IN ('pending', 'submitted', 'unknown', 'processing')"
		" ORDER BY r.state = 'processing', r.id LIMIT 1",
		3, {INT8OID, TEXTOID, TEXTOID}, NULL
	};
	Datum		values[3] = {Int64GetDatum(scope->order_id), CStringGetTextDatum(request_key)};

	if (payguard_plan_read_latest(&keyed, values, NULL) > 0)
		read_refund(0, payguard_row_text(0, 8), &scope->keyed);
	if (!scope->has_payment)
		return;
	values[1] = CStringGetTextDatum(scope->gateway);
	values[2] = CStringGetTextDatum(scope->charge_id);
	if (payguard_plan_read_latest(&in_flight, values, NULL) > 0)
		read_refund(0, payguard_row_text(0, 8), &scope->in_flight);
}

/*
 * The payment, and what of it can still be given back: its amount less our
 * own refunds that did not fail, less what was given back by hand.
 */
static void
read_payment(const char *provider_id, RefundScope *scope)
{
	static LedgerPlan read = {
		"SELECT p.gateway, p.provider_id, p.counted, p.state::text, p.amount, p.currency,"
		" a.gateway_reference, p.amount - COALESCE((SELECT sum(r.amount) FROM payguard.refunds r"
		"   WHERE r.gateway = p.gateway AND r.charge_id = p.provider_id AND r.order_id = p.order_id"
		"   AND r.state <> 'failed'), 0)"
		" FROM payguard.payments p"
		" LEFT JOIN payguard.attempts a ON a.order_id = p.order_id AND a.no = p.attempt_no"
		" WHERE p.order_id = $1 AND (p.provider_id = $2 OR $2 IS NULL AND p.counted)",
		2, {INT8OID, TEXTOID}, NULL
	};
	Datum		values[2];
	char		nulls[3] = "  ";
	char	   *left;
	Money		money;

	values[0] = Int64GetDatum(scope->order_id);
	values[1] = payguard_text_param(provider_id, &nulls[1]);
	scope->has_payment = payguard_plan_read_latest(&read, values, nulls) > 0;
	if (!scope->has_payment)
		return;
	scope->gateway = payguard_row_text(0, 0);
	scope->charge_id = payguard_row_text(0, 1);
	scope->is_counted = payguard_row_bool(0, 2);
	(void) payguard_payment_read(payguard_row_text(0, 3), &scope->payment_state);
	if (payguard_money_parse(payguard_row_text(0, 4), payguard_row_text(0, 5), &scope->paid) != MONEY_OK)
		elog(ERROR, "payment \"%s\" has an invalid amount", scope->charge_id);
	scope->charge_reference = payguard_row_text(0, 6);
	left = payguard_row_text(0, 7);
	/* zero and less are no Money */
	scope->left = payguard_money_parse(left, scope->paid.currency, &money) == MONEY_OK ?
		money.minor : 0;
}

/*
 * Read the order and what a request for a refund must know.  See refund.h.
 */
bool
payguard_refund_scope(const char *reference, const char *request_key,
					  const char *provider_id, bool lock, RefundScope *scope)
{
	static LedgerPlan read = {
		"SELECT id, reference, status::text FROM payguard.orders WHERE reference = $1",
		1, {TEXTOID}, NULL
	};
	Datum		values[1] = {CStringGetTextDatum(reference)};

	memset(scope, 0, sizeof(*scope));
	if (payguard_plan_read_latest(&read, values, NULL) == 0)
		return false;
	scope->order_id = payguard_row_int64(0, 0);
	if (lock)
	{
		(void) payguard_lock_order(scope->order_id);
		(void) payguard_plan_read_latest(&read, values, NULL);
	}
	scope->order_reference = payguard_row_text(0, 1);
	scope->status = payguard_order_status_of(payguard_row_text(0, 2));
	read_payment(provider_id, scope);
	read_rivals(request_key, scope);
	return true;
}

/*
 * Amount as SQL numeric.
 */
static Datum
money_datum(const Money *money)
{
	char		text[MONEY_TEXT_SIZE];

	payguard_money_format(money, text);
	return DirectFunctionCall3(numeric_in, CStringGetDatum(text),
							   ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1));
}

/*
 * The refund's row; returns its id.
 */
static int64
insert_refund(const RefundScope *scope, const RefundInput *input)
{
	static LedgerPlan insert = {
		"INSERT INTO payguard.refunds (order_id, gateway, charge_id, request_key, fingerprint,"
		" gateway_reference, idempotency_key, amount, reason, state, lease_until, sent_at)"
		" VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10::payguard.refund_state, $11, $12)"
		" RETURNING id",
		12, {INT8OID, TEXTOID, TEXTOID, TEXTOID, BYTEAOID, TEXTOID, TEXTOID, NUMERICOID, TEXTOID,
		TEXTOID, TIMESTAMPTZOID, TIMESTAMPTZOID}, NULL
	};
	bytea	   *fingerprint = palloc(VARHDRSZ + SHA256_SIZE);
	Datum		values[12];
	char		nulls[13] = "            ";

	SET_VARSIZE(fingerprint, VARHDRSZ + SHA256_SIZE);
	memcpy(VARDATA(fingerprint), input->fingerprint, SHA256_SIZE);
	values[0] = Int64GetDatum(scope->order_id);
	values[1] = CStringGetTextDatum(scope->gateway);
	values[2] = CStringGetTextDatum(scope->charge_id);
	values[3] = CStringGetTextDatum(input->request_key);
	values[4] = PointerGetDatum(fingerprint);
	values[5] = CStringGetTextDatum(input->gateway_reference);
	values[6] = CStringGetTextDatum(input->idempotency_key);
	values[7] = money_datum(&input->money);
	values[8] = payguard_text_param(input->reason, &nulls[8]);
	values[9] = CStringGetTextDatum(input->by_application ? "submitted" : "pending");
	values[10] = TimestampTzGetDatum(input->lease_until);
	values[11] = TimestampTzGetDatum(GetCurrentTimestamp());
	if (!input->by_application)
		nulls[10] = nulls[11] = 'n';
	payguard_plan_run(&insert, values, nulls);
	return payguard_row_int64(0, 0);
}

/*
 * Store the lease token, which carries the refund's own id.
 */
static void
set_token(int64 refund_id, const char *lease_token)
{
	static LedgerPlan update = {
		"UPDATE payguard.refunds SET lease_token = $2 WHERE id = $1",
		2, {INT8OID, TEXTOID}, NULL
	};
	Datum		values[2] = {Int64GetDatum(refund_id), CStringGetTextDatum(lease_token)};

	payguard_plan_run(&update, values, NULL);
}

/*
 * The caller holds the order's lock and has checked the amount; the CHECK on
 * refund_reserved holds it against everybody else.  See refund.h.
 */
int64
payguard_refund_create(const RefundScope *scope, const RefundInput *input, char *lease_token)
{
	static LedgerPlan reserve = {
		"UPDATE payguard.orders SET refund_reserved = refund_reserved + $2,"
		" updated_at = clock_timestamp() WHERE id = $1",
		2, {INT8OID, NUMERICOID}, NULL
	};
	static LedgerPlan refunding = {
		"UPDATE payguard.payments SET state = 'refunding'"
		" WHERE gateway = $1 AND provider_id = $2 AND state IN ('paid', 'kept')",
		2, {TEXTOID, TEXTOID}, NULL
	};
	OutboxPlan	plan = {0};
	Datum		values[2];
	int64		refund_id;

	refund_id = insert_refund(scope, input);
	if (scope->is_counted)
	{
		values[0] = Int64GetDatum(scope->order_id);
		values[1] = money_datum(&input->money);
		payguard_plan_run(&reserve, values, NULL);
	}
	values[0] = CStringGetTextDatum(scope->gateway);
	values[1] = CStringGetTextDatum(scope->charge_id);
	payguard_plan_run(&refunding, values, NULL);

	plan.gateway = scope->gateway;
	plan.order_id = scope->order_id;
	plan.refund_id = refund_id;
	plan.request = input->request;
	if (input->by_application)
	{
		payguard_lease_token_make(scope->order_id, 0, refund_id, input->random8, lease_token);
		set_token(refund_id, lease_token);
		plan.op = OUTBOX_REFUND_QUERY;
		plan.next_run_at = input->lease_until;
		ForceSyncCommit();
	}
	else
	{
		plan.op = OUTBOX_REFUND;
		plan.next_run_at = GetCurrentTimestamp();
	}
	if (!input->waits_for_proof)
		payguard_outbox_plan(&plan);
	return refund_id;
}

bool
payguard_refund_lease_known(int64 order_id, int64 refund_id, const char *lease_token,
							char **gateway, char **gateway_reference, char **charge_id)
{
	static LedgerPlan read = {
		"SELECT gateway, gateway_reference, charge_id FROM payguard.refunds"
		" WHERE order_id = $1 AND id = $2 AND lease_token = $3",
		3, {INT8OID, INT8OID, TEXTOID}, NULL
	};
	Datum		values[3] = {Int64GetDatum(order_id), Int64GetDatum(refund_id),
	CStringGetTextDatum(lease_token)};

	if (payguard_plan_read_latest(&read, values, NULL) == 0)
		return false;
	*gateway = payguard_row_text(0, 0);
	*gateway_reference = payguard_row_text(0, 1);
	*charge_id = payguard_row_text(0, 2);
	return true;
}
