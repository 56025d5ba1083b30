-- R17, R21: facts about refunds, payments and reversals end in the same states and sums in every order of arrival. All permutations are tried, each fact twice.
\getenv abs_srcdir PG_ABS_SRCDIR
\set shop :abs_srcdir '/sql/include/shop.sql'
\i :shop
\i :abs_srcdir/sql/include/refunds.sql

CREATE TABLE shop.ends (facts text, arrival text, ended text);
CREATE FUNCTION shop.arrive(ref text, fact text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	charge text := 'ch_' || lower(ref);
BEGIN
	CASE fact
		WHEN 'paid' THEN PERFORM shop.callback('charge.paid', ref, charge, occurred_at => '2026-01-01 10:00Z');
		WHEN 'wrong' THEN PERFORM shop.callback('charge.paid', ref, charge, 39901, occurred_at => '2026-01-01 10:00Z');
		WHEN 'failed' THEN PERFORM shop.callback('charge.failed', ref, 'ch_other_' || ref, occurred_at => '2026-01-01 09:00Z');
		WHEN 'reversed' THEN PERFORM shop.callback('charge.reversed', ref, charge, occurred_at => '2026-01-02 10:00Z');
		WHEN 'reinstated' THEN PERFORM shop.callback('charge.reinstated', ref, charge, occurred_at => '2026-01-03 10:00Z');
		-- our refund
		WHEN 'r+' THEN PERFORM shop.refund_fact(ref, 'k', 'refund.succeeded', 10000, occurred_at => '2026-01-02 09:00Z');
		WHEN 'r-' THEN PERFORM shop.refund_fact(ref, 'k', 'refund.failed', 10000, occurred_at => '2026-01-02 11:00Z');
		WHEN 'r+again' THEN PERFORM shop.refund_fact(ref, 'k', 'refund.succeeded', 10000, occurred_at => '2026-01-02 12:00Z');
		WHEN 'r unknown' THEN PERFORM shop.refund_report(ref, 'k', 'unknown');
		WHEN 'r pending' THEN PERFORM shop.refund_report(ref, 'k', 'pending');
		-- one made by hand, of the rest; another, above all
		WHEN 'x+' THEN PERFORM shop.refund_fact(ref, NULL, 'refund.succeeded', 29900, occurred_at => '2026-01-02 09:30Z');
		WHEN 'x-' THEN PERFORM shop.refund_fact(ref, NULL, 'refund.failed', 29900, occurred_at => '2026-01-02 11:30Z');
		WHEN 'y+' THEN PERFORM shop.refund_fact(ref, NULL, 'refund.succeeded', 20000, id => 're_y_' || ref, occurred_at => '2026-01-02 08:00Z');
	END CASE;
END
$$;
CREATE FUNCTION shop.ended(ref text) RETURNS text LANGUAGE sql STABLE AS $$
	SELECT concat_ws(', ', o.status, 'reserved ' || o.refund_reserved, 'back ' || o.refunded_amount,
		(SELECT string_agg(concat_ws(' ', p.amount, CASE WHEN p.counted THEN 'counted' ELSE p.reason END, p.state), ' + ' ORDER BY p.amount) FROM payguard.payments p WHERE p.order_id = o.id),
		(SELECT string_agg(concat_ws(' ', COALESCE(r.request_key, 'hand'), r.amount, r.state), ' + ' ORDER BY r.external, r.amount) FROM payguard.refunds r WHERE r.order_id = o.id),
		'parked ' || (SELECT string_agg(e.result::text, ' ' ORDER BY e.result) FROM payguard.evidence e WHERE e.order_id = o.id AND e.verdict = 'parked'))
	FROM payguard.orders o WHERE o.reference = ref
$$;
CREATE FUNCTION shop.permute(facts text[], done text[] DEFAULT '{}') RETURNS SETOF text[] LANGUAGE plpgsql AS $$
BEGIN
	IF cardinality(facts) = 0 THEN
		RETURN NEXT done;
	END IF;
	FOR i IN 1 .. cardinality(facts)
	LOOP
		RETURN QUERY SELECT shop.permute(facts[: i - 1] || facts[i + 1 :], done || facts[i]);
	END LOOP;
END
$$;
-- ours tells that the order is paid and our refund was asked for before all facts
CREATE FUNCTION shop.try_all(facts text[], ours boolean) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	arrival text[];
	fact text;
	ref text;
	n integer := (SELECT count(*) FROM shop.ends);
BEGIN
	FOR arrival IN SELECT shop.permute(facts)
	LOOP
		n := n + 1;
		ref := 'RPERM' || lpad(n::text, 5, '0');
		PERFORM shop.make(ref, CASE WHEN ours THEN 'paid' ELSE 'processing' END);
		IF ours THEN
			PERFORM shop.refund(ref, 'k', 100, 'application');
		END IF;
		FOREACH fact IN ARRAY arrival
		LOOP
			PERFORM shop.arrive(ref, fact);
			-- and once more, as gateways do
			PERFORM shop.arrive(ref, fact);
		END LOOP;
		INSERT INTO shop.ends VALUES (CASE WHEN ours THEN 'asked: ' ELSE '' END || array_to_string(facts, ' '), array_to_string(arrival, ' '), shop.ended(ref));
	END LOOP;
END
$$;
SET synchronous_commit = off;
SELECT shop.try_all(f, true) FROM (VALUES (ARRAY['r+', 'r-']), (ARRAY['r+', 'r-', 'r+again', 'r unknown']), (ARRAY['r+', 'x+', 'r unknown', 'r pending']), (ARRAY['r+', 'x+', 'x-']),
	(ARRAY['r+', 'reversed', 'reinstated', 'x+']), (ARRAY['r-', 'reversed', 'reinstated', 'r unknown']), (ARRAY['r+', 'reversed', 'r-', 'x+', 'paid']), (ARRAY['r+', 'x+', 'y+', 'reversed']),
	(ARRAY['reversed', 'reinstated', 'r unknown'])) AS v (f);
SELECT shop.try_all(f, false) FROM (VALUES (ARRAY['paid', 'x+']), (ARRAY['paid', 'x+', 'x-', 'failed']), (ARRAY['paid', 'x+', 'reversed', 'reinstated']), (ARRAY['paid', 'x+', 'y+', 'reversed', 'x-']),
	(ARRAY['paid', 'wrong', 'y+', 'x+'])) AS v (f);
SELECT facts, count(*) AS arrivals, count(DISTINCT ended) AS ends, min(ended) AS ended FROM shop.ends GROUP BY facts ORDER BY facts COLLATE "C";
-- which arrivals differ, if any does
SELECT facts, arrival, ended FROM shop.ends e WHERE (SELECT count(DISTINCT ended) FROM shop.ends o WHERE o.facts = e.facts) > 1 ORDER BY 1, 3, 2 LIMIT 40;
SELECT * FROM shop.damage();
DROP FUNCTION shop.try_all, shop.permute, shop.ended, shop.arrive;
DROP TABLE shop.ends;
