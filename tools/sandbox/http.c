/*-------------------------------------------------------------------------
 *
 * http.c
 *	  The HTTP server: bytes to calls, answers to bytes.
 *
 * An answer that has to wait suspends its connection and is resumed by the
 * timer, so that no thread ever sleeps.  Answers that are none (FIN, RST,
 * cut bytes) act on the socket itself and then have libmicrohttpd close it;
 * MHD_USE_TURBO keeps it from sending a FIN of its own before that.
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "api.h"
#include "clock.h"
#include "control.h"
#include "http.h"
#include "listener.h"
#include "timer.h"

#define LARGEST_BODY 65536
#define IDLE_SECONDS 300
#define CONNECTION_LIMIT 16384
#define LOOK_INTERVAL 50		/* ms between looks whether a client gave up */

typedef struct Request
{
	struct MHD_Connection *connection;
	char	   *body;
	size_t		length;
	size_t		room;
	bool		decided;		/* the answer is known and was waited for */
	Answer		answer;
	int64_t		until;			/* ticks */
} Request;

static _Atomic int64_t count_requests;
static _Atomic int64_t count_unauthorized;
static _Atomic int64_t count_invalid;

/* The socket of a connection */
static int
socket_of(struct MHD_Connection *connection)
{
	return MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
}

/* Has the client closed its side? */
static bool
client_gone(struct MHD_Connection *connection)
{
	struct pollfd look = {.fd = socket_of(connection), .events = POLLRDHUP};

	return poll(&look, 1, 0) > 0 && (look.revents & (POLLRDHUP | POLLHUP | POLLERR));
}

/* A wait is over, or it is time to look whether the client gave up (timer) */
static void
wait_over(void *argument)
{
	Request    *request = argument;
	int64_t		left = request->until - clock_ticks();

	if (left > 0 && !timer_stopping() && !client_gone(request->connection))
		timer_add(left < LOOK_INTERVAL ? left : LOOK_INTERVAL, wait_over, request);
	else
		MHD_resume_connection(request->connection);
}

/* Put a request to sleep until its answer is due */
static enum MHD_Result
wait_for_answer(Request *request)
{
	int64_t		wait = request->answer.wait;

	request->until = clock_ticks() + wait;
	MHD_suspend_connection(request->connection);
	if (wait > LOOK_INTERVAL && request->answer.act == ACT_SILENCE)
		wait = LOOK_INTERVAL;
	timer_add(wait, wait_over, request);
	return MHD_YES;
}

/* Send an HTTP answer */
static enum MHD_Result
send_answer(Request *request)
{
	Answer	   *answer = &request->answer;
	struct MHD_Response *response;
	enum MHD_Result result;
	char		seconds[16];

	response = MHD_create_response_from_buffer(strlen(answer->body), answer->body,
											   MHD_RESPMEM_MUST_FREE);
	answer->body = NULL;
	MHD_add_response_header(response, "Content-Type",
							answer->type ? answer->type : "application/json");
	if (answer->replayed)
		MHD_add_response_header(response, "Idempotent-Replayed", "true");
	if (answer->retry_after)
	{
		snprintf(seconds, sizeof(seconds), "%d", answer->retry_after);
		MHD_add_response_header(response, "Retry-After", seconds);
	}
	result = MHD_queue_response(request->connection, (unsigned) answer->status, response);
	MHD_destroy_response(response);
	return result;
}

/* Answer as the answer says; MHD_NO closes the connection */
static enum MHD_Result
perform(Request *request)
{
	int			fd = socket_of(request->connection);
	struct linger reset = {.l_onoff = 1, .l_linger = 0};

	switch (request->answer.act)
	{
		case ACT_SEND:
			return send_answer(request);
		case ACT_RST:
			setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
			return MHD_NO;
		case ACT_RAW:
			if (send(fd, request->answer.body, strlen(request->answer.body), MSG_NOSIGNAL) < 0)
				perror("payguard-sandbox: send");
			return MHD_NO;
		default:
			return MHD_NO;
	}
}

/* Find out what the answer is; this is where everything happens */
static void
decide(Request *request, const char *method, const char *path)
{
	Call		call = {
		.method = method,
		.path = path,
		.authorization = MHD_lookup_connection_value(request->connection, MHD_HEADER_KIND,
													 "Authorization"),
		.key = MHD_lookup_connection_value(request->connection, MHD_HEADER_KIND,
										   "Idempotency-Key"),
		.body = request->body,
		.length = request->length,
	};

	request->decided = true;
	if (request->length > LARGEST_BODY)
		answer_error(&request->answer, 400, "invalid_request", "The body is too large.");
	else if (strncmp(path, CONTROL_PREFIX, strlen(CONTROL_PREFIX)) == 0)
	{
		control_answer(&call, &request->answer);
		return;
	}
	else
		api_answer(&call, &request->answer);
	count_requests++;
	count_unauthorized += request->answer.status == 401;
	count_invalid += request->answer.status == 400;
}

/* Keep a piece of the body; what exceeds the limit is only counted */
static void
keep(Request *request, const char *data, size_t size)
{
	if (request->length + size <= LARGEST_BODY)
	{
		if (request->length + size > request->room)
		{
			request->room = (request->length + size) * 2;
			request->body = realloc(request->body, request->room);
			if (request->body == NULL)
				abort();
		}
		memcpy(request->body + request->length, data, size);
	}
	request->length += size;
}

/* libmicrohttpd's access handler: called with the headers, each piece, the end */
static enum MHD_Result
handle(void *unused, struct MHD_Connection *connection, const char *path, const char *method,
	   const char *version, const char *data, size_t *size, void **state)
{
	Request    *request = *state;

	(void) unused;
	(void) version;
	if (request == NULL)
	{
		request = calloc(1, sizeof(*request));
		if (request == NULL)
			return MHD_NO;
		request->connection = connection;
		*state = request;
		return MHD_YES;
	}
	if (*size > 0)
	{
		keep(request, data, *size);
		*size = 0;
		return MHD_YES;
	}
	if (!request->decided)
	{
		decide(request, method, path);
		if (request->answer.wait > 0)
			return wait_for_answer(request);
	}
	return perform(request);
}

/* A request has ended, one way or the other */
static void
completed(void *unused, struct MHD_Connection *connection, void **state,
		  enum MHD_RequestTerminationCode code)
{
	Request    *request = *state;

	(void) unused;
	(void) connection;
	(void) code;
	if (request == NULL)
		return;
	free(request->answer.body);
	free(request->body);
	free(request);
	*state = NULL;
}

/* A connection has begun or is about to be closed */
static void
connection_changed(void *unused, struct MHD_Connection *connection, void **state,
				   enum MHD_ConnectionNotificationCode code)
{
	(void) unused;
	(void) state;
	if (code == MHD_CONNECTION_NOTIFY_STARTED)
		listener_opened(socket_of(connection));
	else
		listener_closed(socket_of(connection));
}

/* Start the gateway's server; listener.c brings it its connections */
struct MHD_Daemon *
http_start(unsigned threads)
{
	return MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_TURBO |
							MHD_USE_NO_LISTEN_SOCKET | MHD_USE_ITC | MHD_ALLOW_SUSPEND_RESUME,
							0, NULL, NULL, handle, NULL,
							MHD_OPTION_THREAD_POOL_SIZE, threads > 1 ? threads : 0,
							MHD_OPTION_CONNECTION_LIMIT, (unsigned) CONNECTION_LIMIT,
							MHD_OPTION_CONNECTION_TIMEOUT, (unsigned) IDLE_SECONDS,
							MHD_OPTION_NOTIFY_COMPLETED, completed, NULL,
							MHD_OPTION_NOTIFY_CONNECTION, connection_changed, NULL,
							MHD_OPTION_END);
}

/* Start a server for the control port, which has a listening socket of its own */
struct MHD_Daemon *
http_start_control(int socket)
{
	return MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_TURBO |
							MHD_USE_ITC | MHD_ALLOW_SUSPEND_RESUME,
							0, NULL, NULL, handle, NULL,
							MHD_OPTION_LISTEN_SOCKET, socket,
							MHD_OPTION_CONNECTION_TIMEOUT, (unsigned) IDLE_SECONDS,
							MHD_OPTION_NOTIFY_COMPLETED, completed, NULL,
							MHD_OPTION_END);
}

/* Add the counts to the summary */
void
http_add_counts(json_t *summary)
{
	json_object_set_new(summary, "requests", json_integer(count_requests));
	json_object_set_new(summary, "unauthorized", json_integer(count_unauthorized));
	json_object_set_new(summary, "invalid", json_integer(count_invalid));
}

/* Start the counts anew */
void
http_reset_counts(void)
{
	count_requests = count_unauthorized = count_invalid = 0;
}
