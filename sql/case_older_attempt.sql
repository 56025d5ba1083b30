-- Case bank: what is told of an older attempt touches that attempt alone; late money for it is booked, and words that end a trade do not end a payment.
\getenv abs_srcdir PG_ABS_SRCDIR
\set shop :abs_srcdir '/sql/include/shop.sql'
\i :shop

-- the first card was declined, the second paid
SELECT shop.make('OLDER01', 'failed');
SELECT * FROM shop.claim('OLDER01');
SELECT * FROM shop.callback('charge.paid', 'OLDER01_r2', 'ch_older01_r2', occurred_at => '2026-01-01 10:00Z');
-- the decline again, under a new id and half an hour later; the page that was left open expires a month later
SELECT verdict, http_status, "now" FROM shop.callback('charge.failed', 'OLDER01', 'ch_older01', occurred_at => '2026-01-01 10:30Z');
SELECT verdict, http_status, "now" FROM shop.callback('charge.closed', 'OLDER01', 'ch_older01', occurred_at => '2026-02-01 10:00Z');
SELECT verdict, http_status, "now" FROM shop.callback('charge.pending', 'OLDER01', 'ch_older01', occurred_at => '2026-02-01 10:00Z');
-- "closed" and "failed" about the attempt that paid, at once and three months later: the trade is over, the money stays
SELECT verdict, http_status, "now" FROM shop.callback('charge.closed', 'OLDER01_r2', 'ch_older01_r2', occurred_at => '2026-01-01 10:00Z');
SELECT verdict, http_status, "now" FROM shop.callback('charge.closed', 'OLDER01_r2', 'ch_older01_r2', occurred_at => '2026-04-01 10:00Z');
SELECT verdict, http_status, "now" FROM shop.callback('charge.failed', 'OLDER01_r2', 'ch_older01_r2', occurred_at => '2026-04-01 10:00Z');
SELECT * FROM shop.look('OLDER01');
-- the bank approves the declined card after all: the order is paid twice, and a person is told
SELECT verdict, http_status, "now" FROM shop.callback('charge.paid', 'OLDER01', 'ch_older01', occurred_at => '2026-01-03 10:00Z');
SELECT status, attempts, payments, review FROM shop.look('OLDER01');
-- the same for an order that still waits for its second attempt: the money counts, the second attempt is stopped
SELECT shop.make('OLDER02', 'failed');
SELECT * FROM shop.claim('OLDER02', 'worker');
SELECT verdict, "now" FROM shop.callback('charge.paid', 'OLDER02', 'ch_older02', occurred_at => '2026-01-03 10:00Z');
SELECT status, attempts, payments, events, calls FROM shop.look('OLDER02');
-- and for an order that nobody pays any more
SELECT shop.make('OLDER03', 'failed');
SELECT verdict, "now" FROM shop.callback('charge.paid', 'OLDER03', 'ch_older03', occurred_at => '2026-01-03 10:00Z');
SELECT status, payments, events FROM shop.look('OLDER03');
SELECT shop.make('OLDER04', 'closed');
SELECT verdict, "now" FROM shop.callback('charge.paid', 'OLDER04', 'ch_older04', occurred_at => '2026-01-03 10:00Z');
SELECT status, payments, events, review FROM shop.look('OLDER04');
-- an early word of a payment that is under way starts nothing: no event before paid
SELECT shop.make('OLDER05', 'processing');
SELECT verdict, "now" FROM shop.callback('charge.pending', 'OLDER05', 'ch_older05', occurred_at => '2026-01-01 10:00Z');
SELECT verdict, "now" FROM shop.callback('charge.pending', 'OLDER05', 'ch_older05', occurred_at => '2026-01-01 10:01Z');
SELECT status, attempts, events FROM shop.look('OLDER05');
SELECT * FROM shop.damage();
