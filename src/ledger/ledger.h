/*-------------------------------------------------------------------------
 *
 * ledger.h
 *	  The ledger's rooms: orders, attempts, the one door, the outbox.
 *
 * The ledger knows nothing of gateways: what it must know of one comes as
 * GatewayTraits by a hook.  Every function here runs between
 * payguard_ledger_enter() and payguard_ledger_leave(), which connect SPI and
 * switch to the tables' owner.  Lock order everywhere: order, attempt,
 * refund, evidence, outbox.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYGUARD_LEDGER_H
#define PAYGUARD_LEDGER_H

#include "postgres.h"

#include "core/evidence.h"
#include "core/state.h"
#include "executor/spi.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"

/* --- session.c: SPI, the owner's rights, kept plans ------------------------ */

typedef struct LedgerScope
{
	Oid			save_userid;
	int			save_sec_context;
	int			guc_nest_level; /* 0: the settings were right already */
} LedgerScope;

/* Connect SPI and act as the tables' owner, under a search_path of our own,
 * until leave.  An error in between is undone by the (sub)transaction's abort. */
extern void payguard_ledger_enter(LedgerScope *scope);
extern void payguard_ledger_leave(const LedgerScope *scope);

/* Within a scope: plan by indexes (as scopes begin), or as the planner likes. */
extern void payguard_ledger_plan_by_index(LedgerScope *scope, bool by_index);

/* Is the extension there in this database?  Needs a transaction, no SPI. */
extern bool payguard_ledger_exists(void);

/* CommitTransactionCommand() with the rights of the tables' owner. */
extern void payguard_ledger_commit(void);

/*
 * A statement that is planned once in a backend and kept.  Fixed text, names
 * and operators qualified; parameters by type.
 */
#define PLAN_MAX_ARGS	28
typedef struct LedgerPlan
{
	const char *sql;
	int			nargs;
	Oid			argtypes[PLAN_MAX_ARGS];
	SPIPlanPtr	plan;
} LedgerPlan;

/* Run it; returns SPI_processed, rows in SPI_tuptable.  nulls as in SPI. */
extern uint64 payguard_plan_run(LedgerPlan *plan, Datum *values, const char *nulls);
/* The same for a read that must see what others committed until now, whatever
 * the isolation level. */
extern uint64 payguard_plan_read_latest(LedgerPlan *plan, Datum *values, const char *nulls);

/* Columns of the current result by number (from 0); text columns come as
 * palloc'd C strings, NULL for null. */
extern char *payguard_row_text(uint64 row, int column);
extern int64 payguard_row_int64(uint64 row, int column); /* 0 for null */
extern int32 payguard_row_int32(uint64 row, int column); /* 0 for null */
extern bool payguard_row_bool(uint64 row, int column); /* false for null */
extern TimestampTz payguard_row_time(uint64 row, int column, bool *isnull);
extern Datum payguard_row_datum(uint64 row, int column, bool *isnull);

/* Parameters: text or null. */
extern Datum payguard_text_param(const char *text, char *null);

/* Words of SQL enum columns to C enums; XX000 for a word that C does not know. */
extern OrderStatus payguard_order_status_of(const char *word);
extern AttemptState payguard_attempt_state_of(const char *word);

/* --- instance.c: which copy this is ----------------------------------------- */

extern int64 payguard_origin(void);
extern bool payguard_instance_adopted(void);
/* PG009 unless adopted. */
extern void payguard_instance_require(void);

/* --- outbox.c: alone reads and writes the outbox ------------------------------ */

/* Set by worker/wake.c: an item due at `due` will be committed by this transaction. */
extern void (*payguard_outbox_wake_hook) (TimestampTz due);

typedef enum OutboxOp
{
	OUTBOX_CHARGE,
	OUTBOX_QUERY,
	OUTBOX_REFUND,
	OUTBOX_REFUND_QUERY,
	OUTBOX_CLOSE,
	OUTBOX_SETTLEMENT,
	OUTBOX_DELIVER
} OutboxOp;

/* One leased gateway call, with all that is needed to render and to judge it. */
typedef struct OutboxItem
{
	int64		id;
	int32		epoch;			/* of this lease */
	OutboxOp	op;
	char	   *gateway;
	int64		order_id;
	int32		attempt_no;
	int64		refund_id;		/* 0: none */
	int32		tries;			/* this one included */
	bytea	   *request;		/* frozen bytes of a money call, or NULL */
	char	   *order_reference;
	char	   *gateway_reference;
	char	   *idempotency_key;
	char	   *provider_id;	/* of the charge (or refund); NULL: not known yet */
	char	   *charge_reference;	/* refunds: of the charge given back ... */
	char	   *charge_id;		/* ... and its id */
	Money		money;			/* the order's (or refund's) amount */
} OutboxItem;

/* Why an item was not handed out */
typedef struct OutboxTake
{
	/* in */
	int			limit;			/* items at most */
	List	   *closed_gateways;	/* of char *: no free slot, breaker open, unusable */
	List	   *in_flight;		/* of int64 *: ids that this worker is calling */
	TimestampTz since;			/* low-water mark; DT_NOBEGIN = full sweep */
	int64		lease_margin;	/* microseconds */
	int64		(*total_timeout) (const char *gateway); /* microseconds */

	/* out */
	List	   *items;			/* of OutboxItem *, in the caller's context */
	TimestampTz next_due;		/* of what is not due yet; DT_NOEND = nothing */
	bool		more;			/* due items were left (limit or skipped locks) */
	TimestampTz low_water;		/* nothing due is older than this */
} OutboxTake;

/*
 * T1.  In the caller's transaction (read committed): take due items of our
 * own origin, orders locked in sorted order with skip-locked, mark charges
 * `sending` where payguard_may_send() says so (others are dropped or turned
 * into queries here, by evidence where they end an attempt), lease all, and
 * ask for a flush of the commit.  Lapsed leases of charges become `unknown`
 * by the door; those of queries are simply taken again.
 */
extern void payguard_outbox_take(OutboxTake *take);

/* At the worker's start: every `sending` item of our origin was orphaned by
 * a predecessor; make their leases lapse now. Returns how many. */
extern int64 payguard_outbox_orphan(void);

/*
 * T2.  Book the answer of an item through the one door.  The item is deleted,
 * kept or put off as the decision says, if its epoch is still ours; an answer
 * under an older epoch is judged all the same.  The caller has locked the
 * order by payguard_outbox_lock_orders().
 */
extern void payguard_outbox_answer(const OutboxItem *item, Evidence *evidence);

/* Lock these orders in sorted order, skipping locked ones; returns the ids
 * locked (List of int64 *). */
extern List *payguard_outbox_lock_orders(List *order_ids);

/* T2 of an item whose booking failed alone: its evidence is stored `parked`
 * with the SQLSTATE and a review, and the item is put off. */
extern void payguard_outbox_park(const OutboxItem *item, Evidence *evidence, int sqlstate);

/* deliver.c: plan the delivery of events that this endpoint has not had, up to
 * `limit` due ones; true when there may be more. */
extern bool payguard_deliver_plan(const char *endpoint, int limit);

/* A call to plan: one row for each (op, attempt). */
typedef struct OutboxPlan
{
	OutboxOp	op;
	const char *gateway;
	int64		order_id;
	int32		attempt_no;
	int64		refund_id;		/* 0: none */
	TimestampTz next_run_at;
	const bytea *request;		/* frozen bytes, or NULL */
	int64		own_id;			/* the item whose answer plans this; 0 none ... */
	int32		own_epoch;		/* ... under this lease */
} OutboxPlan;

/*
 * Plan a call, or bring a planned one forward.  A call that is under way is
 * left alone, unless it is the own item, which is put off to the new time.
 */
extern void payguard_outbox_plan(const OutboxPlan *plan);
/* Send the frozen bytes of a charge or refund again at that time. */
extern void payguard_outbox_resend(const OutboxPlan *plan);
/* Drop what is planned for an attempt. */
extern void payguard_outbox_drop(int64 order_id, int32 attempt_no);
extern void payguard_outbox_drop_refund(int64 order_id, int64 refund_id);
extern int32 payguard_outbox_refund_tries(int64 order_id, int64 refund_id);
/* Is another question about the order's charges planned than this item's own? */
extern bool payguard_outbox_asks(int64 order_id, int64 own_id);
/* Steps of the schedule that were used for this attempt. */
extern int32 payguard_outbox_tries(int64 order_id, int32 attempt_no);
/* Call no gateway of that name, and call it again; true when that is news. */
extern bool payguard_outbox_pause(const char *gateway);
extern bool payguard_outbox_resume(const char *gateway);

/* One planned call, for people to read. */
typedef struct PlannedCall
{
	OutboxOp	op;
	bool		is_under_way;
	bool		is_foreign;		/* of another copy */
	int32		attempt_no;
	int64		refund_id;
	TimestampTz next_run_at;
	int32		tries;
} PlannedCall;

/* What is planned for an order, as List of PlannedCall *. */
extern List *payguard_outbox_planned(int64 order_id);
extern const char *payguard_outbox_op_word(OutboxOp op);
/* After adopt(): all waiting items belong to this origin; returns how many. */
extern int64 payguard_outbox_restamp(int64 origin);

/* --- evidence.c: the one door ---------------------------------------------------- */

/* Set by payguard.c to gateway/'s payguard_gateway_traits(). */
extern void (*payguard_traits_hook) (const char *gateway, GatewayTraits *traits);

typedef struct EvidenceOutcome
{
	Verdict		verdict;
	int64		evidence_id;	/* of the stored (or repeated) fact */
	int64		order_id;		/* 0: no order was found */
	char	   *reference;		/* the order's, or NULL */
	OrderStatus status;			/* after the fact; valid when order_id */
	int32		attempt_no;		/* 0: none */
	bool		repeated;		/* the inbox held it already */
	bool		outbox_dropped; /* nothing is planned for the attempt any more */
} EvidenceOutcome;

/*
 * Judge and store one fact; move attempt, payments, order; write events,
 * reviews and outbox rows; then try the order's parked facts again.  Never
 * refuses a fact for a business reason.  Raises 40001 unchanged.
 */
extern void payguard_apply_evidence(const Evidence *evidence, EvidenceOutcome *outcome);

/*
 * Try parked facts again: those of one order, or (0) up to `limit` whose order
 * was not known.  Returns how many are parked no more.
 */
extern int	payguard_retry_parked(int64 order_id, int limit);

/* Hand parked facts that name this new order's reference to the order; true
 * when there were any, which may have moved it. */
extern bool payguard_match_parked(int64 order_id, const char *reference, const char *retry_suffix);

/* expiry.c: end an order whose time is over, and those that nobody claimed. */
extern void payguard_expire_order(int64 order_id, const char *gateway, EvidenceOutcome *outcome);
extern bool payguard_expire_orders(TimestampTz *since, int limit);

/* Store a fact as `parked` without judging it, with the SQLSTATE that its
 * judging met, and put its order (if known) on the review list. */
extern void payguard_park_evidence(const Evidence *evidence, int sqlstate,
								   EvidenceOutcome *outcome);

/* --- trial.c: judging that may fail without taking anything with it ------------- */

extern int	payguard_ledger_try(void (*work) (void *arg), void *arg, const char *what);
extern bool payguard_book_fact(const Evidence *evidence, EvidenceOutcome *outcome);

#endif							/* PAYGUARD_LEDGER_H */
