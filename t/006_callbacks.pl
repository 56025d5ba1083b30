
# Callbacks through a real application server: duplicated, delayed, shuffled, lost, early, badly signed, and while the database is
# away. The end state is the gateway's, each business event happens once, and a callback is acknowledged only once it is stored.

use strict;
use warnings;

use HTTP::Tiny;
use Payguard;
use Payguard::Shop;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

my $sandbox = Payguard->sandbox(args => [ '--seed', 3, '--callback-backoff', 100, '--callback-timeout', 3000 ]);
my $node    = Payguard->new_node('main', databases => 'postgres');
Payguard->create_gateway($node, 'postgres', $sandbox,
	options => { total_timeout => '10s', query_schedule => '500ms,1s,1s,1s,1s,1s' });
my $receiver = Payguard->receiver($node, 'postgres');
my $shop     = Payguard::Shop->new($node, 'postgres', $sandbox);

sub callbacks_are_out
{
	foreach (1 .. 400)
	{
		return 1 if $shop->summary->{callbacks_pending} == 0;
		usleep(50_000);
	}
	return 0;
}

sub received
{
	return JSON::PP::decode_json(HTTP::Tiny->new->get($receiver->url('/_receiver/summary'))->{content});
}

$shop->post('/_sandbox/config', { callback_url => $receiver->url('/callbacks/shop') });

# --- before the answer

$shop->plan('EARLY-1', 'slow', ms => 1500);
$shop->pay('EARLY-1');
$shop->wait_for('EARLY-1', 'paid', 'a callback makes the order paid');
is($shop->evidence('EARLY-1'), 'callback:paid', 'while the worker still waits for the answer');
ok($shop->wait_until("SELECT count(*) = 2 FROM payguard.evidence WHERE gateway_reference = 'EARLY-1'"), 'the answer comes');
is($shop->evidence('EARLY-1', "concat_ws(':', e.source, e.verdict)"), 'callback:applied answer:duplicate',
	'and is a duplicate');
is($shop->sql("SELECT count(*) FROM payguard.payments WHERE order_id = (SELECT id FROM payguard.orders WHERE reference = 'EARLY-1')"),
	1, 'one payment');
is($shop->sql("SELECT string_agg(type, ' ') FROM payguard.events WHERE aggregateid = 'EARLY-1'"), 'order.paid', 'one event');
is($shop->sql("SELECT count(*) FROM payguard.outbox WHERE order_id = (SELECT id FROM payguard.orders WHERE reference = 'EARLY-1')"),
	0, 'nothing is left to do');

# --- the same again, under the old id and a new one

callbacks_are_out();
$shop->post('/_sandbox/callbacks/resend', { reference => 'EARLY-1' });
$shop->post('/_sandbox/callbacks/resend', { reference => 'EARLY-1', new_id => JSON::PP::true() });
ok(callbacks_are_out(), 'both are acknowledged');
is($shop->evidence('EARLY-1', "concat_ws(':', e.source, e.verdict, e.deliveries)"),
	'callback:applied:2 answer:duplicate:1 callback:duplicate:1',
	'the same id only counts, a new id is a duplicate');
is($shop->sql("SELECT count(*) FROM payguard.events WHERE aggregateid = 'EARLY-1'"), 1, 'still one event');

# --- out of order: reversed and reinstated, late closed

$shop->pay('MOVED-1');
$shop->wait_for('MOVED-1', 'paid');
$shop->post('/_sandbox/charges/MOVED-1/status', { status => 'reversed' });
$shop->wait_for('MOVED-1', 'reversed');
$shop->post('/_sandbox/charges/MOVED-1/status', { status => 'reinstated' });
$shop->wait_for('MOVED-1', 'paid');
$shop->post('/_sandbox/callbacks/resend', { reference => 'MOVED-1', new_id => JSON::PP::true() });
callbacks_are_out();
is($shop->status('MOVED-1'), 'paid', 'reversed and reinstated');

# --- wrong signatures

my $body  = '{"type":"charge.failed","timestamp":"2026-11-29T00:00:00Z","data":{"id":"ch_x","reference":"MOVED-1","status":"failed"}}';
my $count = $shop->sql('SELECT count(*) FROM payguard.evidence');
my $post  = sub {
	my (%headers) = @_;
	return HTTP::Tiny->new->post($receiver->url('/callbacks/shop'), { content => $body, headers => \%headers })->{status};
};
my %signed = ('webhook-id' => 'msg_1', 'webhook-timestamp' => time);
is($post->(%signed, 'webhook-signature' => 'v1,' . 'A' x 43 . '='), 400, 'a wrong signature is refused');
is($post->(%signed), 400, 'none too');
is($shop->sql('SELECT count(*) FROM payguard.evidence'), $count, 'nothing is stored');
is($shop->status('MOVED-1'), 'paid', 'and nothing changed');

# --- acknowledged only once it is stored

$shop->post('/_sandbox/config', { callback_url => '' });
$shop->pay('STORED-1', payment => { card => 'pending' });
ok($shop->wait_until("SELECT state = 'pending' FROM payguard.attempts WHERE gateway_reference = 'STORED-1'"), 'pending');
callbacks_are_out();
my $session = $node->background_psql('postgres');
$session->query("BEGIN; SELECT id FROM payguard.orders WHERE reference = 'STORED-1' FOR UPDATE");
$shop->post('/_sandbox/config', { callback_url => $receiver->url('/callbacks/shop') });
$shop->post('/_sandbox/charges/STORED-1/status', { status => 'paid' });
ok($shop->wait_until("SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%apply_callback%'"),
	'its callback waits for the order');
is($shop->summary->{callbacks_pending}, 1, 'unacknowledged');
$session->query('COMMIT');
$session->quit;
$shop->wait_for('STORED-1', 'paid');
ok(callbacks_are_out(), 'then it is acknowledged');

# The server dies with a callback in hand: it comes again.
$shop->post('/_sandbox/config', { callback_url => '' });
$shop->pay('STORED-2', payment => { card => 'pending' });
ok($shop->wait_until("SELECT state = 'pending' FROM payguard.attempts WHERE gateway_reference = 'STORED-2'"), 'pending');
$shop->sql('ALTER SERVER shop OPTIONS (SET query_schedule $$10s,1min$$)');
$session = $node->background_psql('postgres');
$session->query("BEGIN; SELECT id FROM payguard.orders WHERE reference = 'STORED-2' FOR UPDATE");
$shop->post('/_sandbox/config', { callback_url => $receiver->url('/callbacks/shop') });
$shop->post('/_sandbox/charges/STORED-2/status', { status => 'paid' });
ok($shop->wait_until("SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%apply_callback%'"),
	'its callback waits for the order');
$node->stop('immediate');
eval { $session->quit };
usleep(300_000);
is($shop->summary->{callbacks_pending}, 1, 'a callback that met no database is not acknowledged');
$node->start;
$shop->wait_for('STORED-2', 'paid', 'it comes again and is booked');
ok(callbacks_are_out(), 'and acknowledged');
like($shop->evidence('STORED-2'), qr/callback:paid/, 'as a callback');
cmp_ok((received()->{verdicts}{no_connection} // 0) + (received()->{verdicts}{database_error} // 0), '>=', 1, 'the receiver had no database meanwhile');
$shop->sql('ALTER SERVER shop OPTIONS (SET query_schedule $$500ms,1s,1s,1s,1s,1s$$)');

# --- many, with everything that can go wrong, and a restart of the database in the middle

$shop->post('/_sandbox/config',
	{
		callback_delay     => 50,
		callback_shuffle   => 600,
		callback_duplicate => 0.3,
		callback_again     => 0.3,
		callback_lost      => 0.2
	});
$shop->post('/_sandbox/faults',
	{ rates => { charge_then_fin => 0.15, charge_then_500 => 0.15, declined => 0.1, pending_then_paid => 0.2, pending_then_failed => 0.1 } });
$shop->sql("SELECT payguard.create_order(7, 'EUR', 'shop', 'STORM-' || lpad(n::text, 4, '0')) FROM generate_series(1, 120) n");
$shop->sql("SELECT payguard.claim_order('STORM-' || lpad(n::text, 4, '0'), 'storm ' || n) FROM generate_series(1, 120) n");
usleep(300_000);
$node->restart;
ok($shop->wait_until("SELECT count(*) = 0 FROM payguard.orders WHERE reference LIKE 'STORM-%' AND status NOT IN ('paid', 'failed')"),
	'all 120 orders are decided');
ok(callbacks_are_out(), 'all callbacks are acknowledged');
is($shop->summary->{callbacks_failed}, 0, 'none was given up');
my $orders  = HTTP::Tiny->new->get($sandbox->control_url('/_sandbox/orders.csv'))->{content};
my %charged = map { (split /,/)[ 0, 3 ] } grep { /^STORM/ } split /\n/, $orders;
my %paid    = map { split /\|/ } split /\n/,
  $shop->sql("SELECT reference, (status = 'paid')::int FROM payguard.orders WHERE reference LIKE 'STORM-%'");
is(join(' ', grep { ($charged{$_} // 0) != $paid{$_} } sort keys %paid), '', 'paid here means charged there, and nothing else does');
is($shop->sql("SELECT count(*) FROM (SELECT FROM payguard.events WHERE aggregateid LIKE 'STORM-%' AND type = 'order.paid'"
		  . " GROUP BY aggregateid HAVING count(*) > 1) e"), 0, 'no order became paid twice');
is($shop->sql("SELECT count(DISTINCT aggregateid) = (SELECT count(*) FROM payguard.orders WHERE reference LIKE 'STORM-%' AND status = 'paid')"
		  . " FROM payguard.events WHERE aggregateid LIKE 'STORM-%' AND type = 'order.paid'"), 't', 'and each paid one did');
ok($shop->sql("SELECT sum(deliveries) FROM payguard.evidence WHERE source = 'callback'") > 120, 'there were many callbacks');
is($shop->sql("SELECT count(*) FROM payguard.evidence WHERE verdict IN ('parked', 'unreadable', 'surplus', 'mismatch')"),
	0, 'each was understood');
is($shop->summary->{orders_charged_twice_ever}, 0, 'the gateway charged no order twice');
$shop->is_healthy;

done_testing();
