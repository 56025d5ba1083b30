/*-------------------------------------------------------------------------
 *
 * guard.h
 *	  What the guard's files share: a row that changed, and its table.
 *
 * guard.c has the triggers and the columns' rules, guard_move.c the states'
 * and guard_delete.c those of deletion.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYGUARD_LEDGER_GUARD_H
#define PAYGUARD_LEDGER_GUARD_H

#include "postgres.h"

#include "access/attnum.h"
#include "executor/tuptable.h"
#include "utils/rel.h"

/* What may become of a column. */
typedef enum ColumnRule
{
	COLUMN_FREE,
	COLUMN_FIXED,				/* never changes */
	COLUMN_FILLED,				/* once, from null to a value */
	COLUMN_RISING,				/* an integer that never falls */
	COLUMN_PROMOTED,			/* only while a mismatch becomes counted */
	COLUMN_GATEWAY,				/* of an order: from null, or by a claim */
	COLUMN_VERDICT				/* of evidence: once, from a verdict that settles nothing */
} ColumnRule;

typedef struct NamedRule
{
	const char *column;
	ColumnRule	rule;
} NamedRule;

/* A row of one of the tables before and after; new is NULL when deleted. */
typedef struct RowChange
{
	struct GuardedTable *table;
	Relation	relation;
	TupleTableSlot *old;
	TupleTableSlot *new;
} RowChange;

/* A table under guard, and what is known of it in this backend. */
typedef struct GuardedTable
{
	const char *name;
	const char *noun;			/* what messages call a row */
	const char *label_column;	/* what names a row in messages ... */
	const char *label_column2;	/* ... with this, or NULL */
	const char *state_column;	/* NULL: has none */
	void		(*check_move) (const RowChange *row);
	ColumnRule	default_rule;
	const NamedRule *rules;		/* exceptions, ended by a NULL */
	const char *hint;

	/* filled at first use, dropped by invalidation */
	Oid			relid;
	int			natts;
	ColumnRule *rule_of;		/* by attribute number - 1 */
	AttrNumber	state_attno;
	AttrNumber	decided_attno;
} GuardedTable;

/* --- guard.c ------------------------------------------------------------- */

extern AttrNumber payguard_guard_column(const RowChange *row, const char *column);
extern bool payguard_guard_unchanged(const RowChange *row, AttrNumber attno);
extern char *payguard_guard_text(const RowChange *row, TupleTableSlot *slot, AttrNumber attno);
extern char *payguard_guard_label(const RowChange *row);
extern char *payguard_guard_state_word(Datum value);

/* --- guard_move.c: PG003 for what the state machines do not allow ---------- */

extern void payguard_guard_states(const RowChange *row, char **from, char **to);
extern void payguard_guard_order_move(const RowChange *row);
extern void payguard_guard_attempt_move(const RowChange *row);
extern void payguard_guard_payment_move(const RowChange *row);
extern void payguard_guard_refund_move(const RowChange *row);

/* --- guard_delete.c: PG003 unless the row may go ---------------------------- */

extern void payguard_guard_delete(const RowChange *row);

#endif							/* PAYGUARD_LEDGER_GUARD_H */
