/*-------------------------------------------------------------------------
 *
 * compat.h
 *	  What differs between PostgreSQL's major versions, and nothing else.
 *
 * The one place for version tests.  The rest is written for the newest form;
 * older servers are brought up to it here.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYGUARD_COMPAT_H
#define PAYGUARD_COMPAT_H

#include "postgres.h"

#include "utils/acl.h"

/* 16: one function checks the rights on every kind of object. */
#if PG_VERSION_NUM >= 160000
#include "catalog/pg_foreign_server.h"
#define payguard_server_aclcheck(serverid, roleid) \
	object_aclcheck(ForeignServerRelationId, (serverid), (roleid), ACL_USAGE)
#else
#define payguard_server_aclcheck(serverid, roleid) \
	pg_foreign_server_aclcheck((serverid), (roleid), ACL_USAGE)
#endif

/* 17: a WaitEventSet belongs to a resource owner; NULL: to the session. */
#if PG_VERSION_NUM >= 170000
#define payguard_wait_event_set(nevents)	CreateWaitEventSet(NULL, (nevents))
#else
#define payguard_wait_event_set(nevents)	CreateWaitEventSet(TopMemoryContext, (nevents))
#endif

#endif							/* PAYGUARD_COMPAT_H */
