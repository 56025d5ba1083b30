-- Decision table, R10: pending keeps the current attempt waiting and the gateway asked; late it is stale, and after an inferred failure a person is asked.
\getenv abs_srcdir PG_ABS_SRCDIR
\set shop :abs_srcdir '/sql/include/shop.sql'
\i :shop

SELECT * FROM shop.row('PEND', ARRAY['created', 'processing', 'unknown', 'pending', 'failed', 'closed', 'paid', 'refunded', 'reversed'], 'charge.pending', more => '{"client": {"qr": "x"}}');
SELECT provider_id, client FROM payguard.attempts WHERE gateway_reference IN ('PEND-processing', 'PEND-unknown', 'PEND-pending', 'PEND-paid') ORDER BY gateway_reference COLLATE "C";
-- order stays unknown, its attempt is pending: the fact says that the gateway has it
SELECT * FROM shop.claim('PEND-unknown');
-- unknown after pending moves nothing
SELECT * FROM shop.report('PEND-processing', 'unknown');
SELECT status, attempts FROM shop.look('PEND-processing');
-- a failure that payguard inferred, and the gateway says that the charge is there after all
SELECT shop.make('PEND-inferred', 'processing');
SELECT * FROM shop.report('PEND-inferred', 'not_sent');
SELECT verdict FROM shop.callback('charge.pending', 'PEND-inferred', 'ch_inferred');
SELECT * FROM shop.look('PEND-inferred');
-- and its money is booked in any case
SELECT verdict FROM shop.callback('charge.paid', 'PEND-inferred', 'ch_inferred');
SELECT status, attempts, payments, events, calls FROM shop.look('PEND-inferred');
-- an older attempt
SELECT shop.make('PEND-old', 'failed');
SELECT * FROM shop.claim('PEND-old');
SELECT verdict FROM shop.callback('charge.pending', 'PEND-old', 'ch_pendold');
SELECT status, attempts, review FROM shop.look('PEND-old');
-- "authorized" and the like are not paid: no type of that name is known, so nothing is made of it
SELECT verdict FROM shop.callback('charge.authorized', 'PEND-old_r2', 'ch_pendold');
SELECT * FROM shop.damage();
