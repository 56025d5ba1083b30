-- Case bank: an event is not taken for handled before the handling worked. It is kept, acknowledged, and judged again: when it comes again and when its order moves.
\getenv abs_srcdir PG_ABS_SRCDIR
\set shop :abs_srcdir '/sql/include/shop.sql'
\i :shop

-- a trigger of the application's own that fails when an order becomes paid
CREATE FUNCTION pg_temp.fail() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	RAISE EXCEPTION 'the mail server is away' USING ERRCODE = '58030';
END
$$;
CREATE FUNCTION pg_temp.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	RAISE EXCEPTION 'no stock';
END
$$;
SELECT shop.make(r, 'processing') FROM unnest(ARRAY['HANDLE1', 'HANDLE2', 'HANDLE3']) AS r;
CREATE TRIGGER mine AFTER UPDATE ON payguard.orders FOR EACH ROW WHEN (NEW.status = 'paid') EXECUTE FUNCTION pg_temp.refuse();
SELECT * FROM shop.callback('charge.paid', 'HANDLE1', 'ch_handle1', event_id => 'evt_handle1', occurred_at => '2026-01-01 10:00Z');
SELECT status, attempts, payments, evidence, events, review FROM shop.look('HANDLE1');
SELECT note FROM payguard.evidence WHERE event_id = 'evt_handle1';
-- the same event while it still fails: counted, and still not handled
SELECT verdict, http_status, "now" FROM shop.callback('charge.paid', 'HANDLE1', 'ch_handle1', event_id => 'evt_handle1', occurred_at => '2026-01-01 10:00Z');
SELECT verdict, http_status FROM shop.callback('charge.paid', 'HANDLE2', 'ch_handle2', event_id => 'evt_handle2', occurred_at => '2026-01-01 10:00Z');
-- an application's report of the same kind fails aloud, for its transaction can be repeated
SELECT shop.fails($$SELECT shop.report('HANDLE3', 'paid', 'ch_handle3', 399.00, 'CNY')$$);
-- the cause is gone: the duplicate does the work that was not done
DROP TRIGGER mine ON payguard.orders;
SELECT verdict, http_status, "now" FROM shop.callback('charge.paid', 'HANDLE1', 'ch_handle1', event_id => 'evt_handle1', occurred_at => '2026-01-01 10:00Z');
SELECT status, attempts, payments, evidence, events FROM shop.look('HANDLE1');
SELECT deliveries, verdict FROM payguard.evidence WHERE event_id = 'evt_handle1';
-- and so does any other fact that moves the order
SELECT * FROM shop.report('HANDLE2', 'failed');
SELECT status, attempts, payments, evidence, events FROM shop.look('HANDLE2');
SELECT * FROM shop.report('HANDLE3', 'paid', 'ch_handle3', 399.00, 'CNY');
-- what says nothing about the work, such as a server that is short of something, is not kept as a failure: the gateway is to come again
SELECT shop.make('HANDLE4', 'processing');
CREATE TRIGGER mine AFTER UPDATE ON payguard.orders FOR EACH ROW WHEN (NEW.status = 'paid') EXECUTE FUNCTION pg_temp.fail();
SELECT shop.fails($$SELECT shop.callback('charge.paid', 'HANDLE4', 'ch_handle4', event_id => 'evt_handle4', occurred_at => '2026-01-01 10:00Z')$$);
DROP TRIGGER mine ON payguard.orders;
SELECT verdict, "now" FROM shop.callback('charge.paid', 'HANDLE4', 'ch_handle4', event_id => 'evt_handle4', occurred_at => '2026-01-01 10:00Z');
SELECT * FROM shop.damage();
