/*-------------------------------------------------------------------------
 *
 * http.h
 *	  The HTTP server: bytes to calls, answers to bytes.
 *
 *-------------------------------------------------------------------------
 */
#ifndef HTTP_H
#define HTTP_H

#include <jansson.h>
#include <microhttpd.h>

extern struct MHD_Daemon *http_start(unsigned threads);
extern struct MHD_Daemon *http_start_control(int socket);
extern void http_add_counts(json_t *summary);
extern void http_reset_counts(void);

#endif							/* HTTP_H */
