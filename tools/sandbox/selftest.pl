# Tests every call, fault and command of payguard-sandbox from outside, over raw sockets (so that a
# reset can be told from an end) and with curl (so that a real client sees what the fault's name says).
use strict;
use warnings;
use Digest::SHA qw(hmac_sha256_base64);
use Errno qw(ECONNRESET ECONNREFUSED EPIPE);
use File::Temp qw(tempdir);
use IO::Select;
use IO::Socket::INET;
use JSON::PP;
use MIME::Base64;
use POSIX qw(WNOHANG strftime);
use Time::HiRes qw(time sleep);

my $program = shift or die "usage: selftest.pl PROGRAM\n";
my $dir = tempdir(CLEANUP => 1);
my ($passed, $failed, %children) = (0, 0);
my $secret = 'whsec_' . encode_base64('a secret of the self-test', '');
my $main = $$;
$SIG{PIPE} = 'IGNORE';
$SIG{ALRM} = sub { die "the self-test took too long\n" };
alarm 180;

END {
	if ($$ == $main) {
		my $status = $?;
		kill 'KILL', $_ for keys %children;
		$? = $status;
	}
}

# --- helpers ---------------------------------------------------------------------------------------

sub ok {
	my ($good, $name, $more) = @_;
	if ($good) { $passed++; return 1 }
	$failed++;
	print "not ok: $name", defined $more ? " ($more)" : '', "\n";
	return 0;
}

sub is {
	my ($got, $want, $name) = @_;
	$got = 'undef' unless defined $got;
	return ok($got eq $want, $name, "got $got, wanted $want");
}

# Start a sandbox; returns a hash of pid, port, control
sub start {
	my @options = @_;
	unlink "$dir/port", "$dir/control";
	my $pid = fork;
	if (!$pid) {
		open STDOUT, '>', "$dir/log";
		exec $program, '--port-file', "$dir/port", '--control-port', 0,
		  '--control-port-file', "$dir/control", '--webhook-secret', $secret, @options
		  or POSIX::_exit(1);
	}
	$children{$pid} = 1;
	for (1 .. 200) { last if -s "$dir/port"; sleep 0.02 }
	my %sandbox = (pid => $pid);
	for (['port', 'port'], ['control', 'control']) {
		open my $file, '<', "$dir/$_->[1]" or die "the sandbox did not start\n";
		chomp($sandbox{ $_->[0] } = <$file>);
	}
	return \%sandbox;
}

# End a process; returns the seconds that took
sub stop {
	my $pid = ref $_[0] ? $_[0]{pid} : $_[0];
	my $start = time;
	kill 'TERM', $pid;
	waitpid $pid, 0;
	delete $children{$pid};
	return time - $start;
}

my $sandbox;

sub connect_to {
	my ($port) = @_;
	return IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port, Timeout => 5);
}

# Send a request on a connection
sub put {
	my ($socket, $method, $path, $body, %headers) = @_;
	$body = ref $body ? encode_json($body) : defined $body ? $body : '';
	$headers{Authorization} = 'Bearer sandbox-key' unless exists $headers{Authorization};
	my $text = "$method $path HTTP/1.1\r\nHost: localhost\r\nContent-Length: " . length($body) . "\r\n";
	$text .= "$_: $headers{$_}\r\n" for sort keys %headers;
	return syswrite $socket, "$text\r\n$body";
}

# Read one answer: {end => answer | fin | rst | wait, status, headers, body, raw}
sub get {
	my ($socket, $patience) = @_;
	my ($raw, %answer) = ('');
	my $until = time + ($patience || 5);
	my $select = IO::Select->new($socket);
	while (1) {
		if ($raw =~ /^HTTP\/1\.1 (\d+)[^\r]*\r\n(.*?)\r\n\r\n(.*)$/s) {
			my ($status, $head, $body) = ($1, $2, $3);
			my %headers = map { /^([^:]+): *(.*)$/ ? (lc $1, $2) : () } split /\r\n/, $head;
			%answer = (status => $status, headers => \%headers, body => $body);
			if (defined $headers{'content-length'} && length $body >= $headers{'content-length'}) {
				return { %answer, end => 'answer', raw => $raw, json => scalar eval { decode_json($body) } };
			}
		}
		my $left = $until - time;
		return { %answer, end => 'wait', raw => $raw } if $left <= 0 || !$select->can_read($left);
		my $read = sysread $socket, $raw, 65536, length $raw;
		return { %answer, end => ($! == ECONNRESET ? 'rst' : "error $!"), raw => $raw } if !defined $read;
		return { %answer, end => 'fin', raw => $raw } if $read == 0;
	}
}

# One request on a connection of its own
sub call {
	my ($method, $path, $body, %headers) = @_;
	my $socket = connect_to($sandbox->{port}) or return { end => 'refused', status => 0 };
	put($socket, $method, $path, $body, %headers);
	return get($socket);
}

# One command; through the control port, which no fault touches
sub control {
	my ($method, $path, $body) = @_;
	my $socket = connect_to($sandbox->{control}) or die "no control port\n";
	put($socket, $method, "/_sandbox/$path", $body);
	return get($socket, 10);
}

sub summary { return control('GET', 'summary')->{json} }
sub order { return control('GET', "orders/$_[0]")->{json} }

my $number = 0;
sub fresh { return sprintf 'SELFTEST%05d', ++$number }

sub charge_body {
	my ($reference, %more) = @_;
	return { reference => $reference, amount => 39900, currency => 'CNY', payment => { card => 'ok' }, %more };
}

sub charge {
	my ($reference, %more) = @_;
	return call('POST', '/charges', charge_body($reference, %more), 'Idempotency-Key' => "key-$reference");
}

sub code { return $_[0]{json}{error}{code} // '' }

# --- the calls ---------------------------------------------------------------------------------------

sub test_forms {
	is(control('GET', 'health')->{status}, 200, 'health');
	is(call('GET', '/charges/UNKNOWN1', undef, Authorization => 'Bearer wrong')->{status}, 401, 'wrong key');
	is(code(call('POST', '/charges', charge_body(fresh()), Authorization => '')), 'unauthorized', 'no key');
	my %bad = (
		'no JSON' => '{"reference": ', 'empty' => '', 'an array' => '[]',
		'no reference' => { amount => 1, currency => 'CNY' },
		'short reference' => charge_body('abc'), 'blank in reference' => charge_body('abc def ghi'),
		'long reference' => charge_body('x' x 65), 'zero' => charge_body(fresh(), amount => 0),
		'negative' => charge_body(fresh(), amount => -5), 'text amount' => charge_body(fresh(), amount => '5'),
		'fraction' => '{"reference": "FRACTION", "amount": 5.5, "currency": "CNY"}',
		'whole fraction' => '{"reference": "FRACTION", "amount": 5.0, "currency": "CNY"}',
		'too large' => '{"reference": "LARGE001", "amount": 99999999999999999, "currency": "CNY"}',
		'currency' => charge_body(fresh(), currency => 'cny'), 'huge' => 'x' x 70000,
		'key twice' => '{"reference": "TWICE001", "amount": 5, "amount": 6, "currency": "CNY"}',
	);
	for (sort keys %bad) {
		my $answer = call('POST', '/charges', $bad{$_});
		ok($answer->{status} == 400 && code($answer) eq 'invalid_request', "malformed: $_", $answer->{status});
	}
	is(call('DELETE', '/charges/ABCDEFGH')->{status}, 404, 'unknown method');
	is(call('GET', '/')->{status}, 404, 'unknown path');
}

sub test_charges {
	my $reference = fresh();
	my $answer = charge($reference);
	my $charge = $answer->{json};
	is($answer->{status}, 200, 'charge');
	is(join(' ', map { $_ . '=' . ($charge->{$_} // 'null') } qw(reference status amount currency code message)),
		"reference=$reference status=paid amount=39900 currency=CNY code=null message=null", 'charge object');
	ok($charge->{id} =~ /^ch_[0-9a-f]{24}$/ && ref $charge->{client} eq 'HASH', 'charge id and client');
	ok($charge->{occurred_at} =~ /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/, 'occurred_at');
	ok(!$answer->{headers}{'idempotent-replayed'}, 'a first answer is no replay');
	my $again = charge($reference);
	ok($again->{body} eq $answer->{body} && $again->{headers}{'idempotent-replayed'} eq 'true', 'replay');
	is(call('POST', '/charges', '{"payment":{"card":"ok"},"currency":"CNY","amount":39900,"reference":"' . $reference . '"}',
			'Idempotency-Key' => "key-$reference")->{status}, 200, 'replay with members in another order');
	is(code(charge($reference, amount => 1)), 'key_reused', 'key with another amount');
	is(code(charge($reference, payment => { card => 'declined' })), 'key_reused', 'key with another payment');
	is(code(call('POST', '/charges', charge_body($reference), 'Idempotency-Key' => "other-$reference")),
		'reference_used', 'reference with another key');
	is(code(call('POST', '/charges', charge_body($reference))), 'reference_used', 'reference without a key');
	is(call('GET', "/charges/$reference")->{body}, $answer->{body}, 'query');
	is(code(call('GET', '/charges/UNKNOWN9')), 'not_found', 'query of an unknown reference');
	is(order($reference)->{arrivals}, 7, 'arrivals are counted');
	is(order($reference)->{charges}, 1, 'one charge');

	my $declined = fresh();
	$answer = charge($declined, payment => { card => 'declined' });
	is("$answer->{status} $answer->{json}{status} $answer->{json}{code}", '402 failed card_declined', 'decline');
	is(charge($declined, payment => { card => 'declined' })->{status}, 402, 'replay of a decline');
	is(call('GET', "/charges/$declined")->{status}, 200, 'query of a declined charge');
	is(order($declined)->{charges}, 0, 'a decline moves no money');
}

sub test_pending {
	my ($paid, $failed, $closed, $late) = map { fresh() } 1 .. 4;
	my $answer = charge($paid, payment => { card => 'pending_then_paid', after_ms => 150 });
	is($answer->{json}{status}, 'pending', 'pending');
	ok($answer->{json}{client}{client_secret}, 'a pending charge has something for the page');
	charge($failed, payment => { card => 'pending_then_failed', after_ms => 150 });
	charge($closed, payment => { card => 'pending' });
	charge($late, payment => { card => 'pending' });
	is(order($paid)->{charges}, 0, 'pending moves no money');
	is(call('POST', "/charges/$closed/close")->{json}{status}, 'closed', 'close');
	is(call('POST', "/charges/$closed/close")->{json}{status}, 'closed', 'close again');
	control('POST', "faults/$late", { fault => 'close_too_late' });
	is(call('POST', "/charges/$late/close")->{json}{status}, 'paid', 'close_too_late');
	is(order($late)->{charges}, 1, 'close_too_late charges');
	is(call('POST', '/charges/UNKNOWN9/close')->{status}, 404, 'close of an unknown reference');
	sleep 0.3;
	is(call('GET', "/charges/$paid")->{json}{status}, 'paid', 'pending_then_paid');
	is(call('GET', "/charges/$failed")->{json}{status}, 'failed', 'pending_then_failed');
	is(charge($paid, payment => { card => 'pending_then_paid', after_ms => 150 })->{json}{status}, 'pending',
		'a replay is the first answer');
}

sub refund {
	my ($reference, $charge, %more) = @_;
	return call('POST', '/refunds', { reference => $reference, charge_reference => $charge, amount => 100,
			currency => 'CNY', %more }, 'Idempotency-Key' => "key-$reference");
}

sub test_refunds {
	my ($charge, $first, $second, $third) = map { fresh() } 1 .. 4;
	my $id = charge($charge)->{json}{id};
	my $answer = refund($first, $charge, charge_id => $id);
	is("$answer->{status} $answer->{json}{status} $answer->{json}{charge_id}", "200 succeeded $id", 'refund');
	is(refund($first, $charge, charge_id => $id)->{headers}{'idempotent-replayed'}, 'true', 'refund replayed');
	is(code(refund($first, $charge, charge_id => $id, amount => 7)), 'key_reused', 'refund key reused');
	$answer = refund($second, $charge, amount => 39801);
	is("$answer->{status} $answer->{json}{status} $answer->{json}{code}", '402 failed amount_too_large', 'refund over what is left');
	is(refund($third, $charge, amount => 39800)->{status}, 200, 'refund of all that is left');
	is(call('GET', "/refunds/$first")->{json}{status}, 'succeeded', 'refund query');
	is(call('GET', "/refunds/$second")->{json}{status}, 'failed', 'query of a failed refund');
	is(code(call('GET', '/refunds/UNKNOWN9')), 'not_found', 'query of an unknown refund');
	is(code(refund(fresh(), 'UNKNOWN9')), 'invalid_request', 'refund of an unknown charge');
	is(code(refund(fresh(), $charge, charge_id => 'ch_0')), 'invalid_request', 'refund of another charge id');
	is(code(refund(fresh(), $charge, currency => 'USD')), 'invalid_request', 'refund in another currency');
	my $slow = fresh();
	$charge = fresh();
	charge($charge);
	control('POST', "faults/$slow", { fault => 'pending_then_paid', ms => 100 });
	is(refund($slow, $charge, amount => 39900)->{json}{status}, 'pending', 'pending refund');
	is(refund(fresh(), $charge, amount => 1)->{status}, 402, 'a pending refund holds its amount');
	sleep 0.25;
	is(call('GET', "/refunds/$slow")->{json}{status}, 'succeeded', 'pending refund succeeds');
	my $lost = fresh();
	$charge = fresh();
	charge($charge);
	control('POST', "faults/$lost", { fault => 'then_fin', times => 1 });
	is(refund($lost, $charge)->{end}, 'fin', 'refund made, answer lost');
	is(refund($lost, $charge)->{headers}{'idempotent-replayed'}, 'true', 'and replayed');
}

sub test_settlement {
	my %amount = (CNY => '399.00', JPY => '39900', BHD => '39.900');
	my %reference;
	for (sort keys %amount) {
		$reference{$_} = fresh();
		charge($reference{$_}, currency => $_);
	}
	my $refund = fresh();
	refund($refund, $reference{CNY}, amount => 5);
	control('POST', "charges/$reference{BHD}/status", { status => 'reversed' });
	my $day = strftime('%Y-%m-%d', gmtime);
	my $answer = call('GET', "/settlements/$day.csv");
	my @lines = split /\n/, $answer->{body};
	is($lines[0], 'transaction_id,reference,charge_id,type,amount,currency,fee,status,occurred_at', 'settlement header');
	for my $currency (sort keys %amount) {
		my ($line) = grep { /,$reference{$currency},,charge,/ } @lines;
		ok($line && $line =~ /,charge,\Q$amount{$currency}\E,$currency,[\d.]+,paid,\d{4}-/, "settlement of $currency", $line);
	}
	ok((grep { /^ch_\w+,$reference{CNY},,charge,399\.00,CNY,2\.39,paid,/ } @lines), 'fee');
	ok((grep { /^re_\w+,$refund,ch_\w+,refund,0\.05,CNY,0\.00,succeeded,/ } @lines), 'settlement of a refund');
	ok((grep { /^cb_\w+,$reference{BHD},ch_\w+,chargeback,39\.900,BHD,0\.000,succeeded,/ } @lines), 'settlement of a chargeback');
	is(call('GET', '/settlements/2026-02-30.csv')->{status}, 404, 'a day that is none');
	is(call('GET', '/settlements/2001-01-01.csv')->{body} =~ tr/\n//, 1, 'an empty day');
}

# --- faults ------------------------------------------------------------------------------------------

# What each fault of the answer looks like to a client, and whether it charged
my %looks = (
	charge_then_fin => [ 1, sub { $_[0]{end} eq 'fin' && $_[0]{raw} eq '' }, 52 ],
	charge_then_rst => [ 1, sub { $_[0]{end} eq 'rst' && $_[0]{raw} eq '' }, 56 ],
	charge_then_silence => [ 1, sub { $_[0]{end} eq 'wait' && $_[0]{raw} eq '' }, 28 ],
	charge_then_500 => [ 1, sub { $_[0]{status} == 500 && $_[0]{end} eq 'answer' }, 0 ],
	charge_then_500_kept => [ 1, sub { $_[0]{status} == 500 && $_[0]{end} eq 'answer' }, 0 ],
	charge_then_html => [ 1, sub { $_[0]{status} == 200 && $_[0]{body} =~ /^<!DOCTYPE/ }, 0 ],
	charge_then_truncated => [ 1, sub { $_[0]{end} eq 'fin' && $_[0]{status} == 200 && $_[0]{body} =~ /^\{"id"/
				&& length $_[0]{body} < $_[0]{headers}{'content-length'} }, 18 ],
	charge_then_unframed => [ 1, sub { $_[0]{end} eq 'fin' && $_[0]{body} =~ /^\{"id"/ && $_[0]{body} !~ /\}$/ }, 0 ],
	charge_then_cut_header => [ 1, sub { $_[0]{end} eq 'fin' && $_[0]{raw} =~ /Content-Ty$/ }, 0 ],
	charge_then_garbage => [ 1, sub { $_[0]{end} eq 'fin' && $_[0]{raw} =~ /^220 mail/ }, 1 ],
	charge_then_wrong_amount => [ 1, sub { $_[0]{json}{amount} == 39901 }, 0 ],
	charge_then_other_reference => [ 1, sub { $_[0]{json}{reference} =~ /^other-/ }, 0 ],
	slow => [ 1, sub { $_[0]{status} == 200 && $_[0]{seconds} > 0.25 }, 0 ],
	error_500 => [ 0, sub { $_[0]{status} == 500 }, 0 ],
	error_503_retry_after => [ 0, sub { $_[0]{status} == 503 && $_[0]{headers}{'retry-after'} == 1 }, 0 ],
	rate_limited_429 => [ 0, sub { $_[0]{status} == 429 && $_[0]{headers}{'retry-after'} == 1 }, 0 ],
	refuse => [ 0, sub { $_[0]{end} eq 'fin' && $_[0]{raw} eq '' }, 52 ],
);

# One charge on a given connection, with the time it took
sub timed {
	my ($socket, $reference) = @_;
	my $start = time;
	put($socket, 'POST', '/charges', charge_body($reference), 'Idempotency-Key' => "key-$reference");
	my $answer = get($socket, 0.6);
	$answer->{seconds} = time - $start;
	return $answer;
}

sub test_answers {
	for my $fault (sort keys %looks) {
		my ($charges, $look, $exit) = @{ $looks{$fault} };
		my @references = map { fresh() } 1 .. 3;
		control('POST', "faults/$_", { fault => $fault, times => 1, ms => 300 }) for @references[0, 1];
		control('POST', "faults/$references[2]", { fault => $fault, times => 1, ms => 3000 });
		my $answer = timed(connect_to($sandbox->{port}), $references[0]);
		if ($fault eq 'charge_then_silence') {
			ok($answer->{end} eq 'fin' && $answer->{seconds} > 0.25, "$fault is bounded", $answer->{end});
			my $reference = fresh();
			control('POST', "faults/$reference", { fault => $fault });
			$answer = timed(connect_to($sandbox->{port}), $reference);
			control('POST', "faults/$references[1]", { fault => 'none' });
			control('POST', "faults/$references[1]", { fault => $fault, times => 1 });
		}
		ok($look->($answer), "$fault on a new connection", "$answer->{end} $answer->{raw}");

		my $socket = connect_to($sandbox->{port});
		put($socket, 'GET', '/charges/UNKNOWN9');
		is(get($socket)->{status}, 404, "$fault: first use of a connection");
		$answer = timed($socket, $references[1]);
		ok($look->($answer), "$fault on a reused connection", "$answer->{end} $answer->{raw}");
		is(order($references[1])->{charges}, $charges, "$fault: charges before the answer");

		my $body = encode_json(charge_body($references[2]));
		system 'curl', '-s', '-o', '/dev/null', '--max-time', $fault eq 'slow' ? 5 : 1, '-H', 'Authorization: Bearer sandbox-key', '-d', $body,
		  "http://127.0.0.1:$sandbox->{port}/charges";
		is($? >> 8, $exit, "$fault: exit code of curl");
		is(order($references[2])->{charges}, $charges, "$fault: charges for curl");

		$answer = timed(connect_to($sandbox->{port}), $references[1]);
		if ($fault eq 'charge_then_500_kept') {
			ok($answer->{status} == 500 && $answer->{headers}{'idempotent-replayed'}, "$fault: replay");
		}
		else {
			is($answer->{json}{status}, 'paid', "$fault: once only");
			is($answer->{headers}{'idempotent-replayed'} ? 1 : 0, $charges, "$fault: replay or first charge");
		}
		is(order($references[1])->{charges}, 1, "$fault: charged once in the end");
	}
}

sub test_waits {
	my ($slow, $lag, $query) = map { fresh() } 1 .. 3;
	control('POST', "faults/$slow", { fault => 'slow', ms => 500 });
	my $socket = connect_to($sandbox->{port});
	my @silent;
	put($socket, 'POST', '/charges', charge_body($slow), 'Idempotency-Key' => "key-$slow");
	for (1 .. 200) {
		my $reference = fresh();
		control('POST', "faults/$reference", { fault => 'charge_then_silence', times => 1 }) if $_ <= 50;
		push @silent, connect_to($sandbox->{port});
		put($silent[-1], 'POST', '/charges', charge_body($reference));
	}
	control('POST', "faults/$slow", { fault => 'none' });
	is(code(charge($slow)), 'key_in_use', 'key in use while the first answer is awaited');
	my $start = time;
	charge(fresh()) for 1 .. 20;
	ok(time - $start < 0.4, 'waiting answers block nobody', time - $start);
	is(get($socket)->{json}{status}, 'paid', 'the slow answer comes');
	is(charge($slow)->{headers}{'idempotent-replayed'}, 'true', 'and is replayed then');
	@silent = ();

	control('POST', "faults/$lag", { fault => 'query_lag', ms => 300 });
	is(charge($lag)->{json}{status}, 'paid', 'query_lag: charged');
	is(code(call('GET', "/charges/$lag")), 'not_found', 'query_lag: not seen at first');
	sleep 0.35;
	is(call('GET', "/charges/$lag")->{json}{status}, 'paid', 'query_lag: seen later');

	charge($query);
	control('POST', "faults/$query", { fault => 'query.error_500', times => 1 });
	is(call('GET', "/charges/$query")->{status}, 500, 'a fault of queries');
	is(call('GET', "/charges/$query")->{status}, 200, 'a fault of queries, once');
	control('POST', "faults/$query", { fault => 'query.then_wrong_amount', times => 1 });
	is(call('GET', "/charges/$query")->{json}{amount}, 39901, 'a wrong amount in a query');
	control('POST', 'config', { latency => 200 });
	$start = time;
	charge(fresh());
	ok(time - $start > 0.19, 'latency');
	control('POST', 'config', { latency => 0 });
}

# Which of 200 charges met which fault
sub pattern {
	control('POST', 'reset');
	my $pattern = '';
	for (1 .. 200) {
		my $answer = charge(sprintf 'PATTERN%03d', $_ * 7 % 200);
		$pattern .= ($_ * 7 % 200) . "=$answer->{end}" . ($answer->{status} // 0) . ' ';
	}
	return $pattern;
}

sub test_rates {
	is(control('POST', 'faults', { rates => { charge_then_fin => 0.2, error_500 => 0.2, declined => 0.3 } })->{status}, 200, 'rates');
	my $first = pattern();
	my $met = summary()->{faults};
	ok($met->{charge_then_fin} > 20 && $met->{charge_then_fin} < 65 && $met->{declined} > 35 && $met->{declined} < 90,
		'faults are met as often as asked', encode_json($met));
	is(pattern(), $first, 'a run repeats');
	control('POST', 'config', { seed => 2 });
	ok(pattern() ne $first, 'another seed, other faults');
	is(control('POST', 'faults', { rates => { no_such_fault => 0.1 } })->{status}, 400, 'unknown fault');
	is(control('POST', 'faults', { rates => { error_500 => 1.1 } })->{status}, 400, 'rate above 1');
	is(control('POST', 'faults', { rates => { error_500 => 0.7, slow => 0.7 } })->{status}, 400, 'sum above 1');
	is(control('GET', 'faults')->{json}{rates}{charge_then_fin}, 0.2, 'refused rates change nothing');
	control('POST', 'faults', { rates => { 'query.error_500' => 1 } });
	my $reference = fresh();
	is(charge($reference)->{status}, 200, 'rates of queries leave charges alone');
	is(call('GET', "/charges/$reference")->{status}, 500, 'rates of queries');
	control('POST', 'faults', { rates => {} });
}

sub test_connections {
	control('POST', 'faults', { rates => { refuse => 1 } });
	my $socket = connect_to($sandbox->{port});
	my $answer = get($socket);
	ok($answer->{end} =~ /^(fin|rst)$/ && $answer->{raw} eq '', 'refuse: closed unread', $answer->{end});
	ok(summary()->{refused} >= 1, 'refuse: counted');
	control('POST', 'faults', { rates => {} });

	$socket = connect_to($sandbox->{port});
	put($socket, 'GET', '/charges/UNKNOWN9');
	get($socket);
	my $reference = fresh();
	my $start = time;
	control('POST', 'outage', { ms => 400, drop_connections => JSON::PP::true });
	is(get($socket)->{end}, 'fin', 'outage: connections dropped');
	ok(!connect_to($sandbox->{port}) && $! == ECONNREFUSED, 'outage: port closed', "$!");
	sleep 0.05 while time - $start < 3 && !($socket = connect_to($sandbox->{port}));
	ok(time - $start > 0.35 && time - $start < 2, 'outage: port opened again', time - $start);
	is(charge($reference)->{status}, 200, 'outage: all is well again');
}

# --- the judge -----------------------------------------------------------------------------------------

sub test_judge {
	control('POST', 'reset');
	is(summary()->{charge_arrivals}, 0, 'reset');
	control('POST', 'config', { no_idempotency => JSON::PP::true, no_unique_reference => JSON::PP::true });
	charge('JUDGED01') for 1 .. 2;
	charge('JUDGED02');
	charge('JUDGED02_r2');
	charge('JUDGED03', payment => { card => 'declined' });
	charge('JUDGED03_r2');
	charge('JUDGED04_r1');
	charge('JUDGED04_r2');
	my $summary = summary();
	is("$summary->{orders} $summary->{charges} $summary->{orders_charged} $summary->{orders_charged_twice}", '5 7 5 2', 'double charges are seen');
	is($summary->{amounts}{CNY}{charged}, 7 * 39900, 'sum of a currency');
	refund('REFUND01', 'JUDGED01', amount => 39900);
	is(summary()->{orders_charged_twice}, 1, 'a refund settles a double charge');
	control('POST', 'charges/JUDGED02/status', { status => 'reversed' });
	is(summary()->{orders_charged_twice}, 0, 'a reversal does too');
	is(summary()->{orders_charged_twice_ever}, 2, 'but both are remembered');
	my $csv = call('GET', '/_sandbox/orders.csv')->{body};
	ok($csv =~ /^order,reference_last,arrivals,charges,amount_minor,currency,status,refunded_minor\n/, 'orders.csv: header');
	ok($csv =~ /^JUDGED03,JUDGED03_r2,2,1,39900,CNY,paid,0$/m, 'orders.csv: a line', $csv);
	ok($csv =~ /^JUDGED01,JUDGED01,2,2,79800,CNY,paid,39900$/m, 'orders.csv: a double charge', $csv);
	control('POST', 'config', { no_idempotency => JSON::PP::false, no_unique_reference => JSON::PP::false });
	control('POST', 'config', { key_lifetime => 50 });
	my $reference = fresh();
	charge($reference);
	sleep 0.1;
	is(code(charge($reference)), 'reference_used', 'an expired key');
	control('POST', 'config', { key_lifetime => 86400000 });
	is(control('POST', 'config', { port => 1 })->{status}, 400, 'a setting of the start');
	is(control('POST', 'config', { latency => -1 })->{status}, 400, 'a setting out of range');
	is(control('POST', 'config', { nothing => 1 })->{status}, 400, 'an unknown setting');
	is(control('POST', 'faults/ABCDEFGH', { fault => 'nothing' })->{status}, 400, 'an unknown fault');
	is(control('GET', 'orders/UNKNOWN9')->{status}, 404, 'an unknown order');
	is(control('GET', 'nothing')->{status}, 404, 'an unknown command');
}

# --- callbacks -------------------------------------------------------------------------------------------

# An application that notes every callback, and refuses the first ones of a reference named FAILn...
sub application {
	my $listener = IO::Socket::INET->new(Listen => 64, LocalAddr => '127.0.0.1', ReuseAddr => 1) or die;
	my $pid = fork;
	if (!$pid) {
		my %seen;
		while (my $socket = $listener->accept) {
			my ($raw, $head, $body) = ('');
			while (sysread $socket, $raw, 65536, length $raw) {
				next unless $raw =~ /^(.*?)\r\n\r\n(.*)$/s;
				($head, $body) = ($1, $2);
				last if $head =~ /^content-length: (\d+)/mi && length $body >= $1;
			}
			my %headers = map { /^([^:]+): (.*)$/ ? (lc $1, $2) : () } split /\r\n/, $head // '';
			my $data = eval { decode_json($body) } || {};
			my $reference = $data->{data}{reference} // '';
			my $refuse = $reference =~ /^FAIL(\d)/ && ++$seen{$reference} <= $1;
			open my $file, '>>', "$dir/callbacks" or POSIX::_exit(1);
			syswrite $file, encode_json({ headers => \%headers, body => $body, at => time,
				status => $refuse ? 500 : 204, type => $data->{type}, reference => $reference }) . "\n";
			syswrite $socket, $refuse ? "HTTP/1.1 500 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" :
			  "HTTP/1.1 204 Yes\r\nConnection: close\r\n\r\n";
		}
		POSIX::_exit(0);
	}
	$children{$pid} = 1;
	return ($pid, $listener->sockport);
}

# Wait until no callback is pending; those that came for a reference, in order
sub callbacks {
	my ($reference) = @_;
	for (1 .. 300) { last if summary()->{callbacks_pending} == 0; sleep 0.02 }
	open my $file, '<', "$dir/callbacks" or return ();
	return grep { $_->{reference} eq $reference } map { decode_json($_) } <$file>;
}

sub types { return join ' ', map { $_->{type} } @_ }

sub signature_good {
	my ($callback) = @_;
	my $headers = $callback->{headers};
	my $key = decode_base64(substr $secret, 6);
	my $mac = hmac_sha256_base64("$headers->{'webhook-id'}.$headers->{'webhook-timestamp'}.$callback->{body}", $key);
	$mac .= '=' while length($mac) % 4;
	return $headers->{'webhook-signature'} eq "v1,$mac" && abs($callback->{at} - $headers->{'webhook-timestamp'}) < 3;
}

sub test_callbacks {
	my ($pid, $port) = application();
	control('POST', 'reset');
	control('POST', 'config', { callback_url => "http://127.0.0.1:$port/callbacks/generic" });

	my $reference = fresh();
	my $answer = charge($reference);
	my ($paid) = callbacks($reference);
	is($paid->{type}, 'charge.paid', 'callback of a charge');
	ok(signature_good($paid), 'signature');
	my $body = decode_json($paid->{body});
	is(encode_json($body->{data}) eq encode_json($answer->{json}) || $paid->{body} =~ /\Q$answer->{body}\E/ ? 1 : 0, 1, 'data is the charge object');
	is($body->{timestamp}, $answer->{json}{occurred_at}, 'timestamp is the event\'s');
	ok($paid->{headers}{'webhook-id'} =~ /^msg_[0-9a-f]{24}$/, 'webhook-id');

	control('POST', "charges/$reference/status", { status => $_ }) for qw(reversed reinstated);
	refund("$reference-R", $reference);
	is(types(sort { $a->{body} cmp $b->{body} } callbacks($reference)), 'charge.paid charge.reinstated charge.reversed', 'each change is told');
	is(types(callbacks("$reference-R")), 'refund.succeeded', 'callback of a refund');
	control('POST', "refunds/$reference-R/status", { status => 'failed' });
	is(types(callbacks("$reference-R")), 'refund.succeeded refund.failed', 'a refund taken back');
	is(order($reference)->{references}[0]{charges}[0]{refunded}, 0, 'and its money');
	is(control('POST', "charges/$reference/refund", { amount => 50, reference => "$reference-C" })->{status}, 200, 'refund by the gateway');
	is(types(callbacks("$reference-C")), 'refund.succeeded', 'its callback');
	is(control('POST', "charges/$reference/refund", { amount => 999999 })->{status}, 400, 'but not more than is left');

	my $pending = fresh();
	charge($pending, payment => { card => 'pending_then_paid', after_ms => 100 });
	sleep 0.2;
	my @both = callbacks($pending);
	is(types(@both), 'charge.pending charge.paid', 'pending and paid');
	charge($reference = fresh(), payment => { card => 'pending' });
	call('POST', "/charges/$reference/close");
	is(types(sort { $a->{type} cmp $b->{type} } callbacks($reference)), 'charge.closed charge.pending', 'closed');
	charge($reference = fresh(), payment => { card => 'declined' });
	is(types(callbacks($reference)), 'charge.failed', 'failed');

	charge('FAIL3ABC');
	my @tries = callbacks('FAIL3ABC');
	is(join(' ', map { $_->{status} } @tries), '500 500 500 204', 'tried until acknowledged');
	ok($tries[3]{at} - $tries[0]{at} > 1 && $tries[0]{headers}{'webhook-id'} eq $tries[3]{headers}{'webhook-id'}
		  && signature_good($tries[3]), 'backoff, same id, signed anew');
	control('POST', 'config', { callback_tries => 2, callback_backoff => 10 });
	charge('FAIL9ABC');
	is(scalar(callbacks('FAIL9ABC')), 2, 'tries are bounded');
	is(summary()->{callbacks_failed}, 1, 'and the failure is counted');
	control('POST', 'callbacks/resend', { reference => 'FAIL9ABC' });
	is(scalar(callbacks('FAIL9ABC')), 4, 'resent on demand');

	charge($reference = fresh());
	callbacks($reference);
	control('POST', 'callbacks/resend', { reference => $reference });
	control('POST', 'callbacks/resend', { reference => $reference, new_id => JSON::PP::true });
	my %ids = map { $_->{headers}{'webhook-id'} => 1 } my @sent = callbacks($reference);
	is(@sent . ' ' . keys %ids, '3 2', 'resent under the same and a new id');
	ok($sent[0]{body} eq $sent[1]{body} && $sent[1]{body} eq $sent[2]{body}, 'with the same body');
	test_callback_rates();
	stop($pid);
}

sub test_callback_rates {
	my $reference;
	control('POST', 'config', { callback_duplicate => 1, callback_again => 1 });
	charge($reference = fresh());
	my @sent = callbacks($reference);
	my %ids = map { $_->{headers}{'webhook-id'} => 1 } @sent;
	is(@sent . ' ' . keys %ids, '3 2', 'duplicates, under one id and another');
	ok(!(grep { !signature_good($_) } @sent), 'all signed');
	control('POST', 'config', { callback_duplicate => 0, callback_again => 0, callback_lost => 1 });
	charge($reference = fresh());
	is(scalar(callbacks($reference)), 0, 'lost');
	is(summary()->{callbacks_lost}, 1, 'lost and counted');
	control('POST', 'config', { callback_lost => 0, callback_delay => 300 });
	charge($reference = fresh());
	my $start = time;
	my ($late) = callbacks($reference);
	ok($late && $late->{at} - $start > 0.25, 'delayed');
	control('POST', 'config', { callback_delay => 0, callback_shuffle => 300 });
	unlink "$dir/callbacks";
	charge("SHUFFLED" . (100 + $_)) for 1 .. 30;
	callbacks('');
	open my $file, '<', "$dir/callbacks" or die;
	my @order = map { decode_json($_)->{reference} } <$file>;
	ok(@order == 30 && "@order" ne join(' ', sort @order), 'shuffled', "@order");
	control('POST', 'config', { callback_shuffle => 0 });
	control('POST', 'charges', { reference => 'UNASKED1', amount => 5, currency => 'USD' });
	is(types(callbacks('UNASKED1')), 'charge.paid', 'a charge nobody asked for');
	control('POST', 'charges', { reference => 'UNASKED1', amount => 5, currency => 'USD' });
	is(order('UNASKED1')->{live}, 2, 'and a second one');
	control('POST', 'config', { webhook_secret => "$secret whsec_" . encode_base64('another secret', '') });
	charge($reference = fresh());
	my ($callback) = callbacks($reference);
	ok($callback->{headers}{'webhook-signature'} =~ /^v1,\S{44} v1,\S{44}$/, 'two secrets, two signatures');
}

# --- the end -----------------------------------------------------------------------------------------------

sub test_end {
	my $reference = fresh();
	control('POST', "faults/$reference", { fault => 'charge_then_silence' });
	my $socket = connect_to($sandbox->{port});
	put($socket, 'POST', '/charges', charge_body($reference));
	sleep 0.1;
	my $seconds = stop($sandbox);
	is($?, 0, 'SIGTERM: exit code');
	ok($seconds < 1, 'SIGTERM: within a second', $seconds);
	system "$program --fault nothing=1 2>/dev/null";
	is($? >> 8, 2, 'an unknown fault on the command line');
	system "$program --webhook-secret nothing 2>/dev/null";
	is($? >> 8, 2, 'a secret that is none');
	system "$program --help >/dev/null";
	is($?, 0, '--help');

	unlink "$dir/port";
	my $parent = fork;
	if (!$parent) {
		my $child = fork;
		if (!$child) { exec "exec $program --die-with-parent --port-file $dir/port >/dev/null" or POSIX::_exit(1) }
		sleep 30;
		POSIX::_exit(0);
	}
	for (1 .. 200) { last if -s "$dir/port"; sleep 0.02 }
	open my $file, '<', "$dir/port" or die;
	chomp(my $port = <$file>);
	ok(connect_to($port), 'a sandbox with a parent');
	kill 'KILL', $parent;
	waitpid $parent, 0;
	sleep 0.5;
	ok(!connect_to($port), '--die-with-parent');
}

$sandbox = start('--slow', 300, '--seed', 1);
for my $test (\&test_forms, \&test_charges, \&test_pending, \&test_refunds, \&test_settlement, \&test_answers,
	\&test_waits, \&test_rates, \&test_connections, \&test_judge, \&test_callbacks, \&test_end) {
	if (!eval { $test->(); 1 }) {
		$failed++;
		print "not ok: died: $@";
		last;
	}
}
print "$passed passed, $failed failed\n";
exit($failed ? 1 : 0);
