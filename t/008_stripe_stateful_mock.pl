
# stripe-stateful-mock, a Stripe that nobody here wrote, as the gateway and the judge: its own list of charges has at most one that
# succeeded for each order, and the outcome is booked right. A stored error that it repeats under the same key is never a failure.

use strict;
use warnings;

use HTTP::Tiny;
use JSON::PP qw(decode_json);
use Payguard;
use Payguard::Shop;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

my $api_key = 'sk_test_0123456789';
my $mock    = Payguard->stripe_mock;
my $node    = Payguard->new_node('main', databases => 'postgres');
my %options = (mode => 'test', total_timeout => '2s', query_schedule => '200ms,300ms,500ms,1s,1s,1s,1s,1s');
Payguard->create_gateway($node, 'postgres', $mock,
	name    => 'stripe',
	adapter => 'stripe_charges',
	api_key => $api_key,
	options => \%options);
Payguard->create_gateway($node, 'postgres', $mock,
	name    => 'stripe_live',
	adapter => 'stripe_charges',
	api_key => $api_key,
	options => { %options, mode => 'live' });
my $shop = Payguard::Shop->new($node, 'postgres', undef, gateway => 'stripe');

# All charges that the mock knows, by the order's reference.
sub charges
{
	my (%charges, $last);

	while (1)
	{
		my $response = HTTP::Tiny->new->get($mock->url('/v1/charges?limit=100' . ($last ? "&starting_after=$last" : '')),
			{ headers => { Authorization => "Bearer $api_key" } });
		$response->{success} or die "$response->{status} $response->{content}\n";
		my $list = decode_json($response->{content});
		push @{ $charges{ $_->{metadata}{order_id} } }, $_ foreach @{ $list->{data} };
		last unless $list->{has_more};
		$last = $list->{data}[-1]{id};
	}
	return \%charges;
}

sub succeeded
{
	my ($reference) = @_;
	return scalar grep { $_->{status} eq 'succeeded' } @{ charges()->{$reference} // [] };
}

sub pay
{
	my ($reference, $token, %param) = @_;
	return $shop->pay($reference, amount => '25.00', currency => 'USD', payment => { source => $token }, %param);
}

# --- a plain charge

pay('VISA-01', 'tok_visa');
$shop->wait_for('VISA-01', 'paid');
my ($charge) = @{ charges()->{'VISA-01'} };
is($charge->{amount}, 2500, 'the amount is in cents');
is($charge->{currency}, 'usd', 'the currency in lower case');
is(succeeded('VISA-01'), 1, 'one charge');
is($shop->sql("SELECT provider_id FROM payguard.payments p JOIN payguard.orders o ON o.id = p.order_id WHERE reference = 'VISA-01'"),
	$charge->{id}, 'and its id is booked');

pay('YEN-001', 'tok_visa', amount => '1200', currency => 'JPY');
$shop->wait_for('YEN-001', 'paid');
is(charges()->{'YEN-001'}[0]{amount}, 1200, 'yen have no cents');

# --- declined, and charged at the second attempt

pay('DECLINED-1', 'tok_chargeDeclined');
$shop->wait_for('DECLINED-1', 'failed');
is($shop->sql("SELECT code FROM payguard.order_status('DECLINED-1')"), 'generic_decline', 'the decline is told');
is(succeeded('DECLINED-1'), 0, 'and nothing was charged');
is($shop->claim('DECLINED-1', key => 'second', payment => { source => 'tok_visa' }), 't|claimed|processing|2', 'a second attempt');
$shop->wait_for('DECLINED-1', 'paid');
is(succeeded('DECLINED-1') + succeeded('DECLINED-1_r2'), 1, 'charges once');

# --- Stripe refuses the request itself

pay('CENT-01', 'tok_visa', amount => '0.10');
$shop->wait_for('CENT-01', 'failed', 'too small an amount is a failure: nothing was charged');
is(succeeded('CENT-01'), 0, 'indeed');

# --- a rate limit is not stored under the key, so the same bytes are sent again

pay('LIMITED-1', 'tok_429|tok_visa|a1');
$shop->wait_for('LIMITED-1', 'paid');
is($shop->evidence('LIMITED-1'), 'answer:unknown answer:paid', 'unknown, then the same request again');
is(succeeded('LIMITED-1'), 1, 'one charge');

# --- an error is stored and repeated: no failure, and no end of asking for a new key

pay('ERROR-01', 'tok_500|tok_visa|b2');
$shop->wait_for('ERROR-01', 'unknown');
ok($shop->wait_until("SELECT needs_review FROM payguard.order_status('ERROR-01')"), 'a person is asked for');
my $evidence = $shop->evidence('ERROR-01');
is($evidence, 'answer:unknown answer:unknown', 'the same request again brings the stored error, which says nothing');
like($shop->claim('ERROR-01', key => 'rival'), qr/^f\|in_progress\|unknown\|1$/, 'no other attempt is let through');
usleep(1_500_000);
is($shop->evidence('ERROR-01'), $evidence, 'it is not sent again and again');
is($shop->status('ERROR-01'), 'unknown', 'the order stays unknown');
is(succeeded('ERROR-01'), 0, 'and the mock has no charge');

# --- Stripe forgets a charge that it answered for

pay('FORGET-1', 'tok_forget');
$shop->wait_for('FORGET-1', 'paid', 'its word counts');
is(succeeded('FORGET-1'), 0, 'though its list does not show it');

# --- the answer is lost: the worker gives up, the mock charges later

$mock->signal('STOP');
pay('STOPPED-1', 'tok_visa');
$shop->wait_for('STOPPED-1', 'unknown', 'no answer came in time');
$mock->signal('CONT');
$shop->wait_for('STOPPED-1', 'paid', 'the same request again tells');
is(succeeded('STOPPED-1'), 1, 'and charged once');
like($shop->evidence('STOPPED-1'), qr/^answer:unknown (answer:unknown )*answer:paid$/, 'by replays of the same key');

# --- a test charge does not pay a live order

pay('LIVE-01', 'tok_visa', gateway => 'stripe_live');
ok($shop->wait_until("SELECT needs_review FROM payguard.order_status('LIVE-01')"), 'a person is asked for');
is($shop->status('LIVE-01'), 'unknown', 'a test charge does not pay a live order');

# --- many sessions, many orders, all at once

$shop->sql("SELECT payguard.create_order(25, 'USD', 'stripe', 'MANY-' || lpad(n::text, 4, '0')) FROM generate_series(1, 150) n");
$node->pgbench(
	'--no-vacuum --client=8 --jobs=2 --transactions=1',
	0,
	[qr/processed: 8\/8/],
	[qr/^/],
	'8 sessions claim each of 150 orders',
	{
		'008_claim_all' => <<'SQL'
SELECT count(*) FILTER (WHERE (payguard.claim_order(reference, gen_random_uuid()::text, payment =>
	jsonb_build_object('source', CASE right(reference, 1) WHEN '3' THEN 'tok_chargeDeclined' WHEN '7' THEN 'tok_429|tok_visa|' || reference
		ELSE 'tok_visa' END))).claimed) FROM payguard.orders WHERE reference LIKE 'MANY-%';
SQL
	});
ok($shop->wait_until("SELECT count(*) = 0 FROM payguard.orders WHERE reference LIKE 'MANY-%' AND status NOT IN ('paid', 'failed')"),
	'all are decided');
my $charges = charges();
my %paid    = map { split /\|/ } split /\n/,
  $shop->sql("SELECT reference, (status = 'paid')::int FROM payguard.orders WHERE reference LIKE 'MANY-%'");
my @wrong = grep {
	my $reference = $_;
	$paid{$reference} != grep { $_->{status} eq 'succeeded' } @{ $charges->{$reference} // [] }
} sort keys %paid;
is(join(' ', @wrong), '', 'paid here means one charge there, failed none');
is(scalar(grep { $_ } values %paid), 135, 'those were paid whose card was good');
my @twice = grep { 1 < grep { $_->{status} eq 'succeeded' } @{ $charges->{$_} } } sort keys %$charges;
is(join(' ', @twice), '', 'no order was charged twice');
$shop->is_healthy;

done_testing();
