-- R4: a request key is one request: with any other parameter it is PG001 that says whose it is, and nothing is stored.
\getenv abs_srcdir PG_ABS_SRCDIR
\set shop :abs_srcdir '/sql/include/shop.sql'
\i :shop

SELECT shop.make('KEYS01', 'created'), shop.make('KEYS02', 'created');
CREATE SERVER key_other FOREIGN DATA WRAPPER payguard OPTIONS (adapter 'generic', base_url 'https://other.example');
CREATE USER MAPPING FOR PUBLIC SERVER key_other OPTIONS (api_key 'k');
SELECT claimed, verdict FROM payguard.claim_order('KEYS01', 'the-key', 'shop', 'worker', '{"token": "tok_1", "n": 1.0}');
-- members in another order are the same JSON
SELECT claimed, verdict FROM payguard.claim_order('KEYS01', 'the-key', 'shop', 'worker', '{"n": 1.0, "token": "tok_1"}');
SELECT shop.counts() AS before \gset
SELECT shop.fails($$SELECT payguard.claim_order('KEYS01', 'the-key', 'shop', 'worker', '{"token": "tok_2", "n": 1.0}')$$);
SELECT shop.fails($$SELECT payguard.claim_order('KEYS01', 'the-key', 'shop', 'worker')$$);
SELECT shop.fails($$SELECT payguard.claim_order('KEYS01', 'the-key', 'key_other', 'worker', '{"token": "tok_1", "n": 1.0}')$$);
SELECT shop.fails($$SELECT payguard.claim_order('KEYS01', 'the-key', 'shop', 'application', '{"token": "tok_1", "n": 1.0}')$$);
-- another order: it is not said whose the key is
SELECT shop.fails($$SELECT payguard.claim_order('KEYS02', 'the-key', 'shop', 'worker', '{"token": "tok_1", "n": 1.0}')$$);
SELECT shop.counts() = :'before' AS same;
-- the key stays that request's after the order is settled
SELECT * FROM shop.callback('charge.paid', 'KEYS01', 'ch_key01');
SELECT claimed, verdict, status FROM payguard.claim_order('KEYS01', 'the-key', 'shop', 'worker', '{"token": "tok_1", "n": 1.0}');
SELECT shop.fails($$SELECT payguard.claim_order('KEYS01', 'the-key', 'shop', 'worker', '{"token": "tok_3"}')$$);
-- after a decline an old key tells of its own attempt and does not charge again
SELECT shop.make('KEYS03', 'created');
SELECT * FROM shop.claim('KEYS03', key => 'key03-1');
SELECT * FROM shop.report('KEYS03', 'failed');
SELECT * FROM shop.claim('KEYS03', key => 'key03-1');
SELECT * FROM shop.claim('KEYS03', key => 'key03-2');
SELECT * FROM shop.claim('KEYS03', key => 'key03-1');
SELECT status, attempts FROM shop.look('KEYS03');
-- keys of 255 bytes and of any script are keys
SELECT shop.make('KEYS04', 'created'), shop.make('KEYS05', 'created');
SELECT verdict FROM payguard.claim_order('KEYS04', repeat('k', 255));
SELECT verdict FROM payguard.claim_order('KEYS05', '请求-№ 5');
SELECT verdict FROM payguard.claim_order('KEYS05', '请求-№ 5');
SELECT shop.fails($$SELECT payguard.claim_order('KEYS05', repeat('k', 256))$$);
DROP SERVER key_other CASCADE;
