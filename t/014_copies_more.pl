
# More ways to come by a copy of the ledger: parallel dump and restore, a template, a logical subscriber, pg_upgrade. The rows are the
# same, and no call is made until the copy is adopted. And what happens to a server meanwhile: the extension is updated, a database
# dropped or the server stopped while calls hang.

use strict;
use warnings;

use Payguard;
use Payguard::Shop;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

my $sandbox = Payguard->sandbox;
my %options = (total_timeout => '60s', query_schedule => '200ms,300ms,500ms,1s,1s,1s,1s,1s');
my $main    = Payguard->new_node('main', databases => 'postgres, parallel, template', init => { allows_streaming => 'logical' });
Payguard->create_gateway($main, 'postgres', $sandbox, options => \%options);
my $shop = Payguard::Shop->new($main, 'postgres', $sandbox);

sub dispatch
{
	my ($node, $value) = @_;

	$node->safe_psql('postgres', "ALTER SYSTEM SET payguard.dispatch = $value");
	$node->safe_psql('postgres', 'SELECT pg_reload_conf()');
	$node->poll_query_until('postgres', "SELECT current_setting('payguard.dispatch') = '$value'");
	return;
}

# Every row that the extension keeps, in a form that can be compared.
sub content
{
	my ($of) = @_;
	my @tables = split /\n/, $of->sql("SELECT c.oid::regclass FROM pg_class c WHERE c.relnamespace = 'payguard'::regnamespace"
		  . " AND c.relkind = 'r' ORDER BY c.relname");
	return join "\n", map { $of->sql("SELECT '$_', count(*), md5(string_agg(t::text, E'\\n' ORDER BY t::text)) FROM $_ t") } @tables;
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
	like($of->sql("SELECT string_agg(DISTINCT rule, ' ') FROM payguard.check()"), qr/\bnot_adopted\b/, "$what: check() says why");
	like($of->fails($of->claim_sql('CREATED-1', key => 'copy')), qr/^PG009/, "$what: claims are refused");
	return;
}

# Adopted, a copy makes its waiting calls; the gateway sees no second purchase.
sub adopts
{
	my ($of, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	cmp_ok($of->sql("SELECT payguard.adopt('a test')"), '>=', 2, "$what: adopted");
	$of->wait_for($_, 'paid', "$what: $_ is paid") foreach qw(WAITING-1 WAITING-2);
	is($of->charged($_), 1, "$what: $_ was charged once") foreach qw(WAITING-1 WAITING-2);
	$of->is_healthy("$what: sound");
	return;
}

sub config
{
	my ($name) = @_;
	my ($value) = PostgreSQL::Test::Utils::run_command([ 'pg_config', "--$name" ]);
	return $value;
}

# --- a ledger with something in every state

$shop->pay('PAID-01');
$shop->wait_for('PAID-01', 'paid');
$shop->pay('FAILED-1', payment => { card => 'declined' });
$shop->wait_for('FAILED-1', 'failed');
$shop->pay('PENDING-1', payment => { card => 'pending' });
ok($shop->wait_until("SELECT state = 'pending' FROM payguard.attempts WHERE gateway_reference = 'PENDING-1'"), 'one is pending');
$shop->order('CREATED-1');
$shop->sql("SELECT payguard.create_order(5, 'EUR', 'shop', 'ONCE-01', 'alice', 'seat', true)");
dispatch($main, 'off');
$main->wait_for_log(qr/sends nothing while payguard.dispatch is off/);
$shop->pay($_) foreach qw(WAITING-1 WAITING-2);
$shop->order('OUTSIDE-1');
$shop->claim('OUTSIDE-1', call_by => 'application');
my $content = content($shop);

# --- a logical subscriber

my $subscriber = Payguard->new_node('subscriber', databases => 'postgres');
my $mirror     = Payguard::Shop->new($subscriber, 'postgres', $sandbox);
Payguard->create_gateway($subscriber, 'postgres', $sandbox, options => \%options);
$shop->sql('CREATE PUBLICATION ledger FOR ALL TABLES');
$mirror->sql("CREATE SUBSCRIPTION ledger CONNECTION " . Payguard::quote_literal($main->connstr('postgres')) . " PUBLICATION ledger");
$subscriber->wait_for_subscription_sync($main, 'ledger');
is(content($mirror), $content, 'subscriber: the same rows');
stays_silent($mirror, 'subscriber');

# --- dump and restore by several processes at once, under another name in the same cluster

my $dump = PostgreSQL::Test::Utils::tempdir() . '/dump';
$main->command_ok([ 'pg_dump', '-Fd', '-j', '3', '-f', $dump, '--no-publications', $main->connstr('postgres') ], 'pg_dump -j');
$main->safe_psql('postgres', 'CREATE DATABASE parallel');
$main->command_ok([ 'pg_restore', '--exit-on-error', '-j', '3', '-d', $main->connstr('parallel'), $dump ], 'pg_restore -j');
my $parallel = Payguard::Shop->new($main, 'parallel', $sandbox);
is(content($parallel), $content, 'pg_restore -j: the same rows');

# --- a database as a template: even the extension's oid is the same

$main->safe_psql('postgres', "ALTER SYSTEM SET payguard.databases = 'postgres, template'");
$main->safe_psql('postgres', 'SELECT pg_reload_conf()');
$main->poll_query_until('postgres', "SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = 'parallel'");
$main->safe_psql('postgres', 'CREATE DATABASE template TEMPLATE parallel');
my $template = Payguard::Shop->new($main, 'template', $sandbox);
is(content($template), $content, 'template: the same rows');
$main->safe_psql('postgres', "ALTER SYSTEM SET payguard.databases = 'postgres, parallel, template'");
$main->safe_psql('postgres', 'SELECT pg_reload_conf()');

# The original pays while the copies look on.
dispatch($main, 'on');
$shop->wait_for($_, 'paid', "$_: the original pays") foreach qw(WAITING-1 WAITING-2);
$shop->post('/_sandbox/charges/PENDING-1/status', { status => 'paid' });
$shop->wait_for('PENDING-1', 'paid', 'the original learns of one more');
stays_silent($parallel, 'pg_restore -j');
stays_silent($template, 'template');
is(content($parallel), $content, 'pg_restore -j: still the same rows');

# --- the subscriber follows, guards and all, and takes over

$main->wait_for_catchup('ledger');
is($mirror->status('WAITING-1'), 'paid', 'subscriber: follows');
is(content($mirror), content($shop), 'subscriber: the same rows');
unlike(slurp_file($subscriber->logfile), qr/ERROR.*cannot (change|move)/, 'subscriber: the guards refuse nothing that is right');
$shop->sql("ALTER SYSTEM SET payguard.databases = 'parallel, template'");
$shop->sql('SELECT pg_reload_conf()');
$shop->wait_until("SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'payguard worker' AND datname = 'postgres'");
$shop->pay('WAITING-3');
$main->wait_for_catchup('ledger');
$mirror->sql('DROP SUBSCRIPTION ledger');
usleep(1_200_000);
is($mirror->arrivals('WAITING-3'), 0, 'subscriber: on its own, it still sends nothing');
adopts($mirror, 'subscriber');
$mirror->wait_for('WAITING-3', 'paid');
$mirror->pay('NEW-01');
$mirror->wait_for('NEW-01', 'paid', 'subscriber: new orders are made, although sequences are not replicated');
unlike(slurp_file($subscriber->logfile), qr/duplicate key value/, 'subscriber: and none of its ids was used before');

# --- adopted, the others pay nothing that was paid

adopts($parallel, 'pg_restore -j');
adopts($template, 'template');
is($shop->summary->{orders_charged_twice_ever}, 0, 'the gateway charged no order twice');

# --- ALTER EXTENSION UPDATE while the worker runs and a call is under way

my $share  = $ENV{PAYGUARD_STAGE} . config('sharedir');
my $script = "$share/extension/payguard--1.0--1.0.1.sql";
END { unlink $script if defined $script; }
append_to_file($script, <<'SQL');
ALTER TABLE payguard.orders ADD COLUMN channel text;
ALTER TABLE payguard.attempts ADD COLUMN channel text;
CREATE FUNCTION payguard.later() RETURNS text LANGUAGE sql AS 'SELECT ''later''';
SQL
my $offset = -s $main->logfile;
$parallel->plan('UPDATE-1', 'slow', ms => 1500);
$parallel->pay('UPDATE-1');
ok($parallel->wait_until("SELECT count(*) = 1 FROM payguard.outbox WHERE state = 'sending'"), 'a call is under way');
my $worker = $parallel->sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'payguard worker' AND datname = 'parallel'");
$parallel->sql("SET statement_timeout = '20s'; ALTER EXTENSION payguard UPDATE TO '1.0.1'");
is($parallel->sql("SELECT extversion, payguard.later() FROM pg_extension WHERE extname = 'payguard'"), '1.0.1|later', 'the extension is updated meanwhile');
$parallel->wait_for('UPDATE-1', 'paid', 'and the answer is booked');
$parallel->pay('UPDATE-2');
$parallel->wait_for('UPDATE-2', 'paid', 'and the next charge goes out');
is($parallel->sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'payguard worker' AND datname = 'parallel'"), $worker, 'by the same worker');
unlike(slurp_file($main->logfile, $offset), qr/payguard.*ERROR|ERROR.*(cached plan|payguard)/, 'no error in the log');
$parallel->is_healthy('the updated ledger is sound');

# --- DROP DATABASE while a call of that database hangs

$template->plan('DROPPED-1', 'charge_then_silence', ms => 60000);
$template->pay('DROPPED-1');
ok($template->wait_until("SELECT count(*) = 1 FROM payguard.outbox WHERE state = 'sending'"), 'a call hangs');
like($parallel->fails("SET statement_timeout = '30s'; DROP DATABASE template"), qr/^55006/, 'DROP DATABASE: the worker is in the way, as any session is');
is($parallel->fails("SET statement_timeout = '30s'; DROP DATABASE template WITH (FORCE)"), '', 'DROP DATABASE WITH (FORCE) goes through');
$parallel->pay('AFTER-01');
$parallel->wait_for('AFTER-01', 'paid', 'and the other databases are served');

# --- fast shutdown while calls hang: by the server's own log, the time until all its processes were gone

foreach my $n (1 .. 8)
{
	$parallel->plan("STOPPED-$n", 'charge_then_silence', ms => 60000);
	$parallel->pay("STOPPED-$n");
}
ok($parallel->wait_until("SELECT count(*) = 8 FROM payguard.outbox WHERE state = 'sending'"), 'eight calls hang');
$offset = -s $main->logfile;
$main->stop('fast');
my %at = slurp_file($main->logfile, $offset) =~ /(\d+:\d+:\d+\.\d+) .*?LOG: +(received fast shutdown request|shutting down)/g;
my %seconds = map { $at{$_} => do { my ($h, $m, $s) = split /:/; $h * 3600 + $m * 60 + $s } } keys %at;
cmp_ok($seconds{'shutting down'} - $seconds{'received fast shutdown request'}, '<', 2, 'fast shutdown does not wait for them');

# --- pg_upgrade: another system identifier, so that the new cluster asks to be adopted

my $upgraded = PostgreSQL::Test::Cluster->new('upgraded');
$upgraded->init;
my $bindir = config('bindir');
chdir PostgreSQL::Test::Utils::tempdir();
command_ok(
	[
		'pg_upgrade', '--no-sync', '-b', $bindir, '-B', $bindir, '-d', $main->data_dir, '-D', $upgraded->data_dir, '-s', $main->host,
		'-p', $main->port, '-P', $upgraded->port
	],
	'pg_upgrade');
$upgraded->append_conf('postgresql.conf', "payguard.databases = 'parallel'\npayguard.poll_interval = '1s'\nmax_prepared_transactions = 16\n");
$upgraded->start;
my $moved = Payguard::Shop->new($upgraded, 'parallel', $sandbox);
is($moved->sql("SELECT count(*) FROM payguard.outbox WHERE state = 'sending'"), 8, 'pg_upgrade: the calls that were under way are there');
stays_silent($moved, 'pg_upgrade');
cmp_ok($moved->sql("SELECT payguard.adopt('upgraded')"), '>=', 8, 'pg_upgrade: adopted');
$moved->wait_for("STOPPED-$_", 'paid') foreach 1 .. 8;
is($moved->arrivals("STOPPED-$_"), 1, "STOPPED-$_: one charge request") foreach 1 .. 8;
$moved->is_healthy('pg_upgrade: sound');

is($moved->summary->{orders_charged_twice_ever}, 0, 'the gateway charged no order twice');

done_testing();
