-- R16, R17: a callback about an order that is not here is kept and acknowledged, and decides when the order is made or claimed.
\getenv abs_srcdir PG_ABS_SRCDIR
\set shop :abs_srcdir '/sql/include/shop.sql'
\i :shop

SELECT * FROM shop.callback('charge.paid', 'PARK01', 'ch_park01', event_id => 'evt_park01', occurred_at => '2026-01-01 10:00Z');
SELECT order_id, gateway_reference, verdict FROM payguard.evidence WHERE gateway_reference = 'PARK01';
-- delivered again: still waiting
SELECT * FROM shop.callback('charge.paid', 'PARK01', 'ch_park01', event_id => 'evt_park01', occurred_at => '2026-01-01 10:00Z');
SELECT deliveries, verdict FROM payguard.evidence WHERE gateway_reference = 'PARK01';
-- the order is made: paid at once, and says so
SELECT reference, status, created FROM payguard.create_order(399.00, 'CNY', 'shop', 'PARK01');
SELECT * FROM shop.look('PARK01');
SELECT call_by, gateway_reference, provider_id FROM payguard.attempts WHERE gateway_reference = 'PARK01';
SELECT paid_at AT TIME ZONE 'UTC' AS paid_at, gateway FROM payguard.orders WHERE reference = 'PARK01';
-- delivered once more: known
SELECT * FROM shop.callback('charge.paid', 'PARK01', 'ch_park01', event_id => 'evt_park01', occurred_at => '2026-01-01 10:00Z');
SELECT * FROM shop.claim('PARK01');
-- a fact about a later attempt whose claim this ledger lost belongs to the order as well
SELECT * FROM shop.callback('charge.paid', 'PARK02_r3', 'ch_park02');
SELECT status FROM payguard.create_order(399.00, 'CNY', 'shop', 'PARK02');
SELECT status, attempts, payments FROM shop.look('PARK02');
SELECT gateway_reference FROM payguard.attempts WHERE provider_id = 'ch_park02';
SELECT no, call_by FROM payguard.attempts WHERE gateway_reference = 'PARK02_r3';
-- the same when the order is there already
SELECT shop.make('PARK09', 'failed');
SELECT * FROM shop.callback('charge.paid', 'PARK09_r2', 'ch_park09');
SELECT status, attempts, payments, events FROM shop.look('PARK09');
-- but not one that only looks alike
SELECT verdict FROM shop.callback('charge.paid', 'PARK03X', 'ch_park03x');
SELECT verdict FROM shop.callback('charge.paid', 'PARK03_rx', 'ch_park03rx');
SELECT status FROM payguard.create_order(399.00, 'CNY', 'shop', 'PARK03');
SELECT evidence FROM shop.look('PARK03');
-- failed and pending wait for the claim, and for more than one fact the outcome is that of any order
SELECT verdict FROM shop.callback('charge.pending', 'PARK04', 'ch_park04');
SELECT verdict FROM shop.callback('charge.failed', 'PARK04', 'ch_park04');
SELECT status FROM payguard.create_order(399.00, 'CNY', 'shop', 'PARK04');
SELECT * FROM shop.claim('PARK04');
SELECT status, attempts, evidence, calls FROM shop.look('PARK04');
-- wrong money that came first does not make the order paid
SELECT verdict FROM shop.callback('charge.paid', 'PARK05', 'ch_park05', 39901);
SELECT status FROM payguard.create_order(399.00, 'CNY', 'shop', 'PARK05');
SELECT status, attempts, payments, evidence, events, review FROM shop.look('PARK05');
-- money that came first for a customer who buys once
SELECT verdict FROM shop.callback('charge.paid', 'PARK06', 'ch_park06');
SELECT status, created FROM payguard.create_order(399.00, 'CNY', 'shop', 'PARK06', 'di', 'seat', true);
SELECT events FROM shop.look('PARK06');
SELECT status, created FROM payguard.create_order(399.00, 'CNY', 'shop', 'PARK07', 'di', 'seat', true);
-- a transaction that is undone leaves the fact waiting
SELECT verdict FROM shop.callback('charge.paid', 'PARK08', 'ch_park08');
BEGIN;
SELECT status FROM payguard.create_order(399.00, 'CNY', 'shop', 'PARK08');
ROLLBACK;
SELECT verdict, order_id FROM payguard.evidence WHERE gateway_reference = 'PARK08';
SELECT status FROM payguard.create_order(399.00, 'CNY', 'shop', 'PARK08');
SELECT * FROM shop.damage();
