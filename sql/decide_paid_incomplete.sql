-- Decision table: paid without id or without money is only a hint; the gateway is asked and the state stays.
\getenv abs_srcdir PG_ABS_SRCDIR
\set shop :abs_srcdir '/sql/include/shop.sql'
\i :shop

CREATE FUNCTION pg_temp.hint(prefix text, state text, without text, OUT was text, OUT verdict text, OUT status text, OUT attempts text, OUT payments text, OUT events text, OUT review text, OUT calls text)
	LANGUAGE plpgsql AS $$
DECLARE
	reference text := prefix || '-' || state;
	body text;
BEGIN
	was := shop.make(reference, state);
	body := (shop.body('charge.paid', reference, 'ch_' || lower(reference))::jsonb #- ARRAY['data', without])::text;
	SELECT r.verdict INTO verdict FROM payguard.apply_callback('shop', shop.sign(body, 'evt_' || gen_random_uuid()), convert_to(body, 'UTF8')) AS r;
	SELECT l.status, l.attempts, l.payments, l.events, l.review, l.calls INTO status, attempts, payments, events, review, calls FROM shop.look(reference) AS l;
END
$$;
SELECT c.* FROM unnest(ARRAY['created', 'processing', 'unknown', 'pending', 'failed', 'closed', 'paid', 'reversed']) AS s, pg_temp.hint('NOID', s, 'id') AS c;
SELECT c.* FROM unnest(ARRAY['created', 'processing', 'unknown', 'pending', 'failed', 'closed', 'paid', 'reversed']) AS s, pg_temp.hint('NOAM', s, 'amount') AS c;
SELECT c.* FROM unnest(ARRAY['created', 'processing', 'paid']) AS s, pg_temp.hint('NOCU', s, 'currency') AS c;
-- an order that was paid by another id: this one may be a second payment, and the gateway is asked
SELECT shop.make('NOID-8', 'paid');
SELECT verdict FROM shop.callback('charge.paid', 'NOID-8', 'ch_other', NULL);
SELECT status, payments, evidence, calls FROM shop.look('NOID-8');
-- the application's own report without id or money
SELECT shop.make('NOID-9', 'processing');
SELECT * FROM shop.report('NOID-9', 'paid');
SELECT * FROM shop.report('NOID-9', 'paid', 'ch_noid9');
SELECT * FROM shop.report('NOID-9', 'paid', NULL, 399.00, 'CNY');
SELECT * FROM shop.look('NOID-9');
SELECT note FROM payguard.evidence WHERE gateway_reference = 'NOID-9' LIMIT 1;
-- the gateway is asked at once, and only once
SELECT x.op, x.next_run_at <= clock_timestamp() AS due FROM payguard.outbox x JOIN payguard.orders o ON o.id = x.order_id WHERE o.reference = 'NOID-9';
SELECT * FROM shop.damage();
