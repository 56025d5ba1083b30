-- R1, R5, R20: create_order makes an order once for each reference; a generated reference is unpredictable; other money is PG001.
\getenv abs_srcdir PG_ABS_SRCDIR
\set shop :abs_srcdir '/sql/include/shop.sql'
\i :shop

-- a reference of the application's own
SELECT * FROM payguard.create_order(399.00, 'CNY', 'shop', 'CREATE01');
-- again: the same order, not a second one
SELECT * FROM payguard.create_order(399, 'CNY', 'shop', 'CREATE01');
SELECT count(*) FROM payguard.orders WHERE reference = 'CREATE01';
-- the repeated call may name another gateway or other metadata: the order stays as it was made
SELECT created, gateway FROM payguard.create_order(399.00, 'CNY', NULL, 'CREATE01', metadata => '{"a": 1}');
SELECT metadata FROM payguard.orders WHERE reference = 'CREATE01';

-- other money under the same reference is a mistake that names the existing order
SELECT shop.fails($$SELECT payguard.create_order(400.00, 'CNY', 'shop', 'CREATE01')$$);
SELECT shop.fails($$SELECT payguard.create_order(399.00, 'USD', 'shop', 'CREATE01')$$);

-- a generated reference: 24 characters of [0-9A-Z], all different, in the order of time
CREATE TEMP TABLE made AS
	SELECT n, (payguard.create_order(10, 'EUR', 'shop')).reference FROM generate_series(1, 200) AS n;
SELECT bool_and(reference ~ '^[0-9A-Z]{24}$') AS form, count(DISTINCT reference) AS different,
	count(DISTINCT substr(reference, 11)) AS random_parts FROM made;
SELECT bool_and(substr(a.reference, 1, 10) <= substr(b.reference, 1, 10)) AS by_time
	FROM made a JOIN made b ON b.n = a.n + 1;

-- without a gateway, the claim chooses one
SELECT * FROM payguard.create_order(0.01, 'USD', reference => 'CREATE02');
-- customer, product and metadata are kept as they are
SELECT created FROM payguard.create_order(5, 'JPY', 'shop', 'CREATE03', '顾客 42', 'a "product"', metadata => '{"cart": [1, 2]}');
SELECT customer, product, once, metadata, amount, currency, expires_at FROM payguard.orders WHERE reference = 'CREATE03';

-- references that could not be used at the gateway for every attempt
SELECT shop.fails($$SELECT payguard.create_order(1, 'CNY', 'shop', 'short')$$);
SELECT shop.fails($$SELECT payguard.create_order(1, 'CNY', 'shop', 'with blank')$$);
SELECT shop.fails($$SELECT payguard.create_order(1, 'CNY', 'shop', '.begins')$$);
SELECT shop.fails($$SELECT payguard.create_order(1, 'CNY', 'shop', 'ENDS-LIKE_r2')$$);
SELECT shop.fails($$SELECT payguard.create_order(1, 'CNY', 'shop', repeat('x', 60))$$);
SELECT shop.fails($$SELECT payguard.create_order(1, 'CNY', NULL, repeat('x', 65))$$);
SELECT created FROM payguard.create_order(1, 'CNY', 'shop', repeat('x', 59));
-- a suffix that is none
SELECT a.created, b.created FROM payguard.create_order(1, 'CNY', 'shop', 'ENDS-LIKE_r1') AS a, payguard.create_order(1, 'CNY', 'shop', 'ENDS-LIKE_r02') AS b;

-- a gateway that is not there
SELECT shop.fails($$SELECT payguard.create_order(1, 'CNY', 'shopp', 'CREATE04')$$);
-- a foreign server that is not payguard's is none
CREATE FOREIGN DATA WRAPPER create_other;
CREATE SERVER create_other FOREIGN DATA WRAPPER create_other;
SELECT shop.fails($$SELECT payguard.create_order(1, 'CNY', 'create_other', 'CREATE04')$$);
DROP FOREIGN DATA WRAPPER create_other CASCADE;
SELECT count(*) FROM payguard.orders WHERE reference = 'CREATE04';
SELECT * FROM shop.damage();
