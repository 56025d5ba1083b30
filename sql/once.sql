-- R20: once per customer and product: an open order is found again, a paid one is not sold twice, a closed one frees its place.
\getenv abs_srcdir PG_ABS_SRCDIR
\set shop :abs_srcdir '/sql/include/shop.sql'
\i :shop

SELECT reference, status, created FROM payguard.create_order(99, 'CNY', 'shop', 'ONCE01', 'bo', 'course', true);
-- the same purchase by another call, even with another reference: that order
SELECT reference, status, created FROM payguard.create_order(99, 'CNY', 'shop', 'ONCE02', 'bo', 'course', true);
SELECT reference, status, created FROM payguard.create_order(99, 'CNY', 'shop', NULL, 'bo', 'course', true);
SELECT shop.fails($$SELECT payguard.create_order(98, 'CNY', 'shop', 'ONCE02', 'bo', 'course', true)$$);
-- another customer, another product, or a purchase that is not once
SELECT created FROM payguard.create_order(99, 'CNY', 'shop', 'ONCE03', 'cy', 'course', true);
SELECT created FROM payguard.create_order(99, 'CNY', 'shop', 'ONCE04', 'bo', 'book', true);
SELECT created FROM payguard.create_order(99, 'CNY', 'shop', 'ONCE05', 'bo', 'course', false);
SELECT shop.fails($$SELECT payguard.create_order(99, 'CNY', 'shop', 'ONCE06', 'bo', NULL, true)$$);
SELECT shop.fails($$SELECT payguard.create_order(99, 'CNY', 'shop', 'ONCE06', NULL, 'course', true)$$);
-- paid: the customer holds it, and whoever buys again is shown the paid order
SELECT * FROM shop.claim('ONCE01');
SELECT reference, status, created FROM payguard.create_order(99, 'CNY', 'shop', NULL, 'bo', 'course', true);
SELECT * FROM shop.callback('charge.paid', 'ONCE01', 'ch_once01', 9900, occurred_at => '2026-01-01 10:00Z');
SELECT o.reference FROM payguard.entitlements t JOIN payguard.orders o ON o.id = t.order_id WHERE t.customer = 'bo' AND t.product = 'course';
SELECT reference, status, created FROM payguard.create_order(99, 'CNY', 'shop', 'ONCE07', 'bo', 'course', true);
SELECT events FROM shop.look('ONCE01');
-- reversed: nothing is held any more, and it may be bought again
SELECT * FROM shop.callback('charge.reversed', 'ONCE01', 'ch_once01', 9900, occurred_at => '2026-01-02 10:00Z');
SELECT count(*) FROM payguard.entitlements WHERE customer = 'bo' AND product = 'course';
SELECT reference, status, created FROM payguard.create_order(99, 'CNY', 'shop', 'ONCE08', 'bo', 'course', true);
-- the first is reinstated meanwhile: it holds the purchase again, its place is taken by the new order
SELECT * FROM shop.callback('charge.reinstated', 'ONCE01', 'ch_once01', 9900, occurred_at => '2026-01-03 10:00Z');
SELECT o.reference FROM payguard.entitlements t JOIN payguard.orders o ON o.id = t.order_id WHERE t.customer = 'bo' AND t.product = 'course';
-- so the new one can be neither claimed nor made again
SELECT * FROM shop.claim('ONCE08');
SELECT can_pay FROM payguard.order_status('ONCE08');
SELECT reference, status, created FROM payguard.create_order(99, 'CNY', 'shop', NULL, 'bo', 'course', true);
-- money that arrives for it all the same is booked, and a person is asked
SELECT * FROM shop.callback('charge.paid', 'ONCE08', 'ch_once08', 9900, occurred_at => '2026-01-04 10:00Z');
SELECT status, payments, events, review FROM shop.look('ONCE08');
SELECT o.reference FROM payguard.entitlements t JOIN payguard.orders o ON o.id = t.order_id WHERE t.customer = 'bo' AND t.product = 'course';
SELECT * FROM shop.damage();
