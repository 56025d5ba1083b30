-- Bad input: every function with null, empty, endless, hostile and misshapen arguments gives a documented error and stores nothing.
\getenv abs_srcdir PG_ABS_SRCDIR
\set shop :abs_srcdir '/sql/include/shop.sql'
\i :shop

SELECT shop.make('INPUT01', 'created'), shop.make('INPUT02', 'processing'), shop.make('INPUT03', 'paid');
SELECT verdict FROM payguard.request_refund('INPUT03', 'first', 1);
-- the row counts of all tables before and after each call that must fail
CREATE TABLE shop.tried (n serial, call text, error text, stored boolean);
CREATE FUNCTION shop.try_it(call text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	before text := shop.counts();
	error text := shop.fails('SELECT ' || call);
BEGIN
	INSERT INTO shop.tried (call, error, stored) VALUES (call, error, shop.counts() <> before);
END
$$;
-- the calls of each function with one argument spoiled: {bad} stands for it
CREATE TEMP TABLE calls (f text, arg text, kind text, call text);
INSERT INTO calls VALUES
	('create_order', 'gateway', 'name', $$payguard.create_order(1, 'CNY', {bad})$$),
	('create_order', 'reference', 'name', $$payguard.create_order(1, 'CNY', 'shop', {bad})$$),
	('create_order', 'customer', 'free', $$payguard.create_order(1, 'CNY', 'shop', NULL, {bad})$$),
	('create_order', 'product', 'free', $$payguard.create_order(1, 'CNY', 'shop', NULL, 'c', {bad})$$),
	('create_order', 'metadata', 'json', $$payguard.create_order(1, 'CNY', 'shop', metadata => {bad})$$),
	('create_order', 'replaces', 'name', $$payguard.create_order(1, 'CNY', 'shop', replaces => {bad})$$),
	('claim_order', 'reference', 'name!', $$payguard.claim_order({bad}, 'k')$$),
	('claim_order', 'request_key', 'free!', $$payguard.claim_order('INPUT01', {bad})$$),
	('claim_order', 'gateway', 'name', $$payguard.claim_order('INPUT01', 'k', {bad})$$),
	('claim_order', 'call_by', 'name!', $$payguard.claim_order('INPUT01', 'k', NULL, {bad})$$),
	('claim_order', 'payment', 'json', $$payguard.claim_order('INPUT01', 'k', payment => {bad})$$),
	('record_attempt', 'lease_token', 'name!', $$payguard.record_attempt({bad}, 'paid')$$),
	('record_attempt', 'result', 'name!', $$payguard.record_attempt(shop.token('INPUT02'), {bad})$$),
	('record_attempt', 'provider_id', 'free', $$payguard.record_attempt(shop.token('INPUT02'), 'paid', {bad})$$),
	('record_attempt', 'code', 'free', $$payguard.record_attempt(shop.token('INPUT02'), 'failed', code => {bad})$$),
	('record_attempt', 'client', 'json', $$payguard.record_attempt(shop.token('INPUT02'), 'pending', client => {bad})$$),
	('record_attempt', 'details', 'json', $$payguard.record_attempt(shop.token('INPUT02'), 'pending', details => {bad})$$),
	('renew_claim', 'lease_token', 'name!', $$payguard.renew_claim({bad}, '1 s')$$),
	('apply_callback', 'gateway', 'name!', $$payguard.apply_callback({bad}, '{}', '{}')$$),
	('apply_callback', 'headers', 'json!', $$payguard.apply_callback('shop', {bad}, '{}')$$),
	('apply_callback', 'url', 'free', $$payguard.apply_callback('shop', '{}', '{}', {bad})$$),
	('verify_callback', 'gateway', 'name!', $$payguard.verify_callback({bad}, '{}', '{}')$$),
	('verify_callback', 'headers', 'json!', $$payguard.verify_callback('shop', {bad}, '{}')$$),
	('order_status', 'reference', 'name!', $$payguard.order_status({bad})$$),
	('why', 'reference', 'name!', $$payguard.why({bad})$$),
	('request_refund', 'reference', 'name!', $$payguard.request_refund({bad}, 'k')$$),
	('request_refund', 'request_key', 'free!', $$payguard.request_refund('INPUT03', {bad}, 1)$$),
	('request_refund', 'call_by', 'name!', $$payguard.request_refund('INPUT03', 'k', 1, NULL, {bad})$$),
	('request_refund', 'provider_id', 'free', $$payguard.request_refund('INPUT03', 'k', 1, provider_id => {bad})$$),
	('close_order', 'reference', 'name!', $$payguard.close_order({bad})$$),
	('close_attempt', 'reference', 'name!', $$payguard.close_attempt({bad})$$),
	('resolve_order', 'reference', 'name!', $$payguard.resolve_order({bad}, 'failed', 'why')$$),
	('resolve_order', 'result', 'name!', $$payguard.resolve_order('INPUT03', {bad}, 'why')$$),
	('resolve_order', 'reason', 'reason', $$payguard.resolve_order('INPUT03', 'reviewed', {bad})$$),
	('resolve_order', 'provider_id', 'free!', $$payguard.resolve_order('INPUT03', 'kept', 'why', {bad})$$),
	('resolve_refund', 'result', 'name!', $$payguard.resolve_refund((SELECT max(id) FROM payguard.refunds), {bad}, 'why')$$),
	('resolve_refund', 'reason', 'reason', $$payguard.resolve_refund((SELECT max(id) FROM payguard.refunds), 'failed', {bad})$$),
	('resolve_refund', 'provider_id', 'free', $$payguard.resolve_refund((SELECT max(id) FROM payguard.refunds), 'succeeded', 'why', {bad})$$),
	('resolve_evidence', 'reference', 'name', $$payguard.resolve_evidence((SELECT max(id) FROM payguard.evidence), {bad}, 'why')$$),
	('resolve_evidence', 'reason', 'reason', $$payguard.resolve_evidence((SELECT max(id) FROM payguard.evidence), NULL, {bad})$$),
	('pause_gateway', 'name', 'name!', $$payguard.pause_gateway({bad})$$),
	('begin_once', 'scope', 'free!', $$payguard.begin_once({bad}, 'k', '{}')$$),
	('begin_once', 'key', 'free!', $$payguard.begin_once('s', {bad}, '{}')$$),
	('begin_once', 'request', 'json', $$payguard.begin_once('s', 'k', {bad})$$),
	('finish_once', 'scope', 'free!', $$payguard.finish_once({bad}, 'k', '{}')$$),
	('finish_once', 'key', 'free!', $$payguard.finish_once('s', {bad}, '{}')$$),
	('finish_once', 'response', 'json', $$payguard.finish_once('s', 'k', {bad})$$);
CREATE TEMP TABLE bad (what text, kinds text[], value text);
INSERT INTO bad VALUES
	('null', '{name!,free!,json!,reason}', 'NULL'),
	('empty', '{name,free,name!,free!,reason}', ''''''),
	('blank', '{reason}', ''' '''),
	('card', '{reason}', '''paid by 4111 1111 1111 1111'''),
	('10 kB', '{name,free,name!,free!}', 'repeat(''x'', 10000)'),
	('control', '{name,free,name!,free!}', 'E''abc\ndef'''),
	('escape', '{name,free,name!,free!}', 'E''abcdef\x1b[31m'''),
	('sql', '{name,name!}', quote_literal('x''; DROP TABLE payguard.orders; --')),
	('quotes', '{name,name!}', quote_literal('"x"')),
	('format', '{name,name!}', quote_literal('%s%n%$1')),
	('unicode', '{name,name!}', quote_literal('支付订单号 ')),
	('array', '{json,json!}', '''[1, 2]'''),
	('string', '{json,json!}', '''"x"'''),
	('number', '{json,json!}', '''1'''),
	('json null', '{json,json!}', '''null'''),
	('100 kB', '{json}', 'jsonb_build_object(''a'', repeat(''x'', 100000))');
-- amounts that are none
SELECT count(shop.try_it(format('payguard.request_refund(''INPUT03'', ''k'', %s)', a))) FROM unnest(ARRAY['0', '-1', '''NaN''', '''infinity''', '''-infinity''', '0.001', '1e30']) AS a;
SELECT count(shop.try_it(c)) FROM unnest(ARRAY['payguard.resolve_refund(NULL, ''failed'', ''why'')', 'payguard.resolve_refund(0, ''failed'', ''why'')', 'payguard.resolve_evidence(NULL, NULL, ''why'')',
	'payguard.resolve_evidence(-1, NULL, ''why'')', 'payguard.resolve_order(''INPUT03'', ''paid'', ''why'')', 'payguard.request_refund(''INPUT03'', ''k'', 1, ''card 4111 1111 1111 1111'')']) AS c;
SELECT count(shop.try_it(replace(call, '{bad}', value))) FROM (SELECT * FROM calls JOIN bad ON kind = ANY (kinds) ORDER BY f, arg, what) AS c;
-- no call was without an error, none stored anything
SELECT count(*) AS tried, count(*) FILTER (WHERE error = 'no error') AS let_through, count(*) FILTER (WHERE stored) AS stored FROM shop.tried;
SELECT call, error FROM shop.tried WHERE error = 'no error' OR stored ORDER BY n;
-- only documented codes
SELECT left(error, 5) AS sqlstate, count(*) FROM shop.tried GROUP BY 1 ORDER BY 1;
-- the words of each error; endless values are cut here and never repeated
SELECT error, count(*) FROM shop.tried GROUP BY 1 ORDER BY error COLLATE "C";
SELECT max(length(error)) < 300 AS short FROM shop.tried;
DROP TABLE shop.tried;
DROP FUNCTION shop.try_it;
