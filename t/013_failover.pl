
# Failover to an asynchronous standby that lacks the primary's last WAL, with orders in every stage at that moment. What was lost is
# found out by asking the gateway, claims that are made again have the same reference and key, and nothing is charged twice. A gateway
# that cannot be asked is charged under the same key while it remembers that, and else waits for adopt(). Point-in-time recovery and a
# physical copy under another label, too.

use strict;
use warnings;

use HTTP::Tiny;
use JSON::PP qw(decode_json encode_json);
use Payguard;
use Payguard::Shop;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

my $api_key  = 'sk_test_0123456789';
my $sandbox  = Payguard->sandbox;
my $mock     = Payguard->stripe_mock;
my $primary  = Payguard->new_node('primary', databases => 'postgres', init => { allows_streaming => 1 });
my %times    = (total_timeout => '2s', connect_timeout => '1s', query_schedule => '200ms,300ms,500ms,1s,1s,1s,1s,1s');
my $shop     = Payguard::Shop->new($primary, 'postgres', $sandbox);
Payguard->create_gateway($primary, 'postgres', $sandbox, options => \%times);
Payguard->create_gateway($primary, 'postgres', $mock,
	name    => 'stripe',
	adapter => 'stripe_charges',
	api_key => $api_key,
	options => { %times, mode => 'test' });

sub dispatch
{
	my ($node, $value) = @_;

	$node->safe_psql('postgres', "ALTER SYSTEM SET payguard.dispatch = $value");
	$node->safe_psql('postgres', 'SELECT pg_reload_conf()');
	$node->poll_query_until('postgres', "SELECT current_setting('payguard.dispatch') = '$value'");
	return;
}

# References and keys of an order's attempts.
sub keys_of
{
	my ($of, $reference) = @_;
	return $of->sql("SELECT string_agg(gateway_reference || ' ' || idempotency_key, ', ' ORDER BY no) FROM payguard.attempts"
		  . " JOIN payguard.orders o ON o.id = order_id WHERE reference = '$reference'");
}

# An application's claim: claimed, verdict, status, attempt, and whether a token came with it.
sub claim_outside
{
	my ($of, $reference, $key, %param) = @_;
	my $lease = $param{lease} // '1 h';
	my ($claimed, $verdict, $status, $no, $token, $gateway_reference, $idempotency_key) = split /\|/, $of->sql(
		"SELECT claimed, verdict, status, attempt_no, lease_token, gateway_reference, idempotency_key"
		  . " FROM payguard.claim_order('$reference', '$key', call_by => 'application', lease => '$lease')"), -1;
	return { text => "$claimed|$verdict|$status|$no", token => $token, reference => $gateway_reference, key => $idempotency_key };
}

# What an application sends with its claim; the gateway's id.
sub charge_outside
{
	my ($claim, %payment) = @_;
	my $response = HTTP::Tiny->new->post(
		$sandbox->url('/charges'),
		{
			content => encode_json({ reference => $claim->{reference}, amount => 39900, currency => 'CNY', payment => \%payment }),
			headers => {
				'Authorization'   => "Bearer $Payguard::API_KEY",
				'Idempotency-Key' => $claim->{key},
				'Content-Type'    => 'application/json'
			}
		});
	return decode_json($response->{content})->{id};
}

# Charges that Stripe's mock has for a reference.
sub stripe_charged
{
	my ($reference) = @_;
	my $list = decode_json(HTTP::Tiny->new->get($mock->url('/v1/charges?limit=100'), { headers => { Authorization => "Bearer $api_key" } })->{content});
	return scalar grep { $_->{metadata}{order_id} eq $reference && $_->{status} eq 'succeeded' } @{ $list->{data} };
}

sub stripe
{
	return (gateway => 'stripe', amount => '25.00', currency => 'USD', payment => { source => 'tok_visa' }, @_);
}

# ---------------------------------------------------------------- before: what the standby gets to know

$primary->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->start;

# The worker's claims of the generic gateway, applications' claims, and Stripe, which cannot be asked by reference.
my @worker_orders = qw(MADE-ONLY MADE-CLAIMED MADE-CHARGED MADE-DECLINED MADE-TWICE MADE-PENDING MADE-LATER);
my @outside_orders = qw(APP-PAID APP-UNUSED APP-DECLINED APP-TWICE APP-CALLBACK);
my @stripe_orders = qw(CARD-CHARGED CARD-UNUSED CARD-DOWN CARD-OLD CARD-OUTSIDE CARD-OUTSIDE-OLD);
$shop->order($_) foreach @worker_orders, @outside_orders;
$shop->order($_, stripe()) foreach @stripe_orders;
# Older than a key lives. The guard refuses that, so it is switched off for it.
$shop->sql("BEGIN; ALTER TABLE payguard.orders DISABLE TRIGGER zz_payguard_guard;"
	  . " UPDATE payguard.orders SET created_at = created_at - interval '25 hours' WHERE reference IN ('CARD-OLD', 'CARD-OUTSIDE-OLD', 'MADE-ONLY');"
	  . " ALTER TABLE payguard.orders ENABLE ALWAYS TRIGGER zz_payguard_guard; COMMIT");

$shop->pay('PAID-01');
$shop->wait_for('PAID-01', 'paid');
$shop->pay('FAILED-1', payment => { card => 'declined' });
$shop->wait_for('FAILED-1', 'failed');
$shop->pay('PENDING-1', payment => { card => 'pending' });
ok($shop->wait_until("SELECT state = 'pending' FROM payguard.attempts WHERE gateway_reference = 'PENDING-1'"), 'a pending charge');
$shop->plan('HANGING-1', 'charge_then_silence', ms => 60000);
$shop->pay('HANGING-1');
ok($shop->wait_until("SELECT state = 'sending' FROM payguard.attempts WHERE gateway_reference = 'HANGING-1'"), 'a charge under way');
my %outside;
$shop->order($_) foreach qw(OUTSIDE-1 OUTSIDE-2);
$outside{1} = claim_outside($shop, 'OUTSIDE-1', 'outside 1');
$outside{2} = claim_outside($shop, 'OUTSIDE-2', 'outside 2', lease => '2 s');

# Claimed, and never to be sent before the standby has it.
dispatch($primary, 'off');
$primary->wait_for_log(qr/sends nothing while payguard.dispatch is off/);
$shop->pay($_) foreach qw(CLAIMED-CHARGED CLAIMED-UNSENT CLAIMED-DECLINED);
# A customer's purchase that was replaced by another order, which is claimed.
$shop->sql("SELECT payguard.create_order(399, 'CNY', 'shop', 'ONCE-OLD', 'alice', 'seat', true)");
$shop->sql("SELECT payguard.create_order(399, 'CNY', 'shop', 'ONCE-NEW', 'alice', 'seat', true, replaces => 'ONCE-OLD')");
$shop->sql($shop->claim_sql('ONCE-NEW'));

is($standby->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'payguard%'"),
	0, 'the standby starts neither launcher nor worker');
$primary->wait_for_catchup($standby, 'replay', $primary->lsn('flush'));
is($standby->safe_psql('postgres', "SELECT count(*) > 5 FROM payguard.outbox"), 't', 'although it has calls that are due');

# ---------------------------------------------------------------- the standby is cut off; what it misses

$standby->adjust_conf('postgresql.conf', 'primary_conninfo', "''");
$standby->reload;
$primary->poll_query_until('postgres', 'SELECT count(*) = 0 FROM pg_stat_replication');
$shop->plan($_, 'declined', times => 1) foreach qw(CLAIMED-DECLINED);
# The worker skips an order that somebody has locked.
my $holder = $primary->background_psql('postgres');
$holder->query("BEGIN; SELECT id FROM payguard.orders WHERE reference = 'CLAIMED-UNSENT' FOR UPDATE");
dispatch($primary, 'on');
$shop->claim($_) foreach qw(MADE-CLAIMED MADE-CHARGED);
$shop->wait_for($_, 'paid') foreach qw(CLAIMED-CHARGED MADE-CHARGED MADE-CLAIMED ONCE-NEW);
$shop->wait_for('CLAIMED-DECLINED', 'failed');
$shop->claim('CLAIMED-DECLINED', key => 'CLAIMED-DECLINED-2', payment => { card => 'ok' });
$shop->wait_for('CLAIMED-DECLINED', 'paid');
$shop->claim('MADE-DECLINED', payment => { card => 'declined' });
$shop->wait_for('MADE-DECLINED', 'failed');
$shop->claim('MADE-TWICE', payment => { card => 'declined' });
$shop->wait_for('MADE-TWICE', 'failed');
$shop->claim('MADE-TWICE', key => 'MADE-TWICE-2');
$shop->wait_for('MADE-TWICE', 'paid');
$shop->claim('FAILED-1', key => 'FAILED-1-2');
$shop->wait_for('FAILED-1', 'paid');
$shop->claim('MADE-PENDING', payment => { card => 'pending' });
ok($shop->wait_until("SELECT state = 'pending' FROM payguard.attempts WHERE gateway_reference = 'MADE-PENDING'"), 'one more that is pending');

# Applications that claimed, were told so, and charged, or did not come to it.
$outside{$_} = claim_outside($shop, $_, "key of $_") foreach @outside_orders;
is($outside{'APP-PAID'}{text}, 't|claimed|processing|1', 'a claim that an application was told of');
my $paid_outside = charge_outside($outside{'APP-PAID'});
charge_outside($outside{'APP-CALLBACK'});
foreach my $reference (qw(APP-DECLINED APP-TWICE))
{
	charge_outside($outside{$reference}, card => 'declined');
	$shop->sql("SELECT payguard.record_attempt('$outside{$reference}{token}', 'failed')");
}
$outside{'APP-TWICE'} = claim_outside($shop, 'APP-TWICE', 'APP-TWICE-2');
is($outside{'APP-TWICE'}{text}, 't|claimed|processing|2', 'a second attempt');
charge_outside($outside{'APP-TWICE'});

# Orders that were made, and paid, and are lost altogether.
$shop->pay($_) foreach qw(LOST-PAID LOST-CALLBACK);
$shop->wait_for($_, 'paid') foreach qw(LOST-PAID LOST-CALLBACK);

$shop->claim($_, stripe()) foreach qw(CARD-CHARGED CARD-OLD);
$shop->wait_for($_, 'paid') foreach qw(CARD-CHARGED CARD-OLD);
is(stripe_charged($_), 1, "$_: charged") foreach qw(CARD-CHARGED CARD-OLD);

my %key = map { $_ => keys_of($shop, $_) } qw(MADE-CLAIMED MADE-CHARGED MADE-TWICE MADE-PENDING APP-PAID APP-TWICE LOST-PAID CARD-CHARGED);
# The last of them: charged, and the primary is gone before it learns that.
$shop->plan('LAST-01', 'charge_then_silence', ms => 60000);
$shop->pay('LAST-01');
foreach (1 .. 100)
{
	last if $shop->charged('LAST-01');
	usleep(50_000);
}
my $lost = $primary->lsn('flush');
$primary->stop('immediate');
eval { $holder->quit };

# ---------------------------------------------------------------- the switch

isnt($standby->safe_psql('postgres', "SELECT pg_last_wal_replay_lsn() < '$lost'"), 'f', 'the standby lacks the last WAL');
my $new = Payguard::Shop->new($standby, 'postgres', $sandbox);
is($new->status($_), 'created', "$_: the standby knows of no claim") foreach qw(MADE-CHARGED APP-PAID CARD-CHARGED);
is($new->status('LOST-PAID'), '', 'and nothing at all of some orders');
is($standby->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'payguard%'"),
	0, 'it still starts neither launcher nor worker');

# The worker stays out at first, so that a callback comes before it.
$standby->append_conf('postgresql.auto.conf', "payguard.dispatch = off\n");
$standby->reload;
$standby->promote;
$new->post('/_sandbox/charges', { reference => 'ONCE-OLD', amount => 39900, currency => 'CNY' });
my $receiver = Payguard->receiver($standby, 'postgres');
$new->post('/_sandbox/config', { callback_url => $receiver->url('/callbacks/shop') });
$new->post('/_sandbox/charges/ONCE-OLD/status', { status => 'paid' });
$new->wait_for('ONCE-OLD', 'paid', 'late money for a replaced order');
is($new->sql("SELECT reference FROM payguard.entitlements JOIN payguard.orders ON id = order_id"), 'ONCE-OLD', 'gives its customer the seat');
$new->post('/_sandbox/charges/LOST-CALLBACK/status', { status => 'paid' });
$new->post('/_sandbox/charges/APP-CALLBACK/status', { status => 'paid' });
$new->wait_for('APP-CALLBACK', 'paid', 'a callback decides about an order whose claim was lost');
ok($new->wait_until("SELECT count(*) = 1 FROM payguard.evidence WHERE gateway_reference = 'LOST-CALLBACK' AND verdict = 'parked'"),
	'and waits for one that was lost');
$new->post('/_sandbox/config', { callback_url => '' });
dispatch($standby, 'on');

# --- what the gateway knows ends at once, by a query and not a charge

foreach my $reference (qw(CLAIMED-CHARGED HANGING-1))
{
	$new->wait_for($reference, 'paid');
	like($new->evidence($reference), qr/^(answer:unknown )?query:paid$/, "$reference: found out by a query");
	is($new->arrivals($reference), 1, "$reference: one charge request, ever");
}
$new->wait_for('CLAIMED-DECLINED', 'failed', 'CLAIMED-DECLINED: its first attempt failed');
is($new->evidence('CLAIMED-DECLINED'), 'query:failed', 'as the gateway says');
is($new->claim('CLAIMED-DECLINED', key => 'CLAIMED-DECLINED-2', payment => { card => 'ok' }), 't|claimed|processing|2', 'it is claimed again');
$new->wait_for('CLAIMED-DECLINED', 'paid');
is($new->evidence('CLAIMED-DECLINED'), 'query:failed query:paid', 'and the second attempt is asked about as well');
is($new->arrivals('CLAIMED-DECLINED'), 2, 'nothing was sent again');
$new->wait_for('ONCE-NEW', 'paid', 'ONCE-NEW: not stopped as unsent, for it was charged');
is($new->evidence('ONCE-NEW', "e.source || ':' || e.result || ':' || e.verdict"), 'answer:not_sent:stale query:paid:applied', 'but asked about');
is($new->sql("SELECT needs_review FROM payguard.order_status('ONCE-NEW')"), 't', 'and a person is told that the seat is taken');

# --- claims that are made again

foreach my $reference (qw(MADE-CLAIMED MADE-CHARGED))
{
	is($new->claim($reference, key => "again $reference"), 't|claimed|processing|1', "$reference: claimed again");
	$new->wait_for($reference, 'paid');
	is(keys_of($new, $reference), $key{$reference}, "$reference: the same reference and key");
	is($new->evidence($reference), 'query:paid', "$reference: found out by a query");
	is($new->arrivals($reference), 1, "$reference: one charge request, ever");
}
$new->claim('MADE-TWICE');
$new->wait_for('MADE-TWICE', 'failed', 'MADE-TWICE: the first attempt failed, as it had');
$new->claim('MADE-TWICE', key => 'MADE-TWICE-2');
$new->wait_for('MADE-TWICE', 'paid', 'MADE-TWICE: and the second paid');
is(keys_of($new, 'MADE-TWICE'), $key{'MADE-TWICE'}, 'the same references and keys');
is($new->evidence('MADE-TWICE'), 'query:failed query:paid', 'found out by queries');
is($new->claim('FAILED-1', key => 'FAILED-1-2'), 't|claimed|processing|2', 'FAILED-1: its second attempt is claimed again');
$new->wait_for('FAILED-1', 'paid');
is($new->evidence('FAILED-1'), 'answer:failed query:paid', 'and asked about');
$new->claim('MADE-PENDING');
ok($new->wait_until("SELECT state = 'pending' FROM payguard.attempts WHERE gateway_reference = 'MADE-PENDING'"), 'MADE-PENDING: pending, as it was');
is(keys_of($new, 'MADE-PENDING'), $key{'MADE-PENDING'}, 'the same reference and key');
$new->post("/_sandbox/charges/$_/status", { status => 'paid' }) foreach qw(PENDING-1 MADE-PENDING);
# The schedule may be used up meanwhile.
$new->sql("UPDATE payguard.outbox SET next_run_at = now() WHERE next_run_at > now() + interval '1 hour' AND next_run_at < 'infinity' AND op = 'query'");
$new->wait_for($_, 'paid', "$_: pending, then paid") foreach qw(PENDING-1 MADE-PENDING);
is($new->arrivals($_), 1, "$_: one charge request, ever") foreach qw(PENDING-1 MADE-PENDING);

# --- those that the gateway does not know take the settle time; the rest of the test goes on meanwhile

is($new->claim('MADE-ONLY'), 't|claimed|processing|1', 'MADE-ONLY: claimed for the first time');
my $unused = claim_outside($new, 'APP-UNUSED', 'again');
is($unused->{text}, 'f|in_progress|processing|1', 'APP-UNUSED: an application must wait');
is($unused->{token}, '', 'it gets no token');

# --- applications

foreach my $reference (qw(APP-PAID APP-DECLINED APP-TWICE))
{
	my $again = claim_outside($new, $reference, "key of $reference");
	is($again->{text}, 'f|in_progress|processing|1', "$reference: in progress until the gateway has told");
}
$new->wait_for('APP-PAID', 'paid');
is(keys_of($new, 'APP-PAID'), $key{'APP-PAID'}, 'APP-PAID: the same reference and key');
is($new->evidence('APP-PAID', "e.source || ':' || e.result"), 'answer:unknown query:paid', 'APP-PAID: found out by a query');
like($new->fails("SELECT payguard.record_attempt('$outside{'APP-PAID'}{token}', 'paid', '$paid_outside', 399, 'CNY')"),
	qr/^PG005/, 'the token of a lost claim is not recognized');
is(claim_outside($new, 'APP-PAID', 'once more')->{text}, 'f|already_paid|paid|1', 'and the order is paid');
$new->wait_for('APP-DECLINED', 'failed');
is(claim_outside($new, 'APP-DECLINED', 'APP-DECLINED-2')->{text}, 'f|in_progress|processing|2',
	'APP-DECLINED: there may have been a second attempt');
$new->wait_for('APP-TWICE', 'failed');
is(claim_outside($new, 'APP-TWICE', 'APP-TWICE-2')->{text}, 'f|in_progress|processing|2', 'APP-TWICE: and here there was');
$new->wait_for('APP-TWICE', 'paid', 'APP-TWICE: which has paid');
is(keys_of($new, 'APP-TWICE'), $key{'APP-TWICE'}, 'APP-TWICE: the same references and keys');

# Claims that the standby has are good there too.
my $id = charge_outside($outside{1});
is($new->sql("SELECT verdict, status FROM payguard.record_attempt('$outside{1}{token}', 'paid', '$id', 399, 'CNY')"), 'applied|paid',
	'an application tells the new primary what came of its claim');
is($new->status('OUTSIDE-2') =~ /^(processing|unknown)$/, 1, 'one that tells nothing is asked about');

# --- orders that were lost altogether, and are made again by the application

$new->order('LOST-CALLBACK');
is($new->status('LOST-CALLBACK'), 'paid', 'LOST-CALLBACK: the callback was kept, so it is paid when it is made');
$new->pay('LOST-PAID');
$new->wait_for('LOST-PAID', 'paid');
is(keys_of($new, 'LOST-PAID'), $key{'LOST-PAID'}, 'LOST-PAID: the same reference and key');
is($new->charged('LOST-PAID'), 1, 'LOST-PAID: the gateway saw one purchase');
$new->pay('LAST-01');
$new->wait_for('LAST-01', 'paid');
is($new->charged('LAST-01'), 1, 'LAST-01: the gateway saw one purchase');

# --- new orders are charged as ever

$new->pay('NEW-01');
$new->wait_for('NEW-01', 'paid');
is($new->evidence('NEW-01'), 'answer:paid', 'an order that is younger than the switch is simply charged');
my $fresh = do { $new->order('NEW-02'); claim_outside($new, 'NEW-02', 'new 2') };
is($fresh->{text}, 't|claimed|processing|1', 'and claimed by applications');
is($new->sql("SELECT verdict FROM payguard.record_attempt('$fresh->{token}', 'not_sent')"), 'applied', 'as ever');

# --- a gateway that cannot be asked by reference, but knows keys

is($new->claim('CARD-CHARGED', stripe(key => 'CARD-CHARGED-2')), 't|claimed|processing|1', 'CARD-CHARGED: claimed again');
$new->wait_for('CARD-CHARGED', 'paid');
is($new->evidence('CARD-CHARGED'), 'answer:paid', 'CARD-CHARGED: the same request under the same key');
is(keys_of($new, 'CARD-CHARGED'), $key{'CARD-CHARGED'}, 'CARD-CHARGED: the same reference and key');
is(stripe_charged('CARD-CHARGED'), 1, 'CARD-CHARGED: charged once');
$new->claim('CARD-UNUSED', stripe());
$new->wait_for('CARD-UNUSED', 'paid');
is(stripe_charged('CARD-UNUSED'), 1, 'CARD-UNUSED: charged');
is(claim_outside($new, 'CARD-OUTSIDE', 'outside card')->{text}, 't|claimed|processing|1', 'CARD-OUTSIDE: an application may call, under the same key');

# Stripe is away for longer than send_window: what a failover may have lost is no proof that nothing was sent.
$new->sql("ALTER SERVER stripe OPTIONS (ADD send_window '1s')");
my $url = $mock->url;
$new->sql("ALTER SERVER stripe OPTIONS (SET base_url 'http://127.0.0.1:" . PostgreSQL::Test::Cluster::get_free_port() . "')");
$new->claim('CARD-DOWN', stripe());
ok($new->wait_until("SELECT count(*) >= 4 FROM payguard.evidence WHERE gateway_reference = 'CARD-DOWN'"), 'CARD-DOWN: tried again and again');
like($new->evidence('CARD-DOWN'), qr/^answer:not_sent( answer:not_sent)+$/, 'CARD-DOWN: nothing left');
is($new->status('CARD-DOWN'), 'processing', 'CARD-DOWN: but that is no failure');
$new->sql("ALTER SERVER stripe OPTIONS (SET base_url '$url')");
$new->sql("UPDATE payguard.outbox SET next_run_at = now() WHERE next_run_at > now() + interval '1 hour' AND next_run_at < 'infinity'");
$new->wait_for('CARD-DOWN', 'paid');
is(stripe_charged('CARD-DOWN'), 1, 'CARD-DOWN: charged once');

# --- and one that has forgotten the key: nobody to ask, so a person decides

is($new->claim('CARD-OLD', stripe(key => 'CARD-OLD-2')), 't|claimed|processing|1', 'CARD-OLD: claimed again, a day after its key may have been used');
ok($new->wait_until("SELECT needs_review FROM payguard.order_status('CARD-OLD')"), 'CARD-OLD: a person is asked for');
is(claim_outside($new, 'CARD-OUTSIDE-OLD', 'outside old')->{text}, 'f|in_progress|created|', 'CARD-OUTSIDE-OLD: an application must wait');
is($new->sql("SELECT reasons FROM payguard.reviews JOIN payguard.orders ON id = order_id WHERE reference = '$_'"),
	'{"waits for adopt() after a failover"}', "$_: and why") foreach qw(CARD-OLD CARD-OUTSIDE-OLD);
usleep(1_500_000);
is($new->evidence('CARD-OLD'), '', 'CARD-OLD: nothing is sent');

# ---------------------------------------------------------------- point-in-time recovery, meanwhile

$standby->backup('later');
$new->pay('PITR-01');
$new->wait_for('PITR-01', 'paid');
my $restored = PostgreSQL::Test::Cluster->new('restored');
$restored->init_from_backup($standby, 'later', standby => 0);
$restored->append_conf('postgresql.conf', "recovery_target = 'immediate'\nrecovery_target_action = 'promote'\nrestore_command = 'false'\n");
$restored->set_recovery_mode;

# A physical copy under another label does not pay, whatever its timeline.
my $labelled = PostgreSQL::Test::Cluster->new('labelled');
$labelled->init_from_backup($standby, 'later', standby => 0);
$labelled->append_conf('postgresql.conf', "payguard.instance = 'staging'\n");
$labelled->start;
my $calls   = "SELECT md5(string_agg(x::text, ' ' ORDER BY x.id)), (SELECT max(id) FROM payguard.evidence) FROM payguard.outbox x";
my $waiting = $labelled->safe_psql('postgres', $calls);
my $staging = Payguard::Shop->new($labelled, 'postgres', $sandbox);
like($staging->sql("SELECT string_agg(DISTINCT rule, ' ' ORDER BY rule) FROM payguard.check()"), qr/not_adopted/, 'a physical copy with another label says that it was not adopted');
like($staging->fails($staging->claim_sql('MADE-LATER')), qr/^PG009/, 'and takes no claim');
$labelled->wait_for_log(qr/has not been adopted/);
pass('its log says so too');
usleep(1_500_000);
is($staging->sql($calls), $waiting, 'and its waiting calls stay as they are');
$labelled->stop;

# ---------------------------------------------------------------- the settle time is over

foreach my $reference (qw(CLAIMED-UNSENT MADE-ONLY))
{
	$new->wait_for($reference, 'paid', "$reference: not found, so it is charged");
	like($new->evidence($reference), qr/^(query:not_found ){2,}answer:paid$/, "$reference: after more than one question");
	is($new->arrivals($reference), 1, "$reference: one charge request");
	is($new->charged($reference), 1, "$reference: charged once");
}
cmp_ok(
	$new->sql("SELECT extract(epoch FROM a.sent_at - i.switched_at) FROM payguard.attempts a, payguard.instances i WHERE gateway_reference = 'CLAIMED-UNSENT'"),
	'>=', 60, 'not before the gateway must have known a lost charge');
$new->wait_for('APP-UNUSED', 'failed', 'APP-UNUSED: the gateway does not know the lost claim');
$unused = claim_outside($new, 'APP-UNUSED', 'third time');
is($unused->{text}, 't|claimed|processing|2', 'APP-UNUSED: so the application may call');
$id = charge_outside($unused);
is($new->sql("SELECT verdict, status FROM payguard.record_attempt('$unused->{token}', 'paid', '$id', 399, 'CNY')"), 'applied|paid', 'and tells');
$new->wait_for('APP-DECLINED', 'failed', 'APP-DECLINED: no second attempt was lost');
is(claim_outside($new, 'APP-DECLINED', 'a third card')->{text}, 't|claimed|processing|3', 'APP-DECLINED: so the application may call');
# Claimed a while after the switch, an old order is asked about without another minute.
is($new->claim('MADE-LATER'), 't|claimed|processing|1', 'MADE-LATER: a late claim of an old order');
my $late = time;
$new->wait_for('MADE-LATER', 'paid');
cmp_ok(time - $late, '<', 30, 'need not wait for the settle time, which counts from the switch');
like($new->evidence('MADE-LATER'), qr/^(query:not_found ){2,}answer:paid$/, 'MADE-LATER: asked about before it is charged');
$new->claim('MADE-DECLINED');
$new->wait_for('MADE-DECLINED', 'failed', 'MADE-DECLINED: declined, as it was');
is($new->arrivals('MADE-DECLINED'), 1, 'MADE-DECLINED: one charge request, ever');

# --- the restored cluster: the original is gone, and it goes on from an older state

$standby->stop;
$restored->start;
ok($restored->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()'), 'recovered to a point in time');
my $past = Payguard::Shop->new($restored, 'postgres', $sandbox);
$past->wait_for('CLAIMED-UNSENT', 'paid', 'CLAIMED-UNSENT: paid since, as the gateway says');
is($past->arrivals('CLAIMED-UNSENT'), 1, 'CLAIMED-UNSENT: nothing was sent again');
$past->wait_for('MADE-ONLY', 'paid', 'MADE-ONLY: paid since, too');
$past->pay('PITR-01');
$past->wait_for('PITR-01', 'paid', 'PITR-01: lost, and made again');
is($past->charged('PITR-01'), 1, 'PITR-01: the gateway saw one purchase');
is($past->sql("SELECT (SELECT timeline FROM payguard.instances) = timeline_id FROM pg_control_checkpoint()"), 't', 'under a timeline of its own');

# --- adopt() lets go what nobody could be asked about

is($past->evidence('CARD-OLD'), '', 'CARD-OLD: still waits');
cmp_ok($past->sql("SELECT payguard.adopt('looked up at the gateway')"), '>=', 1, 'until a person says so');
$past->wait_for('CARD-OLD', 'paid');
is(claim_outside($past, 'CARD-OUTSIDE-OLD', 'after adopt')->{text}, 't|claimed|processing|1', 'CARD-OUTSIDE-OLD: and the application may call');

# ---------------------------------------------------------------- the judge

is($past->summary->{orders_charged_twice_ever}, 0, 'the gateway charged no order twice');
my $orders  = HTTP::Tiny->new->get($sandbox->control_url('/_sandbox/orders.csv'))->{content};
my %charged = map { (split /,/)[ 0, 3 ] } grep { !/^order,/ } split /\n/, $orders;
my %paid    = map { split /\|/ } split /\n/,
  $past->sql("SELECT reference, (status = 'paid')::int FROM payguard.orders WHERE gateway = 'shop'");
# What came after the backup is known to the gateway alone.
my @after = qw(APP-UNUSED MADE-LATER OUTSIDE-2);
my @wrong = grep { my $r = $_; !grep({ $_ eq $r } @after) && ($charged{$_} // 0) != $paid{$_} } sort keys %paid;
is(join(' ', @wrong), '', 'paid here means charged there, and nothing else does');
$past->is_healthy;

done_testing();
