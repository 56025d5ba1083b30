-- Money is exact: every ISO 4217 exponent, nothing rounded, nothing absurd accepted, and the gateway gets minor units to the digit.
\getenv abs_srcdir PG_ABS_SRCDIR
\set shop :abs_srcdir '/sql/include/shop.sql'
\i :shop

CREATE FUNCTION pg_temp.minor(amount numeric, currency text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	ref text := (payguard.create_order(amount, currency, 'shop')).reference;
BEGIN
	PERFORM payguard.claim_order(ref, 'money-' || ref);
	RETURN (SELECT substring(convert_from(x.request, 'UTF8') FROM '"amount":.*"currency":"..."') FROM payguard.outbox x JOIN payguard.orders o ON o.id = x.order_id WHERE o.reference = ref);
END
$$;
SELECT a, c, pg_temp.minor(a, c) FROM (VALUES (399.00, 'CNY'), (399, 'CNY'), (0.01, 'USD'), (0.10, 'USD'), (0.29, 'EUR'), (1.15, 'EUR'), (19.99, 'GBP'), (1000000.01, 'CHF'), (399.0000000, 'CNY'),
	(1, 'JPY'), (5000, 'KRW'), (5000.00, 'VND'), (1.000, 'KWD'), (0.001, 'BHD'), (12.345, 'TND'), (1.2345, 'CLF'), (999999999999999.99, 'USD'), (99999999999999999, 'JPY'), (99999999999999.999, 'KWD')) AS v (a, c);
-- what is stored has the currency's decimals
SELECT count(payguard.create_order(a, c, reference => 'MONEY-' || c)) FROM (VALUES (7, 'CNY'), (7.0, 'JPY'), (7, 'KWD')) AS v (a, c);
SELECT currency, amount FROM payguard.orders WHERE reference LIKE 'MONEY-%' ORDER BY 1;
-- refused: more decimals than there are, and none is rounded away
SELECT a, c, shop.fails(format('SELECT payguard.create_order(%s, %L)', a, c)) FROM (VALUES ('0.001', 'CNY'), ('399.005', 'USD'), ('0.5', 'JPY'), ('1.0001', 'KWD'), ('0.00001', 'CLF')) AS v (a, c);
-- nothing, less than nothing, no number, too much
SELECT a, shop.fails(format('SELECT payguard.create_order(%s, %L)', a, 'CNY')) FROM unnest(ARRAY['0', '0.00', '-1', '-0.01', '''NaN''', '''Infinity''', '''-Infinity''', '1e15', '1000000000000000', '1e100', '1e-20', 'NULL']) AS a;
SELECT a, shop.fails(format('SELECT payguard.create_order(%s, %L)', a, 'JPY')) FROM unnest(ARRAY['100000000000000000', '1e131000']) AS a;
-- currencies that are none
SELECT c, shop.fails(format('SELECT payguard.create_order(1, %L)', c)) FROM unnest(ARRAY['cny', 'RMB', 'XXX', 'XTS', 'XAU', 'DEM', '', 'CN', 'CNYY', 'C Y', '156', '¥', NULL]) AS c;
-- the same at the application's report
SELECT shop.make('MONEY1', 'processing');
SELECT a, c, shop.fails(format('SELECT payguard.record_attempt(%L, %L, %L, %s, %s)', shop.token('MONEY1'), 'paid', 'ch_money1', a, c)) FROM (VALUES ('399.001', '''CNY'''), ('''NaN''', '''CNY'''), ('-399', '''CNY'''), ('0', '''CNY'''), ('399.00', '''cny'''), ('399.00', 'NULL'), ('NULL', '''CNY''')) AS v (a, c);
-- 399 and 399.00 are the same money; 399.00 of another currency is not
SELECT * FROM shop.report('MONEY1', 'paid', 'ch_money1', 399, 'CNY');
-- a callback's amounts: exact integers in minor units, nothing else
CREATE TEMP TABLE said AS SELECT n, m, 'MONEY2-' || n AS ref FROM unnest(ARRAY['39900', '"39900"', '39900.0', '39900.5', '-39900', '0', 'true', 'null', '[39900]', '{"a": 1}', '"399.00"', '"39,900"', '1e400', '99999999999999999999999999']) WITH ORDINALITY AS a (m, n);
SELECT count(shop.make(ref, 'processing')) FROM said;
SELECT count(*) FROM said, shop.callback('charge.paid', ref, 'ch_' || ref, NULL, more => format('{"amount": %s}', m)::jsonb);
SELECT m, status, payments, evidence FROM said, shop.look(ref) ORDER BY n;
-- the tables hold the line as well
\set VERBOSITY terse
INSERT INTO payguard.orders (reference, amount, currency) VALUES ('MONEY3', 0, 'CNY');
INSERT INTO payguard.orders (reference, amount, currency) VALUES ('MONEY3', 'NaN', 'CNY');
INSERT INTO payguard.orders (reference, amount, currency) VALUES ('MONEY3', 'Infinity', 'CNY');
INSERT INTO payguard.orders (reference, amount, currency) VALUES ('MONEY3', 1, 'cny');
INSERT INTO payguard.payments (gateway, provider_id, order_id, counted, state, amount, currency, paid_at) SELECT 'shop', 'ch_money3', id, true, 'paid', -1, 'CNY', now() FROM payguard.orders WHERE reference = 'MONEY1';
