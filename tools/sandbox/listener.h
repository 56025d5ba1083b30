/*-------------------------------------------------------------------------
 *
 * listener.h
 *	  Accepts connections, refuses some, and goes away for a while.
 *
 *-------------------------------------------------------------------------
 */
#ifndef LISTENER_H
#define LISTENER_H

#include <jansson.h>
#include <microhttpd.h>
#include <stdbool.h>
#include <stdint.h>

extern int	listener_open(int port, int *chosen);
extern void listener_start(int socket, int port, struct MHD_Daemon *daemon);
extern void listener_outage(int64_t wait, bool drop_connections);
extern void listener_opened(int connection);
extern void listener_closed(int connection);
extern void listener_add_counts(json_t *summary);
extern void listener_reset_counts(void);
extern void listener_stop(void);

#endif							/* LISTENER_H */
