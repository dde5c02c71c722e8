# Databases and extensions are created and dropped. A database never uses the
# hints of another one, even if queues, groups and ids are the same.
#
# Fails if keys in shared memory do not contain the database (fairq_key_of() in
# shmem.c).
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib $FindBin::Bin;
use Load;
use Test::More;

my $node = new_server('databases');

sub prepare
{
	my ($database, $groups) = @_;

	$node->safe_psql($database,
		"CREATE EXTENSION IF NOT EXISTS fairq; SELECT fairq.create_queue('q');");
	foreach my $i (1 .. 3)
	{
		$node->safe_psql($database,
			"SELECT fairq.enqueue('q', g, '$i') FROM unnest(ARRAY[$groups]) g");
	}
	return;
}

sub served
{
	my ($database, $n) = @_;
	return $node->safe_psql($database,
		"SELECT string_agg(group_key || payload, ' ') FROM fairq.pop('q', $n)");
}

sub sound
{
	my ($database, $name) = @_;
	is($node->safe_psql($database, q{SELECT fairq.check_queue('q')}),
		'', "$name: the queue is sound");
	return;
}

# The same queue in two databases.
$node->safe_psql('postgres', "CREATE DATABASE $_") foreach qw(one two);
prepare('one', q{'a', 'b'});
prepare('two', q{'x', 'y'});
is(served('one', 3), 'a1 b1 a2', 'one database');
is(served('two', 1), 'x1', 'the other');
is(served('one', 1), 'b2', 'the first one continues');
is(served('two', 2), 'y1 x2', 'the other one continues');
is( $node->safe_psql(
		'one', q{SELECT enqueued, popped FROM fairq.queues}),
	'6|4',
	'each has its own counters');
sound('one', 'one');
sound('two', 'two');

# A session stays connected while the extension is created again.
my $session = $node->background_psql('two', on_error_stop => 0);
is($session->query_safe(q{SELECT group_key || payload FROM fairq.pop('q')}),
	'y2', 'a session has worked');
$node->safe_psql('two', 'BEGIN; DROP EXTENSION fairq; ROLLBACK;');
is($session->query_safe(q{SELECT group_key || payload FROM fairq.pop('q')}),
	'x3', 'a drop that is rolled back changes nothing');
$node->safe_psql('two', 'DROP EXTENSION fairq');
$session->query(q{SELECT fairq.pop('q')});
like($session->{stderr}, qr/does not exist/, 'it is gone');
$session->{stderr} = '';
$node->safe_psql(
	'two', q{
	BEGIN;
	CREATE EXTENSION fairq;
	SELECT fairq.create_queue('q');
	SELECT fairq.enqueue('q', 'n');
	SELECT fairq.pop('q');
	ROLLBACK});
prepare('two', q{'u', 'v', 'x'});
is( $session->query_safe(
		q{SELECT string_agg(group_key || payload || '@' || fairq.block_of('q', addr), ' ') FROM fairq.pop('q', 4)}
	),
	'u1@0 v1@0 x1@0 u2@1',
	'a new extension starts from zero in the old session');
is($session->query_safe(q{SELECT fairq.enqueue('q', 'y', '1')}),
	'10', 'so do the ids');
is(served('two', 100), 'v2 x2 y1 u3 v3 x3', 'all sessions see the same tasks');
is($session->query_safe(q{SELECT group_key, group_no FROM fairq.groups WHERE group_key = 'y'}),
	'y|3', 'the new extension numbers the groups again');
$session->quit;
sound('two', 'two');

# A copy of a database has the same tables, with the same OIDs.
is(served('one', 1), 'a3', 'before the copy');
# neither database uses the rest of a chunk of ids that sessions of the other
# database have taken
$node->safe_psql('one', q{SELECT setval('fairq.task_id_seq', 100)});
$node->safe_psql('postgres', 'CREATE DATABASE copy TEMPLATE one');
is( $node->safe_psql('copy', q{SELECT 'fairq.task'::regclass::oid}),
	$node->safe_psql('one', q{SELECT 'fairq.task'::regclass::oid}),
	'a copy has the same tables');
is($node->safe_psql('copy', q{SELECT fairq.enqueue('q', 'c', '1')}),
	$node->safe_psql('one', q{SELECT fairq.enqueue('q', 'd', '1')}),
	'the same ids');
is(served('copy', 100), 'b3 c1', 'the copy has its own tasks');
is(served('one', 100), 'b3 d1', 'the original has its own tasks');
sound('copy', 'copy');

# A database is dropped, and one with the same name is created.
$node->safe_psql('postgres', 'DROP DATABASE one');
$node->safe_psql('postgres', 'CREATE DATABASE one');
prepare('one', q{'e', 'f'});
is( $node->safe_psql(
		'one',
		q{SELECT string_agg(group_key || payload || '@' || fairq.block_of('q', addr), ' ') FROM fairq.pop('q', 3)}
	),
	'e1@0 f1@0 e2@1',
	'a new database starts from zero');
sound('one', 'one again');

# Many queues are created, and a queue gets the name of a dropped one.
$node->safe_psql('one',
	q{SELECT fairq.create_queue('r' || i), fairq.enqueue('r' || i, 'g', to_jsonb(i)) FROM generate_series(1, 50) i}
);
is( $node->safe_psql(
		'one',
		q{SELECT bool_and((SELECT payload = to_jsonb(i) FROM fairq.pop('r' || i)))  FROM generate_series(1, 50) i}
	),
	't',
	'many queues do not conflict');
$node->safe_psql('one',
	q{SELECT fairq.drop_queue('r1', true); SELECT fairq.create_queue('r1'); SELECT fairq.enqueue('r1', 'h')}
);
is( $node->safe_psql(
		'one', q{SELECT group_key, addr FROM fairq.pop('r1')}),
	'h|0',
	'a queue of the same name starts from zero');

done_testing();
