-- R3, R13: what was written about money stays as it was: every column that must not change is tried, by a superuser, at every replication role.
\getenv abs_srcdir PG_ABS_SRCDIR
\set shop :abs_srcdir '/sql/include/shop.sql'
\i :shop

SELECT shop.make('FIXED1', 'paid'), shop.make('FIXED2', 'processing');
SELECT shop.callback('charge.paid', 'FIXED1', 'ch_surplus_fixed1') IS NOT NULL AS surplus;
SELECT verdict FROM payguard.request_refund('FIXED1', 'fixed1', 1);
-- for each column, a value of its type that differs; what is refused and what passes
CREATE FUNCTION pg_temp.columns(tab text, key text) RETURNS TABLE (tab_ text, refused text, passed text) LANGUAGE plpgsql AS $$
DECLARE
	c record;
	value text;
BEGIN
	tab_ := tab; refused := ''; passed := '';
	FOR c IN SELECT attname, format_type(atttypid, NULL) AS type, attidentity <> '' AS generated FROM pg_attribute WHERE attrelid = ('payguard.' || tab)::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attname COLLATE "C"
	LOOP
		CONTINUE WHEN c.attname IN ('status', 'state', 'decided_by', 'verdict');
		value := CASE WHEN c.type IN ('bigint', 'integer', 'numeric') THEN format('COALESCE(%I, 0) + 1000', c.attname)
			WHEN c.type = 'boolean' THEN format('NOT %I', c.attname)
			WHEN c.type = 'text' THEN format('COALESCE(%I, '''') || ''x''', c.attname)
			WHEN c.type = 'jsonb' THEN format('COALESCE(%I, ''{}'') || ''{"x": 1}''', c.attname)
			WHEN c.type = 'bytea' THEN format('COALESCE(%I, '''') || ''x''', c.attname)
			WHEN c.type = 'timestamp with time zone' THEN format('COALESCE(%I, now()) + interval ''1 s''', c.attname)
			WHEN c.type = 'uuid' THEN 'gen_random_uuid()'
			WHEN c.type = 'payguard.gateway_mode' THEN '''test'''
			WHEN c.type = 'payguard.call_by' THEN '''gateway'''
			WHEN c.type = 'payguard.evidence_source' THEN '''operator'''
			WHEN c.type = 'payguard.evidence_result' THEN '''unknown'''
			ELSE 'NULL' END;
		IF c.generated THEN
			refused := refused || c.attname || '(generated) ';
			CONTINUE;
		END IF;
		BEGIN
			EXECUTE format('UPDATE payguard.%I SET %I = %s WHERE %s', tab, c.attname, value, key);
			RAISE EXCEPTION USING ERRCODE = 'ZZ999';
		EXCEPTION WHEN SQLSTATE 'PG003' THEN
			refused := refused || c.attname || ' ';
		WHEN SQLSTATE 'ZZ999' THEN
			passed := passed || c.attname || ' ';
		WHEN check_violation OR foreign_key_violation THEN
			refused := refused || c.attname || '(' || SQLSTATE || ') ';
		END;
	END LOOP;
	RETURN NEXT;
END
$$;
CREATE FUNCTION pg_temp.all_columns() RETURNS TABLE (tab text, refused text, passed text) LANGUAGE sql AS $$
	SELECT c.* FROM (VALUES (1, 'orders', $k$reference = 'FIXED1'$k$), (2, 'attempts', $k$gateway_reference = 'FIXED1'$k$), (3, 'payments', $k$provider_id = 'ch_fixed1'$k$),
		(4, 'payments', $k$provider_id = 'ch_surplus_fixed1'$k$), (5, 'refunds', $k$request_key = 'fixed1'$k$), (6, 'evidence', $k$provider_id = 'ch_fixed1' AND result = 'paid'$k$),
		(7, 'events', $k$aggregateid = 'FIXED1' AND type = 'order.paid'$k$)) AS v (n, tab, key), pg_temp.columns(tab, key) AS c ORDER BY n
$$;
SELECT * FROM pg_temp.all_columns();
-- not as a replica, where ordinary triggers and foreign keys sleep (the codes of the latter are left out)
SELECT md5(regexp_replace(string_agg(a::text, ''), '\(\d+\)', '', 'g')) AS normal FROM pg_temp.all_columns() AS a \gset
SET session_replication_role = replica;
SELECT md5(regexp_replace(string_agg(a::text, ''), '\(\d+\)', '', 'g')) = :'normal' AS same FROM pg_temp.all_columns() AS a;
UPDATE payguard.orders SET amount = 1 WHERE reference = 'FIXED1';
UPDATE payguard.orders SET status = 'created' WHERE reference = 'FIXED1';
DELETE FROM payguard.events WHERE aggregateid = 'FIXED1';
TRUNCATE payguard.events;
RESET session_replication_role;
SET session_replication_role = local;
UPDATE payguard.payments SET amount = 1 WHERE provider_id = 'ch_fixed1';
RESET session_replication_role;
-- messages and hints of a changed column, and of one whose value is not shown
UPDATE payguard.orders SET amount = 1 WHERE reference = 'FIXED1';
UPDATE payguard.attempts SET idempotency_key = 'x' WHERE gateway_reference = 'FIXED1';
\set VERBOSITY terse
UPDATE payguard.payments SET counted = true, reason = NULL WHERE provider_id = 'ch_surplus_fixed1';
\set VERBOSITY default
UPDATE payguard.events SET payload = '{}' WHERE aggregateid = 'FIXED1' AND type = 'order.paid';
-- a fact's deliveries go up only, and links are filled only once
SELECT regexp_replace(shop.fails($$UPDATE payguard.evidence SET deliveries = deliveries - 1 WHERE provider_id = 'ch_fixed1'$$), 'evidence "[0-9]+"', 'evidence "N"');
SELECT regexp_replace(shop.fails($$UPDATE payguard.evidence SET order_id = NULL WHERE provider_id = 'ch_fixed1'$$), '\m[0-9]+\M', 'N', 'g');
-- INSERT ... ON CONFLICT DO UPDATE and MERGE are updates like any other
SELECT shop.fails($$INSERT INTO payguard.orders (reference, amount, currency) VALUES ('FIXED1', 1, 'CNY') ON CONFLICT (reference) DO UPDATE SET amount = 1$$);
SELECT left(shop.fails($$MERGE INTO payguard.orders o USING (SELECT 'FIXED1' AS r) AS s ON s.r = o.reference WHEN MATCHED THEN DELETE$$), 5);
