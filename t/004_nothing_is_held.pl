
# While a gateway keeps the worker waiting, the worker holds no transaction, snapshot or lock; claims, callbacks, VACUUM and
# other gateways' calls go on.

use strict;
use warnings;

use Payguard;
use Payguard::Shop;
use PostgreSQL::Test::Utils;
use Test::More;

my $sandbox  = Payguard->sandbox;
my $other    = Payguard->sandbox;
my $node     = Payguard->new_node('main', databases => 'postgres');
my $receiver = Payguard->receiver($node, 'postgres');
my %options  = (total_timeout => '30s', query_schedule => '200ms,500ms,1s');
Payguard->create_gateway($node, 'postgres', $sandbox, options => \%options);
Payguard->create_gateway($node, 'postgres', $other, name => 'other', options => \%options);
my $shop = Payguard::Shop->new($node, 'postgres', $sandbox);

# Both gateways have been met: plans and caches are warm.
$shop->pay('WARM-1');
$shop->pay('WARM-2', gateway => 'other');
$shop->wait_for($_, 'paid') foreach qw(WARM-1 WARM-2);

# --- twenty calls hang

my @hanging = map { sprintf 'HANG-%02d', $_ } 1 .. 20;
foreach my $reference (@hanging)
{
	$shop->plan($reference, 'slow', ms => 6000);
	$shop->pay($reference);
}
ok($shop->wait_until("SELECT count(*) = 20 FROM payguard.outbox WHERE state = 'sending'"), 'twenty calls are under way');
ok($shop->summary->{charge_arrivals} >= 1, 'and have arrived');

my $worker = $shop->sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'payguard worker'");
foreach my $round (1 .. 3)
{
	is($shop->sql("SELECT state, xact_start IS NULL, backend_xid IS NULL, backend_xmin IS NULL"
			  . " FROM pg_stat_activity WHERE pid = $worker"),
		'idle|t|t|t', "round $round: the worker has no transaction and no snapshot");
	is($shop->sql("SELECT string_agg(concat_ws(':', locktype, mode, granted), ' ') FROM pg_locks WHERE pid = $worker"),
		'advisory:ExclusiveLock:t', "round $round: its only lock is the one that keeps a second worker idle");
	$shop->sql("SELECT payguard.create_order(1, 'EUR', 'shop', 'ROUND-$round')");
}

# --- other sessions go on

like($shop->sql("SET lock_timeout = '1s'; " . $shop->claim_sql('HANG-01', key => 'rival')), qr/^f\|in_progress\|processing\|1$/,
	'a claim of the same order is answered');
$shop->sql("SET lock_timeout = '1s'; BEGIN; SELECT FROM payguard.orders WHERE reference = 'HANG-02' FOR UPDATE NOWAIT; COMMIT;");
pass('the order can be locked');

$shop->sql('CREATE TABLE dead AS SELECT n, repeat($$x$$, 100) FROM generate_series(1, 10000) n; DELETE FROM dead;');
$shop->sql('VACUUM dead');
is($shop->sql("SELECT pg_relation_size('dead')"), 0, 'VACUUM removes all dead rows');
$shop->sql('VACUUM payguard.orders, payguard.outbox, payguard.attempts');
pass('VACUUM of the ledger is not kept waiting');

$shop->pay("QUICK-$_", gateway => 'other') foreach 1 .. 10;
$shop->wait_for("QUICK-$_", 'paid', "order $_ of another gateway is paid") foreach 1 .. 10;
is($shop->sql("SELECT count(*) FROM payguard.outbox WHERE state = 'sending' AND gateway = 'shop'"),
	20, 'while all twenty calls still hang');

# --- a callback overtakes the answer

$shop->post('/_sandbox/config', { callback_url => $receiver->url('/callbacks/shop') });
cmp_ok($shop->summary->{charges}, '>=', 20, 'the gateway has charged');
$shop->post('/_sandbox/charges/HANG-03/status', { status => 'paid' });
$shop->wait_for('HANG-03', 'paid', 'a callback is booked while the call hangs');
is($shop->sql("SELECT count(*) FROM payguard.evidence WHERE gateway_reference = 'HANG-03' AND source = 'answer'"),
	0, 'before the answer');

$shop->wait_for($_, 'paid') foreach @hanging;
ok($shop->wait_until("SELECT count(*) = 2 FROM payguard.evidence WHERE gateway_reference = 'HANG-03'"), 'the answer comes');
is($shop->evidence('HANG-03', "concat_ws(':', e.source, e.result, e.verdict)"),
	'callback:paid:applied answer:paid:duplicate', 'and is a duplicate');
is($shop->sql("SELECT count(*) FROM payguard.events WHERE aggregateid = 'HANG-03' AND type = 'order.paid'"), 1, 'paid once');
is($shop->summary->{orders_charged_twice_ever}, 0, 'the gateway charged no order twice');
$shop->is_healthy;

done_testing();
