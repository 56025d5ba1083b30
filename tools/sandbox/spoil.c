/*-------------------------------------------------------------------------
 *
 * spoil.c
 *	  Faults as answers.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "settings.h"
#include "spoil.h"

/* Answer in place of carrying the request out; false if no such fault is planned */
bool
spoil_before(const FaultPlan *plan, Answer *answer)
{
	if (plan->answer == FAULT_SLOW)
		answer->wait = plan->wait >= 0 ? plan->wait : settings.slow;
	switch (plan->answer)
	{
		case FAULT_REFUSE:
			answer->act = ACT_FIN;
			return true;
		case FAULT_ERROR_500:
			answer_set(answer, 500, answer_format("%s", ANSWER_500));
			return true;
		case FAULT_ERROR_503:
			answer_error(answer, 503, "unavailable", "Come back later.");
			answer->retry_after = (int) settings.retry_after;
			return true;
		case FAULT_RATE_LIMITED:
			answer_error(answer, 429, "rate_limited", "Too many requests.");
			answer->retry_after = (int) settings.retry_after;
			return true;
		default:
			return false;
	}
}

/* Replace the answer by these bytes, after which the connection is closed */
static void
raw(Answer *answer, char *bytes)
{
	answer_set(answer, 0, bytes);
	answer->act = ACT_RAW;
}

/* Spoil the true answer to a request that was carried out */
void
spoil_after(const FaultPlan *plan, Answer *answer)
{
	int			length = answer->body ? (int) strlen(answer->body) : 0;

	switch (plan->answer)
	{
		case FAULT_THEN_FIN:
			answer->act = ACT_FIN;
			break;
		case FAULT_THEN_RST:
			answer->act = ACT_RST;
			break;
		case FAULT_THEN_SILENCE:
			answer->act = ACT_SILENCE;
			answer->wait = plan->wait >= 0 ? plan->wait : settings.silence;
			break;
		case FAULT_THEN_500:
		case FAULT_THEN_500_KEPT:
			answer_set(answer, 500, answer_format("%s", ANSWER_500));
			break;
		case FAULT_THEN_HTML:
			answer_set(answer, 200, answer_format("<!DOCTYPE html><html><body>Welcome</body></html>"));
			answer->type = "text/html";
			break;
		case FAULT_THEN_TRUNCATED:
			raw(answer, answer_format("HTTP/1.1 %d OK\r\nContent-Type: application/json\r\n"
									  "Content-Length: %d\r\n\r\n%.*s",
									  answer->status, length, length / 2, answer->body));
			break;
		case FAULT_THEN_UNFRAMED:
			raw(answer, answer_format("HTTP/1.1 %d OK\r\nContent-Type: application/json\r\n"
									  "Connection: close\r\n\r\n%.*s",
									  answer->status, length / 2, answer->body));
			break;
		case FAULT_THEN_CUT_HEADER:
			raw(answer, answer_format("HTTP/1.1 %d OK\r\nContent-Ty", answer->status));
			break;
		case FAULT_THEN_GARBAGE:
			raw(answer, answer_format("220 mail.example.com ESMTP\r\n"));
			break;
		default:
			break;
	}
}
