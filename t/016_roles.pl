
# No role and no circumstance opens or breaks anything: who may call and read what, as doc/operations.md says; hostile objects before
# pg_catalog; row-level security; an owner that is no superuser; odd settings and odd places to call from; cancels in the middle.

use strict;
use warnings;

use Digest::SHA qw(hmac_sha256);
use MIME::Base64;
use Payguard;
use Payguard::Shop;
use PostgreSQL::Test::Utils;
use Test::More;

my $sandbox = Payguard->sandbox;
my $node    = Payguard->new_node('main', databases => 'served', conf => "log_error_verbosity = verbose\n");
my $shop    = Payguard::Shop->new($node, 'postgres', $sandbox);
my $secret  = $Payguard::WEBHOOK_SECRET;

$node->safe_psql('postgres', 'CREATE EXTENSION payguard');
Payguard->create_gateway($node, 'postgres', $sandbox);

# A psql script as a login of that role; returns what it printed, with the errors' codes where it asks for them.
sub script
{
	my ($role, $text) = @_;
	my ($code, $out, $error) = $node->psql('postgres', $text, on_error_stop => 0, extra_params => [ '-U', $role ]);

	# A crash must not pass for an answer.
	BAIL_OUT("a session as $role ended: $error") if $code == 2 || $error =~ /server closed the connection/;
	return $out;
}

# The SQLSTATEs that statements end with, 00000 for none; what they did is undone in either case.
sub codes
{
	my ($role, @statements) = @_;
	return split /\n/, script($role, join '', map { s/'/''/gr =~ s/(.*)/SELECT tap.code('$1');\n/sr } @statements);
}

$shop->sql(<<'SQL');
CREATE ROLE app LOGIN; CREATE ROLE hook LOGIN; CREATE ROLE op LOGIN; CREATE ROLE mon LOGIN; CREATE ROLE nobody LOGIN;
CREATE ROLE all_of LOGIN;
CREATE ROLE hostile LOGIN;
SELECT payguard.grant_access('app', 'application'), payguard.grant_access('hook', 'callback'),
	payguard.grant_access('op', 'operator'), payguard.grant_access('mon', 'monitor');
SELECT payguard.grant_access('all_of', kind) FROM unnest(ARRAY['application', 'callback', 'operator', 'monitor']) AS kind;
GRANT USAGE ON FOREIGN SERVER shop TO app, hook, op, all_of;
CREATE SCHEMA tap;
GRANT USAGE, CREATE ON SCHEMA tap TO PUBLIC;
CREATE FUNCTION tap.code(statement text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE statement;
	RAISE EXCEPTION USING ERRCODE = 'ZZ999';
EXCEPTION WHEN query_canceled OR OTHERS THEN
	RETURN CASE SQLSTATE WHEN 'ZZ999' THEN '00000' ELSE SQLSTATE END;
END
$$;
-- every row of the ledger, in one word
CREATE FUNCTION tap.picture() RETURNS text LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
	name text;
	part text;
	whole text := '';
BEGIN
	FOR name IN SELECT c.oid::regclass FROM pg_class c WHERE c.relnamespace = 'payguard'::regnamespace AND c.relkind = 'r' ORDER BY 1
	LOOP
		EXECUTE format('SELECT md5(string_agg(t::text, E''\n'' ORDER BY t::text)) FROM %s AS t', name) INTO part;
		whole := whole || COALESCE(part, '-');
	END LOOP;
	RETURN md5(whole);
END
$$;
SQL

# --- the matrix, read from the page that users read

my %may = map { $_ => {} } qw(app hook op mon nobody);
my %reads;
my %role_of = (application => 'app', callback => 'hook', operator => 'op', monitor => 'mon');
foreach my $line (split /\n/, slurp_file('doc/operations.md'))
{
	my ($access, $functions, $tables) = $line =~ /^\| `(application|callback|operator|monitor)` \| (.*) \| (.*) \|$/ or next;
	my $role = $role_of{$access};
	$may{$role}{$1} = 1 while $functions =~ /`(\w+)`/g;
	$reads{$role} = $tables =~ /^SELECT on all/;
}
is(join(' ', sort keys %reads), 'app hook mon op', 'doc/operations.md lists four kinds of access');

my @functions = map { [ split /\|/, $_, -1 ] } split /\n/, $shop->sql(<<'SQL');
SELECT p.proname, 'SELECT * FROM payguard.' || p.proname || '(' || COALESCE((SELECT string_agg(CASE WHEN NOT p.proisstrict
		THEN 'NULL' WHEN t = 'oid'::regtype THEN '0' ELSE '''{}''' END || '::' || format_type(t, NULL), ', ' ORDER BY n)
	FROM unnest(p.proargtypes) WITH ORDINALITY AS a (t, n)), '') || ')'
FROM pg_proc p WHERE p.pronamespace = 'payguard'::regnamespace AND p.prorettype <> 'trigger'::regtype ORDER BY 1
SQL
my @triggers = split /\n/,
  $shop->sql("SELECT proname FROM pg_proc WHERE pronamespace = 'payguard'::regnamespace AND prorettype = 'trigger'::regtype ORDER BY 1");
my %exists = map { $_ => 1 } @triggers, map { $_->[0] } @functions;
is(join(' ', grep { !$exists{$_} } map { sort keys %{ $may{$_} } } sort keys %may), '', 'and no function that does not exist');

my @tables    = split /\n/, $shop->sql("SELECT relname FROM pg_class WHERE relnamespace = 'payguard'::regnamespace AND relkind IN ('r', 'v', 'm', 'f', 'p') ORDER BY 1");
my @sequences = split /\n/, $shop->sql("SELECT relname FROM pg_class WHERE relnamespace = 'payguard'::regnamespace AND relkind = 'S' ORDER BY 1");
my %column    = map { split /\|/ } split /\n/, $shop->sql("SELECT c.relname, min(a.attname) FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid"
	  . " WHERE c.relnamespace = 'payguard'::regnamespace AND a.attnum > 0 AND a.attidentity = '' GROUP BY 1");
my $before = $shop->sql('SELECT tap.picture()');

foreach my $role (sort keys %may)
{
	my @expected = map { $_->[0] . ($may{$role}{ $_->[0] } ? ' allowed' : ' refused') } @functions;
	my @codes    = codes($role, map { $_->[1] } @functions);
	is_deeply([ map { "$functions[$_][0] " . ($codes[$_] eq '42501' ? 'refused' : 'allowed') } 0 .. $#functions ],
		\@expected, "$role: functions as documented")
	  or diag("codes: @codes");
	# Allowed or not, nulls everywhere are misuse at most.
	is(join(' ', grep { !/^(?:00000|22004|42501|22023)$/ } @codes), '', "$role: and no other error");

	@codes = codes($role, map { "CREATE TABLE tap.hung_$role (id int); CREATE TRIGGER t AFTER UPDATE ON tap.hung_$role FOR EACH ROW EXECUTE FUNCTION payguard.$_('id', '1>2')" } @triggers);
	is_deeply([ map { "$triggers[$_] " . ($codes[$_] eq '42501' ? 'refused' : 'allowed') } 0 .. $#triggers ],
		[ map { $_ . ($may{$role}{$_} ? ' allowed' : ' refused') } @triggers ],
		"$role: trigger functions as documented");

	@codes = codes($role, map { "SELECT count(*) FROM payguard.$_" } @tables);
	is(join(' ', map { "$tables[$_] $codes[$_]" } grep { $codes[$_] ne ($reads{$role} ? '00000' : '42501') } 0 .. $#tables),
		'', "$role: reads " . ($reads{$role} ? 'every' : 'no') . ' table');
	@codes = codes(
		$role,
		(map { my $t = $_; map { s/#/payguard.$t/gr } "INSERT INTO # DEFAULT VALUES", "UPDATE # SET $column{$t} = $column{$t} WHERE false",
				"DELETE FROM # WHERE false", "TRUNCATE #", "LOCK # IN ACCESS EXCLUSIVE MODE", "SELECT 1 FROM # FOR UPDATE",
				"CREATE TRIGGER t AFTER UPDATE ON # FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()",
				"ALTER TABLE # ADD x int", "ALTER TABLE # ENABLE ROW LEVEL SECURITY", "DROP TABLE #", "CREATE INDEX ON # ($column{$t})",
				"CREATE POLICY p ON #", "COMMENT ON TABLE # IS ''" } @tables),
		(map { ("SELECT nextval('payguard.$_')", "SELECT setval('payguard.$_', 1)", "SELECT * FROM payguard.$_") } @sequences),
		'CREATE TABLE payguard.x (id int)', 'CREATE FUNCTION payguard.x() RETURNS int LANGUAGE sql AS $$ SELECT 1 $$',
		'DROP EXTENSION payguard CASCADE', 'DROP SCHEMA payguard CASCADE', 'ALTER SCHEMA payguard RENAME TO x',
		"ALTER SERVER shop OPTIONS (SET base_url 'https://elsewhere.example')", 'DROP SERVER shop CASCADE',
		"CREATE SERVER mine FOREIGN DATA WRAPPER payguard OPTIONS (adapter 'generic')",
		"ALTER USER MAPPING FOR PUBLIC SERVER shop OPTIONS (SET api_key 'mine')", 'SELECT umoptions FROM pg_user_mapping');
	is(join(' ', grep { $_ ne '42501' } @codes), '', "$role: changes nothing");
	is(script($role, "SELECT count(*) FROM pg_user_mappings WHERE umoptions IS NOT NULL; SELECT count(*) FROM information_schema.user_mapping_options WHERE option_value IS NOT NULL"),
		"0\n0", "$role: sees no secret");
	is(join(' ', codes($role, "SET payguard.dispatch = off", "SET payguard.databases = ''", "SET payguard.instance = 'x'", 'SET payguard.anything = 1')),
		'55P02 55P02 55P02 42602', "$role: sets no setting");
}
is($shop->sql('SELECT tap.picture()'), $before, 'all those attempts left nothing behind');

# USAGE on a gateway is the caller's, through every door.
$shop->sql('REVOKE USAGE ON FOREIGN SERVER shop FROM op; CREATE ROLE wrapper; GRANT CREATE, USAGE ON SCHEMA tap TO wrapper;'
	  . " SELECT payguard.grant_access('wrapper', 'application'); GRANT USAGE ON FOREIGN SERVER shop TO wrapper;");
$shop->sql(<<'SQL');
CREATE FUNCTION tap.invoker(r text) RETURNS text LANGUAGE sql AS $$ SELECT status FROM payguard.create_order(1, 'CNY', 'shop', r) $$;
CREATE FUNCTION tap.definer(r text) RETURNS text LANGUAGE sql SECURITY DEFINER AS $$ SELECT status FROM payguard.create_order(1, 'CNY', 'shop', r) $$;
ALTER FUNCTION tap.definer OWNER TO wrapper;
CREATE FUNCTION tap.definer_without(r text) RETURNS text LANGUAGE sql SECURITY DEFINER AS $$ SELECT status FROM payguard.create_order(1, 'CNY', 'shop', r) $$;
ALTER FUNCTION tap.definer_without OWNER TO nobody;
CREATE PROCEDURE tap.switching() LANGUAGE plpgsql AS $$
BEGIN
	SET ROLE nobody;
	PERFORM payguard.create_order(1, 'CNY', 'shop', 'SWITCHED1');
END
$$;
CREATE VIEW tap.through_a_view AS SELECT status FROM payguard.create_order(1, 'CNY', 'shop', 'VIEWED01');
ALTER VIEW tap.through_a_view OWNER TO wrapper;
GRANT SELECT ON tap.through_a_view TO PUBLIC;
CREATE MATERIALIZED VIEW tap.stored AS SELECT status FROM payguard.create_order(1, 'CNY', 'shop', 'STORED01') WITH NO DATA;
ALTER MATERIALIZED VIEW tap.stored OWNER TO nobody;
CREATE FUNCTION tap.fixed(r text) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT tap.invoker(r) $$;
CREATE TABLE tap.indexed (r text);
INSERT INTO tap.indexed VALUES ('INDEXED1');
ALTER TABLE tap.indexed OWNER TO nobody;
SQL
is(join(' ', codes('op', "SELECT payguard.verify_callback('shop', '{}', '')")), '42501', 'verify_callback needs USAGE');
is(join(' ', codes('nobody', "SELECT tap.invoker('INVOKED1')", "SELECT tap.definer('DEFINED1')", "SELECT tap.definer_without('DEFINED2')")),
	'42501 00000 42501', 'a SECURITY DEFINER function calls with its owner\'s rights, and an ordinary one with the caller\'s');
is(join(' ', codes('postgres', "SET ROLE nobody; SELECT payguard.create_order(1, 'CNY', 'shop', 'SETROLE1')", 'CALL tap.switching()')),
	'42501 42501', 'SET ROLE takes the rights away');
is(join(' ', codes('postgres', 'REFRESH MATERIALIZED VIEW tap.stored', 'CREATE INDEX ON tap.indexed (tap.fixed(r))')),
	'42501 42501', 'nor does a superuser lend rights to a view or an index that is refreshed for its owner');
is(join(' ', codes('nobody', 'SELECT * FROM tap.through_a_view')), '42501', 'a view calls as the one who reads it');

# --- the tour: what must come out the same in any weather

sub callback
{
	my ($id, $type, $reference, $status) = @_;
	my $body = qq({"type":"$type","data":{"id":"ch_$reference","reference":"$reference","status":"$status","amount":39900,"currency":"CNY","occurred_at":"2026-01-01T10:00:00Z"}});
	my $now  = time;
	my $signature = encode_base64(hmac_sha256("$id.$now.$body", decode_base64($secret =~ s/^whsec_//r)), '');

	return sprintf q('shop', '{"webhook-id": "%s", "webhook-timestamp": "%s", "webhook-signature": "v1,%s"}', '\x%s'),
	  $id, $now, $signature, unpack 'H*', $body;
}

sub tour
{
	my ($p, %param) = @_;
	my $role     = $param{role} // 'all_of';
	my $paid     = callback("evt_$p-1", 'charge.paid',     "$p-1", 'paid');
	my $reversed = callback("evt_$p-2", 'charge.reversed', "$p-1", 'reversed');

	# Only text that psql sends as it is: under a hostile path every operator and function of ours would be the enemy's.
	my $out = script($role, ($param{before} // '') . <<"SQL");
SELECT status, created, amount, currency FROM payguard.create_order(399.00, 'CNY', 'shop', '$p-1', '$p', 'p', true, '1 hour', '{"a": [1, "x"]}');
SELECT reference, created FROM payguard.create_order(399.00, 'CNY', 'shop', NULL, '$p', 'p', true);
SELECT payguard.create_order(1.00, 'CNY', 'shop', '$p-1');
\\echo :SQLSTATE
SELECT payguard.create_order(1.001, 'CNY', 'shop', '$p-9');
\\echo :SQLSTATE
SELECT claimed, verdict, status, lease_token FROM payguard.claim_order('$p-1', '$p-k1', call_by => 'application', payment => '{"token": "tok"}') \\gset
\\echo :claimed :verdict :status
SELECT claimed, verdict, status, lease_token FROM payguard.claim_order('$p-1', '$p-k1', call_by => 'application', payment => '{"token": "tok"}');
SELECT claimed, verdict FROM payguard.claim_order('$p-1', '$p-k2');
SELECT payguard.claim_order('$p-1', '$p-k1');
\\echo :SQLSTATE
SELECT payguard.renew_claim(:'lease_token', '1 hour') IS NOT NULL;
SELECT payguard.renew_claim('nonsense', '1 hour');
\\echo :SQLSTATE
SELECT verdict, status FROM payguard.record_attempt(:'lease_token', 'pending', 'ch_$p-1', code => 'wait', message => 'a "message"', client => '{"qr": "x"}', details => '{"d": 1}');
SELECT status, attempt_state, client, message, can_pay, needs_review FROM payguard.order_status('$p-1');
SELECT valid, type, reference, result FROM payguard.verify_callback($paid);
SELECT verdict, http_status, reference, status FROM payguard.apply_callback($paid);
SELECT verdict, http_status, reference, status FROM payguard.apply_callback($paid);
SELECT verdict, http_status FROM payguard.apply_callback('shop', '{}', '');
SELECT verdict, status FROM payguard.record_attempt(:'lease_token', 'paid', 'ch_$p-1', 399, 'CNY');
SELECT verdict, status FROM payguard.apply_callback($reversed);
SELECT status, can_pay, needs_review FROM payguard.order_status('$p-1');
SELECT what FROM payguard.why('$p-1');
SELECT payguard.why('$p-0');
\\echo :SQLSTATE
SELECT status FROM payguard.create_order(399.00, 'CNY', 'shop', '$p-2', '$p', 'q', true);
SELECT claimed, verdict, status FROM payguard.claim_order('$p-2', '$p-k3');
SELECT verdict, status FROM payguard.close_order('$p-2', 'no longer wanted');
SELECT status FROM payguard.create_order(399.00, 'CNY', 'shop', '$p-3', metadata => '{}');
SELECT status, created FROM payguard.create_order(10, 'CNY', 'shop', '$p-4', replaces => '$p-3');
SELECT status FROM payguard.order_status('$p-3');
SELECT verdict, status FROM payguard.close_order('$p-4');
SELECT first, state, response FROM payguard.begin_once('$p', 'once', '{"a": 1}');
SELECT payguard.finish_once('$p', 'once', '{"b": 2}');
SELECT first, state, response FROM payguard.begin_once('$p', 'once', '{"a": 1}');
SELECT verdict, status FROM payguard.resolve_order('$p-1', 'reviewed', 'seen');
SELECT payguard.pause_gateway('shop');
SELECT payguard.resume_gateway('shop');
SELECT payguard.adapter('generic') IS NOT NULL;
SELECT rule FROM payguard.check();
SQL
	$out =~ s/\Q$p\E/P/g;
	$out =~ s/^not_served\n?//mg;
	return $out;
}

my $tour   = tour('CLEAR');
my $number = 0;
like($tour, qr/^created\|t\|399\.00\|CNY\nP-1\|f\nPG001\n22023\nt claimed processing\nf\|replayed/, 'the tour goes through');
unlike($tour, qr/^guard_missing|^42501|^XX/m, 'with nothing refused');

# in_weather NAME, before => SQL of the session, change => SQL of a superuser, undo => SQL, role => NAME
sub in_weather
{
	my ($name, %param) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$shop->sql($param{change}) if $param{change};
	is(tour(sprintf('WEATHER%02d', ++$number), %param), $tour, $name);
	$shop->sql($param{undo}) if $param{undo};
	return;
}

sub settings { my %s = @_; return join '', map { "SET $_ = $s{$_};\n" } sort keys %s; }

my $parallel = $node->pg_version >= 16 ? 'debug_parallel_query' : 'force_parallel_mode';
in_weather('as a superuser', role => 'postgres');
in_weather('under SET ROLE', role => 'postgres', before => "SET ROLE all_of;\n");
in_weather('under a switched session authorization', role => 'postgres', before => "SET SESSION AUTHORIZATION all_of;\n");
in_weather('with generic plans', before => settings(plan_cache_mode => 'force_generic_plan'));
in_weather('with custom plans',  before => settings(plan_cache_mode => 'force_custom_plan'));
in_weather('with parallel plans', before => settings($parallel => 'on', parallel_setup_cost => 0, parallel_tuple_cost => 0, min_parallel_table_scan_size => 0));
in_weather('with the worst plans', before => settings(jit => 'off', map { ("enable_$_" => 'off') } qw(indexscan indexonlyscan bitmapscan hashjoin nestloop sort)));
in_weather('compiled', before => settings(jit => 'on', jit_above_cost => 1, jit_inline_above_cost => -1, jit_optimize_above_cost => -1));
in_weather('with little memory', before => settings(work_mem => "'64kB'", maintenance_work_mem => "'1MB'", temp_buffers => "'800kB'"));
in_weather("at $_", before => settings(default_transaction_isolation => "'$_'", default_transaction_deferrable => 'on'))
  foreach 'repeatable read', 'serializable';
in_weather('with other notations', before => settings(DateStyle => 'German', IntervalStyle => 'sql_standard', TimeZone => "'Asia/Kathmandu'",
	extra_float_digits => -15, bytea_output => 'escape', xmlbinary => 'hex', timezone_abbreviations => 'India', lc_numeric => "'C'", lc_monetary => "'C'"));
in_weather('with another meaning of SQL', before => settings(transform_null_equals => 'on', array_nulls => 'off', quote_all_identifiers => 'on',
	escape_string_warning => 'on', backslash_quote => 'on', check_function_bodies => 'off', row_security => 'off', exit_on_error => 'off'));
in_weather('in another encoding', before => settings(client_encoding => 'LATIN1'));
in_weather('without waiting for the disk', before => settings(synchronous_commit => 'off'));
in_weather('as a replica', role => 'postgres', before => settings(session_replication_role => 'replica'));
in_weather('in one transaction with savepoints', before => "\\set ON_ERROR_ROLLBACK on\nBEGIN;\n");
in_weather('with an unloaded plan cache', before => "DISCARD ALL;\n");

# --- row-level security, forced or not, and an owner that is no superuser

my @policies = map { "ALTER TABLE payguard.$_ ENABLE ROW LEVEL SECURITY" } @tables;
my @forced   = map { "ALTER TABLE payguard.$_ FORCE ROW LEVEL SECURITY; CREATE POLICY none ON payguard.$_ USING (false) WITH CHECK (false)" } @tables;
my $open     = join '; ', map { "DROP POLICY IF EXISTS none ON payguard.$_; ALTER TABLE payguard.$_ NO FORCE ROW LEVEL SECURITY; ALTER TABLE payguard.$_ DISABLE ROW LEVEL SECURITY" } @tables;
in_weather('with row-level security', change => join '; ', @policies);
is(script('op', 'SELECT count(*) FROM payguard.orders'), '0', 'which holds for those who read the tables');
in_weather('with row-level security forced on the owner', change => join('; ', @forced), undo => $open);

my $owned = join '; ', map { "ALTER TABLE payguard.$_ OWNER TO keeper" } @tables;
in_weather('with an owner that is no superuser', change => "CREATE ROLE keeper LOGIN; GRANT USAGE ON SCHEMA payguard TO keeper; $owned");
in_weather('and that is subject to row-level security', change => join('; ', @policies, @forced));
in_weather('and forbids itself to look past it', change => 'ALTER ROLE all_of SET row_security = off', undo => "ALTER ROLE all_of RESET row_security; $open");
is(join(' ', codes('keeper', "UPDATE payguard.orders SET status = 'created' WHERE reference = 'CLEAR-1'",
			"UPDATE payguard.orders SET amount = 1 WHERE reference = 'CLEAR-1'", 'TRUNCATE payguard.orders CASCADE', 'DELETE FROM payguard.events')),
	'PG003 PG003 PG003 PG003', 'the guards hold against the owner');
is(join(' ', codes('keeper', "ALTER SERVER shop OPTIONS (SET base_url 'https://elsewhere.example')", "SELECT payguard.adopt('mine')")), '42501 42501',
	'who gets no other right by that');
$shop->sql(join '; ', map { "ALTER TABLE payguard.$_ OWNER TO postgres" } @tables);

# --- hostile objects: everything of pg_catalog that takes common types, shadowed by what tells of being called

$shop->sql('GRANT CREATE, USAGE ON SCHEMA public TO hostile; GRANT CREATE, TEMPORARY ON DATABASE postgres TO hostile');
is(script('hostile', <<'SQL'), 'done', 'a role shadows what there is in pg_catalog');
CREATE SCHEMA evil;
GRANT USAGE ON SCHEMA evil TO PUBLIC;
DO $do$
DECLARE
	common oid[] := ARRAY['text', 'bigint', 'integer', 'numeric', 'boolean', 'timestamptz', 'interval', 'jsonb', 'bytea', 'date', 'name', 'oid', 'uuid',
		'text[]', 'regclass', 'anyelement', 'anyarray', 'anyenum', 'anycompatible']::regtype[]::oid[];
	body text := $body$ BEGIN RAISE EXCEPTION 'called as %', current_user USING ERRCODE = 'ZZEVL'; END $body$;
	f record;
	made int := 0;
BEGIN
	FOR f IN SELECT DISTINCT ON (p.proname, p.proargtypes::oid[]) p.proname, pg_get_function_identity_arguments(p.oid) AS arguments, p.pronargs,
			CASE WHEN p.proretset THEN 'SETOF ' ELSE '' END || p.prorettype::regtype AS result
		FROM pg_proc p WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.prokind = 'f' AND p.pronargs <= 4
			AND p.proargtypes::oid[] <@ common AND p.provariadic = 0 AND p.proargmodes IS NULL
			AND (p.prorettype = ANY (common[1:15]) OR (p.prorettype = ANY (common[16:18]) AND p.prorettype = ANY (p.proargtypes::oid[])))
	LOOP
		EXECUTE format('CREATE FUNCTION evil.%I(%s) RETURNS %s LANGUAGE plpgsql AS %L', f.proname, f.arguments, f.result, body);
		made := made + 1;
	END LOOP;
	FOR f IN SELECT o.oid, o.oprname, NULLIF(o.oprleft, 0)::regtype AS l, o.oprright::regtype AS r, o.oprresult::regtype AS result FROM pg_operator o
		WHERE o.oprnamespace = 'pg_catalog'::regnamespace AND o.oprright = ANY (common) AND (o.oprleft = 0 OR o.oprleft = ANY (common))
			AND (o.oprresult = ANY (common[1:15]) OR (o.oprresult = ANY (common[16:18]) AND o.oprresult IN (o.oprleft, o.oprright)))
	LOOP
		EXECUTE format('CREATE FUNCTION evil.operator_%s(%s) RETURNS %s LANGUAGE plpgsql AS %L', f.oid, concat_ws(', ', f.l, f.r), f.result, body);
		EXECUTE format('CREATE OPERATOR evil.%s (%s RIGHTARG = %s, FUNCTION = evil.operator_%s)', f.oprname,
			'LEFTARG = ' || f.l || ', ', f.r, f.oid);
		made := made + 1;
	END LOOP;
	-- calls with fewer or plainer arguments fit these better than pg_catalog's own variadic ones and aggregates
	FOR f IN SELECT n, a FROM unnest(ARRAY['format', 'concat', 'concat_ws', 'jsonb_build_object', 'jsonb_build_array', 'count', 'max', 'min', 'sum',
			'bool_and', 'string_agg', 'array_agg', 'coalesce_', 'greatest_']) AS n,
		unnest(ARRAY['text', 'text, text', 'text, text, text', 'text, text, text, text', 'text, bigint', 'text, integer', 'bigint', 'integer', 'numeric']) AS a
	LOOP
		BEGIN
			EXECUTE format('CREATE FUNCTION evil.%I(%s) RETURNS text LANGUAGE plpgsql AS %L', f.n, f.a, body);
		EXCEPTION WHEN duplicate_function THEN NULL;
		END;
	END LOOP;
	IF made < 500 THEN
		RAISE EXCEPTION 'only % made', made;
	END IF;
	FOR f IN SELECT unnest(ARRAY['pg_class', 'pg_trigger', 'pg_constraint', 'pg_index', 'pg_foreign_server', 'pg_foreign_data_wrapper', 'pg_user_mappings',
		'pg_namespace', 'pg_type', 'orders', 'attempts', 'payments', 'evidence', 'outbox', 'events']) AS name
	LOOP
		EXECUTE format('CREATE VIEW evil.%I AS SELECT 1/0 AS oid', f.name);
	END LOOP;
END
$do$;
CREATE DOMAIN evil.text AS pg_catalog.int4; CREATE DOMAIN evil.jsonb AS pg_catalog.int4; CREATE DOMAIN evil.int8 AS pg_catalog.text;
CREATE DOMAIN evil.timestamptz AS pg_catalog.int4; CREATE DOMAIN evil.order_state AS pg_catalog.int4;
SELECT 'done';
SQL
is(join(' ', codes('hostile', 'CREATE CAST (jsonb AS text) WITHOUT FUNCTION', 'CREATE CAST (text AS jsonb) WITH INOUT AS IMPLICIT', 'CREATE CAST (text AS numeric) WITH INOUT AS IMPLICIT')),
	'42501 42501 42501', 'casts between types of the server are not for it to make');
$shop->sql('GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA evil TO PUBLIC; GRANT SELECT ON ALL TABLES IN SCHEMA evil TO PUBLIC');
is(script('all_of', "SET search_path = evil, pg_catalog;\nSELECT 1 = 1;\n\\echo :SQLSTATE\nSELECT now();\n\\echo :SQLSTATE"), "ZZEVL\nZZEVL", 'and is heard');

my $temporary = join '', map { "CREATE TEMP TABLE $_ (id int);\n" } @tables, qw(pg_class pg_trigger pg_foreign_server);
$shop->sql('GRANT TEMPORARY ON DATABASE postgres TO all_of');
foreach my $role (qw(all_of postgres))
{
	in_weather("$role: hostile objects before pg_catalog", role => $role, before => "SET search_path = evil, public, pg_catalog;\n");
	in_weather("$role: and temporary ones", role => $role, before => $temporary . "SET search_path = pg_temp, evil, pg_catalog;\n");
}

# The worker takes settings of its database, and they may be hostile.
$node->safe_psql('postgres', 'CREATE DATABASE served');
$node->safe_psql('served', 'CREATE EXTENSION payguard');
Payguard->create_gateway($node, 'served', $sandbox, options => { query_schedule => '200ms,300ms,500ms,1s,1s,1s' });
my $served = Payguard::Shop->new($node, 'served', $sandbox);
$served->sql(<<'SQL');
CREATE ROLE keeper_served LOGIN;
GRANT USAGE ON SCHEMA payguard TO keeper_served;
DO $do$
DECLARE
	t text;
BEGIN
	FOR t IN SELECT oid::regclass FROM pg_class WHERE relnamespace = 'payguard'::regnamespace AND relkind = 'r'
	LOOP
		EXECUTE format('ALTER TABLE %s OWNER TO keeper_served; ALTER TABLE %s ENABLE ROW LEVEL SECURITY; ALTER TABLE %s FORCE ROW LEVEL SECURITY', t, t, t);
	END LOOP;
END
$do$;
-- who owns the tables may hang triggers on them, and must not become the worker's superuser by that
CREATE SCHEMA own AUTHORIZATION keeper_served;
SET ROLE keeper_served;
CREATE TABLE own.said (who text);
CREATE FUNCTION own.spy() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO own.said VALUES (TG_ARGV[0] || ' as ' || current_user);
	BEGIN
		SET ROLE postgres;
		INSERT INTO own.said VALUES (TG_ARGV[0] || ' became ' || current_user);
	EXCEPTION WHEN OTHERS THEN NULL;
	END;
	RETURN NULL;
END
$$;
CREATE TRIGGER spy AFTER UPDATE ON payguard.attempts FOR EACH ROW EXECUTE FUNCTION own.spy('at once');
CREATE CONSTRAINT TRIGGER spy_later AFTER UPDATE ON payguard.attempts DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION own.spy('at commit');
RESET ROLE;
CREATE SCHEMA evil;
CREATE FUNCTION evil.eq(text, text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'hostile'; END $$;
CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.eq);
CREATE FUNCTION evil.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'hostile'; END $$;
ALTER DATABASE served SET search_path = evil, pg_catalog;
ALTER DATABASE served SET default_transaction_read_only = on;
ALTER DATABASE served SET row_security = off;
ALTER DATABASE served SET plan_cache_mode = force_generic_plan;
SQL
# A worker that begins now has these settings.
$shop->sql("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE backend_type = 'payguard worker' AND datname = 'served'");
$served->sql("SET default_transaction_read_only = off; SET search_path = pg_catalog; SELECT payguard.create_order(399.00, 'CNY', 'shop', 'SERVED-1');"
	  . " SELECT payguard.claim_order('SERVED-1', 'served-1')");
ok( $node->poll_query_until('served', "SELECT status OPERATOR(pg_catalog.=) 'paid' FROM payguard.order_status('SERVED-1')"),
	'the worker is not misled by settings of its database, nor by an owner\'s row-level security');
is($served->charged('SERVED-1'), 1, 'and charges once');
is($served->sql("SET search_path = pg_catalog; SELECT string_agg(DISTINCT who, ', ' ORDER BY who) FROM own.said"),
	'at commit as keeper_served, at once as keeper_served', 'triggers of the owner run with the owner\'s rights in the worker, deferred ones too');

# --- places to call from

$shop->sql(<<'SQL');
CREATE TABLE tap.cart (reference text, key text, said text);
CREATE FUNCTION tap.on_cart() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM payguard.create_order(399.00, 'CNY', 'shop', NEW.reference);
	NEW.said := (payguard.claim_order(NEW.reference, NEW.key)).verdict;
	IF TG_WHEN = 'AFTER' THEN
		UPDATE tap.cart SET said = NEW.said WHERE reference = NEW.reference;
	END IF;
	RETURN NEW;
END
$$;
GRANT SELECT, INSERT, UPDATE ON tap.cart TO PUBLIC;
CREATE TRIGGER at_once BEFORE INSERT ON tap.cart FOR EACH ROW WHEN (NEW.key ~ '^once') EXECUTE FUNCTION tap.on_cart();
CREATE CONSTRAINT TRIGGER at_end AFTER INSERT ON tap.cart DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.key ~ '^end') EXECUTE FUNCTION tap.on_cart();
CREATE TABLE tap.dated (d date) PARTITION BY RANGE (d);
CREATE FUNCTION tap.steady(r text) RETURNS text LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$ BEGIN RETURN (payguard.order_status(r)).status; END $$;
CREATE FUNCTION tap.unsteady(r text) RETURNS text LANGUAGE plpgsql PARALLEL SAFE AS $$ BEGIN RETURN (payguard.claim_order(r, r || '-key')).verdict; END $$;
CREATE FUNCTION tap.making(r text) RETURNS text LANGUAGE plpgsql PARALLEL SAFE AS $$ BEGIN RETURN (payguard.create_order(1, 'CNY', 'shop', r)).status; END $$;
SQL
is(script('app', <<'SQL'), "claimed\nclaimed", 'triggers of the application, deferred ones too');
INSERT INTO tap.cart VALUES ('CART-01', 'once-1') RETURNING said;
BEGIN;
INSERT INTO tap.cart VALUES ('CART-02', 'end-1');
COMMIT;
SELECT said FROM tap.cart WHERE reference = 'CART-02';
SQL
is(script('app', <<'SQL'), "claimed\nin_progress\n0\nin_progress", 'COPY, a cursor, WITH, PREPARE, a block that commits');
COPY (SELECT (payguard.claim_order((payguard.create_order(1, 'CNY', 'shop', 'PLACE-1')).reference, 'place-1')).verdict) TO STDOUT;
BEGIN;
DECLARE c SCROLL CURSOR WITH HOLD FOR SELECT (payguard.claim_order('PLACE-1', 'place-2-' || i)).verdict FROM generate_series(1, 3) AS i;
FETCH 1 FROM c;
COMMIT;
CLOSE c;
DO $$
BEGIN
	FOR i IN 1 .. 3 LOOP
		PERFORM payguard.create_order(1, 'CNY', 'shop', 'BLOCK-' || i);
		COMMIT;
		PERFORM payguard.claim_order('BLOCK-' || i, 'block-' || i);
		IF i = 2 THEN ROLLBACK; ELSE COMMIT; END IF;
	END LOOP;
END
$$;
WITH made AS (SELECT (payguard.create_order(1, 'CNY', 'shop', 'WITH-01')).created), found AS (SELECT created FROM made WHERE NOT created) SELECT count(*) FROM found;
PREPARE ask (text) AS SELECT verdict FROM payguard.claim_order($1, 'place-9');
EXECUTE ask('PLACE-1');
SQL
is($shop->sql("SELECT string_agg(status::text, ' ' ORDER BY reference) FROM payguard.orders WHERE reference LIKE 'BLOCK-%'"), 'processing created processing',
	'what a block rolled back is not done');
is(join(' ', codes('app', "SET TRANSACTION READ ONLY; SELECT payguard.order_status('CLEAR-1'); SELECT payguard.claim_order('CLEAR-1', 'other')")), '00000',
	'a read-only transaction may ask, and lose a claim');
is(join(' ', codes('all_of', map { "SET TRANSACTION READ ONLY; SELECT $_" } "payguard.create_order(1, 'CNY')", "payguard.claim_order('BLOCK-2', 'k')",
			"payguard.close_order('BLOCK-2')", "payguard.begin_once('read', 'only', '{}')", "payguard.adopt('read only')", "payguard.pause_gateway('shop')",
			'payguard.apply_callback(' . callback('evt_ro', 'charge.paid', 'BLOCK-1', 'paid') . ')')),
	join(' ', ('25006') x 7), 'but nothing that writes');
is(script('app', "SET $parallel = on;\nSELECT tap.steady('CLEAR-1');\nSELECT tap.unsteady('BLOCK-2');\n\\echo :SQLSTATE\nSELECT tap.making('PARALLEL-1');\n\\echo :SQLSTATE\n"
		  . "BEGIN ISOLATION LEVEL REPEATABLE READ;\nSELECT tap.unsteady('BLOCK-2');\n\\echo :SQLSTATE\nROLLBACK;"),
	"reversed\n25000\n25000\n25000", 'in a parallel worker what reads works, and what writes is refused');
is(join(' ', codes('app', "CREATE TABLE tap.f (r text); INSERT INTO tap.f VALUES ('CLEAR-1'); CREATE INDEX ON tap.f (tap.steady(r)); CREATE MATERIALIZED VIEW tap.m AS SELECT tap.steady('CLEAR-1') AS s; REFRESH MATERIALIZED VIEW tap.m")),
	'00000', 'in an index and a materialized view');
is(script('app', <<'SQL'), "claimed\nin_progress\ncreated\nprocessing\ncreated\nclaimed", 'prepared transactions: theirs until decided, gone when rolled back');
SELECT payguard.create_order(1, 'CNY', 'shop', 'PREPARED-' || i) FROM generate_series(1, 2) AS i \g /dev/null
BEGIN;
SELECT verdict FROM payguard.claim_order('PREPARED-1', 'prepared-1', call_by => 'application');
PREPARE TRANSACTION 'tap-1';
SELECT verdict FROM payguard.claim_order('PREPARED-1', 'prepared-1-rival');
SELECT status FROM payguard.order_status('PREPARED-1');
COMMIT PREPARED 'tap-1';
SELECT status FROM payguard.order_status('PREPARED-1');
BEGIN;
SELECT payguard.claim_order('PREPARED-2', 'prepared-2') \g /dev/null
PREPARE TRANSACTION 'tap-2';
ROLLBACK PREPARED 'tap-2';
SELECT status FROM payguard.order_status('PREPARED-2');
SELECT verdict FROM payguard.claim_order('PREPARED-2', 'prepared-2');
SQL

# --- a cancel at each table that a call writes: nothing is half done, and the session goes on

$shop->sql(<<'SQL');
CREATE FUNCTION tap.cut() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_cancel_backend(pg_backend_pid());
	PERFORM pg_sleep(60);
END
$$;
SELECT payguard.create_order(399.00, 'CNY', 'shop', 'CUTS-' || i, 'cut', 'p' || i, true) FROM generate_series(1, 9) AS i;
CREATE TABLE tap.token AS SELECT i, (payguard.claim_order('CUTS-' || i, 'cut-' || i, call_by => 'application')).lease_token FROM generate_series(2, 5) AS i;
GRANT SELECT ON tap.token TO PUBLIC;
SQL
my %op = (
	create_order   => q(SELECT payguard.create_order(1, 'CNY', 'shop', 'CUT-NEW', 'cut', 'new', true)),
	replace        => q(SELECT payguard.create_order(1, 'CNY', 'shop', 'CUT-NEXT', replaces => 'CUTS-9')),
	claim_worker   => q(SELECT payguard.claim_order('CUTS-1', 'cut-1')),
	claim_app      => q(SELECT payguard.claim_order('CUTS-1', 'cut-1', call_by => 'application')),
	record_paid    => q(SELECT payguard.record_attempt((SELECT lease_token FROM tap.token WHERE i = 2), 'paid', 'ch_cut2', 399, 'CNY')),
	record_failed  => q(SELECT payguard.record_attempt((SELECT lease_token FROM tap.token WHERE i = 3), 'failed')),
	record_pending => q(SELECT payguard.record_attempt((SELECT lease_token FROM tap.token WHERE i = 3), 'pending', 'ch_cut3', client => '{"a": 1}')),
	renew_claim    => q(SELECT payguard.renew_claim((SELECT lease_token FROM tap.token WHERE i = 4), '1 day')),
	callback       => 'SELECT payguard.apply_callback(' . callback('evt_cut', 'charge.paid', 'CUTS-5', 'paid') . ')',
	parked         => 'SELECT payguard.apply_callback(' . callback('evt_cut2', 'charge.paid', 'CUT-UNKNOWN', 'paid') . ')',
	close_order    => q(SELECT payguard.close_order('CUTS-6')),
	resolve_order  => q(SELECT payguard.resolve_order('CUTS-4', 'paid', 'seen in the bank account', 'ch_cut4')),
	begin_once     => q(SELECT payguard.begin_once('cut', 'cut', '{}')),
	pause_gateway  => q(SELECT payguard.pause_gateway('shop')));
my @ops     = sort keys %op;
my $picture = $shop->sql('SELECT tap.picture()');
my %cuts;
foreach my $table (@tables)
{
	$shop->sql("CREATE TRIGGER cut BEFORE INSERT OR UPDATE OR DELETE ON payguard.$table FOR EACH ROW EXECUTE FUNCTION tap.cut()");
	my @codes = codes('all_of', @op{@ops});
	$shop->sql("DROP TRIGGER cut ON payguard.$table");
	is(join(' ', grep { !/^(?:00000|57014)$/ } @codes), '', "cancelled at $table: nothing but that");
	$cuts{ $ops[$_] } .= " $table" foreach grep { $codes[$_] eq '57014' } 0 .. $#ops;
}
is($shop->sql('SELECT tap.picture()'), $picture, 'no cancelled call left anything');
is(join(' ', grep { !$cuts{$_} } @ops), '', 'each call was cancelled somewhere');
like($cuts{record_paid}, qr/ attempts.* entitlements.* events.* evidence.* orders.* payments/, 'a success was cancelled at every table that it writes');
is(join(' ', codes('all_of', @op{@ops})), join(' ', ('00000') x @ops), 'and each call goes through afterwards');

# --- much in one transaction

$shop->sql('CREATE FUNCTION tap.memory() RETURNS bigint LANGUAGE sql SECURITY DEFINER AS $$ SELECT sum(used_bytes)::bigint FROM pg_backend_memory_contexts $$');
my ($small, $large, $saved) = split /\n/, script('app', <<'SQL');
\o /dev/null
SELECT count(payguard.create_order(1, 'CNY', 'shop', 'HUGE-' || i, 'huge' || i, 'p', true)) FROM generate_series(1, 10000) AS i;
BEGIN;
DO $$ BEGIN FOR i IN 1 .. 1000 LOOP PERFORM payguard.claim_order('HUGE-' || i, 'huge-' || i); END LOOP; END $$;
\o
SELECT tap.memory();
DO $$ BEGIN FOR i IN 1001 .. 7000 LOOP PERFORM payguard.claim_order('HUGE-' || i, 'huge-' || i); END LOOP; END $$;
SELECT tap.memory();
DO $$
DECLARE
	c payguard.claim_order_result;
BEGIN
	FOR i IN 7001 .. 10000 LOOP
		BEGIN
			c := payguard.claim_order('HUGE-' || i, 'huge-' || i, call_by => 'application');
			PERFORM payguard.record_attempt(c.lease_token, CASE WHEN i % 3 = 0 THEN 'paid' ELSE 'failed' END, 'ch_huge' || i, 1, 'CNY');
			IF i % 5 = 0 THEN
				RAISE EXCEPTION 'undone' USING ERRCODE = 'ZZ998';
			END IF;
		EXCEPTION WHEN SQLSTATE 'ZZ998' THEN NULL;
		END;
	END LOOP;
END
$$;
SELECT tap.memory();
COMMIT;
SQL
SKIP:
{
	ok($large, 'ten thousand claims in one transaction') or skip 'no numbers', 2;
	cmp_ok($large - $small, '<', 2_000_000, 'memory stays flat');
	cmp_ok($saved - $large, '<', 8_000_000, 'with savepoints as well');
}
is($shop->sql("SELECT status, count(*) FROM payguard.orders WHERE reference LIKE 'HUGE-%' GROUP BY 1 ORDER BY status::text"),
	"created|600\nfailed|1600\npaid|800\nprocessing|7000", 'and each order is where it should be');
is($shop->sql("SELECT DISTINCT rule FROM payguard.check() WHERE rule <> 'not_served'"), '', 'check() has no rows');
unlike(slurp_file($node->logfile), qr/\bXX\d{3}:|PANIC|terminated by signal|TRAP:/, 'no internal error in the log');

done_testing();
