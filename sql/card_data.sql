-- R14: card numbers and verification values are refused at every argument with PG007, and never repeated; look-alikes are not refused.
\getenv abs_srcdir PG_ABS_SRCDIR
\set shop :abs_srcdir '/sql/include/shop.sql'
\i :shop

SELECT shop.make('CARDS1', 'created'), shop.make('CARDS2', 'processing');
SELECT shop.counts() AS before \gset
CREATE TEMP TABLE tried AS
SELECT call, card, shop.fails('SELECT ' || replace(call, '{card}', card)) AS error FROM (VALUES
	($$payguard.create_order(1, 'CNY', '{card}')$$),
	($$payguard.create_order(1, '{card}', 'shop')$$),
	($$payguard.create_order(1, 'CNY', 'shop', '{card}')$$),
	($$payguard.create_order(1, 'CNY', 'shop', NULL, '{card}')$$),
	($$payguard.create_order(1, 'CNY', 'shop', NULL, 'c', 'gift {card}')$$),
	($$payguard.create_order(1, 'CNY', 'shop', metadata => '{"note": "paid by {card}, thanks"}')$$),
	($$payguard.create_order(1, 'CNY', 'shop', metadata => '{"a": [{"b": ["{card}"]}]}')$$),
	($$payguard.create_order(1, 'CNY', 'shop', metadata => '{"{card}": 1}')$$),
	($$payguard.create_order(1, 'CNY', 'shop', replaces => '{card}')$$),
	($$payguard.claim_order('{card}', 'k')$$),
	($$payguard.claim_order('CARDS1', '{card}')$$),
	($$payguard.claim_order('CARDS1', 'k', '{card}')$$),
	($$payguard.claim_order('CARDS1', 'k', NULL, '{card}')$$),
	($$payguard.claim_order('CARDS1', 'k', payment => '{"number": "{card}"}')$$),
	($$payguard.record_attempt('{card}', 'paid')$$),
	($$payguard.record_attempt(shop.token('CARDS2'), '{card}')$$),
	($$payguard.record_attempt(shop.token('CARDS2'), 'paid', '{card}')$$),
	($$payguard.record_attempt(shop.token('CARDS2'), 'failed', code => '{card}')$$),
	($$payguard.record_attempt(shop.token('CARDS2'), 'failed', message => 'card {card} declined')$$),
	($$payguard.record_attempt(shop.token('CARDS2'), 'pending', client => '{"x": "{card}"}')$$),
	($$payguard.record_attempt(shop.token('CARDS2'), 'pending', details => '{"x": "{card}"}')$$),
	($$payguard.renew_claim('{card}', '1 s')$$),
	($$payguard.apply_callback('{card}', '{}', '')$$),
	($$payguard.order_status('{card}')$$),
	($$payguard.why('{card}')$$),
	($$payguard.adopt('copy of {card}')$$)) AS c (call), unnest(ARRAY['4111111111111111', '5555 5555 5555 4444', '3782-822463-10005', '6200000000000005']) AS card;
SELECT left(error, 5) AS sqlstate, count(*) FROM tried GROUP BY 1;
SELECT error, count(*) FROM tried GROUP BY 1 ORDER BY error COLLATE "C";
SELECT count(*) AS repeated FROM tried WHERE position(card IN error) > 0 OR error ~ '[0-9]{6}';
-- a number is found as well when it is one in JSON, and so are members named like a verification value
SELECT shop.fails($$SELECT payguard.claim_order('CARDS1', 'k', payment => '{"number": 4111111111111111}')$$);
SELECT m, left(shop.fails(format('SELECT payguard.claim_order(%L, %L, payment => %L)', 'CARDS1', 'k', jsonb_build_object('card', jsonb_build_object(m, '123')))), 5)
	FROM unnest(ARRAY['cvv', 'CVC', 'cvv2', 'card_cvc', 'security-code', 'Verification Value', 'pin', 'track2']) AS m;
SELECT shop.counts() = :'before' AS nothing_stored;
-- look-alikes: a wrong check digit, a long digit string, a phone number, a UUID, a time, names that only contain such a word
SELECT count(payguard.create_order(1, 'CNY', 'shop', NULL, c, 'p', metadata => jsonb_build_object('x', c))) FROM unnest(ARRAY['4111111111111112', '41111111111111111111111', '+86 138 0013 8000',
	'4f0c1e1a-4111-4111-8111-111111111111', '1760000000000', '20260101100000000', 'ORDER4111111111111111X', '0.4111111111111111']) AS c;
SELECT verdict FROM payguard.claim_order('CARDS1', 'cards1', payment => '{"token": "tok_visa", "cvc_check": "pass", "spin": 1, "pinned": true, "last4": "1111", "exp": "12/30"}');
-- what a gateway sends is masked and kept, for a fact is never refused
SELECT verdict FROM shop.callback('charge.failed', 'CARDS2', 'ch_cards2', more => '{"code": "declined", "message": "card 4111111111111111 was declined"}');
SELECT code, message FROM payguard.attempts WHERE gateway_reference = 'CARDS2';
SELECT count(*) AS kept FROM payguard.evidence e WHERE e::text ~ '4111 ?1111 ?1111 ?1111';
SELECT message FROM payguard.evidence WHERE gateway_reference = 'CARDS2' AND source = 'callback';
