-- Case bank: a gateway's id that is longer than an index could hold loses no payment: the fact is kept and the gateway is asked; nothing fails.
\getenv abs_srcdir PG_ABS_SRCDIR
\set shop :abs_srcdir '/sql/include/shop.sql'
\i :shop

SELECT shop.make('LONGID' || n, 'processing') FROM generate_series(1, 6) AS n;
SELECT n, length, (shop.callback('charge.paid', 'LONGID' || n, 'ch_' || n || repeat(md5(n::text), length / 32), event_id => 'evt_long' || n, occurred_at => '2026-01-01 10:00Z')).*
	FROM (VALUES (1, 64), (2, 255), (3, 600), (4, 3000), (5, 100000)) AS v (n, length);
SELECT o.reference, l.status, l.review, (SELECT length(provider_id) FROM payguard.payments p WHERE p.order_id = o.id) AS id_kept, l.calls
	FROM payguard.orders o, shop.look(o.reference) AS l WHERE o.reference LIKE 'LONGID%' ORDER BY 1;
-- two ids that differ only at their ends are two
SELECT verdict FROM shop.callback('charge.paid', 'LONGID6', 'ch_' || repeat('a', 240) || 'x', occurred_at => '2026-01-01 10:00Z');
SELECT verdict FROM shop.callback('charge.paid', 'LONGID6', 'ch_' || repeat('a', 240) || 'y', occurred_at => '2026-01-01 10:00Z');
SELECT shop.fails($$SELECT shop.report('LONGID3', 'paid', repeat('x', 3000), 399.00, 'CNY')$$);
SELECT * FROM shop.damage();
