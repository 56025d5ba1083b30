
# Dies at every named point (src/core/crashpoint.h), with other orders in flight: the process that came there, or the whole
# server, or the postmaster alone. After recovery every order ends right, as the gateway's books say: charged once, booked
# exactly, nothing left open, no acknowledged callback lost, check() clean. script/chaos does the same at random.

use strict;
use warnings;

use HTTP::Tiny;
use JSON::PP qw(decode_json);
use Payguard;
use Payguard::Crash;
use Payguard::Judge;
use Payguard::Shop;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

my $sandbox = Payguard->sandbox(args => [ '--seed', 20, '--callback-backoff', 100, '--slow', 400 ]);
# Sessions do not flush, so that what is on disk after a crash is what payguard itself has flushed.
my $node = Payguard->new_node('main',
	databases => 'postgres',
	conf      => "restart_after_crash = on\nsynchronous_commit = off\nwal_writer_delay = 10s\n");
Payguard->create_gateway($node, 'postgres', $sandbox,
	options => { total_timeout => '20s', query_schedule => '100ms,200ms,300ms,500ms,500ms,1s,1s,1s,1s,1s,1s,1s' });
my $shop     = Payguard::Shop->new($node, 'postgres', $sandbox);
my $judge    = Payguard::Judge->new($shop);
my $crash    = Payguard::Crash->new($node, 'postgres');
my $receiver = Payguard->receiver($node, 'postgres');

sub callbacks
{
	my ($on) = @_;
	$shop->post('/_sandbox/config', { callback_url => $on ? $receiver->url('/callbacks/shop') : '' });
	return;
}

# What an application does about a call that broke off: the same again, once the server is back.
sub insist
{
	my ($sql) = @_;
	my $output;

	foreach (1 .. 100)
	{
		my ($code, $stdout) = $crash->try($sql);
		return $stdout if $code == 0;
		usleep(100_000);
	}
	die "in vain: $sql\n";
}

# Orders of all kinds that are under way when the server dies: at the gateway, lost by it, in an application's hands.
my $companions = 0;

sub companions
{
	my ($round) = @_;
	my $name = sprintf 'MATE%02d', ++$companions;

	$shop->plan("$name-SLOW", 'slow');
	$shop->plan("$name-LOST", 'charge_then_silence', ms => 60000);
	$shop->pay("$name-$_") foreach qw(SLOW LOST);
	$shop->order("$name-APP");
	$shop->sql("SELECT payguard.claim_order('$name-APP', '$name-1', NULL, 'application', '{}', '1 s')");
	return;
}

# Everything has to end by itself from here on.
sub ends_right
{
	my ($name) = @_;

	$crash->recover;
	$crash->disarm;
	ok($judge->come_to_rest(30), "$name: all is decided")
	  or diag(map { "$_\n" } $judge->unrest);
	my @problems = $judge->problems;
	is(join("\n", @problems), '', "$name: the books agree");
	return;
}

# POINT: the worker dies there while it charges an order, which it does when nothing else may come first.
sub worker_dies
{
	my ($point, $who, $evidence) = @_;
	my $order = uc("$point-$who") =~ tr/_/-/r;

	companions();
	# The point may be passed by the companions; it must be this order that meets it.
	$shop->wait_until("SELECT count(*) = 0 FROM payguard.attempts WHERE state = 'claimed'");
	$shop->wait_until("SELECT count(*) = 0 FROM payguard.outbox x JOIN payguard.orders o ON o.id = x.order_id"
		  . " WHERE o.reference LIKE '%-SLOW' AND x.next_run_at < 'infinity'");
	$crash->arm($point, who => $who);
	insist($shop->order_sql($order));
	# The answer to this may never come.
	$crash->try($shop->claim_sql($order));
	ok($crash->wait_until_hit, "$point, $who: the worker dies");
	$crash->recover;
	# The claim was flushed before anything was sent.
	like(insist($shop->claim_sql($order)), qr/^f\|replayed\|\w+\|1$/, "$point, $who: the claim is there");
	ends_right("$point, $who");
	is($shop->status($order), 'paid', "$point, $who: the order is paid");
	is($shop->charged($order), 1, "$point, $who: it was charged once");
	is($shop->arrivals($order), 1, "$point, $who: by one request");
	like($shop->evidence($order), $evidence, "$point, $who: as the evidence tells");
	return;
}

# --- the worker, from T1 to T2

callbacks(0);
my $found_out = qr/^answer:unknown query:paid$/;
my $sent_late = qr/^answer:unknown (?:query:not_found ){2,}answer:paid$/;
foreach my $who (qw(process server postmaster))
{
	# A postmaster's end is noticed before, or after, the request leaves.
	worker_dies('send_committed', $who, $who eq 'postmaster' ? qr/^answer:unknown query:/ : $sent_late);
	# Without its postmaster a worker goes on until it notices, and may book the answer that came meanwhile.
	worker_dies('send_handed_over', $who, $who eq 'postmaster' ? qr/^answer:(?:paid|unknown query:)/ : qr/^answer:unknown query:/);
	worker_dies('answer_begun', $who, $found_out);
	# One that goes on without its postmaster may book before it notices.
	worker_dies('answer_read', $who, $who eq 'postmaster' ? qr/^answer:(?:unknown query:)?paid$/ : $found_out);
	next if $who eq 'postmaster';
	worker_dies($_, $who, $found_out)
	  foreach qw(door_payment_booked door_evidence_stored door_events_next booked_not_committed);
	worker_dies('booked_committed', $who, qr/^answer:paid$/);
}

# --- sessions: what was not committed has not happened, and the same call again does it

# POINT, SQL: a session dies there. Its statement is repeated as an application would.
sub session_dies
{
	my ($point, $who, $sql) = @_;

	companions();
	$crash->expect($point);
	my $setting = Payguard::Crash->setting($point, who => $who);
	$crash->try("SET payguard.crash_at = '$setting';\n$sql");
	ok($crash->hit, "$point, $who: the session dies");
	$crash->recover;
	return insist($sql);
}

foreach my $who (qw(process server))
{
	my $order = "CREATED-" . uc $who;
	is(session_dies('order_created', $who, $shop->order_sql($order)), $order, "order_created, $who: made again");
	$shop->claim($order);
	ends_right("order_created, $who");
	is($shop->status($order), 'paid', "order_created, $who: the order is paid");

	foreach my $point (qw(claim_begun claim_moved))
	{
		foreach my $call_by (qw(worker application))
		{
			$order = uc("$point-$who-$call_by") =~ tr/_/-/r;
			$shop->order($order);
			$shop->sql('CHECKPOINT');
			my $lease = $call_by eq 'application' ? "'1 s'" : 'NULL';
			is(session_dies($point, $who, "SELECT c.claimed, c.verdict, c.status, c.attempt_no FROM"
					. " payguard.claim_order('$order', '$order-1', NULL, '$call_by', '{}', $lease) AS c"),
				't|claimed|processing|1', "$point, $who, $call_by: claimed again");
			ends_right("$point, $who, $call_by");
			is($shop->status($order), $call_by eq 'worker' ? 'paid' : 'failed', "$point, $who, $call_by: decided");
		}
	}
}

# An application has charged, and dies while it tells so. What it was told is durable; what it was not, it tells again.
foreach my $point (qw(door_payment_booked door_evidence_stored door_events_next))
{
	my $order = uc("TOLD-$point") =~ tr/_/-/r;
	$shop->order($order);
	my $token = $shop->sql("SELECT lease_token FROM payguard.claim_order('$order', '$order-1', NULL, 'application')");
	my $id = $shop->post('/_sandbox/charges', { reference => $order, amount => 39900, currency => 'CNY' })->{id};
	is(session_dies($point, 'process',
			"SELECT verdict, status FROM payguard.record_attempt('$token', 'paid', '$id', 399.00, 'CNY')"),
		'applied|paid', "$point: told again");
	$node->stop('immediate');
	$node->start;
	is($shop->status($order), 'paid', "$point: what the application was told is durable");
	ends_right("record_attempt, $point");
}

# --- callbacks: one that was not answered comes again, one that was answered is kept

callbacks(1);
foreach my $who (qw(process server))
{
	foreach my $point (qw(callback_stored door_payment_booked door_evidence_stored door_events_next))
	{
		my $name  = "callback, $point, $who";
		my $order = uc("CALLED-$point-$who") =~ tr/_/-/r;

		# The worker learns nothing, so that the callback brings the fact.
		$shop->plan($order, 'charge_then_silence', ms => 60000);
		$shop->order($order);
		$crash->arm($point, who => $who);
		$crash->try($shop->claim_sql($order));
		ok($crash->wait_until_hit, "$name: the session dies");
		$crash->recover;
		ok($shop->wait_until("SELECT count(*) = 1 FROM payguard.evidence e JOIN payguard.orders o ON o.id = e.order_id"
				. " WHERE o.reference = '$order' AND e.source = 'callback'"), "$name: the callback came again");
		ends_right($name);
		is($shop->status($order), 'paid', "$name: the order is paid");
		is($shop->arrivals($order), 1, "$name: by one request");
	}

	# Money that nobody here asked for waits for its order, and the order's maker dies while it is judged.
	my $order = 'PARKED-' . uc $who;
	$shop->post('/_sandbox/charges', { reference => $order, amount => 39900, currency => 'CNY' });
	$shop->wait_until("SELECT count(*) = 1 FROM payguard.evidence WHERE gateway_reference = '$order' AND verdict = 'parked'");
	session_dies('parked_retried', $who, $shop->order_sql($order));
	is($shop->status($order), 'paid', "parked_retried, $who: the waiting fact pays the order");
	is($shop->claim($order), 'f|already_paid|paid|1', "parked_retried, $who: nothing is charged");
	ends_right("parked_retried, $who");
}

# --- what was acknowledged

my $answers = decode_json(HTTP::Tiny->new->get($receiver->url('/_receiver/summary'))->{content});
cmp_ok($answers->{http_statuses}{200}, '>=', 14, 'callbacks were acknowledged');
cmp_ok($shop->sql("SELECT sum(deliveries) FROM payguard.evidence WHERE source = 'callback'"),
	'>=', $answers->{http_statuses}{200}, 'and every one of them is there');
is($shop->summary->{orders_charged_twice_ever}, 0, 'none was charged twice');

done_testing();
