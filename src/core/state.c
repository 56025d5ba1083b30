/*-------------------------------------------------------------------------
 *
 * state.c
 *	  Which states follow which, and which facts prove an end state.
 *
 * This is the only place that lists them: the one door asks before it moves
 * a row, and the guard triggers ask again, whoever the writer is.  What a
 * fact leads to is core/decide.c's.  Pure: no memory, no clock, no database.
 *
 *-------------------------------------------------------------------------
 */
#include "core/state.h"

#include <string.h>

#define COUNT_OF(words)	((int) (sizeof(words) / sizeof((words)[0])))

/* A set of states, or of results, as bits */
#define BIT(value)		(1U << (value))

/* Stored words: labels of the enum types, in the order of the C enums */
static const char *const order_words[] = {
	[ORDER_CREATED] = "created",
	[ORDER_PROCESSING] = "processing",
	[ORDER_UNKNOWN] = "unknown",
	[ORDER_PAID] = "paid",
	[ORDER_FAILED] = "failed",
	[ORDER_CLOSED] = "closed",
	[ORDER_REFUNDED] = "refunded",
	[ORDER_REVERSED] = "reversed"
};

static const char *const attempt_words[] = {
	[ATTEMPT_CLAIMED] = "claimed",
	[ATTEMPT_SENDING] = "sending",
	[ATTEMPT_PENDING] = "pending",
	[ATTEMPT_SUCCEEDED] = "succeeded",
	[ATTEMPT_FAILED] = "failed",
	[ATTEMPT_UNKNOWN] = "unknown",
	[ATTEMPT_SURPLUS] = "surplus"
};

static const char *const payment_words[] = {
	[PAYMENT_PAID] = "paid",
	[PAYMENT_REFUNDING] = "refunding",
	[PAYMENT_REFUNDED] = "refunded",
	[PAYMENT_REVERSED] = "reversed",
	[PAYMENT_KEPT] = "kept"
};

static const char *const refund_words[] = {
	[REFUND_PENDING] = "pending",
	[REFUND_SUBMITTED] = "submitted",
	[REFUND_PROCESSING] = "processing",
	[REFUND_SUCCEEDED] = "succeeded",
	[REFUND_FAILED] = "failed",
	[REFUND_UNKNOWN] = "unknown"
};

static const char *const call_by_words[] = {
	[CALL_BY_WORKER] = "worker",
	[CALL_BY_APPLICATION] = "application",
	[CALL_BY_GATEWAY] = "gateway"
};

/*
 * The moves.  A state that is not among the indexes' sets is left by nothing.
 * Money is always booked: created, failed and closed lead to paid.
 */
static const unsigned order_moves[] = {
	[ORDER_CREATED] = BIT(ORDER_PROCESSING) | BIT(ORDER_CLOSED) | BIT(ORDER_PAID),
	[ORDER_PROCESSING] = BIT(ORDER_PAID) | BIT(ORDER_FAILED) | BIT(ORDER_UNKNOWN),
	[ORDER_UNKNOWN] = BIT(ORDER_PAID) | BIT(ORDER_FAILED),
	[ORDER_PAID] = BIT(ORDER_REFUNDED) | BIT(ORDER_REVERSED),
	[ORDER_FAILED] = BIT(ORDER_PROCESSING) | BIT(ORDER_CLOSED) | BIT(ORDER_PAID),
	[ORDER_CLOSED] = BIT(ORDER_PAID),
	[ORDER_REFUNDED] = BIT(ORDER_PAID) | BIT(ORDER_REVERSED),
	[ORDER_REVERSED] = BIT(ORDER_PAID) | BIT(ORDER_REFUNDED)
};

static const unsigned attempt_moves[] = {
	[ATTEMPT_CLAIMED] = BIT(ATTEMPT_SENDING) | BIT(ATTEMPT_PENDING) | BIT(ATTEMPT_SUCCEEDED) |
	BIT(ATTEMPT_FAILED) | BIT(ATTEMPT_UNKNOWN) | BIT(ATTEMPT_SURPLUS),
	[ATTEMPT_SENDING] = BIT(ATTEMPT_PENDING) | BIT(ATTEMPT_SUCCEEDED) |
	BIT(ATTEMPT_FAILED) | BIT(ATTEMPT_UNKNOWN) | BIT(ATTEMPT_SURPLUS),
	[ATTEMPT_PENDING] = BIT(ATTEMPT_SUCCEEDED) | BIT(ATTEMPT_FAILED) | BIT(ATTEMPT_SURPLUS),
	[ATTEMPT_SUCCEEDED] = 0,
	[ATTEMPT_FAILED] = BIT(ATTEMPT_SUCCEEDED) | BIT(ATTEMPT_SURPLUS),
	/* unknown -> sending is a permitted resend */
	[ATTEMPT_UNKNOWN] = BIT(ATTEMPT_SENDING) | BIT(ATTEMPT_PENDING) | BIT(ATTEMPT_SUCCEEDED) |
	BIT(ATTEMPT_FAILED) | BIT(ATTEMPT_SURPLUS),
	[ATTEMPT_SURPLUS] = 0
};

static const unsigned payment_moves[] = {
	[PAYMENT_PAID] = BIT(PAYMENT_REFUNDING) | BIT(PAYMENT_REFUNDED) |
	BIT(PAYMENT_REVERSED) | BIT(PAYMENT_KEPT),
	[PAYMENT_REFUNDING] = BIT(PAYMENT_PAID) | BIT(PAYMENT_REFUNDED) | BIT(PAYMENT_REVERSED),
	[PAYMENT_REFUNDED] = BIT(PAYMENT_PAID) | BIT(PAYMENT_REFUNDING) | BIT(PAYMENT_REVERSED),
	[PAYMENT_REVERSED] = BIT(PAYMENT_PAID) | BIT(PAYMENT_REFUNDING) | BIT(PAYMENT_REFUNDED),
	[PAYMENT_KEPT] = BIT(PAYMENT_REFUNDING) | BIT(PAYMENT_REFUNDED) | BIT(PAYMENT_REVERSED)
};

static const unsigned refund_moves[] = {
	[REFUND_PENDING] = BIT(REFUND_SUBMITTED) | BIT(REFUND_PROCESSING) |
	BIT(REFUND_SUCCEEDED) | BIT(REFUND_FAILED) | BIT(REFUND_UNKNOWN),
	[REFUND_SUBMITTED] = BIT(REFUND_PROCESSING) | BIT(REFUND_SUCCEEDED) |
	BIT(REFUND_FAILED) | BIT(REFUND_UNKNOWN),
	[REFUND_PROCESSING] = BIT(REFUND_SUCCEEDED) | BIT(REFUND_FAILED) | BIT(REFUND_UNKNOWN),
	[REFUND_SUCCEEDED] = BIT(REFUND_FAILED),
	[REFUND_FAILED] = BIT(REFUND_SUCCEEDED),
	[REFUND_UNKNOWN] = BIT(REFUND_SUBMITTED) | BIT(REFUND_PROCESSING) |
	BIT(REFUND_SUCCEEDED) | BIT(REFUND_FAILED)
};

/*
 * What proves an end state.  0 stands for states that need no proof: they
 * say nothing about money that has moved or can no longer move.
 *
 * A reversal may be the first that is heard of a payment: the order then
 * becomes paid and reversed in one step by that fact.  A refund's result
 * moves a settled order between paid and refunded.
 */
static const unsigned order_proofs[] = {
	[ORDER_CREATED] = 0,
	[ORDER_PROCESSING] = 0,
	[ORDER_UNKNOWN] = 0,
	[ORDER_PAID] = BIT(EVIDENCE_RESULT_PAID) | BIT(EVIDENCE_RESULT_REINSTATED) |
	BIT(EVIDENCE_RESULT_SUCCEEDED) | BIT(EVIDENCE_RESULT_REVERSED) |
	BIT(EVIDENCE_RESULT_FAILED) | BIT(EVIDENCE_RESULT_CLOSED),
	[ORDER_FAILED] = BIT(EVIDENCE_RESULT_FAILED) | BIT(EVIDENCE_RESULT_CLOSED) |
	BIT(EVIDENCE_RESULT_NOT_SENT) | BIT(EVIDENCE_RESULT_NOT_FOUND),
	[ORDER_CLOSED] = BIT(EVIDENCE_RESULT_CLOSED) | BIT(EVIDENCE_RESULT_FAILED) |
	BIT(EVIDENCE_RESULT_NOT_SENT) | BIT(EVIDENCE_RESULT_NOT_FOUND),
	[ORDER_REFUNDED] = BIT(EVIDENCE_RESULT_SUCCEEDED) | BIT(EVIDENCE_RESULT_REINSTATED),
	[ORDER_REVERSED] = BIT(EVIDENCE_RESULT_REVERSED)
};

#define PROOFS_OF_MONEY \
	(BIT(EVIDENCE_RESULT_PAID) | BIT(EVIDENCE_RESULT_REVERSED) | BIT(EVIDENCE_RESULT_REINSTATED))

static const unsigned attempt_proofs[] = {
	[ATTEMPT_CLAIMED] = 0,
	[ATTEMPT_SENDING] = 0,
	[ATTEMPT_PENDING] = 0,
	[ATTEMPT_SUCCEEDED] = PROOFS_OF_MONEY,
	[ATTEMPT_FAILED] = BIT(EVIDENCE_RESULT_FAILED) | BIT(EVIDENCE_RESULT_CLOSED) |
	BIT(EVIDENCE_RESULT_NOT_SENT) | BIT(EVIDENCE_RESULT_NOT_FOUND),
	[ATTEMPT_UNKNOWN] = 0,
	[ATTEMPT_SURPLUS] = PROOFS_OF_MONEY
};

/*
 * Place of a word in a list, or -1.
 */
static int
find_word(const char *const *words, int count, const char *word)
{
	int			i;

	for (i = 0; i < count; i++)
		if (strcmp(words[i], word) == 0)
			return i;
	return -1;
}

/*
 * Does the list of moves hold this one?  Staying is always allowed.
 */
static bool
is_listed(const unsigned *moves, int from, int to)
{
	return from == to || (moves[from] & BIT(to)) != 0;
}

/*
 * The stored words.
 */
const char *
payguard_order_word(OrderStatus status)
{
	return order_words[status];
}

const char *
payguard_attempt_word(AttemptState state)
{
	return attempt_words[state];
}

const char *
payguard_payment_word(PaymentState state)
{
	return payment_words[state];
}

const char *
payguard_refund_word(RefundState state)
{
	return refund_words[state];
}

const char *
payguard_call_by_word(CallBy call_by)
{
	return call_by_words[call_by];
}

/*
 * Reading the words; false for any other word.
 */
bool
payguard_order_read(const char *word, OrderStatus *status)
{
	int			found = find_word(order_words, COUNT_OF(order_words), word);

	if (found >= 0)
		*status = (OrderStatus) found;
	return found >= 0;
}

bool
payguard_attempt_read(const char *word, AttemptState *state)
{
	int			found = find_word(attempt_words, COUNT_OF(attempt_words), word);

	if (found >= 0)
		*state = (AttemptState) found;
	return found >= 0;
}

bool
payguard_payment_read(const char *word, PaymentState *state)
{
	int			found = find_word(payment_words, COUNT_OF(payment_words), word);

	if (found >= 0)
		*state = (PaymentState) found;
	return found >= 0;
}

bool
payguard_refund_read(const char *word, RefundState *state)
{
	int			found = find_word(refund_words, COUNT_OF(refund_words), word);

	if (found >= 0)
		*state = (RefundState) found;
	return found >= 0;
}

bool
payguard_call_by_read(const char *word, CallBy *call_by)
{
	int			found = find_word(call_by_words, COUNT_OF(call_by_words), word);

	if (found >= 0)
		*call_by = (CallBy) found;
	return found >= 0;
}

/*
 * Is this move listed?
 */
bool
payguard_order_may_become(OrderStatus from, OrderStatus to)
{
	return is_listed(order_moves, from, to);
}

bool
payguard_attempt_may_become(AttemptState from, AttemptState to)
{
	return is_listed(attempt_moves, from, to);
}

bool
payguard_payment_may_become(PaymentState from, PaymentState to)
{
	return is_listed(payment_moves, from, to);
}

bool
payguard_refund_may_become(RefundState from, RefundState to)
{
	return is_listed(refund_moves, from, to);
}

/*
 * Can a claim take an order in this status?
 */
bool
payguard_order_claimable(OrderStatus status)
{
	return status == ORDER_CREATED || status == ORDER_FAILED;
}

/*
 * Was money counted for an order in this status?
 */
bool
payguard_order_has_money(OrderStatus status)
{
	return status == ORDER_PAID || status == ORDER_REFUNDED || status == ORDER_REVERSED;
}

/*
 * Does this result justify that end state?  True for states that are none.
 */
bool
payguard_result_proves_order(EvidenceResult result, OrderStatus status)
{
	return order_proofs[status] == 0 || (order_proofs[status] & BIT(result)) != 0;
}

bool
payguard_result_proves_attempt(EvidenceResult result, AttemptState state)
{
	return attempt_proofs[state] == 0 || (attempt_proofs[state] & BIT(result)) != 0;
}
