-- R16: live and test money are not mixed: the mode of the gateway is kept on every attempt, and a fact of the other mode is a mismatch.
\getenv abs_srcdir PG_ABS_SRCDIR
\set shop :abs_srcdir '/sql/include/shop.sql'
\i :shop

CREATE SERVER modes_live FOREIGN DATA WRAPPER payguard OPTIONS (adapter 'stripe_charges', base_url 'https://modes.example');
CREATE SERVER modes_test FOREIGN DATA WRAPPER payguard OPTIONS (adapter 'stripe_charges', base_url 'https://modes.example', mode 'test');
CREATE USER MAPPING FOR PUBLIC SERVER modes_live OPTIONS (api_key 'k', webhook_secret 'whsec_modes');
CREATE USER MAPPING FOR PUBLIC SERVER modes_test OPTIONS (api_key 'k', webhook_secret 'whsec_modes');
CREATE FUNCTION pg_temp.stripe(gateway text, reference text, live boolean, id text DEFAULT 'ch_1', OUT verdict text, OUT status text) LANGUAGE plpgsql AS $$
DECLARE
	body text := jsonb_build_object('id', 'evt_' || gen_random_uuid(), 'object', 'event', 'type', 'charge.succeeded', 'livemode', live, 'created', 1760000000, 'data', jsonb_build_object('object',
		jsonb_build_object('id', id, 'object', 'charge', 'status', 'succeeded', 'captured', true, 'amount', 39900, 'currency', 'eur', 'metadata', jsonb_build_object('order_id', reference))));
	ts text := floor(extract(epoch FROM clock_timestamp()))::bigint;
BEGIN
	SELECT r.verdict, r.status INTO verdict, status FROM payguard.apply_callback(gateway, jsonb_build_object('Stripe-Signature', 't=' || ts || ',v1=' || encode(hmac(ts || '.' || body, 'whsec_modes', 'sha256'), 'hex')), convert_to(body, 'UTF8')) AS r;
END
$$;
SELECT created FROM payguard.create_order(399.00, 'EUR', 'modes_live', 'MODES1');
SELECT created FROM payguard.create_order(399.00, 'EUR', 'modes_test', 'MODES2');
SELECT created FROM payguard.create_order(399.00, 'EUR', 'modes_live', 'MODES3');
SELECT claimed FROM payguard.claim_order('MODES1', 'modes1', call_by => 'application');
SELECT claimed FROM payguard.claim_order('MODES2', 'modes2', call_by => 'application');
SELECT gateway, mode FROM payguard.attempts WHERE gateway_reference LIKE 'MODES_' ORDER BY 1;
-- test money for a live order, live money for a test order
SELECT * FROM pg_temp.stripe('modes_live', 'MODES1', false, 'ch_modes1t');
SELECT * FROM pg_temp.stripe('modes_test', 'MODES2', true, 'ch_modes2l');
SELECT status, payments, review FROM shop.look('MODES1');
SELECT status, payments, review FROM shop.look('MODES2');
-- the right ones
SELECT * FROM pg_temp.stripe('modes_live', 'MODES1', true, 'ch_modes1');
SELECT * FROM pg_temp.stripe('modes_test', 'MODES2', false, 'ch_modes2');
-- test money for a live order that nobody claimed does not make it paid
SELECT * FROM pg_temp.stripe('modes_live', 'MODES3', false, 'ch_modes3');
SELECT status, attempts, payments, review FROM shop.look('MODES3');
-- nor does test money that came before the order was made
SELECT * FROM pg_temp.stripe('modes_live', 'MODES4', false, 'ch_modes4');
SELECT status FROM payguard.create_order(399.00, 'EUR', 'modes_live', 'MODES4');
SELECT status, attempts, payments, review FROM shop.look('MODES4');
-- a gateway whose mode was changed keeps the mode of attempts that are out
ALTER SERVER modes_live OPTIONS (ADD mode 'test');
SELECT created FROM payguard.create_order(399.00, 'EUR', 'modes_live', 'MODES5');
SELECT claimed FROM payguard.claim_order('MODES5', 'modes5', call_by => 'application');
ALTER SERVER modes_live OPTIONS (SET mode 'live');
SELECT * FROM pg_temp.stripe('modes_live', 'MODES5', false, 'ch_modes5');
SELECT mode, state FROM payguard.attempts WHERE gateway_reference = 'MODES5';
DROP SERVER modes_live, modes_test CASCADE;
