-- R16: what is not signed by the gateway's secret, or too old, is refused with 400 and stores nothing; several secrets and signatures may be in use.
\getenv abs_srcdir PG_ABS_SRCDIR
\set shop :abs_srcdir '/sql/include/shop.sql'
\i :shop

SELECT shop.make('SIGN01', 'processing');
SELECT shop.body('charge.paid', 'SIGN01', 'ch_sign01') AS body \gset
SELECT shop.counts() AS before \gset
CREATE FUNCTION pg_temp.send(headers jsonb, body text DEFAULT shop.body('charge.paid', 'SIGN01', 'ch_sign01'),
	OUT verdict text, OUT http_status integer, OUT response_body text, OUT reference text, OUT status text, OUT stored boolean, OUT reason text)
	LANGUAGE sql AS $$
	SELECT r.verdict, r.http_status, r.response_body, r.reference, r.status, r.evidence_id IS NOT NULL, v.reason
	FROM payguard.apply_callback('shop', headers, convert_to(body, 'UTF8')) AS r, payguard.verify_callback('shop', headers, convert_to(body, 'UTF8')) AS v
$$;
-- another secret, another body, another id, another time, no signature, another scheme, nothing at all
SELECT * FROM pg_temp.send(shop.sign(:'body', 'evt_sign01', secret => 'bm90LXRoZS1zZWNyZXQ='));
SELECT * FROM pg_temp.send(shop.sign(:'body' || ' ', 'evt_sign01'));
SELECT * FROM pg_temp.send(shop.sign(:'body', 'evt_sign01') || '{"webhook-id": "evt_sign02"}');
SELECT * FROM pg_temp.send(shop.sign(:'body', 'evt_sign01', clock_timestamp() - interval '10 s') || jsonb_build_object('webhook-timestamp', extract(epoch FROM now())::bigint::text));
SELECT * FROM pg_temp.send(shop.sign(:'body', 'evt_sign01') - 'webhook-signature');
SELECT * FROM pg_temp.send(shop.sign(:'body', 'evt_sign01') - 'webhook-timestamp');
SELECT * FROM pg_temp.send(shop.sign(:'body', 'evt_sign01') - 'webhook-id');
SELECT * FROM pg_temp.send(jsonb_set(shop.sign(:'body', 'evt_sign01'), '{webhook-signature}', to_jsonb(replace(shop.sign(:'body', 'evt_sign01') ->> 'webhook-signature', 'v1,', 'v2,'))));
SELECT * FROM pg_temp.send('{}');
-- other shapes of headers
SELECT * FROM pg_temp.send('{"webhook-id": 1, "webhook-timestamp": null, "webhook-signature": {"v1": "x"}}');
SELECT * FROM pg_temp.send('{"webhook-signature": "v1,"}' || (shop.sign(:'body', 'evt_sign01') - 'webhook-signature'));
-- too old and too early, by one second each; the tolerance is 300 seconds
SELECT * FROM pg_temp.send(shop.sign(:'body', 'evt_sign01', clock_timestamp() - interval '302 s'));
SELECT * FROM pg_temp.send(shop.sign(:'body', 'evt_sign01', clock_timestamp() + interval '302 s'));
SELECT shop.counts() = :'before' AS nothing_stored;
-- names of headers in any case, values in a list, several signatures of which one is right
SELECT * FROM pg_temp.send((SELECT jsonb_object_agg(upper(key), jsonb_build_array(value)) FROM jsonb_each(shop.sign(:'body', 'evt_sign01'))));
SELECT * FROM pg_temp.send(jsonb_set(shop.sign(:'body', 'evt_sign02'), '{webhook-signature}',
	to_jsonb('v1,AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA= v1a,x ' || (shop.sign(:'body', 'evt_sign02') ->> 'webhook-signature'))));
SELECT verdict, http_status FROM pg_temp.send(shop.sign(:'body', 'evt_sign03', clock_timestamp() - interval '298 s'));
-- a header that counts and is there twice is refused
SELECT * FROM pg_temp.send(shop.sign(:'body', 'evt_sign04') || jsonb_build_object('Webhook-Signature', 'v1,AAAA'));
-- secrets are rotated: old and new are both good, then only the new one
ALTER USER MAPPING FOR PUBLIC SERVER shop OPTIONS (SET webhook_secret 'whsec_bmV3LXNlY3JldC1uZXctc2VjcmV0  whsec_cGF5Z3VhcmQtdGVzdC13ZWJob29rLWtl');
SELECT verdict FROM pg_temp.send(shop.sign(:'body', 'evt_sign05'));
SELECT verdict FROM pg_temp.send(shop.sign(:'body', 'evt_sign06', secret => 'bmV3LXNlY3JldC1uZXctc2VjcmV0'));
ALTER USER MAPPING FOR PUBLIC SERVER shop OPTIONS (SET webhook_secret 'whsec_bmV3LXNlY3JldC1uZXctc2VjcmV0');
SELECT verdict FROM pg_temp.send(shop.sign(:'body', 'evt_sign05'));
SELECT verdict FROM pg_temp.send(shop.sign(:'body', 'evt_sign07', secret => 'bmV3LXNlY3JldC1uZXctc2VjcmV0'));
-- without a secret no callback is believed
ALTER USER MAPPING FOR PUBLIC SERVER shop OPTIONS (DROP webhook_secret);
SELECT shop.fails($$SELECT pg_temp.send(shop.sign('x', 'evt'))$$);
ALTER USER MAPPING FOR PUBLIC SERVER shop OPTIONS (ADD webhook_secret 'whsec_cGF5Z3VhcmQtdGVzdC13ZWJob29rLWtl');
-- a secret that is not base64, or empty after its prefix, agrees with nothing
CREATE SERVER sign_bad FOREIGN DATA WRAPPER payguard OPTIONS (adapter 'generic', base_url 'https://sign.example');
CREATE USER MAPPING FOR PUBLIC SERVER sign_bad OPTIONS (webhook_secret 'whsec_');
SELECT verdict FROM shop.callback('charge.paid', 'SIGN01', 'ch_sign01', gateway => 'sign_bad');
SELECT verdict FROM payguard.apply_callback('sign_bad', shop.sign('{}', 'evt', secret => ''), '{}');
ALTER USER MAPPING FOR PUBLIC SERVER sign_bad OPTIONS (SET webhook_secret 'not base64!');
SELECT verdict FROM shop.callback('charge.paid', 'SIGN01', 'ch_sign01', gateway => 'sign_bad');
DROP SERVER sign_bad CASCADE;
SELECT status, payments, events FROM shop.look('SIGN01');
