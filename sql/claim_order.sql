-- R2, R5: claim_order gives claimed = true to one caller only; everybody else gets the order's state as a normal answer.
\getenv abs_srcdir PG_ABS_SRCDIR
\set shop :abs_srcdir '/sql/include/shop.sql'
\i :shop

SELECT created FROM payguard.create_order(399.00, 'CNY', 'shop', 'CLAIM01');
SELECT claimed, verdict, status, attempt_no, gateway, gateway_reference, lease_token, lease_until, client
	FROM payguard.claim_order('CLAIM01', 'claim01-a');
SELECT * FROM shop.look('CLAIM01');
-- another key: somebody is at it
SELECT claimed, verdict, status, attempt_no, gateway_reference, lease_token FROM payguard.claim_order('CLAIM01', 'claim01-b');
-- the same key and parameters: the first call's answer, and still no second go-ahead
SELECT claimed, verdict, status, attempt_no, gateway_reference, lease_token FROM payguard.claim_order('CLAIM01', 'claim01-a');
SELECT claimed, verdict FROM payguard.claim_order('CLAIM01', 'claim01-a', 'shop', 'worker', '{}');
SELECT count(*) FROM payguard.attempts a JOIN payguard.orders o ON o.id = a.order_id WHERE o.reference = 'CLAIM01';
-- a losing claim stores nothing
SELECT shop.counts() AS before \gset
SELECT verdict FROM payguard.claim_order('CLAIM01', 'claim01-c');
SELECT verdict FROM payguard.claim_order('CLAIM01', 'claim01-a');
SELECT shop.counts() = :'before' AS same;
-- paid
SELECT * FROM shop.callback('charge.paid', 'CLAIM01', 'ch_claim01');
SELECT claimed, verdict, status FROM payguard.claim_order('CLAIM01', 'claim01-d');
SELECT claimed, verdict, status FROM payguard.claim_order('CLAIM01', 'claim01-a');
SELECT * FROM shop.callback('charge.reversed', 'CLAIM01', 'ch_claim01');
SELECT claimed, verdict, status FROM payguard.claim_order('CLAIM01', 'claim01-d');
-- unknown, closed, and failed, which a new key may claim again
SELECT shop.make('CLAIM02', 'unknown'), shop.make('CLAIM03', 'closed'), shop.make('CLAIM04', 'failed');
SELECT claimed, verdict, status FROM payguard.claim_order('CLAIM02', 'claim02');
SELECT claimed, verdict, status, attempt_no FROM payguard.claim_order('CLAIM03', 'claim03');
SELECT claimed, verdict, status, attempt_no, gateway_reference FROM payguard.claim_order('CLAIM04', 'claim04');
SELECT status, attempts, calls FROM shop.look('CLAIM04');
-- a fact that waited for the order says that the charge failed: the caller learns it and need not call
SELECT shop.make('CLAIM05', 'created');
SELECT * FROM shop.callback('charge.failed', 'CLAIM05', 'ch_claim05');
SELECT claimed, verdict, status, attempt_no, lease_token FROM payguard.claim_order('CLAIM05', 'claim05', call_by => 'application');
SELECT * FROM shop.look('CLAIM05');
-- the page's data come with every answer while the charge is pending, and no longer
SELECT shop.make('CLAIM06', 'created');
SELECT * FROM shop.claim('CLAIM06', key => 'claim06');
SELECT verdict, status FROM payguard.record_attempt(shop.token('CLAIM06'), 'pending', 'ch_claim06', client => '{"qr": "weixin://x"}');
SELECT verdict, client FROM payguard.claim_order('CLAIM06', 'claim06-b');
SELECT verdict, client FROM payguard.claim_order('CLAIM06', 'claim06', call_by => 'application');
SELECT * FROM shop.callback('charge.paid', 'CLAIM06', 'ch_claim06');
SELECT verdict, client FROM payguard.claim_order('CLAIM06', 'claim06-b');
-- no order, no gateway
SELECT shop.fails($$SELECT payguard.claim_order('CLAIM99', 'claim99')$$);
SELECT created FROM payguard.create_order(399.00, 'CNY', NULL, 'CLAIM07');
SELECT shop.fails($$SELECT payguard.claim_order('CLAIM07', 'claim07')$$);
SELECT claimed, verdict, gateway FROM payguard.claim_order('CLAIM07', 'claim07', 'shop');
SELECT gateway FROM payguard.orders WHERE reference = 'CLAIM07';
SELECT * FROM shop.damage();
