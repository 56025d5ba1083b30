-- R6: gateway reference and idempotency key depend on order reference and attempt number only, and the request's bytes are frozen by the claim.
\getenv abs_srcdir PG_ABS_SRCDIR
\set shop :abs_srcdir '/sql/include/shop.sql'
\i :shop

SELECT shop.make('DERIVE01', 'created');
SELECT gateway_reference, idempotency_key FROM payguard.claim_order('DERIVE01', 'derive01-1', payment => '{"token": "tok_1"}');
-- pinned: a change of these forms would make one purchase two to a gateway
SELECT convert_from(x.request, 'UTF8') FROM payguard.outbox x JOIN payguard.orders o ON o.id = x.order_id WHERE o.reference = 'DERIVE01';
-- the same claim in a ledger that lost it (here: undone) yields the same reference, key and bytes
BEGIN;
SELECT shop.make('DERIVE02', 'created');
SELECT gateway_reference, idempotency_key FROM payguard.claim_order('DERIVE02', 'derive02-1') \gset lost_
SELECT encode(sha256(x.request), 'hex') AS lost_bytes FROM payguard.outbox x JOIN payguard.orders o ON o.id = x.order_id WHERE o.reference = 'DERIVE02' \gset
ROLLBACK;
SELECT shop.make('DERIVE02', 'created');
SELECT gateway_reference = :'lost_gateway_reference' AS reference, idempotency_key = :'lost_idempotency_key' AS key
	FROM payguard.claim_order('DERIVE02', 'quite-another-request-key');
SELECT encode(sha256(x.request), 'hex') = :'lost_bytes' AS bytes FROM payguard.outbox x JOIN payguard.orders o ON o.id = x.order_id WHERE o.reference = 'DERIVE02';
-- a decline: the next attempt has a reference and a key of its own, and they are pinned as well
SELECT * FROM shop.callback('charge.failed', 'DERIVE01', 'ch_derive01');
SELECT attempt_no, gateway_reference, idempotency_key FROM payguard.claim_order('DERIVE01', 'derive01-2', payment => '{"token": "tok_2"}');
SELECT convert_from(x.request, 'UTF8') FROM payguard.outbox x JOIN payguard.orders o ON o.id = x.order_id WHERE o.reference = 'DERIVE01';
-- the secret is computed at sending, not kept
SELECT count(*) FROM payguard.outbox WHERE position('key-of-the-tests'::bytea IN request) > 0;
-- a change of the gateway's configuration leaves frozen bytes as they are
SELECT encode(sha256(x.request), 'hex') AS bytes FROM payguard.outbox x JOIN payguard.orders o ON o.id = x.order_id WHERE o.reference = 'DERIVE01' \gset
ALTER SERVER shop OPTIONS (SET base_url 'https://moved.example');
SELECT verdict FROM payguard.claim_order('DERIVE01', 'derive01-2', payment => '{"token": "tok_2"}');
SELECT encode(sha256(x.request), 'hex') = :'bytes' AS same FROM payguard.outbox x JOIN payguard.orders o ON o.id = x.order_id WHERE o.reference = 'DERIVE01';
ALTER SERVER shop OPTIONS (SET base_url 'https://pay.example');
-- after success nothing is left to send
SELECT * FROM shop.callback('charge.paid', 'DERIVE01_r2', 'ch_derive01b');
SELECT count(*) FROM payguard.outbox x JOIN payguard.orders o ON o.id = x.order_id WHERE o.reference = 'DERIVE01';
