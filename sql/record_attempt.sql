-- R23: an application's claim is a lease with an owner token; what its owner tells by record_attempt decides, each result as the table says.
\getenv abs_srcdir PG_ABS_SRCDIR
\set shop :abs_srcdir '/sql/include/shop.sql'
\i :shop

SELECT shop.make('APP001', 'created');
SELECT claimed, verdict, status, lease_token ~ '^l1_[0-9]+_1_[0-9a-f]{16}$' AS token,
	lease_until BETWEEN clock_timestamp() + interval '39 s' AND clock_timestamp() + interval '40 s' AS default_lease
	FROM payguard.claim_order('APP001', 'app001', call_by => 'application');
SELECT attempts, calls FROM shop.look('APP001');
SELECT call_by, state, sent_at IS NOT NULL AS sent FROM payguard.attempts WHERE gateway_reference = 'APP001';
-- the query that asks what became of it if the application never tells is due when the lease ends, and no bytes are kept to be sent
SELECT x.op, x.next_run_at = a.lease_until AS at_lease_end, x.request FROM payguard.outbox x
	JOIN payguard.attempts a ON a.order_id = x.order_id AND a.no = x.attempt_no WHERE a.gateway_reference = 'APP001';
-- every result
SELECT r, shop.make('APP-' || r, 'processing') FROM unnest(ARRAY['paid', 'failed', 'closed', 'pending', 'unknown', 'not_sent']) AS r;
SELECT * FROM shop.report('APP-paid', 'paid', 'ch_app', 399.00, 'CNY');
SELECT * FROM shop.look('APP-paid');
SELECT * FROM shop.report('APP-failed', 'failed', code => 'declined');
SELECT * FROM shop.look('APP-failed');
SELECT * FROM shop.report('APP-closed', 'closed');
SELECT * FROM shop.look('APP-closed');
SELECT * FROM shop.report('APP-pending', 'pending', 'ch_app_pending');
SELECT * FROM shop.look('APP-pending');
SELECT * FROM shop.report('APP-unknown', 'unknown');
SELECT * FROM shop.look('APP-unknown');
-- not_sent is believed from a live lease that told nothing else
SELECT * FROM shop.report('APP-not_sent', 'not_sent');
SELECT * FROM shop.look('APP-not_sent');
-- but not after it told that the charge is pending or unknown
SELECT * FROM shop.report('APP-pending', 'not_sent');
SELECT * FROM shop.report('APP-unknown', 'not_sent');
SELECT attempts, evidence, calls FROM shop.look('APP-unknown');
-- a second report: the same again, then another
SELECT * FROM shop.report('APP-paid', 'paid', 'ch_app', 399.00, 'CNY');
SELECT * FROM shop.report('APP-paid', 'failed');
SELECT * FROM shop.report('APP-failed', 'failed');
SELECT * FROM shop.report('APP-failed', 'paid', 'ch_app_late', 399.00, 'CNY');
SELECT * FROM shop.report('APP-unknown', 'failed');
SELECT status, attempts, payments, evidence, events FROM shop.look('APP-failed');
-- what is told besides
SELECT shop.make('APP002', 'processing');
SELECT verdict FROM payguard.record_attempt(shop.token('APP002'), 'pending', 'ch_app2', 399, 'CNY', 'in_review', 'a "message" 消息',
	'{"url": "https://pay.example/x"}', '{"raw": [1, null]}', '2026-01-01 10:00Z');
SELECT provider_id, client, code, message FROM payguard.attempts WHERE gateway_reference = 'APP002';
SELECT source, result, provider_id, amount, currency, code, message, payload, occurred_at AT TIME ZONE 'UTC' AS occurred_at, deliveries, digest
	FROM payguard.evidence WHERE gateway_reference = 'APP002';
SELECT * FROM shop.damage();
