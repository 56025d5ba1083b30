
# libcurl repeats a POST by itself when a connection that it reused dies before the answer. The worker's guard stops it: one
# arrival at the gateway, whatever became of the connection.

use strict;
use warnings;

use Payguard;
use Payguard::Shop;
use PostgreSQL::Test::Utils;
use Test::More;

# One thread and one call at a time: every call but the first reuses the connection.
my $sandbox = Payguard->sandbox(args => [ '--threads', 1 ]);
my $node    = Payguard->new_node('main', databases => 'postgres');
Payguard->create_gateway($node, 'postgres', $sandbox,
	options => { max_in_flight => 1, total_timeout => '2s', query_schedule => '200ms,500ms,1s,1s,1s,1s' });
my $shop = Payguard::Shop->new($node, 'postgres', $sandbox);

my $guarded = 0;
foreach my $fault (qw(charge_then_fin charge_then_rst))
{
	foreach my $round (1 .. 5)
	{
		my $warm      = uc "WARM-$round-" . substr $fault, -3;
		my $reference = uc "DIES-$round-" . substr $fault, -3;

		# The query or charge before it leaves a connection behind.
		$shop->pay($warm);
		$shop->wait_for($warm, 'paid');
		$shop->plan($reference, $fault);
		$shop->pay($reference);
		$shop->wait_for($reference, 'paid');
		is($shop->arrivals($reference), 1, "$fault, round $round: one request arrived");
		is($shop->charged($reference), 1, "$fault, round $round: charged once");
		is($shop->summary->{charge_arrivals}, $shop->sql("SELECT count(*) FROM payguard.attempts"),
			"$fault, round $round: no other request arrived");
		my $transport = $shop->evidence($reference, "concat(e.transport->>'prereq', '/', e.transport->>'curl')");
		$guarded++ if $transport =~ m{^2/42 };
	}
}
is($guarded, 10, 'libcurl wanted to send each of them again, and was stopped');

# A query may be repeated, but is stopped as well: the guard knows no exceptions.
$shop->plan('QUERY-01', 'charge_then_fin');
$shop->plan('QUERY-01', 'query.then_fin');
$shop->pay('QUERY-01');
$shop->wait_for('QUERY-01', 'paid');
is($shop->arrivals('QUERY-01'), 1, 'one charge request although query and charge lost their connections');

is($shop->summary->{orders_charged_twice_ever}, 0, 'the gateway charged no order twice');
is($shop->summary->{replays}, 0, 'and saw no key twice');
$shop->is_healthy;

done_testing();
