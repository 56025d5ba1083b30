
# A claim in SQL becomes one charge at the gateway: the worker calls over HTTP, and the ledger and the gateway's own books
# agree on amounts, references and keys. A declined order is charged again under a new reference and a new key.

use strict;
use warnings;

use Digest::SHA qw(sha256_hex);
use JSON::PP qw(decode_json);
use Payguard;
use Payguard::Recorder;
use Payguard::Shop;
use PostgreSQL::Test::Utils;
use Test::More;

# The key is derived as doc and code say: sha256 over parts, each after its length in 8 bytes.
sub derived_key
{
	my ($reference, $attempt) = @_;
	return substr sha256_hex(join '', map { pack('Q>', length) . $_ } 'payguard idempotency key 1', $reference, $attempt), 0, 40;
}

sub header
{
	my ($request, $name) = @_;
	my @values = $request =~ /^\Q$name\E: *([^\r\n]*)\r$/mgi;
	return join '|', @values;
}

my $sandbox  = Payguard->sandbox;
my $recorder = Payguard::Recorder->start($sandbox->port);
my $node     = Payguard->new_node('main', databases => 'postgres');
Payguard->create_gateway($node, 'postgres', $recorder->url, options => { query_schedule => '200ms,1s' });
my $shop = Payguard::Shop->new($node, 'postgres', $sandbox);

# --- one order, from the claim to paid

$shop->order('ORDER-001');
is($shop->claim('ORDER-001', payment => { card => 'ok', note => "\x{20ac} \"quoted\"" }),
	't|claimed|processing|1', 'the claim is won');
is($shop->claim('ORDER-001', payment => { card => 'ok', note => "\x{20ac} \"quoted\"" }) =~ /^f\|replayed\|/, 1,
	'the same claim again is a replay');
like($shop->claim('ORDER-001', key => 'other'), qr/^f\|(in_progress|already_paid)\|/, 'another claim is not won');
$shop->wait_for('ORDER-001', 'paid');
is($shop->claim('ORDER-001', key => 'late'), 'f|already_paid|paid|1', 'a claim after payment is not won');
is($shop->evidence('ORDER-001', "concat_ws(':', e.source, e.result, e.verdict, e.transport->>'http', e.amount, e.currency)")
	  =~ /^answer:paid:applied:.*399(\.00)?:CNY$/,
	1, 'one piece of evidence, the answer') or diag($shop->evidence('ORDER-001', 'e::text'));

my $books = $shop->books('ORDER-001');
is($books->{arrivals}, 1, 'one request arrived');
is($books->{charges}, 1, 'the gateway charged once');
is($shop->sql("SELECT count(*) FROM payguard.payments p JOIN payguard.orders o ON o.id = p.order_id"
		  . " WHERE reference = 'ORDER-001' AND counted AND p.state = 'paid' AND p.amount = 399 AND p.currency = 'CNY'"),
	1, 'one payment is counted');
is($shop->sql("SELECT string_agg(type, ' ' ORDER BY seq) FROM payguard.events WHERE aggregateid = 'ORDER-001'"),
	'order.paid', 'one event');
is($shop->sql("SELECT count(*) FROM payguard.outbox"), 0, 'nothing is left to do');

# --- the request itself

my @requests = $recorder->requests(qr/"ORDER-001"/);
is(scalar @requests, 1, 'one request was sent');
my ($head, $body) = split /\r\n\r\n/, $requests[0], 2;
like($head, qr{^POST /charges HTTP/1\.1\r\n}, 'method and path');
is(header($requests[0], 'Authorization'), "Bearer $Payguard::API_KEY", 'authorization');
is(header($requests[0], 'Idempotency-Key'), derived_key('ORDER-001', 1), 'the idempotency key is the derived one');
like(header($requests[0], 'Content-Type'), qr{^application/json}, 'content type');
is(header($requests[0], 'Expect'), '', 'no Expect');
is_deeply(
	decode_json($body),
	{
		reference => 'ORDER-001',
		amount    => 39900,
		currency  => 'CNY',
		payment   => { card => 'ok', note => "\x{20ac} \"quoted\"" }
	},
	'the body');
unlike($shop->sql("SELECT encode(request, 'escape') FROM payguard.outbox"), qr/Bearer/, 'the secret is in no stored request');

# --- declined, then charged under a new key

$shop->pay('ORDER-002', payment => { card => 'declined' });
$shop->wait_for('ORDER-002', 'failed');
is($shop->sql("SELECT attempt_state, code, can_pay FROM payguard.order_status('ORDER-002')"), 'failed|card_declined|t',
	'the decline is told');
is($shop->charged('ORDER-002'), 0, 'a decline moved no money');
like($shop->claim('ORDER-002', payment => { card => 'declined' }), qr/^f\|replayed\|failed\|1/,
	'the old key does not charge again');
is($shop->claim('ORDER-002', key => 'second', payment => { card => 'ok' }), 't|claimed|processing|2', 'a new key does');
$shop->wait_for('ORDER-002', 'paid');
is($shop->charged('ORDER-002'), 1, 'one charge');
is($shop->arrivals('ORDER-002'), 2, 'two requests');
is($shop->sql("SELECT string_agg(concat_ws(':', no, state, gateway_reference, idempotency_key), ' ' ORDER BY no)"
		  . " FROM payguard.attempts a JOIN payguard.orders o ON o.id = a.order_id WHERE reference = 'ORDER-002'"),
	'1:failed:ORDER-002:' . derived_key('ORDER-002', 1) . ' 2:succeeded:ORDER-002_r2:' . derived_key('ORDER-002', 2),
	'each attempt has its own reference and key');
is(join(' ', sort map { header($_, 'Idempotency-Key') } $recorder->requests(qr/"ORDER-002/)),
	join(' ', sort(derived_key('ORDER-002', 1), derived_key('ORDER-002', 2))),
	'and the gateway saw these keys');

# --- minor units by currency

my @money = ([ 'JPY', '1200', 1200 ], [ 'KWD', '1.234', 1234 ], [ 'USD', '0.01', 1 ], [ 'CNY', '99999999.99', 9999999999 ],
	[ 'TND', '20', 20000 ]);
foreach my $case (@money)
{
	my ($currency, $amount) = @$case;
	$shop->pay("MONEY-$currency", amount => $amount, currency => $currency);
}
foreach my $case (@money)
{
	my ($currency, $amount, $minor) = @$case;
	$shop->wait_for("MONEY-$currency", 'paid');
	is($shop->books("MONEY-$currency")->{references}[0]{charges}[0]{amount}, $minor, "$amount $currency is $minor minor units");
}
like($shop->fails("SELECT payguard.create_order(1.5, 'JPY', 'shop')"), qr/^22023/, 'no fraction of a yen');

# --- many at once: every order once

$shop->sql("SELECT payguard.create_order(10, 'EUR', 'shop', 'MANY-' || lpad(n::text, 4, '0')) FROM generate_series(1, 200) n");
$node->pgbench(
	'--no-vacuum --client=8 --jobs=2 --transactions=1',
	0,
	[qr/processed: 8\/8/],
	[qr/^/],
	'8 sessions claim each of 200 orders',
	{
		'001_claim_all' => "SELECT count(*) FILTER (WHERE (payguard.claim_order(reference, gen_random_uuid()::text)).claimed)"
		  . " FROM payguard.orders WHERE reference LIKE 'MANY-%';\n"
	});
ok($shop->wait_until("SELECT count(*) = 200 FROM payguard.orders WHERE reference LIKE 'MANY-%' AND status = 'paid'"),
	'200 orders, claimed by all of them, are paid');
is($shop->sql("SELECT count(*), count(DISTINCT order_id) FROM payguard.attempts a JOIN payguard.orders o ON o.id = a.order_id"
		  . " WHERE reference LIKE 'MANY-%'"), '200|200', 'with one attempt each');

my $summary = $shop->summary;
is($summary->{orders_charged}, 200 + 2 + scalar @money, 'the gateway charged these orders');
is($summary->{charges}, 200 + 2 + scalar @money, 'once each');
is($summary->{orders_charged_twice_ever}, 0, 'and none twice');
is($summary->{replays}, 0, 'no request was repeated');
$shop->is_healthy;

done_testing();
