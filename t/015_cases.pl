
# Gateways as bug reports know them: every status code, bodies that are odd, incomplete or somebody else's, redirects, compression,
# names that do not resolve, wrong credentials. Whatever the answer to a charge is, the charge was sent once, nothing but proof makes
# the order paid or failed, and the status query finds out the rest.

use strict;
use warnings;

use IO::Compress::Gzip qw(gzip);
use IO::Socket::INET;
use JSON::PP qw(encode_json);
use Payguard;
use Payguard::Shop;
use POSIX ();
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

my $true_id = 'ch_true_';

# The gateway's charge object.
sub charge
{
	my ($reference, %with) = @_;
	my %charge = (id => "$true_id$reference", reference => $reference, status => 'paid', amount => 39900, currency => 'CNY', %with);

	delete @charge{ grep { ref $charge{$_} eq 'CODE' } keys %charge };
	return encode_json(\%charge);
}

sub answer
{
	my ($status, $body, @headers) = @_;
	my $length = length $body;
	return join "\r\n", "HTTP/1.1 $status Whatever", 'Content-Type: application/json', "Content-Length: $length", 'Connection: close', @headers, '', $body;
}

# ---------------------------------------------------------------- the script: what a charge is answered, by reference
#
# Each entry: reference => [answer to the charge, evidence, answers to queries...]. Without its own answers a query is told that the
# order is paid, so that what the charge's answer did not say is known in the end.

my $unknown = 'answer:unknown query:paid';
my (%script, %evidence, %name);

sub on
{
	my ($name, $charge, $evidence, @queries) = @_;
	my $reference = sprintf 'CASE-%03d', 1 + keys %script;

	$script{$reference}   = [ ref $charge ? $charge->($reference) : $charge, map { ref $_ ? $_->($reference) : $_ } @queries ];
	$evidence{$reference} = $evidence;
	$name{$reference}     = $name;
	return $reference;
}

# An answer whose body is a charge object that differs in this.
sub object
{
	my ($status, %with) = @_;
	return sub { answer($status, charge($_[0], %with)) };
}

my $none = sub { };
my $html = '<html><body><h1>Bad Gateway</h1></body></html>';

# --- status codes

on("$_ and paid", object($_), 'answer:paid') foreach 200, 201, 202;
on("$_ and pending", object($_, status => 'pending'), 'answer:pending query:paid') foreach 200, 202;
on('402 and failed', object(402, status => 'failed', code => 'card_declined'), 'answer:failed');
on('200 and failed', object(200, status => 'failed', code => 'card_declined'), 'answer:failed');
on('400 invalid_request', answer(400, '{"error": {"code": "invalid_request"}}'), 'answer:failed');
my @odd = (204, 205, 206, 207, 304, 400 .. 418, 421 .. 426, 428, 429, 431, 451, 499, 500 .. 508, 511, 520 .. 530, 599);
on("$_ without a word", answer($_, ''), $unknown) foreach grep { $_ != 204 && $_ != 304 } @odd;
on("$_ without a body", "HTTP/1.1 $_ Whatever\r\nConnection: close\r\n\r\n", $unknown) foreach 204, 304;
on("$_ as a page", answer($_, $html), $unknown) foreach 200, 202, 402, 403, 404, 500, 502, 503;
on("$_ with paid in it", object($_), $unknown) foreach 300, 400, 401, 403, 404, 409, 410, 422, 429, 500, 502, 503, 504;
on("$_ with failed in it", object($_, status => 'failed'), $unknown) foreach 400, 401, 403, 404, 409, 422, 429, 500, 503;
on('500 with a quoted refusal', answer(500, '{"error": {"code": "invalid_request"}}'), $unknown);

# --- keys and references that are in use: the first request arrived, or is about to

on('409 key_in_use', answer(409, '{"error": {"code": "key_in_use"}}'), $unknown);
on('409 reference_used', answer(409, '{"error": {"code": "reference_used"}}'), $unknown);
my $in_use = on('409 reference_used, and the first was declined', answer(409, '{"error": {"code": "reference_used"}}'), 'answer:unknown query:failed',
	object(200, status => 'failed', code => 'card_declined'));
my $mixed_up = on('422 key_reused', answer(422, '{"error": {"code": "key_reused"}}'), $unknown);
on('an error that calls itself a duplicate', answer(400, '{"error": {"code": "duplicate_transaction"}}'), $unknown);
my $replayed = on('a repeated answer with other money', sub { answer(200, charge($_[0], amount => 39800), 'Idempotent-Replayed: true') }, 'answer:paid query:paid');
on('a repeated answer', sub { answer(200, charge($_[0]), 'Idempotent-Replayed: true') }, 'answer:paid');

# --- redirects are not followed

my $elsewhere = IO::Socket::INET->new(Listen => 8, LocalAddr => '127.0.0.1', LocalPort => 0) or die "could not listen: $!\n";
my $target = 'http://127.0.0.1:' . $elsewhere->sockport . '/charges';
on("$_ to another address", answer($_, '', "Location: $target"), $unknown) foreach 301, 302, 303, 307, 308;
on('302 to itself', answer(302, '', 'Location: /charges'), $unknown);

# --- 200, but not paid

on('an error in a 200', answer(200, '{"error": {"code": "card_declined"}}'), $unknown);
on('success and a warning', answer(200, '{"success": true, "status": "paid", "warning": "held"}'), $unknown);
on('no object', answer(200, $_), $unknown) foreach '', '{}', '[]', 'null', 'true', '"paid"', '17', ' ', '{', '{"status": "paid"', "\xEF\xBB\xBF{}", "\0", "paid";
on('no status', object(200, status => $none), $unknown);
on("status $_", object(200, status => $_), $unknown) foreach 'partially_settled_x', 'PAID', 'Paid', ' paid', 'paid ', '', 'succeeded', 'true';
on('a status that is no text', object(200, status => $_), $unknown) foreach undef, 1, JSON::PP::true, ['paid'], { status => 'paid' };
on('no reference', object(200, reference => $none), $unknown);
on('another reference', object(200, reference => 'OTHER-001'), $unknown);
on('a reference in small letters', sub { answer(200, charge(lc $_[0], id => 'ch_small')) }, $unknown);
on('somebody else\'s decline', object(402, reference => 'OTHER-001', status => 'failed'), $unknown);
on('no id', object(200, id => $none), 'answer:paid query:paid');
on('an id that is no text', object(200, id => $_), 'answer:paid query:paid') foreach undef, ['ch_1'], '';
on('no amount', object(200, amount => $none), 'answer:paid query:paid');
on('no currency', object(200, currency => $none), 'answer:paid query:paid');
on('another id each time', object(200, id => 'ch_first_' . $_), 'answer:paid') foreach 1;
my @mismatch = (
	on('one unit less', object(200, amount => 39899), 'answer:paid query:paid'),
	on('twice as much', object(200, amount => 79800), 'answer:paid query:paid'),
	on('a hundredth', object(200, amount => 399), 'answer:paid query:paid'),
	on('other money', object(200, currency => 'USD'), 'answer:paid query:paid'));
my $twice = on('a member twice', sub { my $body = charge($_[0]); $body =~ s/"amount":39900/"amount":39900,"amount":1/ or die; answer(200, $body) }, $unknown);
on('an id of 3000 characters', object(200, id => 'x' x 3000), 'answer:paid query:paid');

# --- bytes

on('gzip that nobody asked for', sub { gzip(\charge($_[0]), \my $zipped); answer(200, $zipped, 'Content-Encoding: gzip') }, $unknown);
on('half of gzip', sub { gzip(\charge($_[0]), \my $zipped); answer(200, substr($zipped, 0, length($zipped) / 2), 'Content-Encoding: gzip') }, $unknown);
on('more than anybody says', sub { answer(200, charge($_[0], message => 'x' x 100_000)) }, $unknown);
on('headers without an end', sub { answer(200, charge($_[0]), map { "X-Filler-$_: " . 'x' x 1000 } 1 .. 50) }, $unknown);
on('an escaped NUL', sub { my $body = charge($_[0], message => 'NUL'); $body =~ s/NUL/a\\u0000b/; answer(200, $body) }, 'answer:paid');
on('half of a surrogate pair', sub { my $body = charge($_[0], message => 'HALF'); $body =~ s/HALF/a\\ud800b/; answer(200, $body) }, 'answer:paid');
on('no UTF-8', sub { my $body = charge($_[0], message => 'BYTE'); $body =~ s/BYTE/a\xffb/; answer(200, $body) }, $unknown);
on('a byte order mark', sub { answer(200, "\xEF\xBB\xBF" . charge($_[0])) }, 'answer:paid');
on('two answers in one', sub { answer(200, charge($_[0]) . charge($_[0], id => 'ch_second')) }, $unknown);
on('an amount as text', object(200, amount => '39900'), 'answer:paid');
on('an amount with a fraction', sub { my $body = charge($_[0]); $body =~ s/39900/39900.5/; answer(200, $body) }, 'answer:paid query:paid');
on('an amount with an exponent', sub { my $body = charge($_[0]); $body =~ s/39900/399e2/; answer(200, $body) }, 'answer:paid query:paid');
on('an amount without an end', sub { my $body = charge($_[0]); $body =~ s/39900/1e400/; answer(200, $body) }, 'answer:paid query:paid');
on('an older HTTP', sub { my $answer = answer(200, charge($_[0])); $answer =~ s/^HTTP\/1.1/HTTP\/1.0/; $answer }, 'answer:paid');
on('an interim answer first', sub { "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" . answer(200, charge($_[0])) }, 'answer:paid');
on('chunks that end too early', sub { "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n5\r\n{\"id\"" }, $unknown);
on('chunks', sub { my $body = charge($_[0]); sprintf "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", length $body, $body }, 'answer:paid');
on('two lengths', sub { my $answer = answer(200, charge($_[0])); $answer =~ s/\r\nConnection/\r\nContent-Length: 7\r\nConnection/; $answer }, $unknown);

# --- queries that are refused or misunderstood say nothing

on('a query with wrong credentials', answer(500, ''), 'answer:unknown query:unknown query:unknown query:paid', answer(401, ''), answer(403, '{"error": {"code": "forbidden"}}'), object(200));
on('a query of an address that is gone', answer(500, ''), 'answer:unknown query:unknown query:unknown query:unknown query:paid', answer(404, $html), answer(404, '{}'), answer(302, '', "Location: $target"), object(200));
on('a query about somebody else', answer(500, ''), 'answer:unknown query:unknown query:paid', object(200, reference => 'OTHER-001'), object(200));
on('a query that is told not yet', answer(500, ''), 'answer:unknown query:not_found query:not_found query:paid',
	(answer(404, '{"error": {"code": "not_found"}}')) x 2, object(200));
my $contradicted = on('a query with other money', answer(500, ''), 'answer:unknown query:paid', object(200, amount => 1, id => 'ch_other'));

# ---------------------------------------------------------------- the gateway

my $listener = IO::Socket::INET->new(Listen => 256, LocalAddr => '127.0.0.1', LocalPort => 0, ReuseAddr => 1) or die "could not listen: $!\n";
my $record   = PostgreSQL::Test::Utils::tempdir() . '/requests';
append_to_file($record, '');
my $gateway = fork // die "could not fork: $!\n";
if ($gateway == 0)
{
	$SIG{$_} = 'DEFAULT' foreach qw(HUP INT TERM);
	$SIG{PIPE} = 'IGNORE';
	eval { serve(); 1 } or print STDERR $@;
	POSIX::_exit(0);
}
END
{
	if ($gateway)
	{
		local $?;
		kill 'TERM', $gateway;
		waitpid $gateway, 0;
	}
}

# One request for each connection, until the test ends.
sub serve
{
	my $parent = getppid;
	my %asked;

	open my $log, '>>', $record or die "could not record: $!\n";
	$log->autoflush(1);
	while (getppid == $parent)
	{
		my $ready = '';
		vec($ready, fileno($listener), 1) = 1;
		next unless select $ready, undef, undef, 1;
		my $client = $listener->accept or next;
		my ($method, $reference, $key) = read_request($client) or next;
		my $script = $script{$reference};
		my $queries = $script ? @$script - 1 : 0;
		my $answer = $method eq 'POST' ? $script->[0] : do
		{
			my $n = $asked{$reference}++;
			$queries == 0 ? answer(200, charge($reference)) : $script->[ 1 + ($n < $queries ? $n : $queries - 1) ];
		};
		print $log "$method $reference $key\n";
		print $client $answer;
		shutdown $client, 1;
		close $client;
	}
	return;
}

sub read_request
{
	my ($client) = @_;
	my $data = '';

	while ($data !~ /\r\n\r\n/ || ($data =~ /^Content-Length: (\d+)/mi && length($data) < $1 + index($data, "\r\n\r\n") + 4))
	{
		sysread($client, $data, 65536, length $data) or return;
	}
	my ($method) = $data =~ /^(\w+) /;
	my ($reference) = $method eq 'POST' ? $data =~ /"reference": ?"([^"]+)"/ : $data =~ m{^GET /charges/(\S+)};
	my ($key) = $data =~ /^Idempotency-Key: (\S+)/mi;
	return ($method, $reference // '', $key // '');
}

# ---------------------------------------------------------------- the test

my $node = Payguard->new_node('main', databases => 'postgres');
my $shop = Payguard::Shop->new($node, 'postgres', undef);
Payguard->create_gateway($node, 'postgres', 'http://127.0.0.1:' . $listener->sockport,
	options => { total_timeout => '5s', max_in_flight => 8, query_schedule => '200ms,300ms,500ms,1s,1s,1s' });

my @references = sort keys %script;
$shop->sql("SELECT payguard.create_order(399, 'CNY', 'shop', 'CASE-' || lpad(n::text, 3, '0')) FROM generate_series(1, " . @references . ") n");
$shop->sql("SELECT payguard.claim_order('CASE-' || lpad(n::text, 3, '0'), 'case ' || n) FROM generate_series(1, " . @references . ") n");
my $undecided = "FROM payguard.orders WHERE status NOT IN ('paid', 'failed') AND reference <> '$contradicted'";
ok($shop->wait_until("SELECT count(*) = 0 $undecided"), 'every order is decided') or diag($shop->sql("SELECT reference, status $undecided"));
ok($shop->wait_until("SELECT needs_review FROM payguard.order_status('$contradicted')"), 'but one that only a person can decide');
is($shop->status($contradicted), 'unknown', 'which stays unknown');

my %found = map { split /\|/, $_, 3 } split /\n/,
  $shop->sql("SELECT o.reference, string_agg(e.source || ':' || e.result, ' ' ORDER BY e.id) FROM payguard.orders o JOIN payguard.evidence e ON e.order_id = o.id GROUP BY 1");
my %posts;
my %keys;
foreach (split /\n/, slurp_file($record))
{
	my ($method, $reference, $key) = split / /;
	next unless $method eq 'POST';
	$posts{$reference}++;
	$keys{ $key // '' }++;
}
foreach my $reference (@references)
{
	is($found{$reference}, $evidence{$reference}, $name{$reference});
}
is(join(' ', grep { ($posts{$_} // 0) != 1 } @references), '', 'every charge was sent once');
is(scalar(grep { /^[0-9a-f]{40}$/ } keys %keys), scalar @references, 'each under a key of its own, in the header that the adapter names');
is($shop->sql("SELECT string_agg(reference, ' ') FROM payguard.orders o WHERE status = 'paid' AND NOT EXISTS (SELECT FROM payguard.payments p"
		  . " WHERE p.order_id = o.id AND p.counted AND p.amount = 399 AND p.currency = 'CNY' AND (p.provider_id = '$true_id' || o.reference OR p.provider_id LIKE 'ch\\_first\\_%'))"),
	'', 'what is paid was paid under the right id, with the right money');
is($shop->sql("SELECT count(*) FROM payguard.payments p JOIN payguard.orders o ON o.id = p.order_id WHERE p.counted AND o.status <> 'paid'"), 0, 'and nothing else');

# --- redirects

my $ready = '';
vec($ready, fileno($elsewhere), 1) = 1;
is(scalar(select($ready, undef, undef, 0)), 0, 'no redirect was followed: nobody came with a key or a secret');

# --- what a person should look at

foreach ($mixed_up, $twice, @mismatch, $replayed, $contradicted)
{
	is($shop->sql("SELECT needs_review FROM payguard.order_status('$_')"), 't', "$name{$_}: a person is told");
}
is($shop->sql("SELECT string_agg(e.verdict::text, ' ' ORDER BY e.id) FROM payguard.evidence e JOIN payguard.orders o ON o.id = e.order_id WHERE reference = '$_'"),
	'mismatch applied', "$name{$_}: beside the books until the right money is confirmed") foreach @mismatch, $replayed;
is($shop->sql("SELECT count(*) FROM payguard.orders o JOIN payguard.reviews r ON r.order_id = o.id WHERE reference NOT IN ('"
		  . join("', '", $mixed_up, $twice, @mismatch, $replayed, $contradicted) . "')"), 0, 'and at no other')
  or diag($shop->sql("SELECT reference, reasons FROM payguard.orders o JOIN payguard.reviews r ON r.order_id = o.id"));

# --- a declined attempt frees the way for another, under another reference and key

is($shop->claim($in_use, key => "$in_use-again"), 't|claimed|processing|2', 'after the decline that a query told of the order can be paid');
is($shop->sql("SELECT string_agg(gateway_reference, ' ' ORDER BY no), count(DISTINCT idempotency_key) FROM payguard.attempts WHERE gateway_reference LIKE '$in_use%'"),
	"$in_use ${in_use}_r2|2", 'under another reference and key');

# --- what cannot have left

my $stub = IO::Socket::INET->new(Listen => 8, LocalAddr => '127.0.0.1', LocalPort => 0) or die "could not listen: $!\n";
my %nowhere = (
	unresolved => 'https://gateway.invalid',
	plain      => 'https://127.0.0.1:' . $listener->sockport,
	silent     => 'https://127.0.0.1:' . $stub->sockport);
foreach my $where (sort keys %nowhere)
{
	Payguard->create_gateway($node, 'postgres', $nowhere{$where},
		name    => $where,
		options => { connect_timeout => '500ms', total_timeout => '1s', send_window => '2s' });
	$shop->pay(uc "NOWHERE-$where", gateway => $where);
}
foreach my $where (sort keys %nowhere)
{
	my $reference = uc "NOWHERE-$where";
	$shop->wait_for($reference, 'failed', "$where: nothing can have left, so that after send_window the order has failed");
	like($shop->evidence($reference, "e.source || ':' || e.result || ':' || (e.transport->>'prereq')"), qr/^answer:not_sent:0( answer:not_sent:0)+$/, "$where: by the count of sends");
}

$shop->is_healthy;

done_testing();
