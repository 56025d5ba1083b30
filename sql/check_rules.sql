-- check() has no rows in a healthy ledger, and one for each kind of damage that is planted past the guards.
\getenv abs_srcdir PG_ABS_SRCDIR
\set shop :abs_srcdir '/sql/include/shop.sql'
\i :shop

SELECT shop.make('CHECK-' || s, s) FROM unnest(ARRAY['created', 'processing', 'unknown', 'pending', 'paid', 'failed', 'closed', 'refunded', 'reversed']) AS s;
-- refunds: one that is under way, one that the application makes, one that has failed, one that has succeeded
SELECT shop.make('CHECK-r' || n, 'paid') FROM generate_series(1, 4) AS n;
SELECT verdict FROM payguard.request_refund('CHECK-r1', 'k', 100);
SELECT verdict FROM payguard.request_refund('CHECK-r2', 'k', 100, call_by => 'application');
SELECT verdict FROM payguard.request_refund('CHECK-r3', 'k', 100);
SELECT a.verdict FROM payguard.refunds r JOIN payguard.orders o ON o.id = r.order_id, payguard.resolve_refund(r.id, 'failed', 'a test') AS a WHERE o.reference = 'CHECK-r3';
SELECT verdict FROM payguard.request_refund('CHECK-r4', 'k');
SELECT a.verdict, a.status FROM payguard.refunds r JOIN payguard.orders o ON o.id = r.order_id, payguard.resolve_refund(r.id, 'succeeded', 'a test', 're_check') AS a WHERE o.reference = 'CHECK-r4';
SELECT * FROM shop.damage();
-- each damage is done with all triggers off, looked at and undone
CREATE FUNCTION pg_temp.plant(damage text) RETURNS TABLE (rule text, object text, detail text) LANGUAGE plpgsql AS $$
DECLARE
	found text[];
BEGIN
	BEGIN
		SET LOCAL session_replication_role = replica;
		ALTER TABLE payguard.orders DISABLE TRIGGER zz_payguard_guard; ALTER TABLE payguard.attempts DISABLE TRIGGER zz_payguard_guard; ALTER TABLE payguard.payments DISABLE TRIGGER zz_payguard_guard;
		ALTER TABLE payguard.refunds DISABLE TRIGGER zz_payguard_guard; ALTER TABLE payguard.evidence DISABLE TRIGGER zz_payguard_guard; ALTER TABLE payguard.events DISABLE TRIGGER zz_payguard_guard;
		EXECUTE damage;
		ALTER TABLE payguard.orders ENABLE ALWAYS TRIGGER zz_payguard_guard; ALTER TABLE payguard.attempts ENABLE ALWAYS TRIGGER zz_payguard_guard; ALTER TABLE payguard.payments ENABLE ALWAYS TRIGGER zz_payguard_guard;
		ALTER TABLE payguard.refunds ENABLE ALWAYS TRIGGER zz_payguard_guard; ALTER TABLE payguard.evidence ENABLE ALWAYS TRIGGER zz_payguard_guard; ALTER TABLE payguard.events ENABLE ALWAYS TRIGGER zz_payguard_guard;
		SELECT array_agg(concat_ws('^', d.rule, d.object, d.detail)) INTO found FROM shop.damage() AS d;
		RAISE EXCEPTION USING ERRCODE = 'ZZ999';
	EXCEPTION WHEN SQLSTATE 'ZZ999' THEN
		RETURN QUERY SELECT split_part(f, '^', 1), regexp_replace(split_part(f, '^', 2), '\m\d+$', 'N'), regexp_replace(split_part(f, '^', 3), '(evidence |origin |refund |id |seq |event |RI_ConstraintTrigger_c_)-?\d+|since .*', '\1N', 'g') FROM unnest(COALESCE(found, ARRAY['nothing found'])) AS f;
	END;
END
$$;
CREATE TEMP TABLE damages (n serial, damage text);
INSERT INTO damages (damage) VALUES
	($$DELETE FROM payguard.payments WHERE provider_id = 'ch_check-paid'$$),
	($$UPDATE payguard.orders SET status = 'failed' WHERE reference = 'CHECK-paid'$$),
	($$UPDATE payguard.payments SET amount = 1 WHERE provider_id = 'ch_check-paid'$$),
	($$UPDATE payguard.payments SET currency = 'USD' WHERE provider_id = 'ch_check-paid'$$),
	($$DROP INDEX payguard.payments_counted; INSERT INTO payguard.payments SELECT gateway, 'twice', order_id, attempt_no, counted, state, amount, currency, fee, reason, paid_at FROM payguard.payments WHERE provider_id = 'ch_check-paid'$$),
	($$DELETE FROM payguard.attempts WHERE gateway_reference = 'CHECK-processing'$$),
	($$DELETE FROM payguard.outbox x USING payguard.orders o WHERE o.id = x.order_id AND o.reference = 'CHECK-unknown'; UPDATE payguard.attempts SET lease_until = NULL WHERE gateway_reference = 'CHECK-unknown'$$),
	($$UPDATE payguard.attempts SET state = 'unknown', lease_until = NULL WHERE gateway_reference = 'CHECK-failed'$$),
	($$DELETE FROM payguard.evidence e USING payguard.orders o WHERE o.id = e.order_id AND o.reference = 'CHECK-paid'$$),
	($$UPDATE payguard.orders SET decided_by = (SELECT decided_by FROM payguard.orders WHERE reference = 'CHECK-failed') WHERE reference = 'CHECK-closed'$$),
	($$UPDATE payguard.orders SET refunded_amount = 1 WHERE reference = 'CHECK-refunded'$$),
	($$UPDATE payguard.refunds SET amount = 400, external = false WHERE charge_id = 'ch_check-refunded'$$),
	($$UPDATE payguard.payments SET state = 'paid' WHERE provider_id = 'ch_check-reversed'$$),
	($$DELETE FROM payguard.outbox x USING payguard.orders o WHERE o.id = x.order_id AND o.reference = 'CHECK-r1'$$),
	($$UPDATE payguard.outbox x SET next_run_at = 'infinity' FROM payguard.orders o WHERE o.id = x.order_id AND o.reference = 'CHECK-r1'$$),
	($$DELETE FROM payguard.outbox x USING payguard.orders o WHERE o.id = x.order_id AND o.reference = 'CHECK-r2'; UPDATE payguard.refunds SET lease_until = now() - interval '1 s' WHERE charge_id = 'ch_check-r2'$$),
	($$UPDATE payguard.refunds SET state = 'unknown' WHERE charge_id = 'ch_check-r3'$$),
	($$UPDATE payguard.orders SET refund_reserved = 0 WHERE reference = 'CHECK-r1'$$),
	($$UPDATE payguard.orders SET status = 'paid' WHERE reference = 'CHECK-r4'$$),
	($$UPDATE payguard.orders SET status = 'refunded', decided_by = 1 WHERE reference = 'CHECK-r1'$$),
	($$UPDATE payguard.refunds SET charge_id = 'nobody' WHERE charge_id = 'ch_check-r2'$$),
	($$UPDATE payguard.refunds SET amount = 400 WHERE charge_id = 'ch_check-r1'$$),
	($$DELETE FROM payguard.refunds WHERE charge_id = 'ch_check-r4'$$),
	($$DELETE FROM payguard.refunds WHERE charge_id = 'ch_check-r1'$$),
	($$INSERT INTO payguard.order_slots SELECT 'check', 'check', id FROM payguard.orders WHERE reference = 'CHECK-closed'$$),
	($$INSERT INTO payguard.entitlements SELECT 'check', 'check', id FROM payguard.orders WHERE reference = 'CHECK-failed'$$),
	($$INSERT INTO payguard.reviews VALUES (-1, '{x}')$$),
	($$INSERT INTO payguard.provider_ids VALUES ('shop', 'nobody', -1)$$),
	($$INSERT INTO payguard.events (cause, aggregatetype, aggregateid, type, payload) VALUES (-1, 'order', 'NOBODY', 'order.paid', '{}')$$),
	($$INSERT INTO payguard.evidence (received_at, source, result, verdict, gateway, gateway_reference) VALUES (now() - interval '2 hours', 'callback', 'paid', 'parked', 'shop', 'NOBODY')$$),
	($$UPDATE payguard.outbox x SET origin = 1 FROM payguard.orders o WHERE o.id = x.order_id AND o.reference = 'CHECK-unknown'$$),
	($$UPDATE payguard.outbox x SET attempt_no = 99 FROM payguard.orders o WHERE o.id = x.order_id AND o.reference = 'CHECK-unknown'$$),
	($$UPDATE payguard.outbox x SET gateway = 'gone' FROM payguard.orders o WHERE o.id = x.order_id AND o.reference = 'CHECK-unknown'$$),
	($$DELETE FROM payguard.instances$$),
	($$ALTER TABLE payguard.orders DISABLE TRIGGER zz_payguard_guard_truncate$$),
	($$DROP TRIGGER zz_payguard_guard_truncate ON payguard.events$$),
	($$ALTER TABLE payguard.attempts DISABLE TRIGGER ALL$$),
	($$ALTER TABLE payguard.events DROP CONSTRAINT events_once$$),
	($$DROP INDEX payguard.evidence_inbox$$),
	($$ALTER SERVER shop OPTIONS (SET adapter 'gone')$$),
	($$CREATE USER MAPPING FOR CURRENT_USER SERVER shop$$);
SELECT n, p.* FROM damages, pg_temp.plant(damage) AS p ORDER BY n, 2, 3, 4;
-- nothing of it stayed
SELECT * FROM shop.damage();
