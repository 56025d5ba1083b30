-- Decision table, the rows of refunds: each fact in each state of a refund, and what is not ours, does not fit, or comes too early.
\getenv abs_srcdir PG_ABS_SRCDIR
\set shop :abs_srcdir '/sql/include/shop.sql'
\i :shop
\i :abs_srcdir/sql/include/refunds.sql

-- a refund of 100.00 of a paid order, brought into a state
CREATE FUNCTION pg_temp.refund_in(ref text, wanted text, call_by text DEFAULT 'application') RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM shop.make(ref, 'paid');
	PERFORM shop.refund(ref, 'k', 100, CASE wanted WHEN 'pending' THEN 'worker' ELSE call_by END);
	CASE wanted
		WHEN 'processing' THEN PERFORM shop.refund_report(ref, 'k', 'pending', 're_' || lower(ref) || '_k');
		WHEN 'unknown' THEN PERFORM shop.refund_report(ref, 'k', 'unknown');
		WHEN 'succeeded' THEN PERFORM shop.refund_fact(ref, 'k', 'refund.succeeded', 10000, occurred_at => '2026-01-03 10:00Z');
		WHEN 'failed' THEN PERFORM shop.refund_fact(ref, 'k', 'refund.failed', 10000, occurred_at => '2026-01-03 10:00Z');
		WHEN 'inferred' THEN PERFORM shop.refund_report(ref, 'k', 'not_sent');
		ELSE NULL;
	END CASE;
END
$$;
CREATE FUNCTION pg_temp.told(ref text, told text, OUT verdict text) LANGUAGE plpgsql AS $$
BEGIN
	CASE told
		WHEN 'succeeded later' THEN verdict := shop.refund_fact(ref, 'k', 'refund.succeeded', 10000, occurred_at => '2026-01-04 10:00Z');
		WHEN 'succeeded older' THEN verdict := shop.refund_fact(ref, 'k', 'refund.succeeded', 10000, occurred_at => '2026-01-02 10:00Z');
		WHEN 'failed later' THEN verdict := shop.refund_fact(ref, 'k', 'refund.failed', 10000, occurred_at => '2026-01-04 10:00Z');
		WHEN 'failed older' THEN verdict := shop.refund_fact(ref, 'k', 'refund.failed', 10000, occurred_at => '2026-01-02 10:00Z');
		WHEN 'other amount' THEN verdict := shop.refund_fact(ref, 'k', 'refund.succeeded', 10001);
		WHEN 'other currency' THEN verdict := shop.refund_fact(ref, 'k', 'refund.succeeded', 10000, 'USD');
		ELSE verdict := (shop.refund_report(ref, 'k', told)).verdict;
	END CASE;
END
$$;
CREATE FUNCTION pg_temp.row(prefix text, told text, states text[]) RETURNS TABLE (was text, verdict text, refunds text, reserved numeric, given_back numeric, calls text, events text, review text) LANGUAGE plpgsql AS $$
DECLARE
	ref text;
BEGIN
	FOREACH was IN ARRAY states
	LOOP
		ref := 'RF' || prefix || '-' || was;
		PERFORM pg_temp.refund_in(ref, was);
		verdict := pg_temp.told(ref, told);
		SELECT l.refunds, l.reserved, l.given_back, l.calls INTO refunds, reserved, given_back, calls FROM shop.refunds(ref) AS l;
		SELECT regexp_replace(l.events, '^order.paid ?', ''), l.review INTO events, review FROM shop.look(ref) AS l;
		RETURN NEXT;
	END LOOP;
END
$$;
\set all '''{pending,submitted,processing,unknown,succeeded,failed,inferred}'''
\set ours '''{submitted,processing,unknown,succeeded,failed,inferred}'''
SELECT * FROM pg_temp.row('SL', 'succeeded later', :all);
SELECT * FROM pg_temp.row('SO', 'succeeded older', '{unknown,succeeded,failed,inferred}');
SELECT * FROM pg_temp.row('FL', 'failed later', :all);
SELECT * FROM pg_temp.row('FO', 'failed older', '{unknown,succeeded,failed,inferred}');
SELECT * FROM pg_temp.row('AM', 'other amount', :all);
SELECT * FROM pg_temp.row('CU', 'other currency', '{pending,succeeded}');
SELECT * FROM pg_temp.row('PE', 'pending', :ours);
SELECT * FROM pg_temp.row('UN', 'unknown', :ours);
SELECT * FROM pg_temp.row('NS', 'not_sent', :ours);
-- an amount or currency that the application got wrong leaves its refund unknown, and the gateway is asked
SELECT pg_temp.refund_in('RFWRONG', 'submitted');
SELECT * FROM shop.refund_report('RFWRONG', 'k', 'succeeded', 're_w', 100.01, 'CNY');
SELECT * FROM shop.refunds('RFWRONG');

-- made by hand at the gateway: booked as external, once, and counted in what is left
SELECT shop.make('RFHAND', 'paid');
SELECT shop.refund_fact('RFHAND', NULL, 'refund.succeeded', 10000);
SELECT shop.refund_fact('RFHAND', NULL, 'refund.succeeded', 10000);
SELECT * FROM shop.refunds('RFHAND');
SELECT remaining FROM shop.refund('RFHAND', 'k', 200);
SELECT shop.refund_fact('RFHAND', 'k', 'refund.succeeded', 20000);
SELECT shop.fails($$SELECT payguard.request_refund('RFHAND', 'k2', 100)$$);
-- it fails afterwards; an older word of its success is stale
SELECT shop.refund_fact('RFHAND', NULL, 'refund.failed', 10000);
SELECT shop.refund_fact('RFHAND', NULL, 'refund.succeeded', 10000, occurred_at => '2026-01-01 11:00Z');
SELECT * FROM shop.refunds('RFHAND');
SELECT external, deliveries > 0 AS told, e.refund_id = r.id AS linked FROM payguard.refunds r JOIN payguard.evidence e ON e.id = r.decided_by JOIN payguard.orders o ON o.id = r.order_id WHERE o.reference = 'RFHAND' ORDER BY r.id;
-- the failure may be heard first
SELECT shop.make('RFHAND2', 'paid');
SELECT shop.refund_fact('RFHAND2', NULL, 'refund.failed', 10000, occurred_at => '2026-01-03 10:00Z');
SELECT shop.refund_fact('RFHAND2', NULL, 'refund.succeeded', 10000, occurred_at => '2026-01-02 10:00Z');
SELECT * FROM shop.refunds('RFHAND2');
-- another currency is no refund of this payment
SELECT shop.refund_fact('RFHAND2', NULL, 'refund.succeeded', 10000, 'USD', id => 're_usd');
SELECT refunds, given_back FROM shop.refunds('RFHAND2');
SELECT review FROM shop.look('RFHAND2');
-- more than was paid: facts are booked all the same, and a person looks
SELECT shop.make('RFOVER', 'paid');
SELECT shop.refund_fact('RFOVER', NULL, 'refund.succeeded', 39900, id => 're_over1');
SELECT shop.refund_fact('RFOVER', NULL, 'refund.succeeded', 100, id => 're_over2');
SELECT * FROM shop.refunds('RFOVER');
SELECT status, payments, review FROM shop.look('RFOVER');
SELECT shop.fails($$SELECT payguard.request_refund('RFOVER', 'k')$$);

-- a callback about a refund before the payment is known waits for it; whatever the refund is called
SELECT shop.make('RFEARLY', 'processing');
SELECT shop.refund_fact('RFEARLY', NULL, 'refund.succeeded', 10000);
SELECT verdict, now FROM shop.callback('charge.paid', 'RFEARLY', 'ch_rfearly');
SELECT * FROM shop.refunds('RFEARLY');
SELECT status, payments, evidence, events FROM shop.look('RFEARLY');
-- of a payment that did not match: when the order is paid after all, by that payment
SELECT shop.make('RFEARLY2', 'processing');
SELECT verdict FROM shop.callback('charge.paid', 'RFEARLY2', 'ch_rfearly2', 39901);
SELECT shop.refund_fact('RFEARLY2', NULL, 'refund.succeeded', 10000);
SELECT verdict, now FROM shop.callback('charge.paid', 'RFEARLY2', 'ch_rfearly2');
SELECT * FROM shop.refunds('RFEARLY2');
-- the same, when our own refund of it was asked for before
SELECT shop.make('RFEARLY3', 'processing');
SELECT verdict FROM shop.callback('charge.paid', 'RFEARLY3', 'ch_rfearly3', 39901);
SELECT verdict FROM shop.refund('RFEARLY3', 'k', 100, 'worker', 'ch_rfearly3');
SELECT verdict, now FROM shop.callback('charge.paid', 'RFEARLY3', 'ch_rfearly3');
SELECT * FROM shop.refunds('RFEARLY3');

-- a failed one that has succeeded after all, when the money has been promised again: booked, and a person looks; what is not sent stays
SELECT pg_temp.refund_in('RFAFTER', 'failed');
SELECT verdict, remaining FROM shop.refund('RFAFTER', 'k2', 399, 'application');
SELECT shop.refund_fact('RFAFTER', 'k', 'refund.succeeded', 10000);
SELECT * FROM shop.refunds('RFAFTER');
SELECT review FROM shop.look('RFAFTER');
SELECT * FROM shop.refund_report('RFAFTER', 'k2', 'failed');
SELECT * FROM shop.refunds('RFAFTER');
-- paid back twice under one reference: both are booked, the second once
SELECT pg_temp.refund_in('RFTWICE', 'succeeded');
SELECT shop.refund_fact('RFTWICE', 'k', 'refund.succeeded', 10000, id => 're_other');
SELECT shop.refund_fact('RFTWICE', 'k', 'refund.succeeded', 10000, id => 're_other');
SELECT * FROM shop.refunds('RFTWICE');
SELECT events, review FROM shop.look('RFTWICE');
-- an id that was booked as a refund by hand before turns out to be ours: nothing is lost, and it counts twice until a person looks
SELECT pg_temp.refund_in('RFSAME', 'submitted');
SELECT shop.refund_fact('RFSAME', NULL, 'refund.succeeded', 10000, id => 're_same');
SELECT * FROM shop.refund_report('RFSAME', 'k', 'succeeded', 're_same', 100, 'CNY');
SELECT * FROM shop.refunds('RFSAME');

-- an uncounted payment: only that payment moves
SELECT shop.make('RFSURP', 'paid');
SELECT verdict FROM shop.callback('charge.paid', 'RFSURP', 'ch_rfsurp2');
SELECT shop.refund_fact('RFSURP', NULL, 'refund.succeeded', 39900, charge => 'ch_rfsurp2');
SELECT * FROM shop.refunds('RFSURP');
SELECT status, payments, events FROM shop.look('RFSURP');
-- one that was kept may be given back all the same
SELECT shop.make('RFKEPT', 'paid');
SELECT verdict FROM shop.callback('charge.paid', 'RFKEPT', 'ch_rfkept2');
SELECT verdict FROM payguard.resolve_order('RFKEPT', 'kept', 'two were wanted', 'ch_rfkept2');
SELECT shop.refund_fact('RFKEPT', NULL, 'refund.succeeded', 10000, charge => 'ch_rfkept2');
SELECT payments FROM shop.look('RFKEPT');
SELECT shop.refund_fact('RFKEPT', NULL, 'refund.succeeded', 29900, charge => 'ch_rfkept2', id => 're_rest');
SELECT payments FROM shop.look('RFKEPT');

-- a reversal: no refund is asked for any more, one that is under way is booked, and what was given back counts when the payment is reinstated
SELECT pg_temp.refund_in('RFREV1', 'submitted');
SELECT verdict, now FROM shop.callback('charge.reversed', 'RFREV1', 'ch_rfrev1', occurred_at => '2026-01-05 10:00Z');
SELECT verdict FROM shop.refund('RFREV1', 'k2', 1);
SELECT shop.refund_fact('RFREV1', 'k', 'refund.succeeded', 10000);
SELECT * FROM shop.refunds('RFREV1');
SELECT status, payments FROM shop.look('RFREV1');
SELECT verdict, now FROM shop.callback('charge.reinstated', 'RFREV1', 'ch_rfrev1', occurred_at => '2026-01-06 10:00Z');
SELECT status, payments FROM shop.look('RFREV1');
SELECT verdict FROM shop.refund('RFREV1', 'k3', 299, 'application');
SELECT verdict, now FROM shop.callback('charge.reversed', 'RFREV1', 'ch_rfrev1', occurred_at => '2026-01-07 10:00Z');
SELECT verdict, now FROM shop.callback('charge.reinstated', 'RFREV1', 'ch_rfrev1', occurred_at => '2026-01-08 10:00Z');
SELECT status, payments FROM shop.look('RFREV1');
SELECT shop.refund_fact('RFREV1', 'k3', 'refund.succeeded', 29900);
SELECT status, payments FROM shop.look('RFREV1');
-- all of it given back while reversed
SELECT pg_temp.refund_in('RFREV2', 'submitted');
SELECT verdict, now FROM shop.callback('charge.reversed', 'RFREV2', 'ch_rfrev2', occurred_at => '2026-01-05 10:00Z');
SELECT shop.refund_fact('RFREV2', 'k', 'refund.succeeded', 10000);
SELECT shop.refund_fact('RFREV2', NULL, 'refund.succeeded', 29900);
SELECT status, given_back FROM shop.refunds('RFREV2');
SELECT verdict, now FROM shop.callback('charge.reinstated', 'RFREV2', 'ch_rfrev2', occurred_at => '2026-01-06 10:00Z');
SELECT status, payments, events FROM shop.look('RFREV2');
-- refunded, and the refund fails later: paid again, whatever word the application has for it
SELECT shop.make('RFBACK', 'paid');
SELECT verdict FROM shop.refund('RFBACK', 'k', NULL, 'application');
SELECT * FROM shop.refund_report('RFBACK', 'k', 'succeeded', 're_back', 399, 'CNY');
SELECT * FROM shop.refund_report('RFBACK', 'k', 'closed');
SELECT status, payments, events FROM shop.look('RFBACK');

-- an operator's word, which any gateway's word overrules
SELECT pg_temp.refund_in('RFOPER', 'unknown');
SELECT a.verdict, a.status FROM payguard.refunds r JOIN payguard.orders o ON o.id = r.order_id, payguard.resolve_refund(r.id, 'failed', 'the gateway says by phone that it has none') AS a WHERE o.reference = 'RFOPER';
SELECT * FROM shop.refunds('RFOPER');
SELECT shop.refund_fact('RFOPER', 'k', 'refund.succeeded', 10000, occurred_at => '2026-01-03 10:00Z');
SELECT * FROM shop.refunds('RFOPER');
SELECT e.note LIKE current_user || ': the gateway says%' AS who, e.verdict FROM payguard.evidence e JOIN payguard.orders o ON o.id = e.order_id WHERE o.reference = 'RFOPER' AND e.source = 'operator';
SELECT pg_temp.refund_in('RFOPER2', 'unknown');
SELECT a.verdict, a.status FROM payguard.refunds r JOIN payguard.orders o ON o.id = r.order_id, payguard.resolve_refund(r.id, 'succeeded', 'seen in the list', 're_oper2') AS a WHERE o.reference = 'RFOPER2';
SELECT shop.refund_fact('RFOPER2', 'k', 'refund.succeeded', 10000, id => 're_oper2');
SELECT * FROM shop.refunds('RFOPER2');
-- a fact that names nothing known waits, and an operator can dismiss it
SELECT shop.refund_fact('NOSUCHORDER', NULL, 'refund.succeeded', 10000);
SELECT verdict FROM payguard.resolve_evidence((SELECT id FROM payguard.evidence WHERE gateway_reference = 'BYHAND-NOSUCHORDER'), NULL, 'not ours');
SELECT * FROM shop.damage();
