-- Decision table, R9, R17: failed or closed with proof fails the current attempt, never undoes paid, and waits where nothing was claimed.
\getenv abs_srcdir PG_ABS_SRCDIR
\set shop :abs_srcdir '/sql/include/shop.sql'
\i :shop

SELECT * FROM shop.row('FAIL', ARRAY['created', 'processing', 'unknown', 'pending', 'failed', 'closed', 'paid', 'refunded', 'reversed'], 'charge.failed', more => '{"code": "card_declined", "message": "no"}');
SELECT * FROM shop.row('CLOS', ARRAY['created', 'processing', 'unknown', 'pending', 'failed', 'closed', 'paid', 'refunded', 'reversed'], 'charge.closed');
-- the money and the id in a failure do not matter: nothing was paid
SELECT * FROM shop.row('FAIM', ARRAY['processing'], 'charge.failed', 'off_', 1, 'USD');
-- an older attempt: stale
SELECT shop.make('FAIL-old', 'failed');
SELECT * FROM shop.claim('FAIL-old');
SELECT verdict FROM shop.callback('charge.failed', 'FAIL-old', 'ch_x');
SELECT verdict FROM shop.callback('charge.closed', 'FAIL-old', 'ch_x');
SELECT status, attempts FROM shop.look('FAIL-old');
-- an open attempt of a paid order ends with it, and nothing is planned any more
SELECT verdict FROM shop.callback('charge.paid', 'FAIL-old', 'ch_failold');
SELECT status, attempts, calls FROM shop.look('FAIL-old');
SELECT verdict FROM shop.callback('charge.closed', 'FAIL-old_r2', 'ch_y');
SELECT status, attempts, payments, calls FROM shop.look('FAIL-old');
-- a later claim gets a new number, reference and key; the failed attempt stays as it was
SELECT * FROM shop.claim('FAIL-processing', 'worker');
SELECT no, state, code, message, gateway_reference FROM payguard.attempts a JOIN payguard.orders o ON o.id = a.order_id WHERE o.reference = 'FAIL-processing' ORDER BY no;
SELECT count(DISTINCT idempotency_key) FROM payguard.attempts a JOIN payguard.orders o ON o.id = a.order_id WHERE o.reference = 'FAIL-processing';
SELECT * FROM shop.damage();
