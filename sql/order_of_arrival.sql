-- R17: every order of arrival of definite facts ends in the same states and sums. All permutations of each set are tried on an order of their own.
\getenv abs_srcdir PG_ABS_SRCDIR
\set shop :abs_srcdir '/sql/include/shop.sql'
\i :shop

CREATE TABLE shop.ends (facts text, arrival text, ended text);
-- one fact, named by a word
CREATE FUNCTION shop.arrive(ref text, fact text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	CASE fact
		WHEN 'paid' THEN PERFORM shop.callback('charge.paid', ref, 'ch_a_' || ref, occurred_at => '2026-01-01 10:00Z');
		WHEN 'paid2' THEN PERFORM shop.callback('charge.paid', ref, 'ch_b_' || ref, occurred_at => '2026-01-01 10:05Z');
		WHEN 'wrong' THEN PERFORM shop.callback('charge.paid', ref, 'ch_c_' || ref, 39901, occurred_at => '2026-01-01 10:10Z');
		WHEN 'wrongpaid' THEN PERFORM shop.callback('charge.paid', ref, 'ch_a_' || ref, 39901, occurred_at => '2026-01-01 10:10Z');
		WHEN 'failed' THEN PERFORM shop.callback('charge.failed', ref, 'ch_d_' || ref, occurred_at => '2026-01-01 09:00Z');
		WHEN 'closed' THEN PERFORM shop.callback('charge.closed', ref, NULL, occurred_at => '2026-01-01 12:00Z');
		WHEN 'pending' THEN PERFORM shop.callback('charge.pending', ref, 'ch_a_' || ref, occurred_at => '2026-01-01 08:00Z');
		WHEN 'reversed' THEN PERFORM shop.callback('charge.reversed', ref, 'ch_a_' || ref, occurred_at => '2026-01-02 10:00Z');
		WHEN 'reinstated' THEN PERFORM shop.callback('charge.reinstated', ref, 'ch_a_' || ref, occurred_at => '2026-01-03 10:00Z');
		WHEN 'reversed-again' THEN PERFORM shop.callback('charge.reversed', ref, 'ch_a_' || ref, occurred_at => '2026-01-04 10:00Z');
		WHEN 'reversed2' THEN PERFORM shop.callback('charge.reversed', ref, 'ch_b_' || ref, occurred_at => '2026-01-02 11:00Z');
		WHEN 'reinstated2' THEN PERFORM shop.callback('charge.reinstated', ref, 'ch_b_' || ref, occurred_at => '2026-01-03 11:00Z');
	END CASE;
END
$$;
-- the end: order, attempt, how many payments count, the sum that counts, and the states of all payments; which of two real payments
-- counts may depend on arrival, so ids are left out unless they must not
CREATE FUNCTION shop.ended(ref text, with_ids boolean) RETURNS text LANGUAGE sql STABLE AS $$
	SELECT concat_ws(', ', o.status, 'attempt ' || (SELECT string_agg(a.state::text, ' ' ORDER BY a.no) FROM payguard.attempts a WHERE a.order_id = o.id),
		'counted ' || (SELECT count(*) || COALESCE(' of ' || sum(p.amount), '') FROM payguard.payments p WHERE p.order_id = o.id AND p.counted),
		(SELECT string_agg(CASE WHEN with_ids THEN left(p.provider_id, 4) || ' ' ELSE '' END || p.amount || ' ' || CASE WHEN p.counted THEN 'counted' ELSE p.reason END || ' ' || p.state, ' + '
			ORDER BY p.amount, p.counted, p.state, p.provider_id) FROM payguard.payments p WHERE p.order_id = o.id),
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
-- claimed tells when the order is claimed by the application: before all facts, or never (the facts come for an order that is created)
CREATE FUNCTION shop.try_all(facts text[], claimed boolean DEFAULT true, with_ids boolean DEFAULT true) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	arrival text[];
	fact text;
	ref text;
	n integer := (SELECT count(*) FROM shop.ends);
BEGIN
	FOR arrival IN SELECT shop.permute(facts)
	LOOP
		n := n + 1;
		ref := 'PERM' || lpad(n::text, 5, '0');
		PERFORM shop.order(ref);
		IF claimed THEN
			PERFORM shop.claim(ref);
		END IF;
		FOREACH fact IN ARRAY arrival
		LOOP
			PERFORM shop.arrive(ref, fact);
			-- and once more, as gateways do
			PERFORM shop.arrive(ref, fact);
		END LOOP;
		INSERT INTO shop.ends VALUES (array_to_string(facts, ' ') || CASE WHEN claimed THEN '' ELSE ' (unclaimed)' END, array_to_string(arrival, ' '), shop.ended(ref, with_ids));
	END LOOP;
END
$$;
SET synchronous_commit = off;
SELECT shop.try_all(f) FROM (VALUES (ARRAY['paid', 'failed']), (ARRAY['paid', 'closed', 'pending']), (ARRAY['failed', 'closed', 'pending']),
	(ARRAY['paid', 'reversed', 'reinstated']), (ARRAY['paid', 'reversed', 'reinstated', 'reversed-again']), (ARRAY['paid', 'wrong', 'failed', 'reversed']),
	(ARRAY['paid', 'wrongpaid', 'reversed']), (ARRAY['paid', 'wrongpaid', 'reversed', 'reinstated'])) AS v (f);
SELECT shop.try_all(f, false) FROM (VALUES (ARRAY['paid', 'wrong', 'reversed']), (ARRAY['paid', 'reversed', 'reinstated', 'failed'])) AS v (f);
-- two real payments: which one counts is decided by arrival, the sums and states are not
SELECT shop.try_all(f, with_ids => false) FROM (VALUES (ARRAY['paid', 'paid2', 'failed', 'pending']), (ARRAY['paid', 'paid2', 'wrong', 'failed', 'pending'])) AS v (f);
SELECT facts, count(*) AS arrivals, count(DISTINCT ended) AS ends, min(ended) AS ended FROM shop.ends GROUP BY facts ORDER BY facts COLLATE "C";
-- which arrivals differ, if any does
SELECT facts, arrival, ended FROM shop.ends e WHERE (SELECT count(DISTINCT ended) FROM shop.ends o WHERE o.facts = e.facts) > 1 ORDER BY 1, 3, 2 LIMIT 40;
-- money is never counted twice, and nothing is left undone
SELECT max(n) FROM (SELECT count(*) FILTER (WHERE counted) AS n FROM payguard.payments p JOIN payguard.orders o ON o.id = p.order_id WHERE o.reference LIKE 'PERM%' GROUP BY p.order_id) AS c;
SELECT * FROM shop.damage();
-- with two payments and their reversals: whichever payment counts, each payment ends as its own latest word says
SELECT shop.try_all(ARRAY['paid', 'paid2', 'reversed2', 'reinstated2'], with_ids => false);
SELECT count(*) AS arrivals, count(DISTINCT ended) AS ends, min(ended) AS ended FROM shop.ends WHERE facts = 'paid paid2 reversed2 reinstated2';
SELECT shop.try_all(ARRAY['paid', 'paid2', 'reversed2']);
SELECT split_part(ended, ',', 1) AS status, regexp_replace(ended, '^.*counted 1 of 399.00, ', '') AS payments, count(*) FROM shop.ends WHERE facts = 'paid paid2 reversed2' GROUP BY 1, 2 ORDER BY 1, 2;
DROP FUNCTION shop.try_all, shop.permute, shop.ended, shop.arrive;
DROP TABLE shop.ends;
