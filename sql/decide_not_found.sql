-- Decision table, R7, R9: not_found proves nothing before it settles, nothing where something positive was known, and is needed twice.
\getenv abs_srcdir PG_ABS_SRCDIR
\set shop :abs_srcdir '/sql/include/shop.sql'
\i :shop

-- The facts of status queries are planted; a payment of other money, which moves no state, has them judged.
CREATE FUNCTION pg_temp.settle(ref text) RETURNS void LANGUAGE sql AS $$
	UPDATE payguard.attempts SET sent_at = now() - interval '1 hour', lease_until = CASE WHEN call_by = 'application' THEN now() - interval '1 hour' END
	WHERE gateway_reference = ref
$$;
CREATE FUNCTION pg_temp.judge(ref text) RETURNS text LANGUAGE sql AS $$
	SELECT (shop.callback('charge.paid', ref, 'ch_odd_' || ref, 1)).now
$$;
SELECT shop.make('NFND-' || n, 'created') FROM generate_series(1, 7) AS n;
SELECT r.verdict FROM generate_series(1, 3) AS n, shop.claim('NFND-' || n, 'worker') AS r;
SELECT r.verdict FROM generate_series(4, 7) AS n, shop.claim('NFND-' || n) AS r;
-- before the settle time: asked again, however often it is told
SELECT count(shop.plant('NFND-1', 'query', 'not_found')) FROM generate_series(1, 3);
SELECT pg_temp.judge('NFND-1');
SELECT status, attempts, evidence, review, calls FROM shop.look('NFND-1');
-- after it, once: not enough
SELECT pg_temp.settle('NFND-2'), pg_temp.settle('NFND-4');
SELECT shop.plant('NFND-2', 'query', 'not_found'), shop.plant('NFND-4', 'query', 'not_found');
SELECT pg_temp.judge('NFND-2'), pg_temp.judge('NFND-4');
SELECT status, attempts, evidence, review, calls FROM shop.look('NFND-2');
SELECT status, attempts, evidence, review, calls FROM shop.look('NFND-4');
-- twice: an application's charge has failed; the worker's bytes may go again, for this gateway would see one purchase
SELECT shop.plant('NFND-2', 'query', 'not_found'), shop.plant('NFND-4', 'query', 'not_found');
SELECT a.verdict, b.verdict FROM shop.callback('charge.paid', 'NFND-2', 'ch_odd2_NFND-2', 1) AS a, shop.callback('charge.paid', 'NFND-4', 'ch_odd2_NFND-4', 1) AS b;
SELECT status, attempts, evidence, events, calls FROM shop.look('NFND-2');
SELECT status, attempts, evidence, events, calls FROM shop.look('NFND-4');
SELECT note FROM payguard.evidence WHERE gateway_reference = 'NFND-2' AND note IS NOT NULL AND result = 'not_found';
-- something positive was known, so that it must be somewhere: never failed, a person is asked
SELECT verdict FROM shop.callback('charge.pending', 'NFND-5', 'ch_nfnd5');
SELECT pg_temp.settle('NFND-5');
SELECT count(shop.plant('NFND-5', 'query', 'not_found')) FROM generate_series(1, 3);
SELECT pg_temp.judge('NFND-5');
SELECT status, attempts, evidence, review, calls FROM shop.look('NFND-5');
-- the gateway does not find a payment that it told of, after the settle time
SELECT verdict FROM shop.callback('charge.paid', 'NFND-6', 'ch_nfnd6');
SELECT pg_temp.settle('NFND-6');
SELECT shop.plant('NFND-6', 'query', 'not_found');
SELECT pg_temp.judge('NFND-6');
SELECT status, attempts, evidence, review FROM shop.look('NFND-6');
-- about a failed or an older attempt: stale
SELECT * FROM shop.report('NFND-7', 'failed');
SELECT shop.plant('NFND-7', 'query', 'not_found');
SELECT verdict FROM shop.claim('NFND-7');
SELECT status, attempts, evidence, review FROM shop.look('NFND-7');
SELECT * FROM shop.damage();
