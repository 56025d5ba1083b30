-- why() tells an order's whole story and what happens next, without secrets; it reads only.
\getenv abs_srcdir PG_ABS_SRCDIR
\set shop :abs_srcdir '/sql/include/shop.sql'
\i :shop

CREATE FUNCTION pg_temp.story(ref text) RETURNS TABLE (what text, detail text) LANGUAGE sql AS $$
	SELECT w.what, regexp_replace(regexp_replace(w.detail, '\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?([+-]\d\d(:\d\d)?)?|[A-Z][a-z]{2} [A-Z][a-z]{2} \d\d [0-9:.]+ \d{4}( [A-Z]+)?', 'TIME', 'g'), '\(?evidence \d+\)?', 'evidence N', 'g') FROM payguard.why(ref) AS w
$$;
SELECT shop.make('WHYS01', 'created');
SELECT * FROM pg_temp.story('WHYS01');
SELECT verdict FROM shop.claim('WHYS01', 'worker');
SELECT * FROM pg_temp.story('WHYS01');
SELECT verdict FROM shop.callback('charge.failed', 'WHYS01', 'ch_whys01', more => '{"code": "card_declined", "message": "no funds"}');
SELECT * FROM pg_temp.story('WHYS01');
SELECT payguard.record_attempt(shop.token(c.ref, 2), 'pending', 'ch_whys02', client => '{"qr": "secret-of-the-page"}') IS NOT NULL AS reported FROM (SELECT 'WHYS01' AS ref, (shop.claim('WHYS01')).verdict OFFSET 0) AS c;
SELECT verdict FROM shop.callback('charge.paid', 'WHYS01_r2', 'ch_whys02', 39901);
SELECT verdict FROM shop.callback('charge.paid', 'WHYS01_r2', 'ch_whys03', event_id => 'evt_whys');
SELECT verdict FROM shop.callback('charge.paid', 'WHYS01_r2', 'ch_whys03', event_id => 'evt_whys');
SELECT verdict FROM shop.callback('charge.reversed', 'WHYS01_r2', 'ch_whys03', occurred_at => '2026-01-02 10:00Z');
SELECT * FROM pg_temp.story('WHYS01');
-- in the order of time, and the last rows say what is next
SELECT bool_and(at >= before) AS in_order FROM (SELECT at, lag(at, 1, at) OVER () AS before FROM payguard.why('WHYS01') WHERE what <> 'next') AS w;
-- no token, no key, no client data
SELECT count(*) FROM payguard.why('WHYS01') WHERE detail ~ 'l1_|secret-of-the-page|whsec|key-of-the-tests' OR detail LIKE '%' || shop.token('WHYS01', 2) || '%';
-- an order that waits for an application, one that is unknown, one that nobody can help by itself
SELECT shop.make('WHYS02', 'processing'), shop.make('WHYS03', 'unknown'), shop.make('WHYS04', 'closed');
SELECT detail FROM pg_temp.story('WHYS02') WHERE what = 'next';
SELECT detail FROM pg_temp.story('WHYS03') WHERE what = 'next';
SELECT detail FROM pg_temp.story('WHYS04') WHERE what = 'next';
BEGIN READ ONLY;
SELECT count(*) > 1 AS told FROM payguard.why('WHYS01');
ROLLBACK;
SELECT shop.fails($$SELECT payguard.why('WHYS99')$$);
