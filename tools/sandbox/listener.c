/*-------------------------------------------------------------------------
 *
 * listener.c
 *	  Accepts connections, refuses some, and goes away for a while.
 *
 * libmicrohttpd could listen by itself, but then the port could not be
 * closed and opened again, nor a connection be closed unread.
 *
 *-------------------------------------------------------------------------
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clock.h"
#include "faults.h"
#include "listener.h"

#define LARGEST_SOCKET 65536

static pthread_t thread;
static int	listening = -1;		/* of the thread alone */
static int	own_port;
static struct MHD_Daemon *server;
static int	wake = -1;
static atomic_bool stopping;
static _Atomic int64_t away_until;	/* ticks */

static _Atomic int64_t accepted;
static _Atomic int64_t refused;

/* which descriptors are connections now; guarded by lock */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool is_connection[LARGEST_SOCKET];

/* Listen on a port of the loopback address; the descriptor, or -1 and errno */
int
listener_open(int port, int *chosen)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t) port)};
	socklen_t	length = sizeof(address);
	int			on = 1;
	int			fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(fd, (struct sockaddr *) &address, sizeof(address)) != 0 ||
		listen(fd, 1024) != 0 ||
		getsockname(fd, (struct sockaddr *) &address, &length) != 0)
	{
		int			error = errno;

		close(fd);
		errno = error;
		return -1;
	}
	*chosen = ntohs(address.sin_port);
	return fd;
}

/* Accept what waits; hand it to the server, or close it unread */
static void
accept_waiting(void)
{
	struct sockaddr_storage address;
	int			on = 1;

	for (;;)
	{
		socklen_t	length = sizeof(address);
		int			fd = accept4(listening, (struct sockaddr *) &address, &length,
								 SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd < 0)
			return;
		accepted++;
		if (faults_refuse_connection((uint64_t) accepted))
		{
			refused++;
			close(fd);
			continue;
		}
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
		if (MHD_add_connection(server, fd, (struct sockaddr *) &address, length) != MHD_YES)
			refused++;
	}
}

/* Close the port while away, open it when that is over; the wait until then */
static int
come_and_go(void)
{
	int64_t		left = away_until - clock_ticks();

	if (left > 0 && listening >= 0)
	{
		close(listening);
		listening = -1;
	}
	if (left <= 0 && listening < 0)
		listening = listener_open(own_port, &own_port);
	return listening >= 0 ? -1 : left > 0 ? (int) left : 20;
}

/* The thread */
static void *
listener_main(void *unused)
{
	(void) unused;
	while (!stopping)
	{
		int			wait = come_and_go();
		struct pollfd fds[2] = {
			{.fd = wake, .events = POLLIN},
			{.fd = listening, .events = POLLIN},
		};
		uint64_t	ignored;

		if (poll(fds, 2, wait) <= 0)
			continue;
		if (fds[0].revents && read(wake, &ignored, sizeof(ignored)) < 0 && errno != EAGAIN)
			perror("payguard-sandbox");
		if (fds[1].revents)
			accept_waiting();
	}
	if (listening >= 0)
		close(listening);
	return NULL;
}

/* Wake the thread */
static void
wake_up(void)
{
	uint64_t	one = 1;

	if (write(wake, &one, sizeof(one)) < 0)
		perror("payguard-sandbox");
}

/* Start to accept on a socket of listener_open() for a server */
void
listener_start(int socket, int port, struct MHD_Daemon *daemon)
{
	listening = socket;
	own_port = port;
	server = daemon;
	wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	pthread_create(&thread, NULL, listener_main, NULL);
}

/* Close the port for a while; also all connections, if drop_connections */
void
listener_outage(int64_t wait, bool drop_connections)
{
	away_until = clock_ticks() + wait;
	wake_up();
	if (!drop_connections)
		return;
	pthread_mutex_lock(&lock);
	for (int fd = 0; fd < LARGEST_SOCKET; fd++)
		if (is_connection[fd])
			shutdown(fd, SHUT_RDWR);
	pthread_mutex_unlock(&lock);
}

/* A descriptor is a connection of the main port */
void
listener_opened(int connection)
{
	pthread_mutex_lock(&lock);
	if (connection < LARGEST_SOCKET)
		is_connection[connection] = true;
	pthread_mutex_unlock(&lock);
}

/* A descriptor is about to be closed */
void
listener_closed(int connection)
{
	pthread_mutex_lock(&lock);
	if (connection < LARGEST_SOCKET)
		is_connection[connection] = false;
	pthread_mutex_unlock(&lock);
}

/* Add the counts to the summary */
void
listener_add_counts(json_t *summary)
{
	json_object_set_new(summary, "connections", json_integer(accepted));
	json_object_set_new(summary, "refused", json_integer(refused));
}

/* Start the counts anew; a run that is repeated draws the same again */
void
listener_reset_counts(void)
{
	accepted = refused = 0;
}

/* End the thread */
void
listener_stop(void)
{
	stopping = true;
	wake_up();
	pthread_join(thread, NULL);
}
