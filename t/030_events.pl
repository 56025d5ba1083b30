
# Events: each once for each consumer, whatever happens to its sessions; nothing is lost that commits late, and what was
# delivered long ago costs nothing. Logical decoding gives exactly the events. Endpoints get them at least once, signed.

use strict;
use warnings;

use Digest::SHA qw(hmac_sha256_base64);
use JSON::PP;
use MIME::Base64;
use Payguard;
use Payguard::Endpoint;
use Payguard::Shop;
use PostgreSQL::Test::Utils;
use Test::More;

my $sandbox = Payguard->sandbox;
my $node    = Payguard->new_node(
	'main',
	databases => 'postgres',
	conf      => "wal_level = logical\nautovacuum = off\npayguard.log_calls = on\n");
Payguard->create_gateway($node, 'postgres', $sandbox);
my $shop = Payguard::Shop->new($node, 'postgres', $sandbox);

# --- a publication, and slots from before the first event

$shop->sql("CREATE PUBLICATION payguard_events FOR TABLE payguard.events WITH (publish = 'insert')");
$shop->sql("SELECT pg_create_logical_replication_slot('debezium', 'pgoutput')");
# Newer minor releases let only trusted plugins decode.
if ($shop->sql("SELECT count(*) FROM pg_settings WHERE name = 'output_plugin_libraries'"))
{
	$node->append_conf('postgresql.conf', "output_plugin_libraries = 'pgoutput, test_decoding, wal2json'");
	$node->reload;
}
my $has_wal2json = $shop->fails("SELECT pg_create_logical_replication_slot('json', 'wal2json')") eq '';

# --- a consumer

$shop->pay("FIRST-$_") foreach 1 .. 3;
$shop->wait_for("FIRST-$_", 'paid') foreach 1 .. 3;
is(join(' ', sort split /\n/, $shop->sql("SELECT aggregateid FROM payguard.next_events('mail')")),
	'FIRST-1 FIRST-2 FIRST-3', 'a consumer gets the events');
is($shop->sql("SELECT count(*) FROM payguard.next_events('mail')"), 0, 'once');

# --- events that commit late, and the floor

# An event of its own type about a real order and with a real cause, so that check() finds nothing wrong with it.
my $event = "INSERT INTO payguard.events (cause, aggregatetype, aggregateid, type, payload)"
  . " SELECT v.cause, 'order', v.aggregateid, 'test.' || nextval('kind'), '{}' FROM payguard.events v, generate_series(1, %d)"
  . " WHERE v.aggregateid = 'FIRST-1' AND v.type = 'order.paid'";
$shop->sql('CREATE SEQUENCE kind');

sub drain
{
	my ($consumer, $max) = @_;
	my $total = 0;
	while (my $count = $shop->sql("SELECT count(*) FROM payguard.next_events('$consumer', $max)"))
	{
		$total += $count;
	}
	return $total;
}

sub row_reads
{
	return $shop->sql("SELECT pg_stat_force_next_flush(); SELECT sum(n) FROM (SELECT seq_tup_read AS n FROM pg_stat_all_tables"
		  . " WHERE schemaname = 'payguard' AND relname IN ('events', 'event_deliveries') UNION ALL SELECT idx_tup_read FROM pg_stat_all_indexes"
		  . " WHERE schemaname = 'payguard' AND relname IN ('events', 'event_deliveries')) AS r") =~ s/^\n//r;
}

sub floor_of
{
	my ($consumer) = @_;
	return $shop->sql("SELECT floor FROM payguard.event_consumers WHERE consumer = '$consumer'") || 0;
}

my $writer = $node->background_psql('postgres');

sub tell_writer
{
	my ($statement) = @_;
	return $writer->query_safe($statement);
}

tell_writer('BEGIN; ' . sprintf($event, 1) . ';');
my $held = $shop->sql("SELECT last_value FROM payguard.events_seq_seq");
$shop->sql('BEGIN; ' . sprintf($event, 1) . "; PREPARE TRANSACTION 'late';");
my $prepared = $held + 1;
$shop->sql(sprintf($event, 1000));
is(drain('mail', 50), 1000, 'what is committed is delivered');
$shop->sql(sprintf($event, 300));
is(drain('mail', 50), 300, 'while two transactions hold lower numbers');
cmp_ok(floor_of('mail'), '<', $held, 'the floor stays below them');
tell_writer('COMMIT;');
is($shop->sql("SELECT seq FROM payguard.next_events('mail')"), $held, 'the one that commits late is delivered');
$shop->sql(sprintf($event, 300));
is(drain('mail', 50), 300, 'and more');
cmp_ok(floor_of('mail'), '<', $prepared, 'the floor stays below a prepared transaction');
$shop->sql("COMMIT PREPARED 'late'");
is($shop->sql("SELECT seq FROM payguard.next_events('mail')"), $prepared, 'whose event is delivered, too');

# An old transaction id may write a number that is higher than that of a young one.
tell_writer('BEGIN; SELECT txid_current();');
$shop->sql('BEGIN; ' . sprintf($event, 1) . "; PREPARE TRANSACTION 'young';");
my $young = $shop->sql("SELECT last_value FROM payguard.events_seq_seq");
tell_writer(sprintf($event, 400) . '; COMMIT;');
is(drain('mail', 50), 400, 'a transaction with an old id and high numbers');
drain('mail', 50) foreach 1 .. 3;
cmp_ok(floor_of('mail'), '<', $young, 'does not lift the floor over a young one with a lower number');
$shop->sql("COMMIT PREPARED 'young'");
is($shop->sql("SELECT seq FROM payguard.next_events('mail')"), $young, 'which is delivered');

$shop->sql(sprintf($event, 20000));
is(drain('mail', 1000), 20000, 'many events');
drain('mail', 100) foreach 1 .. 3;
$shop->sql('VACUUM ANALYZE payguard.events, payguard.event_deliveries');
my $before = row_reads();
is($shop->sql("SELECT count(*) FROM payguard.next_events('mail')"), 0, 'all are delivered');
cmp_ok(row_reads() - $before, '<', 2000, 'a call looks at few of what was delivered long ago');
cmp_ok($shop->sql("SELECT max(seq) FROM payguard.events") - floor_of('mail'), '<', 500, 'the floor is near');
$shop->sql("DELETE FROM payguard.event_deliveries d USING payguard.event_consumers c WHERE c.consumer = d.consumer AND d.event <= c.floor");
is(drain('mail', 1000), 0, 'rows below the floor may be purged');
cmp_ok($shop->sql("SELECT count(*) FROM payguard.event_deliveries WHERE consumer = 'mail'"), '<', 500, 'which leaves few');

# --- rivals: many sessions of one consumer, some of which fail, while events are written

$shop->sql('CREATE TABLE sink (consumer text, id uuid, seq bigint)');
drain('crowd', 1000);
my $since = $shop->sql("SELECT max(seq) FROM payguard.events");
my $number = 0;
foreach my $level ('read committed', 'repeatable read', 'serializable')
{
	$number++;
	local $ENV{PGOPTIONS} = '-c default_transaction_isolation=' . $level =~ s/ /\\ /r;
	$node->pgbench(
		'--no-vacuum --client=6 --jobs=2 --transactions=60 --max-tries=1000',
		0, [qr/processed: 360\/360/], [qr/^$/],
		"rivals at $level",
		{
			"030_write_$number\@1" => sprintf($event, 3) . ';',
			"030_consume_$number\@3" => "\\set fails random(1, 4)\nBEGIN;\nINSERT INTO sink SELECT 'crowd', id, seq FROM payguard.next_events('crowd', 7);\n"
			  . "\\if :fails = 1\nROLLBACK;\n\\else\nCOMMIT;\n\\endif\n"
		});
}
$shop->sql("BEGIN; INSERT INTO sink SELECT 'crowd', id, seq FROM payguard.next_events('crowd', 1000); COMMIT;") foreach 1 .. 3;
is($shop->sql("SELECT count(*), count(DISTINCT id) FROM sink"),
	$shop->sql("SELECT count(*), count(*) FROM payguard.events WHERE seq > $since"), 'each event was handled once');
is($shop->sql("SELECT count(*) FROM payguard.events v WHERE seq > $since AND NOT EXISTS (SELECT FROM sink s WHERE s.id = v.id)"),
	0, 'and none was left out');
is($shop->sql("SELECT count(*) FROM payguard.next_events('crowd', 1000)"), 0, 'nothing is left');

# --- a crash: the consumer's work and its events stay together

tell_writer("BEGIN; INSERT INTO sink SELECT 'crash', id, seq FROM payguard.next_events('crash', 10);");
$shop->sql("INSERT INTO sink SELECT 'crash', id, seq FROM payguard.next_events('crash', 10)");
$node->stop('immediate');
$node->start;
eval { $writer->quit };
is($shop->sql("SELECT count(*) FROM sink WHERE consumer = 'crash'"), 10, 'what was committed is had');
$shop->sql("INSERT INTO sink SELECT 'crash', id, seq FROM payguard.next_events('crash', 1000)");
is($shop->sql("SELECT count(*), count(DISTINCT id), min(seq) FROM sink WHERE consumer = 'crash'"),
	'1010|1010|' . $shop->sql("SELECT min(seq) FROM payguard.events"), 'what was not comes again');

# --- logical decoding: exactly the events

$shop->sql('BEGIN; ' . sprintf($event, 5) . '; ROLLBACK;');
$shop->pay('AFTER-CRASH');
$shop->wait_for('AFTER-CRASH', 'paid', 'a payment after the crash');

# The inserts of a pgoutput stream (protocol 1): hashes of the columns in text form.
sub decode_pgoutput
{
	my (@messages) = @_;
	my (%relation, @rows, %count);

	foreach my $message (map { pack 'H*', $_ } @messages)
	{
		my $kind = substr $message, 0, 1;
		$count{$kind}++;
		if ($kind eq 'R')
		{
			my ($oid, $schema, $name, undef, $columns, $rest) = unpack 'x N Z* Z* a n a*', $message;
			my @names;
			for (1 .. $columns)
			{
				(undef, my $column, undef, undef, $rest) = unpack 'C Z* N N a*', $rest;
				push @names, $column;
			}
			$relation{$oid} = { name => "$schema.$name", columns => \@names };
		}
		elsif ($kind eq 'I')
		{
			my ($oid, undef, $columns, $rest) = unpack 'x N a n a*', $message;
			my %row = (table => $relation{$oid}{name});
			foreach my $column (@{ $relation{$oid}{columns} })
			{
				my $type = substr $rest, 0, 1, '';
				next unless $type eq 't';
				my $length = unpack 'N', substr $rest, 0, 4, '';
				$row{$column} = substr $rest, 0, $length, '';
			}
			push @rows, \%row;
		}
	}
	return (\@rows, \%count);
}

my @messages = split /\n/, $shop->sql("SELECT encode(data, 'hex') FROM"
	  . " pg_logical_slot_peek_binary_changes('debezium', NULL, NULL, 'proto_version', '1', 'publication_names', 'payguard_events')");
my ($rows, $count) = decode_pgoutput(@messages);
is(join(' ', sort grep { $_ !~ /^[BRIC]$/ } keys %$count), '', 'the stream has transactions and inserts, nothing else');
is(scalar(grep { $_->{table} ne 'payguard.events' } @$rows), 0, 'of the events and no other table');
my %seen;
$seen{"$_->{id} $_->{seq} $_->{type} $_->{aggregatetype} $_->{aggregateid}"}++ foreach @$rows;
my @table = split /\n/, $shop->sql("SELECT concat_ws(' ', id, seq, type, aggregatetype, aggregateid) FROM payguard.events");
is(scalar(grep { $seen{$_} != 1 } keys %seen), 0, 'none twice');
is(scalar(grep { !$seen{$_} } @table), 0, 'none is missing');
is(scalar(@$rows), scalar(@table), 'and no other: what was rolled back or lost in the crash is not there');
my ($paid) = grep { $_->{aggregateid} eq 'AFTER-CRASH' } @$rows;
is(decode_json($paid->{payload})->{status}, 'paid', 'the payload is the table\'s');
my @order = map { $_->{seq} } @$rows;
my %place = map { $order[$_] => $_ } 0 .. $#order;
cmp_ok($place{$held}, '>', $place{ $prepared + 1 }, 'in the order of commits, not of numbers');
cmp_ok($place{$young}, '>', $place{ $young + 1 }, 'in the order of commits, with a prepared transaction');

SKIP:
{
	skip 'wal2json is not installed', 2 unless $has_wal2json;
	my @changes = map { decode_json($_) } split /\n/, $shop->sql("SELECT data FROM"
		  . " pg_logical_slot_peek_changes('json', NULL, NULL, 'format-version', '2', 'add-tables', 'payguard.events', 'actions', 'insert')");
	my @inserts = grep { $_->{action} eq 'I' } @changes;
	my %column;
	$column{ (map { $_->{value} } grep { $_->{name} eq 'id' } @{ $_->{columns} })[0] }++ foreach @inserts;
	is(scalar(@inserts), scalar(@table), 'wal2json gives as many');
	is(scalar(keys %column), scalar(@table), 'each once');
}
$shop->sql("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots");

# --- endpoints

# The old events are not for it.
my $endpoint = Payguard::Endpoint->start;
$shop->sql("INSERT INTO payguard.event_deliveries (consumer, event) SELECT '\@' || name, seq FROM payguard.events, unnest(ARRAY['hooks', 'dead']) AS name");
my @secrets = map { 'whsec_' . encode_base64($_, '') } ('a key of 24 bytes for now', 'another one for the future');
Payguard->create_gateway($node, 'postgres', $endpoint->url('/events'), name => 'hooks', adapter => 'events',
	webhook_secret => $secrets[0], options => { query_schedule => '200ms,400ms,400ms,400ms', total_timeout => '3s' });

sub bodies
{
	my ($reference) = @_;
	return grep { decode_json($_->{body})->{data}{reference} eq $reference } $endpoint->requests;
}

sub wait_for_requests
{
	my ($reference, $n, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	foreach (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		last if bodies($reference) >= $n;
		select undef, undef, undef, 0.1;
	}
	return cmp_ok(scalar(bodies($reference)), '>=', $n, $name);
}

sub signature
{
	my ($secret, $request) = @_;
	my $code = hmac_sha256_base64(
		join('.', @{ $request->{headers} }{qw(webhook-id webhook-timestamp)}, $request->{body}),
		decode_base64($secret =~ s/^whsec_//r));
	return 'v1,' . $code . '=' x (-length($code) % 4);
}

$shop->pay('HOOK-1');
wait_for_requests('HOOK-1', 1, 'an endpoint gets an event');
my ($request) = bodies('HOOK-1');
is("$request->{method} $request->{path}", 'POST /events', 'at its address');
is($request->{headers}{'content-type'}, 'application/json', 'as JSON');
is($request->{headers}{'webhook-id'}, $shop->sql("SELECT id FROM payguard.events WHERE aggregateid = 'HOOK-1'"), 'with the event\'s id');
cmp_ok(abs($request->{headers}{'webhook-timestamp'} - time), '<', 60, 'the time');
is($request->{headers}{'webhook-signature'}, signature($secrets[0], $request), 'and a valid signature');
my $body = decode_json($request->{body});
is(join(' ', sort keys %$body), 'data timestamp type', 'type, timestamp and data');
is("$body->{type} $body->{data}{status} $body->{data}{amount}", 'order.paid paid 399.00', 'which tell what happened');
like($body->{timestamp}, qr/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/, 'and when');
ok($shop->wait_until("SELECT count(*) = 0 FROM payguard.outbox WHERE op = 'deliver'"), 'the item is gone');
is($shop->sql("SELECT count(*) FROM payguard.why('HOOK-1') WHERE what = 'next' AND detail LIKE 'nothing%'"), 1,
	'deliveries are no part of an order\'s story');

# Refused: tried again, under the same id, until it is accepted.
$endpoint->answer(500);
$shop->pay('HOOK-2');
wait_for_requests('HOOK-2', 2, 'a refused event is sent again');
$shop->sql("ALTER USER MAPPING FOR PUBLIC SERVER hooks OPTIONS (SET webhook_secret '$secrets[1] $secrets[0]')");
$endpoint->answer(204);
ok($shop->wait_until("SELECT count(*) = 0 FROM payguard.outbox WHERE op = 'deliver'"), 'until it is accepted');
my %ids = map { $_->{headers}{'webhook-id'} => 1 } bodies('HOOK-2');
is(scalar(keys %ids), 1, 'always under the same id');
$shop->pay('HOOK-3');
wait_for_requests('HOOK-3', 1, 'with two secrets');
($request) = bodies('HOOK-3');
is($request->{headers}{'webhook-signature'}, join(' ', map { signature($_, $request) } reverse @secrets), 'both sign');

# Silence: payments go on; a crash meanwhile loses nothing.
$endpoint->answer('silence');
$shop->pay("HOOK-4$_") foreach 'a' .. 'f';
$shop->wait_for("HOOK-4$_", 'paid', "HOOK-4$_ is paid") foreach 'a' .. 'f';
wait_for_requests('HOOK-4a', 1, 'an endpoint is silent');
$shop->pay("HOOK-5$_") foreach 'a' .. 'd';
$shop->wait_for("HOOK-5$_", 'paid', "HOOK-5$_ is paid all the same") foreach 'a' .. 'd';
$node->stop('immediate');
$endpoint->answer(200);
$node->start;
wait_for_requests("HOOK-4$_", 1, "HOOK-4$_ is delivered after a crash") foreach 'a' .. 'f';
wait_for_requests("HOOK-5$_", 1, "HOOK-5$_ as well") foreach 'a' .. 'd';
ok($shop->wait_until("SELECT count(*) = 0 FROM payguard.outbox WHERE op = 'deliver'"), 'all are accepted');

# An endpoint that refuses for ever: the tries end, visibly, and can be begun again.
$endpoint->answer(410);
$shop->pay('HOOK-6');
ok($shop->wait_until("SELECT count(*) = 1 FROM payguard.check() WHERE rule = 'event_undelivered'"), 'check() tells of an event that was refused in all tries');
is(scalar(bodies('HOOK-6')), 5, 'five of them');
like($shop->sql("SELECT object || ': ' || detail FROM payguard.check()"), qr/^endpoint hooks: .*\(1 events\)$/, 'and which endpoint');
like($shop->fails("SELECT payguard.create_order(1, 'EUR', 'hooks')"), qr/^PG004: gateway "hooks" is an endpoint for events/, 'no order can be paid there');
$endpoint->answer(204);
$shop->sql("SELECT payguard.resume_gateway('hooks')");
ok($shop->wait_until("SELECT count(*) = 0 FROM payguard.outbox WHERE op = 'deliver'"), 'resume_gateway() begins again');

# A pause
$shop->sql("SELECT payguard.pause_gateway('hooks')");
$shop->pay('HOOK-7');
$shop->wait_for('HOOK-7', 'paid');
ok($shop->wait_until("SELECT count(*) = 1 FROM payguard.outbox WHERE op = 'deliver'"), 'a paused endpoint is not called');
is(scalar(bodies('HOOK-7')), 0, 'at all');
$shop->sql("SELECT payguard.resume_gateway('hooks')");
wait_for_requests('HOOK-7', 1, 'until it is resumed');

# Many events at once
$shop->sql(sprintf($event, 500));
ok($shop->wait_until("SELECT count(*) = 0 FROM payguard.events v WHERE NOT EXISTS (SELECT FROM payguard.event_deliveries d WHERE d.consumer = '\@hooks' AND d.event = v.seq)"),
	'five hundred are planned');
ok($shop->wait_until("SELECT count(*) = 0 FROM payguard.outbox WHERE op = 'deliver'"), 'and delivered');
%ids = map { $_->{headers}{'webhook-id'} => 1 } $endpoint->requests;
is($shop->sql("SELECT count(*) FROM payguard.events WHERE type LIKE 'test.%' AND id = ANY ('{" . join(',', keys %ids) . "}')"), 500, 'each at least once');

# An endpoint that is not complete waits, and one that is gone is told of.
Payguard->create_gateway($node, 'postgres', $endpoint->url, name => 'dead', adapter => 'events', webhook_secret => 'not base64!');
$shop->pay('HOOK-8');
ok($shop->wait_until("SELECT count(*) > 0 FROM payguard.outbox WHERE op = 'deliver' AND gateway = 'dead'"), 'an endpoint without a usable secret');
wait_for_requests('HOOK-8', 1, 'does not disturb another');
ok($node->wait_for_log(qr/payguard cannot call gateway "dead": its webhook_secret is not base64/), 'the log says why');
$shop->sql('DROP SERVER dead CASCADE');
is($shop->sql("SELECT rule FROM payguard.check()"), 'gateway_missing', 'check() tells of deliveries to an endpoint that is gone');
$shop->sql("DELETE FROM payguard.outbox WHERE gateway = 'dead'");
$shop->is_healthy;
is($shop->summary->{orders_charged_twice_ever}, 0, 'the gateway charged no order twice');

done_testing();
