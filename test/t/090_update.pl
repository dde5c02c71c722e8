# ALTER EXTENSION fairq UPDATE on a live queue. The test makes a version 1.1:
# the same library with one more function. Version 1.1 is installed while
# sessions work with 1.0, and the update runs in the middle of their
# transactions.
#
# Fails if the new library increments LAYOUT, or if it gives its segment of
# shared memory another name (shmem.c). Then each library has its own hints.
# Fails if a library with another LAYOUT uses the segment (attach_arena()
# there).
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib $FindBin::Bin;
use Load;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# Other tests use the installation that test/cluster has made, so this test
# writes to a copy of it.
my $cluster = $ENV{FAIRQ_CLUSTER};
my $bindir = $ENV{PG_CONFIG} ? `'$ENV{PG_CONFIG}' --bindir` : '';
chomp $bindir;
plan skip_all => 'runs in test/cluster only'
  unless $cluster && $bindir =~ m{^\Q$cluster\E/root(/.*)/bin$};
my $prefix = $1;
my $temp = PostgreSQL::Test::Utils::tempdir();
my $pg_config = "$temp/root$prefix/bin/pg_config";

# The copy keeps the times of the files, so that make compiles only files that
# differ.
foreach my $part ('root', 'tree')
{
	mkdir "$temp/$part" or die $!;
	system_or_bail(
		"tar -C '$cluster/$part' --exclude=./tmp_check -cf - . | tar -C '$temp/$part' -xpf -"
	);
}

sub change
{
	my ($file, $from, $to) = @_;
	my $text = slurp_file("$temp/tree/$file");

	$text =~ s/$from/$to/ or die "$file does not match $from";
	open my $handle, '>', "$temp/tree/$file" or die $!;
	print $handle $text;
	close $handle;
	return;
}

sub make_version
{
	change('src/sql/fairq.c', qr/cstring_to_text\(FAIRQ_VERSION\)/,
		'cstring_to_text("1.1")');
	append_to_file("$temp/tree/src/sql/fairq.c", <<'C');
PG_FUNCTION_INFO_V1(fairq_added);

Datum
fairq_added(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32(PG_GETARG_INT32(0) + 1);
}
C
	append_to_file("$temp/tree/fairq--1.0--1.1.sql", <<'SQL');
/* fairq--1.0--1.1.sql */

-- complain if script is sourced in psql, rather than via ALTER EXTENSION
\echo Use "ALTER EXTENSION fairq UPDATE TO '1.1'" to load this file. \quit

CREATE FUNCTION fairq.added(n int) RETURNS int
	AS 'MODULE_PATHNAME', 'fairq_added' LANGUAGE C STRICT PARALLEL SAFE;
COMMENT ON FUNCTION fairq.added(int) IS 'One more.';
CREATE VIEW fairq.running AS
	SELECT * FROM fairq.tasks WHERE status = 'running';
GRANT SELECT ON fairq.running TO PUBLIC;
SQL
	change('fairq.control', qr/default_version = '1.0'/,
		"default_version = '1.1'");
	change('Makefile', qr/^DATA = /m, 'DATA = fairq--1.0--1.1.sql ');
	install_it();
	return;
}

sub install_it
{
	# variables of an outer make would affect this make
	delete local @ENV{qw(MAKEFLAGS MAKEOVERRIDES MFLAGS MAKELEVEL)};
	system_or_bail('make', '-s', '-C', "$temp/tree",
		"PG_CONFIG=$pg_config", 'with_llvm=no', 'all', 'install');
	return;
}

my $node =
  PostgreSQL::Test::Cluster->new('update', install_path => "$temp/root$prefix");
$node->init;
$node->start;
my $sql = sub { return $node->safe_psql('postgres', $_[0]); };
my $popped = sub {
	return
	  "SELECT string_agg(group_key || payload, ' ') FROM fairq.pop('q', $_[0])";
};
my $version = q{SELECT extversion FROM pg_extension WHERE extname = 'fairq'};

# Sessions in all states: one in a transaction that has enqueued and popped,
# one that is idle, one that waits.
$sql->(
	q{CREATE EXTENSION fairq;
	SELECT fairq.create_queue('q', concurrency => 4, lease => '1 hour');
	SELECT fairq.enqueue_batch('q', ARRAY['a', 'b', 'a', 'b', 'a', 'b'], ARRAY['1', '1', '2', '2', '3', '3']::jsonb[]);
	SELECT fairq.enqueue('q', 'k', dedup_key => 'k', run_at => 'infinity');
	SELECT fairq.create_queue('empty')});
is($sql->($version), '1.0', 'it begins with 1.0');
my ($open, $idle, $waits) =
  map { $node->background_psql('postgres', on_error_stop => 0) } 1 .. 3;
is($open->query_safe('BEGIN; ' . $popped->(2)),
	'a1 b1', 'a transaction has popped');
$open->query_safe(q{SELECT fairq.enqueue('q', 'late', '1')});
is($idle->query_safe($popped->(1)), 'a2', 'a session has worked');
$waits->query_until(qr/waits/,
	"\\echo waits\nCALL fairq.wait('empty', '100 s');\n");
$node->poll_query_until('postgres',
	q{SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event_type = 'Extension'})
  or die 'nobody waits';

make_version();
is($sql->('SELECT fairq.version()'), '1.1', 'a new session has the new library');
is($idle->query_safe('SELECT fairq.version()'),
	'1.0', 'an open session keeps the old library');
is($sql->($version), '1.0', 'a new session has the objects of 1.0');
is($sql->($popped->(1)), 'b2', 'a new session works on the queue');
is($idle->query_safe($popped->(1)), 'a3', 'an open session works on the queue, too');

# The update does not wait for open transactions of these sessions.
$sql->(q{BEGIN; ALTER EXTENSION fairq UPDATE; SELECT fairq.added(1); ROLLBACK});
is($sql->($version), '1.0', 'an update can be rolled back');
$sql->(q{SET lock_timeout = '20 s'; ALTER EXTENSION fairq UPDATE TO '1.1'});
is($sql->($version), '1.1', 'the extension is updated');
is($sql->('SELECT fairq.added(1), count(*) FROM fairq.running'),
	'2|3', 'a new function works');
is( $sql->(
		q{SELECT count(*) FROM pg_depend WHERE refclassid = 'pg_extension'::regclass
		AND objid IN ('fairq.added'::regproc, 'fairq.running'::regclass) AND deptype = 'e'}
	),
	'2',
	'new objects belong to the extension');
$idle->query('SELECT fairq.added(1)');
like($idle->{stderr}, qr/could not find function "fairq_added"/,
	'a new function does not work with the old library');
$idle->{stderr} = '';

# Work continues in all of these sessions.
is($open->query_safe($popped->(1)), 'b3',
	'the open transaction continues');
$open->query_safe(q{SELECT fairq.complete(id) FROM fairq.tasks WHERE payload = '1' AND status = 'running'});
$open->query_safe('COMMIT');
is($sql->($popped->(10)), 'late1', 'the task that the open transaction enqueued exists');
is($sql->(q{SELECT fairq.enqueue('q', 'a', dedup_key => 'k') = id FROM fairq.tasks WHERE group_key = 'k'}),
	't', 'keys stay taken');
is($idle->query_safe(q{SELECT fairq.complete(id, 1) FROM fairq.tasks WHERE group_key || payload = 'b2'}),
	't', 'an old session completes the task that a new one popped');
$sql->(q{SELECT fairq.enqueue('empty', 'e')});
is($waits->query_safe(q{SELECT group_key FROM fairq.pop('empty')}) =~ s/.*\n//sr,
	'e', 'a waiting session is woken, and pops');
is($sql->(q{SELECT fairq.check_queue(name) FROM fairq.queue}),
	'', 'the queues are sound');
$_->quit foreach ($open, $idle, $waits);

# After a restart all sessions have the new library. A dump names no version,
# and is restored with the installed version.
$node->restart;
is($sql->('SELECT fairq.version(), fairq.added(1)'),
	'1.1|2', 'restarted: all is new');
is($sql->(q{SELECT string_agg(group_key || payload, ' ' ORDER BY id) FROM fairq.running}),
	'a2 a3 b3 late1 e{}', 'restarted: running tasks still run');
$node->command_ok(
	[ 'pg_dump', '-f', "$temp/dump", $node->connstr('postgres') ], 'dump');
$sql->('CREATE DATABASE restored');
$node->command_ok(
	[
		'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', "$temp/dump",
		$node->connstr('restored')
	],
	'restore');
is($node->safe_psql('restored', $version), '1.1', 'restored: 1.1');
foreach my $database ('postgres', 'restored')
{
	is( $node->safe_psql($database,
			q{SELECT count(*) FILTER (WHERE fairq.complete(id, 1)) FROM fairq.running}),
		'5',
		"$database: running tasks are completed");
	is($node->safe_psql($database, q{SELECT fairq.cancel(id) FROM fairq.tasks WHERE status = 'scheduled'}),
		't', "$database: scheduled tasks are cancelled");
	is($node->safe_psql($database, q{SELECT fairq.check_queue('q')}),
		'', "$database: the queue is sound");
}

# A version whose shared memory has another layout needs a restart.
change('src/base/shmem.c', qr/^#define LAYOUT \d+/m, '#define LAYOUT 0');
install_it();
my (undef, undef, $error) = $node->psql('postgres', q{SELECT fairq.enqueue('q', 'a')});
like($error, qr/set up by another version/, 'another layout: calls fail');
$node->restart;
is($sql->(q{SELECT fairq.enqueue('q', 'a') > 0}), 't', 'until a restart');

done_testing();
