# fairq's own queries take linear time, whatever the planner assumes. In this
# test the planner assumes that full tables are empty. That happens if
# autovacuum runs between a failed import and its repetition.
#
# The test checks the plans. The plans have no nested loop, no merge join
# (which may use only some of the columns), and no node that runs once per row.
#
# Fails if owner_begin() in store_spi.c, or check_tables(), leaves out the
# planner's settings. Fails if the views are planned with their caller's
# settings.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib $FindBin::Bin;
use Load;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_server('plans');
my ($status) = $node->psql('postgres', q{LOAD 'auto_explain'});
if ($status != 0)
{
	$node->stop;
	plan skip_all => 'there is no auto_explain';
}

my $import = q{SELECT count(fairq.enqueue('q', 't' || n % 100, dedup_key => 'a' || n))
	FROM generate_series(1, 2000) n;};
my $analyze = 'ANALYZE fairq.task, fairq.dedup, fairq.group_number, fairq.archive,
	fairq.queue, fairq.group_setting, fairq.queue_privilege;';
$node->safe_psql('postgres', qq{
	ALTER TABLE fairq.task SET (autovacuum_enabled = off);
	ALTER TABLE fairq.dedup SET (autovacuum_enabled = off);
	ALTER TABLE fairq.group_number SET (autovacuum_enabled = off);
	SELECT fairq.create_queue('q', retain => '1 hour');
	SELECT fairq.create_queue('other');
	BEGIN; $import ROLLBACK;
	$analyze
	$import});

# The plans of all statements in a call, without the loops that are allowed. The
# first allowed loop reads the counters of each queue.
sub plans
{
	my ($sql) = @_;
	my $before = -s $node->logfile;
	$node->safe_psql('postgres', qq{
		LOAD 'auto_explain';
		SET auto_explain.log_min_duration = 0;
		SET auto_explain.log_nested_statements = on;
		SET enable_hashjoin = off;
		$sql});
	my $log = slurp_file($node->logfile, $before);
	$log =~ s/Nested Loop.*\n.*Function Scan on visible_queues.*\n.*Function Scan on counters//;
	# this loop runs once per group, at a cost that does not depend on tasks
	$log =~ s/Nested Loop.*\n.*Function Scan on visible_groups.*\n.*Function Scan on group_state//;
	# this loop runs once per queue, to check for an existing row, but other
	# loops below it are still faults
	$log =~ s/(\t *)(?:->  )?Nested Loop(.*\n(?:\1 .*\n)*?\1 +->  Function Scan on jsonb_populate_record)/$1$2/;
	return $log;
}

foreach my $known ('that tables are empty', 'how full they are')
{
	foreach my $sql ('SELECT sum(ready) FROM fairq.groups',
		'SELECT sum(ready) FROM fairq.queues',
		q{SELECT fairq.check_queue('q')},
		q{SELECT fairq.maintain()})
	{
		my $plans = plans("$sql;");
		like($plans, qr/fairq\.(task|group_number|archive)|on (task|group_number|archive)\b/,
			"plans of $sql, if the planner believes $known,");
		unlike($plans, qr/Nested Loop|Merge \w*\s*Join|^\s*SubPlan/m,
			'are linear');
	}
	$node->safe_psql('postgres', $analyze);
}

is($node->safe_psql('postgres', q{SELECT count(*) FROM fairq.check_queue('q')}),
	0, 'the queue is sound');
$node->stop;
done_testing();
