/*-------------------------------------------------------------------------
 *
 * report.h
 *	  The books as others read them: settlement files, lists, sums.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REPORT_H
#define REPORT_H

#include <jansson.h>

extern char *report_settlement(const char *day);
extern char *report_orders(void);
extern json_t *report_summary(void);
extern json_t *report_order(const char *name);

#endif							/* REPORT_H */
