# fairq.wait with rows that another session has only locked. A pop would skip
# these rows. Because of them the wait does not wake up thousands of times, but
# it searches again on its own.
#
# Fails if a waiting session searches again every 10 ms (look_once() in
# wait.c).
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib $FindBin::Bin;
use Load;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_server('locked');
$node->safe_psql('postgres',
	q{SELECT fairq.create_queue('q'); SELECT fairq.enqueue('q', 'a', '1')});
my ($holder, $another, $worker) = map { $node->background_psql('postgres') } 1 .. 3;
$worker->query_safe(q{SET log_min_messages = debug2; SET application_name = 'worker'});

# The number of searches that the log shows, from the given offset on.
sub looks
{
	my ($from) = @_;
	my @looks = slurp_file($node->logfile, $from) =~ /are locked: looking again/g;
	return scalar @looks;
}
my $wait = q{CALL fairq.wait('q', '1 s')};
my $nothing = q{BEGIN; SELECT count(*) FROM fairq.pop('q'); ROLLBACK};
my $row = q{SELECT 1 FROM fairq.task WHERE payload = '1'};

is($worker->query_safe($wait), 't', 'a task is ready');
foreach my $mode ('FOR UPDATE', 'FOR NO KEY UPDATE', 'FOR SHARE')
{
	$holder->query_safe("BEGIN; $row $mode");
	is($worker->query_safe($nothing), '0', "$mode: cannot be popped");
	my $from = -s $node->logfile;
	is($worker->query_safe($wait), 'f', "$mode: so wait() times out");
	my $looks = looks($from);
	cmp_ok($looks, '>', 1, "$mode: wait() searches again");
	cmp_ok($looks, '<', 20, "$mode: $looks times");
	$holder->query_safe('ROLLBACK');
	is($worker->query_safe($wait), 't', "$mode: unlocked");
}

# FOR KEY SHARE conflicts with take, but not with pop.
$holder->query_safe("BEGIN; $row FOR KEY SHARE");
is($worker->query_safe($nothing), '1', 'FOR KEY SHARE: the task can be popped');
is($worker->query_safe($wait), 't', 'it is ready for a session that pops');
is( $worker->query_safe(q{BEGIN; SELECT count(*) FROM fairq.take('q'); ROLLBACK}),
	'0', 'but cannot be taken');
is($worker->query_safe($wait), 'f', 'it is not ready for a session that takes');
# two FOR KEY SHARE locks make a multixact, which stays after one of them has
# ended
$another->query_safe("BEGIN; $row FOR KEY SHARE");
is($worker->query_safe($wait), 'f', 'two locks, for a session that takes');
is($worker->query_safe("$nothing; $wait"), "1\nt", 'two locks, for a session that pops');
$another->query_safe("ROLLBACK; BEGIN; $row FOR SHARE");
is($worker->query_safe("$nothing; $wait"), "0\nf", 'one of the locks conflicts');
$another->query_safe('ROLLBACK');
is($worker->query_safe("$nothing; $wait"), "1\nt", 'that lock is released');
$holder->query_safe('ROLLBACK');
is($worker->query_safe(q{BEGIN; SELECT count(*) FROM fairq.take('q'); ROLLBACK}),
	'1', 'all locks are released');
is($worker->query_safe("$wait"), 't', 'a session that takes finds a task');

# Another task is ready at once, in the same group or in another one.
$worker->query_safe($nothing);
$node->safe_psql('postgres',
	q{SELECT fairq.enqueue('q', 'a', '2')});
$holder->query_safe("BEGIN; $row FOR UPDATE");
is($worker->query_safe($wait), 't', 'another task of the group is ready');
$node->safe_psql('postgres',
	q{SELECT fairq.complete(id) FROM fairq.pop('q')});
is($worker->query_safe($wait), 'f', 'that task has ended');
$node->safe_psql('postgres', q{SELECT fairq.enqueue('q', 'b', '3')});
is($worker->query_safe($wait), 't', 'a task of another group is ready');
$node->safe_psql('postgres',
	q{SELECT fairq.complete(id) FROM fairq.pop('q')});

# A waiter notices the end of the lock, and tasks that arrive during the lock.
sub begin_wait
{
	$worker->query_until(qr/begun/, "\\echo begun\nCALL fairq.wait('q', '1 minute');\n");
	$node->poll_query_until('postgres',
		q{SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = 'worker' AND wait_event_type = 'Extension'
		AND backend_xid IS NULL AND backend_xmin IS NULL})
	  or die 'it does not wait';
	return;
}
begin_wait();
$node->safe_psql('postgres', q{SELECT fairq.enqueue('q', 'b', '4')});
like($worker->query('SELECT 1'), qr/^t/, 'a new task wakes the worker');
$node->safe_psql('postgres', q{SELECT fairq.complete(id) FROM fairq.pop('q')});
begin_wait();
$holder->query_safe('ROLLBACK');
like($worker->query('SELECT 1'), qr/^t/, 'the worker finds the unlocked task');

# An expired lease whose row is locked.
$node->safe_psql('postgres',
	q{SELECT id FROM fairq.pop('q', lease => '1 microsecond')});
$holder->query_safe("BEGIN; $row FOR KEY SHARE");
{
	my $from = -s $node->logfile;
	is($worker->query_safe($wait), 'f', 'wait() also times out once its lease has expired');
	cmp_ok(looks($from), '<', 20, 'it searches at intervals');
}
$holder->query_safe('ROLLBACK');
is($worker->query_safe($wait), 't', 'wait() returns once the row is unlocked');
is($node->safe_psql('postgres', q{SELECT fairq.check_queue('q')}),
	'', 'the queue is sound');
$_->quit foreach $holder, $another, $worker;

done_testing();
