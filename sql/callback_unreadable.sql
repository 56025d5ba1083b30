-- R16: a signed body that is not understood is stored, acknowledged and put before a person; a type that means nothing here is acknowledged and not stored.
\getenv abs_srcdir PG_ABS_SRCDIR
\set shop :abs_srcdir '/sql/include/shop.sql'
\i :shop

SELECT shop.make('BODY-' || n, 'processing') FROM generate_series(1, 4) AS n;
CREATE FUNCTION pg_temp.say(body bytea, OUT verdict text, OUT http_status integer, OUT reference text, OUT status text, OUT stored boolean, OUT note text) LANGUAGE plpgsql AS $$
DECLARE
	stored_id bigint;
	event text := 'evt_' || gen_random_uuid();
	ts text := floor(extract(epoch FROM clock_timestamp()))::bigint;
BEGIN
	SELECT r.verdict, r.http_status, r.reference, r.status, r.evidence_id INTO verdict, http_status, reference, status, stored_id
	FROM payguard.apply_callback('shop', jsonb_build_object('webhook-id', event, 'webhook-timestamp', ts, 'webhook-signature',
		'v1,' || encode(hmac(convert_to(event || '.' || ts || '.', 'UTF8') || body, decode('cGF5Z3VhcmQtdGVzdC13ZWJob29rLWtl', 'base64'), 'sha256'), 'base64')), body) AS r;
	stored := stored_id IS NOT NULL;
	SELECT e.note INTO note FROM payguard.evidence e WHERE e.id = stored_id;
END
$$;
-- no JSON, cut JSON, other JSON, bytes that are no text, a NUL, a member twice, a tower of brackets, a long number
SELECT left(b, 30) AS body, s.* FROM unnest(ARRAY['', 'hello', '{', '{"type": "charge.paid"', '[]', '"charge.paid"', '42', 'null', '{}', '{"data": {}}', '{"type": 1, "data": 2}', '{"type": "charge.paid"}', '{"type": "charge.paid", "data": null}', '{"type": "charge.paid", "data": {"status": "paid"}}',
	'{"type": "charge.paid", "data": {"status": "paid", "reference": "BODY-1", "reference": "BODY-2", "id": "ch_x", "amount": 39900, "currency": "CNY"}}',
	'{"type": "charge.paid", "data": {"status": "paid", "reference": {"$ne": null}, "id": ["ch_x"], "amount": 39900, "currency": "CNY"}}',
	repeat('[', 100000), '{"type": "charge.paid", "data": {"status": "paid", "reference": "BODY-1", "id": "' || repeat('9', 5000) || '"}}']) WITH ORDINALITY AS v (b, n), pg_temp.say(convert_to(b, 'UTF8')) AS s ORDER BY n;
SELECT s.* FROM (VALUES ('\xff00fe'::bytea), ('\x7b22747970650022'), ('\xefbbbf7b7d')) AS v (b), pg_temp.say(b) AS s;
-- type and status must agree, else neither is believed
SELECT t, x, s.* FROM (VALUES ('charge.paid', 'failed'), ('charge.failed', 'paid'), ('charge.paid', 'pending'), ('charge.reversed', 'paid'), ('charge.reinstated', 'reversed'), ('charge.closed', NULL), ('charge.paid', 'PAID')) AS v (t, x), pg_temp.say(convert_to(shop.body(t, 'BODY-2', 'ch_body2', status => COALESCE(x, '')), 'UTF8')) AS s;
SELECT status, payments, review FROM shop.look('BODY-2');
-- types that mean nothing here
SELECT t, s.* FROM unnest(ARRAY['charge.updated', 'payout.paid', 'ping', 'CHARGE.PAID', 'charge.paid ', 'charge.paid2']) AS t, pg_temp.say(convert_to(shop.body(t, 'BODY-3', 'ch_body3', status => 'paid'), 'UTF8')) AS s;
SELECT evidence FROM shop.look('BODY-3');
-- text that jsonb or a text column cannot hold is no reason to refuse
SELECT s.* FROM pg_temp.say(convert_to('{"type": "charge.failed", "data": {"status": "failed", "reference": "BODY-4", "id": "ch_body4", "code": "a\u0000b", "message": "x\ud800y \u0000", "amount": 39900, "currency": "CNY"}}', 'UTF8')) AS s;
SELECT status, attempts FROM shop.look('BODY-4');
SELECT code, message FROM payguard.evidence WHERE gateway_reference = 'BODY-4' AND source = 'callback';
-- extra members, big or deep, do not matter
SELECT s.verdict FROM pg_temp.say(convert_to(shop.body('charge.paid', 'BODY-3', 'ch_body3', more => jsonb_build_object('x', repeat('x', 500000), 'y', '{"a": [[[1]]]}'::jsonb)), 'UTF8')) AS s;
-- the same unreadable body again only counts
SELECT count(*) AS rows, sum(deliveries) AS deliveries FROM payguard.evidence WHERE verdict = 'unreadable' AND digest = sha256('nonsense');
SELECT verdict FROM payguard.apply_callback('shop', shop.sign('nonsense', 'evt_body'), 'nonsense');
SELECT verdict FROM payguard.apply_callback('shop', shop.sign('nonsense', 'evt_body'), 'nonsense');
SELECT count(*) AS rows, sum(deliveries) AS deliveries FROM payguard.evidence WHERE verdict = 'unreadable' AND digest = sha256('nonsense');
SELECT * FROM shop.damage();
