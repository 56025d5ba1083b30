
# Changes of a gateway's options and secrets are picked up by the worker and by sessions without a restart; calls of a gateway that
# cannot be called wait, and the log says so once.

use strict;
use warnings;

use Digest::SHA qw(hmac_sha256);
use MIME::Base64;
use Payguard;
use Payguard::Shop;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

my ($first, $second) = map { Payguard->sandbox(args => [ '--api-key', $_ ]) } 'key-one', 'key-two';
my $node  = Payguard->new_node('main', databases => 'postgres');
my %times = (total_timeout => '2s', query_schedule => '200ms,300ms,500ms,1s,1s,1s,1s');
Payguard->create_gateway($node, 'postgres', $first, api_key => 'key-one', options => \%times);
my $shop   = Payguard::Shop->new($node, 'postgres', $first);
my $new    = Payguard::Shop->new($node, 'postgres', $second);
my $worker = $shop->sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'payguard worker'");

sub log_count
{
	my ($pattern) = @_;
	my $count = () = slurp_file($node->logfile) =~ /$pattern/g;
	return $count;
}

sub write_secret
{
	my ($file, $secret) = @_;

	# As administrators do it: never half a file.
	unlink "$file.new";
	append_to_file("$file.new", "$secret\n");
	rename "$file.new", $file or die "could not rename: $!\n";
	return;
}

# --- base_url and api_key, in one transaction

$shop->pay('FIRST-01');
$shop->wait_for('FIRST-01', 'paid');
$shop->sql("BEGIN; ALTER SERVER shop OPTIONS (SET base_url '" . $second->url . "');"
	  . " ALTER USER MAPPING FOR PUBLIC SERVER shop OPTIONS (SET api_key 'key-two'); COMMIT;");
$shop->pay('SECOND-1');
$shop->wait_for('SECOND-1', 'paid');
is($shop->charged('SECOND-1') . $new->charged('SECOND-1'), '01', 'the new address and key are used');

# A session that has used the gateway already learns of it as well.
my $session = $node->background_psql('postgres', on_error_stop => 0);
$session->query("SELECT payguard.create_order(1, 'EUR', 'shop', 'SESSION-1'); SELECT payguard.claim_order('SESSION-1', 's1')");
$shop->sql("ALTER SERVER shop OPTIONS (SET adapter 'nothing')");
$session->query("SELECT payguard.create_order(1, 'EUR', NULL, 'SESSION-2')");
$session->query("\\set VERBOSITY verbose\nSELECT payguard.claim_order('SESSION-2', 's2', 'shop')");
like($session->{stderr}, qr/PG004/, 'a session meets the change') or diag($session->{stderr});
$session->{stderr} = '';
$shop->sql("ALTER SERVER shop OPTIONS (SET adapter 'generic')");
like($session->query("SELECT payguard.claim_order('SESSION-2', 's2', 'shop')"), qr/claimed/, 'and its end');
$session->quit;
$shop->wait_for('SESSION-2', 'paid');

# --- total_timeout

$new->plan('SLOW-01', 'slow', ms => 1500);
$shop->sql("ALTER SERVER shop OPTIONS (SET total_timeout '300ms', ADD connect_timeout '300ms')");
$shop->pay('SLOW-01');
$shop->wait_for('SLOW-01', 'paid');
like($shop->evidence('SLOW-01'), qr/^answer:unknown .*query:paid$/, 'a shorter timeout is used at once');
$shop->sql("ALTER SERVER shop OPTIONS (SET total_timeout '2s')");

# --- secrets in files

my $folder  = PostgreSQL::Test::Utils::tempdir();
my $api     = "$folder/api_key";
my $webhook = "$folder/webhook_secret";
write_secret($api, 'key-two');
write_secret($webhook, secret('one'));
$shop->sql("ALTER USER MAPPING FOR PUBLIC SERVER shop OPTIONS (DROP api_key, DROP webhook_secret, ADD api_key_file '$api',"
	  . " ADD webhook_secret_file '$webhook')");
$shop->pay('FILE-01');
$shop->wait_for('FILE-01', 'paid', 'the key is read from its file');
write_secret($api, 'key-three');
$second->stop;
$second = Payguard->sandbox(args => [ '--api-key', 'key-three' ]);
$new    = Payguard::Shop->new($node, 'postgres', $second);
$shop->sql("ALTER SERVER shop OPTIONS (SET base_url '" . $second->url . "')");
$shop->pay('FILE-02');
$shop->wait_for('FILE-02', 'paid', 'and read again when it has changed');
# Only the file changes.
$new->post('/_sandbox/config', { api_key => 'key-four' });
write_secret($api, 'key-four');
usleep(1_200_000);
$shop->pay('FILE-03');
$shop->wait_for('FILE-03', 'paid', 'even if nothing else changes');
is($shop->evidence('FILE-03'), 'answer:paid', 'without a refused call');

# A file that is gone: calls wait, the log says so once; when it is back, they go out.
unlink $api;
$node->wait_for_log(qr/payguard cannot call gateway "shop": could not use secret file/);
like($shop->fails($shop->order_sql('FILE-04') . '; ' . $shop->claim_sql('FILE-04')), qr/^PG004: could not use secret file/,
	'a claim is refused, with the reason');
write_secret($api, 'key-four');
$node->wait_for_log(qr/payguard can call gateway "shop" again/);
$shop->pay('FILE-05');
$shop->wait_for('FILE-05', 'paid');

# --- webhook secrets: rotation

sub secret { return 'whsec_' . encode_base64("secret number $_[0], long enough", ''); }

sub is_valid
{
	my ($secret) = @_;
	my $body = '{"type":"charge.paid","timestamp":"2026-11-29T00:00:00Z","data":{"id":"ch_1","reference":"FILE-05","status":"paid","amount":39900,"currency":"CNY"}}';
	my $at        = $shop->sql('SELECT extract(epoch FROM now())::bigint');
	my $signature = encode_base64(hmac_sha256("m1.$at.$body", decode_base64($secret =~ s/^whsec_//r)), '');
	return $shop->sql("SELECT valid FROM payguard.verify_callback('shop', jsonb_build_object('webhook-id', 'm1', 'webhook-timestamp', '$at',"
		  . " 'webhook-signature', 'v1,$signature'), convert_to('$body', 'UTF8'))");
}
is(join('', map { is_valid(secret($_)) } qw(one two)), 'tf', 'one secret');
write_secret($webhook, secret('one') . ' ' . secret('two'));
is(join('', map { is_valid(secret($_)) } qw(one two three)), 'ttf', 'two, while they rotate');
write_secret($webhook, secret('two'));
is(join('', map { is_valid(secret($_)) } qw(one two)), 'ft', 'only the new one is left');
$shop->sql("ALTER USER MAPPING FOR PUBLIC SERVER shop OPTIONS (DROP webhook_secret_file)");
like($shop->fails("SELECT payguard.apply_callback('shop', '{}', ''::bytea)"), qr/^PG004/, 'without any, callbacks are refused');

# --- no API key

my $told = log_count(qr/payguard cannot call gateway "shop"/);
$shop->sql("ALTER USER MAPPING FOR PUBLIC SERVER shop OPTIONS (DROP api_key_file)");
like($shop->fails($shop->claim_sql('FILE-05', key => 'x') . '; ' . $shop->order_sql('KEYLESS-1') . '; ' . $shop->claim_sql('KEYLESS-1')),
	qr/^PG004/, 'a claim without a key is refused');
$shop->sql("ALTER USER MAPPING FOR PUBLIC SERVER shop OPTIONS (ADD api_key 'key-four')");
$shop->sql("ALTER SYSTEM SET payguard.dispatch = off");
$shop->sql('SELECT pg_reload_conf()');
$node->wait_for_log(qr/sends nothing while payguard.dispatch is off/);
$shop->pay('KEYLESS-2');
$shop->sql("ALTER USER MAPPING FOR PUBLIC SERVER shop OPTIONS (DROP api_key)");
$shop->sql("ALTER SYSTEM RESET payguard.dispatch");
$shop->sql('SELECT pg_reload_conf()');
$node->wait_for_log(qr/payguard cannot call gateway "shop": it has no API key/);
usleep(2_200_000);
is($shop->status('KEYLESS-2'), 'processing', 'a call without a key waits');
is(log_count(qr/payguard cannot call gateway "shop": it has no API key/), 1, 'and the log says so once');
is($new->arrivals('KEYLESS-2'), 0, 'nothing was sent');

# Another gateway is not in its way.
Payguard->create_gateway($node, 'postgres', $first, name => 'other', api_key => 'key-one', options => \%times);
$shop->pay('OTHER-01', gateway => 'other');
$shop->wait_for('OTHER-01', 'paid', 'calls of another gateway go out');

$shop->sql("ALTER USER MAPPING FOR PUBLIC SERVER shop OPTIONS (ADD api_key 'key-four')");
$shop->wait_for('KEYLESS-2', 'paid', 'with a key it goes out');

# --- the gateway is dropped with a call under way, and made again

$new->plan('DROPPED-1', 'slow', ms => 1000);
$new->plan('DROPPED-2', 'charge_then_silence', ms => 60000);
$shop->pay($_) foreach qw(DROPPED-1 DROPPED-2);
ok($shop->wait_until("SELECT count(*) = 2 FROM payguard.outbox WHERE state = 'sending'"), 'two calls are under way');
$shop->sql("ALTER SYSTEM SET payguard.dispatch = off");
$shop->sql('SELECT pg_reload_conf()');
ok($shop->wait_until("SELECT NOT current_setting('payguard.dispatch')::bool"), 'no more');
$shop->pay('WAITING-1');
$shop->sql('DROP SERVER shop CASCADE');
$shop->sql("ALTER SYSTEM RESET payguard.dispatch");
$shop->sql('SELECT pg_reload_conf()');
$shop->wait_for('DROPPED-1', 'paid', 'an answer that comes is booked');
$shop->wait_for('DROPPED-2', 'unknown', 'one that does not come is unknown');
like($shop->fails($shop->order_sql('DROPPED-3') . '; ' . $shop->claim_sql('DROPPED-3')), qr/^PG004|^42704|does not exist/,
	'no claim for a gateway that is gone');
is($shop->sql("SELECT needs_review FROM payguard.order_status('DROPPED-2')"),
	't', 'a person is asked for, since nobody is there to be asked');
$node->wait_for_log(qr/payguard cannot call gateway "shop": there is no such gateway/);
is($shop->status('WAITING-1'), 'processing', 'a call that was not made waits');
Payguard->create_gateway($node, 'postgres', $second, api_key => 'key-four', options => \%times);
$shop->wait_for('WAITING-1', 'paid', 'until the gateway is there again');

is($shop->sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'payguard worker'"), $worker, 'it was one worker all the time');
is($_->summary->{orders_charged_twice_ever}, 0, 'the gateway charged no order twice') foreach $shop, $new;
$shop->is_healthy;

done_testing();
