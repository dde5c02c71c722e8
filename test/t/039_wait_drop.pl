# Sessions that sleep in fairq.wait get QF001 when the extension is dropped.
# The test also covers tasks that SQL adds.
#
# Fails if fairq.wait does not check whether the extension still exists
# (look_once() in wait.c).
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib $FindBin::Bin;
use Load;
use Test::More;

my $node = new_server('drop');
my @waiters = map { $node->background_psql('postgres', on_error_stop => 0) } 1 .. 3;
$_->query_safe(q{SET application_name = 'waiter'}) foreach @waiters;

sub begin_waits
{
	$_->query_until(qr/begun/,
		"\\set VERBOSITY sqlstate\n\\echo begun\nCALL fairq.wait('q', '10 minutes');\n")
	  foreach @waiters;
	$node->poll_query_until('postgres',
		q{SELECT count(*) = 3 FROM pg_stat_activity WHERE application_name = 'waiter' AND wait_event_type = 'Extension'
		AND backend_xid IS NULL AND backend_xmin IS NULL})
	  or die 'they do not wait';
	return;
}

sub end_waits
{
	my ($what) = @_;

	foreach my $waiter (@waiters)
	{
		is($waiter->query('SELECT 1'), '1', "$what: a wait ends");
		like($waiter->{stderr}, qr/^\S* ERROR:  QF001\s*$/m, 'with QF001');
		$waiter->{stderr} = '';
	}
	$node->safe_psql('postgres',
		q{CREATE EXTENSION IF NOT EXISTS fairq; SELECT fairq.create_queue('q')});
	return;
}
$node->safe_psql('postgres', q{SELECT fairq.create_queue('q')});

begin_waits();
$node->safe_psql('postgres', 'DROP EXTENSION fairq');
end_waits('dropped by a session that has not used it');

begin_waits();
$node->safe_psql('postgres', q{SELECT fairq.pop('q'); DROP EXTENSION fairq});
end_waits('dropped by a session that has used it');

begin_waits();
$node->safe_psql('postgres',
	q{BEGIN; DROP EXTENSION fairq; CREATE EXTENSION fairq; COMMIT});
end_waits('dropped and created again');

begin_waits();
$node->safe_psql('postgres', q{SELECT fairq.drop_queue('q')});
end_waits('the queue alone');

# A long drop that is rolled back.
my $dropper = $node->background_psql('postgres');
begin_waits();
$dropper->query_safe(q{SELECT fairq.pop('q'); BEGIN; DROP EXTENSION fairq});
$dropper->query_safe('ROLLBACK');
$node->safe_psql('postgres',
	q{SELECT fairq.enqueue_batch('q', '{a,b,c}', '{1,2,3}')});
like($_->query('SELECT 1'), qr/^t\n1$/, 'rolled back: waiters are woken later')
  foreach @waiters;
# Other calls wait for the drop, and fail after it.
$dropper->query_safe('BEGIN; DROP EXTENSION fairq');
$waiters[0]->query_until(qr/begun/, "\\echo begun\nSELECT fairq.enqueue('q', 'a');\n");
$node->poll_query_until('postgres',
	q{SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = 'waiter' AND wait_event_type = 'Lock'})
  or die 'the enqueue does not wait for the drop';
$dropper->query_safe('COMMIT');
$waiters[0]->query('SELECT 1');
like($waiters[0]->{stderr}, qr/ERROR:  42P01/, 'the call fails after the drop');
$waiters[0]->{stderr} = '';
$node->safe_psql('postgres',
	q{CREATE EXTENSION fairq; SELECT fairq.create_queue('q'); SELECT fairq.enqueue_batch('q', '{a,b,c}', '{1,2,3}')});
$dropper->quit;

# Rows that SQL adds.
$node->safe_psql('postgres',
	q{CREATE TABLE kept AS SELECT * FROM fairq.task; SELECT fairq.purge('q')});
begin_waits();
$node->safe_psql('postgres',
	q{INSERT INTO fairq.task (id, addr, enqueued_at, queue_id, group_no, priority, attempt, payload)
	  SELECT id, addr, enqueued_at, queue_id, group_no, priority, attempt, payload FROM kept});
like($_->query('SELECT 1'), qr/^t\n1$/, 'a task that SQL inserts ends a wait')
  foreach @waiters;
is($node->safe_psql('postgres', q{SELECT fairq.check_queue('q')}),
	'', 'the queue is sound');
$_->quit foreach @waiters;

done_testing();
