/*-------------------------------------------------------------------------
 *
 * main.c
 *	  payguard-receiver: the HTTP side of an application that takes
 *	  callbacks from payment gateways.
 *
 * POST /callbacks/<gateway> goes to payguard as it came: all headers, and
 * the body byte for byte, since the signature covers exactly those bytes.
 *
 *-------------------------------------------------------------------------
 */
#include <arpa/inet.h>
#include <ctype.h>
#include <getopt.h>
#include <jansson.h>
#include <microhttpd.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "callback.h"
#include "pool.h"

#define PREFIX "/callbacks/"
#define LARGEST_BODY (1024 * 1024)
#define CONNECTION_LIMIT 512
#define IDLE_SECONDS 60

typedef struct Request
{
	char	   *body;
	size_t		length;
	bool		too_large;
} Request;

typedef struct Options
{
	int			port;
	int			connections;
	const char *port_file;
	const char *conninfo;
	const char *public_url;
	bool		die_with_parent;
} Options;

static Options options = {.connections = 4, .conninfo = ""};

/* counts by verdict and by HTTP status; guarded by lock */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static json_t *verdicts;
static json_t *statuses;
static json_int_t callbacks;

/* Add one to a member of a JSON object; lock is held */
static void
count(json_t *object, const char *name)
{
	json_object_set_new(object, name,
						json_integer(json_integer_value(json_object_get(object, name)) + 1));
}

/* Count a callback that was answered */
static void
count_reply(const Reply *reply)
{
	char		status[16];

	snprintf(status, sizeof(status), "%d", reply->status);
	pthread_mutex_lock(&lock);
	callbacks++;
	count(verdicts, reply->verdict);
	count(statuses, status);
	pthread_mutex_unlock(&lock);
}

/* The counts, for GET /_receiver/summary */
static char *
summary(void)
{
	json_t	   *object;
	char	   *text;

	pthread_mutex_lock(&lock);
	object = json_pack("{sI sO sO}", "callbacks", callbacks,
					   "verdicts", verdicts, "http_statuses", statuses);
	text = json_dumps(object, JSON_INDENT(2) | JSON_SORT_KEYS);
	json_decref(object);
	pthread_mutex_unlock(&lock);
	return text;
}

/*
 * Add one header to a JSON object, its name in lower case.  A repeated one
 * is joined with a comma, as HTTP says; one that is not UTF-8 is left out.
 */
static enum MHD_Result
add_header(void *object, enum MHD_ValueKind kind, const char *name, const char *value)
{
	char	   *lower = strdup(name);
	const char *before;

	(void) kind;
	for (char *c = lower; *c; c++)
		*c = (char) tolower((unsigned char) *c);
	before = json_string_value(json_object_get(object, lower));
	if (before)
		json_object_set_new(object, lower, json_sprintf("%s, %s", before, value ? value : ""));
	else
		json_object_set_new(object, lower, json_string(value ? value : ""));
	free(lower);
	return MHD_YES;
}

/* Send an answer; body becomes libmicrohttpd's */
static enum MHD_Result
answer(struct MHD_Connection *connection, int status, char *body, const char *type)
{
	struct MHD_Response *response =
		MHD_create_response_from_buffer(strlen(body), body, MHD_RESPMEM_MUST_FREE);
	enum MHD_Result result;

	MHD_add_response_header(response, "Content-Type", type);
	result = MHD_queue_response(connection, (unsigned) status, response);
	MHD_destroy_response(response);
	return result;
}

/* The handler of a callback: this is what an application has to write */
static enum MHD_Result
take_callback(struct MHD_Connection *connection, const char *gateway, const Request *request)
{
	json_t	   *headers = json_object();
	char	   *header_text;
	char		url[2048];
	Reply		reply = {.status = 503};

	MHD_get_connection_values(connection, MHD_HEADER_KIND, add_header, headers);
	header_text = json_dumps(headers, JSON_COMPACT);
	snprintf(url, sizeof(url), "%s%s%s", options.public_url ? options.public_url : "",
			 PREFIX, gateway);
	callback_apply(gateway, header_text, request->body ? request->body : "", request->length,
				   options.public_url ? url : NULL, &reply);
	count_reply(&reply);
	free(header_text);
	json_decref(headers);
	return answer(connection, reply.status, reply.body,
				  reply.body[0] == '{' ? "application/json" : "text/plain; charset=utf-8");
}

/* Keep a piece of the body */
static void
keep(Request *request, const char *data, size_t size)
{
	char	   *longer;

	if (request->length + size > LARGEST_BODY)
		request->too_large = true;
	if (request->too_large)
		return;
	longer = realloc(request->body, request->length + size);
	if (longer == NULL)
	{
		request->too_large = true;
		return;
	}
	memcpy(longer + request->length, data, size);
	request->body = longer;
	request->length += size;
}

/* libmicrohttpd's access handler: called with the headers, each piece, the end */
static enum MHD_Result
handle(void *unused, struct MHD_Connection *connection, const char *path, const char *method,
	   const char *version, const char *data, size_t *size, void **state)
{
	Request    *request = *state;
	size_t		prefix = strlen(PREFIX);

	(void) unused;
	(void) version;
	if (request == NULL)
	{
		*state = calloc(1, sizeof(Request));
		return *state ? MHD_YES : MHD_NO;
	}
	if (*size > 0)
	{
		keep(request, data, *size);
		*size = 0;
		return MHD_YES;
	}
	if (strcmp(path, "/_receiver/summary") == 0)
		return answer(connection, 200, summary(), "application/json");
	if (strncmp(path, PREFIX, prefix) != 0 || path[prefix] == '\0')
		return answer(connection, 404, strdup(""), "text/plain");
	if (strcmp(method, "POST") != 0)
		return answer(connection, 405, strdup(""), "text/plain");
	if (request->too_large)
		return answer(connection, 413, strdup(""), "text/plain");
	return take_callback(connection, path + prefix, request);
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
	if (request)
		free(request->body);
	free(request);
	*state = NULL;
}

/* Print all options */
static void
usage(void)
{
	puts("payguard-receiver takes gateways' callbacks on 127.0.0.1 and hands them to payguard.\n\n"
		 "Options:\n"
		 "  --port N             port; 0 = any free one (default)\n"
		 "  --port-file FILE     file to write the port to once it listens\n"
		 "  --conninfo TEXT      libpq connection string; what it leaves out comes from PG*\n"
		 "  --connections N      database connections at most (default 4)\n"
		 "  --public-url URL     what gateways call, up to the path; handed on for signatures that cover it\n"
		 "  --die-with-parent    end when the parent process ends\n"
		 "  --help               this text");
}

/* Read the command line */
static void
read_options(int argc, char **argv)
{
	static const struct option known[] = {
		{"port", required_argument, NULL, 'p'},
		{"port-file", required_argument, NULL, 'f'},
		{"conninfo", required_argument, NULL, 'c'},
		{"connections", required_argument, NULL, 'n'},
		{"public-url", required_argument, NULL, 'u'},
		{"die-with-parent", no_argument, NULL, 'd'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0}
	};
	int			found;

	while ((found = getopt_long(argc, argv, "h", known, NULL)) != -1)
	{
		switch (found)
		{
			case 'p':
				options.port = atoi(optarg);
				break;
			case 'f':
				options.port_file = optarg;
				break;
			case 'c':
				options.conninfo = optarg;
				break;
			case 'n':
				options.connections = atoi(optarg);
				break;
			case 'u':
				options.public_url = optarg;
				break;
			case 'd':
				options.die_with_parent = true;
				break;
			case 'h':
				usage();
				exit(0);
			default:
				exit(2);
		}
	}
	if (optind < argc || options.connections < 1 || options.port < 0 || options.port > 65535)
	{
		fprintf(stderr, "payguard-receiver: invalid option; see --help\n");
		exit(2);
	}
}

/* Start the HTTP server: a thread for each connection, since libpq blocks */
static struct MHD_Daemon *
start_server(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET};

	address.sin_port = htons((uint16_t) options.port);
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return MHD_start_daemon(MHD_USE_THREAD_PER_CONNECTION | MHD_USE_POLL_INTERNAL_THREAD | MHD_USE_ITC,
							(uint16_t) options.port, NULL, NULL, handle, NULL,
							MHD_OPTION_SOCK_ADDR, &address,
							MHD_OPTION_LISTENING_ADDRESS_REUSE, 1U,
							MHD_OPTION_CONNECTION_LIMIT, (unsigned) CONNECTION_LIMIT,
							MHD_OPTION_CONNECTION_TIMEOUT, (unsigned) IDLE_SECONDS,
							MHD_OPTION_NOTIFY_COMPLETED, completed, NULL,
							MHD_OPTION_END);
}

/* Write the port to the port file: whole or not at all */
static void
write_port(int port)
{
	char		draft[4096];
	FILE	   *file;

	if (options.port_file == NULL)
		return;
	snprintf(draft, sizeof(draft), "%s.draft", options.port_file);
	file = fopen(draft, "w");
	if (file == NULL || fprintf(file, "%d\n", port) < 0 || fclose(file) != 0 ||
		rename(draft, options.port_file) != 0)
	{
		perror(options.port_file);
		exit(2);
	}
}

/* The end must not hang on a statement that does: a second later it comes anyway */
static void
end_anyway(int unused)
{
	(void) unused;
	_exit(0);
}

/* Start, wait for SIGTERM or SIGINT, end */
int
main(int argc, char **argv)
{
	struct MHD_Daemon *server;
	pid_t		parent = getppid();
	sigset_t	ends;
	int			signal_number;
	int			port;

	read_options(argc, argv);
	if (options.die_with_parent && (prctl(PR_SET_PDEATHSIG, SIGTERM) != 0 || getppid() != parent))
		exit(0);
	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&ends);
	sigaddset(&ends, SIGTERM);
	sigaddset(&ends, SIGINT);
	pthread_sigmask(SIG_BLOCK, &ends, NULL);
	verdicts = json_object();
	statuses = json_object();
	pool_start(options.conninfo, options.connections);
	server = start_server();
	if (server == NULL)
	{
		perror("payguard-receiver: cannot listen");
		exit(2);
	}
	port = MHD_get_daemon_info(server, MHD_DAEMON_INFO_BIND_PORT)->port;
	write_port(port);
	printf("payguard-receiver listens on 127.0.0.1:%d\n", port);
	fflush(stdout);

	sigwait(&ends, &signal_number);
	signal(SIGALRM, end_anyway);
	alarm(1);
	MHD_stop_daemon(server);
	return 0;
}
