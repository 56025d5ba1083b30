-- R7, R11, R16: the validator refuses options that could not work or would leak, names the nearest valid one, and never repeats a secret.
\getenv abs_srcdir PG_ABS_SRCDIR
\set shop :abs_srcdir '/sql/include/shop.sql'
\i :shop

CREATE FUNCTION pg_temp.server(options text) RETURNS text LANGUAGE sql AS $$
	SELECT shop.fails(format('CREATE SERVER options_server FOREIGN DATA WRAPPER payguard OPTIONS (%s)', options))
$$;
CREATE FUNCTION pg_temp.mapping(options text) RETURNS text LANGUAGE sql AS $$
	SELECT shop.fails(format('ALTER USER MAPPING FOR PUBLIC SERVER shop OPTIONS (%s)', options))
$$;
-- unknown names
SELECT o, pg_temp.server(format('adapter ''generic'', %s ''x''', o)) FROM unnest(ARRAY['base_uri', 'adaptor', 'max_inflight', 'timeout', 'total_timeuot', '"Mode"', 'api_key', 'webhook_secret', 'zzz', '"x""y"']) AS o;
SELECT o, pg_temp.mapping(format('ADD %s ''s3cr3t-value''', o)) FROM unnest(ARRAY['api_kye', 'apikey', 'password', 'webhook_secrets', 'base_url', 'mode', '"user"']) AS o;
-- the adapter is needed, whether it exists is checked at use
SELECT pg_temp.server('base_url ''https://x.example''');
SELECT pg_temp.server('adapter ''''');
SELECT pg_temp.server('adapter ''generik''');
CREATE SERVER options_use FOREIGN DATA WRAPPER payguard OPTIONS (adapter 'generik', base_url 'https://x.example');
SELECT shop.fails($$SELECT payguard.create_order(1, 'CNY', 'options_use')$$);
ALTER SERVER options_use OPTIONS (SET adapter 'no such thing at all');
SELECT shop.fails($$SELECT payguard.create_order(1, 'CNY', 'options_use')$$);
SELECT rule, object, detail FROM shop.damage();
ALTER SERVER options_use OPTIONS (SET adapter 'generic', DROP base_url);
-- a gateway without address or key can take orders; only what would be sent needs them
SELECT created FROM payguard.create_order(399.00, 'CNY', 'options_use', 'OPTION1');
SELECT shop.fails($$SELECT payguard.claim_order('OPTION1', 'option1')$$);
ALTER SERVER options_use OPTIONS (ADD base_url 'https://x.example');
SELECT shop.fails($$SELECT payguard.claim_order('OPTION1', 'option1')$$);
SELECT * FROM shop.claim('OPTION1');
SELECT * FROM shop.report('OPTION1', 'failed');
-- addresses
SELECT left(u, 40), pg_temp.server(format('adapter ''generic'', base_url %L', u)) FROM unnest(ARRAY['https://pay.example', 'https://pay.example:8443/v1/', 'http://localhost:8080', 'http://127.0.0.1', 'http://127.9.9.9/x', 'http://[::1]:80',
	'HTTPS://pay.example', 'http://pay.example', 'http://localhost.evil.example', 'http://127.0.0.1.evil.example', 'http://0x7f000001', 'http://127.1', 'http://[::ffff:127.0.0.1]', 'http://0.0.0.0', 'ftp://pay.example', 'file:///etc/passwd', 'pay.example', '',
	'https://', 'https://user:s3cr3t@pay.example', 'https://pay.example?x=1', 'https://pay.example#x', 'https://pay example', E'https://pay.example\n', 'https://pay.example:0', 'https://pay.example:99999', 'https://[::1', 'https://[]',
	'https://支付.example', 'https://pay.example/' || repeat('x', 2000), 'javascript:alert(1)', 'https:\\pay.example', 'https://pay_1.example']) AS u;
SELECT pg_temp.server('adapter ''generic'', base_url ''http://pay.example'', allow_http ''true''');
SELECT pg_temp.server('adapter ''generic'', base_url ''http://pay.example'', allow_http ''off''');
SELECT pg_temp.server('adapter ''generic'', allow_http ''maybe''');
SELECT pg_temp.server('adapter ''generic'', webhook_url ''http://shop.example/hook''');
-- taking allow_http away while the address needs it
CREATE SERVER options_http FOREIGN DATA WRAPPER payguard OPTIONS (adapter 'generic', base_url 'http://pay.example', allow_http 'on');
ALTER SERVER options_http OPTIONS (DROP allow_http);
DROP SERVER options_http;
-- durations, counts, words, schedules
SELECT d, pg_temp.server(format('adapter ''generic'', total_timeout %L', d)) FROM unnest(ARRAY['30s', '30 s', '2 min', '1500ms', '11 seconds', '30', '0s', '-5s', '1.5s', '10 fortnights', '', 's', '30s 5ms', '3650 days', '3651 days', '99999999999999999999s', 'NaN', '٣s']) AS d;
SELECT pg_temp.server('adapter ''generic'', connect_timeout ''31s''');
SELECT pg_temp.server('adapter ''generic'', connect_timeout ''31s'', total_timeout ''1 min''');
SELECT c, pg_temp.server(format('adapter ''generic'', max_in_flight %L', c)) FROM unnest(ARRAY['1', '64', '1000000', '0', '-1', '1000001', '1e3', ' 5', '', 'many']) AS c;
SELECT m, pg_temp.server(format('adapter ''generic'', mode %L', m)) FROM unnest(ARRAY['live', 'test', 'Live', 'sandbox', '']) AS m;
SELECT m, pg_temp.server(format('adapter ''generic'', surplus %L', m)) FROM unnest(ARRAY['review', 'refund', 'keep']) AS m;
SELECT q, pg_temp.server(format('adapter ''generic'', query_schedule %L', q)) FROM unnest(ARRAY['5s', '5s,15s,1min', '5s, 15s , 1 min', '5s,5s', '15s,5s', '5s,', ',', '', '5', '0s,1s', repeat('1s,', 15) || '1s', repeat('1s,', 16) || '1s']) AS q;
-- files and proxies
SELECT pg_temp.server('adapter ''generic'', ca_file ''relative.pem''');
SELECT pg_temp.server('adapter ''generic'', proxy ''http://user:s3cr3t@proxy.example''');
SELECT pg_temp.server('adapter ''generic'', proxy '''''), pg_temp.server('adapter ''generic'', proxy ''http://proxy.example:3128''');
SELECT pg_temp.mapping('ADD api_key_file ''/etc/payguard/key''');
SELECT pg_temp.mapping('DROP api_key, ADD api_key_file ''key''');
-- secrets that could break a header; none is repeated
SELECT pg_temp.mapping(format('SET api_key %L', s)) FROM unnest(ARRAY[E's3cr3t\nX-Evil: 1', E's3cr3t\x7f', '', repeat('s3cr3t', 2000)]) AS s;
-- a wrapper or a foreign table has no options
SELECT shop.fails($$CREATE FOREIGN DATA WRAPPER options_fdw VALIDATOR payguard.payguard_fdw_validator OPTIONS (adapter 'x')$$);
SELECT shop.fails($$CREATE FOREIGN TABLE options_table (a int) SERVER shop OPTIONS (adapter 'x')$$);
DROP SERVER options_use CASCADE;
