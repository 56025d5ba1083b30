package Payguard::Recorder;

=pod

=head1 NAME

Payguard::Recorder - sees every byte that goes to a test gateway

=head1 DESCRIPTION

A relay on 127.0.0.1 in a process of its own: what a client sends is passed on as it comes, and kept; answers are passed
back. When one side closes, so does the relay.

=cut

use strict;
use warnings;

use IO::Select;
use IO::Socket::INET;
use POSIX ();
use PostgreSQL::Test::Utils;

my $number = 0;

=pod

=over

=item Payguard::Recorder->start(PORT)

Relays to that port; the object has the methods url, requests and stop.

=cut

sub start
{
	my ($class, $port) = @_;
	my $listener = IO::Socket::INET->new(Listen => 64, LocalAddr => '127.0.0.1', LocalPort => 0, ReuseAddr => 1)
	  or die "could not listen: $!\n";
	my $folder = PostgreSQL::Test::Utils::tempdir() . '/recorded-' . ++$number;

	mkdir $folder or die "could not make $folder: $!\n";
	my $pid = fork // die "could not fork: $!\n";
	if ($pid == 0)
	{
		$SIG{$_} = 'DEFAULT' foreach qw(HUP INT TERM);
		$SIG{PIPE} = 'IGNORE';
		eval { relay($listener, $port, $folder); 1 } or print STDERR $@;
		POSIX::_exit(0);
	}
	return bless { pid => $pid, owner => $$, port => $listener->sockport, folder => $folder }, $class;
}

sub relay
{
	my ($listener, $port, $folder) = @_;
	my $select = IO::Select->new($listener);
	my (%peer, %file, $count);

	# The test's end ends the relay, however that comes.
	my $parent = getppid;
	while (getppid == $parent)
	{
		foreach my $socket ($select->can_read(1))
		{
			if ($socket == $listener)
			{
				my $client = $listener->accept or next;
				my $server = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port);
				if (!$server)
				{
					close $client;
					next;
				}
				open my $file, '>', sprintf("$folder/%06d", ++$count) or die "could not record: $!\n";
				$file->autoflush(1);
				$peer{$client} = $server;
				$peer{$server} = $client;
				$file{$client} = $file;
				$select->add($client, $server);
				next;
			}
			my $other = $peer{$socket} or next;
			my $read  = sysread $socket, my $data, 65536;
			if ($read)
			{
				print { $file{$socket} } $data if $file{$socket};
				while (length $data)
				{
					my $written = syswrite $other, $data or last;
					substr $data, 0, $written, '';
				}
				next;
			}
			$select->remove($socket, $other);
			delete @peer{ $socket, $other };
			delete @file{ $socket, $other };
			close $socket;
			close $other;
		}
	}
	return;
}

=pod

=item requests(PATTERN)

Every request whose bytes match, whole, in no particular order across connections.

=back

=cut

sub requests
{
	my ($self, $pattern) = @_;
	my @requests;

	foreach my $path (sort glob "$self->{folder}/*")
	{
		my $data = PostgreSQL::Test::Utils::slurp_file($path);
		while ($data =~ /\G([A-Z]+ [^\r\n]+\r\n(?:[^\r\n]+\r\n)*\r\n)/gc)
		{
			my $request = $1;
			if ($request =~ /^Content-Length: *(\d+)/mi)
			{
				my $start = pos $data;
				$request .= substr $data, $start, $1;
				pos($data) = $start + $1;
			}
			push @requests, $request if !defined $pattern || $request =~ $pattern;
		}
	}
	return @requests;
}

sub url { return "http://127.0.0.1:$_[0]->{port}"; }

sub stop
{
	my ($self) = @_;
	local $?;

	return unless $self->{pid} && $self->{owner} == $$;
	kill 'TERM', $self->{pid};
	waitpid $self->{pid}, 0;
	$self->{pid} = undef;
	return;
}

sub DESTROY { $_[0]->stop; return; }

1;
