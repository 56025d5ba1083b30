-- R20: an order that never reached a gateway expires; one whose charge is under way or whose money arrived late does not.
\getenv abs_srcdir PG_ABS_SRCDIR
\set shop :abs_srcdir '/sql/include/shop.sql'
\i :shop

SELECT reference, created, expires_at > clock_timestamp() AS later FROM payguard.create_order(399.00, 'CNY', 'shop', 'EXPIRY01', expires_in => '1 hour');
SELECT can_pay FROM payguard.order_status('EXPIRY01');
-- one that is past its time, as if an hour had gone by
SELECT created FROM payguard.create_order(399.00, 'CNY', 'shop', 'EXPIRY02', expires_in => '1 millisecond');
SELECT created FROM payguard.create_order(399.00, 'CNY', 'shop', 'EXPIRY03', expires_in => '1 millisecond');
SELECT pg_sleep(0.01);
SELECT can_pay FROM payguard.order_status('EXPIRY02');
SELECT * FROM shop.claim('EXPIRY02');
SELECT * FROM shop.look('EXPIRY02');
SELECT * FROM shop.claim('EXPIRY02');
-- money for an expired order is booked all the same
SELECT * FROM shop.callback('charge.paid', 'EXPIRY02', 'ch_expiry02');
SELECT status, attempts, payments, events FROM shop.look('EXPIRY02');
-- a fact that waits for the order keeps it from expiring: it is claimed, and the fact decides
SELECT * FROM shop.callback('charge.failed', 'EXPIRY03', 'ch_expiry03', more => '{"code": "declined"}');
SELECT * FROM shop.claim('EXPIRY03');
SELECT status, attempts, evidence FROM shop.look('EXPIRY03');
SELECT * FROM shop.claim('EXPIRY03');
SELECT status, attempts, evidence FROM shop.look('EXPIRY03');
-- an order under way does not expire by a claim
SELECT created FROM payguard.create_order(399.00, 'CNY', 'shop', 'EXPIRY04', expires_in => '200 milliseconds');
SELECT * FROM shop.claim('EXPIRY04');
SELECT pg_sleep(0.25);
SELECT * FROM shop.claim('EXPIRY04');
-- lengths that are none
SELECT shop.fails(format($$SELECT payguard.create_order(1, 'CNY', 'shop', 'EXPIRY05', expires_in => %L)$$, i))
	FROM unnest(ARRAY['0', '-1 hour', '11 years', '178000000 years', '2000000000 days']) AS i;
SELECT created FROM payguard.create_order(1, 'CNY', 'shop', 'EXPIRY05', expires_in => '3660 days');
SELECT * FROM shop.damage();
