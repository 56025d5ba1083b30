-- Surplus and late money: for a person by default; with the option surplus 'refund' given back by itself, but only after the gateway was asked, and
-- never when an operator decided the payment that counts.
\getenv abs_srcdir PG_ABS_SRCDIR
\set shop :abs_srcdir '/sql/include/shop.sql'
\i :shop
\i :abs_srcdir/sql/include/refunds.sql

-- an answer to a question, as the worker would bring it: judged when a fact about the order sets it free
CREATE FUNCTION pg_temp.asked(ref text, suffix text, result text, id text, attempt integer, amount numeric DEFAULT 399.00) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	fact bigint;
BEGIN
	INSERT INTO payguard.evidence (order_id, received_at, attempt_no, source, result, verdict, gateway, gateway_reference, provider_id, amount, currency, mode)
	SELECT o.id, clock_timestamp(), attempt, 'query', asked.result::payguard.evidence_result, 'parked', 'shop', ref || suffix, asked.id, asked.amount, 'CNY', 'live'
	FROM payguard.orders o WHERE o.reference = ref RETURNING evidence.id INTO fact;
	DELETE FROM payguard.outbox x USING payguard.orders o WHERE o.id = x.order_id AND o.reference = ref AND x.op = 'query' AND x.attempt_no = attempt;
	RETURN (SELECT r.verdict FROM payguard.resolve_evidence(fact, ref, 'a test asks') AS r);
END
$$;
CREATE FUNCTION pg_temp.second(ref text) RETURNS text LANGUAGE sql AS $$
	SELECT verdict FROM shop.callback('charge.paid', ref || '_r2', 'ch_second_' || lower(ref))
$$;
-- by default a person decides
SELECT shop.make('GIVE-1', 'paid');
SELECT pg_temp.second('GIVE-1');
SELECT * FROM shop.refunds('GIVE-1');
SELECT payments, events, review, calls FROM shop.look('GIVE-1');
SELECT shop.make('GIVE-2', 'closed');
SELECT verdict FROM shop.callback('charge.paid', 'GIVE-2', 'ch_give-2');
SELECT status, events, review, calls FROM shop.look('GIVE-2');
ALTER SERVER shop OPTIONS (ADD surplus 'refund');
-- surplus: the wish reserves the money, both payments are asked about, and nothing goes out before both are confirmed
SELECT shop.make('GIVE-3', 'paid');
SELECT pg_temp.second('GIVE-3');
SELECT * FROM shop.refunds('GIVE-3');
SELECT payments, events, review, calls FROM shop.look('GIVE-3');
SELECT * FROM shop.damage();
SELECT pg_temp.asked('GIVE-3', '_r2', 'paid', 'ch_second_give-3', 2);
SELECT calls FROM shop.refunds('GIVE-3');
SELECT pg_temp.asked('GIVE-3', '', 'paid', 'ch_give-3', 1);
SELECT * FROM shop.refunds('GIVE-3');
SELECT shop.refund_fact('GIVE-3', 'payguard:give-back:ch_second_give-3', 'refund.succeeded', 39900);
SELECT * FROM shop.refunds('GIVE-3');
SELECT status, payments, events, review FROM shop.look('GIVE-3');
-- the second word about the same surplus makes no second refund
SELECT pg_temp.second('GIVE-3');
SELECT refunds FROM shop.refunds('GIVE-3');
-- a customer's refund of the counted payment is not held up by it
SELECT shop.make('GIVE-4', 'paid');
SELECT pg_temp.second('GIVE-4');
SELECT verdict FROM shop.refund('GIVE-4', 'k', 399);
SELECT * FROM shop.refunds('GIVE-4');
-- what the gateway does not confirm is for a person
SELECT shop.make('GIVE-5', 'paid');
SELECT pg_temp.second('GIVE-5');
SELECT pg_temp.asked('GIVE-5', '_r2', 'failed', 'ch_second_give-5', 2);
SELECT refunds, calls FROM shop.refunds('GIVE-5');
SELECT review FROM shop.look('GIVE-5');
SELECT a.verdict, a.status FROM payguard.refunds r JOIN payguard.orders o ON o.id = r.order_id, payguard.resolve_refund(r.id, 'failed', 'nothing to give back') AS a WHERE o.reference = 'GIVE-5';
SELECT refunds, calls FROM shop.refunds('GIVE-5');
-- no answer: asked again
SELECT shop.make('GIVE-6', 'paid');
SELECT pg_temp.second('GIVE-6');
SELECT pg_temp.asked('GIVE-6', '_r2', 'unknown', NULL, 2, NULL);
SELECT calls, review FROM shop.look('GIVE-6');
-- two charges of one reference: a question by reference tells of one of them only, so that a person must look
SELECT shop.make('GIVE-7', 'paid');
SELECT verdict FROM shop.callback('charge.paid', 'GIVE-7', 'ch_second_give-7');
SELECT pg_temp.asked('GIVE-7', '', 'paid', 'ch_second_give-7', 1);
SELECT refunds, calls FROM shop.refunds('GIVE-7');
SELECT review FROM shop.look('GIVE-7');
-- an operator decided the counted one: a person decides about the other one, too
SELECT shop.make('GIVE-8', 'unknown');
SELECT verdict FROM payguard.resolve_order('GIVE-8', 'paid', 'seen in the list', 'ch_give-8');
SELECT pg_temp.second('GIVE-8');
SELECT * FROM shop.refunds('GIVE-8');
SELECT review FROM shop.look('GIVE-8');
-- late money on a closed order: booked, confirmed, given back
SELECT shop.make('GIVE-9', 'closed');
SELECT verdict FROM shop.callback('charge.paid', 'GIVE-9', 'ch_give-9');
SELECT * FROM shop.refunds('GIVE-9');
SELECT status, payments, events, review, calls FROM shop.look('GIVE-9');
SELECT pg_temp.asked('GIVE-9', '', 'paid', 'ch_give-9', 1);
SELECT * FROM shop.refunds('GIVE-9');
SELECT shop.refund_fact('GIVE-9', 'payguard:give-back:ch_give-9', 'refund.succeeded', 39900);
SELECT status, payments, events, review, calls FROM shop.look('GIVE-9');
-- late money on an order that has failed is what it waited for: it stays
SELECT shop.make('GIVE-10', 'failed');
SELECT verdict FROM shop.callback('charge.paid', 'GIVE-10', 'ch_give-10');
SELECT * FROM shop.refunds('GIVE-10');
SELECT status, events, review FROM shop.look('GIVE-10');
-- money that does not match is never given back by itself
SELECT shop.make('GIVE-11', 'paid');
SELECT verdict FROM shop.callback('charge.paid', 'GIVE-11_r2', 'ch_second_give-11', 39901);
SELECT refunds FROM shop.refunds('GIVE-11');
SELECT review FROM shop.look('GIVE-11');
ALTER SERVER shop OPTIONS (DROP surplus);
SELECT * FROM shop.damage();
