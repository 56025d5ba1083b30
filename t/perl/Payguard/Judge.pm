package Payguard::Judge;

=pod

=head1 NAME

Payguard::Judge - compares payguard's books with those of the test gateway

=head1 SYNOPSIS

  my $judge = Payguard::Judge->new($shop);
  ok($judge->come_to_rest(60), 'every order is decided');
  is_deeply([ $judge->problems ], [], 'the books agree');

=head1 DESCRIPTION

After crashes and faults: the gateway's books say what really happened, and payguard's must say the same. Each problem is
one line of text.

=cut

use strict;
use warnings;

use HTTP::Tiny;
use POSIX qw(strftime);
use Time::HiRes qw(sleep time);

# Orders that are neither decided nor on the review list, and calls that wait.
my $UNDECIDED = "SELECT o.reference, o.status FROM payguard.orders o WHERE o.status IN ('processing', 'unknown')"
  . " AND NOT EXISTS (SELECT FROM payguard.reviews r WHERE r.order_id = o.id) ORDER BY o.reference";
my $WAITING = "SELECT o.reference, x.op, x.state, o.status FROM payguard.outbox x JOIN payguard.orders o ON o.id = x.order_id"
  . " WHERE x.next_run_at < 'infinity' AND NOT (o.status IN ('processing', 'unknown')"
  . " AND EXISTS (SELECT FROM payguard.reviews r WHERE r.order_id = o.id)) ORDER BY o.reference";
my $OPEN_REFUNDS = "SELECT o.reference, f.id, f.state FROM payguard.refunds f JOIN payguard.orders o ON o.id = f.order_id"
  . " WHERE f.state IN ('pending', 'submitted', 'processing', 'unknown')"
  . " AND NOT EXISTS (SELECT FROM payguard.reviews r WHERE r.order_id = o.id) ORDER BY o.reference";

sub new
{
	my ($class, $shop, %param) = @_;
	return bless { shop => $shop, since => time, %param }, $class;
}

=pod

=over

=item come_to_rest(SECONDS)

Waits until every order and refund is decided or on the review list, and no call waits. Questions that are planned for
later are asked now, and time is moved for attempts that the gateway does not find: it has settled by now, since no fault
is at work any more. Returns whether that came true in time; unrest() says what is left.

=item hasten

The moving of time alone.

=cut

sub come_to_rest
{
	my ($self, $seconds) = @_;
	my $deadline = time + $seconds;

	while (time < $deadline)
	{
		return 1 unless $self->unrest;
		$self->hasten;
		sleep 0.4;
	}
	return 0;
}

sub unrest
{
	my ($self) = @_;
	return map { $self->lines($_) } $UNDECIDED, $WAITING, $OPEN_REFUNDS;
}

sub hasten
{
	my ($self) = @_;

	$self->{shop}->sql(<<'SQL');
UPDATE payguard.attempts SET sent_at = sent_at - interval '2 min'
	WHERE state = 'unknown' AND call_by = 'worker' AND sent_at > now() - interval '90 s';
UPDATE payguard.attempts SET lease_until = lease_until - interval '2 min'
	WHERE state = 'unknown' AND call_by = 'application' AND lease_until BETWEEN now() - interval '90 s' AND now();
UPDATE payguard.outbox SET next_run_at = now()
	WHERE op IN ('query', 'refund_query', 'close') AND state = 'ready' AND next_run_at > now() + interval '1 s' AND next_run_at < 'infinity';
SQL
	return;
}

=pod

=item problems

What is wrong, once all is at rest.

=back

=cut

sub problems
{
	my ($self) = @_;

	return (
		$self->charged_twice, $self->charges_differ, $self->refunds_differ,
		$self->paid_events_differ, (map { "check(): $_" } $self->lines('SELECT * FROM payguard.check()')),
		(map { "not at rest: $_" } $self->unrest), $self->callbacks_left);
}

sub lines
{
	my ($self, $query) = @_;
	return split /\n/, $self->{shop}->sql($query);
}

sub csv
{
	my ($self, $path) = @_;
	my $sandbox  = $self->{shop}{sandbox};
	my $response = HTTP::Tiny->new(timeout => 60, keep_alive => 0)
	  ->get($sandbox->url($path), { headers => { Authorization => "Bearer $Payguard::API_KEY" } });

	$response->{success} or die "$path: $response->{status} $response->{content}\n";
	my ($header, @lines) = split /\n/, $response->{content};
	my @names = split /,/, $header;
	my @rows;
	foreach my $line (@lines)
	{
		my %row;
		@row{@names} = split /,/, $line, -1;
		push @rows, \%row;
	}
	return @rows;
}

sub charged_twice
{
	my ($self) = @_;
	return map { "charged twice: $_->{order}, $_->{charges} charges" }
	  grep { $_->{charges} > 1 } $self->csv('/_sandbox/orders.csv');
}

# All that moved money at the gateway since the test began, by kind.
sub gateway_lines
{
	my ($self, $type, $status) = @_;
	my %days = map { strftime('%Y-%m-%d', gmtime $_) => 1 } $self->{since}, time;

	return grep { $_->{type} eq $type && $_->{status} eq $status }
	  map { $self->csv("/settlements/$_.csv") } sort keys %days;
}

sub charges_differ
{
	my ($self) = @_;
	my %there = map { $_->{transaction_id} => "$_->{reference} $_->{amount} $_->{currency}" }
	  $self->gateway_lines('charge', 'paid');
	my %here = map { (split /\|/)[ 0, 1 ] } $self->lines(
		"SELECT p.provider_id, concat_ws(' ', coalesce(a.gateway_reference, o.reference), round(p.amount, 2), p.currency)"
		  . " FROM payguard.payments p JOIN payguard.orders o ON o.id = p.order_id"
		  . " LEFT JOIN payguard.attempts a ON a.order_id = p.order_id AND a.no = p.attempt_no");

	$self->{charges} = keys %there;
	return compare('charge', \%there, \%here);
}

sub refunds_differ
{
	my ($self) = @_;
	my %there = map { $_->{transaction_id} => "$_->{charge_id} $_->{amount} $_->{currency}" }
	  $self->gateway_lines('refund', 'succeeded');
	my %here = map { (split /\|/)[ 0, 1 ] } $self->lines(
		"SELECT f.provider_id, concat_ws(' ', f.charge_id, round(f.amount, 2), o.currency) FROM payguard.refunds f"
		  . " JOIN payguard.orders o ON o.id = f.order_id WHERE f.state = 'succeeded'");

	$self->{refunds} = keys %there;
	return compare('refund', \%there, \%here);
}

sub compare
{
	my ($what, $there, $here) = @_;
	my @problems;

	foreach my $id (sort keys %{ { %$there, %$here } })
	{
		my ($t, $h) = ($there->{$id}, $here->{$id});
		push @problems,
		    !defined $h ? "$what only at the gateway: $id $t"
		  : !defined $t ? "$what only in payguard: $id $h"
		  : $t ne $h    ? "$what differs: $id, gateway $t, payguard $h"
		  :               ();
	}
	return @problems;
}

# What hangs on an event runs once for each counted payment.
sub paid_events_differ
{
	my ($self) = @_;
	return map { "events: $_" } $self->lines(
		    "SELECT o.reference, o.status, count(v.seq) || ' times order.paid' FROM payguard.orders o"
		  . " LEFT JOIN payguard.events v ON v.aggregateid = o.reference AND v.type = 'order.paid'"
		  . " GROUP BY o.id HAVING count(v.seq) <> (o.status IN ('paid', 'refunded', 'reversed'))::int");
}

sub callbacks_left
{
	my ($self) = @_;
	my $summary = $self->{shop}->summary;
	my @problems;

	push @problems, "callbacks under way: $summary->{callbacks_pending}" if $summary->{callbacks_pending};
	push @problems, "callbacks given up: $summary->{callbacks_failed}" if $summary->{callbacks_failed};
	return @problems;
}

1;
