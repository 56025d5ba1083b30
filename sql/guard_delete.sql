-- R3, R13: nothing of the ledger can be deleted or truncated unless it is old and finished, children first; a setting of the server alone allows that.
\getenv abs_srcdir PG_ABS_SRCDIR
\set shop :abs_srcdir '/sql/include/shop.sql'
\i :shop

SELECT shop.make('DELETE1', 'paid'), shop.make('DELETE2', 'processing'), shop.make('DELETE3', 'created');
SELECT verdict FROM payguard.request_refund('DELETE1', 'delete1', 1);
DELETE FROM payguard.attempts WHERE gateway_reference = 'DELETE1';
DELETE FROM payguard.payments WHERE provider_id = 'ch_delete1';
SELECT regexp_replace(shop.fails(format('DELETE FROM payguard.%s', w)), '"[0-9]+"', '"N"') FROM (VALUES
	('refunds WHERE request_key = ''delete1'''), ('evidence WHERE provider_id = ''ch_delete1'''), ('events WHERE aggregateid = ''DELETE1'''),
	('orders WHERE reference = ''DELETE3''')) AS v (w);
-- an order with children: the server's own foreign key may speak first
SELECT left(shop.fails($$DELETE FROM payguard.orders WHERE reference = 'DELETE1'$$), 5) IN ('23503', 'PG003') AS refused;
-- TRUNCATE of every table, alone, with CASCADE, all at once
SELECT t, shop.fails(format('TRUNCATE payguard.%I CASCADE', t)) FROM unnest(ARRAY['orders', 'attempts', 'payments', 'refunds', 'reviews', 'provider_ids', 'order_slots', 'entitlements', 'evidence', 'outbox', 'events', 'instances']) AS t;
TRUNCATE payguard.attempts;
-- the setting is the server's: not a session's, not a role's
SET payguard.retention = '1 min';
ALTER ROLE CURRENT_USER SET payguard.retention = '1 min';
-- with a retention, young orders stay
ALTER SYSTEM SET payguard.retention = '1 min';
SELECT pg_reload_conf();
\c -
\getenv abs_srcdir PG_ABS_SRCDIR
\set shop :abs_srcdir '/sql/include/shop.sql'
\i :shop
SELECT pg_sleep(0.1) FROM generate_series(1, 50) WHERE current_setting('payguard.retention') = '0';
SHOW payguard.retention;
SELECT left(shop.fails($$DELETE FROM payguard.events WHERE aggregateid = 'DELETE1'$$), 5);
-- old ones may go, children first; ones that are under way may not, however old
BEGIN;
ALTER TABLE payguard.orders DISABLE TRIGGER zz_payguard_guard;
UPDATE payguard.orders SET updated_at = now() - interval '1 hour' WHERE reference LIKE 'DELETE_';
ALTER TABLE payguard.orders ENABLE ALWAYS TRIGGER zz_payguard_guard;
SELECT left(shop.fails($$DELETE FROM payguard.attempts WHERE gateway_reference = 'DELETE2'$$), 5), left(shop.fails($$DELETE FROM payguard.orders WHERE reference = 'DELETE3'$$), 5);
SELECT left(shop.fails($$DELETE FROM payguard.orders WHERE reference = 'DELETE1'$$), 5) IN ('23503', 'PG003') AS children_first;
DELETE FROM payguard.events WHERE aggregateid = 'DELETE1';
DELETE FROM payguard.refunds r USING payguard.orders o WHERE o.id = r.order_id AND o.reference = 'DELETE1';
DELETE FROM payguard.payments p USING payguard.orders o WHERE o.id = p.order_id AND o.reference = 'DELETE1';
DELETE FROM payguard.attempts a USING payguard.orders o WHERE o.id = a.order_id AND o.reference = 'DELETE1';
DELETE FROM payguard.evidence e USING payguard.orders o WHERE o.id = e.order_id AND o.reference = 'DELETE1';
DELETE FROM payguard.orders WHERE reference = 'DELETE1';
SELECT count(*) FROM payguard.orders WHERE reference = 'DELETE1';
ROLLBACK;
ALTER SYSTEM RESET payguard.retention;
SELECT pg_reload_conf();
SELECT count(*) FROM payguard.orders WHERE reference = 'DELETE1';
