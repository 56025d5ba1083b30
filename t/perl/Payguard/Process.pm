package Payguard::Process;

=pod

=head1 NAME

Payguard::Process - one program that a test started

=head1 DESCRIPTION

Starts a program that writes the port it listens on to a file (and that of its control interface, if it has one, to
another), waits for that, and ends the program by its process id: by stop, when the object goes away, or at the end of
the test. Every wait has a limit.

=cut

use strict;
use warnings;

use POSIX ();
use Scalar::Util qw(weaken);
use Time::HiRes qw(sleep time);

# Seconds between asking a program to end and making it end.
use constant GRACE => 5;

# Every process that this test started and that may still run, by process id.
my %running;

sub start
{
	my ($class, %param) = @_;
	my $self = bless {%param}, $class;

	unlink grep { defined } @$self{qw(port_file control_port_file)};
	$self->run;
	eval { $self->wait_for_ports; 1 } or do
	{
		my $error = $@;
		$self->stop;
		die $error;
	};
	return $self;
}

sub run
{
	my ($self) = @_;

	my $pid = fork // die "could not fork: $!\n";
	become($self->{command}, $self->{log}) if $pid == 0;
	$self->{pid} = $pid;
	# The end of the test must still see the process, without keeping the object alive until then.
	weaken($running{$pid} = $self);
	return;
}

# In the child: never returns, and never runs the test's END blocks and destructors.
sub become
{
	my ($command, $log) = @_;

	open STDIN, '<', '/dev/null' or POSIX::_exit(126);
	open STDOUT, '>>', $log or POSIX::_exit(126);
	open STDERR, '>&', \*STDOUT or POSIX::_exit(126);
	$SIG{$_} = 'DEFAULT' foreach qw(HUP INT TERM PIPE);
	{
		no warnings 'exec';
		exec { $command->[0] } @$command;
	}
	print STDERR "could not execute $command->[0]: $!\n";
	POSIX::_exit(127);
}

sub wait_for_ports
{
	my ($self) = @_;

	$self->{port} = $self->wait_for_port($self->{port_file});
	$self->{control_port} = $self->wait_for_port($self->{control_port_file}) if $self->{control_port_file};
	return;
}

sub wait_for_port
{
	my ($self, $file) = @_;
	my $deadline = time + $self->{timeout};

	while (time < $deadline)
	{
		if (open my $handle, '<', $file)
		{
			# A program may write the file in two steps; the line's end says that it is whole.
			my $line = <$handle> // '';
			return $1 if $line =~ /^(\d+)\n/;
		}
		die "$self->{name} ended before it listened:\n" . $self->log . "\n" unless $self->is_running;
		sleep 0.02;
	}
	die "$self->{name} did not listen within $self->{timeout} s:\n" . $self->log . "\n";
}

=pod

=over

=item port, pid, url(PATH)

The port, the process id, and http://127.0.0.1:PORT followed by PATH.

=item control_port, control_url(PATH)

The same for the control interface, which no fault touches.

=item is_running

=item log

All that the program printed.

=item signal(NAME)

Sends a signal, for example STOP and CONT to make a gateway hang.

=item stop

Ends the program and waits for it. Does nothing if it has ended.

=back

=cut

sub port { return $_[0]->{port}; }
sub pid  { return $_[0]->{pid}; }

sub url
{
	my ($self, $path) = @_;
	return "http://127.0.0.1:$self->{port}" . ($path // '');
}

sub control_port { return $_[0]->{control_port}; }

sub control_url
{
	my ($self, $path) = @_;
	return "http://127.0.0.1:$self->{control_port}" . ($path // '');
}

sub log
{
	my ($self) = @_;

	open my $handle, '<', $self->{log} or return '';
	local $/;
	return scalar(<$handle>) // '';
}

sub is_running
{
	my ($self) = @_;

	return 0 unless $self->{pid};
	return 1 if waitpid($self->{pid}, POSIX::WNOHANG()) == 0;
	# Once it has been waited for, its process id may belong to another.
	delete $running{ $self->{pid} };
	$self->{pid} = undef;
	return 0;
}

sub signal
{
	my ($self, $name) = @_;
	return $self->is_running && kill $name, $self->{pid};
}

sub stop
{
	my ($self) = @_;
	local ($?, $!, $@);

	# A stopped process gets CONT as well, since it would not see TERM.
	$self->signal($_) foreach qw(TERM CONT);
	return if $self->ends_within(GRACE);
	$self->signal('KILL');
	$self->ends_within(GRACE);
	return;
}

sub ends_within
{
	my ($self, $seconds) = @_;
	my $deadline = time + $seconds;

	while ($self->is_running)
	{
		return 0 if time > $deadline;
		sleep 0.01;
	}
	return 1;
}

# A forked child of the test (background_psql and the like) has a copy of the object, but not the process.
sub DESTROY
{
	my ($self) = @_;
	$self->stop if $self->{pid};
	return;
}

END
{
	$_->stop foreach grep { defined } values %running;
}

1;
