package Payguard::Shop;

=pod

=head1 NAME

Payguard::Shop - a database with payguard, and what tests ask of it and of the test gateway

=head1 SYNOPSIS

  my $shop = Payguard::Shop->new($node, 'postgres', $sandbox);
  $shop->plan('LOST01', 'charge_then_fin');
  $shop->pay('LOST01');
  $shop->wait_for('LOST01', 'paid');
  is($shop->evidence('LOST01'), 'answer:unknown query:paid');
  is($shop->charged('LOST01'), 1);

=head1 DESCRIPTION

Every order is one of 399.00 CNY unless a test says otherwise. Waits end after PG_TEST_TIMEOUT_DEFAULT seconds.

=cut

use strict;
use warnings;

use HTTP::Tiny;
use JSON::PP;
use PostgreSQL::Test::Utils;
use Test::More import => [qw(diag is ok)];

my $json = JSON::PP->new->canonical->utf8;
my $http = HTTP::Tiny->new(timeout => 60, keep_alive => 0);

sub new
{
	my ($class, $node, $database, $sandbox, %param) = @_;
	return bless { node => $node, database => $database, sandbox => $sandbox, gateway => 'shop', %param }, $class;
}

=pod

=over

=item sql(TEXT), fails(TEXT)

The statement's output, or its SQLSTATE and message.

=cut

sub sql
{
	my ($self, $text) = @_;
	return $self->{node}->safe_psql($self->{database}, $text);
}

sub fails
{
	my ($self, $text) = @_;
	my ($code, undef, $error) =
	  $self->{node}->psql($self->{database}, $text, extra_params => [ '-v', 'VERBOSITY=verbose' ], on_error_stop => 1);
	return $code == 0 ? '' : $error =~ /ERROR: +(\w{5}: [^\n]*)/ ? $1 : $error;
}

=pod

=item order(REFERENCE, amount => '399.00', currency => 'CNY', gateway => NAME)

=item claim(REFERENCE, key => TEXT, payment => HASH, call_by => 'worker')

=item pay(REFERENCE, ...)

create_order, claim_order, and both in one transaction. claim returns the columns claimed, verdict, status, attempt_no as one
text; the default key is the reference followed by -1.

=cut

sub order_sql
{
	my ($self, $reference, %param) = @_;
	return sprintf "SELECT (payguard.create_order(%s, '%s', %s, '%s')).reference",
	  $param{amount} // '399.00', $param{currency} // 'CNY', "'" . ($param{gateway} // $self->{gateway}) . "'", $reference;
}

sub claim_sql
{
	my ($self, $reference, %param) = @_;
	my $payment = $json->encode($param{payment} // {});

	$payment =~ s/'/''/g;
	return sprintf "SELECT c.claimed, c.verdict, c.status, c.attempt_no FROM payguard.claim_order('%s', '%s', %s, '%s', '%s') AS c",
	  $reference, $param{key} // "$reference-1", $param{gateway} ? "'$param{gateway}'" : 'NULL', $param{call_by} // 'worker',
	  $payment;
}

sub order
{
	my ($self, $reference, %param) = @_;
	return $self->sql($self->order_sql($reference, %param));
}

sub claim
{
	my ($self, $reference, %param) = @_;
	return $self->sql($self->claim_sql($reference, %param));
}

sub pay
{
	my ($self, $reference, %param) = @_;
	$self->sql("BEGIN;\n" . $self->order_sql($reference, %param) . ";\n" . $self->claim_sql($reference, %param) . ";\nCOMMIT;");
	return $reference;
}

=pod

=item status(REFERENCE), wait_for(REFERENCE, STATUS), wait_until(QUERY)

wait_for is an assertion. When the time is up it shows the order's story.

=cut

sub status
{
	my ($self, $reference) = @_;
	return $self->sql("SELECT status FROM payguard.orders WHERE reference = '$reference'");
}

sub wait_for
{
	my ($self, $reference, $status, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	my $came =
	  $self->wait_until("SELECT status = '$status' FROM payguard.orders WHERE reference = '$reference'");
	ok($came, $name // "$reference becomes $status") or $self->tell($reference);
	return $came;
}

sub wait_until
{
	my ($self, $query) = @_;
	return $self->{node}->poll_query_until($self->{database}, $query);
}

sub tell
{
	my ($self, $reference) = @_;
	diag($self->sql("SELECT * FROM payguard.why('$reference')"));
	return;
}

=pod

=item evidence(REFERENCE, FORMAT)

All evidence about an order in order of arrival, in one line; each piece is source:result, or what the SQL expression FORMAT
makes of the row e.

=cut

sub evidence
{
	my ($self, $reference, $format) = @_;

	$format //= "e.source || ':' || e.result";
	return $self->sql("SELECT string_agg($format, ' ' ORDER BY e.id) FROM payguard.evidence e"
		  . " JOIN payguard.orders o ON o.id = e.order_id WHERE o.reference = '$reference'");
}

=pod

=item is_healthy(NAME)

An assertion: check() has no rows.

=cut

sub is_healthy
{
	my ($self, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is($self->sql('SELECT * FROM payguard.check()'), '', $name // 'check() has no rows');
}

=pod

=item get(PATH), post(PATH, HASH)

A control command of the sandbox; returns the decoded answer.

=item plan(REFERENCE, FAULT, times => N, ms => N)

=item books(ORDER), charged(ORDER), arrivals(ORDER)

What the sandbox knows about an order, how often it moved money for it, and how many charge requests it read.

=item summary

=back

=cut

sub get
{
	my ($self, $path) = @_;
	return answer($path, $http->get($self->{sandbox}->control_url($path)));
}

sub post
{
	my ($self, $path, $body) = @_;
	return answer($path,
		$http->post($self->{sandbox}->control_url($path),
			{ content => $json->encode($body // {}), headers => { 'Content-Type' => 'application/json' } }));
}

sub answer
{
	my ($path, $response) = @_;

	return undef if $response->{status} == 404;
	$response->{success} or die "$path: $response->{status} $response->{content}\n";
	return $json->decode($response->{content});
}

sub plan
{
	my ($self, $reference, $fault, %param) = @_;
	return $self->post("/_sandbox/faults/$reference", { fault => $fault, times => 1, %param });
}

sub books
{
	my ($self, $order) = @_;
	return $self->get("/_sandbox/orders/$order");
}

sub charged
{
	my ($self, $order) = @_;
	return ($self->books($order) // {})->{charges} // 0;
}

sub arrivals
{
	my ($self, $order) = @_;
	return ($self->books($order) // {})->{arrivals} // 0;
}

sub summary
{
	my ($self) = @_;
	return $self->get('/_sandbox/summary');
}

1;
