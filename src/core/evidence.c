/*-------------------------------------------------------------------------
 *
 * evidence.c
 *	  The stored words of evidence: sources, results, verdicts, modes.
 *
 * The words are the labels of the enum types in the SQL script, in the order
 * of the C enums.  Pure: no memory, no clock, no database.
 *
 *-------------------------------------------------------------------------
 */
#include "core/evidence.h"

#include <string.h>

#define COUNT_OF(words)	((int) (sizeof(words) / sizeof((words)[0])))

static const char *const source_words[] = {
	[EVIDENCE_SOURCE_ANSWER] = "answer",
	[EVIDENCE_SOURCE_APPLICATION] = "application",
	[EVIDENCE_SOURCE_CALLBACK] = "callback",
	[EVIDENCE_SOURCE_QUERY] = "query",
	[EVIDENCE_SOURCE_SETTLEMENT] = "settlement",
	[EVIDENCE_SOURCE_OPERATOR] = "operator",
	[EVIDENCE_SOURCE_EXPIRY] = "expiry"
};

static const char *const result_words[] = {
	[EVIDENCE_RESULT_PAID] = "paid",
	[EVIDENCE_RESULT_FAILED] = "failed",
	[EVIDENCE_RESULT_CLOSED] = "closed",
	[EVIDENCE_RESULT_PENDING] = "pending",
	[EVIDENCE_RESULT_UNKNOWN] = "unknown",
	[EVIDENCE_RESULT_NOT_SENT] = "not_sent",
	[EVIDENCE_RESULT_NOT_FOUND] = "not_found",
	[EVIDENCE_RESULT_REVERSED] = "reversed",
	[EVIDENCE_RESULT_REINSTATED] = "reinstated",
	[EVIDENCE_RESULT_SUCCEEDED] = "succeeded"
};

static const char *const verdict_words[] = {
	[VERDICT_APPLIED] = "applied",
	[VERDICT_DUPLICATE] = "duplicate",
	[VERDICT_STALE] = "stale",
	[VERDICT_SURPLUS] = "surplus",
	[VERDICT_MISMATCH] = "mismatch",
	[VERDICT_PARKED] = "parked",
	[VERDICT_HINT] = "hint",
	[VERDICT_FENCED] = "fenced",
	[VERDICT_UNREADABLE] = "unreadable",
	[VERDICT_DISMISSED] = "dismissed"
};

static const char *const mode_words[] = {
	[MODE_LIVE] = "live",
	[MODE_TEST] = "test"
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
 * The stored word of a source.
 */
const char *
payguard_source_word(EvidenceSource source)
{
	return source_words[source];
}

/*
 * The stored word of a result.
 */
const char *
payguard_result_word(EvidenceResult result)
{
	return result_words[result];
}

/*
 * The stored word of a verdict.
 */
const char *
payguard_verdict_word(Verdict verdict)
{
	return verdict_words[verdict];
}

/*
 * The stored word of a mode; NULL when the gateway did not tell it.
 */
const char *
payguard_mode_word(GatewayMode mode)
{
	return mode == MODE_NOT_TOLD ? NULL : mode_words[mode];
}

/*
 * Read a source; false for any other word.
 */
bool
payguard_source_read(const char *word, EvidenceSource *source)
{
	int			found = find_word(source_words, COUNT_OF(source_words), word);

	if (found >= 0)
		*source = (EvidenceSource) found;
	return found >= 0;
}

/*
 * Read a result; false for any other word.
 */
bool
payguard_result_read(const char *word, EvidenceResult *result)
{
	int			found = find_word(result_words, COUNT_OF(result_words), word);

	if (found >= 0)
		*result = (EvidenceResult) found;
	return found >= 0;
}

/*
 * Read a verdict; false for any other word.
 */
bool
payguard_verdict_read(const char *word, Verdict *verdict)
{
	int			found = find_word(verdict_words, COUNT_OF(verdict_words), word);

	if (found >= 0)
		*verdict = (Verdict) found;
	return found >= 0;
}
