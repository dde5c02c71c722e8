# A restart with many groups. The first calls do not read all groups. A call
# that finds no ready group has to read all groups. That takes longer than the
# statement_timeout in this test. A cancelled call keeps what it has read, so a
# session succeeds by trying again. The first calls also do not write all of the
# memory for groups.
#
# Fails if a call reads all groups before the first turn. Fails if each call
# reads from the beginning again. Fails if all of the memory for groups is
# zeroed.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib $FindBin::Bin;
use Load;
use PostgreSQL::Test::Utils;
use Test::More;

my $groups = 80000;
my $node = new_server('cold_start');

$node->safe_psql(
	'postgres', "SELECT fairq.create_queue('cold');
	SELECT count(*) FROM (SELECT fairq.enqueue_batch('cold', array_agg('g' || n), array_agg(to_jsonb(n)))
		FROM generate_series(1, $groups) n) b;");

crash($node);

# The number of buffers that a call reads. To read all groups takes 80,000
# buffers.
sub buffers
{
	my ($call) = @_;
	my $plan = $node->safe_psql('postgres',
		"SELECT 1 FROM fairq.queues; EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) SELECT * FROM $call");

	my ($hit) = $plan =~ /"Shared Hit Blocks": (\d+)/;
	my ($read) = $plan =~ /"Shared Read Blocks": (\d+)/;
	return $hit + $read;
}

cmp_ok(buffers("fairq.enqueue('cold', 'g3')"),
	'<', 3000, 'the first enqueue reads little');
cmp_ok(buffers("fairq.pop('cold', 100, lease => '1 hour')"),
	'<', 3000, 'the first pop reads little');
is( $node->safe_psql(
		'postgres', q{SELECT string_agg(group_key, ' ') FROM fairq.pop('cold', 3, lease => '1 hour')}),
	'g101 g102 g103',
	'a pop continues at the next group');

# Each task exists once.
is( $node->safe_psql(
		'postgres',
		"SELECT count(DISTINCT id), count(*) FROM fairq.pop('cold', 1000000, lease => '1 hour');
		SELECT ready, running FROM fairq.queues WHERE queue = 'cold'"),
	join("\n", ($groups + 1 - 103) . '|' . ($groups + 1 - 103), '0|' . ($groups + 1)),
	'no task is lost or served twice');

# One session makes calls of at most 20 ms each, until one has found no ready
# group.
crash($node);
my ($out, $err);
$node->psql(
	'postgres',
	"SET statement_timeout = '20ms';\n"
	  . "SELECT 'served ' || count(*) FROM fairq.pop('cold');\n" x 3000,
	stdout => \$out,
	stderr => \$err,
	on_error_stop => 0);
my $cancelled = () = $err =~ /canceling statement due to statement timeout/g;
cmp_ok($cancelled, '>', 1, 'a call that finds no group is cancelled at first');
like($out, qr/^served 0$/m, 'but a later one ends');
is( $node->safe_psql(
		'postgres',
		"SELECT count(fairq.enqueue('cold', 'g5'));
		SELECT group_key FROM fairq.pop('cold', 10);
		SELECT fairq.check_queue('cold')"),
	"1\ng5", 'and a new task is found');

# The first calls touch little of 28 MB of shared memory, including the buffers
# that they read.
SKIP:
{
	skip 'the system does not report touched memory', 1
	  unless -r '/proc/self/status' && slurp_file('/proc/self/status') =~ /^RssShmem:/m;
	my $touched = q{substring(pg_read_file('/proc/self/status') FROM 'RssShmem:\s+(\d+)')::int};

	crash($node);
	cmp_ok(
		$node->safe_psql('postgres',
			"SELECT $touched AS before \\gset\n"
			  . "SELECT fairq.create_queue('small') \\gset\n"
			  . "SELECT fairq.enqueue('small', 'g') \\gset\n"
			  . "SELECT $touched - :before FROM fairq.pop('small')"),
		'<', 12000, 'the first calls touch few pages of shared memory');
}

$node->stop;
done_testing();
