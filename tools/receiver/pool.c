/*-------------------------------------------------------------------------
 *
 * pool.c
 *	  A few connections to the database, lent one request at a time.
 *
 * A connection that broke is closed when it comes back, and opened again
 * for the next request that wants one.
 *
 *-------------------------------------------------------------------------
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "pool.h"

/* how long a request waits for a free connection, in seconds */
#define PATIENCE 5

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t returned = PTHREAD_COND_INITIALIZER;
static const char *target;
static PGconn **idle;			/* open connections that nobody uses */
static int	idle_count;
static int	free_count;			/* how many may be borrowed, open or not */

/* Set up a pool; nothing is opened yet */
void
pool_start(const char *conninfo, int size)
{
	target = conninfo;
	free_count = size;
	idle = calloc((size_t) size, sizeof(PGconn *));
	if (idle == NULL)
		abort();
}

/* Open a connection; what the connection string or PG* say comes first */
static PGconn *
open_connection(void)
{
	const char *const names[] = {"connect_timeout", "client_encoding", "fallback_application_name",
	"dbname", NULL};
	const char *const values[] = {"3", "UTF8", "payguard-receiver", target, NULL};
	PGconn	   *connection = PQconnectdbParams(names, values, 1);

	if (PQstatus(connection) == CONNECTION_OK)
		return connection;
	fprintf(stderr, "payguard-receiver: %s", PQerrorMessage(connection));
	PQfinish(connection);
	return NULL;
}

/* Give a place back, with its connection if that is still good */
void
pool_return(PGconn *connection)
{
	if (connection && PQstatus(connection) != CONNECTION_OK)
	{
		PQfinish(connection);
		connection = NULL;
	}
	pthread_mutex_lock(&lock);
	if (connection)
		idle[idle_count++] = connection;
	free_count++;
	pthread_cond_signal(&returned);
	pthread_mutex_unlock(&lock);
}

/* Borrow a connection; NULL if there is none to be had */
PGconn *
pool_borrow(void)
{
	struct timespec until;
	PGconn	   *connection = NULL;
	int			waited = 0;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += PATIENCE;
	pthread_mutex_lock(&lock);
	while (free_count == 0 && waited == 0)
		waited = pthread_cond_timedwait(&returned, &lock, &until);
	if (free_count == 0)
	{
		pthread_mutex_unlock(&lock);
		return NULL;
	}
	free_count--;
	if (idle_count > 0)
		connection = idle[--idle_count];
	pthread_mutex_unlock(&lock);
	if (connection == NULL)
		connection = open_connection();
	if (connection == NULL)
		pool_return(NULL);
	return connection;
}
