/*-------------------------------------------------------------------------
 *
 * attempt.c
 *	  Moves attempts as the one door decides.
 *
 * Nothing here decides anything; the guard trigger checks every move again.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "ledger/door.h"
#include "utils/builtins.h"

/*
 * The number of an attempt that a fact makes: the one that its reference
 * carries if that is free, else the next.
 */
void
payguard_attempt_number(DoorFacts *facts)
{
	if (facts->attempt_no <= facts->latest_no)
		facts->attempt_no = facts->latest_no + 1;
}

/*
 * A fact about a charge that this ledger never sent: make its attempt
 * (call_by gateway).
 */
void
payguard_attempt_make(const DoorFacts *facts, const Evidence *evidence, AttemptState state,
					  const GatewayTraits *traits, int64 evidence_id)
{
	static LedgerPlan insert = {
		"INSERT INTO payguard.attempts (order_id, no, state, mode, call_by, gateway,"
		" gateway_reference, idempotency_key, provider_id, client, answered_at, code, message,"
		" decided_by)"
		" VALUES ($1, $2, $3::payguard.attempt_state, $4::payguard.gateway_mode, 'gateway', $5,"
		" $6, $7, $8, $9::jsonb, $10, $11, $12, $13)",
		13, {INT8OID, INT4OID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID,
		TIMESTAMPTZOID, TEXTOID, TEXTOID, INT8OID}, NULL
	};
	char		reference[GATEWAY_REFERENCE_SIZE];
	char		key[IDEMPOTENCY_KEY_SIZE];
	GatewayMode mode = evidence->mode != MODE_NOT_TOLD ? evidence->mode : traits->mode;
	Datum		values[13];
	char		nulls[14] = "             ";

	payguard_reference_derive(facts->reference, facts->attempt_no, traits->retry_suffix, reference);
	payguard_idempotency_key(facts->reference, facts->attempt_no, key);

	values[0] = Int64GetDatum(facts->order_id);
	values[1] = Int32GetDatum(facts->attempt_no);
	values[2] = CStringGetTextDatum(payguard_attempt_word(state));
	values[3] = CStringGetTextDatum(payguard_mode_word(mode == MODE_TEST ? MODE_TEST : MODE_LIVE));
	values[4] = CStringGetTextDatum(evidence->gateway);
	values[5] = CStringGetTextDatum(evidence->gateway_reference != NULL ?
									evidence->gateway_reference : reference);
	values[6] = CStringGetTextDatum(key);
	values[7] = payguard_text_param(evidence->provider_id, &nulls[7]);
	values[8] = payguard_text_param(evidence->client_json, &nulls[8]);
	values[9] = TimestampTzGetDatum(evidence->received_at);
	values[10] = payguard_text_param(evidence->code, &nulls[10]);
	values[11] = payguard_text_param(evidence->message, &nulls[11]);
	values[12] = Int64GetDatum(evidence_id);
	payguard_plan_run(&insert, values, nulls);
}

/*
 * Move the attempt as decided, and keep what the fact tells of it.  A fact
 * that moves nothing may still bring the gateway's id or data for the page.
 */
void
payguard_attempt_move(const DoorFacts *facts, const Evidence *evidence,
					  const Decision *decision, int64 evidence_id)
{
	static LedgerPlan move = {
		"UPDATE payguard.attempts SET state = $3::payguard.attempt_state,"
		" provider_id = COALESCE($4, provider_id), client = COALESCE($5::jsonb, client),"
		" answered_at = $6, code = $7, message = $8, decided_by = $9"
		" WHERE order_id = $1 AND no = $2",
		9, {INT8OID, INT4OID, TEXTOID, TEXTOID, TEXTOID, TIMESTAMPTZOID, TEXTOID, TEXTOID,
		INT8OID}, NULL
	};
	static LedgerPlan tell = {
		"UPDATE payguard.attempts SET provider_id = COALESCE($3, provider_id),"
		" client = COALESCE($4::jsonb, client), answered_at = $5"
		" WHERE order_id = $1 AND no = $2",
		5, {INT8OID, INT4OID, TEXTOID, TEXTOID, TIMESTAMPTZOID}, NULL
	};
	Datum		values[9];
	char		nulls[10] = "         ";

	values[0] = Int64GetDatum(facts->order_id);
	values[1] = Int32GetDatum(facts->attempt_no);
	if (decision->move_attempt)
	{
		const char *code = decision->code != NULL ? decision->code : evidence->code;

		values[2] = CStringGetTextDatum(payguard_attempt_word(decision->attempt_to));
		values[3] = payguard_text_param(evidence->provider_id, &nulls[3]);
		values[4] = payguard_text_param(evidence->client_json, &nulls[4]);
		values[5] = TimestampTzGetDatum(evidence->received_at);
		values[6] = payguard_text_param(code, &nulls[6]);
		values[7] = payguard_text_param(evidence->message, &nulls[7]);
		values[8] = Int64GetDatum(evidence_id);
		payguard_plan_run(&move, values, nulls);
	}
	else if (evidence->result == EVIDENCE_RESULT_PENDING && facts->attempt.exists &&
			 facts->attempt.state == ATTEMPT_PENDING &&
			 (evidence->client_json != NULL ||
			  (evidence->provider_id != NULL && facts->attempt_provider_id == NULL)))
	{
		values[2] = payguard_text_param(evidence->provider_id, &nulls[2]);
		values[3] = payguard_text_param(evidence->client_json, &nulls[3]);
		values[4] = TimestampTzGetDatum(evidence->received_at);
		payguard_plan_run(&tell, values, nulls);
	}
}

/*
 * The order has become paid: stop what else is open.  What never left fails
 * by our own evidence; for the rest the gateway is asked to close.
 */
void
payguard_attempts_stop_others(const DoorFacts *facts)
{
	static LedgerPlan others = {
		"SELECT no, state::text, gateway, gateway_reference FROM payguard.attempts"
		" WHERE order_id = $1 AND no <> $2"
		" AND state IN ('claimed', 'sending', 'pending', 'unknown') ORDER BY no",
		2, {INT8OID, INT4OID}, NULL
	};
	Datum		values[2] = {Int64GetDatum(facts->order_id), Int32GetDatum(facts->attempt_no)};
	uint64		rows = payguard_plan_run(&others, values, NULL);
	SPITupleTable *table = SPI_tuptable;

	for (uint64 i = 0; i < rows; i++)
	{
		Evidence	evidence = {0};
		EvidenceOutcome outcome;
		GatewayTraits traits;
		bool		isnull;
		int32		no = DatumGetInt32(SPI_getbinval(table->vals[i], table->tupdesc, 1, &isnull));
		char	   *gateway = SPI_getvalue(table->vals[i], table->tupdesc, 3);

		if (strcmp(SPI_getvalue(table->vals[i], table->tupdesc, 2), "claimed") == 0)
		{
			evidence.source = EVIDENCE_SOURCE_ANSWER;
			evidence.result = EVIDENCE_RESULT_NOT_SENT;
			evidence.is_stop = true;
			evidence.gateway = gateway;
			evidence.gateway_reference = SPI_getvalue(table->vals[i], table->tupdesc, 4);
			evidence.order_id = facts->order_id;
			evidence.attempt_no = no;
			evidence.mode = MODE_NOT_TOLD;
			evidence.code = "superseded";
			evidence.received_at = GetCurrentTimestamp();
			payguard_apply_evidence(&evidence, &outcome);
			continue;
		}
		payguard_traits_hook(gateway, &traits);
		if (traits.can_close)
		{
			OutboxPlan	plan = {OUTBOX_CLOSE, gateway, facts->order_id, no, 0,
			GetCurrentTimestamp(), NULL, 0, 0};

			payguard_outbox_plan(&plan);
		}
	}
}
