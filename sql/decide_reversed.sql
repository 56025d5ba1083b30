-- Decision table, R17: a reversal after payment is not lost and the latest word on it holds, in every order of arrival; before payment it waits.
\getenv abs_srcdir PG_ABS_SRCDIR
\set shop :abs_srcdir '/sql/include/shop.sql'
\i :shop

SELECT * FROM shop.row('REVE', ARRAY['created', 'processing', 'unknown', 'pending', 'failed', 'closed', 'paid', 'refunded', 'reversed'], 'charge.reversed');
SELECT * FROM shop.row('REIN', ARRAY['created', 'processing', 'unknown', 'failed', 'closed', 'paid', 'refunded', 'reversed'], 'charge.reinstated');
-- older than what the state rests on: kept, not applied
SELECT * FROM shop.row('REVO', ARRAY['reversed'], 'charge.reinstated', occurred_at => '2026-01-01 12:00Z');
SELECT * FROM shop.row('REVT', ARRAY['reversed'], 'charge.reinstated', occurred_at => '2026-01-02 10:00Z');
-- reversed, reinstated, and the same reversal again
SELECT shop.make('REVE-1', 'reversed');
SELECT verdict, now FROM shop.callback('charge.reinstated', 'REVE-1', 'ch_reve-1', occurred_at => '2026-01-03 10:00Z');
SELECT verdict, now FROM shop.callback('charge.reversed', 'REVE-1', 'ch_reve-1', occurred_at => '2026-01-02 10:00Z');
SELECT verdict, now FROM shop.callback('charge.reinstated', 'REVE-1', 'ch_reve-1', occurred_at => '2026-01-03 10:00Z');
SELECT verdict, now FROM shop.callback('charge.reversed', 'REVE-1', 'ch_reve-1', occurred_at => '2026-01-04 10:00Z');
SELECT status, payments, events FROM shop.look('REVE-1');
-- what waited is judged as soon as the money is known
SELECT verdict, now FROM shop.callback('charge.paid', 'REVE-processing', 'ch_reve-processing', occurred_at => '2026-01-01 10:00Z');
SELECT * FROM shop.look('REVE-processing');
SELECT verdict, now FROM shop.callback('charge.paid', 'REVE-closed', 'ch_reve-closed', occurred_at => '2026-01-01 10:00Z');
SELECT * FROM shop.look('REVE-closed');
-- told by a query, which is believed: booked and reversed in one step
SELECT shop.make('REVE-q', 'created');
SELECT shop.plant('REVE-q', 'query', 'reversed', 'ch_reveq', 399.00, 'CNY');
SELECT verdict, status FROM shop.claim('REVE-q');
SELECT * FROM shop.look('REVE-q');
-- the same for a payment that was a mismatch until then
SELECT shop.make('REVE-m', 'processing');
SELECT verdict FROM shop.callback('charge.paid', 'REVE-m', 'ch_revem', 39901);
SELECT shop.plant('REVE-m', 'query', 'reversed', 'ch_revem', 399.00, 'CNY');
SELECT verdict, status FROM shop.report('REVE-m', 'unknown');
SELECT * FROM shop.look('REVE-m');
-- a query's reversal of other money stays beside the books
SELECT shop.make('REVE-x', 'processing');
SELECT shop.plant('REVE-x', 'query', 'reversed', 'ch_revex', 400.00, 'CNY');
SELECT verdict, status FROM shop.report('REVE-x', 'unknown');
SELECT * FROM shop.look('REVE-x');
-- a reversal of a payment that is not this order's counted one waits for it
SELECT shop.make('REVE-s', 'paid');
SELECT verdict, now FROM shop.callback('charge.reversed', 'REVE-s', 'ch_surplus');
SELECT verdict, now FROM shop.callback('charge.paid', 'REVE-s', 'ch_surplus');
SELECT status, payments, evidence FROM shop.look('REVE-s');
SELECT * FROM shop.damage();
