/*-------------------------------------------------------------------------
 *
 * check_house.c
 *	  The rules of check() about the outbox, this copy, the guards and the
 *	  gateways' configuration.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "api/check.h"

const CheckRule payguard_house_rules[] = {
	{
		"not_adopted",
		"this copy has not been adopted: it sends nothing until payguard.adopt(reason)",
		"SELECT 'ledger', format('origin %s, label \"%s\"', $1,"
		" coalesce(current_setting('payguard.instance', true), ''))"
		" WHERE EXISTS (SELECT FROM payguard.orders)"
		" AND NOT EXISTS (SELECT FROM payguard.instances i WHERE i.origin = $1)"
	},
	{
		"call_of_another_copy",
		"these calls were planned by another copy, and this one does not make them until payguard.adopt(reason)",
		"SELECT format('outbox, origin %s', x.origin), count(*) || ' calls' FROM payguard.outbox x"
		" WHERE x.origin <> $1 GROUP BY x.origin"
	},
	{
		"call_orphaned",
		"the planned call belongs to an order, attempt or refund that is not here",
		"SELECT format('outbox item %s', x.id), format('%s of order id %s, attempt %s, refund %s',"
		" x.op, x.order_id, coalesce(x.attempt_no::text, 'none'), coalesce(x.refund_id::text, 'none'))"
		" FROM payguard.outbox x WHERE"
		" (x.order_id IS NOT NULL AND NOT EXISTS (SELECT FROM payguard.orders o WHERE o.id = x.order_id))"
		" OR (x.attempt_no IS NOT NULL AND NOT EXISTS (SELECT FROM payguard.attempts a"
		"   WHERE a.order_id = x.order_id AND a.no = x.attempt_no))"
		" OR (x.refund_id IS NOT NULL AND NOT EXISTS (SELECT FROM payguard.refunds f WHERE f.id = x.refund_id))"
	},
	{
		"call_overdue",
		"a call has been due for more than 5 minutes, and nobody makes it: is a worker at work, payguard.dispatch on, and the gateway configured with base_url and api_key?",
		"SELECT coalesce('order ' || o.reference, 'outbox item ' || x.id), format('%s at gateway \"%s\", due since %s', x.op, x.gateway, x.next_run_at)"
		" FROM payguard.outbox x LEFT JOIN payguard.orders o ON o.id = x.order_id"
		" WHERE x.state = 'ready' AND x.origin = $1 AND x.next_run_at < clock_timestamp() - interval '5 minutes'"
	},
	{
		"event_undelivered",
		"the endpoint has not accepted these events in all tries: mend it, then payguard.resume_gateway(name)",
		"SELECT format('endpoint %s', x.gateway), count(*) || ' events' FROM payguard.outbox x"
		" WHERE x.op = 'deliver' AND x.next_run_at = 'infinity' GROUP BY x.gateway"
	},
	{
		"not_preloaded",
		"calls are due, but no worker can make them: add payguard to shared_preload_libraries and restart",
		"SELECT 'shared_preload_libraries', count(*) || ' calls are due' FROM payguard.outbox x"
		" WHERE NOT $3 AND x.next_run_at < clock_timestamp() AND x.origin = $1 HAVING count(*) > 0"
	},
	{
		"not_served",
		"calls are due, but no worker serves this database: add it to payguard.databases",
		"SELECT format('database %s', current_database()), count(*) || ' calls are due'"
		" FROM payguard.outbox x"
		" WHERE $3 AND x.next_run_at < clock_timestamp() AND x.origin = $1"
		" AND NOT EXISTS (SELECT FROM regexp_split_to_table($4, ',') AS listed (name)"
		"   WHERE current_database() IN (btrim(listed.name), lower(btrim(listed.name)),"
		"    btrim(btrim(listed.name), '\"')))"
		" HAVING count(*) > 0"
	},
	{
		"guard_missing",
		"the table is not guarded: a trigger is missing or not ENABLE ALWAYS",
		"SELECT format('table %s', g.relation), 'trigger ' || g.trigger"
		" FROM (SELECT relation, 'zz_payguard_guard' AS trigger FROM unnest(ARRAY['orders',"
		"  'attempts', 'payments', 'refunds', 'evidence', 'events']) AS relation"
		" UNION ALL SELECT relation, 'zz_payguard_guard_truncate' FROM unnest(ARRAY['orders',"
		"  'attempts', 'payments', 'refunds', 'evidence', 'events', 'reviews', 'provider_ids',"
		"  'order_slots', 'entitlements', 'outbox', 'instances', 'once_keys',"
		"  'event_deliveries', 'event_consumers']) AS relation) AS g"
		" WHERE NOT EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = to_regclass('payguard.' || g.relation)"
		"  AND t.tgname = g.trigger AND t.tgenabled = 'A')"
	},
	{
		"constraint_missing",
		"a constraint that payguard relies on is missing or not validated",
		"SELECT format('table %s', w.relation), 'constraint ' || w.name"
		" FROM (VALUES ('orders', 'orders_pkey'), ('orders', 'orders_reference_key'),"
		"  ('orders', 'orders_decided'), ('orders', 'orders_paid_at'), ('orders', 'orders_once'),"
		"  ('attempts', 'attempts_pkey'), ('attempts', 'attempts_request_key'),"
		"  ('attempts', 'attempts_gateway_reference'), ('attempts', 'attempts_decided'),"
		"  "
		"  ('payments', 'payments_pkey'), ('payments', 'payments_reason'),"
		"  "
		"  ('refunds', 'refunds_pkey'), ('refunds', 'refunds_request_key'),"
		"  ('refunds', 'refunds_gateway_reference'), ('refunds', 'refunds_provider_id'),"
		"  "
		"  ('evidence', 'evidence_pkey'), "
		"  ('reviews', 'reviews_pkey'), ('provider_ids', 'provider_ids_pkey'),"
		"  ('order_slots', 'order_slots_pkey'), ('entitlements', 'entitlements_pkey'),"
		"  ('outbox', 'outbox_pkey'), ('events', 'events_pkey'), ('events', 'events_once'),"
		"  ('event_deliveries', 'event_deliveries_pkey'), ('event_consumers', 'event_consumers_pkey'),"
		"  ('instances', 'instances_pkey'), ('once_keys', 'once_keys_pkey')) AS w (relation, name)"
		" WHERE NOT EXISTS (SELECT FROM pg_constraint k"
		"  WHERE k.conrelid = to_regclass('payguard.' || w.relation)"
		"  AND k.conname = w.name AND k.convalidated)"
	},
	{
		"index_missing",
		"an index that payguard relies on is missing or not valid",
		"SELECT format('index %s', w.name), NULL"
		" FROM (VALUES ('payments_counted', true), ('evidence_inbox', true), ('outbox_one', true),"
		"  ('orders_expires_at', false), ('payments_order', false), ('evidence_order', false),"
		"  ('evidence_parked', false), ('evidence_parked_refunds', false),"
		"  ('refunds_charge', false), ('outbox_due', false), ('outbox_deliver', false)) AS w (name, is_unique)"
		" WHERE NOT EXISTS (SELECT FROM pg_index i"
		"  WHERE i.indexrelid = to_regclass('payguard.' || w.name)"
		"  AND i.indisvalid AND i.indisready AND i.indisunique = w.is_unique)"
	},
	{
		"secret_for_one_role",
		"only the user mapping for PUBLIC is read; drop this one, or make it the one for PUBLIC",
		"SELECT format('gateway %s', m.srvname), 'user mapping for ' || m.usename"
		" FROM pg_user_mappings m JOIN pg_foreign_server s ON s.oid = m.srvid"
		" JOIN pg_foreign_data_wrapper w ON w.oid = s.srvfdw"
		" WHERE w.fdwname = 'payguard' AND m.umuser <> 0"
	},
	{
		"adapter_missing",
		"the gateway names no adapter that exists, so that it can neither charge nor read callbacks",
		"SELECT format('gateway %s', s.srvname), coalesce('adapter ' || a.option_value, 'no adapter')"
		" FROM pg_foreign_server s JOIN pg_foreign_data_wrapper w ON w.oid = s.srvfdw"
		" LEFT JOIN LATERAL (SELECT option_value FROM pg_options_to_table(s.srvoptions)"
		"  WHERE option_name = 'adapter') AS a ON true"
		" WHERE w.fdwname = 'payguard' AND (a.option_value = ANY ($2)) IS NOT TRUE"
	},
	{
		"gateway_missing",
		"calls are planned for a gateway that is not configured: create its server again",
		"SELECT format('gateway %s', x.gateway), count(*) || ' calls' FROM payguard.outbox x"
		" WHERE NOT EXISTS (SELECT FROM pg_foreign_server s"
		"  JOIN pg_foreign_data_wrapper w ON w.oid = s.srvfdw"
		"  WHERE w.fdwname = 'payguard' AND s.srvname = x.gateway)"
		" GROUP BY x.gateway"
	},
	{NULL, NULL, NULL}
};
