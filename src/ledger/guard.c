/*-------------------------------------------------------------------------
 *
 * guard.c
 *	  The triggers that hold the ledger's tables to their rules, whoever the
 *	  writer is.
 *
 * One trigger after UPDATE and DELETE of each row of orders, attempts,
 * payments, refunds, evidence and events refuses what payguard itself never
 * does: moves that core/state.c does not list, end states that no evidence
 * proves, other values in columns that are facts, and the deletion of
 * anything but old, finished orders.  It is for mistakes and for a psql at
 * three in the morning; payguard's own functions pass through it like
 * everybody else.
 *
 * An update that moves no state into an end state runs no statement here.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_enum.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "core/errcode.h"
#include "core/state.h"
#include "fmgr.h"
#include "ledger/guard.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

PG_FUNCTION_INFO_V1(payguard_guard);
PG_FUNCTION_INFO_V1(payguard_guard_truncate);

static const NamedRule order_rules[] = {
	{"id", COLUMN_FIXED}, {"reference", COLUMN_FIXED},
	{"amount", COLUMN_FIXED}, {"currency", COLUMN_FIXED},
	{"customer", COLUMN_FIXED}, {"product", COLUMN_FIXED}, {"once", COLUMN_FIXED},
	{"created_at", COLUMN_FIXED}, {"expires_at", COLUMN_FIXED},
	{"attempt_no", COLUMN_RISING}, {"gateway", COLUMN_GATEWAY},
	{NULL, COLUMN_FREE}
};

static const NamedRule attempt_rules[] = {
	{"order_id", COLUMN_FIXED}, {"no", COLUMN_FIXED},
	{"gateway", COLUMN_FIXED}, {"gateway_reference", COLUMN_FIXED},
	{"idempotency_key", COLUMN_FIXED}, {"request_key", COLUMN_FIXED},
	{"fingerprint", COLUMN_FIXED}, {"mode", COLUMN_FIXED},
	{"call_by", COLUMN_FIXED}, {"created_at", COLUMN_FIXED},
	{NULL, COLUMN_FREE}
};

static const NamedRule payment_rules[] = {
	{"gateway", COLUMN_FIXED}, {"provider_id", COLUMN_FIXED}, {"order_id", COLUMN_FIXED},
	{"amount", COLUMN_PROMOTED}, {"currency", COLUMN_PROMOTED},
	{"counted", COLUMN_PROMOTED}, {"reason", COLUMN_PROMOTED},
	{NULL, COLUMN_FREE}
};

static const NamedRule refund_rules[] = {
	{"id", COLUMN_FIXED}, {"order_id", COLUMN_FIXED},
	{"gateway", COLUMN_FIXED}, {"charge_id", COLUMN_FIXED},
	{"request_key", COLUMN_FIXED}, {"fingerprint", COLUMN_FIXED},
	{"gateway_reference", COLUMN_FIXED}, {"idempotency_key", COLUMN_FIXED},
	{"amount", COLUMN_FIXED}, {"external", COLUMN_FIXED}, {"created_at", COLUMN_FIXED},
	{NULL, COLUMN_FREE}
};

static const NamedRule evidence_rules[] = {
	{"deliveries", COLUMN_RISING}, {"verdict", COLUMN_VERDICT}, {"note", COLUMN_FREE},
	{"order_id", COLUMN_FILLED}, {"attempt_no", COLUMN_FILLED},
	{"refund_id", COLUMN_FILLED}, {"charge_id", COLUMN_FILLED},
	{NULL, COLUMN_FREE}
};

static const NamedRule no_rules[] = {{NULL, COLUMN_FREE}};

static GuardedTable tables[] = {
	{
		.name = "orders",
		.noun = "order",
		.label_column = "reference",
		.state_column = "status",
		.check_move = payguard_guard_order_move,
		.rules = order_rules,
		.hint = "Orders move by payguard.claim_order() and by evidence: payguard.record_attempt(), payguard.apply_callback(), payguard.close_order() or payguard.resolve_order()."
	},
	{
		.name = "attempts",
		.noun = "attempt",
		.label_column = "gateway_reference",
		.state_column = "state",
		.check_move = payguard_guard_attempt_move,
		.rules = attempt_rules,
		.hint = "Attempts move by evidence: payguard.record_attempt(), payguard.apply_callback(), payguard.close_attempt() or payguard.resolve_order()."
	},
	{
		.name = "payments",
		.noun = "payment",
		.label_column = "provider_id",
		.state_column = "state",
		.check_move = payguard_guard_payment_move,
		.rules = payment_rules,
		.hint = "Payments are booked by evidence: payguard.record_attempt(), payguard.apply_callback() or payguard.resolve_order()."
	},
	{
		.name = "refunds",
		.noun = "refund",
		.label_column = "id",
		.state_column = "state",
		.check_move = payguard_guard_refund_move,
		.rules = refund_rules,
		.hint = "Refunds are made by payguard.request_refund() and move by evidence: payguard.record_attempt(), payguard.apply_callback() or payguard.resolve_refund()."
	},
	{
		.name = "evidence",
		.noun = "evidence",
		.label_column = "id",
		.default_rule = COLUMN_FIXED,
		.rules = evidence_rules,
		.hint = "Facts stay as they were learned.  To judge one anew use payguard.resolve_evidence()."
	},
	{
		.name = "events",
		.noun = "event",
		.label_column = "aggregateid",
		.label_column2 = "type",
		.default_rule = COLUMN_FIXED,
		.rules = no_rules,
		.hint = "Events are written once, for followers to read."
	}
};

/*
 * Forget what is known of a table whose definition changed.
 */
static void
forget_table(Datum arg, Oid relid)
{
	int			i;

	for (i = 0; i < (int) lengthof(tables); i++)
		if (!OidIsValid(relid) || tables[i].relid == relid)
			tables[i].relid = InvalidOid;
}

/*
 * Number of a column that must be there.
 */
AttrNumber
payguard_guard_column(const RowChange *row, const char *column)
{
	AttrNumber	attno = get_attnum(RelationGetRelid(row->relation), column);

	if (attno == InvalidAttrNumber)
		elog(ERROR, "column \"%s\" of table \"%s\" is missing", column,
			 RelationGetRelationName(row->relation));
	return attno;
}

/*
 * Look up the columns of a table that the rules name.
 */
static void
learn_table(const RowChange *row)
{
	GuardedTable *table = row->table;
	int			natts = RelationGetNumberOfAttributes(row->relation);
	const NamedRule *named;
	int			i;

	if (table->natts < natts)
	{
		ColumnRule *rules = MemoryContextAlloc(TopMemoryContext, natts * sizeof(ColumnRule));

		if (table->rule_of)
			pfree(table->rule_of);
		table->rule_of = rules;
	}
	table->natts = natts;
	for (i = 0; i < natts; i++)
		table->rule_of[i] = table->default_rule;
	for (named = table->rules; named->column; named++)
		table->rule_of[payguard_guard_column(row, named->column) - 1] = named->rule;
	table->state_attno = InvalidAttrNumber;
	table->decided_attno = InvalidAttrNumber;
	if (table->state_column)
		table->state_attno = payguard_guard_column(row, table->state_column);
	if (table->check_move && table->check_move != payguard_guard_payment_move)
		table->decided_attno = payguard_guard_column(row, "decided_by");
	table->relid = RelationGetRelid(row->relation);
}

/*
 * Find the table of the trigger's relation among those under guard, and check
 * that the trigger was called as it is meant to be.
 */
static GuardedTable *
find_table(const TriggerData *trigger)
{
	const char *name = RelationGetRelationName(trigger->tg_relation);
	static bool registered = false;
	int			i;

	if (!registered)
	{
		CacheRegisterRelcacheCallback(forget_table, (Datum) 0);
		registered = true;
	}
	if (TRIGGER_FIRED_AFTER(trigger->tg_event) && TRIGGER_FIRED_FOR_ROW(trigger->tg_event) &&
		(TRIGGER_FIRED_BY_UPDATE(trigger->tg_event) || TRIGGER_FIRED_BY_DELETE(trigger->tg_event)))
		for (i = 0; i < (int) lengthof(tables); i++)
			if (strcmp(tables[i].name, name) == 0)
				return &tables[i];
	ereport(ERROR,
			(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
			 errmsg("payguard.guard() was not called by one of payguard's own triggers"),
			 errhint("It is for payguard's own tables, after UPDATE or DELETE, for each row.")));
	return NULL;				/* keep compiler quiet */
}

/*
 * A value as text; NULL for null.
 */
char *
payguard_guard_text(const RowChange *row, TupleTableSlot *slot, AttrNumber attno)
{
	Form_pg_attribute attribute = TupleDescAttr(RelationGetDescr(row->relation), attno - 1);
	Oid			output;
	bool		is_varlena;

	if (slot->tts_isnull[attno - 1])
		return NULL;
	getTypeOutputInfo(attribute->atttypid, &output, &is_varlena);
	return OidOutputFunctionCall(output, slot->tts_values[attno - 1]);
}

/*
 * What messages call the row, by its old values.
 */
char *
payguard_guard_label(const RowChange *row)
{
	char	   *label = payguard_guard_text(row, row->old, payguard_guard_column(row, row->table->label_column));

	if (row->table->label_column2)
		label = psprintf("%s, %s", label,
						 payguard_guard_text(row, row->old, payguard_guard_column(row, row->table->label_column2)));
	return label ? label : pstrdup("null");
}

/*
 * Do both rows hold the same in this column?
 */
bool
payguard_guard_unchanged(const RowChange *row, AttrNumber attno)
{
	Form_pg_attribute attribute = TupleDescAttr(RelationGetDescr(row->relation), attno - 1);
	Datum		old = row->old->tts_values[attno - 1];
	Datum		new = row->new->tts_values[attno - 1];
	bool		old_null = row->old->tts_isnull[attno - 1];
	bool		new_null = row->new->tts_isnull[attno - 1];

	if (old_null || new_null)
		return old_null && new_null;

	/* the same bytes, be they compressed or a pointer to the same toast */
	if (datumIsEqual(old, new, attribute->attbyval, attribute->attlen))
		return true;
	return datum_image_eq(old, new, attribute->attbyval, attribute->attlen);
}

/*
 * Label of an enum value, for the states.
 */
char *
payguard_guard_state_word(Datum value)
{
	HeapTuple	tuple = SearchSysCache1(ENUMOID, value);
	char	   *label;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for enum value %u", DatumGetObjectId(value));
	label = pstrdup(NameStr(((Form_pg_enum) GETSTRUCT(tuple))->enumlabel));
	ReleaseSysCache(tuple);
	return label;
}

/*
 * Is this the change of a mismatch into the counted payment?
 */
static bool
is_promotion(const RowChange *row)
{
	char	   *reason = payguard_guard_text(row, row->old, payguard_guard_column(row, "reason"));
	int			counted = payguard_guard_column(row, "counted") - 1;

	return reason != NULL && strcmp(reason, "mismatch") == 0 &&
		!DatumGetBool(row->old->tts_values[counted]) &&
		DatumGetBool(row->new->tts_values[counted]);
}

/*
 * May an order's gateway change?  A claim settles on one, and after a failure
 * on another; a fact may tell that of an order that had none.
 */
static bool
is_being_claimed(const RowChange *row)
{
	char	   *from;
	char	   *to;

	payguard_guard_states(row, &from, &to);
	return strcmp(from, payguard_order_word(ORDER_CREATED)) == 0 ||
		(strcmp(from, payguard_order_word(ORDER_FAILED)) == 0 &&
		 strcmp(to, payguard_order_word(ORDER_PROCESSING)) == 0);
}

/*
 * Was the fact not judged for good yet?  What a fact led to is history, which
 * nobody rewrites.
 */
static bool
is_unjudged(const RowChange *row, int index)
{
	char	   *from = payguard_guard_text(row, row->old, index + 1);

	return strcmp(from, payguard_verdict_word(VERDICT_PARKED)) == 0 ||
		strcmp(from, payguard_verdict_word(VERDICT_UNREADABLE)) == 0;
}

/*
 * May a column change as it did?
 */
static bool
column_may_change(const RowChange *row, AttrNumber attno)
{
	TupleTableSlot *old = row->old;
	TupleTableSlot *new = row->new;
	int			index = attno - 1;

	switch (row->table->rule_of[index])
	{
		case COLUMN_FREE:
			return true;
		case COLUMN_FIXED:
			return false;
		case COLUMN_FILLED:
			return old->tts_isnull[index];
		case COLUMN_RISING:
			/* both integer and not null by the table's definition */
			return DatumGetInt32(new->tts_values[index]) > DatumGetInt32(old->tts_values[index]);
		case COLUMN_PROMOTED:
			return is_promotion(row);
		case COLUMN_VERDICT:
			return is_unjudged(row, index);
		case COLUMN_GATEWAY:
			return old->tts_isnull[index] || is_being_claimed(row);
	}
	return false;				/* keep compiler quiet */
}

/*
 * Refuse a change of a column.  Long values are facts as well, but stay out
 * of the message.
 */
static void
refuse_column(const RowChange *row, AttrNumber attno)
{
	Form_pg_attribute attribute = TupleDescAttr(RelationGetDescr(row->relation), attno - 1);
	bool		is_short = attribute->atttypid != JSONBOID && attribute->atttypid != BYTEAOID;
	char	   *from = is_short ? payguard_guard_text(row, row->old, attno) : NULL;
	char	   *to = is_short ? payguard_guard_text(row, row->new, attno) : NULL;

	ereport(ERROR,
			(errcode(ERRCODE_PAYGUARD_TRANSITION),
			 is_short
			 ? errmsg("column \"%s\" of %s \"%s\" in table \"%s\" cannot change from %s to %s",
					  NameStr(attribute->attname), row->table->noun, payguard_guard_label(row),
					  row->table->name, from ? from : "null", to ? to : "null")
			 : errmsg("column \"%s\" of %s \"%s\" in table \"%s\" cannot change",
					  NameStr(attribute->attname), row->table->noun, payguard_guard_label(row),
					  row->table->name),
			 errhint("%s", row->table->hint),
			 errtablecol(row->relation, attno)));
}

/*
 * Check an UPDATE of a row: first its columns, then its state.
 */
static void
check_update(const RowChange *row)
{
	TupleDesc	desc = RelationGetDescr(row->relation);
	AttrNumber	attno;

	slot_getallattrs(row->new);
	for (attno = 1; attno <= desc->natts; attno++)
		if (row->table->rule_of[attno - 1] != COLUMN_FREE &&
			!TupleDescAttr(desc, attno - 1)->attisdropped &&
			!payguard_guard_unchanged(row, attno) && !column_may_change(row, attno))
			refuse_column(row, attno);
	if (row->table->check_move)
		row->table->check_move(row);
}

/*
 * The trigger after UPDATE and DELETE of each row.
 */
Datum
payguard_guard(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;
	RowChange	row;

	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("payguard.guard() was not called as a trigger"),
				 errhint("It guards payguard's own tables and is of no use elsewhere.")));
	row.table = find_table(trigger);
	row.relation = trigger->tg_relation;
	row.old = trigger->tg_trigslot;
	row.new = TRIGGER_FIRED_BY_UPDATE(trigger->tg_event) ? trigger->tg_newslot : NULL;
	if (row.table->relid != RelationGetRelid(row.relation))
		learn_table(&row);
	slot_getallattrs(row.old);
	if (row.new)
		check_update(&row);
	else
		payguard_guard_delete(&row);
	return PointerGetDatum(NULL);
}

/*
 * The trigger before TRUNCATE: never.
 */
Datum
payguard_guard_truncate(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;

	if (!CALLED_AS_TRIGGER(fcinfo) || !TRIGGER_FIRED_BY_TRUNCATE(trigger->tg_event))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("payguard.guard_truncate() was not called as a trigger before TRUNCATE"),
				 errhint("It guards payguard's own tables and is of no use elsewhere.")));
	ereport(ERROR,
			(errcode(ERRCODE_PAYGUARD_TRANSITION),
			 errmsg("table \"%s\" cannot be truncated",
					RelationGetRelationName(trigger->tg_relation)),
			 errdetail("It holds records of money."),
			 errhint("Old, finished orders may be deleted, see payguard.retention."),
			 errtable(trigger->tg_relation)));
	return PointerGetDatum(NULL);	/* keep compiler quiet */
}
