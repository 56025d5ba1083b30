/*-------------------------------------------------------------------------
 *
 * guard_move.c
 *	  Which moves of states the guard lets pass.
 *
 * core/state.c lists the moves and what proves an end state; here they are
 * asked for a row that an UPDATE changed.  The evidence that proves an end
 * state is read with the latest snapshot, since a parked fact may be newer
 * than that of a repeatable-read transaction which applies it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "core/errcode.h"
#include "core/state.h"
#include "ledger/guard.h"
#include "ledger/ledger.h"

static LedgerPlan read_proof = {
	.sql = "SELECT order_id, result::text FROM payguard.evidence WHERE id = $1",
	.nargs = 1,
	.argtypes = {INT8OID}
};

/*
 * Both states of the row, as words.
 */
void
payguard_guard_states(const RowChange *row, char **from, char **to)
{
	int			index = row->table->state_attno - 1;

	*from = payguard_guard_state_word(row->old->tts_values[index]);
	*to = payguard_guard_state_word(row->new->tts_values[index]);
}

/*
 * Refuse a move.  why is a sentence, or NULL when the move is not listed.
 */
static void
refuse_move(const RowChange *row, const char *from, const char *to, const char *why)
{
	ereport(ERROR,
			(errcode(ERRCODE_PAYGUARD_TRANSITION),
			 errmsg("%s \"%s\" in table \"%s\" cannot change from %s to %s",
					row->table->noun, payguard_guard_label(row), row->table->name, from, to),
			 why ? errdetail_internal("%s", why) : 0,
			 errhint("%s", row->table->hint),
			 errtable(row->relation)));
}

/*
 * Did decided_by get another value?
 */
static bool
decision_changed(const RowChange *row)
{
	return !payguard_guard_unchanged(row, row->table->decided_attno);
}

/*
 * Read what the evidence in decided_by says.  Returns NULL when it serves as
 * proof for rows of this order, else a sentence that says why not.  It must
 * be another than before, unless one fact may lead through both states.
 */
static const char *
read_evidence(const RowChange *row, int64 order_id, bool may_repeat, EvidenceResult *result)
{
	int			index = row->table->decided_attno - 1;
	Datum		values[1];
	LedgerScope scope;
	bool		is_null;
	bool		is_found;
	bool		is_ours = false;
	long long	id;

	if (row->new->tts_isnull[index])
		return "Its column \"decided_by\" names no evidence.";
	id = DatumGetInt64(row->new->tts_values[index]);
	if (!may_repeat && !decision_changed(row))
		return psprintf("Its column \"decided_by\" still names evidence %lld, which decided an earlier state.", id);

	values[0] = row->new->tts_values[index];
	payguard_ledger_enter(&scope);
	is_found = payguard_plan_read_latest(&read_proof, values, NULL) > 0;
	if (is_found)
	{
		HeapTuple	tuple = SPI_tuptable->vals[0];
		Datum		owner = SPI_getbinval(tuple, SPI_tuptable->tupdesc, 1, &is_null);

		is_ours = !is_null && DatumGetInt64(owner) == order_id;
		if (!payguard_result_read(SPI_getvalue(tuple, SPI_tuptable->tupdesc, 2), result))
			elog(ERROR, "unrecognized result of evidence %lld", id);
	}
	payguard_ledger_leave(&scope);

	if (!is_found)
		return psprintf("Evidence %lld, named by its column \"decided_by\", does not exist.", id);
	if (!is_ours)
		return psprintf("Evidence %lld, named by its column \"decided_by\", is not about this order.", id);
	return NULL;
}

/*
 * The sentence for evidence that says something else.
 */
static const char *
not_proven(const RowChange *row, EvidenceResult result, const char *to)
{
	return psprintf("Evidence %lld says \"%s\", which does not prove %s.",
					(long long) DatumGetInt64(row->new->tts_values[row->table->decided_attno - 1]),
					payguard_result_word(result), to);
}

/*
 * The value of a bigint column of the row.
 */
static int64
int64_of(const RowChange *row, TupleTableSlot *slot, const char *column)
{
	return DatumGetInt64(slot->tts_values[payguard_guard_column(row, column) - 1]);
}

/*
 * Does this result prove that the order moves so?  The first money of an
 * order is proven by a payment only; what moves a settled one back to paid
 * may be the failure of a refund or the end of a reversal.
 */
static bool
proves_order_move(EvidenceResult result, OrderStatus from, OrderStatus to)
{
	if (to == ORDER_PAID && !payguard_order_has_money(from))
		return result == EVIDENCE_RESULT_PAID || result == EVIDENCE_RESULT_REVERSED;
	return payguard_result_proves_order(result, to);
}

/*
 * Is this a move that one fact may make right after another: failed and then
 * closed as was wished, or paid and reversed at once?
 */
static bool
is_second_step(OrderStatus from, OrderStatus to)
{
	return (from == ORDER_FAILED && to == ORDER_CLOSED) ||
		(from == ORDER_PAID && to == ORDER_REVERSED);
}

/*
 * Rules of an order's status, number of attempts and decided_by.
 */
void
payguard_guard_order_move(const RowChange *row)
{
	bool		has_moved = !payguard_guard_unchanged(row, row->table->state_attno);
	OrderStatus from;
	OrderStatus to;
	char	   *from_word;
	char	   *to_word;
	EvidenceResult result;
	const char *why;

	if (!has_moved && !decision_changed(row))
		return;
	payguard_guard_states(row, &from_word, &to_word);
	if (!payguard_order_read(from_word, &from) || !payguard_order_read(to_word, &to))
		elog(ERROR, "unrecognized order status");
	if (!payguard_order_may_become(from, to))
		refuse_move(row, from_word, to_word, NULL);
	if (from == ORDER_FAILED && to == ORDER_PROCESSING)
	{
		int			index = payguard_guard_column(row, "attempt_no") - 1;

		if (DatumGetInt32(row->new->tts_values[index]) !=
			DatumGetInt32(row->old->tts_values[index]) + 1)
			refuse_move(row, from_word, to_word, "A failed order is charged again by its next attempt only.");
	}
	if (to == ORDER_CREATED || to == ORDER_PROCESSING || to == ORDER_UNKNOWN)
		return;
	why = read_evidence(row, int64_of(row, row->new, "id"), is_second_step(from, to), &result);
	if (why == NULL && !proves_order_move(result, from, to))
		why = not_proven(row, result, to_word);
	if (why)
		refuse_move(row, from_word, to_word, why);
}

/*
 * Rules of an attempt's state and decided_by.
 */
void
payguard_guard_attempt_move(const RowChange *row)
{
	AttemptState from;
	AttemptState to;
	char	   *from_word;
	char	   *to_word;
	EvidenceResult result;
	const char *why;

	if (payguard_guard_unchanged(row, row->table->state_attno) && !decision_changed(row))
		return;
	payguard_guard_states(row, &from_word, &to_word);
	if (!payguard_attempt_read(from_word, &from) || !payguard_attempt_read(to_word, &to))
		elog(ERROR, "unrecognized attempt state");
	if (!payguard_attempt_may_become(from, to))
		refuse_move(row, from_word, to_word, NULL);
	if (to != ATTEMPT_SUCCEEDED && to != ATTEMPT_FAILED && to != ATTEMPT_SURPLUS)
		return;
	why = read_evidence(row, int64_of(row, row->new, "order_id"), false, &result);
	if (why == NULL && !payguard_result_proves_attempt(result, to))
		why = not_proven(row, result, to_word);
	if (why)
		refuse_move(row, from_word, to_word, why);
}

/*
 * Rules of a payment's state.
 */
void
payguard_guard_payment_move(const RowChange *row)
{
	PaymentState from;
	PaymentState to;
	char	   *from_word;
	char	   *to_word;

	if (payguard_guard_unchanged(row, row->table->state_attno))
		return;
	payguard_guard_states(row, &from_word, &to_word);
	if (!payguard_payment_read(from_word, &from) || !payguard_payment_read(to_word, &to))
		elog(ERROR, "unrecognized payment state");
	if (!payguard_payment_may_become(from, to))
		refuse_move(row, from_word, to_word, NULL);
}

/*
 * Rules of a refund's state and decided_by.
 */
void
payguard_guard_refund_move(const RowChange *row)
{
	RefundState from;
	RefundState to;
	char	   *from_word;
	char	   *to_word;
	EvidenceResult result;
	const char *why;

	if (payguard_guard_unchanged(row, row->table->state_attno) && !decision_changed(row))
		return;
	payguard_guard_states(row, &from_word, &to_word);
	if (!payguard_refund_read(from_word, &from) || !payguard_refund_read(to_word, &to))
		elog(ERROR, "unrecognized refund state");
	if (!payguard_refund_may_become(from, to))
		refuse_move(row, from_word, to_word, NULL);
	if (to != REFUND_SUCCEEDED && to != REFUND_FAILED)
		return;
	why = read_evidence(row, int64_of(row, row->new, "order_id"), false, &result);
	if (why == NULL && (to == REFUND_SUCCEEDED
						? result != EVIDENCE_RESULT_SUCCEEDED
						: !payguard_result_proves_attempt(result, ATTEMPT_FAILED)))
		why = not_proven(row, result, to_word);
	if (why)
		refuse_move(row, from_word, to_word, why);
}
