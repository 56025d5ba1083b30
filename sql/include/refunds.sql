\set ECHO none
-- Refunds for the tests: asked for, told of, and looked at in short.
CREATE OR REPLACE FUNCTION shop.refund(reference text, key text, amount numeric DEFAULT NULL, call_by text DEFAULT 'worker', provider_id text DEFAULT NULL,
	OUT created boolean, OUT verdict text, OUT status text, OUT refund numeric, OUT remaining numeric)
	LANGUAGE sql AS $$
	SELECT r.created, r.verdict, r.status, r.amount, r.remaining FROM payguard.request_refund(reference, key, amount, NULL, call_by, provider_id) AS r
$$;
-- What the application reports about its refund.
CREATE OR REPLACE FUNCTION shop.refund_report(reference text, key text, result text, id text DEFAULT NULL, amount numeric DEFAULT NULL,
	currency text DEFAULT NULL, OUT verdict text, OUT status text, OUT attempt integer)
	LANGUAGE sql AS $$
	SELECT a.verdict, a.status, a.attempt_no FROM payguard.refunds r JOIN payguard.orders o ON o.id = r.order_id,
		payguard.record_attempt(r.lease_token, result, refund_report.id, refund_report.amount, refund_report.currency) AS a
	WHERE o.reference = refund_report.reference AND r.request_key = key
$$;
-- A callback about a refund. The id is re_ and the key unless given; key NULL: one that was made by hand.
CREATE OR REPLACE FUNCTION shop.refund_fact(reference text, key text, type text, minor bigint DEFAULT 10000, currency text DEFAULT 'CNY',
	occurred_at timestamptz DEFAULT NULL, id text DEFAULT NULL, charge text DEFAULT NULL) RETURNS text
	LANGUAGE sql AS $$
	SELECT c.verdict FROM shop.callback(type,
		COALESCE((SELECT r.gateway_reference FROM payguard.refunds r JOIN payguard.orders o ON o.id = r.order_id
			WHERE o.reference = refund_fact.reference AND r.request_key = key), 'BYHAND-' || refund_fact.reference),
		COALESCE(refund_fact.id, 're_' || lower(refund_fact.reference) || '_' || COALESCE(key, 'hand')), minor, currency, occurred_at,
		more => jsonb_build_object('charge_id', COALESCE(charge,
			(SELECT r.charge_id FROM payguard.refunds r JOIN payguard.orders o ON o.id = r.order_id WHERE o.reference = refund_fact.reference AND r.request_key = key),
			'ch_' || lower(refund_fact.reference)))) AS c
$$;
-- The refunds of an order, and its sums.
CREATE OR REPLACE FUNCTION shop.refunds(reference text, OUT refunds text, OUT reserved numeric, OUT given_back numeric, OUT status text, OUT calls text)
	LANGUAGE sql STABLE AS $$
	SELECT (SELECT string_agg(concat_ws(' ', COALESCE(r.request_key, 'hand'), r.amount, r.state, CASE WHEN r.external THEN 'external' END), ', '
			ORDER BY r.id) FROM payguard.refunds r WHERE r.order_id = o.id),
		o.refund_reserved, o.refunded_amount, o.status::text,
		(SELECT string_agg(r.request_key || ' ' || x.op || CASE WHEN x.next_run_at = 'infinity' THEN ' rests' WHEN x.next_run_at <= clock_timestamp() THEN ' due' ELSE ' later' END,
			', ' ORDER BY r.id, x.op) FROM payguard.outbox x JOIN payguard.refunds r ON r.id = x.refund_id WHERE x.order_id = o.id)
	FROM payguard.orders o WHERE o.reference = refunds.reference
$$;
\set ECHO all
