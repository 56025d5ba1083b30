package Payguard::Customer;

=pod

=head1 NAME

Payguard::Customer - an application that buys at random, beside others, while everything breaks

=head1 DESCRIPTION

run() takes the orders of its seed one after the other: makes them, claims them for the worker or for itself, calls the
gateway itself where it has to, tells the result or forgets to, claims a failed order again, closes some, gives some money
back, repeats whatever had no answer. Several customers of neighbouring numbers share orders, so that they are rivals for
claims. It keeps the rules that an application has to keep and no other: it calls only when a claim was won, with the keys
it was given, while its lease is live; it tells a failure only when it has the gateway's word; when in doubt it tells
nothing or unknown.

What was committed with a promise to be durable goes to a file, one line each: "evidence ID REFERENCE" after record_attempt,
"claim REFERENCE NO" after a claim by an application.

=cut

use strict;
use warnings;

use HTTP::Tiny;
use JSON::PP;
use Payguard::Session;
use Time::HiRes qw(sleep time);

# Seconds that a call may take, and a lease lasts.
use constant TIMEOUT => 3;
use constant LEASE   => 8;

my $json = JSON::PP->new->canonical->utf8;

=pod

=over

=item new(connstr => ..., url => gateway's URL, seed => N, number => N, customers => N, journal => FILE)

=item run(UNTIL)

Until the file UNTIL exists.

=back

=cut

sub new
{
	my ($class, %param) = @_;
	return bless {%param}, $class;
}

# A generator of its own, so that a customer's wishes do not depend on how often others were faster.
sub chance
{
	my ($self, $probability) = @_;
	return rand() < $probability;
}

sub run
{
	my ($self, $until) = @_;

	srand($self->{seed} * 1000 + $self->{number});
	open $self->{file}, '>>', $self->{journal} or die "could not open $self->{journal}: $!\n";
	$self->{file}->autoflush(1);
	$self->{http}    = HTTP::Tiny->new(timeout => TIMEOUT, keep_alive => 0);
	$self->{session} = $self->open_session;
	while (!-e $until)
	{
		$self->shop_once;
		$self->{session} = $self->open_session if $self->chance(0.02);
		sleep rand(0.06);
	}
	return;
}

sub open_session
{
	my ($self) = @_;
	my $setup = $self->chance(0.5) ? 'SET synchronous_commit = off' : 'SET synchronous_commit = on';

	$self->{is_lax} = $setup =~ /off/;
	$setup .= '; SET default_transaction_isolation = ' . ('"read committed"', '"repeatable read"', 'serializable')[ rand(3) ];
	$self->{session}->close if $self->{session};
	return Payguard::Session->new($self->{connstr}, setup => $setup);
}

# The statement's row as a hash; undef when it has no answer after some tries, an empty one after an error.
sub ask
{
	my ($self, $columns, $from) = @_;
	my $tries = 1 + int rand(4);

	foreach (1 .. $tries)
	{
		my $rows = $self->{session}->query("SELECT row_to_json(r) FROM (SELECT $columns FROM $from) AS r");
		next unless defined $rows;
		my $error = $self->{session}->error;
		if ($error ne '')
		{
			# Serializable may fail at any time; all else would be a fault of payguard's.
			next if $error =~ /^(?:40001|40P01|57P0\d|55P03)/;
			$self->note("error $error");
			return {};
		}
		return @$rows ? $json->decode($rows->[0]) : {};
	}
	return undef;
}

sub note
{
	my ($self, $text) = @_;

	print { $self->{file} } "$text\n";
	return;
}

# The amount is a function of the order, since rivals make the same one.
sub reference
{
	my ($self, $number) = @_;
	return sprintf 'S%d-%05d', $self->{seed}, $number;
}

sub amount
{
	my ($number) = @_;
	return sprintf '%d.%02d', 1 + $number * 7919 % 500, $number * 31 % 100;
}

sub shop_once
{
	my ($self) = @_;
	# Two or three customers come to each number, at about the same time; now and then to one long past.
	my $number = ++$self->{count};
	$number = 1 + int rand($number) if $self->chance(0.15);
	$number = $number * int(1 + $self->{customers} / 3) + $self->{number} % int(1 + $self->{customers} / 3);
	my $reference = $self->reference($number);
	my $amount    = amount($number);

	my $order = $self->ask('*', "payguard.create_order($amount, 'CNY', 'shop', '$reference')") or return;
	return unless defined $order->{reference};
	return if $self->chance(0.03);

	my $status = $order->{status};
	if ($status eq 'paid')
	{
		$self->want_refund($reference, $amount) if $self->chance(0.2);
		return;
	}
	if ($self->chance(0.04))
	{
		$self->ask('*', "payguard.close_order('$reference', 'changed my mind')");
		return if $self->chance(0.5);
	}
	if ($self->chance(0.03)) { $self->ask('*', "payguard.close_attempt('$reference', 'another channel')"); }
	$self->claim($reference);
	return;
}

sub want_refund
{
	my ($self, $reference, $amount) = @_;
	my $is_part = $self->chance(0.5);
	my $part = $is_part ? sprintf('%.2f', $amount / 4) : 'NULL';
	my $key  = sprintf '%s-%s%d', $reference, $is_part ? 'part' : 'rest', rand(3);

	$self->ask('*', "payguard.request_refund('$reference', '$key', $part)");
	return;
}

my @cards = (({}) x 6, { card => 'declined' }, { card => 'pending_then_paid', after_ms => 300 },
	{ card => 'pending_then_failed', after_ms => 300 });

sub claim
{
	my ($self, $reference) = @_;
	my $key     = sprintf '%s-%d-%d', $reference, $self->{number}, $self->{keys}{$reference}++;
	my $call_by = $self->chance(0.35) ? 'application' : 'worker';
	my $payment = $json->encode($cards[ rand @cards ]);
	my $lease   = $call_by eq 'application' ? "'" . LEASE . " s'" : 'NULL';
	my $began   = time;

	my $claim = $self->ask('*',
		"payguard.claim_order('$reference', '$key', NULL, '$call_by', '$payment', $lease)") or return;
	return unless $claim->{claimed} && $call_by eq 'application';
	$self->note("claim $reference $claim->{attempt_no}");
	$self->pay($claim, $payment, $reference, $began);
	return;
}

# The application's own call, and what it tells of it.
sub pay
{
	my ($self, $claim, $payment, $reference, $began) = @_;
	my $amount = $self->{amounts}{$reference} //= do { my ($n) = $reference =~ /(\d+)$/; amount($n) };

	return if $self->chance(0.12);    # dies before the call
	sleep rand(0.5) if $self->chance(0.1);
	# The call must be over while the lease is live; the answer to the claim may have taken its time.
	return if time - $began > LEASE - TIMEOUT - 1;
	my $response = $self->{http}->post("$self->{url}/charges",
		{
			headers => {
				Authorization     => "Bearer $Payguard::API_KEY",
				'Content-Type'    => 'application/json',
				'Idempotency-Key' => $claim->{idempotency_key}
			},
			content => $json->encode(
				{
					reference => $claim->{gateway_reference},
					amount    => int($amount * 100 + 0.5),
					currency  => 'CNY',
					payment   => $json->decode($payment)
				})
		});
	return if $self->chance(0.12);    # dies before it tells
	sleep rand(2 * LEASE) if $self->chance(0.01);

	my $told = $self->tell($claim, $response);
	$self->tell($claim, $response) if $self->chance(0.1);
	return;
}

# Results and facts of record_attempt, by what the gateway's documentation says.
sub read_answer
{
	my ($claim, $response) = @_;
	my $charge = eval { $json->decode($response->{content}) };

	return ('not_sent') if $response->{status} == 599 && $response->{content} =~ /^Could not connect/;
	return ('unknown') if $response->{status} !~ /^(?:200|201|202|402)$/ || ref $charge ne 'HASH';
	return ('unknown') if ($charge->{reference} // '') ne $claim->{gateway_reference};
	return ('failed', undef, undef, $charge->{code}) if $response->{status} == 402 && $charge->{status} eq 'failed';
	return ('pending', $charge->{id}) if $charge->{status} eq 'pending';
	return ('paid', $charge->{id}, $charge->{amount}) if $charge->{status} eq 'paid';
	return ('unknown');
}

sub tell
{
	my ($self, $claim, $response) = @_;
	my ($result, $id, $minor, $code) = read_answer($claim, $response);
	my @arguments = (
		"'$claim->{lease_token}'", "'$result'", defined $id ? "'$id'" : 'NULL',
		defined $minor ? (sprintf('%.2f', $minor / 100), "'CNY'") : ('NULL', 'NULL'),
		defined $code ? "'$code'" : 'NULL');

	my $told = $self->ask('*', 'payguard.record_attempt(' . join(', ', @arguments) . ')');
	$self->note("evidence $told->{evidence_id} $told->{reference}") if $told && $told->{evidence_id};
	return;
}

1;
