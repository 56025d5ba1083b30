
# Worker, backend or the whole server die while calls hang, before and after the gateway charged: after recovery every order ends
# as the gateway's books say, and was charged at most once. Ends on purpose are quick, and restarts do not flood the log.

use strict;
use warnings;

use Payguard;
use Payguard::Shop;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);

my $sandbox = Payguard->sandbox(args => [ '--seed', 5 ]);
# Commits of sessions are not flushed, so what is on disk after a crash is what payguard itself has flushed before it sent.
my $node = Payguard->new_node('main',
	databases => 'postgres',
	conf      => "restart_after_crash = on\nsynchronous_commit = off\nwal_writer_delay = 10s\n");
Payguard->create_gateway($node, 'postgres', $sandbox,
	options => { total_timeout => '30s', query_schedule => '200ms,300ms,500ms,500ms,1s,1s,1s,1s,1s,1s,1s,1s' });
my $shop = Payguard::Shop->new($node, 'postgres', $sandbox);

sub worker_pid
{
	$shop->wait_until("SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'payguard worker'");
	return $shop->sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'payguard worker'");
}

# Nothing here says that the gateway has charged, so its books are asked.
sub wait_for_charge
{
	my ($reference) = @_;

	foreach (1 .. 100)
	{
		return if $shop->charged($reference);
		usleep(50_000);
	}
	return;
}

# The call is under way and its request has arrived; the gateway has charged, and its answer is a minute away.
sub hang
{
	my ($reference) = @_;

	$shop->plan($reference, 'charge_then_silence', ms => 60000);
	$shop->pay($reference);
	wait_for_charge($reference);
	is($shop->charged($reference), 1, "$reference: charged, and no answer");
	is($shop->sql("SELECT state FROM payguard.attempts WHERE gateway_reference = '$reference'"),
		'sending', "$reference: the intent to send is on record");
	return;
}

sub ends_right
{
	my ($reference, $evidence) = @_;

	$shop->wait_for($reference, 'paid');
	is($shop->evidence($reference, "concat_ws(':', e.source, e.result, e.code)"),
		$evidence // 'answer:unknown:lease_lapsed query:paid', "$reference: found out by a query");
	is($shop->arrivals($reference), 1, "$reference: one request");
	return;
}

# Its children see it gone and end by themselves; until then no other can start.
sub kill_postmaster
{
	$node->kill9;
	foreach (1 .. 50)
	{
		return if $node->start(fail_ok => 1);
		usleep(100_000);
		$node->stop('fast', fail_ok => 1);
	}
	die "the server did not start\n";
}

# --- kill -9 of the worker: the server recovers

hang('KILL-WORKER');
my $old = worker_pid();
kill 'KILL', $old;
ok($node->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'payguard worker' AND pid <> $old"),
	'another worker is at work');
ends_right('KILL-WORKER');

# --- kill -9 of a backend that has claimed and not committed, and of one that has committed

$shop->order('KILL-BACKEND');
my $session = $node->background_psql('postgres', on_error_stop => 0);
my $pid     = $session->query('SELECT pg_backend_pid()');
my $key_sql = "SELECT idempotency_key FROM payguard.claim_order('KILL-BACKEND', '%s')";
my $first   = $session->query("BEGIN; " . sprintf $key_sql, 'first');
like($first, qr/^[0-9a-f]{40}$/, 'the claim has a key');
is($shop->claim('KILL-BACKEND', key => 'rival'), 'f|in_progress|created|', 'a rival is told at once that somebody is at it');
hang('KILL-NEIGHBOUR');
kill 'KILL', $pid;
eval { $session->quit };
$node->poll_query_until('postgres', 'SELECT true');
is($shop->status('KILL-BACKEND'), 'created', 'the claim is gone with its backend');
is($shop->sql(sprintf $key_sql, 'second'), $first, 'the next one has the same key');
ends_right('KILL-BACKEND', 'answer:paid');
ends_right('KILL-NEIGHBOUR');

# --- immediate stop, which is what kill -9 of the postmaster comes to

hang('IMMEDIATE');
$shop->plan('IMMEDIATE-SLOW', 'slow', ms => 1500);
$shop->pay('IMMEDIATE-SLOW');
# An order that was lost with its session's commit before anything was sent would be no mistake.
wait_for_charge('IMMEDIATE-SLOW');
$node->stop('immediate');
$node->start;
ends_right('IMMEDIATE');
$shop->wait_for('IMMEDIATE-SLOW', 'paid');
is($shop->arrivals('IMMEDIATE-SLOW'), 1, 'IMMEDIATE-SLOW: one request');

hang('KILL-POSTMASTER');
kill_postmaster();
ends_right('KILL-POSTMASTER');

# --- SIGTERM of the worker

hang('TERMINATE');
$old = worker_pid();
$shop->sql("SELECT pg_terminate_backend($old)");
ok($node->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'payguard worker' AND pid <> $old"),
	'the launcher starts another worker');
ends_right('TERMINATE');

# --- SIGTERM of the launcher does not end the worker

$old = worker_pid();
$shop->sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'payguard launcher'");
$shop->pay('NO-LAUNCHER');
$shop->wait_for('NO-LAUNCHER', 'paid', 'payments go on without the launcher');
is(worker_pid(), $old, 'by the same worker');
ok($node->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'payguard launcher'"),
	'the launcher comes back');
usleep(500_000);
is(worker_pid(), $old, 'and keeps the worker');

# --- fast shutdown does not wait for the gateway

hang('FAST-SHUTDOWN');
my $start = time;
$node->stop('fast');
my $seconds = time - $start;
note("$seconds s");
cmp_ok($seconds, '<', 5, 'fast shutdown does not wait for a call that hangs for a minute');
$node->start;
ends_right('FAST-SHUTDOWN');

# --- a worker that is ended again and again

my $offset = -s $node->logfile;
my $ended  = 0;
$start = time;
while (time - $start < 6)
{
	$ended += $shop->sql("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE backend_type = 'payguard worker'");
	usleep(100_000);
}
cmp_ok($ended, '>=', 2, 'the worker came back');
cmp_ok($ended, '<=', 5, 'but not at once each time');
my $log   = slurp_file($node->logfile, $offset);
my @lines = grep { /payguard/ && !/statement:/ } split /\n/, $log;
cmp_ok(scalar @lines, '<=', 6 * $ended + 4, 'a few lines in the log for each end') or diag(join "\n", @lines);

# --- chaos: faults at the gateway, and three violent ends at arbitrary moments under load

$shop->post('/_sandbox/faults',
	{ rates => { charge_then_fin => 0.1, charge_then_rst => 0.1, slow => 0.1, charge_then_500 => 0.1, declined => 0.1 } });
$shop->post('/_sandbox/config', { slow => 700, latency => 15 });
my $count = 0;
foreach my $end (qw(KILL immediate kill9))
{
	my $from = $count + 1;
	$count += 80;
	$shop->sql("SELECT payguard.create_order(5, 'EUR', 'shop', 'CHAOS-' || lpad(n::text, 4, '0')) FROM generate_series($from, $count) n");
	$shop->sql("SELECT payguard.claim_order('CHAOS-' || lpad(n::text, 4, '0'), 'chaos ' || n) FROM generate_series($from, $count) n");
	usleep(60_000 + 40_000 * ($count / 80));
	if ($end eq 'KILL')
	{
		kill 'KILL', worker_pid();
		$node->poll_query_until('postgres', 'SELECT true');
	}
	elsif ($end eq 'immediate')
	{
		$node->stop('immediate');
		$node->start;
	}
	else
	{
		kill_postmaster();
	}
}
# What was marked as sent and never left is not found; the gateway has settled by now, so the time is moved.
$shop->wait_until("SELECT count(*) = 0 FROM payguard.orders WHERE reference LIKE 'CHAOS-%' AND status = 'processing'");
my $came = 0;
foreach (1 .. 60)
{
	$shop->sql("UPDATE payguard.attempts SET sent_at = sent_at - interval '2 min' WHERE state = 'unknown' AND sent_at > now() - interval '1 min'");
	# The schedule may be used up meanwhile: have those asked that are asked daily.
	$shop->sql("UPDATE payguard.outbox SET next_run_at = now() WHERE next_run_at > now() + interval '1 hour' AND next_run_at < 'infinity'");
	$came = $shop->sql("SELECT count(*) = 0 FROM payguard.orders WHERE reference LIKE 'CHAOS-%' AND status NOT IN ('paid', 'failed')") eq 't';
	last if $came;
	usleep(250_000);
}
ok($came, 'all orders that survived are decided')
  or diag($shop->sql("SELECT reference, status, attempt_no FROM payguard.orders WHERE reference LIKE 'CHAOS-%' AND status NOT IN ('paid', 'failed')"));
my $after = $shop->summary;
is($after->{orders_charged_twice_ever}, 0, 'none was charged twice');
my %charged = map { (split /,/)[ 0, 3 ] } grep { /^CHAOS/ } split /\n/, slurp_orders();
my %paid    = map { split /\|/ } split /\n/,
  $shop->sql("SELECT reference, (status = 'paid')::int FROM payguard.orders WHERE reference LIKE 'CHAOS-%'");
# An order that was charged and then forgotten here would be as wrong.
my %all   = map { $_ => 1 } keys %paid, grep { $charged{$_} } keys %charged;
my @wrong = grep { ($charged{$_} // 0) != ($paid{$_} // 0) } sort keys %all;
cmp_ok(scalar keys %paid, '>=', 80, 'enough of them to mean something');
is(scalar @wrong, 0, 'paid here means charged there, and nothing else does')
  or diag(join "\n", map { "$_: " . $shop->evidence($_) } @wrong);
$shop->is_healthy;

sub slurp_orders
{
	return HTTP::Tiny->new->get($sandbox->control_url('/_sandbox/orders.csv'))->{content};
}

done_testing();
