/*-------------------------------------------------------------------------
 *
 * http.c
 *	  Gateway calls over HTTP; the only file that includes curl.
 *
 * A set of calls is one curl multi handle whose sockets are behind one epoll
 * descriptor, so that the worker's WaitEventSet has a single member for them.
 * Connections and handles are reused.
 *
 * Every call is sent at most once.  libcurl repeats a POST by itself when a
 * reused connection dies; its CURLOPT_PREREQFUNCTION runs before each request
 * that may leave, so we count there and refuse the second.  The count is also
 * the only reliable test of "nothing was sent": the CURLcode is not.
 *
 * What must never happen here: palloc, ereport or a longjmp inside a curl
 * callback; a signal handler of PostgreSQL's in one of libcurl's threads (all
 * signals are blocked around curl's work, and its threads inherit that); a
 * secret in curl's error text; curl in any process but a worker.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <curl/curl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "core/crashpoint.h"
#include "storage/fd.h"
#include "worker/worker.h"

/* CURLOPT_PROTOCOLS_STR is the newest of the options that we cannot do without. */
StaticAssertDecl(LIBCURL_VERSION_NUM >= 0x075500, "payguard needs libcurl 7.85 or newer");

#define BODY_LIMIT		(64 * 1024)
#define HEADER_LIMIT	(32 * 1024)
#define EVENTS_AT_ONCE	64

/* One curl handle with its buffers; pooled. */
typedef struct Transfer
{
	HttpCall	call;			/* must be first: release() casts back */
	CURL	   *easy;
	struct curl_slist *header_list;
	int			prereq_count;	/* requests that may have left */
	bool		too_large;		/* a limit stopped the transfer */
	size_t		header_length;
	size_t		body_length;
	char	   *headers;		/* HEADER_LIMIT + 1 bytes */
	char	   *body;			/* BODY_LIMIT + 1 bytes */
	char		error[CURL_ERROR_SIZE];
	struct Transfer *next;		/* in the pool or among the ended */
} Transfer;

struct HttpCalls
{
	MemoryContext context;
	CURLM	   *multi;
	int			epoll_fd;
	int			in_flight;		/* started and not yet handed out by run() */
	bool		has_timer;
	int64		timer_at;		/* monotonic milliseconds */
	Transfer   *pool;
	Transfer   *ended;			/* waiting for run() to hand them out */
};

/*
 * Monotonic milliseconds.
 */
static int64
read_clock(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64) now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/*
 * Keep every signal away from curl, and from the threads that it starts.
 */
static void
block_signals(sigset_t *saved)
{
	sigset_t	all;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, saved);
}

static void
restore_signals(const sigset_t *saved)
{
	sigprocmask(SIG_SETMASK, saved, NULL);
}

/* --- curl's callbacks: plain memory only --------------------------------- */

/*
 * A request is about to leave.  The first may, no other.
 */
static int
count_send(void *argument, char *remote_ip, char *local_ip, int remote_port, int local_port)
{
	Transfer   *transfer = argument;

	return ++transfer->prereq_count == 1 ? CURL_PREREQFUNC_OK : CURL_PREREQFUNC_ABORT;
}

/*
 * Keep body bytes; a short count ends the transfer.
 */
static size_t
keep_body(char *data, size_t size, size_t count, void *argument)
{
	Transfer   *transfer = argument;
	size_t		length = size * count;

	if (length > BODY_LIMIT - transfer->body_length)
	{
		transfer->too_large = true;
		return 0;
	}
	memcpy(transfer->body + transfer->body_length, data, length);
	transfer->body_length += length;
	return length;
}

/*
 * Keep a header line.  A status line begins another answer (after 100
 * Continue); only the last one's headers count.
 */
static size_t
keep_header(char *data, size_t size, size_t count, void *argument)
{
	Transfer   *transfer = argument;
	size_t		length = size * count;

	PAYGUARD_CRASH_POINT(CRASH_ANSWER_BEGUN);
	if (length >= 5 && memcmp(data, "HTTP/", 5) == 0)
		transfer->header_length = 0;
	if (length > HEADER_LIMIT - transfer->header_length)
	{
		transfer->too_large = true;
		return 0;
	}
	memcpy(transfer->headers + transfer->header_length, data, length);
	transfer->header_length += length;
	return length;
}

/*
 * curl tells what it waits for on a socket.
 */
static int
watch_socket(CURL *easy, curl_socket_t fd, int what, void *argument, void *socket_argument)
{
	HttpCalls  *calls = argument;
	struct epoll_event event = {0};

	if (what == CURL_POLL_REMOVE)
	{
		/* curl may have closed it, then it is out already */
		(void) epoll_ctl(calls->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
		return 0;
	}
	if (what & CURL_POLL_IN)
		event.events |= EPOLLIN;
	if (what & CURL_POLL_OUT)
		event.events |= EPOLLOUT;
	event.data.fd = fd;
	if (epoll_ctl(calls->epoll_fd, EPOLL_CTL_MOD, fd, &event) == 0)
		return 0;
	return epoll_ctl(calls->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : -1;
}

/*
 * curl tells when it wants to be called without an event.
 */
static int
set_timer(CURLM *multi, long timeout_ms, void *argument)
{
	HttpCalls  *calls = argument;

	calls->has_timer = timeout_ms >= 0;
	calls->timer_at = read_clock() + timeout_ms;
	return 0;
}

/* --- handles -------------------------------------------------------------- */

/*
 * Begin to use curl in this process.  53000 when that is not possible.
 */
static void
init_curl(void)
{
	static bool is_done = false;
	sigset_t	saved;
	CURLcode	rc;

	if (is_done)
		return;
	block_signals(&saved);
	rc = curl_global_init(CURL_GLOBAL_DEFAULT);
	restore_signals(&saved);
	if (rc != CURLE_OK)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
				 errmsg("could not initialize libcurl: %s", curl_easy_strerror(rc))));
	is_done = true;
}

/*
 * Make an empty set.  max_calls bounds the connections that are kept.
 */
HttpCalls *
payguard_http_create(MemoryContext context, int max_calls)
{
	HttpCalls  *calls = MemoryContextAllocZero(context, sizeof(HttpCalls));
	sigset_t	saved;

	init_curl();
	calls->context = context;
	calls->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (calls->epoll_fd < 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not create an epoll descriptor: %m")));
	ReserveExternalFD();

	block_signals(&saved);
	calls->multi = curl_multi_init();
	if (calls->multi != NULL)
	{
		curl_multi_setopt(calls->multi, CURLMOPT_SOCKETFUNCTION, watch_socket);
		curl_multi_setopt(calls->multi, CURLMOPT_SOCKETDATA, calls);
		curl_multi_setopt(calls->multi, CURLMOPT_TIMERFUNCTION, set_timer);
		curl_multi_setopt(calls->multi, CURLMOPT_TIMERDATA, calls);
		curl_multi_setopt(calls->multi, CURLMOPT_MAXCONNECTS, (long) max_calls);
	}
	restore_signals(&saved);
	if (calls->multi == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of memory")));
	return calls;
}

/*
 * A handle from the pool, or a new one, for which a file descriptor is set
 * aside: a handle has one socket, in use or kept.  Everything that can fail
 * happens before curl knows of the call.
 */
static Transfer *
get_transfer(HttpCalls *calls)
{
	Transfer   *transfer = calls->pool;

	if (transfer != NULL)
	{
		calls->pool = transfer->next;
		transfer->next = NULL;
		return transfer;
	}
	transfer = MemoryContextAllocZero(calls->context, sizeof(Transfer));
	transfer->headers = MemoryContextAlloc(calls->context, HEADER_LIMIT + 1);
	transfer->body = MemoryContextAlloc(calls->context, BODY_LIMIT + 1);
	transfer->easy = curl_easy_init();
	if (transfer->easy == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of memory")));
	ReserveExternalFD();
	return transfer;
}

/*
 * Options are set through here so that no failure is overlooked: a handle
 * without its guard must not go out.
 */
#define SET_OPTION(option, value) \
	do { \
		if (rc == CURLE_OK) \
			rc = curl_easy_setopt(easy, (option), (value)); \
	} while (0)

/*
 * What is the same for every call.
 */
static CURLcode
set_guards(Transfer *transfer)
{
	CURL	   *easy = transfer->easy;
	CURLcode	rc = CURLE_OK;

	SET_OPTION(CURLOPT_PREREQFUNCTION, count_send);
	SET_OPTION(CURLOPT_PREREQDATA, transfer);
	SET_OPTION(CURLOPT_WRITEFUNCTION, keep_body);
	SET_OPTION(CURLOPT_WRITEDATA, transfer);
	SET_OPTION(CURLOPT_HEADERFUNCTION, keep_header);
	SET_OPTION(CURLOPT_HEADERDATA, transfer);
	SET_OPTION(CURLOPT_PRIVATE, transfer);
	SET_OPTION(CURLOPT_ERRORBUFFER, transfer->error);
	SET_OPTION(CURLOPT_PROTOCOLS_STR, "http,https");
	SET_OPTION(CURLOPT_FOLLOWLOCATION, 0L);
	/* HTTP/2 repeats refused streams by itself */
	SET_OPTION(CURLOPT_HTTP_VERSION, (long) CURL_HTTP_VERSION_1_1);
	SET_OPTION(CURLOPT_SSL_VERIFYPEER, 1L);
	SET_OPTION(CURLOPT_SSL_VERIFYHOST, 2L);
	SET_OPTION(CURLOPT_SSLVERSION, (long) CURL_SSLVERSION_TLSv1_2);
	/* signals belong to PostgreSQL, SIGALRM above all */
	SET_OPTION(CURLOPT_NOSIGNAL, 1L);
	/* a proxy's answer to CONNECT is not the gateway's */
	SET_OPTION(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
	/* what was signed is what is asked for */
	SET_OPTION(CURLOPT_PATH_AS_IS, 1L);
	SET_OPTION(CURLOPT_USERAGENT, "payguard");
#if LIBCURL_VERSION_NUM >= 0x075700
	/* do not wait for a name server after the call's time is over */
	SET_OPTION(CURLOPT_QUICK_EXIT, 1L);
#endif
	return rc;
}

/*
 * What the gateway's configuration says.
 */
static CURLcode
set_gateway(Transfer *transfer, const Gateway *gateway, const char *url)
{
	CURL	   *easy = transfer->easy;
	CURLcode	rc = CURLE_OK;

	SET_OPTION(CURLOPT_URL, url);
	SET_OPTION(CURLOPT_CONNECTTIMEOUT_MS, (long) Max(gateway->connect_timeout / 1000, 1));
	SET_OPTION(CURLOPT_TIMEOUT_MS, (long) Max(gateway->total_timeout / 1000, 1));
	/* never left unset: the postmaster's environment may name proxies */
	SET_OPTION(CURLOPT_PROXY, gateway->proxy ? gateway->proxy : "");
	SET_OPTION(CURLOPT_NOPROXY, "");
	if (gateway->ca_file != NULL)
		SET_OPTION(CURLOPT_CAINFO, gateway->ca_file);
	return rc;
}

/*
 * Method and body.
 */
static CURLcode
set_request(Transfer *transfer, const CallRequest *request)
{
	CURL	   *easy = transfer->easy;
	CURLcode	rc = CURLE_OK;
	bool		is_post = strcmp(request->method, "POST") == 0;

	if (is_post || request->body != NULL)
	{
		/* copied, because curl sends later; the size must be known first */
		SET_OPTION(CURLOPT_POST, 1L);
		SET_OPTION(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t) request->body_length);
		SET_OPTION(CURLOPT_COPYPOSTFIELDS, request->body ? request->body : "");
	}
	else
		SET_OPTION(CURLOPT_HTTPGET, 1L);
	if (!is_post && strcmp(request->method, "GET") != 0)
		SET_OPTION(CURLOPT_CUSTOMREQUEST, request->method);
	else if (!is_post && request->body != NULL)
		SET_OPTION(CURLOPT_CUSTOMREQUEST, "GET");
	return rc;
}

/*
 * Add one header line to the call's list.
 */
static bool
add_header(Transfer *transfer, const char *line)
{
	struct curl_slist *list = curl_slist_append(transfer->header_list, line);

	if (list == NULL)
		return false;
	transfer->header_list = list;
	return true;
}

/*
 * Header lines of the request and of its authentication.  curl's own Expect
 * would cost a second, and its own Content-Type would be a lie.
 */
static CURLcode
set_headers(Transfer *transfer, const CallRequest *request, List *auth_headers)
{
	CURL	   *easy = transfer->easy;
	CURLcode	rc = CURLE_OK;
	bool		has_type = false;
	bool		ok;
	ListCell   *lc;

	ok = add_header(transfer, "Expect:");
	foreach(lc, request->headers)
	{
		has_type |= pg_strncasecmp(lfirst(lc), "content-type:", 13) == 0;
		ok = ok && add_header(transfer, lfirst(lc));
	}
	foreach(lc, auth_headers)
		ok = ok && add_header(transfer, lfirst(lc));
	if (!has_type)
		ok = ok && add_header(transfer, "Content-Type:");
	if (!ok)
		return CURLE_OUT_OF_MEMORY;
	SET_OPTION(CURLOPT_HTTPHEADER, transfer->header_list);
	return rc;
}

/*
 * The call is over: fill the reply and put it among the ended.
 */
static void
end_transfer(HttpCalls *calls, Transfer *transfer, CURLcode rc)
{
	HttpReply  *reply = &transfer->call.reply;
	long		status = 0;
	curl_off_t	microseconds = 0;

	curl_easy_getinfo(transfer->easy, CURLINFO_RESPONSE_CODE, &status);
	curl_easy_getinfo(transfer->easy, CURLINFO_TOTAL_TIME_T, &microseconds);
	transfer->headers[transfer->header_length] = '\0';
	transfer->body[transfer->body_length] = '\0';
	if (rc != CURLE_OK && transfer->error[0] == '\0')
		strlcpy(transfer->error, curl_easy_strerror(rc), sizeof(transfer->error));

	reply->transport.is_call = true;
	reply->transport.http_status = (int) status;
	reply->transport.curl_code = (int) rc;
	reply->transport.prereq_count = transfer->prereq_count;
	reply->transport.milliseconds = (int) (microseconds / 1000);
	reply->complete = rc == CURLE_OK && transfer->prereq_count == 1 &&
		!transfer->too_large && status >= 200;
	reply->aborted_by_us = false;	/* the guard lets every first request pass */
	reply->headers = transfer->headers;
	reply->headers_length = transfer->header_length;
	reply->body = transfer->body;
	reply->body_length = transfer->body_length;
	reply->error = transfer->error;

	transfer->next = calls->ended;
	calls->ended = transfer;
}

/*
 * Start a call.  Raises an error only before curl has taken it; a call that
 * curl refuses ends at once with nothing sent.
 */
void
payguard_http_start(HttpCalls *calls, const Gateway *gateway, const CallRequest *request,
					List *auth_headers, void *owner)
{
	char	   *url = psprintf("%s%s", gateway->base_url, request->path);
	Transfer   *transfer = get_transfer(calls);
	sigset_t	saved;
	CURLcode	rc;

	memset(&transfer->call, 0, sizeof(HttpCall));
	transfer->call.owner = owner;
	transfer->prereq_count = 0;
	transfer->too_large = false;
	transfer->header_length = 0;
	transfer->body_length = 0;
	transfer->error[0] = '\0';

	block_signals(&saved);
	rc = set_guards(transfer);
	if (rc == CURLE_OK)
		rc = set_gateway(transfer, gateway, url);
	if (rc == CURLE_OK)
		rc = set_request(transfer, request);
	if (rc == CURLE_OK)
		rc = set_headers(transfer, request, auth_headers);
	if (rc == CURLE_OK && curl_multi_add_handle(calls->multi, transfer->easy) != CURLM_OK)
		rc = CURLE_FAILED_INIT;
	calls->in_flight++;
	if (rc != CURLE_OK)
		end_transfer(calls, transfer, rc);
	restore_signals(&saved);
	pfree(url);
}

/*
 * Collect what curl has finished.
 */
static void
collect_ended(HttpCalls *calls)
{
	CURLMsg    *message;
	int			left;

	while ((message = curl_multi_info_read(calls->multi, &left)) != NULL)
	{
		CURLcode	rc = message->data.result;
		CURL	   *easy = message->easy_handle;
		Transfer   *transfer = NULL;

		if (message->msg != CURLMSG_DONE)
			continue;
		curl_easy_getinfo(easy, CURLINFO_PRIVATE, (char **) &transfer);
		/* the message is gone after this */
		curl_multi_remove_handle(calls->multi, easy);
		end_transfer(calls, transfer, rc);
	}
}

/*
 * Let curl do what can be done without waiting; returns the calls that have
 * ended, as a list in the current memory context.
 */
List *
payguard_http_run(HttpCalls *calls)
{
	struct epoll_event events[EVENTS_AT_ONCE];
	List	   *result = NIL;
	int			running;
	int			count;
	sigset_t	saved;

	block_signals(&saved);
	count = epoll_wait(calls->epoll_fd, events, EVENTS_AT_ONCE, 0);
	for (int i = 0; i < count; i++)
	{
		int			mask = 0;

		if (events[i].events & EPOLLIN)
			mask |= CURL_CSELECT_IN;
		if (events[i].events & EPOLLOUT)
			mask |= CURL_CSELECT_OUT;
		if (events[i].events & (EPOLLERR | EPOLLHUP))
			mask |= CURL_CSELECT_ERR;
		curl_multi_socket_action(calls->multi, events[i].data.fd, mask, &running);
	}
	if (calls->has_timer && read_clock() >= calls->timer_at)
	{
		calls->has_timer = false;
		curl_multi_socket_action(calls->multi, CURL_SOCKET_TIMEOUT, 0, &running);
	}
	collect_ended(calls);
	restore_signals(&saved);

	for (Transfer *transfer = calls->ended; transfer != NULL; transfer = transfer->next)
		result = lappend(result, &transfer->call);
	calls->in_flight -= list_length(result);
	calls->ended = NULL;
	return result;
}

/*
 * The descriptor to wait on.
 */
int
payguard_http_descriptor(const HttpCalls *calls)
{
	return calls->epoll_fd;
}

/*
 * Milliseconds until run() must be called; -1: only when the descriptor says.
 */
long
payguard_http_timeout(const HttpCalls *calls)
{
	int64		left;

	if (calls->ended != NULL)
		return 0;
	if (!calls->has_timer)
		return -1;
	left = calls->timer_at - read_clock();
	return (long) Max(left, 0);
}

/*
 * Calls that were started and have not been handed out by run().
 */
int
payguard_http_in_flight(const HttpCalls *calls)
{
	return calls->in_flight;
}

/*
 * Back into the pool.  The reset forgets URL, headers, key and body; the
 * connection stays with the multi handle.
 */
void
payguard_http_release(HttpCalls *calls, HttpCall *call)
{
	Transfer   *transfer = (Transfer *) call;
	sigset_t	saved;

	block_signals(&saved);
	curl_easy_reset(transfer->easy);
	curl_slist_free_all(transfer->header_list);
	restore_signals(&saved);
	transfer->header_list = NULL;
	transfer->next = calls->pool;
	calls->pool = transfer;
}

/*
 * Free a set in which nothing is under way or waits to be released.
 */
void
payguard_http_destroy(HttpCalls *calls)
{
	sigset_t	saved;

	Assert(calls->in_flight == 0);
	block_signals(&saved);
	while (calls->pool != NULL)
	{
		Transfer   *transfer = calls->pool;

		calls->pool = transfer->next;
		curl_easy_cleanup(transfer->easy);
		pfree(transfer->headers);
		pfree(transfer->body);
		pfree(transfer);
		ReleaseExternalFD();
	}
	curl_multi_cleanup(calls->multi);
	restore_signals(&saved);
	close(calls->epoll_fd);
	ReleaseExternalFD();
	pfree(calls);
}
