/*-------------------------------------------------------------------------
 *
 * inbox.c
 *	  The evidence table: facts go in once and stay as they are.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "ledger/door.h"
#include "utils/builtins.h"
#include "utils/numeric.h"

/*
 * Has this callback been stored before?  Then only its deliveries are counted,
 * without the order's lock, and outcome tells of the stored one.
 */
bool
payguard_inbox_repeat(const Evidence *evidence, EvidenceOutcome *outcome, bool *is_parked)
{
	static LedgerPlan repeat = {
		"UPDATE payguard.evidence e SET deliveries = deliveries + 1"
		" WHERE source = 'callback' AND gateway = $1 AND event_id = $2 AND digest = $3"
		" RETURNING id, verdict::text, order_id, attempt_no,"
		" (SELECT o.reference FROM payguard.orders o WHERE o.id = e.order_id),"
		" (SELECT o.status::text FROM payguard.orders o WHERE o.id = e.order_id)",
		3, {TEXTOID, TEXTOID, BYTEAOID}, NULL
	};
	bytea	   *digest = palloc(VARHDRSZ + SHA256_SIZE);
	Datum		values[3];

	if (evidence->event_id == NULL)
		elog(ERROR, "callback without an event id");
	SET_VARSIZE(digest, VARHDRSZ + SHA256_SIZE);
	memcpy(VARDATA(digest), evidence->digest, SHA256_SIZE);
	values[0] = CStringGetTextDatum(evidence->gateway);
	values[1] = CStringGetTextDatum(evidence->event_id);
	values[2] = PointerGetDatum(digest);
	if (payguard_plan_run(&repeat, values, NULL) == 0)
		return false;

	memset(outcome, 0, sizeof(*outcome));
	outcome->repeated = true;
	outcome->evidence_id = payguard_row_int64(0, 0);
	*is_parked = strcmp(payguard_row_text(0, 1), "parked") == 0;
	outcome->verdict = *is_parked ? VERDICT_PARKED : VERDICT_DUPLICATE;
	outcome->order_id = payguard_row_int64(0, 2);
	outcome->attempt_no = payguard_row_int32(0, 3);
	outcome->reference = payguard_row_text(0, 4);
	if (outcome->order_id != 0)
		outcome->status = payguard_order_status_of(payguard_row_text(0, 5));
	return true;
}

/*
 * How a call went, as JSON text; NULL for facts that are no answer.
 */
static char *
describe_transport(const Transport *transport)
{
	if (!transport->is_call)
		return NULL;
	return psprintf("{\"http\": %d, \"curl\": %d, \"prereq\": %d, \"ms\": %d}",
					transport->http_status, transport->curl_code,
					transport->prereq_count, transport->milliseconds);
}

/*
 * Store a fact with its verdict.  Returns its id, or 0 when the inbox has
 * taken the same callback meanwhile.  facts may be NULL: no order is known.
 */
int64
payguard_evidence_store(const Evidence *evidence, const DoorFacts *facts,
						Verdict verdict, const char *note)
{
	static LedgerPlan insert = {
		"INSERT INTO payguard.evidence (order_id, refund_id, received_at, occurred_at, attempt_no,"
		" source, result, verdict, gateway, gateway_reference, charge_id, provider_id, event_id,"
		" event_type, amount, currency, fee, code, message, transport, payload, digest, note, mode)"
		" VALUES ($1, $2, $3, $4, $5, $6::payguard.evidence_source,"
		" $7::payguard.evidence_result, $8::payguard.evidence_verdict, $9, $10, $11, $12, $13,"
		" $14, $15::numeric, $16, $17::numeric, $18, $19, $20::jsonb, $21::jsonb, $22, $23,"
		" $24::payguard.gateway_mode)"
		" ON CONFLICT (gateway, event_id, digest) WHERE source = 'callback' DO NOTHING"
		" RETURNING id",
		24, {INT8OID, INT8OID, TIMESTAMPTZOID, TIMESTAMPTZOID, INT4OID, TEXTOID, TEXTOID, TEXTOID,
		TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID,
		TEXTOID, TEXTOID, TEXTOID, BYTEAOID, TEXTOID, TEXTOID}, NULL
	};
	char		amount[MONEY_TEXT_SIZE];
	bytea	   *digest = palloc(VARHDRSZ + SHA256_SIZE);
	int64		order_id = facts != NULL ? facts->order_id : 0;
	int32		attempt_no = facts != NULL ? facts->attempt_no : evidence->attempt_no;
	Datum		values[24];
	char		nulls[25];
	int			n = 0;

	memset(nulls, ' ', sizeof(nulls));
	if (evidence->has_money)
		payguard_money_format(&evidence->money, amount);
	SET_VARSIZE(digest, VARHDRSZ + SHA256_SIZE);
	memcpy(VARDATA(digest), evidence->digest, SHA256_SIZE);

	nulls[n] = order_id == 0 ? 'n' : ' ';
	values[n++] = Int64GetDatum(order_id);
	nulls[n] = evidence->refund_id == 0 ? 'n' : ' ';
	values[n++] = Int64GetDatum(evidence->refund_id);
	values[n++] = TimestampTzGetDatum(evidence->received_at);
	nulls[n] = evidence->has_occurred_at ? ' ' : 'n';
	values[n++] = TimestampTzGetDatum(evidence->occurred_at);
	nulls[n] = attempt_no == 0 ? 'n' : ' ';
	values[n++] = Int32GetDatum(attempt_no);
	values[n++] = CStringGetTextDatum(payguard_source_word(evidence->source));
	values[n++] = CStringGetTextDatum(payguard_result_word(evidence->result));
	values[n++] = CStringGetTextDatum(payguard_verdict_word(verdict));
	values[n++] = CStringGetTextDatum(evidence->gateway);
	values[n] = payguard_text_param(evidence->gateway_reference, &nulls[n]), n++;
	values[n] = payguard_text_param(evidence->charge_id, &nulls[n]), n++;
	values[n] = payguard_text_param(evidence->provider_id, &nulls[n]), n++;
	values[n] = payguard_text_param(evidence->event_id, &nulls[n]), n++;
	values[n] = payguard_text_param(evidence->event_type, &nulls[n]), n++;
	values[n] = payguard_text_param(evidence->has_money ? amount : NULL, &nulls[n]), n++;
	values[n] = payguard_text_param(evidence->has_money ? evidence->money.currency : NULL, &nulls[n]), n++;
	values[n] = payguard_text_param(evidence->fee, &nulls[n]), n++;
	values[n] = payguard_text_param(evidence->code, &nulls[n]), n++;
	values[n] = payguard_text_param(evidence->message, &nulls[n]), n++;
	values[n] = payguard_text_param(describe_transport(&evidence->transport), &nulls[n]), n++;
	values[n] = payguard_text_param(evidence->payload_json, &nulls[n]), n++;
	nulls[n] = evidence->source == EVIDENCE_SOURCE_CALLBACK ? ' ' : 'n';
	values[n++] = PointerGetDatum(digest);
	values[n] = payguard_text_param(note != NULL ? note : evidence->note, &nulls[n]), n++;
	values[n] = payguard_text_param(evidence->mode != MODE_NOT_TOLD ?
									payguard_mode_word(evidence->mode) : NULL, &nulls[n]), n++;
	Assert(n == 24);

	if (payguard_plan_run(&insert, values, nulls) == 0)
		return 0;
	return payguard_row_int64(0, 0);
}

/*
 * A parked fact has been judged: write the verdict, and link it to its order.
 */
void
payguard_evidence_settle(int64 evidence_id, const DoorFacts *facts,
						 Verdict verdict, const char *note)
{
	static LedgerPlan update = {
		"UPDATE payguard.evidence SET verdict = $2::payguard.evidence_verdict,"
		" order_id = COALESCE(order_id, $3), attempt_no = COALESCE(attempt_no, $4),"
		" note = COALESCE($5, note) WHERE id = $1",
		5, {INT8OID, TEXTOID, INT8OID, INT4OID, TEXTOID}, NULL
	};
	Datum		values[5];
	char		nulls[6] = "     ";

	values[0] = Int64GetDatum(evidence_id);
	values[1] = CStringGetTextDatum(payguard_verdict_word(verdict));
	values[2] = Int64GetDatum(facts->order_id);
	values[3] = Int32GetDatum(facts->attempt_no);
	if (facts->attempt_no == 0)
		nulls[3] = 'n';
	values[4] = payguard_text_param(note, &nulls[4]);
	payguard_plan_run(&update, values, nulls);
}

/*
 * One stored fact as a struct.
 */
static ParkedFact *
read_parked(uint64 row)
{
	ParkedFact *fact = palloc0(sizeof(ParkedFact));
	Evidence   *evidence = &fact->evidence;
	char	   *amount = payguard_row_text(row, 10);
	char	   *mode;
	bool		isnull;

	fact->id = payguard_row_int64(row, 0);
	evidence->order_id = payguard_row_int64(row, 1);
	evidence->received_at = payguard_row_time(row, 2, &isnull);
	evidence->occurred_at = payguard_row_time(row, 3, &isnull);
	evidence->has_occurred_at = !isnull;
	evidence->attempt_no = payguard_row_int32(row, 4);
	(void) payguard_source_read(payguard_row_text(row, 5), &evidence->source);
	(void) payguard_result_read(payguard_row_text(row, 6), &evidence->result);
	evidence->gateway = payguard_row_text(row, 7);
	evidence->gateway_reference = payguard_row_text(row, 8);
	evidence->provider_id = payguard_row_text(row, 9);
	if (amount != NULL)
		evidence->has_money = payguard_money_parse(amount, payguard_row_text(row, 11),
												   &evidence->money) == MONEY_OK;
	evidence->fee = payguard_row_text(row, 12);
	evidence->code = payguard_row_text(row, 13);
	evidence->message = payguard_row_text(row, 14);
	evidence->event_id = payguard_row_text(row, 15);
	evidence->event_type = payguard_row_text(row, 16);
	evidence->refund_id = payguard_row_int64(row, 17);
	evidence->charge_id = payguard_row_text(row, 18);
	evidence->is_refund = evidence->refund_id != 0 || evidence->charge_id != NULL;
	mode = payguard_row_text(row, 19);
	evidence->mode = mode == NULL ? MODE_NOT_TOLD :
		strcmp(mode, payguard_mode_word(MODE_TEST)) == 0 ? MODE_TEST : MODE_LIVE;
	return fact;
}

#define PARKED_COLUMNS \
	"SELECT id, order_id, received_at, occurred_at, attempt_no, source::text, result::text," \
	" gateway, gateway_reference, provider_id, amount, currency, fee, code, message, event_id," \
	" event_type, refund_id, charge_id, mode::text FROM payguard.evidence"

/*
 * Parked facts of one order, and about refunds of its payments, oldest first, or (order 0) those whose order is
 * not known and those whose judging failed.
 */
List *
payguard_parked_list(int64 order_id, int limit)
{
	static LedgerPlan of_order = {
		PARKED_COLUMNS " e WHERE order_id = $1 AND verdict = 'parked'"
		" UNION ALL " PARKED_COLUMNS " e WHERE order_id IS NULL AND verdict = 'parked'"
		" AND charge_id IS NOT NULL AND EXISTS (SELECT FROM payguard.payments p"
		"   WHERE p.order_id = $1 AND p.gateway = e.gateway AND p.provider_id = e.charge_id)"
		" ORDER BY id LIMIT $2",
		2, {INT8OID, INT8OID}, NULL
	};
	static LedgerPlan of_none = {
		PARKED_COLUMNS " WHERE verdict = 'parked' AND (order_id IS NULL OR note LIKE 'judging it failed%') AND $1 = 0"
		" ORDER BY gateway_reference DESC LIMIT $2",
		2, {INT8OID, INT8OID}, NULL
	};
	Datum		values[2] = {Int64GetDatum(order_id), Int64GetDatum(limit)};
	List	   *list = NIL;
	uint64		rows;

	rows = payguard_plan_run(order_id != 0 ? &of_order : &of_none, values, NULL);
	for (uint64 i = 0; i < rows; i++)
		list = lappend(list, read_parked(i));
	return list;
}

/*
 * One fact by id, if nothing was decided about it yet.
 */
ParkedFact *
payguard_parked_find(int64 evidence_id, bool only_parked)
{
	static LedgerPlan read = {
		PARKED_COLUMNS " WHERE id = $1 AND (verdict = 'parked' OR verdict = 'unreadable' AND NOT $2)"
		" FOR UPDATE",
		2, {INT8OID, BOOLOID}, NULL
	};
	Datum		values[2] = {Int64GetDatum(evidence_id), BoolGetDatum(only_parked)};

	return payguard_plan_run(&read, values, NULL) > 0 ? read_parked(0) : NULL;
}

/*
 * An operator says that nothing follows from this fact.
 */
void
payguard_evidence_dismiss(int64 evidence_id, const char *note)
{
	static LedgerPlan update = {
		"UPDATE payguard.evidence SET verdict = 'dismissed', note = concat_ws('; ', note, $2)"
		" WHERE id = $1",
		2, {INT8OID, TEXTOID}, NULL
	};
	Datum		values[2] = {Int64GetDatum(evidence_id), CStringGetTextDatum(note)};

	payguard_plan_run(&update, values, NULL);
}

/*
 * A new order: parked facts that name its reference, or one that an attempt
 * of it will carry, are its own from now on.
 */
bool
payguard_match_parked(int64 order_id, const char *reference, const char *retry_suffix)
{
	static LedgerPlan match = {
		"UPDATE payguard.evidence SET order_id = $1"
		" WHERE verdict = 'parked' AND order_id IS NULL"
		" AND (gateway_reference = $2 OR gateway_reference >= $3 AND gateway_reference < $4"
		"      AND substr(gateway_reference, length($3) + 1) ~ '^[0-9]{1,4}$')",
		4, {INT8OID, TEXTOID, TEXTOID, TEXTOID}, NULL
	};
	char	   *prefix = psprintf("%s%s", reference, retry_suffix);
	Datum		values[4];

	values[0] = Int64GetDatum(order_id);
	values[1] = CStringGetTextDatum(reference);
	values[2] = CStringGetTextDatum(prefix);
	values[3] = CStringGetTextDatum(psprintf("%s:", prefix));	/* ':' follows '9' */
	if (payguard_plan_run(&match, values, NULL) == 0)
		return false;
	(void) payguard_retry_parked(order_id, 0);
	return true;
}
