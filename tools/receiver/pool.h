/*-------------------------------------------------------------------------
 *
 * pool.h
 *	  A few connections to the database, lent one request at a time.
 *
 *-------------------------------------------------------------------------
 */
#ifndef POOL_H
#define POOL_H

#include <libpq-fe.h>

extern void pool_start(const char *conninfo, int size);
extern PGconn *pool_borrow(void);
extern void pool_return(PGconn *connection);

#endif							/* POOL_H */
