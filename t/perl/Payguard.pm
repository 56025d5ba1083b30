package Payguard;

=pod

=head1 NAME

Payguard - servers, gateways and receivers for payguard's TAP tests

=head1 SYNOPSIS

  use Payguard;

  my $sandbox = Payguard->sandbox;
  my $node = Payguard->new_node('main', databases => 'postgres');
  Payguard->create_gateway($node, 'postgres', $sandbox);
  $node->safe_psql('postgres', "SELECT payguard.create_order(...)");

=head1 DESCRIPTION

script/test says by environment variables where the built programs are (PAYGUARD_SANDBOX, PAYGUARD_RECEIVER,
PAYGUARD_STRIPE_MOCK) and by TEMP_CONFIG where a server finds the extension. What is started here listens on 127.0.0.1
only, is waited for no longer than PG_TEST_TIMEOUT_DEFAULT seconds, and is ended by its process id when its object goes
away or the test ends, however it ends.

=cut

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Payguard::Process;

# What the generic gateway and its sandbox share by default. The webhook secret is 24 bytes in base64.
our $API_KEY        = 'sandbox-key';
our $WEBHOOK_SECRET = 'whsec_cGF5Z3VhcmQtdGVzdC13ZWJob29rLWtl';

=pod

=over

=item Payguard->new_node(NAME, databases => LIST, conf => TEXT, start => BOOL, init => HASH)

A PostgreSQL::Test::Cluster with payguard preloaded, started unless start is 0. databases is the setting
payguard.databases, by default empty: then no worker runs. If it names postgres, the extension is created there. conf is
added to postgresql.conf. init goes to the node's init().

=back

=cut

sub new_node
{
	my ($class, $name, %param) = @_;
	my $databases = $param{databases} // '';

	my $node = PostgreSQL::Test::Cluster->new($name);
	$node->init(%{ $param{init} // {} });
	$node->append_conf('postgresql.conf', "payguard.databases = '$databases'\nmax_prepared_transactions = 16\n");
	# The shortest safety net, so that what depends on it takes a test a second and not five.
	$node->append_conf('postgresql.conf', "payguard.poll_interval = '1s'\n");
	$node->append_conf('postgresql.conf', $param{conf}) if defined $param{conf};
	return $node if exists $param{start} && !$param{start};

	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION payguard')
	  if grep { $_ eq 'postgres' } split /\s*,\s*/, $databases;
	return $node;
}

=pod

=over

=item Payguard->sandbox(args => [...], port => PORT)

=item Payguard->receiver(NODE, DATABASE, args => [...], port => PORT)

=item Payguard->stripe_mock(args => [...], port => PORT)

Start the test gateway, the receiver of callbacks, or the Stripe mock, and return a Payguard::Process that answers
requests: see port, url, stop and log there; the sandbox has a control_port and control_url as well. The receiver hands
what it gets at /callbacks/GATEWAY to payguard.apply_callback in the node's database. A port is
chosen unless given. args are further options of the program, such as '--fault', 'charge_then_silence=0.1'.

=back

=cut

sub sandbox
{
	my ($class, %param) = @_;
	return start_program(
		'sandbox',
		[ program('PAYGUARD_SANDBOX'), '--api-key', $API_KEY, '--webhook-secret', $WEBHOOK_SECRET ],
		control => 1,
		%param);
}

sub receiver
{
	my ($class, $node, $database, %param) = @_;
	return start_program(
		'receiver',
		[ program('PAYGUARD_RECEIVER'), '--conninfo', $node->connstr($database) ],
		%param);
}

sub stripe_mock
{
	my ($class, %param) = @_;
	return start_program('stripe-mock', [ 'node', program('PAYGUARD_STRIPE_MOCK') ], %param);
}

sub program
{
	my ($variable) = @_;

	my $path = $ENV{$variable} // die "$variable is not set: run the tests by script/test\n";
	-f $path or die "$variable: there is no $path\n";
	return $path;
}

sub start_program
{
	my ($name, $command, %param) = @_;
	my $id        = "$name-" . next_number();
	my $port_file = PostgreSQL::Test::Utils::tempdir() . "/$id.port";
	my @port      = ('--port', $param{port} // 0, '--port-file', $port_file);
	push @port, '--control-port', 0, '--control-port-file', "$port_file.control" if $param{control};

	return Payguard::Process->start(
		name              => $name,
		command           => [ @$command, @port, @{ $param{args} // [] } ],
		port_file         => $port_file,
		control_port_file => $param{control} ? "$port_file.control" : undef,
		log               => "$PostgreSQL::Test::Utils::log_path/$id.log",
		timeout           => $PostgreSQL::Test::Utils::timeout_default);
}

my $number = 0;

sub next_number
{
	return ++$number;
}

=pod

=over

=item Payguard->create_gateway(NODE, DATABASE, PROCESS or URL, name => 'shop', adapter => 'generic', options => HASH, api_key => TEXT, webhook_secret => TEXT)

Creates the foreign server and the PUBLIC user mapping that make a gateway. options are further options of the server.

=back

=cut

sub create_gateway
{
	my ($class, $node, $database, $gateway, %param) = @_;
	my $name = $param{name} // 'shop';
	my %server = (
		adapter  => $param{adapter} // 'generic',
		base_url => ref $gateway ? $gateway->url : $gateway,
		%{ $param{options} // {} });
	my %mapping = (
		api_key        => $param{api_key}        // $API_KEY,
		webhook_secret => $param{webhook_secret} // $WEBHOOK_SECRET);

	$node->safe_psql(
		$database,
		"CREATE SERVER $name FOREIGN DATA WRAPPER payguard OPTIONS (" . option_list(%server) . ");\n"
		  . "CREATE USER MAPPING FOR PUBLIC SERVER $name OPTIONS (" . option_list(%mapping) . ");");
	return $name;
}

sub option_list
{
	my (%option) = @_;
	return join ', ', map { "$_ " . quote_literal($option{$_}) } sort keys %option;
}

sub quote_literal
{
	my ($text) = @_;

	$text =~ s/'/''/g;
	return "'$text'";
}

1;
