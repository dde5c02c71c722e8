# pg_dump and restore of a live queue: tasks, addresses, leases and sequences
# come back, and work goes on.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib $FindBin::Bin;
use Load;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_server('dump');
$node->safe_psql(
	'postgres', q{
	SELECT fairq.create_queue('other'), fairq.create_queue('q', block_length => 1000, lease => '1 hour');
	SELECT fairq.enqueue_batch('q', ARRAY['a', 'b', 'a', 'b', 'a', 'b'], ARRAY['1', '1', '2', '2', '3', '3']::jsonb[]);
	SELECT fairq.set_group('q', 'c', weight => 2);
	SELECT fairq.pop('q', 3, worker => 'w');
	SELECT fairq.enqueue('q', 'a', '9', priority => 3);
});
my $open = $node->background_psql('postgres');
$open->query_safe(
	q{BEGIN; SELECT id FROM fairq.pop('q'); SELECT fairq.enqueue('q', 'late')});

my $dump = "$PostgreSQL::Test::Utils::tmp_check/dump";
$node->safe_psql('postgres', "CREATE DATABASE $_") foreach qw(plain custom);
$node->command_ok([ 'pg_dump', '-f', "$dump.sql", 'postgres' ], 'plain dump');
$node->command_ok(
	[ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', "$dump.sql", 'plain' ],
	'its restore');
$node->command_ok([ 'pg_dump', '-Fc', '-f', "$dump.dump", 'postgres' ],
	'custom dump');
$node->command_ok(
	[ 'pg_restore', '-e', '-j', '2', '-d', 'custom', "$dump.dump" ],
	'its restore');
$open->query_safe('ROLLBACK');
$open->quit;

foreach my $database ('plain', 'custom')
{
	foreach my $table ('queue', 'seat', 'group_setting', 'task')
	{
		my $rows =
		  "SELECT string_agg(t::text, chr(10) ORDER BY t::text) FROM fairq.$table t";

		is( $node->safe_psql($database, $rows),
			# the seat of the group that was open is not there
			$node->safe_psql('postgres', $rows),
			"$database: fairq.$table");
	}
	is( $node->safe_psql(
			$database,
			q{SELECT string_agg(group_key || payload, ' ') FROM fairq.pop('q', 2)}
		),
		'b2 a3',
		"$database: the round goes on");
	is($node->safe_psql($database, q{SELECT fairq.complete(1, 1)}),
		't', "$database: what was running can be completed");
	$node->safe_psql($database,
		q{SELECT fairq.enqueue('q', 'c', '1'), fairq.enqueue('q', 'c', '2')});
	is( $node->safe_psql(
			$database,
			q{SELECT string_agg(group_key || payload, ' ') FROM fairq.pop('q', 100)}
		),
		'b3 c1 c2 a9',
		"$database: in fair order, by weight and priority");
	is( $node->safe_psql(
			$database, q{SELECT count(DISTINCT id), min(id) FROM fairq.task}),
		'8|2',
		"$database: ids are distinct");
	$node->safe_psql($database, q{SELECT fairq.create_queue('third')});
	is( $node->safe_psql(
			$database, q{SELECT max(queue_id) FROM fairq.queue}),
		'3',
		"$database: queues' ids go on");
	is($node->safe_psql($database, q{SELECT fairq.check_queue('q')}),
		'', "$database: the queue is sound");
}

done_testing();
