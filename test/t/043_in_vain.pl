# A call finds many groups that it cannot serve, in cost-fair and time-fair
# queues. The call visits each of these groups a few times at most. The test
# counts visits, and measures no time.
#
# Fails if each search begins at the first group (visits_passed() in
# lane_order.c returns NULL). Fails if a call ignores added groups that precede
# those that the call has passed (lower_for_added() in lane_order.c).
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib $FindBin::Bin;
use Load;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_server('in_vain');
my $groups = 3000;

# A pop's message about skipped groups: how many there were, and how many
# visits they took.
sub passed
{
	my ($sql) = @_;
	my $before = -s $node->logfile;
	my $out = $node->safe_psql('postgres', "SET log_min_messages = debug2; $sql");
	my $log = slurp_file($node->logfile, $before);
	my ($passed, $looked) = $log =~ /passed over (\d+) groups in priority 0 of queue "\w+", looked at (\d+)/;
	return ($out, $passed // 0, $looked // 0);
}

my $locking = $node->background_psql('postgres');
foreach my $by (qw(cost time))
{
	$node->safe_psql('postgres', qq{SELECT fairq.create_queue('$by', fair_by => '$by');
		SELECT count(*) FROM fairq.enqueue_batch('$by', ARRAY(SELECT 'g' || i FROM generate_series(1, $groups) i),
			ARRAY(SELECT '1'::jsonb FROM generate_series(1, $groups)))});
	$locking->query_safe('BEGIN; SELECT count(*) FROM (SELECT id FROM fairq.task FOR UPDATE) _');
	foreach my $n (1, 100)
	{
		my ($got, $passed, $looked) = passed("SELECT count(*) FROM fairq.pop('$by', $n)");
		is($got, 0, "by $by: pop($n) finds only locked rows of $groups groups");
		is($passed, $groups, '... each is passed over');
		cmp_ok($looked, '<=', 10 * $groups, '... after a few looks');
	}
	$locking->query_safe('ROLLBACK');
	is($node->safe_psql('postgres', "SELECT count(*) FROM fairq.pop('$by', $groups)"), $groups,
		'... and all are popped once they are unlocked');
	$node->safe_psql('postgres', "SELECT fairq.drop_queue('$by', force => true)");
}

# Each call adds only some of the groups to the order. The groups that are
# added last come before groups that the call has already passed.
my $keys = q{ARRAY(SELECT 'a' || i FROM generate_series(1, 64) i) || ARRAY(SELECT 'c' || i FROM generate_series(1, 64) i)};
$node->safe_psql('postgres', qq{SELECT fairq.create_queue('q', fair_by => 'cost');
	SELECT count(*) FROM fairq.enqueue_batch('q', $keys, array_fill('1'::jsonb, ARRAY[128]),
		costs => array_fill(100::real, ARRAY[64]) || array_fill(200::real, ARRAY[64]));
	SELECT count(fairq.complete(id, attempt)) FROM fairq.pop('q', 128);
	SELECT count(*) FROM fairq.enqueue_batch('q', $keys || '{b1,b2}'::text[], array_fill('1'::jsonb, ARRAY[130]))});
$locking->query_safe(
	q{BEGIN; SELECT count(*) FROM (SELECT t.id FROM fairq.task t JOIN fairq.tasks USING (id)
	  WHERE group_key !~ '^b' FOR UPDATE OF t) _});
is($node->safe_psql('postgres', q{SELECT string_agg(group_key, ',' ORDER BY turn) FROM
	(SELECT group_key, row_number() OVER () AS turn FROM fairq.pop('q', 5)) _}),
	'b1,b2', 'groups before those that were passed over are served');
$locking->query_safe('ROLLBACK');
$locking->quit;

# A transaction enqueues tasks of many groups, which have a limit, and pops
# them.
my $many = 30000;
foreach my $by (qw(cost time tasks))
{
	my ($out, $passed, $looked) = passed(qq{
		SELECT fairq.create_queue('many_$by', fair_by => '$by', concurrency => 1);
		BEGIN;
		SELECT count(*) FROM fairq.enqueue_batch('many_$by',
			ARRAY(SELECT 'g' || i % $many FROM generate_series(1, $many + 5) i),
			ARRAY(SELECT '1'::jsonb FROM generate_series(1, $many + 5)));
		SELECT count(*) FROM fairq.pop('many_$by', 10);
		SELECT count(*) FROM fairq.pop('many_$by', 10);
		SELECT max(n) FROM (SELECT count(*) AS n FROM fairq.tasks WHERE queue = 'many_$by'
			AND lease_until IS NOT NULL AND finished_at IS NULL GROUP BY group_key) _;
		COMMIT});
	is($out, "\n" . ($many + 5) . "\n10\n10\n1", "by $by: a transaction pops its own tasks of $many groups");
	cmp_ok($looked, '<=', 1000, '... without a look at all of them');
	is($node->safe_psql('postgres', qq{SELECT count(*) FROM fairq.pop('many_$by', 100);
		SELECT max(n) FROM (SELECT count(*) AS n FROM fairq.tasks WHERE queue = 'many_$by'
			AND lease_until IS NOT NULL AND finished_at IS NULL GROUP BY group_key) _}),
		"100\n1", '... and by others, and no limit is exceeded');
	# shared memory has no space for the groups of all three queues at once
	$node->safe_psql('postgres', "SELECT fairq.drop_queue('many_$by', true)");
}
$node->stop;
done_testing();
