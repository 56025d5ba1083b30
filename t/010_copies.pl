
# A restored dump has the same rows and makes no call until it is adopted; then its waiting calls go out, and even if the original
# makes them too, the gateway charges once.

use strict;
use warnings;

use Payguard;
use Payguard::Shop;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

my $sandbox = Payguard->sandbox;
my $node    = Payguard->new_node('main', databases => 'postgres, copy');
my $away    = Payguard->new_node('away', databases => 'postgres, copy');
Payguard->create_gateway($node, 'postgres', $sandbox,
	options => { total_timeout => '2s', query_schedule => '200ms,300ms,500ms,1s,1s,1s' });
my $shop = Payguard::Shop->new($node, 'postgres', $sandbox);
my $dump = PostgreSQL::Test::Utils::tempdir() . '/ledger.dump';

sub dispatch
{
	my ($server, $value) = @_;
	$server->safe_psql('postgres', "ALTER SYSTEM SET payguard.dispatch = $value");
	$server->safe_psql('postgres', 'SELECT pg_reload_conf()');
	return;
}

# Every row and sequence that the extension keeps, in a form that can be compared.
sub content
{
	my ($of) = @_;
	my @tables = split /\n/, $of->sql("SELECT c.oid::regclass FROM pg_class c WHERE c.relnamespace = 'payguard'::regnamespace"
		  . " AND c.relkind IN ('r', 'S') ORDER BY c.relname");
	return join "\n", map { $of->sql("SELECT '$_', count(*), md5(string_agg(t::text, E'\\n' ORDER BY t::text)) FROM $_ t") }
	  grep { !/_seq$/ } @tables;
}

sub sequences
{
	my ($of) = @_;
	return $of->sql("SELECT sequencename, last_value FROM pg_sequences WHERE schemaname = 'payguard' ORDER BY 1");
}

# Long enough for a worker to look at the outbox at least twice.
sub stays_silent
{
	my ($of, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $before = $of->summary->{requests};

	ok( $of->wait_until("SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'payguard worker' AND datname = current_database()"),
		"$what: a worker is there");
	usleep(2_300_000);
	is($of->summary->{requests}, $before, "$what: nothing is sent");
	return;
}

sub restore
{
	my ($server, @options) = @_;
	$server->command_ok([ 'pg_restore', '--exit-on-error', '--no-owner', '-d', $server->connstr('copy'), @options, $dump ], "pg_restore @options");
	return;
}

# --- a ledger with something in every state

$shop->pay('PAID-01');
$shop->wait_for('PAID-01', 'paid');
$shop->pay('FAILED-1', payment => { card => 'declined' });
$shop->wait_for('FAILED-1', 'failed');
$shop->order('CREATED-1');
dispatch($node, 'off');
$node->wait_for_log(qr/sends nothing while payguard.dispatch is off/);
$shop->pay($_) foreach qw(WAITING-1 WAITING-2);
$shop->order('OUTSIDE-1');
# Longer than the test: a lease that ends is a question to the gateway, which would count as a request.
$shop->sql("SELECT payguard.claim_order('OUTSIDE-1', 'OUTSIDE-1-1', call_by => 'application', lease => '1 hour')");
$node->command_ok([ 'pg_dump', '-Fc', '-f', $dump, $node->connstr('postgres') ], 'pg_dump');
my ($content, $sequences) = (content($shop), sequences($shop));

# --- into another database and another cluster

dispatch($node, 'on');
$shop->wait_for($_, 'paid', "$_: the original goes on") foreach qw(WAITING-1 WAITING-2);
my %copy;
foreach my $server ($node, $away)
{
	my $name = $server->name;

	$server->safe_psql('postgres', 'CREATE DATABASE copy');
	restore($server, '--single-transaction');
	my $copy = $copy{$name} = Payguard::Shop->new($server, 'copy', $sandbox);
	is(content($copy),   $content,   "$name: the same rows");
	is(sequences($copy), $sequences, "$name: the same sequences");
	stays_silent($copy, $name);
	like($copy->fails($copy->claim_sql('CREATED-1')), qr/^PG009/, "$name: no claim");
	is($copy->sql("SELECT string_agg(DISTINCT rule, ' ' ORDER BY rule) FROM payguard.check()"), 'call_of_another_copy not_adopted',
		"$name: check() says why");
	$server->wait_for_log(qr/payguard worker of database "copy" sends nothing until payguard.adopt\(\) is called/);
	is($copy->status('WAITING-1'), 'processing', "$name: its orders wait");
	$copy->order('NEW-COPY');
	is($copy->sql("SELECT count(*) FROM payguard.instances i WHERE reason = 'first order'"), 1,
		"$name: a new order does not adopt it");
	is($copy->sql("SELECT max(id) = count(*) FROM payguard.orders"), 't', "$name: the sequences go on");
}

# --- adopted

my $copy = $copy{away};
my $before = $copy->summary;
is($copy->sql("SELECT payguard.adopt('the original is gone')") >= 3, 1, 'adopt() says how many calls it takes over');
$copy->wait_for($_, 'paid') foreach qw(WAITING-1 WAITING-2);
is($copy->charged($_), 1, "$_: the gateway charged once, although both copies paid") foreach qw(WAITING-1 WAITING-2);
is($copy->sql('SELECT status FROM payguard.orders WHERE reference = $$OUTSIDE-1$$'), 'processing',
	'an application\'s claim waits for its lease');
is($copy->claim('CREATED-1'), 't|claimed|processing|1', 'it can claim');
$copy->wait_for('CREATED-1', 'paid');
$copy->is_healthy('the adopted copy is sound');
is($copy->summary->{charges} - $before->{charges}, 1, 'one new charge for the one new claim');

# --- once more over it, and into the same database

dispatch($away, 'off');
$copy->pay('WAITING-3');
$copy->order('CREATED-2');
$away->command_ok([ 'pg_dump', '-Fc', '-f', $dump, $away->connstr('copy') ], 'pg_dump of the adopted copy');
$content = content($copy);
restore($away, '--clean', '--if-exists');
is(content($copy), $content, 'restored with --clean into the same database: the same rows');
dispatch($away, 'on');
stays_silent($copy, '--clean');
like($copy->fails($copy->claim_sql('CREATED-2')), qr/^PG009/, 'not adopted, although the database is the same');
cmp_ok($copy->sql("SELECT payguard.adopt('restored')"), '>=', 1, 'adopted');
$copy->wait_for('WAITING-3', 'paid', 'and at work again');
is($copy->charged('WAITING-3'), 1, 'charged once');
$copy->is_healthy;

# --- rows alone, into a database that has its own ledger already

$away->safe_psql('postgres', 'ALTER SYSTEM SET payguard.databases = $$postgres, rows$$');
$away->safe_psql('postgres', 'SELECT pg_reload_conf()');
$away->safe_psql('postgres', 'CREATE DATABASE rows');
my $rows = Payguard::Shop->new($away, 'rows', $sandbox);
$rows->sql('CREATE EXTENSION payguard');
Payguard->create_gateway($away, 'rows', $sandbox);
$away->command_ok([ 'pg_restore', '--exit-on-error', '--no-owner', '--data-only', '-d', $away->connstr('rows'), $dump ],
	'pg_restore --data-only');
stays_silent($rows, '--data-only');
like($rows->fails($rows->claim_sql('CREATED-2')), qr/^PG009/, 'a ledger with foreign rows is a copy');

is($copy->summary->{orders_charged_twice_ever}, 0, 'the gateway charged no order twice');

done_testing();
