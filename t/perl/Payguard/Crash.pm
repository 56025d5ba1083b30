package Payguard::Crash;

=pod

=head1 NAME

Payguard::Crash - has a server die at a named point, and brings it back

=head1 SYNOPSIS

  my $crash = Payguard::Crash->new($node, 'postgres');
  $crash->arm('booked_not_committed', who => 'server');
  ...
  $crash->wait_until_hit;
  $crash->recover;

=head1 DESCRIPTION

See src/core/crashpoint.h for the setting payguard.crash_at. Waits end after PG_TEST_TIMEOUT_DEFAULT seconds.

=cut

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Time::HiRes qw(sleep time);

sub new
{
	my ($class, $node, $database) = @_;
	my $self = bless { node => $node, database => $database }, $class;

	return $self;
}

=pod

=over

=item arm(POINT, nth => N, who => 'process' | 'postmaster' | 'server')

For all processes of the server. That the point was hit before is forgotten.

=item expect(POINT)

The same for a session that sets the point by itself.

=item disarm

=item hit

Was the point hit since?

=item wait_until_hit(SECONDS)

=cut

sub setting
{
	my ($class, $point, %param) = @_;
	return join ':', $point, $param{nth} // 1, $param{who} // 'process';
}

sub arm
{
	my ($self, $point, %param) = @_;

	$self->expect($point);
	$self->set($self->setting($point, %param));
	return;
}

sub expect
{
	my ($self, $point) = @_;

	$self->{file} = $self->{node}->data_dir . "/payguard_crashed.$point";
	unlink $self->{file};
	return;
}

# The file stays: processes that have not read the configuration yet may come to the point once more.
sub disarm
{
	my ($self) = @_;

	$self->set('');
	return;
}

sub set
{
	my ($self, $value) = @_;

	$self->{node}->safe_psql($self->{database}, "ALTER SYSTEM SET payguard.crash_at = '$value'");
	$self->{node}->safe_psql($self->{database}, 'SELECT pg_reload_conf()');
	return;
}

sub hit
{
	my ($self) = @_;
	return -e $self->{file};
}

sub wait_until_hit
{
	my ($self, $seconds) = @_;
	my $deadline = time + ($seconds // $PostgreSQL::Test::Utils::timeout_default);

	while (time < $deadline)
	{
		return 1 if $self->hit;
		sleep 0.02;
	}
	return 0;
}

=pod

=item recover

Waits until the server takes connections again, and starts it where its postmaster is gone.

=item try(TEXT)

Exit code, output and errors of psql for statements at which the server may die, or may be dead.

=item kill_postmaster

kill -9, without a start.

=back

=cut

sub try
{
	my ($self, $text) = @_;
	my @result = (2, '', '');

	# One that ends before it has read its input raises an error.
	eval { @result = $self->{node}->psql($self->{database}, $text, timeout => 30); };
	return @result;
}

sub is_up
{
	my ($self) = @_;
	my ($code) = $self->try('SELECT 1');
	return $code == 0;
}

sub postmaster_is_gone
{
	my ($self) = @_;
	return !defined $self->{node}{_pid} || !kill 0, $self->{node}{_pid};
}

sub kill_postmaster
{
	my ($self) = @_;

	$self->{node}->kill9 unless $self->postmaster_is_gone;
	return;
}

sub recover
{
	my ($self) = @_;
	my $node     = $self->{node};
	my $deadline = time + $PostgreSQL::Test::Utils::timeout_default;

	while (time < $deadline)
	{
		if ($self->postmaster_is_gone)
		{
			# Its children notice within moments; until then no other can start.
			$node->{_pid} = undef;
			return if $node->start(fail_ok => 1);
		}
		else
		{
			return if $self->is_up;
		}
		sleep 0.1;
	}
	die "the server did not come back\n";
}

1;
