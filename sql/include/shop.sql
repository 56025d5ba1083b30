\set ECHO none
-- A shop for the tests: a gateway "shop" that speaks the generic adapter, signed callbacks, and short pictures of what the
-- ledger holds. It can be read any number of times. Nothing here shows ids of rows, times or random values.
\set SHOW_CONTEXT never
\pset null '-'
\pset format unaligned
\pset fieldsep ' | '
SET client_min_messages = warning;
SET search_path = public;
CREATE EXTENSION IF NOT EXISTS pgcrypto;
CREATE SCHEMA IF NOT EXISTS shop;

DO $$
BEGIN
	IF NOT EXISTS (SELECT FROM pg_foreign_server WHERE srvname = 'shop') THEN
		CREATE SERVER shop FOREIGN DATA WRAPPER payguard OPTIONS (adapter 'generic', base_url 'https://pay.example');
		CREATE USER MAPPING FOR PUBLIC SERVER shop
			OPTIONS (api_key 'key-of-the-tests', webhook_secret 'whsec_cGF5Z3VhcmQtdGVzdC13ZWJob29rLWtl');
	END IF;
END
$$;

-- The headers of a callback with this body, signed as Standard Webhooks say.
CREATE OR REPLACE FUNCTION shop.sign(body text, event_id text, at timestamptz DEFAULT clock_timestamp(),
	secret text DEFAULT 'cGF5Z3VhcmQtdGVzdC13ZWJob29rLWtl') RETURNS jsonb
	LANGUAGE sql AS $$
	SELECT jsonb_build_object('webhook-id', event_id, 'webhook-timestamp', seconds, 'webhook-signature',
		'v1,' || encode(public.hmac(convert_to(concat_ws('.', event_id, seconds, body), 'UTF8'), decode(secret, 'base64'), 'sha256'), 'base64'))
	FROM (SELECT floor(extract(epoch FROM at))::bigint::text AS seconds) AS clock
$$;

-- The body of a callback about a charge or a refund. The status follows from the type unless given.
CREATE OR REPLACE FUNCTION shop.body(type text, reference text, id text DEFAULT NULL, minor bigint DEFAULT 39900,
	currency text DEFAULT 'CNY', occurred_at timestamptz DEFAULT NULL, status text DEFAULT NULL, more jsonb DEFAULT '{}') RETURNS text
	LANGUAGE sql AS $$
	SELECT jsonb_build_object('type', type, 'data', jsonb_strip_nulls(jsonb_build_object('id', id, 'reference', reference,
		'status', COALESCE(status, CASE type WHEN 'charge.reinstated' THEN 'paid' ELSE split_part(type, '.', 2) END),
		'amount', minor, 'currency', currency,
		'occurred_at', to_char(occurred_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'))) || more)::text
$$;

-- Deliver a signed callback. The event id is drawn unless given.
CREATE OR REPLACE FUNCTION shop.callback(type text, reference text, id text DEFAULT NULL, minor bigint DEFAULT 39900,
	currency text DEFAULT 'CNY', occurred_at timestamptz DEFAULT NULL, event_id text DEFAULT NULL, gateway text DEFAULT 'shop',
	status text DEFAULT NULL, more jsonb DEFAULT '{}', OUT verdict text, OUT http_status integer, OUT "order" text, OUT "now" text)
	LANGUAGE plpgsql AS $$
DECLARE
	content text := shop.body(type, reference, id, minor, currency, occurred_at, status, more);
BEGIN
	SELECT r.verdict, r.http_status, r.reference, r.status INTO verdict, http_status, "order", "now"
	FROM payguard.apply_callback(gateway, shop.sign(content, COALESCE(event_id, 'evt_' || gen_random_uuid())), convert_to(content, 'UTF8')) AS r;
END
$$;

-- An order of 399.00 CNY, claimed by the application unless told otherwise. The lease token goes to shop.token().
CREATE TABLE IF NOT EXISTS shop.tokens (reference text, attempt_no integer, token text);
CREATE OR REPLACE FUNCTION shop.order(reference text) RETURNS text
	LANGUAGE sql AS $$
	SELECT status FROM payguard.create_order(399.00, 'CNY', 'shop', reference)
$$;
CREATE OR REPLACE FUNCTION shop.claim(reference text, call_by text DEFAULT 'application', key text DEFAULT NULL,
	lease interval DEFAULT NULL, OUT verdict text, OUT status text, OUT attempt integer)
	LANGUAGE plpgsql AS $$
DECLARE
	c payguard.claim_order_result;
BEGIN
	c := payguard.claim_order(reference, COALESCE(key, 'key_' || gen_random_uuid()), NULL, call_by, '{}', lease);
	IF c.lease_token IS NOT NULL THEN
		INSERT INTO shop.tokens VALUES (claim.reference, c.attempt_no, c.lease_token);
	END IF;
	verdict := c.verdict; status := c.status; attempt := c.attempt_no;
END
$$;
CREATE OR REPLACE FUNCTION shop.token(reference text, attempt_no integer DEFAULT 1) RETURNS text
	LANGUAGE sql AS $$
	SELECT t.token FROM shop.tokens t WHERE t.reference = $1 AND t.attempt_no = $2
$$;
CREATE OR REPLACE FUNCTION shop.report(reference text, result text, id text DEFAULT NULL, amount numeric DEFAULT NULL,
	currency text DEFAULT NULL, attempt_no integer DEFAULT 1, code text DEFAULT NULL, OUT verdict text, OUT status text, OUT attempt integer)
	LANGUAGE sql AS $$
	SELECT r.verdict, r.status, r.attempt_no
	FROM payguard.record_attempt(shop.token(reference, attempt_no), result, id, amount, currency, code) AS r
$$;

-- Brings a fresh order into a state. The charge's id is ch_ and the reference in small letters.
CREATE OR REPLACE FUNCTION shop.make(reference text, wanted text) RETURNS text
	LANGUAGE plpgsql AS $$
DECLARE
	charge text := 'ch_' || lower(reference);
	proven bigint;
BEGIN
	PERFORM shop.order(reference);
	IF wanted IN ('processing', 'unknown', 'paid', 'failed', 'pending', 'refunded', 'reversed') THEN
		PERFORM shop.claim(reference);
	END IF;
	CASE wanted
		WHEN 'unknown' THEN PERFORM shop.report(reference, 'unknown');
		WHEN 'pending' THEN PERFORM shop.report(reference, 'pending', charge);
		WHEN 'failed' THEN PERFORM shop.report(reference, 'failed', NULL, NULL, NULL, 1, 'declined');
		WHEN 'paid' THEN PERFORM shop.callback('charge.paid', reference, charge, occurred_at => '2026-01-01 10:00Z');
		WHEN 'reversed' THEN
			PERFORM shop.callback('charge.paid', reference, charge, occurred_at => '2026-01-01 10:00Z');
			PERFORM shop.callback('charge.reversed', reference, charge, occurred_at => '2026-01-02 10:00Z');
		WHEN 'refunded' THEN
			-- by hand, as a refund made at the gateway would leave it
			PERFORM shop.callback('charge.paid', reference, charge, occurred_at => '2026-01-01 10:00Z');
			WITH proof AS (INSERT INTO payguard.evidence (order_id, received_at, source, result, verdict, gateway, charge_id)
					SELECT o.id, now(), 'query', 'succeeded', 'applied', 'shop', charge FROM payguard.orders o WHERE o.reference = make.reference
					RETURNING evidence.id, order_id),
				refund AS (INSERT INTO payguard.refunds (order_id, gateway, charge_id, amount, external, state, decided_by)
					SELECT order_id, 'shop', charge, 399.00, true, 'succeeded', proof.id FROM proof)
			SELECT proof.id INTO proven FROM proof;
			UPDATE payguard.payments p SET state = 'refunded' WHERE p.provider_id = charge;
			UPDATE payguard.orders o SET status = 'refunded', refunded_amount = 399.00, decided_by = proven WHERE o.reference = make.reference;
		WHEN 'closed' THEN PERFORM payguard.create_order(1.00, 'CNY', reference => reference || '-new', replaces => reference);
		ELSE NULL;
	END CASE;
	RETURN (SELECT o.status FROM payguard.orders o WHERE o.reference = make.reference);
END
$$;

-- A fact of a source that only the worker or an operator has, left to be judged when its order moves next.
CREATE OR REPLACE FUNCTION shop.plant(reference text, source text, result text, id text DEFAULT NULL, amount numeric DEFAULT NULL,
	currency text DEFAULT NULL, attempt_no integer DEFAULT 1, received_at timestamptz DEFAULT clock_timestamp()) RETURNS text
	LANGUAGE sql AS $$
	INSERT INTO payguard.evidence (order_id, received_at, attempt_no, source, result, verdict, gateway, gateway_reference, provider_id, amount, currency)
	SELECT o.id, plant.received_at, plant.attempt_no, plant.source::payguard.evidence_source, plant.result::payguard.evidence_result,
		'parked', 'shop', o.reference, plant.id, plant.amount, plant.currency
	FROM payguard.orders o WHERE o.reference = plant.reference
	RETURNING 'planted'
$$;

-- What the ledger holds about an order.
CREATE OR REPLACE FUNCTION shop.look(reference text, OUT status text, OUT attempts text, OUT payments text, OUT evidence text,
	OUT events text, OUT review text, OUT calls text)
	LANGUAGE sql STABLE AS $$
	SELECT o.status::text,
		(SELECT string_agg(a.no || ':' || a.state || COALESCE('(' || a.code || ')', ''), ' ' ORDER BY a.no) FROM payguard.attempts a WHERE a.order_id = o.id),
		(SELECT string_agg(concat_ws(' ', p.provider_id, p.amount, p.currency, CASE WHEN p.counted THEN 'counted' ELSE p.reason END, p.state), ', ' ORDER BY p.provider_id COLLATE "C", p.counted DESC)
			FROM payguard.payments p WHERE p.order_id = o.id),
		(SELECT string_agg(e.source || ':' || e.result || '=' || e.verdict, ' ' ORDER BY e.id) FROM payguard.evidence e WHERE e.order_id = o.id),
		(SELECT string_agg(v.type, ' ' ORDER BY v.seq) FROM payguard.events v WHERE v.aggregateid = o.reference),
		(SELECT array_to_string(r.reasons, '; ') FROM payguard.reviews r WHERE r.order_id = o.id),
		(SELECT string_agg(x.op || ':' || x.attempt_no || CASE WHEN x.next_run_at = 'infinity' THEN ' rests' WHEN x.next_run_at <= clock_timestamp() THEN ' due' ELSE ' later' END,
			', ' ORDER BY x.op, x.attempt_no) FROM payguard.outbox x WHERE x.order_id = o.id)
	FROM payguard.orders o WHERE o.reference = look.reference
$$;

-- One row of the decision table: an order in each of these states, the same callback for each, and what became of it.
CREATE OR REPLACE FUNCTION shop.row(prefix text, states text[], type text, id text DEFAULT NULL, minor bigint DEFAULT 39900,
	currency text DEFAULT 'CNY', occurred_at timestamptz DEFAULT '2026-01-05 10:00Z', gateway text DEFAULT 'shop', more jsonb DEFAULT '{}')
	RETURNS TABLE (was text, verdict text, status text, attempts text, payments text, events text, review text, calls text)
	LANGUAGE plpgsql AS $$
DECLARE
	reference text;
BEGIN
	FOREACH was IN ARRAY states
	LOOP
		reference := prefix || '-' || was;
		was := shop.make(reference, was);
		verdict := (shop.callback(type, reference, COALESCE(id, 'ch_') || lower(reference), minor, currency, occurred_at, NULL, gateway, NULL, more)).verdict;
		SELECT l.status, l.attempts, l.payments, l.events, l.review, l.calls INTO status, attempts, payments, events, review, calls
		FROM shop.look(reference) AS l;
		RETURN NEXT;
	END LOOP;
END
$$;

-- The error that a statement ends with, in one line; 'no error' if it does not. What it did is undone in either case.
CREATE OR REPLACE FUNCTION shop.fails(statement text) RETURNS text
	LANGUAGE plpgsql AS $$
DECLARE
	message text;
	detail text;
	hint text;
BEGIN
	EXECUTE statement;
	RAISE EXCEPTION USING ERRCODE = 'ZZ999', MESSAGE = 'no error';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
	IF SQLSTATE = 'ZZ999' THEN
		RETURN message;
	END IF;
	RETURN SQLSTATE || ': ' || message || COALESCE(' | ' || NULLIF(detail, ''), '') || COALESCE(' | ' || NULLIF(hint, ''), '');
END
$$;

-- How many rows every table of the ledger holds, deliveries of callbacks included.
CREATE OR REPLACE FUNCTION shop.counts() RETURNS text
	LANGUAGE plpgsql AS $$
DECLARE
	name text;
	n bigint;
	line text := '';
BEGIN
	FOR name IN SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'payguard'::regnamespace AND c.relkind = 'r' ORDER BY c.relname COLLATE "C"
	LOOP
		EXECUTE format('SELECT count(*) FROM payguard.%I', name) INTO n;
		line := line || name || '=' || n || ' ';
	END LOOP;
	RETURN line || (SELECT 'deliveries=' || COALESCE(sum(deliveries), 0) FROM payguard.evidence);
END
$$;

-- check() without the rule that says that no worker runs here, which is how these tests are run.
CREATE OR REPLACE FUNCTION shop.damage(OUT rule text, OUT object text, OUT detail text) RETURNS SETOF record
	LANGUAGE sql AS $$
	SELECT c.rule, c.object, c.detail FROM payguard.check() AS c WHERE c.rule <> 'not_served' ORDER BY 1, 2, 3
$$;
\set ECHO all
