# A role that may monitor a queue, or a member of pg_monitor, sees no payload,
# result, error, dedup key or worker. No row, message, notice or notification
# has such a value, and EXPLAIN reveals none of these values. The test takes its
# statements from the catalog: each relation and each function of the schema.
#
# Fails if live_tasks requires 'monitor' instead of 'work'. Fails if a view of
# tasks shows a text column of its table unchanged. Fails if roles with monitor
# may call check_queue().
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib $FindBin::Bin;
use Load;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_server('monitor', autovacuum => 'off');

# A task in each state, twice. All secret values begin with "secret".
# check_queue() reports the key that fairq.dedup has lost.
$node->safe_psql(
	'postgres', q{
	CREATE ROLE nobody LOGIN;
	CREATE ROLE worker LOGIN;
	CREATE ROLE monitor LOGIN;
	CREATE ROLE watcher LOGIN IN ROLE pg_monitor;
	GRANT USAGE ON SCHEMA fairq_internal TO PUBLIC;
	SELECT fairq.create_queue('q', notify => true, retain => '1 day', backoff => '1 hour');
	SELECT fairq.grant_queue('q', 'worker', 'work');
	SELECT fairq.grant_queue('q', 'monitor', 'monitor');
	CREATE PROCEDURE add(n int) LANGUAGE sql AS $$
		SELECT fairq.enqueue('q', 'some-group', to_jsonb('secret-payload-' || i),
			dedup_key => 'secret-dedup-' || i) FROM generate_series(1, n) i
	$$;
	CALL add(6);
	SELECT fairq.complete(id, attempt, '"secret-result"') FROM fairq.pop('q', 2);
	SELECT fairq.fail(id, attempt, 'secret-error', dead => true) FROM fairq.pop('q', 2);
	SELECT fairq.fail(id, attempt, 'secret-error') FROM fairq.pop('q', 2);
	CALL add(6);
	SELECT count(*) FROM fairq.pop('q', 2, worker => 'secret-worker');
	SELECT fairq.enqueue('q', 'some-group', '"secret-payload"', run_at => 'infinity', dedup_key => 'secret-dedup');
	DELETE FROM fairq.dedup WHERE dedup_key = 'secret-dedup';
	ANALYZE});

sub rows
{
	return $node->safe_psql('postgres',
		'SELECT t::text FROM fairq.task t ORDER BY id; SELECT a::text FROM fairq.archive a ORDER BY id; SELECT d::text FROM fairq.dedup d ORDER BY id');
}

# All output that a role gets, also from statements that fail.
sub told
{
	my ($role, @statements) = @_;
	my ($stdout, $stderr);

	$node->psql('postgres',
		join("\n",
			'\set VERBOSITY verbose', '\set SHOW_CONTEXT always',
			'SET client_min_messages = debug5;',
			map { "$_;" } @statements),
		on_error_stop => 0,
		extra_params => [ '-U', $role ],
		stdout => \$stdout,
		stderr => \$stderr);
	return "$stdout\n$stderr";
}

my @relations = split /\n/, $node->safe_psql(
	'postgres', q{SELECT oid::regclass FROM pg_class
	WHERE relnamespace::regnamespace::text ~ '^fairq' AND relkind IN ('r', 'v', 'S') ORDER BY 1});
my @ids = split /\n/,
  $node->safe_psql('postgres', 'SELECT id FROM fairq.tasks ORDER BY id');
my %by_type = (
	integer => '0', bigint => '1', text => "'q'", boolean => 'true',
	uuid => "'00000000-0000-0000-0000-000000000001'", regrole => "'nobody'", interval => "'0'", jsonb => "'1'",
	'timestamp with time zone' => 'NULL', 'bigint[]' => "'{@{[join ',', @ids]}}'",
	'text[]' => "'{some-group}'", 'jsonb[]' => "'{1}'", 'integer[]' => 'NULL');
my %by_name = (
	group_key => "'some-group'", privilege => "'work'",
	queue_id => $node->safe_psql('postgres', 'SELECT queue_id FROM fairq.queue'));

# Each function of the schemas, with its required arguments, and with each task
# if it takes a task.
sub calls
{
	my @calls;

	foreach my $line (
		split /\n/,
		$node->safe_psql(
			'postgres', q{SELECT oid::regproc, prokind, (SELECT string_agg(proargnames[i] || ':' || proargtypes[i - 1]::regtype, ',' ORDER BY i)
				FROM generate_series(1, pronargs - pronargdefaults) i)
			FROM pg_proc WHERE pronamespace::regnamespace::text ~ '^fairq' AND prorettype <> 'trigger'::regtype ORDER BY 1}
		))
	{
		my ($name, $kind, $arguments) = split /\|/, $line, -1;
		my @values;
		foreach my $argument (split /,/, $arguments)
		{
			my ($of, $type) = split /:/, $argument;
			push @values, $by_name{$of} // $by_type{$type}
			  // die "no value for $argument of $name";
		}
		my $call = $kind eq 'p' ? 'CALL' : 'SELECT * FROM';
		foreach my $id ($arguments =~ /^id:/ ? @ids : '')
		{
			$values[0] = $id if $id ne '';
			push @calls, "$call $name(" . join(', ', @values) . ')';
		}
	}
	return @calls;
}

# Each way to read, or to change, a relation.
sub ways
{
	my ($r) = @_;

	return (
		"TABLE $r", "COPY $r TO STDOUT", "COPY (TABLE $r) TO STDOUT",
		"SELECT r::text, to_jsonb(r), hashtext(r::text) FROM $r r",
		"SELECT count(*) FROM $r r WHERE pg_temp.peep(r::text)",
		"SELECT * FROM $r r WHERE (r::text)::int > 0",
		"EXPLAIN (ANALYZE, VERBOSE) TABLE $r",
		"CREATE TEMP TABLE t AS TABLE $r", 'TABLE t', 'DROP TABLE t',
		"CREATE TEMP VIEW v AS TABLE $r", 'TABLE v', 'DROP VIEW v',
		"DECLARE c CURSOR WITH HOLD FOR TABLE $r", 'FETCH ALL c', 'CLOSE c',
		"SELECT query_to_xml('TABLE $r', true, false, '')",
		"SELECT table_to_xml('$r', true, false, '')",
		"SELECT * FROM ts_stat('SELECT to_tsvector(r::text) FROM $r r')",
		"SELECT to_regclass('$r'), pg_total_relation_size('$r')",
		"SELECT pg_get_viewdef('$r')",
		"DELETE FROM $r RETURNING *", "INSERT INTO $r DEFAULT VALUES RETURNING *",
		"TRUNCATE $r", "ANALYZE VERBOSE $r", "VACUUM VERBOSE $r",
		"CREATE TEMP TABLE t (id bigint REFERENCES $r)",
		"CREATE INDEX ON $r ((1))", "CREATE STATISTICS pg_temp.s ON 1 FROM $r",
		"ALTER TABLE $r OWNER TO CURRENT_USER",
		"GRANT SELECT ON $r TO CURRENT_USER");
}

my @all = (
	q{CREATE FUNCTION pg_temp.peep(text) RETURNS boolean LANGUAGE plpgsql COST 0.0001
	AS $$ BEGIN RAISE NOTICE 'seen: %', $1; RETURN true; END $$},
	(map { ways($_) } @relations), calls(),
	(map { "SELECT * FROM fairq.tasks WHERE $_" }
		  'payload::text::int > 0', 'result::text::int > 0', 'error::int > 0', 'worker::int > 0'),
	"SELECT schema_to_xml('fairq', true, false, '')",
	"SELECT * FROM pg_stats WHERE schemaname = 'fairq'",
	"SELECT * FROM pg_stats_ext", 'TABLE pg_statistic', 'TABLE pg_locks',
	'TABLE pg_backend_memory_contexts', 'TABLE pg_prepared_statements');

# A role with the privilege work sees the secret values, and check_queue()
# shows the dedup key to a superuser.
my $before = rows();
my $seen = told('worker', 'TABLE fairq.tasks');
like($seen, qr/secret-$_/, "a worker sees a $_")
  foreach qw(payload result error worker);
like($node->safe_psql('postgres', q{SELECT fairq.check_queue('q')}),
	qr/secret-dedup/, 'check_queue() shows a dedup key');

foreach my $role (qw(nobody monitor watcher))
{
	my $told = told($role, @all);
	my @secrets = $told =~ /(.*secret.*)/g;

	is("@secrets[0 .. ($#secrets > 4 ? 4 : $#secrets)]", '', "$role: sees no secret");
	is(rows(), $before, "$role: changes nothing");
	my $mine = told($role, 'SELECT queue, group_key FROM fairq.groups',
		q{SELECT count(*) FROM fairq.lane_groups('q', 0)});
	($role eq 'nobody' ? \&unlike : \&like)->($mine, qr/^q\|some-group$/m,
		"$role: sees groups, or does not");
}

# The planner's estimates and the numbers of rows do not reveal whether a guess
# is right.
sub explained
{
	my ($role, $relation, $column, $operator, $value) = @_;
	my $plan = told($role, 'SET client_min_messages = error',
		"EXPLAIN (ANALYZE, TIMING OFF, SUMMARY OFF) SELECT * FROM $relation WHERE $column $operator '$value'");

	$plan =~ s/\Q$value\E/VALUE/g;
	return $plan;
}

my %guesses = (
	payload => [ '"secret-payload-1"', '"nobody-payload-1"', '=', '<', '@>' ],
	result => [ '"secret-result"', '"nobody-result"', '=', '<', '@>' ],
	error => [ 'secret-error', 'nobody-error', '=', '<', '>=', '^@' ],
	worker => [ 'secret-worker', 'nobody-worker', '=', '<', '>=', '^@' ],
	group_key => [ 'some-group', 'no-group-1', '=', '<', '>=', '^@' ]);
my $super = $node->safe_psql('postgres', 'SELECT current_user');
isnt(explained($super, 'fairq.task', 'error', '=', 'secret-error'),
	explained($super, 'fairq.task', 'error', '=', 'nobody-error'),
	'EXPLAIN reveals a value to a superuser');
foreach my $role (qw(nobody monitor watcher))
{
	my @differ;
	foreach my $column (sort keys %guesses)
	{
		my ($right, $wrong, @operators) = @{ $guesses{$column} };
		foreach my $relation (qw(fairq.tasks fairq.live_tasks fairq.finished_tasks))
		{
			foreach my $operator (@operators)
			{
				my $plan = explained($role, $relation, $column, $operator, $right);
				push @differ, "$relation.$column $operator"
				  if $plan !~ /rows=/
				  || $plan ne explained($role, $relation, $column, $operator, $wrong);
			}
		}
	}
	is("@differ", '', "$role: EXPLAIN reveals nothing");
}

# A notification reports that an event happened, and contains no value of a
# task.
my $listening = $node->background_psql('postgres');
$listening->query_safe('SET ROLE monitor; LISTEN "fairq.q"');
$node->safe_psql('postgres', 'CALL add(10)');
my $heard = $listening->query_safe('SELECT 1');
like($heard, qr/fairq\.q/, 'a notification arrives');
unlike($heard, qr/secret/, 'it has no payload');
$listening->quit;

$node->stop;
done_testing();
