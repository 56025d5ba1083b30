-- R3: no move that the state machines do not list passes, by nobody: every pair of states of orders, attempts, payments and refunds is tried by a superuser.
\getenv abs_srcdir PG_ABS_SRCDIR
\set shop :abs_srcdir '/sql/include/shop.sql'
\i :shop

SELECT shop.make('MOVES1', 'paid');
CREATE FUNCTION pg_temp.evidence(ref text, result text) RETURNS bigint LANGUAGE sql AS $$
	INSERT INTO payguard.evidence (order_id, received_at, source, result, verdict, gateway)
	SELECT id, now(), 'operator', result::payguard.evidence_result, 'applied', 'shop' FROM payguard.orders WHERE reference = ref RETURNING id
$$;
-- the state is set without guards, then the move is tried with a proof of every kind; what passes with some proof is listed
CREATE FUNCTION pg_temp.moves(tab text, col text, typ text, key text) RETURNS TABLE ("from" text, "to" text) LANGUAGE plpgsql AS $$
DECLARE
	f text;
	t text;
	e bigint;
	words text[] := (SELECT array_agg(enumlabel ORDER BY enumsortorder) FROM pg_enum WHERE enumtypid = ('payguard.' || typ)::regtype);
	proofs bigint[] := ARRAY[NULL]::bigint[] || (SELECT array_agg(pg_temp.evidence('MOVES1', r)) FROM unnest(ARRAY['paid', 'failed', 'closed', 'not_sent', 'not_found', 'reversed', 'reinstated', 'succeeded', 'unknown', 'pending']) AS r);
	decided text := CASE WHEN tab = 'payments' THEN '' ELSE ', decided_by = $1' END;
BEGIN
	FOREACH f IN ARRAY words
	LOOP
		"from" := f; "to" := '';
		FOREACH t IN ARRAY words
		LOOP
			CONTINUE WHEN f = t;
			FOREACH e IN ARRAY proofs
			LOOP
				BEGIN
					EXECUTE format('ALTER TABLE payguard.%I DISABLE TRIGGER zz_payguard_guard', tab);
					EXECUTE format('UPDATE payguard.%I SET %I = %L %s WHERE %s', tab, col, f, CASE WHEN tab = 'payments' THEN '' ELSE ', decided_by = ' || proofs[2] END, key);
					EXECUTE format('ALTER TABLE payguard.%I ENABLE ALWAYS TRIGGER zz_payguard_guard', tab);
					EXECUTE format('UPDATE payguard.%I SET %I = %L %s %s WHERE %s', tab, col, t, decided,
						CASE WHEN tab = 'orders' AND f = 'failed' AND t = 'processing' THEN ', attempt_no = attempt_no + 1' ELSE '' END, key) USING e;
					RAISE EXCEPTION 'passed';
				EXCEPTION WHEN raise_exception THEN
					"to" := concat_ws(' ', NULLIF("to", ''), t);
					EXIT;
				WHEN SQLSTATE 'PG003' OR check_violation THEN
					NULL;
				END;
			END LOOP;
		END LOOP;
		RETURN NEXT;
	END LOOP;
END
$$;
SELECT * FROM pg_temp.moves('orders', 'status', 'order_state', $$reference = 'MOVES1'$$);
SELECT * FROM pg_temp.moves('attempts', 'state', 'attempt_state', $$gateway_reference = 'MOVES1'$$);
SELECT * FROM pg_temp.moves('payments', 'state', 'payment_state', $$provider_id = 'ch_moves1'$$);
SELECT verdict FROM payguard.request_refund('MOVES1', 'moves1', 1);
SELECT * FROM pg_temp.moves('refunds', 'state', 'refund_state', $$request_key = 'moves1'$$);
-- the trigger stayed on
SELECT count(*) FROM pg_trigger WHERE tgname = 'zz_payguard_guard' AND tgenabled = 'A';
