# Restores in difficult cases: the target already has the extension, and
# sessions are at work. Schema and data are separate, the target lacks roles,
# or a restore fails half-way.
#
# Fails if pg_dump leaves out the rows of fairq.archive and fairq.task_id_seq
# (fairq--1.0.sql).
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib $FindBin::Bin;
use Load;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my @tables =
  qw(queue group_number group_setting queue_privilege task dedup archive);
my $dump = "$PostgreSQL::Test::Utils::tmp_check/restore";

# The contents of a database, rows and sequences, with the names of roles.
sub contents
{
	my ($node, $database, @but) = @_;
	my $contents = '';

	foreach my $table (@tables)
	{
		next if grep { $_ eq $table } @but;
		$contents .= "$table\n"
		  . $node->safe_psql($database,
			"SELECT t::text FROM fairq.$table t ORDER BY t::text COLLATE \"C\""
		  ) . "\n";
	}
	return $contents
	  . $node->safe_psql($database,
		'SELECT t.last_value, t.is_called, q.last_value, q.is_called'
		  . ' FROM fairq.task_id_seq t, fairq.queue_id_seq q');
}

sub sqlstate
{
	my ($node, $database, $sql) = @_;
	my ($status, $stdout, $stderr) =
	  $node->psql($database, "\\set VERBOSITY sqlstate\n$sql");

	return $stderr =~ /ERROR:  (\w+)/ ? $1 : $stdout;
}

sub restore
{
	my ($node, $database, $file, @options) = @_;

	return $node->command_ok(
		[
			'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', @options, '-f',
			$file, $database
		],
		"$database: restore");
}

# Work continues. A leased task accepts only calls with its attempt. Keys are in
# use, limits and pauses apply, and all tasks can be served.
sub goes_on
{
	my ($node, $database, $session) = @_;
	my $sql = sub {
		return $session
		  ? $session->query_safe($_[0])
		  : $node->safe_psql($database, $_[0]);
	};
	my $popped = sub {
		my ($queue, $n) = @_;
		return $sql->(
			"SELECT string_agg(group_key || payload, ' ') FROM fairq.pop('$queue', $n)"
		);
	};
	my $of = sub {
		my ($call, $name) = @_;
		return $sql->(
			"SELECT $call FROM fairq.tasks WHERE payload = '\"$name\"'");
	};

	is( $sql->('SELECT fairq.check_queue(name) FROM fairq.queue'),
		'', "$database: all queues are sound");
	is($popped->('full', 3),
		'a"3" b"2" c"1"', "$database: a round begins");
	is($of->('fairq.complete(id, 1)', 'twice'),
		'f', "$database: a lease that was lost stays lost");
	is($of->('fairq.extend(id, 2) > now()', 'twice'),
		't', "$database: another lease is extended");
	is($of->('fairq.complete(id, 2)', 'twice'),
		't', "$database: and its task completed");
	is($of->('fairq.extend(id, 1) IS NULL', 'doomed'),
		't', "$database: a worker is informed that its task was cancelled");
	is( $of->(q{id = fairq.enqueue('life', 'l', dedup_key => 'k')}, 'later'),
		't',
		"$database: a key is taken");
	is( $sql->(
			q{SELECT fairq.enqueue('life', 'l', '"new"') > max(id) FROM ids}),
		't',
		"$database: ids continue");
	is($popped->('life', 10), '', "$database: limits and pauses hold");
	$sql->(q{SELECT fairq.resume('life', 'paused')});
	is($popped->('life', 10),
		'paused"paused"', "$database: a resumed group is served");
	is($sql->(q{SELECT fairq.redrive('life')}),
		'1', "$database: failed tasks are redriven");
	$sql->(q{SELECT fairq.create_queue('last')});
	is( $sql->(
			q{SELECT count(*) = 3 AND max(queue_id) = max(queue_id) FILTER (WHERE name = 'last') FROM fairq.queue}
		),
		't',
		"$database: queues' ids continue");

	$sql->(
		q{SELECT fairq.alter_queue('life', concurrency => 0);
		SELECT fairq.cancel(id) FROM fairq.tasks WHERE status = 'scheduled'});
	foreach (1 .. 3)
	{
		$sql->(
			q{SELECT fairq.complete(id) FROM fairq.tasks WHERE status = 'running';
			SELECT fairq.pop(name, 100) FROM fairq.queue});
	}
	is($sql->('SELECT count(*) FROM fairq.task'),
		'0', "$database: all can be finished");
	is( $sql->('SELECT fairq.check_queue(name) FROM fairq.queue'),
		'', "$database: and all is sound");
	return;
}

my $node = new_server('restore');
$node->safe_psql('postgres', "CREATE ROLE $_")
  foreach ('producer', 'worker', 'creator', 'other', 'gone', '"Big ""Boss"""');
$node->safe_psql(
	'postgres', q{
	SELECT fairq.create_queue('dropped');
	SELECT fairq.drop_queue('dropped');

	SELECT fairq.create_queue('full', block_length => 1000, lease => '1 hour');
	SELECT fairq.enqueue_batch('full', ARRAY['a', 'b', 'a', 'b', 'a', 'b'],
		ARRAY['"1"', '"1"', '"2"', '"2"', '"3"', '"3"']::jsonb[]);
	SELECT fairq.pop('full', 3, worker => 'w');
	SELECT fairq.set_group('full', 'c', weight => 2);
	SELECT fairq.enqueue('full', 'c', '"1"'), fairq.enqueue('full', 'c', '"2"');

	SELECT fairq.create_queue('life', concurrency => 2, max_running => 50, retain => '1 day',
		lease => '1 hour', backoff => '1 hour', max_attempts => 3);
	SELECT fairq.enqueue('life', 't', '"twice"');
	SELECT fairq.release(id, attempt) FROM fairq.pop('life');
	SELECT fairq.pop('life', worker => 'again');
	SELECT fairq.enqueue('life', 'd', '"doomed"');
	SELECT fairq.cancel(id) FROM fairq.pop('life');
	SELECT fairq.enqueue('life', 'r', '"retried"', dedup_key => 'r');
	SELECT fairq.fail(id, attempt, 'not now') FROM fairq.pop('life');
	SELECT fairq.enqueue('life', 'f', '"failed"', dedup_key => 'f');
	SELECT fairq.fail(id, attempt, 'never', dead => true) FROM fairq.pop('life');
	SELECT fairq.enqueue('life', 's', '"completed"');
	SELECT fairq.complete(id, attempt, '"result"') FROM fairq.pop('life');
	SELECT fairq.enqueue('life', 'l', '"limited"') FROM generate_series(1, 5);
	SELECT fairq.pop('life', 10);
	SELECT fairq.enqueue('life', 'l', '"later"', dedup_key => 'k', run_at => 'infinity');
	SELECT fairq.enqueue('life', 'paused', '"paused"', priority => 3);
	SELECT fairq.pause('life', 'paused');
	SELECT fairq.set_group('life', 'own', concurrency => 7);

	SELECT fairq.grant_queue('life', 'producer', 'enqueue');
	SELECT fairq.grant_queue('life', 'worker', 'work');
	SELECT fairq.grant_queue('full', '"Big ""Boss"""', 'manage');
	GRANT EXECUTE ON FUNCTION fairq.create_queue TO creator;
	REVOKE EXECUTE ON FUNCTION fairq.pop(text, int, interval, int, text) FROM PUBLIC;
	GRANT EXECUTE ON FUNCTION fairq.pop(text, int, interval, int, text) TO worker;

	CREATE TABLE ids AS SELECT id FROM fairq.task UNION ALL SELECT id FROM fairq.archive;
});
my $before = contents($node, 'postgres');

# pg_dump would write a grant to a dropped role as a number, which may belong to
# another role in the target.
$node->safe_psql('postgres',
	q{SELECT fairq.grant_queue('full', 'gone', 'manage'); DROP ROLE gone});
foreach my $kind ('--data-only', '--schema-only', '--inserts', '-Fp', '-Fc')
{
	$node->command_ok([ 'pg_dump', $kind, '-f', "$dump$kind", 'postgres' ],
		"pg_dump $kind");
}
$node->safe_psql('postgres', "CREATE DATABASE $_")
  foreach qw(whole inserts apart known busy again);

restore($node, 'whole', "$dump-Fp");
is(contents($node, 'whole'), $before, 'whole: rows and sequences');
is( $node->safe_psql(
		'whole', q{
		SELECT has_function_privilege('creator', 'fairq.create_queue'::regproc, 'EXECUTE'),
			has_function_privilege('producer', 'fairq.create_queue'::regproc, 'EXECUTE'),
			has_function_privilege('worker', 'fairq.pop(text, int, interval, int, text)'::regprocedure, 'EXECUTE'),
			has_function_privilege('producer', 'fairq.pop(text, int, interval, int, text)'::regprocedure, 'EXECUTE'),
			has_table_privilege('worker', 'fairq.task', 'SELECT')}),
	't|f|t|f|f',
	'whole: privileges on functions, granted and revoked');
foreach my $case (
	[ 'producer', q{fairq.enqueue('life', 'p', run_at => 'infinity') > 0}, 't' ],
	[ 'producer', q{fairq.take('life')}, '42501' ],
	[ 'worker', q{count(*) FROM fairq.pop('life')}, '0' ],
	[ 'worker', q{fairq.enqueue('life', 'p')}, '42501' ],
	[ 'worker', q{fairq.take('full')}, '42501' ],
	[ '"Big ""Boss"""', q{fairq.purge('full', 'nobody')}, 'QF007' ],
	[ 'creator', q{fairq.create_queue('full')}, 'QF002' ],
	[ 'other', q{fairq.enqueue('life', 'p')}, '42501' ])
{
	my ($role, $call, $expected) = @$case;
	is(sqlstate($node, 'whole', "SET ROLE $role; SELECT $call"),
		$expected, "whole: $role: $call");
}
goes_on($node, 'whole');

restore($node, 'inserts', "$dump--inserts");
is(contents($node, 'inserts'), $before, 'inserts: rows and sequences');

# The schema comes without rows, and the rows without the schema.
restore($node, 'apart', "$dump--schema-only");
is($node->safe_psql('apart', 'SELECT count(*) FROM fairq.queue'),
	'0', 'apart: the schema is empty');
restore($node, 'apart', "$dump--data-only");
is(contents($node, 'apart'), $before, 'apart: rows and sequences');
goes_on($node, 'apart');

# A session has cached queues with the same names and ids, which were dropped
# before the restore.
$node->safe_psql('known',
	'CREATE EXTENSION fairq; CREATE TABLE ids (id bigint)');
my $session = $node->background_psql('known');
$session->query_safe(
	q{SELECT fairq.create_queue(name, concurrency => 1) FROM unnest(ARRAY['x', 'life', 'full']) name;
	SELECT fairq.enqueue(name, g, priority => 3), fairq.enqueue(name, g)
		FROM fairq.queue, unnest(ARRAY['l', 'b', 'c', 'a', 'paused']) g;
	SELECT fairq.complete(id) FROM fairq.queue q, fairq.pop(q.name, 3);
	SELECT fairq.drop_queue(name, true) FROM fairq.queue});
restore($node, 'known', "$dump--data-only", '-1');
is(contents($node, 'known'), $before, 'known: rows and sequences');
is( $session->query_safe(
		q{SELECT string_agg(group_key || payload, ' ') FROM fairq.pop('life', 10)}
	),
	'',
	'known: the session uses the new limits');
$session->query_safe(
	q{SELECT fairq.enqueue('life', 'l', '"number"', run_at => 'infinity')});
is( $session->query_safe(
		q{SELECT group_key FROM fairq.tasks WHERE payload = '"number"'}),
	'l',
	'known: the session uses the new numbers of groups');
$session->query_safe(
	q{SELECT fairq.cancel(id) FROM fairq.tasks WHERE payload = '"number"'});
$session->quit;
goes_on($node, 'known');

# Sessions work while rows are restored. The sessions must check again whether
# tables are empty and keys are free, as both were before the restore.
$node->safe_psql('busy',
	'CREATE EXTENSION fairq; CREATE TABLE ids (id bigint)');
my ($list) = run_command([ 'pg_restore', '-l', "$dump-Fc" ]);
my @list = map { "$_\n" } split /\n/, $list;
my @tasks = grep { /TABLE DATA fairq task / } @list;
is(scalar(@tasks), 1, 'busy: the tasks are one part of the dump');
foreach my $part ([ 'tasks', @tasks ],
	[ 'rest', grep { !/TABLE DATA fairq task / } @list ])
{
	my ($name, @lines) = @$part;
	append_to_file("$dump-list-$name", join('', @lines));
	$node->command_ok(
		[
			'pg_restore', '-a', '-L', "$dump-list-$name",
			'-f', "$dump-$name", "$dump-Fc"
		],
		"busy: $name");
}
restore($node, 'busy', "$dump-rest");
$session = $node->background_psql('busy');
my $nothing = q{SELECT count(*) FROM fairq.queue q, fairq.pop(q.name, 10)};
is($session->query_safe($nothing), '0', 'busy: nothing is there');
my $restore = $node->background_psql('busy');
$restore->query_safe("BEGIN;\n\\i $dump-tasks\n");
is($session->query_safe($nothing), '0', 'busy: no task is visible yet');
$restore->query_safe('COMMIT');
$restore->quit;
is(contents($node, 'busy'), $before, 'busy: rows and sequences');
goes_on($node, 'busy', $session);
$session->quit;

# A failed restore leaves nothing behind, and the next one works.
$node->safe_psql('again',
	'CREATE EXTENSION fairq; CREATE TABLE ids (id bigint)');
append_to_file("$dump-broken", slurp_file("$dump--data-only") . "\nSELECT 1/0;\n");
$session = $node->background_psql('again');
$node->command_fails(
	[
		'psql', '-X', '-q', '-1', '-v', 'ON_ERROR_STOP=1', '-f',
		"$dump-broken", 'again'
	],
	'again: a restore that fails');
is($node->safe_psql('again', 'SELECT count(*) FROM fairq.task'),
	'0', 'again: nothing is left of the failed restore');
is($session->query_safe($nothing), '0', 'again: and nothing served');
restore($node, 'again', "$dump--data-only");
is(contents($node, 'again'), $before, 'again: rows and sequences');
goes_on($node, 'again', $session);
$session->quit;

# A server that lacks some of the roles. Grants to the missing roles fail, with
# all others of the same statement, and can be restored later.
my $foreign = PostgreSQL::Test::Cluster->new('foreign');
$foreign->init;
$foreign->start;
$foreign->safe_psql('postgres',
	'CREATE ROLE worker; CREATE ROLE "Big ""Boss"""; CREATE ROLE creator');
$foreign->safe_psql('postgres', "CREATE DATABASE $_")
  foreach qw(foreign_copy foreign_inserts);
my $without = contents($node, 'inserts', 'queue_privilege');
my $grants =
  q{SELECT string_agg(role || ' ' || privilege, ', ' ORDER BY role::text) FROM fairq.queue_privilege};

$foreign->command_checks_all(
	[ 'pg_restore', '-d', 'foreign_copy', "$dump-Fc" ],
	1,
	[qr/^$/],
	[qr/role "producer" does not exist/],
	'foreign_copy: restore');
is(contents($foreign, 'foreign_copy', 'queue_privilege'),
	$without, 'foreign_copy: only the grants are missing');
is($foreign->safe_psql('foreign_copy', $grants),
	'', 'foreign_copy: all grants are missing, as they were one COPY');
$foreign->safe_psql('postgres', 'CREATE ROLE producer');
my $worker = $foreign->background_psql('foreign_copy', on_error_stop => 0);
$worker->query(q{SET ROLE worker; SELECT fairq.pop('life')});
like($worker->{stderr}, qr/permission denied/,
	'foreign_copy: a session caches that its role has no grant');
$worker->{stderr} = '';
$foreign->command_ok(
	[
		'pg_restore', '-a', '-n', 'fairq', '-t', 'queue_privilege', '-d',
		'foreign_copy', "$dump-Fc"
	],
	'foreign_copy: the grants are restored later');
is($foreign->safe_psql('foreign_copy', $grants),
	'"Big ""Boss""" manage, producer enqueue, worker work',
	'foreign_copy: and all there');
is( $foreign->safe_psql('foreign_copy',
		q{SET ROLE worker; SELECT count(*) FROM fairq.pop('life')}),
	'0',
	'foreign_copy: the grants apply to new sessions');
$worker->query(q{SELECT fairq.pop('life')});
is($worker->{stderr}, '', 'foreign_copy: the grants apply to open sessions');
$worker->quit;
goes_on($foreign, 'foreign_copy');

$foreign->safe_psql('foreign_copy', 'DROP ROLE producer');
$foreign->command_checks_all(
	[ 'psql', '-X', '-q', '-f', "$dump--inserts", 'foreign_inserts' ],
	0,
	[],
	[qr/role "producer" does not exist/],
	'foreign_inserts: restore');
is(contents($foreign, 'foreign_inserts', 'queue_privilege'),
	$without, 'foreign_inserts: only the grants are missing');
is($foreign->safe_psql('foreign_inserts', $grants),
	'"Big ""Boss""" manage, worker work',
	'foreign_inserts: only the grant to producer is missing');

done_testing();
