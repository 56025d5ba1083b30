/*-------------------------------------------------------------------------
 *
 * settings.h
 *	  The settings payguard.*, defined by payguard.c and read everywhere.
 *
 * doc/operations.md explains each to users.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYGUARD_SETTINGS_H
#define PAYGUARD_SETTINGS_H

#include <stdbool.h>

extern char *payguard_databases;	/* comma-separated names */
extern char *payguard_instance; /* label of this copy */
extern bool payguard_dispatch;	/* do workers start calls? */
extern int	payguard_max_in_flight; /* calls of one worker */
extern int	payguard_max_gateways;	/* statistics slots */
extern int	payguard_poll_interval; /* ms */
extern int	payguard_order_lifetime;	/* minutes; 0 = no limit */
extern int	payguard_lease_margin;	/* ms */
extern int	payguard_retention; /* minutes; 0 = for ever */
extern bool payguard_log_calls;
extern char *payguard_crash_at; /* for tests: core/crashpoint.h */

#endif							/* PAYGUARD_SETTINGS_H */
