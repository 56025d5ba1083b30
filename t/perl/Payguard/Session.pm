package Payguard::Session;

=pod

=head1 NAME

Payguard::Session - a connection that may break, as an application sees it

=head1 SYNOPSIS

  my $session = Payguard::Session->new($node->connstr('postgres'));
  my $rows = $session->query('SELECT ...');

=head1 DESCRIPTION

A psql that is fed through a pipe. When the connection is lost, the answer is undef, which says nothing about whether the
statement was done, and the next query connects again, for as long as the server takes.

=cut

use strict;
use warnings;

use IPC::Open2;
use Time::HiRes qw(sleep time);

# Seconds for one answer, and for a server to come back.
use constant PATIENCE => 60;

sub new
{
	my ($class, $connstr, %param) = @_;
	return bless { connstr => $connstr, setup => $param{setup} // 'SELECT 1', number => 0 }, $class;
}

sub connect
{
	my ($self) = @_;
	my $deadline = time + PATIENCE;

	while (time < $deadline)
	{
		my ($out, $in);
		local $ENV{PGCONNECT_TIMEOUT} = 10;
		my $pid = open2($out, $in, 'sh', '-c', 'exec psql -XAtq -v VERBOSITY=verbose -d "$0" 2>&1', $self->{connstr});
		$in->autoflush(1);
		@$self{qw(pid in out)} = ($pid, $in, $out);
		return 1 if defined $self->ask($self->{setup});
		$self->close;
		sleep 0.2;
	}
	return 0;
}

=pod

=over

=item query(TEXT)

The output's rows, as an array of lines; undef when the connection was lost. error() is the last statement's SQLSTATE and
message, or empty.

=item close, is_open

=back

=cut

sub query
{
	my ($self, $text) = @_;

	return undef unless $self->is_open || $self->connect;
	my $rows = $self->ask($text);
	$self->close unless defined $rows;
	return $rows;
}

sub ask
{
	my ($self, $text) = @_;
	my $mark = "-- answered " . ++$self->{number};
	my @rows;
	local $SIG{PIPE} = 'IGNORE';

	$self->{error} = '';
	print { $self->{in} } "$text;\n\\echo '$mark'\n" or return undef;
	my $is_whole = eval {
		local $SIG{ALRM} = sub { die "no answer\n" };
		alarm PATIENCE;
		while (defined(my $line = readline $self->{out}))
		{
			chomp $line;
			return 1 if $line eq $mark;
			# An administrator's command, or the end of the server, ends the session.
			return 0 if $line =~ /^(?:psql:.*?: )?(?:FATAL|PANIC): |server closed the connection|connection to server|terminating connection/;
			if ($line =~ /(?:^|: )ERROR: +(\w{5}: .*)/) { $self->{error} = $1; }
			elsif ($line !~ /^(?:psql:|DETAIL:|HINT:|LOCATION:|LINE \d|CONTEXT:|\s*\^$|NOTICE:|WARNING:)/) { push @rows, $line; }
		}
		return 0;
	};
	alarm 0;
	return $is_whole ? \@rows : undef;
}

sub error { return $_[0]->{error}; }

sub is_open { return defined $_[0]->{pid}; }

sub close
{
	my ($self) = @_;
	local $?;

	return unless $self->{pid};
	CORE::close $self->{in};
	CORE::close $self->{out};
	kill 'TERM', $self->{pid};
	waitpid $self->{pid}, 0;
	$self->{pid} = undef;
	return;
}

sub DESTROY { $_[0]->close; return; }

1;
