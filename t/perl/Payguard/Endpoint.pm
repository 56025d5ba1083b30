package Payguard::Endpoint;

=pod

=head1 NAME

Payguard::Endpoint - takes events over HTTP, as a shop's own service would

=head1 DESCRIPTION

A server on 127.0.0.1 in a process of its own that keeps every request. It answers 204 unless told otherwise.

=cut

use strict;
use warnings;

use IO::Select;
use IO::Socket::INET;
use JSON::PP;
use POSIX ();
use PostgreSQL::Test::Utils;

my $number = 0;
my $json   = JSON::PP->new->canonical->utf8;

=pod

=over

=item Payguard::Endpoint->start

The object has the methods url, answer, requests and stop.

=cut

sub start
{
	my ($class) = @_;
	my $listener = IO::Socket::INET->new(Listen => 64, LocalAddr => '127.0.0.1', LocalPort => 0, ReuseAddr => 1)
	  or die "could not listen: $!\n";
	my $folder = PostgreSQL::Test::Utils::tempdir() . '/endpoint-' . ++$number;

	mkdir $folder or die "could not make $folder: $!\n";
	my $pid = fork // die "could not fork: $!\n";
	if ($pid == 0)
	{
		$SIG{$_} = 'DEFAULT' foreach qw(HUP INT TERM);
		$SIG{PIPE} = 'IGNORE';
		eval { serve($listener, $folder); 1 } or print STDERR $@;
		POSIX::_exit(0);
	}
	return bless { pid => $pid, owner => $$, port => $listener->sockport, folder => $folder }, $class;
}

sub serve
{
	my ($listener, $folder) = @_;
	my $select = IO::Select->new($listener);
	my (%data, @silent);

	open my $book, '>>', "$folder/requests" or die "could not record: $!\n";
	$book->autoflush(1);
	# The test's end ends the server, however that comes.
	my $parent = getppid;
	while (getppid == $parent)
	{
		foreach my $socket ($select->can_read(1))
		{
			if ($socket == $listener)
			{
				my $client = $listener->accept or next;
				$select->add($client);
				$data{$client} = '';
				next;
			}
			if (!sysread $socket, $data{$socket}, 65536, length $data{$socket})
			{
				$select->remove($socket);
				delete $data{$socket};
				close $socket;
				next;
			}
			my $request = whole_request(\$data{$socket}) or next;
			print $book $json->encode($request) . "\n";
			my $status = current_answer($folder);
			if ($status eq 'silence')
			{
				push @silent, $socket;
				next;
			}
			syswrite $socket, "HTTP/1.1 $status Told\r\nContent-Length: 0\r\n\r\n";
		}
	}
	return;
}

# Takes a request off the buffer when it is whole.
sub whole_request
{
	my ($buffer) = @_;

	$$buffer =~ /\A([A-Z]+) (\S+) [^\r\n]+\r\n((?:[^\r\n]+\r\n)*)\r\n/ or return;
	my ($method, $path, $lines, $start) = ($1, $2, $3, $+[0]);
	my %header = map { lc((split /: */, $_, 2)[0]) => (split /: */, $_, 2)[1] } split /\r\n/, $lines;
	my $length = $header{'content-length'} // 0;
	return if length($$buffer) < $start + $length;
	my $body = substr $$buffer, $start, $length;
	substr $$buffer, 0, $start + $length, '';
	return { method => $method, path => $path, headers => \%header, body => unpack('H*', $body) };
}

sub current_answer
{
	my ($folder) = @_;
	open my $file, '<', "$folder/answer" or return 204;
	my $status = <$file>;
	return $status;
}

=pod

=item answer(STATUS)

What every request is answered from now on: a status, or silence.

=cut

sub answer
{
	my ($self, $status) = @_;
	open my $file, '>', "$self->{folder}/answer.new" or die "could not write: $!\n";
	print $file $status;
	close $file;
	rename "$self->{folder}/answer.new", "$self->{folder}/answer" or die "could not rename: $!\n";
	return;
}

=pod

=item requests

All requests so far: method, path, headers (by small names), body.

=back

=cut

sub requests
{
	my ($self) = @_;
	my @requests = map { $json->decode($_) } grep { length } split /\n/,
	  PostgreSQL::Test::Utils::slurp_file("$self->{folder}/requests");
	$_->{body} = pack('H*', $_->{body}) foreach @requests;
	return @requests;
}

sub url { return "http://127.0.0.1:$_[0]->{port}" . ($_[1] // ''); }

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
