/*-------------------------------------------------------------------------
 *
 * instance.c
 *	  Which copy of the ledger this is, and whether it may pay.
 *
 * A dump, a base backup or a subscriber carries the ledger's rows to a place
 * where nobody meant to pay.  Every outbox row therefore carries its origin,
 * a hash of what a copy does not share with the original, and the table
 * instances lists the origins that were allowed to pay.  A new ledger adopts
 * itself with its first order, any other one by payguard.adopt().
 *
 * All functions run inside a ledger scope.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "common/hashfn.h"
#include "core/errcode.h"
#include "core/settings.h"
#include "ledger/instance.h"
#include "ledger/ledger.h"
#include "miscadmin.h"
#include "utils/builtins.h"

static LedgerPlan read_adopted = {
	.sql = "SELECT 1 FROM payguard.instances WHERE origin = $1",
	.nargs = 1,
	.argtypes = {INT8OID}
};

static LedgerPlan read_holds_anything = {
	.sql = "SELECT 1 WHERE EXISTS (SELECT FROM payguard.instances) OR EXISTS (SELECT FROM payguard.orders)",
	.nargs = 0
};

static LedgerPlan insert_first = {
	.sql = "INSERT INTO payguard.instances (origin, label, timeline, adopted_by, reason)"
	" VALUES ($1, $2, $3, session_user, 'first order')"
	" ON CONFLICT (origin) DO NOTHING",
	.nargs = 3,
	.argtypes = {INT8OID, TEXTOID, INT4OID}
};

static LedgerPlan upsert_adopted = {
	.sql = "INSERT INTO payguard.instances AS i (origin, label, timeline, adopted_by, reason)"
	" VALUES ($1, $2, $3, session_user, $4)"
	" ON CONFLICT (origin) DO UPDATE"
	" SET label = excluded.label, timeline = excluded.timeline, switched_at = NULL,"
	" adopted_at = clock_timestamp(), adopted_by = excluded.adopted_by, reason = excluded.reason",
	.nargs = 4,
	.argtypes = {INT8OID, TEXTOID, INT4OID, TEXTOID}
};

/*
 * A subscriber's sequences stay where they were, and so do those of a restore
 * of rows alone.
 */
static LedgerPlan raise_sequences = {
	.sql = "SELECT setval(s.name, s.top) FROM (VALUES"
	" ('payguard.orders_id_seq'::regclass, (SELECT max(id) FROM payguard.orders),"
	"  (SELECT last_value FROM payguard.orders_id_seq)),"
	" ('payguard.refunds_id_seq', (SELECT max(id) FROM payguard.refunds),"
	"  (SELECT last_value FROM payguard.refunds_id_seq)),"
	" ('payguard.evidence_id_seq', (SELECT max(id) FROM payguard.evidence),"
	"  (SELECT last_value FROM payguard.evidence_id_seq)),"
	" ('payguard.outbox_id_seq', (SELECT max(id) FROM payguard.outbox),"
	"  (SELECT last_value FROM payguard.outbox_id_seq)),"
	" ('payguard.events_seq_seq', (SELECT max(seq) FROM payguard.events),"
	"  (SELECT last_value FROM payguard.events_seq_seq))) AS s (name, top, last)"
	" WHERE s.top >= s.last",
	.nargs = 0
};

static LedgerPlan read_switch = {
	.sql = "SELECT timeline, switched_at FROM payguard.instances WHERE origin = $1",
	.nargs = 1,
	.argtypes = {INT8OID}
};

static LedgerPlan note_switch = {
	.sql = "UPDATE payguard.instances SET timeline = $2, switched_at = clock_timestamp()"
	" WHERE origin = $1 AND timeline <> $2",
	.nargs = 2,
	.argtypes = {INT8OID, INT4OID}
};

/* The origin that was found in instances; 0: none yet in this backend. */
static int64 adopted_origin = 0;
static bool callbacks_registered = false;

/*
 * What a (sub)transaction saw before it aborted may have been its own row.
 * After PREPARE the row is not there until COMMIT PREPARED.
 */
static void
forget_at_xact_end(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE)
		adopted_origin = 0;
}

static void
forget_at_subxact_abort(SubXactEvent event, SubTransactionId mySubid,
						SubTransactionId parentSubid, void *arg)
{
	if (event == SUBXACT_EVENT_ABORT_SUB)
		adopted_origin = 0;
}

/*
 * Keep in this backend that the origin was adopted.
 */
static void
remember_adopted(int64 origin)
{
	if (!callbacks_registered)
	{
		RegisterXactCallback(forget_at_xact_end, NULL);
		RegisterSubXactCallback(forget_at_subxact_abort, NULL);
		callbacks_registered = true;
	}
	adopted_origin = origin;
}

/*
 * Oid of the extension, kept for as long as its schema is the same one: both
 * come and go together, and only the schema's name is in a catalog cache.
 */
static Oid
extension_oid(void)
{
	static Oid	known_namespace = InvalidOid;
	static Oid	known_extension = InvalidOid;
	Oid			namespace_oid = get_namespace_oid("payguard", true);

	if (!OidIsValid(namespace_oid) || namespace_oid != known_namespace)
	{
		known_namespace = InvalidOid;
		known_extension = get_extension_oid("payguard", false);
		known_namespace = namespace_oid;
	}
	return known_extension;
}

/*
 * The origin of this copy: positive, the same in every backend and after a
 * restart.  A restored dump has another extension oid even in the same
 * database, a base backup the same everything but its label.
 */
int64
payguard_origin(void)
{
	const char *label = payguard_instance ? payguard_instance : "";
	struct
	{
		uint64		system_identifier;
		uint32		database;
		uint32		extension;
	}			place;
	uint64		hash;

	memset(&place, 0, sizeof(place));
	place.system_identifier = GetSystemIdentifier();
	place.database = MyDatabaseId;
	place.extension = extension_oid();
	hash = hash_bytes_extended((const unsigned char *) &place, sizeof(place), 0);
	hash = hash_bytes_extended((const unsigned char *) label, (int) strlen(label), hash);
	hash &= (uint64) PG_INT64_MAX;
	return hash == 0 ? 1 : (int64) hash;
}

/*
 * May this copy pay?  A yes is kept in this backend.
 */
bool
payguard_instance_adopted(void)
{
	int64		origin = payguard_origin();
	Datum		values[1];

	if (adopted_origin == origin)
		return true;
	values[0] = Int64GetDatum(origin);
	if (payguard_plan_read_latest(&read_adopted, values, NULL) == 0)
		return false;
	remember_adopted(origin);
	return true;
}

/*
 * Refuse to go on in a copy that may not pay.
 */
void
payguard_instance_require(void)
{
	if (!payguard_instance_adopted())
		ereport(ERROR,
				(errcode(ERRCODE_PAYGUARD_NOT_ADOPTED),
				 errmsg("this copy of the ledger has not been adopted"),
				 errdetail("Its rows were made elsewhere, so that a charge or refund might be made twice."),
				 errhint("If the other copy pays no longer, call payguard.adopt(reason).")));
}

/*
 * Adopt an empty ledger, so that a new installation needs no ceremony.  Two
 * first orders at once both get here; one row comes of it.
 */
void
payguard_instance_adopt_first(void)
{
	Datum		values[3];

	if (payguard_instance_adopted() ||
		payguard_plan_read_latest(&read_holds_anything, NULL, NULL) > 0)
		return;
	values[0] = Int64GetDatum(payguard_origin());
	values[1] = CStringGetTextDatum(payguard_instance ? payguard_instance : "");
	values[2] = Int32GetDatum((int32) GetWALInsertionTimeLine());
	(void) payguard_plan_run(&insert_first, values, NULL);
	remember_adopted(payguard_origin());
}

/*
 * Let this copy pay from now on.  Adopting again renews timeline and reason.
 * What a copy may lack is put right first.
 */
int64
payguard_instance_adopt(const char *reason)
{
	int64		origin = payguard_origin();
	Datum		values[4];

	values[0] = Int64GetDatum(origin);
	values[1] = CStringGetTextDatum(payguard_instance ? payguard_instance : "");
	values[2] = Int32GetDatum((int32) GetWALInsertionTimeLine());
	values[3] = CStringGetTextDatum(reason);
	(void) payguard_plan_run(&raise_sequences, NULL, NULL);
	(void) payguard_plan_run(&upsert_adopted, values, NULL);
	remember_adopted(origin);
	return payguard_outbox_restamp(origin);
}

/*
 * Has this copy gone on under a new timeline (a promotion, a point-in-time
 * recovery) since it was adopted?  Then the last commits of the old one may be
 * missing, charges that were sent among them: whatever is older than the
 * switch is asked about before it is charged.  Whoever looks first notes the
 * time, which is later than the switch and therefore safe.
 */
bool
payguard_instance_switched(TimestampTz *since)
{
	int32		timeline = (int32) GetWALInsertionTimeLine();
	Datum		values[2] = {Int64GetDatum(payguard_origin()), Int32GetDatum(timeline)};
	bool		isnull;

	if (payguard_plan_read_latest(&read_switch, values, NULL) == 0)
		return false;
	if (payguard_row_int32(0, 0) != timeline)
	{
		if (payguard_plan_run(&note_switch, values, NULL) > 0)
			ereport(LOG,
					(errmsg("payguard goes on under timeline %d", timeline),
					 errdetail("Orders older than this switch are asked about before they are charged.")));
		(void) payguard_plan_read_latest(&read_switch, values, NULL);
	}
	*since = payguard_row_time(0, 1, &isnull);
	return !isnull;
}
