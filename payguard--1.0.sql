/*
 * payguard--1.0.sql: the schema payguard.
 *
 * Tables first, then guard triggers, functions, the foreign data wrapper,
 * rights, and what a dump must carry.  No seed rows anywhere, and no INSERT
 * trigger: a restore would meet both.  No foreign keys either: the data of an
 * extension's tables is restored after its constraints exist, by pg_restore -j
 * in any order, and would fail.  Rows of an order are written under the
 * order's lock, the guard deletes no order that has any, and check() looks.
 */

\echo Use "CREATE EXTENSION payguard" to load this file. \quit

SET LOCAL search_path TO pg_catalog, pg_temp;

DO $$
BEGIN
	IF pg_catalog.getdatabaseencoding() <> 'UTF8' THEN
		RAISE EXCEPTION 'payguard needs a database with encoding UTF8, this one has %',
			pg_catalog.getdatabaseencoding()
			USING ERRCODE = 'feature_not_supported',
				  HINT = 'Create the database with ENCODING ''UTF8''.';
	END IF;
END
$$;

CREATE SCHEMA payguard;
COMMENT ON SCHEMA payguard IS 'payments that happen exactly once';

/* ---------------------------------------------------------------- types -- */

CREATE TYPE payguard.order_state AS ENUM
	('created', 'processing', 'unknown', 'paid', 'failed', 'closed', 'refunded', 'reversed');
CREATE TYPE payguard.attempt_state AS ENUM
	('claimed', 'sending', 'pending', 'succeeded', 'failed', 'unknown', 'surplus');
CREATE TYPE payguard.payment_state AS ENUM
	('paid', 'refunding', 'refunded', 'reversed', 'kept');
CREATE TYPE payguard.refund_state AS ENUM
	('pending', 'submitted', 'processing', 'succeeded', 'failed', 'unknown');
CREATE TYPE payguard.call_by AS ENUM ('worker', 'application', 'gateway');
CREATE TYPE payguard.gateway_mode AS ENUM ('live', 'test');
CREATE TYPE payguard.evidence_source AS ENUM
	('answer', 'application', 'callback', 'query', 'settlement', 'operator', 'expiry');
CREATE TYPE payguard.evidence_result AS ENUM
	('paid', 'failed', 'closed', 'pending', 'unknown', 'not_sent', 'not_found',
	 'reversed', 'reinstated', 'succeeded');
CREATE TYPE payguard.evidence_verdict AS ENUM
	('applied', 'duplicate', 'stale', 'surplus', 'mismatch', 'parked', 'hint',
	 'fenced', 'unreadable', 'dismissed');
CREATE TYPE payguard.outbox_op AS ENUM
	('charge', 'query', 'refund', 'refund_query', 'close', 'settlement', 'deliver');
CREATE TYPE payguard.outbox_state AS ENUM ('ready', 'sending');

COMMENT ON TYPE payguard.order_state IS 'states of an order';
COMMENT ON TYPE payguard.attempt_state IS 'states of an attempt';
COMMENT ON TYPE payguard.payment_state IS 'states of a payment';
COMMENT ON TYPE payguard.refund_state IS 'states of a refund';
COMMENT ON TYPE payguard.call_by IS 'who calls the gateway; gateway: the attempt was made by a fact';
COMMENT ON TYPE payguard.gateway_mode IS 'does real money move?';
COMMENT ON TYPE payguard.evidence_source IS 'where a fact came from';
COMMENT ON TYPE payguard.evidence_result IS 'what a fact says';
COMMENT ON TYPE payguard.evidence_verdict IS 'what a fact led to';
COMMENT ON TYPE payguard.outbox_op IS 'kinds of gateway calls';
COMMENT ON TYPE payguard.outbox_state IS 'is the call under way?';

/* --------------------------------------------------------------- tables -- */

/*
 * orders: one purchase intent each.  Written by create_order, claim_order and
 * the one door.  Updates stay HOT: no index names a column that changes.
 */
CREATE TABLE payguard.orders (
	id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	status payguard.order_state NOT NULL DEFAULT 'created',
	once boolean NOT NULL DEFAULT false,
	attempt_no integer NOT NULL DEFAULT 0,
	reference text COLLATE "C" NOT NULL UNIQUE
		CHECK (reference ~ '^[0-9A-Za-z][0-9A-Za-z._-]{5,63}$'),
	gateway text COLLATE "C",
	customer text COLLATE "C",
	product text COLLATE "C",
	amount numeric NOT NULL
		CHECK (amount > 0
			   AND amount < 100000000000000000),
	currency text COLLATE "C" NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
	refunded_amount numeric NOT NULL DEFAULT 0
		CHECK (refunded_amount >= 0),
	refund_reserved numeric NOT NULL DEFAULT 0
		CHECK (refund_reserved >= 0
			   AND refund_reserved <= amount),
	decided_by bigint,
	paid_at timestamptz,
	close_requested_at timestamptz,
	expires_at timestamptz,
	metadata jsonb NOT NULL DEFAULT '{}',
	created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
	updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
	CONSTRAINT orders_decided CHECK (decided_by IS NOT NULL OR status IN ('created', 'processing')),
	CONSTRAINT orders_paid_at CHECK (paid_at IS NOT NULL OR status NOT IN ('paid', 'refunded', 'reversed')),
	CONSTRAINT orders_once CHECK (NOT once OR (customer IS NOT NULL AND product IS NOT NULL))
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
CREATE INDEX orders_expires_at ON payguard.orders (expires_at) WHERE expires_at IS NOT NULL;

/* attempts: one try each at charging an order, with its own reference and key. */
CREATE TABLE payguard.attempts (
	order_id bigint NOT NULL,
	no integer NOT NULL CHECK (no > 0),
	state payguard.attempt_state NOT NULL,
	mode payguard.gateway_mode NOT NULL,
	call_by payguard.call_by NOT NULL,
	gateway text COLLATE "C" NOT NULL,
	gateway_reference text COLLATE "C" NOT NULL,
	idempotency_key text COLLATE "C" NOT NULL
		CHECK (idempotency_key ~ '^[\x21-\x7e]+$'),
	request_key text COLLATE "C",
	fingerprint bytea,
	lease_token text COLLATE "C",
	lease_until timestamptz,
	provider_id text COLLATE "C",
	client jsonb,
	sent_at timestamptz,
	answered_at timestamptz,
	code text,
	message text,
	decided_by bigint,
	created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
	PRIMARY KEY (order_id, no),
	CONSTRAINT attempts_request_key UNIQUE (request_key),
	CONSTRAINT attempts_gateway_reference UNIQUE (gateway, gateway_reference),
	CONSTRAINT attempts_decided CHECK (decided_by IS NOT NULL OR state IN ('claimed', 'sending'))
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

/* payments: every real payment that a gateway confirmed. */
CREATE TABLE payguard.payments (
	gateway text COLLATE "C" NOT NULL,
	provider_id text COLLATE "C" NOT NULL,
	order_id bigint NOT NULL,
	attempt_no integer,
	counted boolean NOT NULL,
	state payguard.payment_state NOT NULL,
	amount numeric NOT NULL CHECK (amount > 0),
	currency text COLLATE "C" NOT NULL,
	fee numeric,
	reason text COLLATE "C" CHECK (reason IN ('surplus', 'mismatch')),
	paid_at timestamptz NOT NULL,
	PRIMARY KEY (gateway, provider_id),
	CONSTRAINT payments_reason CHECK (counted = (reason IS NULL))
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX payments_counted ON payguard.payments (order_id) WHERE counted;
CREATE INDEX payments_order ON payguard.payments (order_id) WHERE NOT counted;

/* refunds: money given back, by us or (external) by hand at the gateway. */
CREATE TABLE payguard.refunds (
	id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	order_id bigint NOT NULL,
	gateway text COLLATE "C" NOT NULL,
	charge_id text COLLATE "C" NOT NULL,
	request_key text COLLATE "C",
	fingerprint bytea,
	gateway_reference text COLLATE "C",
	idempotency_key text COLLATE "C",
	amount numeric NOT NULL CHECK (amount > 0),
	reason text,
	external boolean NOT NULL DEFAULT false,
	state payguard.refund_state NOT NULL,
	lease_token text COLLATE "C",
	lease_until timestamptz,
	provider_id text COLLATE "C",
	decided_by bigint,
	sent_at timestamptz,
	answered_at timestamptz,
	created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
	CONSTRAINT refunds_request_key UNIQUE (order_id, request_key),
	CONSTRAINT refunds_gateway_reference UNIQUE (gateway, gateway_reference),
	CONSTRAINT refunds_provider_id UNIQUE (gateway, provider_id)
) WITH (fillfactor = 50);

CREATE INDEX refunds_charge ON payguard.refunds (order_id, charge_id);

/* reviews: the operators' list. */
CREATE TABLE payguard.reviews (
	order_id bigint PRIMARY KEY,
	reasons text[] NOT NULL,
	since timestamptz NOT NULL DEFAULT clock_timestamp()
);

/* provider_ids: finds what a callback means that names only the gateway's id. */
CREATE TABLE payguard.provider_ids (
	gateway text COLLATE "C" NOT NULL,
	provider_id text COLLATE "C" NOT NULL,
	order_id bigint NOT NULL,
	attempt_no integer,
	refund_id bigint,
	PRIMARY KEY (gateway, provider_id)
);

/* order_slots: the live order of a `once` purchase. */
CREATE TABLE payguard.order_slots (
	customer text COLLATE "C" NOT NULL,
	product text COLLATE "C" NOT NULL,
	order_id bigint NOT NULL,
	PRIMARY KEY (customer, product)
);

/* entitlements: what a paid `once` order gives its customer, once. */
CREATE TABLE payguard.entitlements (
	customer text COLLATE "C" NOT NULL,
	product text COLLATE "C" NOT NULL,
	order_id bigint NOT NULL,
	granted_at timestamptz NOT NULL DEFAULT clock_timestamp(),
	PRIMARY KEY (customer, product)
);

/*
 * evidence: every fact about money that was ever learned, immutable.  Written
 * by the one door only.
 */
CREATE TABLE payguard.evidence (
	id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	order_id bigint,
	refund_id bigint,
	received_at timestamptz NOT NULL,
	occurred_at timestamptz,
	attempt_no integer,
	deliveries integer NOT NULL DEFAULT 1,
	source payguard.evidence_source NOT NULL,
	result payguard.evidence_result NOT NULL,
	verdict payguard.evidence_verdict NOT NULL,
	mode payguard.gateway_mode,
	gateway text COLLATE "C" NOT NULL,
	gateway_reference text COLLATE "C",
	charge_id text COLLATE "C",
	provider_id text COLLATE "C",
	event_id text COLLATE "C",
	event_type text,
	amount numeric,
	currency text COLLATE "C",
	fee numeric,
	code text,
	message text,
	transport jsonb,
	payload jsonb,
	digest bytea,
	note text
) WITH (fillfactor = 90);
CREATE INDEX evidence_order ON payguard.evidence (order_id);
CREATE UNIQUE INDEX evidence_inbox ON payguard.evidence (gateway, event_id, digest) NULLS NOT DISTINCT
	WHERE source = 'callback';
CREATE INDEX evidence_parked ON payguard.evidence (order_id, gateway_reference)
	WHERE verdict = 'parked';
CREATE INDEX evidence_parked_refunds ON payguard.evidence (charge_id)
	WHERE verdict = 'parked' AND charge_id IS NOT NULL;

/* outbox: one gateway call to make in each row.  ledger/outbox.c alone uses it. */
CREATE TABLE payguard.outbox (
	id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	origin bigint NOT NULL,
	order_id bigint,
	refund_id bigint,
	next_run_at timestamptz NOT NULL,
	lease_until timestamptz,
	attempt_no integer,
	tries integer NOT NULL DEFAULT 0,
	epoch integer NOT NULL DEFAULT 0,
	op payguard.outbox_op NOT NULL,
	state payguard.outbox_state NOT NULL DEFAULT 'ready',
	day date,
	gateway text COLLATE "C" NOT NULL,
	request bytea
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 500);
CREATE INDEX outbox_due ON payguard.outbox (next_run_at);
CREATE INDEX outbox_deliver ON payguard.outbox (gateway) WHERE op = 'deliver';
CREATE UNIQUE INDEX outbox_one ON payguard.outbox (order_id, attempt_no, op, refund_id, day, gateway)
	NULLS NOT DISTINCT WHERE op <> 'deliver';

/* events: business events for followers, in the columns of Debezium's outbox event router. */
CREATE TABLE payguard.events (
	seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	cause bigint NOT NULL,
	created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
	id uuid NOT NULL DEFAULT gen_random_uuid(),
	aggregatetype text COLLATE "C" NOT NULL,
	aggregateid text COLLATE "C" NOT NULL,
	type text COLLATE "C" NOT NULL,
	payload jsonb NOT NULL,
	CONSTRAINT events_once UNIQUE (aggregateid, type, cause)
);

/* event_deliveries: which consumer has had which event (its seq).  A row below the consumer's floor says nothing new. */
CREATE TABLE payguard.event_deliveries (
	consumer text COLLATE "C" NOT NULL,
	event bigint NOT NULL,
	delivered_at timestamptz NOT NULL DEFAULT clock_timestamp(),
	PRIMARY KEY (consumer, event)
);

/*
 * event_consumers: up to floor a consumer has had every event, and none can
 * come any more.  The floor may rise to mark when all transactions below
 * mark_xid have ended.
 */
CREATE TABLE payguard.event_consumers (
	consumer text COLLATE "C" PRIMARY KEY,
	floor bigint NOT NULL,
	mark bigint NOT NULL,
	mark_xid xid8 NOT NULL
) WITH (fillfactor = 30);

/* instances: the copies of this ledger that were allowed to pay. */
CREATE TABLE payguard.instances (
	origin bigint PRIMARY KEY,
	label text NOT NULL,
	timeline integer NOT NULL,
	switched_at timestamptz,
	adopted_at timestamptz NOT NULL DEFAULT clock_timestamp(),
	adopted_by text NOT NULL,
	reason text NOT NULL
);

/* once_keys: generic idempotency keys of the application. */
CREATE TABLE payguard.once_keys (
	scope text COLLATE "C" NOT NULL,
	key text COLLATE "C" NOT NULL,
	fingerprint bytea NOT NULL,
	response jsonb,
	started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
	finished_at timestamptz,
	PRIMARY KEY (scope, key)
) WITH (fillfactor = 70);

/* gateway_pauses: gateways that are not called until an operator resumes them. */
CREATE TABLE payguard.gateway_pauses (
	gateway text COLLATE "C" PRIMARY KEY,
	paused_at timestamptz NOT NULL DEFAULT clock_timestamp(),
	paused_by text NOT NULL
);

COMMENT ON TABLE payguard.orders IS 'one purchase intent each';
COMMENT ON TABLE payguard.attempts IS 'one try each at charging an order, with one gateway reference and one key';
COMMENT ON TABLE payguard.payments IS 'every real payment that a gateway confirmed; at most one is counted for each order';
COMMENT ON TABLE payguard.refunds IS 'money given back';
COMMENT ON TABLE payguard.reviews IS 'orders that need a person, and why';
COMMENT ON TABLE payguard.provider_ids IS 'the gateways'' own ids and what they stand for';
COMMENT ON TABLE payguard.order_slots IS 'the live order of a purchase that a customer can make once';
COMMENT ON TABLE payguard.entitlements IS 'what paid orders gave their customers, once each';
COMMENT ON TABLE payguard.evidence IS 'every fact about money that was learned, with the verdict on it';
COMMENT ON TABLE payguard.outbox IS 'gateway calls to make';
COMMENT ON TABLE payguard.events IS 'business events, written with the change of state that they tell of';
COMMENT ON TABLE payguard.event_deliveries IS 'which consumer has had which event';
COMMENT ON TABLE payguard.event_consumers IS 'up to where a consumer has had every event';
COMMENT ON TABLE payguard.once_keys IS 'idempotency keys of the application''s other writes';
COMMENT ON TABLE payguard.gateway_pauses IS 'gateways that are not called until they are resumed';
COMMENT ON TABLE payguard.instances IS 'copies of this ledger that were allowed to pay';

/* --------------------------------------------------------------- guards -- */

/*
 * AFTER triggers, so that no later BEFORE trigger slips past them; their
 * names sort after the server's own; ENABLE ALWAYS, so that no replication
 * role switches them off.
 */
CREATE FUNCTION payguard.guard() RETURNS trigger
	LANGUAGE c AS 'MODULE_PATHNAME', 'payguard_guard';
COMMENT ON FUNCTION payguard.guard() IS 'refuses changes that the state machines do not list, from any writer';

CREATE FUNCTION payguard.guard_truncate() RETURNS trigger
	LANGUAGE c AS 'MODULE_PATHNAME', 'payguard_guard_truncate';
COMMENT ON FUNCTION payguard.guard_truncate() IS 'refuses TRUNCATE of the ledger';

DO $$
DECLARE
	t text;
BEGIN
	FOREACH t IN ARRAY ARRAY['orders', 'attempts', 'payments', 'refunds', 'evidence', 'events']
	LOOP
		EXECUTE format('CREATE TRIGGER zz_payguard_guard AFTER UPDATE OR DELETE ON payguard.%I
						FOR EACH ROW EXECUTE FUNCTION payguard.guard()', t);
		EXECUTE format('ALTER TABLE payguard.%I ENABLE ALWAYS TRIGGER zz_payguard_guard', t);
	END LOOP;
	FOREACH t IN ARRAY ARRAY['orders', 'attempts', 'payments', 'refunds', 'evidence', 'events',
							 'reviews', 'provider_ids', 'order_slots', 'entitlements', 'outbox', 'instances', 'once_keys',
							 'event_deliveries', 'event_consumers']
	LOOP
		EXECUTE format('CREATE TRIGGER zz_payguard_guard_truncate BEFORE TRUNCATE ON payguard.%I
						FOR EACH STATEMENT EXECUTE FUNCTION payguard.guard_truncate()', t);
		EXECUTE format('ALTER TABLE payguard.%I ENABLE ALWAYS TRIGGER zz_payguard_guard_truncate', t);
	END LOOP;
END
$$;

/* -------------------------------------------------------- result types -- */

CREATE TYPE payguard.create_order_result AS
	(reference text, status text, created boolean, amount numeric, currency text,
	 gateway text, expires_at timestamptz);
CREATE TYPE payguard.claim_order_result AS
	(claimed boolean, verdict text, status text, attempt_no integer, gateway text,
	 gateway_reference text, idempotency_key text, lease_token text,
	 lease_until timestamptz, client jsonb);
CREATE TYPE payguard.record_attempt_result AS
	(verdict text, status text, reference text, attempt_no integer, evidence_id bigint);
CREATE TYPE payguard.apply_callback_result AS
	(verdict text, http_status integer, response_body text, reference text, status text,
	 evidence_id bigint);
CREATE TYPE payguard.verify_callback_result AS
	(valid boolean, reason text, event_id text, type text, reference text, result text);
CREATE TYPE payguard.order_status_result AS
	(reference text, status text, amount numeric, currency text, refunded_amount numeric,
	 attempt_no integer, attempt_state text, gateway text, client jsonb, code text,
	 message text, can_pay boolean, needs_review boolean, paid_at timestamptz,
	 expires_at timestamptz, updated_at timestamptz);
CREATE TYPE payguard.request_refund_result AS
	(created boolean, verdict text, refund_id bigint, status text, amount numeric,
	 remaining numeric, gateway text, gateway_reference text, idempotency_key text,
	 charge_id text, lease_token text, lease_until timestamptz);
CREATE TYPE payguard.close_order_result AS (verdict text, status text);
CREATE TYPE payguard.close_attempt_result AS (verdict text, status text, attempt_no integer);
CREATE TYPE payguard.resolve_result AS (verdict text, status text, evidence_id bigint);
CREATE TYPE payguard.begin_once_result AS (first boolean, state text, response jsonb);
CREATE TYPE payguard.next_events_result AS
	(id uuid, seq bigint, type text, aggregatetype text, aggregateid text, payload jsonb,
	 created_at timestamptz, cause bigint);
CREATE TYPE payguard.why_result AS (at timestamptz, what text, detail text);
CREATE TYPE payguard.check_result AS (rule text, object text, detail text);

/* ------------------------------------------------------------ functions -- */

CREATE FUNCTION payguard.create_order(
	amount numeric, currency text, gateway text DEFAULT NULL, reference text DEFAULT NULL,
	customer text DEFAULT NULL, product text DEFAULT NULL, once boolean DEFAULT false,
	expires_in interval DEFAULT NULL, metadata jsonb DEFAULT '{}', replaces text DEFAULT NULL)
	RETURNS payguard.create_order_result
	LANGUAGE c AS 'MODULE_PATHNAME', 'payguard_create_order';
COMMENT ON FUNCTION payguard.create_order IS 'make an order, or find it again by its reference';

CREATE FUNCTION payguard.claim_order(
	reference text, request_key text, gateway text DEFAULT NULL, call_by text DEFAULT 'worker',
	payment jsonb DEFAULT '{}', lease interval DEFAULT NULL)
	RETURNS payguard.claim_order_result
	LANGUAGE c AS 'MODULE_PATHNAME', 'payguard_claim_order';
COMMENT ON FUNCTION payguard.claim_order IS 'ask for an order to be charged; exactly one caller gets claimed = true';

CREATE FUNCTION payguard.record_attempt(
	lease_token text, result text, provider_id text DEFAULT NULL, amount numeric DEFAULT NULL,
	currency text DEFAULT NULL, code text DEFAULT NULL, message text DEFAULT NULL,
	client jsonb DEFAULT NULL, details jsonb DEFAULT NULL, occurred_at timestamptz DEFAULT NULL)
	RETURNS payguard.record_attempt_result
	LANGUAGE c AS 'MODULE_PATHNAME', 'payguard_record_attempt';
COMMENT ON FUNCTION payguard.record_attempt IS 'tell what a gateway answered to a call that the application made itself';

CREATE FUNCTION payguard.renew_claim(lease_token text, lease interval)
	RETURNS timestamptz
	LANGUAGE c AS 'MODULE_PATHNAME', 'payguard_renew_claim';
COMMENT ON FUNCTION payguard.renew_claim IS 'prolong a live lease from now on; returns its new end';

CREATE FUNCTION payguard.apply_callback(gateway text, headers jsonb, body bytea, url text DEFAULT NULL)
	RETURNS SETOF payguard.apply_callback_result
	LANGUAGE c AS 'MODULE_PATHNAME', 'payguard_apply_callback';
COMMENT ON FUNCTION payguard.apply_callback IS 'verify and book a gateway''s callback; answer the gateway with what this returns';

CREATE FUNCTION payguard.verify_callback(
	gateway text, headers jsonb, body bytea, url text DEFAULT NULL,
	at timestamptz DEFAULT clock_timestamp())
	RETURNS payguard.verify_callback_result
	LANGUAGE c AS 'MODULE_PATHNAME', 'payguard_verify_callback';
COMMENT ON FUNCTION payguard.verify_callback IS 'what apply_callback would make of this, without booking anything';

CREATE FUNCTION payguard.order_status(reference text)
	RETURNS payguard.order_status_result
	LANGUAGE c AS 'MODULE_PATHNAME', 'payguard_order_status';
COMMENT ON FUNCTION payguard.order_status IS 'the present state of an order, for the page';

CREATE FUNCTION payguard.why(reference text)
	RETURNS SETOF payguard.why_result
	LANGUAGE c AS 'MODULE_PATHNAME', 'payguard_why';
COMMENT ON FUNCTION payguard.why IS 'the whole story of an order and what happens next, for operators';

CREATE FUNCTION payguard.check()
	RETURNS SETOF payguard.check_result
	LANGUAGE c AS 'MODULE_PATHNAME', 'payguard_check';
COMMENT ON FUNCTION payguard.check IS 'every invariant that does not hold; no rows = healthy';

CREATE FUNCTION payguard.adopt(reason text)
	RETURNS bigint
	LANGUAGE c AS 'MODULE_PATHNAME', 'payguard_adopt';
COMMENT ON FUNCTION payguard.adopt IS 'let this copy of the ledger call gateways; returns how many waiting calls it took over';

CREATE FUNCTION payguard.grant_access(role regrole, access text)
	RETURNS void
	LANGUAGE c AS 'MODULE_PATHNAME', 'payguard_grant_access';
COMMENT ON FUNCTION payguard.grant_access IS 'grant a role what an application, callback, operator or monitor needs';

CREATE FUNCTION payguard.request_refund(
	reference text, request_key text, amount numeric DEFAULT NULL, reason text DEFAULT NULL,
	call_by text DEFAULT 'worker', provider_id text DEFAULT NULL)
	RETURNS payguard.request_refund_result
	LANGUAGE c AS 'MODULE_PATHNAME', 'payguard_request_refund';
COMMENT ON FUNCTION payguard.request_refund IS 'give money back, once for each request key and never more than was paid';

CREATE FUNCTION payguard.close_order(reference text, reason text DEFAULT NULL)
	RETURNS payguard.close_order_result
	LANGUAGE c AS 'MODULE_PATHNAME', 'payguard_close_order';
COMMENT ON FUNCTION payguard.close_order IS 'end an order that is not paid; what may have left is closed by the gateway';

CREATE FUNCTION payguard.close_attempt(reference text, reason text DEFAULT NULL)
	RETURNS payguard.close_attempt_result
	LANGUAGE c AS 'MODULE_PATHNAME', 'payguard_close_attempt';
COMMENT ON FUNCTION payguard.close_attempt IS 'give up the latest attempt, so that another channel can be tried';

CREATE FUNCTION payguard.resolve_order(
	reference text, result text, reason text, provider_id text DEFAULT NULL,
	attempt_no integer DEFAULT NULL)
	RETURNS payguard.resolve_result
	LANGUAGE c AS 'MODULE_PATHNAME', 'payguard_resolve_order';
COMMENT ON FUNCTION payguard.resolve_order IS 'what an operator decides about an order: paid, failed, reversed, reviewed or kept';

CREATE FUNCTION payguard.resolve_refund(
	refund_id bigint, result text, reason text, provider_id text DEFAULT NULL)
	RETURNS payguard.resolve_result
	LANGUAGE c AS 'MODULE_PATHNAME', 'payguard_resolve_refund';
COMMENT ON FUNCTION payguard.resolve_refund IS 'what an operator decides about a refund: succeeded or failed';

CREATE FUNCTION payguard.resolve_evidence(evidence_id bigint, reference text, reason text)
	RETURNS payguard.resolve_result
	LANGUAGE c AS 'MODULE_PATHNAME', 'payguard_resolve_evidence';
COMMENT ON FUNCTION payguard.resolve_evidence IS 'give a parked fact to an order, or (reference null) dismiss it';

CREATE FUNCTION payguard.pause_gateway(name text)
	RETURNS boolean
	LANGUAGE c AS 'MODULE_PATHNAME', 'payguard_pause_gateway';
COMMENT ON FUNCTION payguard.pause_gateway IS 'let the worker make no calls to this gateway; returns whether it was not paused';

CREATE FUNCTION payguard.resume_gateway(name text)
	RETURNS boolean
	LANGUAGE c AS 'MODULE_PATHNAME', 'payguard_resume_gateway';
COMMENT ON FUNCTION payguard.resume_gateway IS 'let the worker call this gateway again; returns whether it was paused';

CREATE FUNCTION payguard.begin_once(scope text, key text, request jsonb)
	RETURNS payguard.begin_once_result
	LANGUAGE c AS 'MODULE_PATHNAME', 'payguard_begin_once';
COMMENT ON FUNCTION payguard.begin_once IS 'be the first under an idempotency key, or learn what the first one did';

CREATE FUNCTION payguard.finish_once(scope text, key text, response jsonb)
	RETURNS void
	LANGUAGE c AS 'MODULE_PATHNAME', 'payguard_finish_once';
COMMENT ON FUNCTION payguard.finish_once IS 'keep the answer under an idempotency key';

CREATE FUNCTION payguard.next_events(consumer text, max integer DEFAULT 100)
	RETURNS SETOF payguard.next_events_result
	LANGUAGE c AS 'MODULE_PATHNAME', 'payguard_next_events';
COMMENT ON FUNCTION payguard.next_events IS 'events that this consumer has not had; its own when its transaction commits';

CREATE FUNCTION payguard.enforce_transitions() RETURNS trigger
	LANGUAGE c AS 'MODULE_PATHNAME', 'payguard_enforce_transitions';
COMMENT ON FUNCTION payguard.enforce_transitions IS 'trigger for your own tables: (column, ''from>to'', ...) lists the allowed changes';

CREATE FUNCTION payguard.adapter(name text)
	RETURNS jsonb
	LANGUAGE c STABLE AS 'MODULE_PATHNAME', 'payguard_adapter';
COMMENT ON FUNCTION payguard.adapter IS 'the document of an adapter, NULL if there is none of that name';

/* ----------------------------------------------------- foreign data wrapper -- */

CREATE FUNCTION payguard.payguard_fdw_validator(options text[], catalog oid)
	RETURNS void
	LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'payguard_fdw_validator';
COMMENT ON FUNCTION payguard.payguard_fdw_validator IS 'checks the options of gateways and their secrets';

CREATE FOREIGN DATA WRAPPER payguard VALIDATOR payguard.payguard_fdw_validator;
COMMENT ON FOREIGN DATA WRAPPER payguard IS 'gateways: CREATE SERVER ... FOREIGN DATA WRAPPER payguard';

/* ----------------------------------------------------------------- rights -- */

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA payguard FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA payguard FROM PUBLIC;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA payguard FROM PUBLIC;
REVOKE ALL ON SCHEMA payguard FROM PUBLIC;

/* ------------------------------------------------------------------ dumps -- */

SELECT pg_extension_config_dump('payguard.orders', '');
SELECT pg_extension_config_dump('payguard.orders_id_seq', '');
SELECT pg_extension_config_dump('payguard.attempts', '');
SELECT pg_extension_config_dump('payguard.payments', '');
SELECT pg_extension_config_dump('payguard.refunds', '');
SELECT pg_extension_config_dump('payguard.refunds_id_seq', '');
SELECT pg_extension_config_dump('payguard.reviews', '');
SELECT pg_extension_config_dump('payguard.provider_ids', '');
SELECT pg_extension_config_dump('payguard.order_slots', '');
SELECT pg_extension_config_dump('payguard.entitlements', '');
SELECT pg_extension_config_dump('payguard.evidence', '');
SELECT pg_extension_config_dump('payguard.evidence_id_seq', '');
SELECT pg_extension_config_dump('payguard.outbox', '');
SELECT pg_extension_config_dump('payguard.outbox_id_seq', '');
SELECT pg_extension_config_dump('payguard.events', '');
SELECT pg_extension_config_dump('payguard.events_seq_seq', '');
SELECT pg_extension_config_dump('payguard.event_deliveries', '');
SELECT pg_extension_config_dump('payguard.event_consumers', '');
SELECT pg_extension_config_dump('payguard.instances', '');
SELECT pg_extension_config_dump('payguard.once_keys', '');
SELECT pg_extension_config_dump('payguard.gateway_pauses', '');
