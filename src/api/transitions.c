/*-------------------------------------------------------------------------
 *
 * transitions.c
 *	  enforce_transitions: a trigger that guards the states of the
 *	  application's own tables.
 *
 *	  CREATE TRIGGER guard BEFORE UPDATE ON booking FOR EACH ROW EXECUTE
 *	  FUNCTION payguard.enforce_transitions('status', '1>2', '2>3', '2>9');
 *
 * Values are compared as text, so the column may have any type.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "commands/trigger.h"
#include "core/errcode.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "utils/rel.h"

PG_FUNCTION_INFO_V1(payguard_enforce_transitions);

/*
 * Refuse a trigger that was made wrongly.
 */
static void
refuse_use(const char *what)
{
	ereport(ERROR,
			(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
			 errmsg("%s", what),
			 errhint("Use CREATE TRIGGER ... BEFORE UPDATE ON table FOR EACH ROW EXECUTE FUNCTION payguard.enforce_transitions('column', 'from>to', ...).")));
}

/*
 * Is the move listed in the trigger's arguments?
 */
static bool
is_listed(const Trigger *trigger, const char *from, const char *to)
{
	size_t		from_length = strlen(from);

	for (int i = 1; i < trigger->tgnargs; i++)
	{
		const char *move = trigger->tgargs[i];

		if (strncmp(move, from, from_length) == 0 && move[from_length] == '>' &&
			strcmp(move + from_length + 1, to) == 0)
			return true;
	}
	return false;
}

/*
 * The trigger.  A change of the column that is not listed is PG003; the first
 * value from null is free, null again is not.
 */
Datum
payguard_enforce_transitions(PG_FUNCTION_ARGS)
{
	TriggerData *data = (TriggerData *) fcinfo->context;
	TupleDesc	desc;
	int			column;
	char	   *from;
	char	   *to;

	if (!CALLED_AS_TRIGGER(fcinfo))
		refuse_use("enforce_transitions was not called as a trigger");
	if (!TRIGGER_FIRED_BY_UPDATE(data->tg_event) || !TRIGGER_FIRED_FOR_ROW(data->tg_event))
		refuse_use("enforce_transitions must be a trigger for each updated row");
	if (data->tg_trigger->tgnargs < 2)
		refuse_use("enforce_transitions needs a column and at least one transition");
	for (int i = 1; i < data->tg_trigger->tgnargs; i++)
		if (strchr(data->tg_trigger->tgargs[i], '>') == NULL)
			refuse_use(psprintf("transition \"%s\" has no \">\"", data->tg_trigger->tgargs[i]));

	desc = RelationGetDescr(data->tg_relation);
	column = SPI_fnumber(desc, data->tg_trigger->tgargs[0]);
	if (column <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("column \"%s\" of table \"%s\" does not exist",
						data->tg_trigger->tgargs[0], RelationGetRelationName(data->tg_relation))));
	from = SPI_getvalue(data->tg_trigtuple, desc, column);
	to = SPI_getvalue(data->tg_newtuple, desc, column);
	if (from == NULL || (to != NULL && (strcmp(from, to) == 0 ||
										is_listed(data->tg_trigger, from, to))))
		return PointerGetDatum(data->tg_newtuple);
	ereport(ERROR,
			(errcode(ERRCODE_PAYGUARD_TRANSITION),
			 errmsg("column \"%s\" of table \"%s\" cannot change from %s to %s",
					data->tg_trigger->tgargs[0], RelationGetRelationName(data->tg_relation),
					from, to ? to : "null"),
			 errhint("The trigger \"%s\" lists what is allowed.", data->tg_trigger->tgname),
			 errtablecol(data->tg_relation, column)));
}
