/*-------------------------------------------------------------------------
 *
 * evidence.h
 *	  Evidence: one fact about money, in the form that all rooms pass on.
 *
 * gateway/ makes it from bytes, api/ from arguments, worker/ carries it, and
 * ledger/evidence.c (the one door) judges and stores it.  Strings belong to
 * whoever made the struct and must live until the door has returned; NULL
 * means "not told".  Times are microseconds since 2000-01-01 00:00 UTC, the
 * server's own timestamptz.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYGUARD_EVIDENCE_H
#define PAYGUARD_EVIDENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/key.h"
#include "core/money.h"

/* Where a fact came from. */
typedef enum EvidenceSource
{
	EVIDENCE_SOURCE_ANSWER,		/* the gateway's answer to a call that moves money */
	EVIDENCE_SOURCE_APPLICATION,	/* record_attempt, or a wish of the application */
	EVIDENCE_SOURCE_CALLBACK,
	EVIDENCE_SOURCE_QUERY,		/* the answer to a status query */
	EVIDENCE_SOURCE_SETTLEMENT,
	EVIDENCE_SOURCE_OPERATOR,
	EVIDENCE_SOURCE_EXPIRY
} EvidenceSource;

/* What the fact says. */
typedef enum EvidenceResult
{
	EVIDENCE_RESULT_PAID,
	EVIDENCE_RESULT_FAILED,
	EVIDENCE_RESULT_CLOSED,
	EVIDENCE_RESULT_PENDING,
	EVIDENCE_RESULT_UNKNOWN,
	EVIDENCE_RESULT_NOT_SENT,
	EVIDENCE_RESULT_NOT_FOUND,
	EVIDENCE_RESULT_REVERSED,
	EVIDENCE_RESULT_REINSTATED,
	EVIDENCE_RESULT_SUCCEEDED	/* of a refund */
} EvidenceResult;

/* What the fact led to. */
typedef enum Verdict
{
	VERDICT_APPLIED,
	VERDICT_DUPLICATE,
	VERDICT_STALE,
	VERDICT_SURPLUS,
	VERDICT_MISMATCH,
	VERDICT_PARKED,
	VERDICT_HINT,
	VERDICT_FENCED,
	VERDICT_UNREADABLE,
	VERDICT_DISMISSED
} Verdict;

typedef enum GatewayMode
{
	MODE_LIVE,
	MODE_TEST,
	MODE_NOT_TOLD
} GatewayMode;

/* How a call went below HTTP's meaning; all zero for facts that are no answer. */
typedef struct Transport
{
	bool		is_call;		/* the rest is meaningful */
	int			http_status;	/* 0: none came */
	int			curl_code;
	int			prereq_count;	/* requests that may have left: 0 = not sent */
	int			milliseconds;
} Transport;

typedef struct Evidence
{
	EvidenceSource source;
	EvidenceResult result;

	/* What it speaks of.  Any of these may be missing (0, NULL). */
	const char *gateway;
	const char *gateway_reference;	/* of the attempt or refund */
	int64_t		order_id;
	int			attempt_no;
	int64_t		refund_id;
	const char *provider_id;	/* the gateway's id of the charge (or refund) */
	const char *charge_id;		/* of a refund's fact: the charge given back */
	bool		is_refund;		/* a fact about a refund, not a charge */

	/* What it says of it. */
	bool		has_money;
	Money		money;
	GatewayMode		mode;			/* as told by the gateway */
	const char *fee;			/* decimal text in major units */
	const char *code;
	const char *message;
	const char *client_json;	/* JSON object for the page */
	bool		has_occurred_at;
	int64_t		occurred_at;
	int64_t		received_at;

	/* How it came. */
	const char *event_id;
	const char *event_type;
	Transport	transport;
	int64_t		retry_after;	/* microseconds the gateway asked to wait; 0 none */
	bool		replayed;		/* the gateway said that it repeated an earlier answer */
	const char *payload_json;	/* redacted JSON for the evidence table */
	unsigned char digest[SHA256_SIZE];	/* of the raw bytes */

	/*
	 * Verdicts that are settled before the door: `hint` for callbacks that
	 * only point, `unreadable` for signed bodies that were not understood.
	 */
	bool		is_hint;
	bool		is_unreadable;
	bool		needs_review;	/* the adapter's rule asks for a person */
	bool		is_stop;		/* not_sent for good: payguard itself stopped it */
	bool		is_order_wish;	/* closed: the order's own end, not an attempt's */
	const char *lease_token;	/* the application's, which proves whose report it is */
	int64_t		outbox_id;		/* the item that this answers; 0 none ... */
	int32_t		outbox_epoch;	/* ... under this lease */
	const char *note;			/* why, for people */
} Evidence;

/* Stored words; the reading functions return false for other words. */
extern const char *payguard_source_word(EvidenceSource source);
extern const char *payguard_result_word(EvidenceResult result);
extern const char *payguard_verdict_word(Verdict verdict);
extern const char *payguard_mode_word(GatewayMode mode);
extern bool payguard_result_read(const char *word, EvidenceResult *result);
extern bool payguard_source_read(const char *word, EvidenceSource *source);
extern bool payguard_verdict_read(const char *word, Verdict *verdict);

#endif							/* PAYGUARD_EVIDENCE_H */
