
# Whatever becomes of the gateway's answer, the order ends as the gateway's books say, by a status query, and the gateway is
# never asked to charge twice. What did not leave is sent again within send_window, and failed after it.

use strict;
use warnings;

use Payguard;
use Payguard::Recorder;
use Payguard::Shop;
use PostgreSQL::Test::Utils;
use Test::More;

my $sandbox  = Payguard->sandbox;
my $recorder = Payguard::Recorder->start($sandbox->port);
my $node     = Payguard->new_node('main', databases => 'postgres');
my %times    = (total_timeout => '1s', connect_timeout => '1s', send_window => '3s');
my $shop     = Payguard::Shop->new($node, 'postgres', $sandbox);

Payguard->create_gateway($node, 'postgres', $sandbox,
	options => { %times, query_schedule => '200ms,300ms,500ms,500ms,500ms,1s,1s,1s,1s,1s' });
# A schedule that is used up at once.
Payguard->create_gateway($node, 'postgres', $sandbox,
	name    => 'brief',
	options => { %times, query_schedule => '100ms,200ms' });
# The same gateway, with every byte on record.
Payguard->create_gateway($node, 'postgres', $recorder->url,
	name    => 'recorded',
	options => { %times, query_schedule => '200ms,300ms,500ms,500ms,500ms,1s,1s,1s,1s,1s' });
# Nobody listens here.
Payguard->create_gateway($node, 'postgres', 'http://127.0.0.1:' . PostgreSQL::Test::Cluster::get_free_port(),
	name    => 'down',
	options => \%times);

# --- the gateway charged, and its answer was lost or cannot be trusted

my @lost = qw(charge_then_fin charge_then_rst charge_then_silence charge_then_500 charge_then_500_kept charge_then_html
  charge_then_truncated charge_then_unframed charge_then_cut_header charge_then_garbage charge_then_other_reference
  charge_then_wrong_amount);
my %reference;
foreach my $fault (@lost)
{
	my $reference = uc $fault =~ s/charge_then_/LOST-/r =~ tr/_/-/r;
	$reference{$fault} = $reference;
	$shop->plan($reference, $fault);
	$shop->pay($reference);
}
foreach my $fault (@lost)
{
	my $reference = $reference{$fault};
	$shop->wait_for($reference, 'paid', "$fault: the order is paid");
	is( $shop->evidence($reference),
		$fault eq 'charge_then_wrong_amount' ? 'answer:paid query:paid' : 'answer:unknown query:paid',
		"$fault: the answer says nothing, the query decides");
	is($shop->arrivals($reference), 1, "$fault: one charge request arrived");
	is($shop->charged($reference), 1, "$fault: the gateway charged once");
}
is($shop->evidence($reference{charge_then_wrong_amount}, "e.verdict::text"), 'mismatch applied',
	'a wrong amount is a mismatch, the right one is booked');
is($shop->sql("SELECT count(*), bool_and(counted), sum(p.amount) FROM payguard.payments p JOIN payguard.orders o ON o.id = order_id"
		  . " WHERE reference = '$reference{charge_then_wrong_amount}'"),
	'1|t|399.00', 'as one payment with the right amount');
is($shop->sql("SELECT needs_review FROM payguard.order_status('$reference{charge_then_wrong_amount}')"),
	't', 'which a person should look at');
is($shop->sql("SELECT string_agg(reference, ' ') FROM payguard.orders o JOIN payguard.reviews r ON r.order_id = o.id"),
	$reference{charge_then_wrong_amount}, 'and at no other');

# --- late answers

$shop->plan('SLOW-500', 'slow', ms => 500);
$shop->pay('SLOW-500');
$shop->plan('SLOW-2500', 'slow', ms => 2500);
$shop->pay('SLOW-2500');
$shop->wait_for('SLOW-500', 'paid');
is($shop->evidence('SLOW-500'), 'answer:paid', 'an answer within the timeout is waited for');
$shop->wait_for('SLOW-2500', 'paid');
like($shop->evidence('SLOW-2500'), qr/^answer:unknown (query:\w+ )*query:paid$/, 'a later one is asked for');
is($shop->arrivals($_), 1, "$_: one request") foreach qw(SLOW-500 SLOW-2500);

# --- the gateway finds its charge only after a while

$shop->plan('LAGGED-1', 'query_lag', ms => 1500);
$shop->plan('LAGGED-1', 'charge_then_fin');
$shop->pay('LAGGED-1');
$shop->wait_for('LAGGED-1', 'paid');
like($shop->evidence('LAGGED-1'), qr/^answer:unknown (query:not_found )+query:paid$/,
	'not found before the settle time proves nothing');
is($shop->arrivals('LAGGED-1'), 1, 'and nothing is sent again');

# --- pending

$shop->pay('PENDING-1', payment => { card => 'pending_then_paid', after_ms => 700 });
ok($shop->wait_until("SELECT state = 'pending' FROM payguard.attempts WHERE gateway_reference = 'PENDING-1'"),
	'the attempt is pending');
is($shop->status('PENDING-1'), 'processing', 'the order waits');
$shop->wait_for('PENDING-1', 'paid');
like($shop->evidence('PENDING-1'), qr/^answer:pending (query:pending )*query:paid$/, 'it is asked until it is paid');
$shop->pay('PENDING-2', payment => { card => 'pending_then_failed', after_ms => 300 });
$shop->wait_for('PENDING-2', 'failed');
is($shop->charged('PENDING-2'), 0, 'no money moved');

# --- the gateway refuses to work: unknown, and asked when it says

foreach my $fault (qw(error_500 error_503_retry_after rate_limited_429 refuse))
{
	my $reference = uc "NONE-$fault" =~ tr/_/-/r;
	$reference{$fault} = $reference;
	$shop->plan($reference, $fault);
	$shop->pay($reference);
}
foreach my $fault (qw(error_500 error_503_retry_after rate_limited_429 refuse))
{
	my $reference = $reference{$fault};
	ok($shop->wait_until("SELECT count(*) >= 2 FROM payguard.evidence WHERE gateway_reference = '$reference'"),
		"$fault: the gateway was asked");
	like($shop->evidence($reference), qr/^answer:unknown( query:not_found)+$/, "$fault: nothing is known");
	is($shop->status($reference), 'unknown', "$fault: the order is unknown");
	is($shop->charged($reference), 0, "$fault: not charged");
}
foreach my $fault (qw(error_503_retry_after rate_limited_429))
{
	cmp_ok(
		$shop->sql("SELECT extract(epoch FROM max(received_at) FILTER (WHERE n = 2) - max(received_at) FILTER (WHERE n = 1))"
			  . " FROM (SELECT received_at, row_number() OVER (ORDER BY id) AS n FROM payguard.evidence"
			  . " WHERE gateway_reference = '$reference{$fault}') e"),
		'>=', 0.95, "$fault: Retry-After is honoured");
}

# --- an outage: what did not leave is sent again

$shop->post('/_sandbox/outage', { ms => 1200, drop_connections => JSON::PP::true() });
$shop->pay('OUTAGE-1');
$shop->wait_for('OUTAGE-1', 'paid');
like($shop->evidence('OUTAGE-1'), qr/^(answer:not_sent )+answer:paid$/, 'it did not leave, and is sent again');
is($shop->arrivals('OUTAGE-1'), 1, 'one request arrived');
is($shop->evidence('OUTAGE-1', "e.transport->>'prereq'") =~ /^(0 )+1$/, 1, 'as the count of sends says')
  or diag($shop->evidence('OUTAGE-1', 'e.transport::text'));

$shop->pay('GONE-01', gateway => 'down');
$shop->wait_for('GONE-01', 'failed');
like($shop->evidence('GONE-01'), qr/^answer:not_sent( answer:not_sent)+$/, 'it was tried more than once');
is($shop->sql("SELECT code, can_pay FROM payguard.order_status('GONE-01')"), 'not_sent|t',
	'after send_window it has failed and can be paid again');
cmp_ok(
	$shop->sql("SELECT extract(epoch FROM max(e.received_at) - max(o.created_at)) FROM payguard.evidence e JOIN payguard.orders o"
		  . " ON o.id = e.order_id WHERE reference = 'GONE-01'"),
	'>=', 3, 'not before');
is($shop->claim('GONE-01', key => 'again', gateway => 'shop'), 't|claimed|processing|2', 'another gateway may try');
$shop->wait_for('GONE-01', 'paid');

# --- not found, twice, after the settle time: the same bytes again
#
# No server option shortens the settle time of a minute. Instead the time of sending is moved back, once the order is unknown.

$shop->plan('AGAIN-1', 'error_500');
$shop->pay('AGAIN-1', gateway => 'recorded', payment => { card => 'ok', plan => [ 1, 2, { b => 1, a => undef } ] });
$shop->wait_for('AGAIN-1', 'unknown');
ok($shop->wait_until("SELECT count(*) >= 4 FROM payguard.evidence WHERE gateway_reference = 'AGAIN-1'"),
	'the gateway does not find it, three times');
is($shop->arrivals('AGAIN-1'), 1, 'which proves nothing yet');
$shop->sql("UPDATE payguard.attempts SET sent_at = sent_at - interval '2 min' WHERE gateway_reference = 'AGAIN-1'");
$shop->wait_for('AGAIN-1', 'paid');
like($shop->evidence('AGAIN-1'), qr/^answer:unknown (query:not_found ){4,}answer:paid$/, 'the next time it is sent again');
my @requests = $recorder->requests(qr/^POST .*"AGAIN-1"/s);
is(scalar @requests, 2, 'two requests');
is($requests[0], $requests[1], 'which are the same bytes, key and all');
is($shop->charged('AGAIN-1'), 1, 'charged once');

# --- no query is ever answered: unknown for ever, and a person is told

$shop->plan('SILENT-1', 'charge_then_fin');
$shop->plan('SILENT-1', 'query.error_500', times => 1000);
$shop->pay('SILENT-1', gateway => 'brief');
ok($shop->wait_until("SELECT needs_review FROM payguard.order_status('SILENT-1')"), 'a person is asked for');
is($shop->status('SILENT-1'), 'unknown', 'the order stays unknown');
is($shop->sql("SELECT next_run_at > now() + interval '23 hours' FROM payguard.outbox x JOIN payguard.orders o ON o.id = x.order_id"
		  . " WHERE reference = 'SILENT-1' AND op = 'query'"),
	't', 'and is asked about daily');
is($shop->arrivals('SILENT-1'), 1, 'nothing was sent again');

is($shop->summary->{orders_charged_twice_ever}, 0, 'the gateway charged no order twice');
is($shop->summary->{replays}, 0, 'and replayed nothing');
$shop->is_healthy;

done_testing();
