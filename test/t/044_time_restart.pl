# Time-fair queues and crashes. After a crash of the server, no group of a
# time-fair queue is ahead of another. A task that was popped before the crash
# has no level, and is charged when it ends. The tasks of a lost session count
# in no level. The same applies to tenants and users.
#
# took sets the time of each task, so the test depends on no clock.
#
# Fails if tasks that were popped before the recovery are not charged
# (fairq_work_ended() in lane_order.c). Fails if an abort does not undo starts
# (fairq_account_apply() in account.c). Fails if the end of a task of a user
# that the lane does not know is not charged to its tenant (know_tenant()).
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib $FindBin::Bin;
use Load;
use Test::More;

my $node = new_server('time');

sub sql
{
	my ($sql) = @_;
	return $node->safe_psql('postgres', $sql);
}

sub make_queue
{
	my ($queue, $tasks) = @_;
	sql("SELECT fairq.create_queue('$queue', fair_by => 'time', lease => '1 hour');"
		  . "SELECT count(fairq.enqueue('$queue', who))"
		  . "  FROM unnest('{a,b}'::text[]) who, generate_series(1, $tasks);");
	return;
}

# The groups that a pop of n tasks serves.
sub serve
{
	my ($queue, $n) = @_;
	return sql("SELECT string_agg(group_key, '') FROM fairq.pop('$queue', $n)");
}

# Completes the running tasks of a group, and returns their number.
sub complete
{
	my ($queue, $group, $took) = @_;
	return sql("SELECT count(fairq.complete(id, took => '$took')) FROM fairq.live_tasks"
		  . " WHERE queue = '$queue' AND group_key = '$group' AND status = 'running'");
}

# One worker serves n tasks. Each task of a takes 50 ms, and each task of b
# takes 5 ms.
sub work
{
	my ($queue, $n) = @_;
	return sql("CALL work('$queue', $n)");
}

# The share of group a in the time of the served tasks.
sub share
{
	my ($served) = @_;
	my $a = 50 * ($served =~ tr/a//);
	my $b = 5 * ($served =~ tr/b//);
	return $a / ($a + $b);
}

sql(q{
	CREATE PROCEDURE work(queue text, n int, INOUT served text DEFAULT '')
	LANGUAGE plpgsql AS $$
	DECLARE
		task record;
	BEGIN
		FOR i IN 1..n LOOP
			SELECT * INTO STRICT task FROM fairq.pop(work.queue);
			COMMIT;
			PERFORM fairq.complete(task.id, took => CASE task.group_key
				WHEN 'a' THEN '50 ms'::interval ELSE '5 ms' END);
			COMMIT;
			served := served || task.group_key;
		END LOOP;
	END$$;
});

# b is far behind, and a has three running tasks.
make_queue('q', 1500);
my $share = share(work('q', 220));
cmp_ok(abs($share - 0.5), '<', 0.03, "a gets half of the time ($share)");
sql("SELECT fairq.pause('q', 'b')");
is(serve('q', 3), 'aaa', 'a has three running');
sql("SELECT fairq.resume('q', 'b')");
is(serve('q', 3), 'bbb', 'which counts');
is(complete('q', 'b', '0'), 3, 'they end');

crash($node);
is(serve('q', 4), 'abab', 'after a crash all groups are even, and none has running tasks');
is(sql("SELECT count(fairq.complete(id, took => '0')) FROM fairq.live_tasks"
		  . " WHERE queue = 'q' AND id IN (SELECT id FROM fairq.live_tasks"
		  . " WHERE queue = 'q' AND status = 'running' ORDER BY popped_at DESC LIMIT 4)"),
	4, 'they end');
is(complete('q', 'a', '300 ms'), 3, 'tasks from before the crash end');
my ($alone) = work('q', 240) =~ /^(b*)a/;
my $waits = length($alone // '');
cmp_ok(abs($waits - 180), '<=', 3, "and are charged: 900 ms are $waits of b's tasks");
$share = share(work('q', 220));
cmp_ok(abs($share - 0.5), '<', 0.03, "then a gets half of the time ($share)");

crash($node);
$share = share(work('q', 220));
cmp_ok(abs($share - 0.5), '<', 0.05,
	"also after another crash ($share)");

# Sessions are lost, and the server crashes, while tasks are popped.
foreach my $how ('session', 'server')
{
	make_queue($how, 20);
	my $open = $node->background_psql('postgres', on_error_stop => 0);
	$open->query_safe("SET application_name = 'open'; BEGIN;");
	is( $open->query_safe(
			"SELECT string_agg(group_key, '') FROM fairq.pop('$how', 3)"),
		'aba',
		"$how: an open transaction has popped");
	is(serve($how, 1), 'b', "$how: which counts");
	is(complete($how, 'b', '0'), 1, "$how: it ends");
	if ($how eq 'session')
	{
		sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'open'");
		$node->poll_query_until('postgres',
			"SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = 'open'")
		  or die "the session does not end";
	}
	else
	{
		crash($node);
	}
	eval { $open->quit; };
	is(join('', sort split(//, serve($how, 2))), 'ab', "$how: its tasks are undone, and both groups are even");
}

# After the crash, a pop finds some users of beta, but not acme/z behind them.
sub users
{
	return sql("SELECT string_agg(group_key, ' ') FROM fairq.pop('t')");
}
sql("SELECT fairq.create_queue('t', fair_by => 'time', separator => '/', lease => '1 hour');"
	  . "SELECT count(fairq.enqueue('t', 'beta/' || n)) FROM generate_series(1, 300) n;"
	  . "SELECT fairq.enqueue('t', 'acme/z');"
	  . "SELECT fairq.pause('t', 'beta')");
is(users(), 'acme/z', 'a task of a user runs');
sql("SELECT fairq.resume('t', 'beta')");
crash($node);
is(users(), 'beta/1', 'after a crash another tenant is served');
is(complete('t', 'acme/z', '3 h'), 1, 'a task from before the crash ends');
is(sql("SELECT round(got / 3600) FROM fairq.tenants WHERE queue = 't' AND tenant = 'acme'"),
	'3', 'and is charged to its tenant');

is(sql("SELECT count(*) FROM fairq.queues, fairq.check_queue(queue)"), '0', 'all is sound');

$node->stop;
done_testing();
