-- Hostile objects: functions, operators and tables of the caller's own, before pg_catalog and in a temporary schema, are never called by payguard.
\getenv abs_srcdir PG_ABS_SRCDIR
\set shop :abs_srcdir '/sql/include/shop.sql'
\i :shop

CREATE ROLE path_app;
SELECT payguard.grant_access('path_app', 'application'), payguard.grant_access('path_app', 'callback'), payguard.grant_access('path_app', 'operator');
GRANT USAGE ON FOREIGN SERVER shop TO path_app;
GRANT USAGE ON SCHEMA shop TO path_app;
CREATE SCHEMA path_evil AUTHORIZATION path_app;
SELECT shop.body('charge.paid', 'PATHS1', 'ch_paths1') AS body \gset
SELECT shop.sign(:'body', 'evt_paths1') AS headers \gset
CREATE TABLE shop.path_said (said text);
GRANT INSERT ON shop.path_said TO path_app;
SET ROLE path_app;
-- every operator and function that payguard's statements use, made to tell who called it
CREATE FUNCTION path_evil.tell(what text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN INSERT INTO shop.path_said VALUES (what || ' as ' || current_user); END $$;
CREATE FUNCTION path_evil.text_eq(text, text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN PERFORM path_evil.tell('='); RETURN true; END $$;
CREATE FUNCTION path_evil.int8_eq(bigint, bigint) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN PERFORM path_evil.tell('= bigint'); RETURN true; END $$;
CREATE FUNCTION path_evil.int4_add(integer, integer) RETURNS integer LANGUAGE plpgsql AS $$ BEGIN PERFORM path_evil.tell('+'); RETURN 0; END $$;
CREATE FUNCTION path_evil.ts_gt(timestamptz, timestamptz) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN PERFORM path_evil.tell('>'); RETURN true; END $$;
CREATE FUNCTION path_evil.num_ge(numeric, numeric) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN PERFORM path_evil.tell('>='); RETURN true; END $$;
CREATE OPERATOR path_evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = path_evil.text_eq);
CREATE OPERATOR path_evil.= (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = path_evil.int8_eq);
CREATE OPERATOR path_evil.+ (LEFTARG = integer, RIGHTARG = integer, FUNCTION = path_evil.int4_add);
CREATE OPERATOR path_evil.> (LEFTARG = timestamptz, RIGHTARG = timestamptz, FUNCTION = path_evil.ts_gt);
CREATE OPERATOR path_evil.>= (LEFTARG = numeric, RIGHTARG = numeric, FUNCTION = path_evil.num_ge);
CREATE FUNCTION path_evil.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS $$ BEGIN PERFORM path_evil.tell('clock_timestamp'); RETURN 'infinity'; END $$;
CREATE FUNCTION path_evil.count(anyelement) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN PERFORM path_evil.tell('count'); RETURN 0; END $$;
CREATE FUNCTION path_evil.length(text) RETURNS integer LANGUAGE plpgsql AS $$ BEGIN PERFORM path_evil.tell('length'); RETURN 0; END $$;
CREATE FUNCTION path_evil.nextval(regclass) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN PERFORM path_evil.tell('nextval'); RETURN 1; END $$;
CREATE TEMP TABLE orders (id bigint, reference text, status text);
CREATE TEMP TABLE pg_class (oid oid, relname name);
CREATE FUNCTION pg_temp.lower(text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN PERFORM path_evil.tell('lower'); RETURN ''; END $$;
CREATE DOMAIN pg_temp.int8 AS text;
SET search_path = path_evil, pg_temp, pg_catalog;
SELECT status FROM payguard.create_order(399.00, 'CNY', 'shop', 'PATHS1');
SELECT verdict, claimed FROM payguard.claim_order('PATHS1', 'paths1', call_by => 'worker');
SELECT verdict FROM payguard.claim_order('PATHS1', 'paths1-b');
SELECT verdict, status FROM payguard.apply_callback('shop', :'headers', :'body');
SELECT status FROM payguard.order_status('PATHS1');
SELECT pg_catalog.count(*) OPERATOR(pg_catalog.>) 3 AS told FROM payguard.why('PATHS1');
SELECT rule FROM payguard.check() WHERE rule OPERATOR(pg_catalog.<>) 'not_served';
-- in a fresh session too, in which the plans are made while the hostile path is set
\c -
SET ROLE path_app;
SET search_path = path_evil, pg_temp, pg_catalog;
SELECT verdict FROM payguard.claim_order('PATHS1', 'paths1-c');
SELECT status FROM payguard.create_order(1, 'CNY', 'shop', 'PATHS2', 'c', 'p', true, '1 hour', '{}');
SELECT verdict FROM payguard.claim_order('PATHS2', 'paths2', call_by => 'application');
RESET ROLE;
RESET search_path;
SELECT said, count(*) FROM shop.path_said GROUP BY 1 ORDER BY 1;
-- the guard as well: a superuser with a bad path
SET search_path = path_evil, pg_catalog;
UPDATE payguard.orders SET status = 'created' WHERE reference OPERATOR(pg_catalog.=) 'PATHS1';
RESET search_path;
-- row-level security of the caller's does not hide rows from payguard, and does not open them to the caller
BEGIN;
ALTER TABLE payguard.orders ENABLE ROW LEVEL SECURITY;
SET LOCAL ROLE path_app;
SELECT count(*) FROM payguard.orders;
SELECT status FROM payguard.order_status('PATHS1');
SET LOCAL row_security = off;
SELECT verdict FROM payguard.claim_order('PATHS1', 'paths1-d');
ROLLBACK;
-- settings of the caller that change what statements mean
SET default_transaction_read_only = on;
SELECT status FROM payguard.order_status('PATHS1');
SELECT payguard.create_order(1, 'CNY', 'shop', 'PATHS3');
RESET default_transaction_read_only;
SET session_replication_role = replica; SET DateStyle = 'German'; SET IntervalStyle = 'sql_standard'; SET extra_float_digits = -15; SET bytea_output = 'escape'; SET standard_conforming_strings = off; SET lc_numeric = 'C';
SELECT status FROM payguard.create_order(1234.5, 'CNY', 'shop', 'PATHS3', expires_in => '90 minutes');
SELECT verdict FROM payguard.claim_order('PATHS3', 'paths3');
RESET ALL;
SELECT amount, expires_at - created_at BETWEEN '89 minutes' AND '91 minutes' AS expiry FROM payguard.orders WHERE reference = 'PATHS3';
DROP TABLE shop.path_said;
DROP OWNED BY path_app CASCADE;
DROP ROLE path_app;
