
# What an application's role can do with SQL that nobody would write: sqlsmith makes thousands of random statements over payguard's
# functions and a few tables of arguments that fit them. None may crash the server, raise an internal error of payguard's, or leave a
# state that check() objects to.
#
# PAYGUARD_SQLSMITH_STATEMENTS and PAYGUARD_SQLSMITH_SEED make longer and other runs; the statements of a run depend on nothing else.

use strict;
use warnings;

use Digest::SHA qw(hmac_sha256);
use File::Basename;
use IPC::Run ();
use MIME::Base64;
use Payguard;
use Payguard::Shop;
use PostgreSQL::Test::Utils;
use Test::More;

my $statements = $ENV{PAYGUARD_SQLSMITH_STATEMENTS} // 5000;
my $seed       = $ENV{PAYGUARD_SQLSMITH_SEED}       // 20260101;

# The worker is at work as well: what is claimed is sent, and answered.
my $sandbox = Payguard->sandbox;
my $node    = Payguard->new_node(
	'main',
	databases => 'postgres',
	conf      => <<'CONF');
log_error_verbosity = verbose
log_statement = none
log_min_error_statement = error
restart_after_crash = off
payguard.log_calls = off
CONF
my $shop = Payguard::Shop->new($node, 'postgres', $sandbox);
Payguard->create_gateway($node, 'postgres', $sandbox, options => { query_schedule => '200ms,300ms,500ms,1s,1s,1s' });

# Arguments that fit: references, keys, leases, signed callbacks.
$shop->sql(<<'SQL');
CREATE ROLE smith LOGIN;
SELECT payguard.grant_access('smith', 'application'), payguard.grant_access('smith', 'callback');
GRANT USAGE ON FOREIGN SERVER shop TO smith;
CREATE SCHEMA smith;
GRANT USAGE ON SCHEMA smith TO smith;
-- what would end or hang a session, and says nothing about payguard
REVOKE EXECUTE ON FUNCTION pg_terminate_backend, pg_cancel_backend, pg_sleep, pg_sleep_for, pg_sleep_until, pg_advisory_lock(bigint), pg_advisory_lock(int, int),
	pg_advisory_lock_shared(bigint), pg_advisory_lock_shared(int, int), pg_advisory_xact_lock(bigint), pg_advisory_xact_lock(int, int),
	pg_advisory_xact_lock_shared(bigint), pg_advisory_xact_lock_shared(int, int) FROM PUBLIC;
CREATE TABLE smith.orders AS SELECT i, 'SMITH-' || lpad(i::text, 3, '0') AS reference, 'key-' || i AS request_key,
	(ARRAY['application', 'worker', 'gateway', NULL])[1 + i % 4] AS call_by, (ARRAY[399.00, 1, 0.01, -1, 10.001, 'NaN', 1e20])[1 + i % 7] AS amount,
	(ARRAY['CNY', 'EUR', 'JPY', 'XXX', ''])[1 + i % 5] AS currency, 'customer-' || i % 5 AS customer, i % 2 = 0 AS once,
	make_interval(secs => (i - 5) * 10) AS duration, jsonb_build_object('n', i, 'list', jsonb_build_array(i, NULL, 'x')) AS payment
FROM generate_series(1, 40) AS i;
SELECT count(payguard.create_order(399.00, 'CNY', 'shop', reference, customer, 'p' || i, once)) FROM smith.orders;
CREATE TABLE smith.leases AS SELECT i, (payguard.claim_order(reference, 'leased-' || i, call_by => 'application', lease => make_interval(secs => 1 + i * 2))).lease_token,
	(ARRAY['paid', 'failed', 'pending', 'unknown', 'not_sent', 'closed', 'succeeded', 'nonsense', ''])[1 + i % 9] AS result, 'ch_' || i AS provider_id
FROM smith.orders WHERE i <= 20;
CREATE TABLE smith.callbacks (headers jsonb, body bytea, url text, at timestamptz);
SQL
my @callbacks;
foreach my $n (1 .. 40)
{
	my ($type, $status) = @{ [ [ 'charge.paid', 'paid' ], [ 'charge.failed', 'failed' ], [ 'charge.reversed', 'reversed' ], [ 'charge.pending', 'pending' ],
			[ 'refund.succeeded', 'succeeded' ], [ 'charge.closed', 'closed' ], [ 'nonsense', 'x' ] ]->[ $n % 7 ] };
	my $body = sprintf '{"type":"%s","data":{"id":"ch_%d","reference":"SMITH-%03d","status":"%s","amount":%d,"currency":"CNY"}}', $type, $n, $n, $status,
	  $n % 5 ? 39900 : 1;
	my $now = time;
	my $signature = encode_base64(hmac_sha256("evt_$n.$now.$body", decode_base64($Payguard::WEBHOOK_SECRET =~ s/^whsec_//r)), '');
	push @callbacks, sprintf q[('{"webhook-id": "evt_%d", "webhook-timestamp": "%d", "webhook-signature": "v1,%s"}', '\x%s', 'https://shop.example/?n=%d', now())],
	  $n, $now, $signature, unpack('H*', $body), $n;
}
$shop->sql('INSERT INTO smith.callbacks VALUES ' . join(', ', @callbacks));

# Functions of one value each, since sqlsmith has little use for composite types. It chooses among all functions of the type that it
# needs: what it finds in its search_path as pg_proc has few others beside these.
$shop->sql(<<'SQL');
DO $do$
DECLARE
	f record;
BEGIN
	FOR f IN SELECT n, s, a, r, body FROM generate_series(1, 2) AS n, (VALUES
		('make', 'amount numeric, currency text, reference text, customer text, once boolean', 'text', $$SELECT status FROM payguard.create_order(amount, currency, 'shop', reference, customer, 'p', once)$$),
		('remake', 'reference text, replaces text, duration interval, metadata jsonb', 'text', $$SELECT reference FROM payguard.create_order(399.00, 'CNY', 'shop', reference, NULL, NULL, false, duration, metadata, replaces)$$),
		('made', 'reference text', 'boolean', $$SELECT created FROM payguard.create_order(399.00, 'CNY', 'shop', reference)$$),
		('claim', 'reference text, request_key text, call_by text, payment jsonb, duration interval', 'text', $$SELECT verdict FROM payguard.claim_order(reference, request_key, NULL, call_by, payment, duration)$$),
		('claimed', 'reference text, request_key text', 'boolean', $$SELECT claimed FROM payguard.claim_order(reference, request_key)$$),
		('lease', 'reference text, request_key text', 'text', $$SELECT lease_token FROM payguard.claim_order(reference, request_key, call_by => 'application')$$),
		('record', 'lease_token text, result text, provider_id text, amount numeric, currency text', 'text', $$SELECT verdict FROM payguard.record_attempt(lease_token, result, provider_id, amount, currency)$$),
		('record_all', 'lease_token text, result text, code text, message text, client jsonb, details jsonb, at timestamptz', 'bigint', $$SELECT evidence_id FROM payguard.record_attempt(lease_token, result, NULL, NULL, NULL, code, message, client, details, at)$$),
		('renew', 'lease_token text, duration interval', 'timestamptz', $$SELECT payguard.renew_claim(lease_token, duration)$$),
		('receive', 'headers jsonb, body bytea, url text', 'text', $$SELECT verdict FROM payguard.apply_callback('shop', headers, body, url)$$),
		('receive_at', 'gateway text, headers jsonb, body bytea', 'integer', $$SELECT http_status FROM payguard.apply_callback(gateway, headers, body)$$),
		('verify', 'headers jsonb, body bytea, url text, at timestamptz', 'boolean', $$SELECT valid FROM payguard.verify_callback('shop', headers, body, url, at)$$),
		('state', 'reference text', 'text', $$SELECT status FROM payguard.order_status(reference)$$),
		('amount', 'reference text', 'numeric', $$SELECT amount FROM payguard.order_status(reference)$$),
		('payable', 'reference text', 'boolean', $$SELECT can_pay FROM payguard.order_status(reference)$$),
		('client', 'reference text', 'jsonb', $$SELECT client FROM payguard.order_status(reference)$$),
		('close', 'reference text, reason text', 'text', $$SELECT verdict FROM payguard.close_order(reference, reason)$$),
		('give_up', 'reference text, reason text', 'text', $$SELECT verdict FROM payguard.close_attempt(reference, reason)$$),
		('begin', 'scope text, key text, request jsonb', 'boolean', $$SELECT first FROM payguard.begin_once(scope, key, request)$$),
		('finish', 'scope text, key text, response jsonb', 'text', $$SELECT payguard.finish_once(scope, key, response)::text$$)) AS f (s, a, r, body)
	LOOP
		EXECUTE format('CREATE FUNCTION smith.%I(%s) RETURNS %s LANGUAGE sql AS %L', f.s || '_' || f.n, f.a, f.r, f.body);
	END LOOP;
END
$do$;
CREATE VIEW smith.orders_again AS SELECT * FROM smith.orders WHERE i % 2 = 0;
CREATE VIEW smith.leases_again AS SELECT * FROM smith.leases WHERE i % 2 = 0;
CREATE VIEW smith.both AS SELECT reference, request_key, lease_token, result, provider_id FROM smith.orders JOIN smith.leases USING (i);
CREATE VIEW smith.words AS SELECT reference AS word, request_key AS other FROM smith.orders UNION ALL SELECT lease_token, result FROM smith.leases;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA smith TO smith;
CREATE SCHEMA narrow;
GRANT USAGE ON SCHEMA narrow TO smith;
CREATE VIEW narrow.pg_proc AS SELECT * FROM pg_catalog.pg_proc AS p WHERE p.pronamespace = 'smith'::regnamespace OR p.oid::bigint % 40 = 0
	AND p.proacl IS NULL AND NOT EXISTS (SELECT FROM unnest(p.prorettype || p.proargtypes::oid[]) AS a JOIN pg_catalog.pg_type AS t ON t.oid = a AND t.typtype = 'p');
GRANT SELECT ON ALL TABLES IN SCHEMA narrow TO smith;
SQL

# --- the statements

my ($out, $error) = ('', '');
my $made = eval
{
	IPC::Run::run([ 'sqlsmith', '--target=' . $node->connstr('postgres') . ' user=smith options=-csearch_path=narrow,pg_catalog', "--seed=$seed", "--max-queries=$statements", '--dry-run', '--exclude-catalog' ],
		'<', '/dev/null', '>', \$out, '2>', \$error);
};
ok($made, 'sqlsmith makes statements') or BAIL_OUT('sqlsmith is needed (Debian package sqlsmith; script/bootstrap installs it): ' . ($@ || $error));

# Most arguments would be null, and most conditions false; every other null becomes a value of our tables.
my %value = (
	text        => ['word', 'smith.words', 60],
	jsonb       => ['payment', 'smith.orders', 40],
	numeric     => ['amount', 'smith.orders', 40],
	interval    => ['duration', 'smith.orders', 40],
	bool        => ['once', 'smith.orders', 40],
	bytea       => ['body', 'smith.callbacks', 40],
	timestamptz => ['at', 'smith.callbacks', 40]);
# sqlsmith takes these for types that a value can have.
my %polymorphic = (
	anyrange      => 'int4range(1, 5)',
	anymultirange => 'int4multirange(int4range(1, 5))',
	anyarray      => 'ARRAY[1, 2]',
	anyenum       => q('paid'::payguard.order_state));
my $nulls = 0;
$out =~ s/cast\(null as (any\w+)\)/$polymorphic{$1} \/\/ 'NULL'/ge;
$out =~ s{cast\(null as "?(text|jsonb|numeric|interval|bool|bytea|timestamptz)"?\)}
	{++$nulls % 2 ? sprintf '(select %s from %s limit 1 offset %d)', @{ $value{$1} }[ 0, 1 ], $nulls / 2 % $value{$1}[2] : $&}ge;
$out =~ s/\bwhere false$/where true/mg;
my @statements = split /(?<=;)\n/, $out;
cmp_ok(scalar @statements, '>=', $statements, "all $statements of seed $seed");
cmp_ok(scalar(grep { /\bsmith\.\w+_\d\(/ } @statements), '>', $statements / 5, 'many of them call payguard');

# Each by itself, committed when it succeeds. A session that a statement ends (that is allowed: SET ROLE and the like may do it) costs the
# rest of its chunk, and no more.
while (my @chunk = splice @statements, 0, 100)
{
	my ($code, undef, $said) = $node->psql('postgres', "SET statement_timeout = '200ms'; SET jit = off;\n" . join("\n", @chunk) . "\n",
		on_error_stop => 0, extra_params => [ '-U', 'smith' ]);
	last if $said =~ /server closed the connection|the database system is/;
}

# --- what became of it

is(eval { $shop->sql('SELECT 1') }, '1', 'the server did not crash') or BAIL_OUT('it did');
my $log = slurp_file($node->logfile);
unlike($log, qr/PANIC|was terminated by signal|TRAP:/, 'nor did any process');

# The server has internal errors of its own for odd statements; ours are those raised in our files or under our statements.
my %ours = map { basename($_) => 1 } glob('src/*.c src/*/*.c');
my @internal;
my %codes;
while ($log =~ /(?:ERROR|FATAL):  (\w{5}): (.*)\n((?:.*\n)*?).*LOCATION:  (\w+), (\w+\.c):\d+/g)
{
	my ($code, $message, $between, $function, $file) = ($1, $2, $3, $4, $5);
	$codes{$code}++ if $ours{$file};
	push @internal, "$code: $message ($function, $file)" if $code =~ /^XX/ && ($ours{$file} || $between =~ /SQL statement ".*payguard\./);
}
is(join("\n", @internal), '', 'no internal error is payguard\'s');
cmp_ok(scalar keys %codes, '>=', 2, 'errors of payguard were met');
is(join(' ', sort grep { !/^(?:22004|22023|PG00[1-9]|40001)$/ } keys %codes), '', 'and all of them are documented');
note(join ', ', map { "$_: $codes{$_}" } sort keys %codes);

$shop->sql('SELECT payguard.resume_gateway(\'shop\')');
note($shop->sql("SELECT string_agg(status || ' ' || n, ', ') FROM (SELECT status, count(*) AS n FROM payguard.orders GROUP BY 1 ORDER BY 1) AS o"));
note($shop->sql("SELECT string_agg(verdict || ' ' || n, ', ') FROM (SELECT verdict, count(*) AS n FROM payguard.evidence GROUP BY 1 ORDER BY 1) AS e"));
cmp_ok($shop->sql("SELECT count(DISTINCT status) FROM payguard.orders"), '>', 1, 'orders came to various states');
$shop->is_healthy;
is($shop->summary->{orders_charged_twice}, 0, 'nothing was charged twice');

done_testing();
