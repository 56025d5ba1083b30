
# The application calls the gateway itself and tells what came of it. When it says nothing, too late or something that proves
# nothing, or dies, the lease ends and a query decides.

use strict;
use warnings;

use HTTP::Tiny;
use JSON::PP qw(encode_json decode_json);
use Payguard;
use Payguard::Shop;
use PostgreSQL::Test::Utils;
use Test::More;

my $sandbox = Payguard->sandbox;
my $node    = Payguard->new_node('main', databases => 'postgres');
Payguard->create_gateway($node, 'postgres', $sandbox,
	options => { total_timeout => '2s', query_schedule => '200ms,300ms,500ms,500ms,1s,1s,1s,1s,1s' });
my $shop = Payguard::Shop->new($node, 'postgres', $sandbox);

# What an application does first; returns its claim.
sub claim
{
	my ($reference, $lease) = @_;

	$shop->order($reference);
	my ($claimed, $token, $gateway_reference, $key, $live) = split /\|/, $shop->sql(
		"SELECT claimed, lease_token, gateway_reference, idempotency_key, lease_until > clock_timestamp()"
		  . " FROM payguard.claim_order('$reference', 'key of $reference', call_by => 'application', lease => '$lease')");
	is("$claimed $live", 't t', "$reference: claimed, with a lease");
	return { token => $token, reference => $gateway_reference, key => $key };
}

# And next, by its own HTTP client.
sub charge
{
	my ($claim) = @_;
	my $response = HTTP::Tiny->new->post(
		$sandbox->url('/charges'),
		{
			content => encode_json({ reference => $claim->{reference}, amount => 39900, currency => 'CNY', payment => {} }),
			headers => {
				'Authorization'   => "Bearer $Payguard::API_KEY",
				'Idempotency-Key' => $claim->{key},
				'Content-Type'    => 'application/json'
			}
		});
	return decode_json($response->{content})->{id};
}

sub record
{
	my ($claim, $result, $id) = @_;
	my $money = $id ? ", '$id', 399, 'CNY'" : '';
	return $shop->sql("SELECT verdict, status FROM payguard.record_attempt('$claim->{token}', '$result'$money)");
}

# --- told in time

my $claim = claim('TOLD-01', '30 s');
is($shop->sql("SELECT state, call_by FROM payguard.attempts WHERE gateway_reference = 'TOLD-01'"),
	'sending|application', 'the attempt is in the application\'s hands');
like($shop->claim('TOLD-01', key => 'rival'), qr/^f\|in_progress/, 'nobody else gets it');
is(record($claim, 'paid', charge($claim)), 'applied|paid', 'told: paid');
is($shop->evidence('TOLD-01'), 'application:paid', 'nobody else asked');
is($shop->arrivals('TOLD-01'), 1, 'the worker sent nothing');

$claim = claim('TOLD-02', '30 s');
is(record($claim, 'not_sent'), 'applied|failed', 'told in time that nothing was sent: failed');
is($shop->claim('TOLD-02', key => 'again'), 't|claimed|processing|2', 'and it can be claimed again');
$shop->wait_for('TOLD-02', 'paid');

$claim = claim('TOLD-03', '30 s');
charge($claim);
is(record($claim, 'unknown'), 'applied|unknown', 'told that the answer was lost');
$shop->wait_for('TOLD-03', 'paid', 'a query finds it out, before the lease ends');
is($shop->evidence('TOLD-03'), 'application:unknown query:paid', 'by the worker');

# --- never told

$claim = claim('SILENT-1', '500 ms');
charge($claim);
$shop->wait_for('SILENT-1', 'paid', 'charged and never told: found out');
is($shop->evidence('SILENT-1', "concat_ws(':', e.source, e.result, e.code)"), 'answer:unknown:lease_lapsed query:paid',
	'by a query after the lease');
is($shop->sql("SELECT e.received_at >= a.lease_until FROM payguard.evidence e JOIN payguard.attempts a USING (gateway_reference)"
		  . " WHERE gateway_reference = 'SILENT-1' AND e.code = 'lease_lapsed'"),
	't', 'and not before its end');

# Never charged either. The settle time counts from the lease's end; it is moved, since it takes a minute.
claim('SILENT-2', '500 ms');
$shop->wait_for('SILENT-2', 'unknown');
ok($shop->wait_until("SELECT count(*) >= 3 FROM payguard.evidence WHERE gateway_reference = 'SILENT-2'"), 'it is not found');
is($shop->status('SILENT-2'), 'unknown', 'which proves nothing yet');
is($shop->claim('SILENT-2', key => 'rival') =~ /^f\|in_progress\|unknown/, 1, 'a lapsed lease lets no other charge through');
$shop->sql("UPDATE payguard.attempts SET lease_until = lease_until - interval '2 min', sent_at = sent_at - interval '2 min'"
	  . " WHERE gateway_reference = 'SILENT-2'");
$shop->wait_for('SILENT-2', 'failed', 'not found after the settle time: failed');
is($shop->sql("SELECT code, can_pay FROM payguard.order_status('SILENT-2')"), 'not_found|t', 'and it can be paid');
is($shop->arrivals('SILENT-2'), 0, 'payguard sent nothing in the application\'s place');

# --- told too late

$claim = claim('LATE-01', '300 ms');
my $id = charge($claim);
$shop->plan('LATE-01', 'query.error_500', times => 1000);
$shop->wait_for('LATE-01', 'unknown');
is(record($claim, 'not_sent'), 'fenced|unknown', 'too late: not_sent proves nothing');
is(record($claim, 'unknown'), 'fenced|unknown', 'nor does unknown');
is(record($claim, 'paid', $id), 'applied|paid', 'paid is a fact at any time');
is($shop->sql("SELECT count(*) FROM payguard.payments WHERE provider_id = '$id' AND counted"), 1, 'and is counted');

$claim = claim('LATE-02', '300 ms');
$id    = charge($claim);
$shop->wait_for('LATE-02', 'paid');
is(record($claim, 'paid', $id), 'duplicate|paid', 'told after the query: a duplicate');
is(record($claim, 'failed'), 'stale|paid', 'a failure after the query: stale');
is($shop->status('LATE-02'), 'paid', 'and changes nothing');

# --- renewed

$claim = claim('RENEWED-1', '1 s');
my $until = $shop->sql("SELECT payguard.renew_claim('$claim->{token}', '30 s') > clock_timestamp() + interval '25 s'");
is($until, 't', 'a live lease is renewed');
# The worker had planned to look at the old lease's end; wait until it has.
ok($shop->wait_until("SELECT clock_timestamp() > created_at + interval '2 s' FROM payguard.attempts WHERE gateway_reference = 'RENEWED-1'"),
	'the old lease would have ended');
is($shop->status('RENEWED-1'), 'processing', 'the order is still the application\'s');
is($shop->evidence('RENEWED-1'), '', 'nobody asked');
is(record($claim, 'not_sent'), 'applied|failed', 'its word still counts');

$claim = claim('RENEWED-2', '300 ms');
$shop->wait_for('RENEWED-2', 'unknown');
like($shop->fails("SELECT payguard.renew_claim('$claim->{token}', '30 s')"), qr/^PG005/, 'a lapsed lease is not renewed');
like($shop->fails("SELECT payguard.record_attempt('l1_1_1_0123456789abcdef', 'paid', 'x', 399, 'CNY')"), qr/^PG005/,
	'nor is another token good for anything');

# --- the application dies

$shop->order('KILLED-1');
my $session = $node->background_psql('postgres', on_error_stop => 0);
my $pid     = $session->query('SELECT pg_backend_pid()');
my $row     = $session->query("SELECT gateway_reference || '|' || idempotency_key FROM payguard.claim_order('KILLED-1', 'killed 1', call_by => 'application', lease => '1 s')");
my ($gateway_reference, $key) = split /\|/, $row;
charge({ reference => $gateway_reference, key => $key });
$shop->sql("SELECT pg_terminate_backend($pid)");
eval { $session->quit };
$shop->wait_for('KILLED-1', 'paid', 'it had charged: found out');
is($shop->arrivals('KILLED-1'), 1, 'and charged once');

$shop->order('KILLED-2');
$session = $node->background_psql('postgres', on_error_stop => 0);
$pid     = $session->query('SELECT pg_backend_pid()');
my $first = $session->query("BEGIN; SELECT idempotency_key FROM payguard.claim_order('KILLED-2', 'killed 2', call_by => 'application')");
$shop->sql("SELECT pg_terminate_backend($pid)");
eval { $session->quit };
ok($shop->wait_until("SELECT status = 'created' FROM payguard.orders WHERE reference = 'KILLED-2'"),
	'it had not committed its claim: the order is free');
is($shop->sql("SELECT idempotency_key FROM payguard.claim_order('KILLED-2', 'killed 2 again', call_by => 'application', lease => '30 s')"),
	$first, 'and has the same key for the next');

is($shop->summary->{orders_charged_twice_ever}, 0, 'the gateway charged no order twice');
$shop->is_healthy;

done_testing();
