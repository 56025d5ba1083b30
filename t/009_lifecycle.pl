
# The launcher and the workers through the life of a server: databases and the extension come, go and change their names, settings
# change by reload, servers are upgraded, stand by and get promoted. Nothing is lost, nothing is paid twice, the log stays quiet.

use strict;
use warnings;

use Payguard;
use Payguard::Shop;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);

my $sandbox = Payguard->sandbox;
my $node    = Payguard->new_node('main', databases => 'postgres, shop, "Odd, Name"', init => { allows_streaming => 1 });
my %options = (total_timeout => '30s', query_schedule => '200ms,300ms,500ms,1s,1s,1s,1s');
my $main    = Payguard::Shop->new($node, 'postgres', $sandbox);
my $shop    = Payguard::Shop->new($node, 'shop', $sandbox);
Payguard->create_gateway($node, 'postgres', $sandbox, options => \%options);

sub workers
{
	return $main->sql("SELECT string_agg(datname, ' ' ORDER BY datname) FROM pg_stat_activity WHERE backend_type = 'payguard worker'");
}

sub wait_for_workers
{
	my ($names, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok( $main->wait_until("SELECT coalesce(string_agg(datname, ' ' ORDER BY datname), '') = '$names' FROM pg_stat_activity"
			  . " WHERE backend_type = 'payguard worker'"),
		$what) or diag(workers());
	return;
}

sub log_count
{
	my ($pattern, $of) = @_;
	my $count = () = slurp_file(($of // $node)->logfile) =~ /$pattern/g;
	return $count;
}

sub set_databases
{
	my ($names) = @_;
	$main->sql("ALTER SYSTEM SET payguard.databases = $names");
	$main->sql('SELECT pg_reload_conf()');
	return;
}

# --- databases that are not there yet, and the extension after them

$main->pay('MAIN-01');
$main->wait_for('MAIN-01', 'paid', 'the database that is there is served');
is(log_count(qr/payguard waits for database "shop", which does not exist/), 1, 'the log says once that one is missing');
is(log_count(qr/payguard waits for database "Odd, Name", which does not exist/), 1, 'and one with an odd name');

$main->sql('CREATE DATABASE shop');
wait_for_workers('postgres shop', 'a database that is created is served');
$node->wait_for_log(qr/payguard worker of database "shop" waits for CREATE EXTENSION payguard/);
pass('its worker waits for the extension');
$shop->sql('CREATE EXTENSION payguard');
Payguard->create_gateway($node, 'shop', $sandbox, options => \%options);
$shop->pay('SHOP-01');
$shop->wait_for('SHOP-01', 'paid', 'and works once it is there');

$main->sql('CREATE DATABASE "Odd, Name"');
wait_for_workers('Odd, Name postgres shop', 'an odd name is served too');

# --- DROP DATABASE

$main->sql('SET statement_timeout = $$20s$$; DROP DATABASE "Odd, Name" WITH (FORCE)');
wait_for_workers('postgres shop', 'DROP DATABASE WITH (FORCE) ends the worker');
like($main->fails('DROP DATABASE shop'), qr/^55006/, 'without FORCE the worker is in the way, as any session is');
set_databases('postgres');
wait_for_workers('postgres', 'a database that leaves the list is left alone');
is($main->fails('DROP DATABASE shop'), '', 'and can be dropped');
set_databases('postgres, shop');
$main->sql('CREATE DATABASE shop');
wait_for_workers('postgres shop', 'one of the same name is served again');
$shop->sql('CREATE EXTENSION payguard');
Payguard->create_gateway($node, 'shop', $sandbox, options => \%options);
$shop->pay('SHOP-02');
$shop->wait_for('SHOP-02', 'paid');

# --- a new name

set_databases('postgres, renamed');
wait_for_workers('postgres', 'the old name is not listed any more');
$main->sql('ALTER DATABASE shop RENAME TO renamed');
wait_for_workers('postgres renamed', 'the new one is served');
$shop->{database} = 'renamed';
$shop->pay('SHOP-03');
$shop->wait_for('SHOP-03', 'paid');

# --- DROP EXTENSION while the worker runs, with a call under way, and CREATE EXTENSION again

$shop->plan('SHOP-04', 'slow', ms => 1500);
$shop->pay('SHOP-04');
ok($shop->wait_until("SELECT count(*) = 1 FROM payguard.outbox WHERE state = 'sending'"), 'a call is under way');
$shop->sql('DROP EXTENSION payguard CASCADE');
$node->wait_for_log(qr/payguard worker of database "renamed" waits for CREATE EXTENSION payguard/);
$node->wait_for_log(qr/payguard cannot book what gateway "shop" answered about "SHOP-04": paid/);
pass('the log says what could not be booked');
$shop->sql('CREATE EXTENSION payguard');
Payguard->create_gateway($node, 'renamed', $sandbox, options => \%options);
$shop->pay('SHOP-05');
$shop->wait_for('SHOP-05', 'paid', 'the new ledger works');
$shop->is_healthy('the new ledger is sound');

# --- payguard.dispatch

$main->sql('ALTER SYSTEM SET payguard.dispatch = off');
$main->sql('SELECT pg_reload_conf()');
$node->wait_for_log(qr/payguard worker of database "postgres" sends nothing while payguard.dispatch is off/);
$main->pay('PAUSED-1');
usleep(1_500_000);
is($main->arrivals('PAUSED-1'), 0, 'while dispatch is off nothing is sent');
is($main->status('PAUSED-1'), 'processing', 'and the order waits');
$main->sql('ALTER SYSTEM RESET payguard.dispatch');
$main->sql('SELECT pg_reload_conf()');
$main->wait_for('PAUSED-1', 'paid', 'until it is on again');

# --- prepared transactions

$main->order('PREPARED-1');
$main->sql("BEGIN; " . $main->claim_sql('PREPARED-1') . "; PREPARE TRANSACTION 'claim'");
is($main->claim('PREPARED-1', key => 'rival'), 'f|in_progress|created|', 'a prepared claim keeps rivals away');
usleep(1_200_000);
is($main->arrivals('PREPARED-1'), 0, 'and sends nothing');
$main->sql("COMMIT PREPARED 'claim'");
$main->wait_for('PREPARED-1', 'paid', 'after COMMIT PREPARED it is charged');
is($main->arrivals('PREPARED-1'), 1, 'once');

# --- barriers go through while a call hangs

$main->sql('CREATE DATABASE victim');
# So that no look at the outbox comes to the barrier's help.
$main->sql("ALTER SYSTEM SET payguard.poll_interval = '60s'");
$main->sql('SELECT pg_reload_conf()');
$main->wait_until("SELECT current_setting('payguard.poll_interval') = '1min'");
$main->plan('HANGING-1', 'charge_then_silence', ms => 60000);
$main->pay('HANGING-1');
ok($main->wait_until("SELECT count(*) = 1 FROM payguard.outbox WHERE state = 'sending'"), 'a call hangs');
my $start = time;
$main->sql('SET statement_timeout = $$20s$$; DROP DATABASE victim');
my $seconds = time - $start;
cmp_ok($seconds, '<', 2, 'DROP DATABASE of another database does not wait for it');
is($main->sql("SELECT count(*) FROM payguard.outbox WHERE state = 'sending'"), 1, 'the call still hangs');
$main->sql('ALTER SYSTEM RESET payguard.poll_interval');

# --- a standby starts nothing; promoted, it goes on where the primary's last word was

$main->sql("ALTER SYSTEM SET payguard.dispatch = off");
$main->sql('SELECT pg_reload_conf()');
$main->wait_until("SELECT NOT current_setting('payguard.dispatch')::bool");
$main->order('FAILOVER-1');
$main->sql($main->claim_sql('FAILOVER-1'));
$main->sql('CHECKPOINT');
$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->start;
$node->wait_for_catchup($standby, 'replay', $node->lsn('flush'));
usleep(1_200_000);
is($standby->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'payguard%'"),
	0, 'a standby starts neither launcher nor worker');
is($standby->safe_psql('postgres', "SELECT status FROM payguard.order_status('FAILOVER-1')"),
	'processing', 'but answers questions');
# The standby does not get the last of the primary's WAL: there the claim is charged and paid.
$standby->stop('immediate');
$main->sql('ALTER SYSTEM RESET payguard.dispatch');
$main->sql('SELECT pg_reload_conf()');
$main->wait_for('FAILOVER-1', 'paid', 'the primary charges');
$node->stop('immediate');
$standby->append_conf('postgresql.conf', "payguard.dispatch = on\n");
$standby->append_conf('postgresql.auto.conf', "payguard.dispatch = on\n");
$standby->adjust_conf('postgresql.conf', 'primary_conninfo', "''");
$standby->start;
my $promoted = Payguard::Shop->new($standby, 'postgres', $sandbox);
is($promoted->status('FAILOVER-1'), 'processing', 'the standby does not know of it');
$standby->promote;
$promoted->wait_for('FAILOVER-1', 'paid', 'promoted, it finds out');
$promoted->wait_for('HANGING-1', 'paid', 'and about a call that hung on the primary');
is($promoted->charged('FAILOVER-1'), 1, 'the gateway charged once');
like($promoted->evidence('FAILOVER-1'), qr/^query:paid$/, 'the first call was a query');
$promoted->pay('PROMOTED-1');
$promoted->wait_for('PROMOTED-1', 'paid', 'it charges new orders');
$promoted->is_healthy;
$standby->stop;

is(log_count(qr/payguard.*(ERROR|FATAL|PANIC)/), 0, 'payguard raised no error in the log of the primary');
cmp_ok(log_count(qr/\] LOG:  payguard/), '<', 60, 'and was not talkative') or diag(log_count(qr/\] LOG:  payguard/));

# --- not preloaded: functions work, no worker does

my $plain = Payguard->new_node('plain', databases => 'postgres', start => 0);
$plain->append_conf('postgresql.conf', "shared_preload_libraries = ''\n");
$plain->start;
my $lone = Payguard::Shop->new($plain, 'postgres', $sandbox);
$lone->sql("LOAD 'payguard'");
pass('LOAD works');
$lone->sql('CREATE EXTENSION payguard');
Payguard->create_gateway($plain, 'postgres', $sandbox);
$lone->pay('PLAIN-01');
is($lone->status('PLAIN-01'), 'processing', 'orders can be made and claimed');
is($lone->sql("SELECT string_agg(DISTINCT rule, ' ') FROM payguard.check()"), 'not_preloaded', 'check() says what is missing');
is($lone->sql("LOAD 'payguard'; SHOW payguard.databases"), 'postgres', 'the settings are shown');

# --- pg_upgrade's server does not pay

$plain->append_conf('postgresql.conf', "shared_preload_libraries = 'payguard'\n");
$plain->stop;
system_or_bail('pg_ctl', '-w', '-s', '-D', $plain->data_dir, '-l', $plain->logfile, '-o', '-b', 'start');
usleep(1_200_000);
is($lone->sql("SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'payguard%'"), 0, 'a server in binary-upgrade mode starts no worker');
system_or_bail('pg_ctl', '-w', '-s', '-D', $plain->data_dir, '-m', 'fast', 'stop');
is($lone->arrivals('PLAIN-01'), 0, 'so far nothing was sent');

# --- too few places for workers: the plain server again, with one

$plain->append_conf('postgresql.conf',
	"max_worker_processes = 2\nmax_logical_replication_workers = 0\nmax_parallel_workers = 0\npayguard.databases = 'template1, postgres'\n");
$plain->start;
$plain->wait_for_log(qr/payguard could not start the worker of database "postgres"/);
pass('the log says that a worker has no place');
usleep(2_500_000);
is(log_count(qr/payguard could not start the worker of database "postgres"/, $plain), 1, 'once');
is($lone->arrivals('PLAIN-01'), 0, 'its orders wait');
$lone->sql("ALTER SYSTEM SET payguard.databases = 'postgres'");
$lone->sql('SELECT pg_reload_conf()');
$lone->wait_for('PLAIN-01', 'paid', 'until there is a place');
is($lone->charged('PLAIN-01'), 1, 'charged once');

is($main->summary->{orders_charged_twice_ever}, 0, 'the gateway charged no order twice');

done_testing();
