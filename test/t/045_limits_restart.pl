# Limits after a restart. After a restart running tasks count again, but not the
# changes of transactions that were open. Waiting tasks are served if a slot was
# free at the restart, or if the restart freed it.
#
# Fails if running tasks that the load finds do not count (publish_group() in
# load.c), or do not count for their tenant. Fails if a claim searches only its
# own priority for a retried task (fairq_line_retries() in line.c).
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib $FindBin::Bin;
use Load;
use Test::More;

my $node = new_server('limits');

sub sql
{
	my ($sql) = @_;
	return $node->safe_psql('postgres', $sql);
}

# Pops all tasks that can be popped. Lists them in the order of the groups,
# since this test does not check which group is next.
sub pop_all
{
	my ($queue) = @_;
	return sql(
		"SELECT string_agg(group_key || payload, ' ' ORDER BY group_no, id) FROM fairq.pop('$queue', 100) JOIN fairq.groups USING (queue, group_key)"
	);
}

# Group g may have 2 running tasks, h 1, and others any number.
sub make_queue
{
	my ($queue) = @_;
	sql("SELECT fairq.create_queue('$queue');"
		  . "SELECT fairq.set_group('$queue', 'g', concurrency => 2),"
		  . "  fairq.set_group('$queue', 'h', concurrency => 1);"
		  . "SELECT count(fairq.enqueue('$queue', who, n::text::jsonb))"
		  . "  FROM generate_series(1, 8) n, unnest('{g,h}'::text[]) who;");
	return;
}

sub complete
{
	my ($queue, $task) = @_;
	return
	  "SELECT fairq.complete(id) FROM fairq.tasks WHERE queue = '$queue' AND status = 'running' AND group_key || payload = '$task'";
}

foreach my $mode ('fast', 'immediate')
{
	# A group waits for its retried task, which has another priority.
	my $o = "ordered_$mode";
	sql("SELECT fairq.create_queue('$o', concurrency => 1, in_order => true),"
		  . "  fairq.enqueue('$o', 'g', '1', 4)");
	is(sql("SELECT fairq.fail(id, retry_in => '1 hour') FROM fairq.pop('$o')"),
		't', "$mode: a task is to be retried");
	sql("SELECT fairq.enqueue('$o', 'g', '2'), fairq.enqueue('$o', 'h', '1')");
	$node->stop($mode);
	$node->start;
	is(pop_all($o), 'h1', "$mode: and its group waits, after a restart, too");
	is(pop_all($o), '', "$mode: and still waits");
	is(sql("SELECT fairq.cancel(id) FROM fairq.tasks WHERE queue = '$o' AND priority = 4"),
		't', "$mode: it is cancelled");
	is(pop_all($o), 'g2', "$mode: and the group is served");

	# A tenant's limit counts the running tasks of all its users.
	my $t = "tenants_$mode";
	sql("SELECT fairq.create_queue('$t', separator => '/'),"
		  . "  fairq.set_group('$t', 'acme', concurrency => 2);"
		  . "SELECT count(fairq.enqueue('$t', 'acme/' || who, '1'))"
		  . "  FROM unnest('{a,b,c}'::text[]) who");
	is(pop_all($t), 'acme/a1 acme/b1', "$mode: up to the tenant's limit");
	$node->stop($mode);
	$node->start;
	is(pop_all($t), '', "$mode: and not beyond, after the restart");
	is(sql(complete($t, 'acme/b1')), 't', "$mode: a slot is freed");
	is(pop_all($t), 'acme/c1', "$mode: another user gets it");
	sql("SELECT fairq.pause('$t', 'acme'), fairq.hold('$t', 'beta', 'tomorrow');"
		  . "SELECT fairq.enqueue('$t', who, '1') FROM unnest('{acme/d,beta/d}'::text[]) who;"
		  . complete($t, 'acme/a1'));
	$node->stop($mode);
	$node->start;
	is(pop_all($t), '', "$mode: a tenant is paused, and another one on hold");
	sql("SELECT fairq.resume('$t', 'acme')");
	is(pop_all($t), 'acme/d1', "$mode: until it is resumed");
	sql("SELECT fairq.hold('$t', 'beta')");
	is(pop_all($t), 'beta/d1', "$mode: and until its hold ends");
	is(sql("SELECT fairq.check_queue('$t')"), '', "$mode: the queue is sound");

	# Slots are freed, and no call searches for tasks before the restart.
	my $q = "freed_$mode";
	make_queue($q);
	is(pop_all($q), 'g1 g2 h1', "$mode: up to the limits");
	is(pop_all($q), '', "$mode: and not beyond");
	is(sql(complete($q, 'g1')), 't', "$mode: a slot is freed");
	$node->stop($mode);
	$node->start;
	is(pop_all($q), 'g3', "$mode: it is used after the restart");
	is(sql(complete($q, 'h1')), 't', "$mode: another one");
	is(pop_all($q), 'h2', "$mode: it is used");
	is(pop_all($q), '', "$mode: no more than that");
	is(sql("SELECT fairq.check_queue('$q')"), '', "$mode: the queue is sound");

	# Ends and claims that are open when the server stops have no effect.
	$q = "open_$mode";
	make_queue($q);
	is(pop_all($q), 'g1 g2 h1', "$mode: up to the limits");
	my @open = map { $node->background_psql('postgres') } 1 .. 3;
	$open[0]->query_safe('BEGIN; ' . complete($q, 'g1'));
	sql(complete($q, 'g2'));
	$open[1]->query_safe("BEGIN; SELECT count(*) FROM fairq.pop('$q', 100)");
	sql(complete($q, 'h1'));
	$open[2]->query_safe("BEGIN; SELECT count(*) FROM fairq.take('$q', 100)");
	is(pop_all($q), '', "$mode: all slots are taken");
	$node->stop('immediate');
	foreach my $psql (@open)
	{
		eval { $psql->quit };
	}
	$node->start;
	is(pop_all($q), 'g3 h2', "$mode: open transactions were rolled back");
	is(pop_all($q), '', "$mode: and the limits hold");
	is(sql("SELECT fairq.check_queue('$q')"), '', "$mode: the queue is sound");

	# The limit of a whole queue.
	$q = "queue_$mode";
	sql("SELECT fairq.create_queue('$q', max_running => 3);"
		  . "SELECT count(fairq.enqueue('$q', who, n::text::jsonb))"
		  . "  FROM generate_series(1, 3) n, unnest('{a,b}'::text[]) who;");
	is(pop_all($q), 'a1 a2 b1', "$mode: up to max_running");
	$node->stop($mode);
	$node->start;
	is(pop_all($q), '', "$mode: they still count");
	sql(complete($q, 'a1'));
	is(pop_all($q), 'a3', "$mode: a free slot is used");
	is(pop_all($q), '', "$mode: and no more");

	# A group is paused, with tasks of all kinds; then it is resumed.
	$q = "paused_$mode";
	make_queue($q);
	is( sql("SELECT string_agg(group_key || payload, ' ') FROM fairq.pop('$q', 2)"
		),
		'g1 h1',
		"$mode: some run");
	sql("SELECT fairq.pause('$q', 'g')");
	$node->stop($mode);
	$node->start;
	sql(complete($q, 'h1'));
	is(pop_all($q), 'h2', "$mode: a pause holds");
	sql("SELECT fairq.resume('$q', 'g')");
	is(pop_all($q), 'g2', "$mode: until it is ended");
	is(sql("SELECT fairq.check_queue('$q')"), '', "$mode: the queue is sound");

	# All remaining tasks are served.
	my $left = 0;
	foreach my $queue ("freed_$mode", "open_$mode", "queue_$mode", "paused_$mode")
	{
		foreach (1 .. 20)
		{
			sql("SELECT fairq.complete(id) FROM fairq.tasks WHERE queue = '$queue' AND status = 'running'"
			);
			last if pop_all($queue) eq '';
		}
		$left += sql("SELECT count(*) FROM fairq.tasks WHERE queue = '$queue'");
	}
	is($left, 0, "$mode: no group is stranded");
}

done_testing();
