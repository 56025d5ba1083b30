
# Random chaos, for script/chaos: rounds of a minute, each with a server, a test gateway and a seed of its own. Customers
# buy at the same time; the gateway goes wrong in every way it knows; callbacks come twice, late, in any order, or never; the
# worker, sessions and the whole server die, at named points and anywhere. Then everything bad ends, all must come to rest
# within a bounded time, and the gateway's books judge.
#
# CHAOS_MINUTES says how long, CHAOS_SEED where to begin: round N has the seed CHAOS_SEED + N - 1, so that a bad round can
# be run again alone. The seed decides what is done; how the processes meet differs from run to run.

use strict;
use warnings;

use HTTP::Tiny;
use JSON::PP;
use Payguard;
use Payguard::Crash;
use Payguard::Customer;
use Payguard::Judge;
use Payguard::Shop;
use POSIX ();
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $CUSTOMERS = 6;
my $ROUND     = 60;     # seconds of storm
my $REST      = 120;    # seconds that all may take to come to rest
my $minutes   = $ENV{CHAOS_MINUTES} || 1;
my $seed      = $ENV{CHAOS_SEED}    || 1;

my @POINTS = qw(order_created claim_begun claim_moved send_committed send_handed_over answer_begun answer_read
  door_payment_booked door_evidence_stored door_events_next booked_not_committed booked_committed callback_stored
  parked_retried);
my @AFTER_CHARGE = map { "charge_then_$_" }
  qw(fin rst silence 500 500_kept html truncated unframed cut_header garbage wrong_amount other_reference);
my @NOTHING_DONE = qw(error_500 error_503_retry_after rate_limited_429 slow);

my (%total, %hits);

sub report
{
	diag(sprintf '%s', join ' ', @_);
	return;
}

# --- one round's world

sub make_world
{
	my ($number) = @_;
	my %world = (began => time);

	$world{sandbox} = Payguard->sandbox(
		args => [ '--seed', $number, '--silence', 10000, '--slow', 700, '--query-lag', 1500, '--callback-tries', 40,
			'--callback-backoff', 100, '--callback-timeout', 5000 ]);
	$world{node} = Payguard->new_node("storm$number",
		databases => 'postgres',
		conf      => join "\n", 'restart_after_crash = on', 'synchronous_commit = off', 'wal_writer_delay = 2s',
		"payguard.lease_margin = '1s'", 'log_statement = none', 'max_connections = 50', '');
	Payguard->create_gateway(
		$world{node}, 'postgres',
		$world{sandbox},
		options => {
			connect_timeout  => '1s',
			total_timeout    => '3s',
			send_window      => '10s',
			pending_lifetime => '6s',
			surplus          => rand() < 0.5 ? 'review' : 'refund',
			query_schedule   => '200ms,300ms,500ms,1s,1s,2s,2s,3s,3s,5s,5s,10s,10s,15s,20s,20s'
		});
	$world{shop}  = Payguard::Shop->new($world{node}, 'postgres', $world{sandbox});
	$world{judge} = Payguard::Judge->new($world{shop});
	$world{crash} = Payguard::Crash->new($world{node}, 'postgres');
	$world{receiver} = Payguard->receiver($world{node}, 'postgres');
	$world{files}    = PostgreSQL::Test::Utils::tempdir();
	$world{shop}->post('/_sandbox/config', { callback_url => $world{receiver}->url('/callbacks/shop') });
	return \%world;
}

sub start_customer
{
	my ($world, $number, $index) = @_;
	my $journal = "$world->{files}/journal-$number-$index";
	my $parent  = $$;

	push @{ $world->{journals} }, $journal;
	my $pid = fork // die "could not fork: $!\n";
	if ($pid == 0)
	{
		$SIG{$_} = 'DEFAULT' foreach qw(HUP INT TERM);
		my $done = eval {
			Payguard::Customer->new(
				connstr => $world->{node}->connstr('postgres'),
				url     => $world->{sandbox}->url,
				seed    => $number, number => $index, customers => $CUSTOMERS, journal => $journal,
				# What nobody flushed may be lost, which must not hide that something else is.
				strict => $number % 2
			)->run("$world->{files}/enough");
			1;
		};
		print STDERR "customer $index: $@" unless $done;
		POSIX::_exit($done ? 0 : 1);
	}
	push @{ $world->{customers} }, $pid;
	return;
}

sub stop_customers
{
	my ($world) = @_;
	my $bad = 0;

	open my $handle, '>', "$world->{files}/enough" or die "could not write: $!\n";
	close $handle;
	foreach my $pid (@{ $world->{customers} })
	{
		waitpid $pid, 0;
		$bad++ if $?;
	}
	return $bad;
}

# --- what goes wrong

sub pick { return $_[ rand @_ ]; }

sub change_weather
{
	my ($world) = @_;
	my $force = pick(0.2, 0.5, 1);
	my %rates = (
		(map { $_ => 0.05 * rand() * $force } @AFTER_CHARGE, @NOTHING_DONE),
		refuse => 0.1 * rand() * $force,
		(map { $_ => 0.1 * rand() * $force } qw(declined pending pending_then_paid pending_then_failed)),
		query_lag      => 0.2 * rand() * $force,
		close_too_late => 0.3 * rand() * $force,
		(map { ("query.$_" => 0.08 * rand() * $force) } qw(error_500 slow then_fin then_html then_truncated rate_limited_429)),
		(map { ("refund.$_" => 0.08 * rand() * $force) } qw(error_500 slow then_fin then_500 then_silence declined)),
		(map { ("close.$_" => 0.08 * rand() * $force) } qw(error_500 then_fin then_html)));

	$world->{shop}->post('/_sandbox/faults', { rates => \%rates });
	$world->{shop}->post(
		'/_sandbox/config',
		{
			latency            => int rand(60),
			callback_delay     => int(rand(2) * 300),
			callback_shuffle   => int rand(1500),
			callback_duplicate => 0.3 * rand(),
			callback_again     => 0.2 * rand(),
			callback_lost      => 0.2 * rand()
		});
	return sprintf 'the weather changes, faults at %d %%', 100 * $force;
}

sub outage
{
	my ($world) = @_;
	my $ms = 200 + int rand(3000);

	$world->{shop}->post('/_sandbox/outage', { ms => $ms, drop_connections => pick(JSON::PP::true, JSON::PP::false) });
	return "the gateway is away for $ms ms";
}

# A process of that kind, or undef.
sub find_process
{
	my ($world, $type) = @_;
	my (undef, $output) = $world->{crash}->try(
		"SELECT pid FROM pg_stat_activity WHERE backend_type = '$type' AND pid <> pg_backend_pid() ORDER BY random()");
	return (split /\n/, $output // '')[0];
}

sub kill_process
{
	my ($world, $type) = @_;
	my $pid = find_process($world, $type) or return "no $type is there";

	kill 'KILL', $pid;
	$total{crashes}++;
	return "kill -9 of a $type";
}

sub kill_server
{
	my ($world) = @_;

	$world->{crash}->kill_postmaster;
	$total{crashes}++;
	return 'kill -9 of the postmaster';
}

sub stop_server
{
	my ($world) = @_;
	my $mode = pick(qw(immediate immediate fast));

	$world->{node}->stop($mode, fail_ok => 1);
	$total{crashes}++ if $mode eq 'immediate';
	return "$mode stop of the server";
}

sub terminate_worker
{
	my ($world) = @_;

	$world->{crash}->try("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'payguard worker'");
	return 'the worker is terminated';
}

sub die_at_point
{
	my ($world) = @_;
	my $crash = $world->{crash};
	my $point = pick(@POINTS);
	my %how   = (nth => 1 + int rand(6), who => pick(qw(process process server postmaster)));

	$crash->arm($point, %how);
	my $hit = $crash->wait_until_hit(4);
	$crash->recover;
	$crash->disarm;
	$total{crashes}++ if $hit;
	$hits{$point}++ if $hit;
	return sprintf '%s at %s, time %d%s', $how{who}, $point, $how{nth}, $hit ? '' : ': not met';
}

my @TROUBLE = (
	(\&change_weather) x 3,
	(\&outage) x 2,
	(sub { return kill_process($_[0], 'payguard worker'); }) x 2,
	(sub { return kill_process($_[0], 'client backend'); }) x 2,
	(\&kill_server) x 2,
	\&stop_server, \&terminate_worker,
	(\&die_at_point) x 8);

sub make_trouble
{
	my ($world) = @_;
	my $end = time + $ROUND;

	report('  ' . change_weather($world));
	while (time < $end)
	{
		sleep 0.5 + rand(3);
		my $trouble = pick(@TROUBLE);
		my $what    = eval { $trouble->($world) } // "no trouble: " . (split /\n/, $@)[0];
		report(sprintf '  %3d s  %s', time - $world->{began}, $what);
		$world->{crash}->recover;
	}
	return;
}

# --- the end

sub calm_down
{
	my ($world) = @_;

	$world->{crash}->recover;
	$world->{crash}->disarm;
	$world->{shop}->post('/_sandbox/faults', { rates => {} });
	$world->{shop}->post('/_sandbox/config',
		{ latency => 0, map { ("callback_$_" => 0) } qw(delay shuffle duplicate again lost) });
	return;
}

sub wait_for_callbacks
{
	my ($world) = @_;

	foreach (1 .. $REST * 5)
	{
		return 1 if $world->{shop}->summary->{callbacks_pending} == 0;
		sleep 0.2;
	}
	return 0;
}

# What customers were promised to find again, and what they met that they should not have.
sub broken_promises
{
	my ($world) = @_;
	my (@evidence, @claims, @problems);

	foreach my $line (map { split /\n/, slurp_file($_) } grep { -e } @{ $world->{journals} })
	{
		push @evidence, "($1, '$2')" if $line =~ /^evidence (\d+) (\S+)/;
		push @claims,   "('$1', $2)" if $line =~ /^claim (\S+) (\d+)/;
		push @problems, $line if $line =~ /^error /;
	}
	push @problems, map { "a fact that was told is lost: $_" } $world->{judge}->lines(
		'SELECT v.* FROM (VALUES ' . join(', ', @evidence) . ') AS v (id, reference) WHERE NOT EXISTS'
		  . ' (SELECT FROM payguard.evidence e JOIN payguard.orders o ON o.id = e.order_id WHERE e.id = v.id AND o.reference = v.reference)')
	  if @evidence;
	push @problems, map { "an application's claim is lost: $_" } $world->{judge}->lines(
		'SELECT v.* FROM (VALUES ' . join(', ', @claims) . ') AS v (reference, no) WHERE NOT EXISTS'
		  . ' (SELECT FROM payguard.attempts a JOIN payguard.orders o ON o.id = a.order_id WHERE a.no = v.no AND o.reference = v.reference)')
	  if @claims;
	$total{told} += @evidence;
	return @problems;
}

# Every acknowledged callback left a trace.
sub lost_callbacks
{
	my ($world) = @_;
	my $answers = JSON::PP->new->decode(HTTP::Tiny->new->get($world->{receiver}->url('/_receiver/summary'))->{content});
	my $acknowledged = $answers->{http_statuses}{200} // 0;
	my $stored = $world->{shop}->sql("SELECT coalesce(sum(deliveries), 0) FROM payguard.evidence WHERE source = 'callback'");

	$total{callbacks} += $acknowledged;
	return $stored >= $acknowledged ? () : "$acknowledged callbacks were acknowledged, $stored are there";
}

sub show_round
{
	my ($world) = @_;
	my $shop    = $world->{shop};
	my $summary = $shop->summary;

	$total{$_} += $summary->{$_} foreach qw(charges charge_arrivals orders_charged_twice_ever queries refunds);
	my $states = $shop->sql("SELECT string_agg(status || ' ' || n, ', ' ORDER BY status) FROM"
		  . ' (SELECT status, count(*) AS n FROM payguard.orders GROUP BY status) AS s');
	my $reviews = $shop->sql("SELECT string_agg(n || ' x ' || reason, ', ' ORDER BY reason) FROM"
		  . ' (SELECT reason, count(*) AS n FROM payguard.reviews, unnest(reasons) AS reason GROUP BY reason) AS s');
	$total{orders} += $shop->sql('SELECT count(*) FROM payguard.orders');
	report("  orders: $states");
	report('  for review: ' . ($reviews || 'none'));
	report("  gateway: $summary->{charge_arrivals} requests, $summary->{charges} charges, $summary->{queries} queries,"
		  . " $summary->{refunds} refunds, $summary->{orders_charged_twice_ever} charged twice");
	return;
}

# The story of each order that a problem names.
sub report_problems
{
	my ($world, @problems) = @_;
	my %seen;

	report("  PROBLEM $_") foreach @problems;
	foreach my $reference (map { /(S\d+-\d{5})/ ? $1 : () } @problems)
	{
		next if $seen{$reference}++ || keys %seen > 5;
		report("  $reference: $_") foreach $world->{judge}->lines("SELECT * FROM payguard.why('$reference')");
		report("  $reference: evidence $_") foreach $world->{judge}->lines(
			'SELECT e.id, e.received_at, e.source, e.result, e.attempt_no, e.verdict, e.code, e.provider_id, e.amount, e.transport, e.note'
			  . " FROM payguard.evidence e JOIN payguard.orders o ON o.id = e.order_id WHERE o.reference = '$reference' ORDER BY e.id");
	}
	return;
}

sub run_round
{
	my ($number) = @_;

	srand($number);
	report("round with seed $number");
	my $world = make_world($number);
	start_customer($world, $number, $_) foreach 1 .. $CUSTOMERS;
	make_trouble($world);
	is(stop_customers($world), 0, "seed $number: the customers came through");
	calm_down($world);
	my $start = time;
	ok(wait_for_callbacks($world), "seed $number: callbacks are delivered");
	ok($world->{judge}->come_to_rest($REST), "seed $number: all comes to rest")
	  or report_problems($world, $world->{judge}->unrest);
	report(sprintf '  at rest after %.1f s', time - $start);
	my $books = $world->{shop}->summary;
	my @problems = ($world->{judge}->problems, broken_promises($world), lost_callbacks($world));
	sleep 1.5;
	my $later = $world->{shop}->summary;
	push @problems, 'requests were sent although all was at rest' if $later->{charge_arrivals} != $books->{charge_arrivals};
	is(scalar @problems, 0, "seed $number: the books agree, and nothing is lost") or report_problems($world, @problems);
	show_round($world);
	if (@problems && $ENV{CHAOS_KEEP})
	{
		report("  kept: $world->{node}{_host} " . $world->{node}->port);
		sleep 3600;
	}
	$world->{node}->stop('immediate', fail_ok => 1);
	return @problems == 0;
}

my $begin = time;
my @bad;
for (my $number = $seed; $number == $seed || time - $begin < ($minutes - 0.5) * 60; $number++)
{
	my $good = eval { run_round($number) };
	fail("seed $number: $@") if $@;
	push @bad, $number unless $good;
	$total{rounds}++;
}
report('');
report(sprintf '%d rounds in %.1f minutes, seeds %d to %d', $total{rounds}, (time - $begin) / 60, $seed, $seed + $total{rounds} - 1);
report(join ', ', map { "$_ $total{$_}" } sort keys %total);
report('died at ' . join ', ', map { "$_ $hits{$_}" } sort keys %hits) if %hits;
report(@bad ? "bad: run again by SEED=N MINUTES=1 with N = @bad" : 'none charged twice, nothing lost');

done_testing();
