-- R21: request_refund: once for each key, one at a time for a payment, never above what was paid; the states that follow.
\getenv abs_srcdir PG_ABS_SRCDIR
\set shop :abs_srcdir '/sql/include/shop.sql'
\i :shop
\i :abs_srcdir/sql/include/refunds.sql

-- nothing to give back
SELECT shop.make('REFUND-1', 'created'), shop.make('REFUND-2', 'processing'), shop.make('REFUND-3', 'failed'), shop.make('REFUND-4', 'reversed');
SELECT r, a.* FROM unnest(ARRAY['REFUND-1', 'REFUND-2', 'REFUND-3', 'REFUND-4']) AS r, shop.refund(r, 'k1', 1) AS a;
SELECT shop.fails($$SELECT payguard.request_refund('REFUND-NONE', 'k')$$);
-- requested, the same again, another parameter under the same key; the same amount written otherwise is the same
SELECT shop.make('REFUND-5', 'paid');
SELECT * FROM shop.refund('REFUND-5', 'k1', 100);
SELECT * FROM shop.refund('REFUND-5', 'k1', 100);
SELECT * FROM shop.refund('REFUND-5', 'k1', 100.00);
SELECT regexp_replace(shop.fails($$SELECT payguard.request_refund('REFUND-5', 'k1', 101)$$), 'refund \d+', 'refund N');
SELECT regexp_replace(shop.fails($$SELECT payguard.request_refund('REFUND-5', 'k1')$$), 'refund \d+', 'refund N');
SELECT regexp_replace(shop.fails($$SELECT payguard.request_refund('REFUND-5', 'k1', 100, NULL, 'application')$$), 'refund \d+', 'refund N');
-- another key while one is under way: that one is handed back
SELECT * FROM shop.refund('REFUND-5', 'k2', 50);
SELECT * FROM shop.refunds('REFUND-5');
-- its reference and key are made of the order and the request: the same wherever they are made again
SELECT gateway_reference ~ '^R[0-9A-F]+$' AS reference, idempotency_key <> gateway_reference AS key, lease_token IS NULL AS no_lease, charge_id
	FROM payguard.request_refund('REFUND-5', 'k1', 100);
-- the worker's answer
SELECT shop.refund_fact('REFUND-5', 'k1', 'refund.succeeded', 10000);
SELECT * FROM shop.refunds('REFUND-5');
SELECT * FROM shop.refund('REFUND-5', 'k1', 100);
-- never above what is left; the default is all of it
SELECT shop.fails($$SELECT payguard.request_refund('REFUND-5', 'k3', 299.01)$$);
SELECT * FROM shop.refund('REFUND-5', 'k3');
SELECT shop.refund_fact('REFUND-5', 'k3', 'refund.succeeded', 29900);
SELECT * FROM shop.refunds('REFUND-5');
SELECT status, payments, events, review, calls FROM shop.look('REFUND-5');
SELECT shop.fails($$SELECT payguard.request_refund('REFUND-5', 'k4')$$);
SELECT shop.fails($$SELECT payguard.request_refund('REFUND-5', 'k4', 0.01)$$);
-- one that is processing lets another of another amount through, and none of the same
SELECT shop.make('REFUND-6', 'paid');
SELECT * FROM shop.refund('REFUND-6', 'k1', 100, 'application');
SELECT * FROM shop.refund_report('REFUND-6', 'k1', 'pending', 're_6');
SELECT * FROM shop.refund('REFUND-6', 'k2', 100);
SELECT * FROM shop.refund('REFUND-6', 'k3', 99);
SELECT * FROM shop.refund('REFUND-6', 'k4', 98);
SELECT * FROM shop.refunds('REFUND-6');
-- the application calls the gateway: a lease, and the result by record_attempt
SELECT shop.make('REFUND-7', 'paid');
SELECT created, verdict, lease_token ~ '^l1_\d+_r\d+_' AS token, lease_until > now() AS live FROM payguard.request_refund('REFUND-7', 'k1', 100, 'broken', 'application');
SELECT * FROM shop.refund('REFUND-7', 'k1', 100, 'application');
SELECT op, state, next_run_at > now() AS later FROM payguard.outbox x JOIN payguard.orders o ON o.id = x.order_id WHERE o.reference = 'REFUND-7';
SELECT * FROM shop.refund_report('REFUND-7', 'k1', 'succeeded', 're_7', 100, 'CNY');
SELECT * FROM shop.refunds('REFUND-7');
SELECT shop.fails(format('SELECT payguard.record_attempt(%L, ''paid'')', lease_token)) FROM payguard.refunds r JOIN payguard.orders o ON o.id = r.order_id WHERE o.reference = 'REFUND-7';
-- not sent by the application: failed, and the money is there again; unknown counts as given back
SELECT * FROM shop.refund('REFUND-7', 'k2', 299, 'application');
SELECT * FROM shop.refund_report('REFUND-7', 'k2', 'not_sent');
SELECT * FROM shop.refund('REFUND-7', 'k3', 299, 'application');
SELECT * FROM shop.refund_report('REFUND-7', 'k3', 'unknown');
SELECT * FROM shop.refund('REFUND-7', 'k4', 299);
SELECT * FROM shop.refund_report('REFUND-7', 'k3', 'not_sent');
SELECT * FROM shop.refund_report('REFUND-7', 'k3', 'failed');
SELECT * FROM shop.refunds('REFUND-7');
SELECT status, payments, events, review, calls FROM shop.look('REFUND-7');
-- an uncounted payment has its own way back and its own limit
SELECT shop.make('REFUND-8', 'paid');
SELECT verdict FROM shop.callback('charge.paid', 'REFUND-8', 'ch_second');
SELECT * FROM shop.refund('REFUND-8', 'k1', NULL, 'worker', 'ch_second');
SELECT * FROM shop.refund('REFUND-8', 'k2', 399);
SELECT shop.fails($$SELECT payguard.request_refund('REFUND-8', 'k3', 1, provider_id => 'ch_third')$$);
SELECT shop.refund_fact('REFUND-8', 'k1', 'refund.succeeded', 39900);
SELECT * FROM shop.refunds('REFUND-8');
SELECT status, payments FROM shop.look('REFUND-8');
-- money that did not match is given back although its order was never paid
SELECT shop.make('REFUND-9', 'processing');
SELECT verdict FROM shop.callback('charge.paid', 'REFUND-9', 'ch_refund-9', 39800);
SELECT * FROM shop.refund('REFUND-9', 'k1');
SELECT * FROM shop.refund('REFUND-9', 'k2', 398, 'worker', 'ch_refund-9');
SELECT shop.refund_fact('REFUND-9', 'k2', 'refund.succeeded', 39800);
SELECT * FROM shop.refunds('REFUND-9');
SELECT status, payments FROM shop.look('REFUND-9');
-- what the followers are told
SELECT type, payload - 'refund_id' AS payload FROM payguard.events WHERE aggregateid = 'REFUND-5' AND type LIKE 'refund.%' ORDER BY seq LIMIT 1;
SELECT * FROM shop.damage();
