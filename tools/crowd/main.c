/*-------------------------------------------------------------------------
 *
 * main.c
 *	  payguard-crowd: many clients that want to pay the same orders at the
 *	  same moment.
 *
 * Every client has a thread and a connection of its own.  All meet at a
 * barrier before each order, then all claim it at once, each with its own
 * request key.  A client that loses its connection cannot know whether its
 * claim was committed: it connects again and asks again with the same key,
 * as an application should, and `replayed` tells it that it had won.
 *
 * The orders are PREFIX0001 and so on.  At the end a line "name number" goes
 * to the output for each thing that was counted.
 *
 *-------------------------------------------------------------------------
 */
#include <getopt.h>
#include <libpq-fe.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CLIENT_LIMIT 80
#define ORDER_LIMIT 100000
/* how long a client tries to connect, in seconds, and how often a second */
#define PATIENCE 60
#define TRIES_A_SECOND 10

/* What became of a claim; the first ones are claim_order's own words */
typedef enum Verdict
{
	CLAIMED,
	REPLAYED,
	IN_PROGRESS,
	ALREADY_PAID,
	FAILED,
	CLOSED,
	REFUSED,					/* an error */
	VERDICT_COUNT
} Verdict;

static const char *const verdict_words[VERDICT_COUNT] = {
	"claimed", "replayed", "in_progress", "already_paid", "failed", "closed", "errors"
};

typedef struct Client
{
	int			number;
	PGconn	   *connection;
	long		counts[VERDICT_COUNT];
	long		lost;			/* claims that were asked again */
} Client;

static const char *conninfo = "";
static const char *prefix = "ORDER-";
static int	clients = 20;
static int	orders = 500;
static int	pace = 20;			/* milliseconds from order to order */

static pthread_barrier_t barrier;
static int32_t *answer_times;	/* of all claims, in microseconds */

/* Microseconds of a clock that only goes forward */
static int64_t
now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t) t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* Nobody reads the server's notices here */
static void
ignore_notice(void *unused, const char *message)
{
	(void) unused;
	(void) message;
}

/* Connect, and keep trying while the server is away */
static void
connect_client(Client *client)
{
	for (int i = 0; i < PATIENCE * TRIES_A_SECOND; i++)
	{
		if (client->connection)
			PQfinish(client->connection);
		client->connection = PQconnectdb(conninfo);
		if (PQstatus(client->connection) == CONNECTION_OK)
		{
			PQsetNoticeProcessor(client->connection, ignore_notice, NULL);
			return;
		}
		usleep(1000000 / TRIES_A_SECOND);
	}
	fprintf(stderr, "payguard-crowd: %s", PQerrorMessage(client->connection));
	exit(1);
}

/* Count the verdict of an answer, or the error; false: the connection is gone */
static bool
count_answer(Client *client, PGresult *result)
{
	const char *word;

	if (PQresultStatus(result) != PGRES_TUPLES_OK || PQntuples(result) != 1)
	{
		const char *severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);

		/* libpq's own errors have no severity; FATAL is a session's last word */
		if (severity == NULL || strcmp(severity, "FATAL") == 0 || strcmp(severity, "PANIC") == 0)
			return false;
		client->counts[REFUSED]++;
		fprintf(stderr, "payguard-crowd: %s", PQresultErrorMessage(result));
		return true;
	}
	word = PQgetvalue(result, 0, 0);
	for (int i = 0; i < REFUSED; i++)
		if (strcmp(word, verdict_words[i]) == 0)
		{
			client->counts[i]++;
			return true;
		}
	client->counts[REFUSED]++;
	fprintf(stderr, "payguard-crowd: claim_order said \"%s\"\n", word);
	return true;
}

/* Claim one order, until an answer has come */
static void
claim(Client *client, int order)
{
	char		reference[64];
	char		key[64];
	const char *parameters[2] = {reference, key};

	snprintf(reference, sizeof(reference), "%s%04d", prefix, order);
	snprintf(key, sizeof(key), "client-%02d-order-%04d", client->number, order);
	for (;;)
	{
		PGresult   *result = PQexecParams(client->connection,
										  "SELECT verdict FROM payguard.claim_order($1, $2)",
										  2, NULL, parameters, NULL, NULL, 0);
		bool		answered = count_answer(client, result);

		PQclear(result);
		if (answered)
			return;
		client->lost++;
		connect_client(client);
	}
}

/* The life of a client */
static void *
run_client(void *argument)
{
	Client	   *client = argument;
	int64_t		start = 0;

	connect_client(client);
	for (int i = 0; i < orders; i++)
	{
		int64_t		asked;

		/* the first client keeps the pace for all */
		if (client->number == 1)
		{
			int64_t		wait = start + (int64_t) i * pace * 1000 - now();

			if (i == 0)
				start = now();
			else if (wait > 0)
				usleep((useconds_t) wait);
		}
		pthread_barrier_wait(&barrier);
		asked = now();
		claim(client, i + 1);
		answer_times[(size_t) i * clients + client->number - 1] = (int32_t) (now() - asked);
	}
	PQfinish(client->connection);
	return NULL;
}

/* For qsort */
static int
compare_times(const void *a, const void *b)
{
	int32_t		x = *(const int32_t *) a;
	int32_t		y = *(const int32_t *) b;

	return (x > y) - (x < y);
}

/* Print what was counted */
static void
report(const Client *crowd)
{
	size_t		claims = (size_t) orders * clients;
	long		lost = 0;

	for (int i = 0; i < VERDICT_COUNT; i++)
	{
		long		sum = 0;

		for (int j = 0; j < clients; j++)
			sum += crowd[j].counts[i];
		printf("%s %ld\n", verdict_words[i], sum);
	}
	for (int j = 0; j < clients; j++)
		lost += crowd[j].lost;
	qsort(answer_times, claims, sizeof(*answer_times), compare_times);
	printf("lost %ld\n", lost);
	printf("half_answered_within_us %d\n", answer_times[claims / 2]);
	printf("most_answered_within_us %d\n", answer_times[claims * 99 / 100]);
}

/* Read a number within bounds */
static int
read_number(const char *text, int least, int most)
{
	char	   *end;
	long		number = strtol(text, &end, 10);

	if (*text == '\0' || *end != '\0' || number < least || number > most)
	{
		fprintf(stderr, "payguard-crowd: a number from %d to %d is expected, not \"%s\"\n",
				least, most, text);
		exit(2);
	}
	return (int) number;
}

/* Read the command line */
static void
read_options(int argc, char **argv)
{
	static const struct option names[] = {
		{"conninfo", required_argument, NULL, 'd'},
		{"prefix", required_argument, NULL, 'p'},
		{"clients", required_argument, NULL, 'c'},
		{"orders", required_argument, NULL, 'n'},
		{"pace", required_argument, NULL, 'm'},
		{0}
	};
	int			option;

	while ((option = getopt_long(argc, argv, "", names, NULL)) != -1)
		switch (option)
		{
			case 'd':
				conninfo = optarg;
				break;
			case 'p':
				prefix = optarg;
				break;
			case 'c':
				clients = read_number(optarg, 1, CLIENT_LIMIT);
				break;
			case 'n':
				orders = read_number(optarg, 1, ORDER_LIMIT);
				break;
			case 'm':
				pace = read_number(optarg, 0, 60000);
				break;
			default:
				fprintf(stderr, "usage: payguard-crowd [--conninfo TEXT] [--prefix TEXT]"
						" [--clients N] [--orders N] [--pace MS]\n");
				exit(2);
		}
}

int
main(int argc, char **argv)
{
	static Client crowd[CLIENT_LIMIT];
	pthread_t	threads[CLIENT_LIMIT];

	read_options(argc, argv);
	answer_times = calloc((size_t) orders * clients, sizeof(*answer_times));
	if (answer_times == NULL || pthread_barrier_init(&barrier, NULL, (unsigned) clients) != 0)
		abort();
	for (int i = 0; i < clients; i++)
	{
		crowd[i].number = i + 1;
		if (pthread_create(&threads[i], NULL, run_client, &crowd[i]) != 0)
			abort();
	}
	for (int i = 0; i < clients; i++)
		pthread_join(threads[i], NULL);
	report(crowd);
	return 0;
}
