-- Catalog hygiene: nothing for PUBLIC, everything has a comment, every table and sequence goes into dumps, guards are always on, indexes keep updates HOT.
\getenv abs_srcdir PG_ABS_SRCDIR
\set shop :abs_srcdir '/sql/include/shop.sql'
\i :shop

-- functions that PUBLIC may call, that run with another's rights, or that set a path
SELECT p.proname FROM pg_proc p JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e' JOIN pg_extension x ON x.oid = d.refobjid AND x.extname = 'payguard'
	WHERE has_function_privilege('public', p.oid, 'EXECUTE') OR p.prosecdef OR p.proconfig IS NOT NULL OR p.pronamespace <> 'payguard'::regnamespace;
SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'payguard'::regnamespace AND c.relkind IN ('r', 'v', 'S') AND EXISTS (SELECT FROM aclexplode(c.relacl) a WHERE a.grantee = 0);
SELECT has_schema_privilege('public', 'payguard', 'USAGE') AS usage, has_schema_privilege('public', 'payguard', 'CREATE') AS creates;
SELECT fdwname, fdwacl IS NULL AS owner_only, fdwhandler = 0 AS no_handler FROM pg_foreign_data_wrapper WHERE fdwname = 'payguard';
-- objects without a comment: schema, tables, views, functions, enum types
SELECT 'schema' WHERE obj_description('payguard'::regnamespace, 'pg_namespace') IS NULL;
SELECT c.relkind, c.relname FROM pg_class c WHERE c.relnamespace = 'payguard'::regnamespace AND c.relkind IN ('r', 'v') AND obj_description(c.oid, 'pg_class') IS NULL;
SELECT p.proname FROM pg_proc p WHERE p.pronamespace = 'payguard'::regnamespace AND obj_description(p.oid, 'pg_proc') IS NULL;
SELECT t.typname FROM pg_type t WHERE t.typnamespace = 'payguard'::regnamespace AND t.typtype = 'e' AND obj_description(t.oid, 'pg_type') IS NULL;
-- tables and sequences that a dump would lose
SELECT c.relkind, c.relname FROM pg_class c WHERE c.relnamespace = 'payguard'::regnamespace AND c.relkind IN ('r', 'S') AND NOT EXISTS (SELECT FROM pg_extension x WHERE x.extname = 'payguard' AND c.oid = ANY (x.extconfig));
-- every object in the schema belongs to the extension, and the extension has no rows of its own when it is new
SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'payguard'::regnamespace AND c.relkind IN ('r', 'v', 'S') AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e');
-- guards
SELECT c.relname, string_agg(t.tgname || ' ' || t.tgenabled::text || CASE WHEN t.tgdeferrable THEN ' deferrable' ELSE '' END, ', ' ORDER BY t.tgname) FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
	WHERE c.relnamespace = 'payguard'::regnamespace AND NOT t.tgisinternal GROUP BY c.relname ORDER BY c.relname COLLATE "C";
-- a guard fires after any other trigger of its table
SELECT c.relname, t.tgname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid WHERE c.relnamespace = 'payguard'::regnamespace AND t.tgname COLLATE "C" > 'zz_payguard_guard_truncate' COLLATE "C";
-- indexes on columns that change during a payment, predicates included: only the outbox may have one
SELECT c.relname, i.indexrelid::regclass AS index, a.attname FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid JOIN pg_attribute a ON a.attrelid = c.oid
	WHERE c.relname IN ('orders', 'attempts', 'outbox') AND c.relnamespace = 'payguard'::regnamespace AND (a.attnum = ANY (i.indkey::smallint[]) OR pg_get_expr(i.indpred, i.indrelid) ~ ('\m' || a.attname || '\M'))
	AND a.attname IN ('status', 'attempt_no', 'updated_at', 'decided_by', 'paid_at', 'refunded_amount', 'refund_reserved', 'close_requested_at', 'state', 'lease_token', 'lease_until', 'provider_id', 'client', 'sent_at', 'answered_at', 'code', 'message', 'next_run_at', 'tries', 'epoch')
	AND NOT (c.relname = 'outbox' AND a.attname = 'attempt_no') ORDER BY 1, 2, 3;
-- foreign keys: none, since pg_restore -j loads an extension's tables in any order
SELECT conrelid::regclass, confrelid::regclass, condeferrable FROM pg_constraint WHERE contype = 'f' AND connamespace = 'payguard'::regnamespace ORDER BY 1::text COLLATE "C";
-- settings: none that touches money is a session's
SELECT name, context FROM pg_settings WHERE name LIKE 'payguard.%' AND context NOT IN ('sighup', 'postmaster') ORDER BY 1;
SELECT count(*) > 5 AS there FROM pg_settings WHERE name LIKE 'payguard.%';
SET payguard.no_such_setting = 1;
