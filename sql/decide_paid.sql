-- Decision table, R15, R17: paid and all matches, in every state of the order; the same id again is a duplicate, another id is surplus.
\getenv abs_srcdir PG_ABS_SRCDIR
\set shop :abs_srcdir '/sql/include/shop.sql'
\i :shop

SELECT * FROM shop.row('PAIDS', ARRAY['created', 'processing', 'unknown', 'pending', 'failed', 'closed', 'paid', 'refunded', 'reversed'], 'charge.paid');
SELECT * FROM shop.row('PAIDO', ARRAY['paid', 'refunded', 'reversed'], 'charge.paid', 'other_');
-- money that no claim of ours asked for: the door makes the attempt
SELECT no, call_by, mode, gateway, gateway_reference, provider_id, request_key FROM payguard.attempts WHERE gateway_reference IN ('PAIDS-created', 'PAIDS-closed') ORDER BY 5;
-- told of an older attempt while a newer one is out: the order is paid, the newer one is to be closed, and its money would be surplus
SELECT shop.make('PAIDA-1', 'failed');
SELECT * FROM shop.claim('PAIDA-1');
SELECT verdict FROM shop.callback('charge.paid', 'PAIDA-1', 'ch_paida1');
SELECT * FROM shop.look('PAIDA-1');
SELECT verdict FROM shop.callback('charge.paid', 'PAIDA-1_r2', 'ch_paida2');
SELECT * FROM shop.look('PAIDA-1');
-- a newer attempt that has not left yet is stopped by payguard's own evidence, so that it never does
SELECT shop.make('PAIDA-2', 'failed');
SELECT * FROM shop.claim('PAIDA-2', 'worker');
SELECT verdict FROM shop.callback('charge.paid', 'PAIDA-2', 'ch_paida3');
SELECT * FROM shop.look('PAIDA-2');
-- by the application's own report, and that of an older token
SELECT shop.make('PAIDA-3', 'unknown');
SELECT * FROM shop.report('PAIDA-3', 'paid', 'ch_paida4', 399, 'CNY');
SELECT * FROM shop.report('PAIDA-3', 'paid', 'ch_paida5', 399, 'CNY');
SELECT * FROM shop.look('PAIDA-3');
-- the surplus of one order is nobody else's: one row for each payment, and it does not move the order when it is reversed
SELECT verdict, now FROM shop.callback('charge.reversed', 'PAIDA-3', 'ch_paida5');
SELECT verdict, now FROM shop.callback('charge.reversed', 'PAIDA-3', 'ch_paida5');
SELECT verdict, now FROM shop.callback('charge.reinstated', 'PAIDA-3', 'ch_paida5', occurred_at => clock_timestamp() + interval '1 s');
SELECT status, payments, events FROM shop.look('PAIDA-3');
SELECT * FROM shop.damage();
