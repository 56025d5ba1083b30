
# Refunds by the worker, against a gateway that loses answers: each is made once, unknown ones are asked about and never sent under a
# new key, and never more is given back than was paid, in a storm and across crashes. Then closing, expiry by the worker, pauses,
# surplus that is given back by itself, and a dump.

use strict;
use warnings;

use Payguard;
use Payguard::Recorder;
use Payguard::Shop;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

my $sandbox  = Payguard->sandbox(args => [ '--seed', 40, '--callback-backoff', 100 ]);
my $recorder = Payguard::Recorder->start($sandbox->port);
my $node     = Payguard->new_node('main', databases => 'postgres', conf => "restart_after_crash = on\n");
my %options  = (total_timeout => '1s', query_schedule => '100ms,200ms,300ms,500ms,500ms,1s,1s,1s,1s,1s,1s,1s,1s,1s,1s,1s');
Payguard->create_gateway($node, 'postgres', $sandbox, options => \%options);
Payguard->create_gateway($node, 'postgres', $recorder->url, name => 'recorded', options => \%options);
Payguard->create_gateway($node, 'postgres', $sandbox, name => 'giving', options => { %options, surplus => 'refund' });
Payguard->create_gateway($node, 'postgres', $sandbox, name => 'brief', options => { %options, pending_lifetime => '1s' });
my $receiver = Payguard->receiver($node, 'postgres');
my $shop     = Payguard::Shop->new($node, 'postgres', $sandbox);

# All refunds of an order in the gateway's books, as "status amount" pieces.
sub made
{
	my ($order) = @_;
	my (@found, $walk);

	$walk = sub {
		my ($node) = @_;
		if (ref $node eq 'ARRAY') { $walk->($_) foreach @$node; }
		elsif (ref $node eq 'HASH')
		{
			push @found, "$_->{status} $_->{amount}" foreach @{ $node->{refunds} // [] };
			$walk->($node->{$_}) foreach grep { $_ ne 'refunds' } sort keys %$node;
		}
	};
	$walk->($shop->books($order));
	return join ', ', sort @found;
}

sub paid
{
	my (@references) = @_;
	my %param = ref $references[-1] ? %{ pop @references } : ();

	$shop->pay($_, %param) foreach @references;
	$shop->wait_for($_, 'paid') foreach @references;
	return;
}

# Ask for a refund with faults that its requests will meet. The reference is known only afterwards, so the gateway is paused meanwhile.
sub refund
{
	my ($order, %param) = @_;
	my $gateway = $param{gateway} // 'shop';

	$shop->sql("SELECT payguard.pause_gateway('$gateway')");
	my $reference = $shop->sql(sprintf "SELECT gateway_reference FROM payguard.request_refund('%s', '%s', %s)",
		$order, $param{key} // 'k1', $param{amount} // 'NULL');
	$shop->post("/_sandbox/faults/$reference", $_) foreach @{ $param{faults} // [] };
	$shop->sql("SELECT payguard.resume_gateway('$gateway')");
	return $reference;
}

sub wait_for_refund
{
	my ($reference, $state, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	ok($shop->wait_until("SELECT state = '$state' FROM payguard.refunds WHERE gateway_reference = '$reference'"),
		$name // "$reference becomes $state")
	  or diag($shop->sql("SELECT e.* FROM payguard.evidence e WHERE e.gateway_reference = '$reference'"));
	return;
}

sub told
{
	my ($reference) = @_;
	return $shop->sql("SELECT string_agg(source || ':' || result, ' ' ORDER BY id) FROM payguard.evidence"
		  . " WHERE gateway_reference = '$reference'");
}

sub callbacks_are_out
{
	foreach (1 .. 400)
	{
		return 1 if $shop->summary->{callbacks_pending} == 0;
		usleep(50_000);
	}
	return 0;
}

# --- the plain way, and a decline

paid(qw(PLAIN-1 DECLINE-1));
my $reference = refund('PLAIN-1', amount => 100);
wait_for_refund($reference, 'succeeded');
is(told($reference), 'answer:succeeded', 'the answer decides');
is(made('PLAIN-1'), 'succeeded 10000', 'made once at the gateway');
is($shop->sql("SELECT status, refunded_amount, refund_reserved FROM payguard.orders WHERE reference = 'PLAIN-1'"),
	'paid|100.00|100.00', 'the sums are right');
$reference = refund('PLAIN-1', key => 'k2');
$shop->wait_for('PLAIN-1', 'refunded', 'all given back');
$reference = refund('DECLINE-1', faults => [ { fault => 'refund.declined', times => 1 } ]);
wait_for_refund($reference, 'failed', 'a refund may be declined');
is($shop->sql("SELECT status, refunded_amount, refund_reserved FROM payguard.orders WHERE reference = 'DECLINE-1'"),
	'paid|0|0', 'then its money is there again');
$reference = refund('DECLINE-1', key => 'k2');
wait_for_refund($reference, 'succeeded', 'for another request');

# --- answers are lost after the refund was made

my @lost = qw(then_fin then_rst then_silence then_500 then_500_kept then_html then_truncated then_garbage then_wrong_amount);
my %order = map { $_ => uc($_ =~ tr/_/-/r) } @lost;
paid(map { $order{$_} } @lost);
my %refund = map { $_ => refund($order{$_}, amount => 100, faults => [ { fault => "refund.$_", times => 1 } ]) } @lost;
foreach my $fault (@lost)
{
	wait_for_refund($refund{$fault}, 'succeeded', "refund.$fault: found out");
	like(told($refund{$fault}), qr/^answer:(unknown|succeeded) (query:\w+ )*query:succeeded$/, "refund.$fault: by a query");
	is(made($order{$fault}), 'succeeded 10000', "refund.$fault: made once");
}
is($shop->sql("SELECT count(*) FROM payguard.refunds r JOIN payguard.orders o ON o.id = r.order_id WHERE o.reference LIKE 'THEN-%'"),
	scalar @lost, 'and no refund was asked for under another key');
is($shop->sql("SELECT string_agg(reference, ' ') FROM payguard.orders o JOIN payguard.reviews r ON r.order_id = o.id"),
	'THEN-WRONG-AMOUNT', 'a person looks at the one that told another amount');

# --- nothing was made: asked twice after the settle time, then the same bytes again

paid('AGAIN-1', { gateway => 'recorded' });
$reference = refund('AGAIN-1', amount => 100, gateway => 'recorded', faults => [ { fault => 'refund.error_500', times => 1 } ]);
wait_for_refund($reference, 'unknown', 'nothing is known');
ok($shop->wait_until("SELECT count(*) >= 4 FROM payguard.evidence WHERE gateway_reference = '$reference'"), 'it is not found, three times');
is(made('AGAIN-1'), '', 'and not sent again meanwhile');
like($shop->sql("SELECT verdict FROM payguard.request_refund('AGAIN-1', 'other', 100)"), qr/^in_progress$/, 'another request gets this one');
# no option shortens the settle time of a minute: the time of sending is moved back
$shop->sql("UPDATE payguard.refunds SET sent_at = sent_at - interval '2 min' WHERE gateway_reference = '$reference'");
wait_for_refund($reference, 'succeeded', 'then it is sent again');
my @requests = grep { m{^POST [^ ]*/refunds } && /\Q$reference\E/ } $recorder->requests(qr/^POST .*"\Q$reference\E"/s);
is(scalar @requests, 2, 'two requests');
is($requests[0], $requests[1], 'with the same bytes, key and all');
is(made('AGAIN-1'), 'succeeded 10000', 'one refund');

# --- pending at the gateway, and what fails after it had succeeded

$shop->post('/_sandbox/config', { callback_url => $receiver->url('/callbacks/shop') });
paid(qw(SLOWLY-1 HAND-1 TURNED-1));
$reference = refund('SLOWLY-1', amount => 100, faults => [ { fault => 'refund.pending_then_paid', times => 1, ms => 600 } ]);
wait_for_refund($reference, 'processing', 'the gateway works on it');
wait_for_refund($reference, 'succeeded', 'and ends it');
is(made('SLOWLY-1'), 'succeeded 10000', 'once');
$reference = refund('TURNED-1');
$shop->wait_for('TURNED-1', 'refunded');
callbacks_are_out();
$shop->post("/_sandbox/refunds/$reference/status", { status => 'failed' });
$shop->wait_for('TURNED-1', 'paid', 'a refund that fails later makes the order paid again');
wait_for_refund($reference, 'failed');

# --- by hand at the gateway

$shop->post('/_sandbox/charges/HAND-1/refund', { amount => 10000 });
ok($shop->wait_until("SELECT refunded_amount = 100 FROM payguard.orders WHERE reference = 'HAND-1'"), 'a refund by hand is booked');
is($shop->sql("SELECT external, state, r.amount FROM payguard.refunds r JOIN payguard.orders o ON o.id = r.order_id WHERE o.reference = 'HAND-1'"),
	't|succeeded|100.00', 'as an external one');
like($shop->fails("SELECT payguard.request_refund('HAND-1', 'k', 300)"), qr/^PG006/, 'which counts in what is left');
refund('HAND-1', key => 'rest');
$shop->wait_for('HAND-1', 'refunded', 'the rest is given back');
is(made('HAND-1'), 'succeeded 10000, succeeded 29900', 'both are in the books');
# one by hand and one of ours that has not left: there is no room for both
paid('HAND-2');
$shop->sql("SELECT payguard.pause_gateway('shop')");
$reference = $shop->sql("SELECT gateway_reference FROM payguard.request_refund('HAND-2', 'k', 300)");
$shop->post('/_sandbox/charges/HAND-2/refund', { amount => 20000 });
ok($shop->wait_until("SELECT refunded_amount = 200 FROM payguard.orders WHERE reference = 'HAND-2'"), 'somebody was faster by hand');
$shop->sql("SELECT payguard.resume_gateway('shop')");
wait_for_refund($reference, 'failed', 'ours does not go out');
is(made('HAND-2'), 'succeeded 20000', 'at all');
# the same for a payment that was reversed meanwhile
paid('HAND-3');
$shop->sql("SELECT payguard.pause_gateway('shop')");
$reference = $shop->sql("SELECT gateway_reference FROM payguard.request_refund('HAND-3', 'k', 300)");
$shop->post('/_sandbox/charges/HAND-3/status', { status => 'reversed' });
$shop->wait_for('HAND-3', 'reversed');
$shop->sql("SELECT payguard.resume_gateway('shop')");
wait_for_refund($reference, 'failed', 'no refund of reversed money goes out');
is(made('HAND-3'), '', 'at all');

# --- crashes while a refund is under way

sub worker_pid
{
	$shop->wait_until("SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'payguard worker'");
	return $shop->sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'payguard worker'");
}

sub hanging
{
	my ($order) = @_;

	paid($order);
	my $name = refund($order, faults => [ { fault => 'refund.then_silence', times => 1, ms => 60000 } ]);
	foreach (1 .. 100)
	{
		last if made($order) ne '';
		usleep(20_000);
	}
	return $name;
}

$shop->sql("ALTER SERVER shop OPTIONS (SET total_timeout '30s')");
$reference = hanging('CRASH-1');
my $old = worker_pid();
kill 'KILL', $old;
ok($node->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'payguard worker' AND pid <> $old"),
	'another worker is at work');
wait_for_refund($reference, 'succeeded', 'kill -9 of the worker: found out');
is(made('CRASH-1'), 'succeeded 39900', 'made once');
$reference = hanging('CRASH-2');
$node->kill9;
foreach (1 .. 50)
{
	last if $node->start(fail_ok => 1);
	usleep(100_000);
	$node->stop('fast', fail_ok => 1);
}
wait_for_refund($reference, 'succeeded', 'kill -9 of the postmaster: found out');
is(made('CRASH-2'), 'succeeded 39900', 'made once');
$shop->wait_for($_, 'refunded') foreach qw(CRASH-1 CRASH-2);
$shop->sql("ALTER SERVER shop OPTIONS (SET total_timeout '1s')");

# --- a storm: 200 payments, 10 clients that each ask for a refund of each twice, half of the answers lost

my $storm = 200;
$shop->sql("SELECT payguard.create_order(399.00, 'CNY', 'shop', 'STORM-' || n) FROM generate_series(1, $storm) AS n");
$shop->sql("SELECT payguard.claim_order('STORM-' || n, 'storm-' || n) FROM generate_series(1, $storm) AS n");
ok($shop->wait_until("SELECT count(*) = $storm FROM payguard.orders WHERE reference LIKE 'STORM-%' AND status = 'paid'"), 'the storm: all are paid');
$shop->post('/_sandbox/faults',
	{ rates => { 'refund.then_fin' => 0.2, 'refund.then_500' => 0.2, 'refund.then_garbage' => 0.1, 'query.error_500' => 0.1 } });
my @clients;
foreach my $client (1 .. 10)
{
	my $script = PostgreSQL::Test::Utils::tempdir() . "/storm-$client.sql";
	open my $file, '>', $script or die "could not write $script: $!\n";
	foreach my $n (sort { ($a * 7919 + $client * 31) % 211 <=> ($b * 7919 + $client * 31) % 211 || $a <=> $b } 1 .. $storm)
	{
		# a part of it, or all that is left
		my $amount = $n % 2 ? 150 : 'NULL';
		print $file "SELECT verdict FROM payguard.request_refund('STORM-$n', 'client-$client', $amount);\n" x 2;
	}
	close $file;
	my $pid = fork // die "could not fork: $!\n";
	if ($pid == 0)
	{
		open STDOUT, '>', "$script.out" or POSIX::_exit(1);
		open STDERR, '>', "$script.err" or POSIX::_exit(1);
		exec 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-f', $script or POSIX::_exit(1);
	}
	push @clients, [ $pid, $script ];
}
my (%verdicts, %errors);
foreach my $client (@clients)
{
	waitpid $client->[0], 0;
	$verdicts{$_}++ foreach split /\n/, slurp_file("$client->[1].out");
	$errors{$_}++ foreach slurp_file("$client->[1].err") =~ /ERROR: +([^"\n]*)/g;
}
is(join(' ', sort keys %errors), 'refund of order ', 'the only error is that there is nothing left');
is(join(' ', sort keys %verdicts), 'in_progress replayed requested', 'all others are told');
ok($shop->wait_until("SELECT count(*) = 0 FROM payguard.refunds WHERE state NOT IN ('succeeded', 'failed')"), 'every refund ends');
$shop->post('/_sandbox/faults', { rates => {} });
is($shop->sql("SELECT count(*) FROM payguard.refunds r JOIN payguard.orders o ON o.id = r.order_id WHERE o.reference LIKE 'STORM-%'"),
	$verdicts{requested}, 'as many refunds as were requested');
my %books;
foreach (1 .. $storm)
{
	my @all = split /, /, made("STORM-$_");
	$books{count} += grep { /^succeeded/ } @all;
	my $sum = 0;
	$sum += (split / /)[1] foreach grep { /^succeeded/ } @all;
	$books{sum} += $sum;
	$books{beyond}++ if $sum > 39900;
}
is($books{beyond} // 0, 0, 'for no order was more given back than was paid');
is($shop->sql("SELECT count(*) || ' ' || sum(r.amount * 100)::bigint FROM payguard.refunds r JOIN payguard.orders o ON o.id = r.order_id"
		  . " WHERE o.reference LIKE 'STORM-%' AND r.state = 'succeeded'"),
	"$books{count} $books{sum}", 'ledger and books agree: how many, and how much');
is($shop->sql("SELECT sum(refunded_amount * 100)::bigint FROM payguard.orders WHERE reference LIKE 'STORM-%'"), $books{sum}, 'the orders say the same');
is($shop->sql("SELECT count(*) FROM payguard.orders WHERE reference LIKE 'STORM-%' AND status = 'refunded'"), $storm / 2, 'half of them are refunded');
cmp_ok($shop->sql("SELECT count(*) FROM payguard.evidence WHERE refund_id IS NOT NULL AND source = 'answer' AND result = 'unknown'"),
	'>', 50, 'many answers were lost');

# --- closing

sub pending
{
	my ($order, %param) = @_;

	$shop->pay($order, payment => { card => 'pending' }, %param);
	$shop->wait_until("SELECT state = 'pending' FROM payguard.attempts WHERE gateway_reference = '$order'");
	return;
}

pending($_) foreach qw(CLOSE-1 CLOSE-2 CLOSE-3);
is($shop->sql("SELECT verdict, status FROM payguard.close_order('CLOSE-1', 'no longer wanted')"), 'closing|processing', 'the gateway is asked to close');
$shop->wait_for('CLOSE-1', 'closed', 'and has closed it');
is($shop->books('CLOSE-1')->{charges}, 0, 'nothing was charged');
$shop->plan('CLOSE-2', 'close.close_too_late');
is($shop->sql("SELECT verdict FROM payguard.close_order('CLOSE-2')"), 'closing', 'one that is paid meanwhile');
$shop->wait_for('CLOSE-2', 'paid', 'too late: the payment is booked');
is($shop->sql("SELECT verdict FROM payguard.close_order('CLOSE-2')"), 'already_paid', 'and says so');
is($shop->sql("SELECT verdict FROM payguard.close_attempt('CLOSE-3', 'another channel')"), 'closing', 'an attempt is given up');
$shop->wait_for('CLOSE-3', 'failed');
is($shop->claim('CLOSE-3', key => 'again'), 't|claimed|processing|2', 'and the next one can be made');
$shop->wait_for('CLOSE-3', 'paid');
# pending for longer than the gateway's option
pending('LIFE-01', gateway => 'brief');
$shop->wait_for('LIFE-01', 'failed', 'pending_lifetime: closed by the worker');
is($shop->books('LIFE-01')->{charges}, 0, 'nothing was charged');

# --- expiry by the worker

$shop->sql("SELECT payguard.create_order(399, 'CNY', 'shop', 'EXPIRE-1', expires_in => '1 second')");
$shop->wait_for('EXPIRE-1', 'closed', 'an order past its time is closed without a claim');
is($shop->evidence('EXPIRE-1'), 'expiry:closed', 'by evidence of its own');

# --- pauses

$shop->sql("SELECT payguard.pause_gateway('shop')");
$shop->pay('PAUSE-1');
usleep(1_500_000);
is($shop->arrivals('PAUSE-1'), 0, 'nothing is sent while the gateway is paused');
$shop->sql("SELECT payguard.resume_gateway('shop')");
$shop->wait_for('PAUSE-1', 'paid', 'and all of it afterwards');

# --- surplus is given back by itself, once the gateway has confirmed both

$shop->post('/_sandbox/config', { callback_url => $receiver->url('/callbacks/giving') });
paid('GIVE-01', 'GIVE-02', { gateway => 'giving' });
callbacks_are_out();
$shop->post('/_sandbox/charges', { reference => 'GIVE-01_r2', amount => 39900, currency => 'CNY' });
ok($shop->wait_until("SELECT state = 'refunded' FROM payguard.payments p JOIN payguard.orders o ON o.id = p.order_id WHERE o.reference = 'GIVE-01' AND NOT counted"),
	'a second payment is given back') or $shop->tell('GIVE-01');
is(made('GIVE-01'), 'succeeded 39900', 'once');
is($shop->status('GIVE-01'), 'paid', 'the order stays paid');
is($shop->sql("SELECT count(*) FROM payguard.evidence e JOIN payguard.orders o ON o.id = e.order_id WHERE o.reference = 'GIVE-01' AND source = 'query' AND result = 'paid'") >= 2,
	1, 'after both were asked about');
$shop->post('/_sandbox/charges', { reference => 'GIVE-02', amount => 39900, currency => 'CNY' });
ok($shop->wait_until("SELECT needs_review FROM payguard.order_status('GIVE-02')"), 'two charges of one reference are for a person') or $shop->tell('GIVE-02');
is(made('GIVE-02'), '', 'and not given back');
# late money on a closed order
pending('GIVE-03', gateway => 'giving');
$shop->sql("SELECT payguard.close_order('GIVE-03')");
$shop->wait_for('GIVE-03', 'closed');
$shop->post('/_sandbox/charges/GIVE-03/status', { status => 'paid' });
$shop->wait_for('GIVE-03', 'refunded', 'late money on a closed order is given back') or $shop->tell('GIVE-03');
is(made('GIVE-03'), 'succeeded 39900', 'once');

# --- dump and restore

sub content
{
	my ($of) = @_;
	my @tables = split /\n/, $of->sql("SELECT c.oid::regclass FROM pg_class c WHERE c.relnamespace = 'payguard'::regnamespace"
		  . " AND c.relkind = 'r' ORDER BY c.relname");
	return join "\n", map { $of->sql("SELECT '$_', count(*), md5(string_agg(t::text, E'\\n' ORDER BY t::text)) FROM $_ t") } @tables;
}

callbacks_are_out();
$shop->sql("SELECT payguard.pause_gateway('shop')");
paid('DUMP-01', { gateway => 'brief' });
$shop->sql("SELECT first FROM payguard.begin_once('payout', 'P1', '{\"n\": 1}')");
$shop->sql("SELECT verdict FROM payguard.request_refund('CLOSE-2', 'waits', 100)");
my $content = content($shop);
my $dump    = PostgreSQL::Test::Utils::tempdir() . '/refunds.dump';
$node->command_ok([ 'pg_dump', '-Fc', '-f', $dump, $node->connstr('postgres') ], 'pg_dump');
$node->safe_psql('postgres', 'CREATE DATABASE copy');
$node->command_ok([ 'pg_restore', '--exit-on-error', '-d', $node->connstr('copy'), $dump ], 'pg_restore');
my $copy = Payguard::Shop->new($node, 'copy', $sandbox);
is(content($copy), $content, 'the same rows');
like($copy->fails("SELECT payguard.request_refund('CLOSE-3', 'k')"), qr/^PG009/, 'the copy gives nothing back');
is($shop->sql("SELECT verdict FROM payguard.request_refund('CLOSE-2', 'waits', 100)"), 'replayed', 'the original goes on');
$shop->sql("SELECT payguard.resume_gateway('shop')");
ok($shop->wait_until("SELECT state = 'succeeded' FROM payguard.refunds WHERE request_key = 'waits'"), 'and makes what waited');

is($shop->summary->{orders_charged_twice_ever}, 2, 'the gateway charged no order twice but those where the test did');
is($shop->sql('SELECT * FROM payguard.check()'), '', 'check() has no rows');

done_testing();
