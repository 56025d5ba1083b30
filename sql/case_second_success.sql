-- Case bank: a second success, or the same one with other money, breaks no rule that could roll its own evidence back: it is kept, answered and put before a person.
\getenv abs_srcdir PG_ABS_SRCDIR
\set shop :abs_srcdir '/sql/include/shop.sql'
\i :shop

SELECT shop.make('SECOND1', 'paid');
-- another charge, by hand or of an older release; and once more
SELECT * FROM shop.callback('charge.paid', 'SECOND1', 'ch_second1b', event_id => 'evt_second1b', occurred_at => '2026-01-01 11:00Z');
SELECT * FROM shop.callback('charge.paid', 'SECOND1', 'ch_second1b', event_id => 'evt_second1b', occurred_at => '2026-01-01 11:00Z');
-- the same event id with other money, and the paid charge with other money
SELECT * FROM shop.callback('charge.paid', 'SECOND1', 'ch_second1b', 40000, event_id => 'evt_second1b', occurred_at => '2026-01-01 11:00Z');
SELECT * FROM shop.callback('charge.paid', 'SECOND1', 'ch_second1', 40000, occurred_at => '2026-01-01 11:00Z');
SELECT * FROM shop.look('SECOND1');
-- inside the caller's savepoint, and with a failure of the caller's own after it that the caller catches
DO $$
BEGIN
	PERFORM shop.callback('charge.paid', 'SECOND1', 'ch_second1c', event_id => 'evt_second1c', occurred_at => '2026-01-01 12:00Z');
	BEGIN
		PERFORM 1 / 0;
	EXCEPTION WHEN division_by_zero THEN
		NULL;
	END;
END
$$;
SELECT p.provider_id, p.counted, p.reason FROM payguard.payments p JOIN payguard.orders o ON o.id = p.order_id WHERE o.reference = 'SECOND1' ORDER BY 1;
-- what the caller itself rolls back is lost, whatever was done; the gateway was not answered, so it comes again
BEGIN;
SELECT verdict FROM shop.callback('charge.paid', 'SECOND1', 'ch_second1d', event_id => 'evt_second1d', occurred_at => '2026-01-01 13:00Z');
ROLLBACK;
SELECT count(*) FROM payguard.evidence WHERE provider_id = 'ch_second1d';
SELECT verdict, http_status FROM shop.callback('charge.paid', 'SECOND1', 'ch_second1d', event_id => 'evt_second1d', occurred_at => '2026-01-01 13:00Z');
-- the customer owns one thing, and nothing is counted twice
SELECT status, (SELECT count(*) FROM payguard.events WHERE aggregateid = 'SECOND1' AND type = 'order.paid') AS paid_events FROM payguard.order_status('SECOND1');
SELECT * FROM shop.damage();
