-- Who may do what: nothing by PUBLIC; an application, a callback receiver, an operator and a monitor what grant_access gives; USAGE says which gateway.
\getenv abs_srcdir PG_ABS_SRCDIR
\set shop :abs_srcdir '/sql/include/shop.sql'
\i :shop

CREATE ROLE priv_app; CREATE ROLE priv_hook; CREATE ROLE priv_op; CREATE ROLE priv_mon; CREATE ROLE priv_none; CREATE ROLE priv_admin;
GRANT USAGE ON SCHEMA shop TO PUBLIC;
SELECT shop.make('PRIV01', 'processing');
SELECT payguard.grant_access('priv_app', 'application'), payguard.grant_access('priv_hook', 'callback'), payguard.grant_access('priv_op', 'operator'), payguard.grant_access('priv_mon', 'monitor');
-- which functions each may call, and which tables it may read or write
SELECT r.rolname, (SELECT string_agg(p.proname, ' ' ORDER BY p.proname COLLATE "C") FROM pg_proc p WHERE p.pronamespace = 'payguard'::regnamespace AND has_function_privilege(r.rolname, p.oid, 'EXECUTE')) AS calls,
	(SELECT string_agg(c.relname, ' ' ORDER BY c.relname COLLATE "C") FROM pg_class c WHERE c.relnamespace = 'payguard'::regnamespace AND c.relkind IN ('r', 'v') AND has_table_privilege(r.rolname, c.oid, 'SELECT')) AS reads,
	(SELECT count(*) FROM pg_class c WHERE c.relnamespace = 'payguard'::regnamespace AND c.relkind = 'r' AND has_table_privilege(r.rolname, c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER')) AS writes,
	(SELECT count(*) FROM pg_class c WHERE c.relnamespace = 'payguard'::regnamespace AND CASE c.relkind WHEN 'S' THEN has_sequence_privilege(r.rolname, c.oid, 'USAGE, SELECT, UPDATE') ELSE false END) AS sequences,
	has_schema_privilege(r.rolname, 'payguard', 'USAGE') AS usage, has_schema_privilege(r.rolname, 'payguard', 'CREATE') AS creates
	FROM pg_roles r WHERE rolname LIKE 'priv_%' ORDER BY 1;
-- granting again changes nothing, and only the owner of the schema grants
SELECT payguard.grant_access('priv_mon', 'monitor');
SELECT payguard.grant_access('public', 'monitor');
GRANT USAGE ON SCHEMA payguard TO priv_admin WITH GRANT OPTION;
GRANT EXECUTE ON FUNCTION payguard.grant_access TO priv_admin;
SET ROLE priv_admin;
SELECT payguard.grant_access('priv_none', 'operator');
RESET ROLE;
-- nobody
SET ROLE priv_none;
SELECT payguard.create_order(1, 'CNY');
SELECT count(*) FROM payguard.orders;
RESET ROLE;
-- an application: the gateway needs USAGE, for each call that reaches it
SET ROLE priv_app;
SELECT payguard.create_order(399.00, 'CNY', 'shop', 'PRIV02');
SELECT reference, created FROM payguard.create_order(399.00, 'CNY', NULL, 'PRIV02');
SELECT payguard.claim_order('PRIV02', 'priv02', 'shop');
SELECT count(*) FROM payguard.orders;
SELECT payguard.why('PRIV02');
SELECT payguard.apply_callback('shop', '{}', '');
RESET ROLE;
GRANT USAGE ON FOREIGN SERVER shop TO priv_app;
SET ROLE priv_app;
SELECT verdict, claimed FROM payguard.claim_order('PRIV02', 'priv02', 'shop', 'application');
SELECT status, can_pay FROM payguard.order_status('PRIV02');
-- the tables stay closed to it although its calls write them
INSERT INTO payguard.orders (reference, amount, currency) VALUES ('PRIV03', 1, 'CNY');
UPDATE payguard.orders SET metadata = '{}';
SELECT nextval('payguard.orders_id_seq');
-- a user mapping of its own with its own secret means nothing: only the one for PUBLIC is read
CREATE USER MAPPING FOR priv_app SERVER shop OPTIONS (webhook_secret 'whsec_bXktb3duLXNlY3JldA==', api_key 'mine');
RESET ROLE;
SELECT verdict FROM payguard.apply_callback('shop', shop.sign('{}', 'evt_priv', secret => 'bXktb3duLXNlY3JldA=='), '{}');
SELECT rule, object, detail FROM shop.damage();
DROP USER MAPPING FOR priv_app SERVER shop;
-- options that reach into the machine are a superuser's
GRANT USAGE ON FOREIGN DATA WRAPPER payguard TO priv_admin;
SET ROLE priv_admin;
CREATE SERVER priv_own FOREIGN DATA WRAPPER payguard OPTIONS (adapter 'generic', base_url 'https://own.example', ca_file '/etc/passwd');
CREATE SERVER priv_own FOREIGN DATA WRAPPER payguard OPTIONS (adapter 'generic', base_url 'https://own.example', proxy 'http://proxy.example');
CREATE SERVER priv_own FOREIGN DATA WRAPPER payguard OPTIONS (adapter 'generic', base_url 'http://own.example', allow_http 'true');
CREATE SERVER priv_own FOREIGN DATA WRAPPER payguard OPTIONS (adapter 'generic', base_url 'https://own.example');
CREATE USER MAPPING FOR PUBLIC SERVER priv_own OPTIONS (api_key_file '/etc/passwd');
CREATE USER MAPPING FOR PUBLIC SERVER priv_own OPTIONS (webhook_secret_file '/etc/passwd');
CREATE USER MAPPING FOR PUBLIC SERVER priv_own OPTIONS (api_key 'own', webhook_secret 'whsec_cGF5Z3VhcmQtdGVzdC13ZWJob29rLWtl');
-- a gateway of one's own gives no right to another's
SELECT payguard.claim_order('PRIV02', 'priv03', 'shop');
RESET ROLE;
-- a callback receiver
GRANT USAGE ON FOREIGN SERVER shop TO priv_hook;
SELECT shop.body('charge.paid', 'PRIV02', 'ch_priv02') AS body \gset
SELECT shop.sign(:'body', 'evt_priv02') AS headers \gset
SET ROLE priv_hook;
SELECT verdict, reference, status FROM payguard.apply_callback('shop', :'headers', :'body');
SELECT valid FROM payguard.verify_callback('shop', :'headers', :'body');
SELECT payguard.apply_callback('priv_own', :'headers', :'body');
SELECT payguard.claim_order('PRIV02', 'k');
SELECT count(*) FROM payguard.evidence;
RESET ROLE;
-- an operator reads, a monitor does not
SET ROLE priv_op;
SELECT status FROM payguard.orders WHERE reference = 'PRIV02';
SELECT count(*) > 3 AS told FROM payguard.why('PRIV02');
SELECT payguard.create_order(1, 'CNY');
DELETE FROM payguard.orders;
SET ROLE priv_mon;
SELECT count(*) FROM payguard.check() WHERE rule <> 'not_served';
SELECT count(*) FROM payguard.orders;
RESET ROLE;
DROP SERVER priv_own CASCADE;
DROP OWNED BY priv_app, priv_hook, priv_op, priv_mon, priv_none, priv_admin;
DROP ROLE priv_app, priv_hook, priv_op, priv_mon, priv_none, priv_admin;
