-- R23: a lapsed or older lease is fenced: what says nothing definite moves nothing, definite facts decide all the same, and no second charge comes of it.
\getenv abs_srcdir PG_ABS_SRCDIR
\set shop :abs_srcdir '/sql/include/shop.sql'
\i :shop

SELECT shop.make(r, 'created') FROM unnest(ARRAY['FENCE01', 'FENCE02', 'FENCE03', 'FENCE04', 'FENCE05']) AS r;
SELECT r, c.* FROM unnest(ARRAY['FENCE01', 'FENCE02', 'FENCE03', 'FENCE04']) AS r, shop.claim(r, lease => '1 millisecond') AS c;
SELECT pg_sleep(0.01);
-- the lease has lapsed, and nobody else may charge
SELECT * FROM shop.claim('FENCE01');
SELECT * FROM shop.report('FENCE01', 'not_sent');
SELECT * FROM shop.report('FENCE02', 'unknown');
SELECT status, attempts, evidence, calls FROM shop.look('FENCE01');
SELECT status, attempts, evidence, calls FROM shop.look('FENCE02');
-- definite facts count, pending too
SELECT * FROM shop.report('FENCE01', 'failed');
SELECT * FROM shop.report('FENCE02', 'pending', 'ch_fence02');
SELECT * FROM shop.report('FENCE03', 'paid', 'ch_fence03', 399.00, 'CNY');
SELECT * FROM shop.report('FENCE04', 'closed');
SELECT status, attempts, evidence FROM shop.look('FENCE03');
-- a lapsed lease cannot be renewed
SELECT shop.fails($$SELECT payguard.renew_claim(shop.token('FENCE02'), '1 minute')$$);
-- the token of an older attempt speaks of that attempt only
SELECT * FROM shop.claim('FENCE01');
SELECT * FROM shop.report('FENCE01', 'not_sent');
SELECT * FROM shop.report('FENCE01', 'unknown');
SELECT * FROM shop.report('FENCE01', 'failed');
SELECT status, attempts FROM shop.look('FENCE01');
-- even its money, which then settles the order, and the newer attempt is to be closed
SELECT * FROM shop.report('FENCE01', 'paid', 'ch_fence01', 399.00, 'CNY');
SELECT * FROM shop.look('FENCE01');
-- renewing counts from now and keeps the token
SELECT * FROM shop.claim('FENCE05', lease => '1 minute');
SELECT payguard.renew_claim(shop.token('FENCE05'), '1 hour') BETWEEN clock_timestamp() + interval '59 min' AND clock_timestamp() + interval '61 min' AS renewed;
SELECT payguard.renew_claim(shop.token('FENCE05'), '1 minute') > clock_timestamp() AS renewed;
SELECT lease_until < clock_timestamp() + interval '2 min' AS shorter FROM payguard.attempts WHERE gateway_reference = 'FENCE05';
-- not after a report
SELECT * FROM shop.report('FENCE05', 'unknown');
SELECT shop.fails($$SELECT payguard.renew_claim(shop.token('FENCE05'), '1 hour')$$);
-- tokens that nobody gave out, or that belong to another
SELECT shop.fails(format('SELECT payguard.record_attempt(%L, %L)', t, 'paid')) FROM (VALUES ('x'), ('l1_1_1_0000000000000000'), ('l1_999999999999_1_0000000000000000'),
	('l1_1_r1_0000000000000000'), ('l1_99999999999999999999_1_0000000000000000'), ('l1_1_1_000000000000000G')) AS v (t);
SELECT shop.fails(format('SELECT payguard.record_attempt(%L, %L)', regexp_replace(shop.token('FENCE05'), '.{4}$', '0000'), 'paid'));
SELECT shop.fails(format('SELECT payguard.renew_claim(%L, %L)', t, '1 minute')) FROM (VALUES ('x'), ('l1_1_1_0000000000000000')) AS v (t);
SELECT shop.fails(format('SELECT payguard.renew_claim(shop.token(%L), %L)', 'FENCE05', i)) FROM (VALUES ('0'), ('-1 s'), ('8 days'), (NULL)) AS v (i);
SELECT shop.fails($$SELECT payguard.claim_order('FENCE05', 'k', lease => '1 minute')$$);
SELECT * FROM shop.damage();
