-- R20: replaces closes a created or failed order and makes the new one in one step; in any other state PG003 and nothing is made.
\getenv abs_srcdir PG_ABS_SRCDIR
\set shop :abs_srcdir '/sql/include/shop.sql'
\i :shop

SELECT shop.make('REPL01', 'created'), shop.make('REPL02', 'failed');
SELECT reference, status, created FROM payguard.create_order(450.00, 'CNY', 'shop', 'REPL01-b', replaces => 'REPL01');
SELECT reference, status, created FROM payguard.create_order(450.00, 'CNY', 'shop', 'REPL02-b', replaces => 'REPL02');
SELECT * FROM shop.look('REPL01');
SELECT * FROM shop.look('REPL02');
SELECT source, result, code FROM payguard.evidence e JOIN payguard.orders o ON o.id = e.order_id WHERE o.reference = 'REPL01';
-- the whole step again is the same order; what it replaced may stay closed
SELECT reference, created FROM payguard.create_order(450.00, 'CNY', 'shop', 'REPL01-b', replaces => 'REPL01');
-- an order that is closed cannot be replaced by another: two new orders would take the place of one
SELECT shop.fails($$SELECT payguard.create_order(451.00, 'CNY', 'shop', 'REPL01-c', replaces => 'REPL01')$$);
SELECT shop.fails($$SELECT payguard.create_order(450.00, 'CNY', 'shop', replaces => 'REPL01')$$);
-- money may have moved, or has
SELECT shop.make('REPL03', 'processing'), shop.make('REPL04', 'unknown'), shop.make('REPL05', 'paid'), shop.make('REPL06', 'reversed');
SELECT shop.fails(format($$SELECT payguard.create_order(450.00, 'CNY', 'shop', 'REPL-no', replaces => %L)$$, r))
	FROM unnest(ARRAY['REPL03', 'REPL04', 'REPL05', 'REPL06', 'REPL99']) AS r;
SELECT count(*) FROM payguard.orders WHERE reference = 'REPL-no';
-- what was refused left no trace
SELECT status, evidence, events FROM shop.look('REPL03');
SELECT close_requested_at FROM payguard.orders WHERE reference = 'REPL03';
-- a once purchase whose cart changed: the slot goes over to the new order
SELECT reference, created FROM payguard.create_order(10, 'CNY', 'shop', 'REPL07', 'anna', 'cart', true);
SELECT reference, created FROM payguard.create_order(12, 'CNY', 'shop', 'REPL08', 'anna', 'cart', true, replaces => 'REPL07');
-- that call repeated without a reference of its own finds the order that it made
SELECT reference, created FROM payguard.create_order(12, 'CNY', 'shop', NULL, 'anna', 'cart', true, replaces => 'REPL07');
SELECT o.reference, o.status FROM payguard.orders o WHERE customer = 'anna' AND product = 'cart' ORDER BY 1;
SELECT o.reference FROM payguard.order_slots s JOIN payguard.orders o ON o.id = s.order_id WHERE s.customer = 'anna' AND s.product = 'cart';
SELECT * FROM shop.damage();
