/*-------------------------------------------------------------------------
 *
 * callback.c
 *	  Hands one callback to payguard and reads the answer for the gateway.
 *
 * The statement is a transaction of its own, so when the answer is here it
 * is committed.  Whatever goes wrong before that is a 503: the gateway will
 * send the callback again, and payguard takes a second delivery for what it
 * is.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "callback.h"
#include "pool.h"

/* What happened could not be stored, or nobody knows */
static void
unavailable(const char *verdict, Reply *reply)
{
	reply->status = 503;
	reply->body = strdup("");
	snprintf(reply->verdict, sizeof(reply->verdict), "%s", verdict);
}

/* Read payguard's answer: verdict, http_status, response_body */
static void
read_result(PGconn *connection, const PGresult *result, Reply *reply)
{
	if (PQresultStatus(result) != PGRES_TUPLES_OK)
	{
		fprintf(stderr, "payguard-receiver: %s", PQerrorMessage(connection));
		unavailable("database_error", reply);
	}
	else if (PQntuples(result) == 0 || PQgetisnull(result, 0, 1))
		unavailable("no_answer", reply);
	else
	{
		reply->status = atoi(PQgetvalue(result, 0, 1));
		if (reply->status < 200 || reply->status > 599)
			reply->status = 503;
		reply->body = strdup(PQgetvalue(result, 0, 2));
		snprintf(reply->verdict, sizeof(reply->verdict), "%s", PQgetvalue(result, 0, 0));
	}
}

/* Apply one callback; headers is a JSON object, url may be NULL */
void
callback_apply(const char *gateway, const char *headers, const char *body, size_t length,
			   const char *url, Reply *reply)
{
	const char *const values[] = {gateway, headers, body, url};
	const int	lengths[] = {0, 0, (int) length, 0};
	const int	formats[] = {0, 0, 1, 0};
	PGconn	   *connection = pool_borrow();
	PGresult   *result;

	if (connection == NULL)
	{
		unavailable("no_connection", reply);
		return;
	}
	result = PQexecParams(connection,
						  "SELECT verdict, http_status, response_body"
						  " FROM payguard.apply_callback($1::text, $2::jsonb, $3::bytea, $4::text)"
						  " LIMIT 1",
						  4, NULL, values, lengths, formats, 0);
	read_result(connection, result, reply);
	PQclear(result);
	pool_return(connection);
}
