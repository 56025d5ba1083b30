-- Decision table, R16: a payment whose id is another order's already is a mismatch on both orders, in every state; it is never counted twice.
\getenv abs_srcdir PG_ABS_SRCDIR
\set shop :abs_srcdir '/sql/include/shop.sql'
\i :shop

SELECT shop.make('THEIRS', 'paid');
CREATE FUNCTION pg_temp.claims_it(state text, OUT was text, OUT verdict text, OUT status text, OUT attempts text, OUT payments text, OUT events text, OUT review text, OUT calls text)
	LANGUAGE plpgsql AS $$
BEGIN
	was := shop.make('FORGN-' || state, state);
	verdict := (shop.callback('charge.paid', 'FORGN-' || state, 'ch_theirs')).verdict;
	SELECT l.status, l.attempts, l.payments, l.events, l.review, l.calls INTO status, attempts, payments, events, review, calls FROM shop.look('FORGN-' || state) AS l;
END
$$;
SELECT c.* FROM unnest(ARRAY['created', 'processing', 'unknown', 'failed', 'closed', 'paid', 'refunded', 'reversed']) AS s, pg_temp.claims_it(s) AS c;
SELECT status, payments, events, review FROM shop.look('THEIRS');
SELECT count(*) FROM payguard.payments WHERE provider_id = 'ch_theirs';
-- as the application's own report it leaves the order unknown, and the gateway is asked
SELECT shop.make('FORGN-own', 'processing');
SELECT * FROM shop.report('FORGN-own', 'paid', 'ch_theirs', 399.00, 'CNY');
SELECT * FROM shop.look('FORGN-own');
-- an id that is only known from a pending charge of another order
SELECT shop.make('THEIRS-2', 'pending'), shop.make('FORGN-2', 'processing');
SELECT verdict FROM shop.callback('charge.paid', 'FORGN-2', 'ch_theirs-2');
SELECT status, attempts, payments, review FROM shop.look('FORGN-2');
SELECT status, attempts, payments, review FROM shop.look('THEIRS-2');
-- it stays theirs
SELECT verdict FROM shop.callback('charge.paid', 'THEIRS-2', 'ch_theirs-2');
SELECT status, attempts, payments FROM shop.look('THEIRS-2');
-- a callback that names only the id means the order that the id is known for
SELECT shop.make('THEIRS-3', 'pending');
SELECT * FROM shop.callback('charge.failed', NULL, 'ch_theirs-3');
-- the same id at another gateway is another payment
CREATE SERVER forgn FOREIGN DATA WRAPPER payguard OPTIONS (adapter 'generic', base_url 'https://forgn.example');
CREATE USER MAPPING FOR PUBLIC SERVER forgn OPTIONS (webhook_secret 'whsec_cGF5Z3VhcmQtdGVzdC13ZWJob29rLWtl');
SELECT created FROM payguard.create_order(399, 'CNY', 'forgn', 'FORGN-4');
SELECT * FROM shop.callback('charge.paid', 'FORGN-4', 'ch_theirs', gateway => 'forgn');
DROP SERVER forgn CASCADE;
SELECT * FROM shop.damage();
