
# Card numbers that an application, a gateway or a callback hands over, and the secrets of a gateway, are nowhere to be found: not in
# the tables, the server log, pg_stat_activity or any file of the data directory.

use strict;
use warnings;

use File::Find;
use Payguard;
use Payguard::Shop;
use PostgreSQL::Test::Utils;
use Test::More;

# Different numbers, so that a find tells where it came from. All are test numbers that card schemes publish.
my %pan = (
	payment  => '4242424242424242',
	metadata => '5555555555554444',
	details  => '4000056655665556',
	message  => '6011111111111117',
	answer   => '378282246310005',
	callback => '5105105105105100',
	client   => '4012888888881881',
	error    => '3566002020360505',
	bound    => '5200828282828210');
my $cvv     = 'cvv-7391-planted';
my $api_key = 'planted-api-key-2f41c9';
my $secret  = 'whsec_cGxhbnRlZC1zZWNyZXQtNzNjMWQ5ZTI=';

# A gateway that is careless with card numbers: tells them in every field, wherever it can. A CVV is known by the name of its field;
# three digits in a sentence are nobody's to find.
my $careless = Careless->start(\%pan, $cvv);
my $folder   = PostgreSQL::Test::Utils::tempdir();
my %file     = (api => "$folder/api_key", webhook => "$folder/webhook_secret");
append_to_file($file{api},     "$api_key\n");
append_to_file($file{webhook}, "$secret\n");

my $node = Payguard->new_node(
	'main',
	databases => 'postgres',
	conf      => <<'CONF');
log_statement = none
log_min_messages = debug1
log_min_error_statement = debug1
log_min_duration_statement = 0
log_error_verbosity = verbose
# Statements show what was written into them, and parameters unless the server is told not to. This is the advice of
# doc/operations.md; what payguard itself says must be clean in any case.
log_parameter_max_length = 0
log_parameter_max_length_on_error = 0
track_activity_query_size = 16384
payguard.log_calls = on
autovacuum = off
full_page_writes = on
CONF
$node->safe_psql('postgres', <<"SQL");
CREATE SERVER shop FOREIGN DATA WRAPPER payguard OPTIONS (adapter 'generic', base_url '$careless->{url}',
	total_timeout '5s', query_schedule '200ms,300ms,500ms,1s,1s,1s');
CREATE USER MAPPING FOR PUBLIC SERVER shop OPTIONS (api_key_file '$file{api}', webhook_secret_file '$file{webhook}');
SQL
my $shop = Payguard::Shop->new($node, 'postgres', undef);

# --- what an application hands over is refused. Bound as parameters, the way applications do, so that the statement is clean.

my $number = 0;
sub refused
{
	my ($what, $statement, %variables) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my @variables = map { "--define=$_=$variables{$_}" } sort keys %variables;

	$node->pgbench("--no-vacuum --client=1 --transactions=1 --protocol=extended @variables",
		2, [qr/^/], [qr/card data is not accepted|card/], "$what: refused", { '011_refused_' . ++$number => "$statement\n" });
	return;
}

$shop->order('PLAIN-01');
# pgbench takes digits for a number, which it binds in text all the same.
refused('payment', "SELECT payguard.claim_order('PLAIN-01', 'k1', payment => jsonb_build_object('number', :pan::text));",
	pan => $pan{payment});
refused('metadata', "SELECT payguard.create_order(1, 'EUR', 'shop', metadata => jsonb_build_object('note', 'card ' || :pan::text));",
	pan => $pan{metadata});
refused('customer', "SELECT payguard.create_order(1, 'EUR', 'shop', customer => :pan::text);", pan => $pan{bound});
refused('cvv', "SELECT payguard.claim_order('PLAIN-01', 'k2', payment => jsonb_build_object('cvv', :cvv::text));", cvv => $cvv);
my $token = $shop->sql("SELECT lease_token FROM payguard.claim_order('PLAIN-01', 'k3', call_by => 'application')");
refused('details', "SELECT payguard.record_attempt('$token', 'failed', details => jsonb_build_object('pan', :pan::text));",
	pan => $pan{details});
refused('message', "SELECT payguard.record_attempt('$token', 'failed', message => 'declined ' || :pan::text);", pan => $pan{message});

# Written into the statement itself the server would log it; where the refusal can help that, it does.
like($shop->fails("SET log_min_duration_statement = -1; SELECT payguard.create_order(1, 'EUR', 'shop', customer => '4111111111111111')"),
	qr/^PG007/, 'a literal is refused');
unlike(slurp_file($node->logfile), qr/4111111111111111/, 'and its statement is not logged with the error');

# --- what the gateway hands over is masked

$shop->pay("CARELESS-$_") foreach 1 .. 4;
$shop->wait_for('CARELESS-1', 'paid',   'a careless answer: paid');
$shop->wait_for('CARELESS-2', 'failed', 'a careless decline: failed');
$shop->wait_for('CARELESS-4', 'unknown', 'a careless error page: unknown');
ok($shop->wait_until("SELECT state = 'pending' FROM payguard.attempts WHERE gateway_reference = 'CARELESS-3'"),
	'a careless client object: pending');
like($shop->sql("SELECT string_agg(e::text, '') FROM payguard.evidence e WHERE gateway_reference LIKE 'CARELESS-%'"),
	qr/378282\*+0005/, 'the first six and last four digits are kept');

# --- what a callback carries

my $body = '{"type":"charge.paid","timestamp":"2026-11-29T00:00:00Z","data":{"id":"ch_callback","reference":"CARELESS-3","status":"paid",'
  . qq("amount":39900,"currency":"CNY","code":"$pan{callback}","message":"card $pan{callback}","cvv":"$cvv","client":{"pan":"$pan{callback}"}}});
my $at  = $shop->sql('SELECT extract(epoch FROM now())::bigint');
my $raw = unpack 'H*', $body;
my $signature = sign("msg_1.$at.$body");
$node->pgbench('--no-vacuum --client=1 --transactions=1 --protocol=extended', 0, [qr/^/], [qr/^/], 'a careless callback is booked',
	{ '011_callback' => "SELECT payguard.apply_callback('shop', jsonb_build_object('webhook-id', 'msg_1', 'webhook-timestamp', '$at',"
		  . " 'webhook-signature', 'v1,$signature'), decode('$raw', 'hex'));\n" });
$shop->wait_for('CARELESS-3', 'paid');
$shop->fails("SELECT payguard.apply_callback('shop', '{\"webhook-id\": \"x\"}', decode('$raw', 'hex'))");

# --- the search

$shop->sql('CHECKPOINT');
my $activity = $shop->sql("SELECT string_agg(query, E'\\n') FROM pg_stat_activity WHERE pid <> pg_backend_pid()");
my ($dump)   = run_command([ 'pg_dump', $node->connstr('postgres') ]);
my %place    = (
	'the dump'         => $dump,
	'pg_stat_activity' => $activity // '',
	'the server log'   => slurp_file($node->logfile));
find(
	sub {
		return unless -f $_;
		$place{'the data directory'} .= slurp_file($_);
	},
	$node->data_dir);
cmp_ok(length $place{'the data directory'}, '>', 1_000_000, 'the data directory was read');
like($place{'the data directory'}, qr/CARELESS-1/, 'and shows what is in it');

my %needle = ((map { ("card number of $_" => $pan{$_}) } keys %pan), 'CVV' => $cvv, 'api key' => $api_key, 'webhook secret' => $secret,
	'key of the webhook secret' => 'planted-secret-73c1d9e2', 'authorization' => 'Bearer planted');
foreach my $place (sort keys %place)
{
	my @found = grep { index($place{$place}, $needle{$_}) >= 0 } sort keys %needle;
	is(join(', ', @found), '', "nothing in $place")
	  or diag(join "\n", map { my $at = index $place{$place}, $needle{$_}; "$_: " . substr($place{$place}, $at > 200 ? $at - 200 : 0, 300) =~ s/[^[:print:]]/./gr } @found);
}
$shop->is_healthy;

sub sign
{
	my ($text) = @_;
	require Digest::SHA;
	require MIME::Base64;
	return MIME::Base64::encode_base64(Digest::SHA::hmac_sha256($text, MIME::Base64::decode_base64($secret =~ s/whsec_//r)), '');
}

done_testing();

# A gateway in this process's child: answers by the last digit of the reference.
package Careless;

sub start
{
	my ($class, $pan, $cvv) = @_;
	require IO::Socket::INET;
	my $listener = IO::Socket::INET->new(Listen => 16, LocalAddr => '127.0.0.1', LocalPort => 0) or die "could not listen: $!\n";
	my $pid = fork // die "could not fork: $!\n";
	if ($pid == 0)
	{
		my $parent = getppid;
		$SIG{ALRM} = sub { POSIX::_exit(0) if getppid != $parent; alarm 1; };
		$SIG{$_} = 'DEFAULT' foreach qw(HUP INT TERM);
		alarm 1;
		while (1)
		{
			my $client = $listener->accept or next;
			serve($client, $pan, $cvv);
			close $client;
		}
	}
	return bless { pid => $pid, owner => $$, url => 'http://127.0.0.1:' . $listener->sockport }, $class;
}

sub serve
{
	my ($client, $pan, $cvv) = @_;
	my $request = '';

	while ($request !~ /\r\n\r\n/)
	{
		sysread($client, $request, 65536, length $request) or return;
	}
	my ($length) = $request =~ /^Content-Length: (\d+)/mi;
	while ($length && length($request) - index($request, "\r\n\r\n") - 4 < $length)
	{
		sysread($client, $request, 65536, length $request) or return;
	}
	my ($reference) = $request =~ /((?:CARELESS)-\d)/;
	my ($digit) = ($reference // '') =~ /(\d)$/;
	my $number = $pan->{answer};
	my $object = sub {
		my ($status, $more) = @_;
		return qq({"id":"ch_$digit","reference":"$reference","status":"$status","amount":39900,"currency":"CNY",$more"card":{"number":"$number","cvc":"$cvv"}});
	};
	my ($status, $body) =
	    $digit == 1 ? ('200 OK', $object->('paid', qq("code":null,"message":"thank you, $number",)))
	  : $digit == 2 ? ('402 No', $object->('failed', qq("code":"$number","message":"card $number was declined",)))
	  : $digit == 3 ? ('200 OK', $object->('pending', qq("client":{"pan":"$pan->{client}","cvv":"$cvv","list":["$pan->{client}"]},)))
	  : ('500 Error', "<html>$pan->{error} could not be charged</html>");
	print $client "HTTP/1.1 $status\r\nContent-Type: application/json\r\nX-Card: $number\r\nConnection: close\r\nContent-Length: "
	  . length($body) . "\r\n\r\n$body";
	return;
}

sub DESTROY
{
	my ($self) = @_;
	local $?;
	return unless $self->{owner} == $$;
	kill 'KILL', $self->{pid};
	waitpid $self->{pid}, 0;
	return;
}
