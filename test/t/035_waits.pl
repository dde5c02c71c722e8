# Every call that can wait is canceled, timed out and terminated in each of its
# waits. No effect remains, and the next calls do what they would have done.
#
# Fails if a task whose claim is undone is not ready again (fairq_claim()).
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib $FindBin::Bin;
use Load;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

my $node = new_server('waits', autovacuum => 'off');
my ($control, $holder) = map { $node->background_psql('postgres') } 1 .. 2;
$_->set_query_timer_restart foreach $control, $holder;
my $victim;

# A queue with tasks in each state. Group a is limited, and a2 waits for a1. The
# lease of b1 has expired, and maybe that of the last attempt of h1. c1 is
# running, b2 and c2 are ready, d1 is scheduled, e1 has failed. Each of these
# tasks has a key. Group u is unused.
$node->safe_psql(
	'postgres', q{
	CREATE FUNCTION id(queue text, payload text) RETURNS bigint LANGUAGE sql AS $$
		SELECT t.id FROM fairq.queue q JOIN fairq.task t USING (queue_id)
		WHERE q.name = id.queue AND t.payload = to_jsonb(id.payload)
	$$;
	CREATE FUNCTION make(queue text, h1_expires boolean) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM fairq.create_queue(queue, retain => '1 day');
		PERFORM fairq.enqueue(queue, left(p, 1), to_jsonb(p), dedup_key => p,
			max_attempts => CASE WHEN p = 'h1' THEN 1 END)
		FROM unnest('{e1,a1,b1,c1,h1}'::text[]) p;
		PERFORM fairq.set_group(queue, 'a', concurrency => 1), fairq.set_group(queue, 'u');
		PERFORM fairq.fail(id, dead => true) FROM fairq.pop(queue);
		PERFORM fairq.pop(queue, 4);
		PERFORM fairq.enqueue(queue, left(p, 1), to_jsonb(p), dedup_key => p) FROM unnest('{a2,b2,c2}'::text[]) p;
		PERFORM fairq.enqueue(queue, 'd', '"d1"', run_at => 'infinity', dedup_key => 'd1');
		PERFORM fairq.extend(id(queue, 'b1'), lease => '1 microsecond'),
			fairq.extend(id(queue, 'h1'), lease => CASE WHEN h1_expires THEN '1 microsecond' ELSE '1 hour' END::interval);
	END $$;
	CREATE FUNCTION state(name text) RETURNS text LANGUAGE sql AS $$
		WITH q AS (SELECT q.*, queue_id AS id FROM fairq.queue q WHERE starts_with(q.name, $1))
		SELECT md5(string_agg(r, chr(10) ORDER BY r COLLATE "C")) FROM (
			SELECT 'task ' || t FROM fairq.task t, q WHERE t.queue_id = q.id
			UNION ALL SELECT 'archive ' || t FROM fairq.archive t, q WHERE t.queue_id = q.id
			UNION ALL SELECT 'dedup ' || t FROM fairq.dedup t, q WHERE t.queue_id = q.id
			UNION ALL SELECT 'queue ' || q FROM q
			UNION ALL SELECT 'group ' || t FROM fairq.group_number t, q WHERE t.queue_id = q.id
			UNION ALL SELECT 'setting ' || t FROM fairq.group_setting t, q WHERE t.queue_id = q.id
			UNION ALL SELECT 'privilege ' || t FROM fairq.queue_privilege t, q WHERE t.queue_id = q.id) r (r)
	$$;
	-- what is served from here on; when there is nothing more, a place is freed
	CREATE PROCEDURE serve_rest(queue text, INOUT served text DEFAULT NULL) LANGUAGE plpgsql AS $$
	DECLARE
		task text;
	BEGIN
		FOR n IN 1..6 LOOP
			SELECT payload #>> '{}' INTO task FROM fairq.pop(queue);
			COMMIT;
			served := concat_ws(' ', served, coalesce(task, '-'));
			IF task IS NULL THEN
				PERFORM fairq.complete(id(queue, 'a1'));
				COMMIT;
			END IF;
		END LOOP;
	END $$;
});

sub begin_victim
{
	$victim = $node->background_psql('postgres', on_error_stop => 0);
	$victim->query_safe(q{SET application_name = 'victim'});
	return;
}

# Ends the victim's call with the given function, once the call waits. One
# statement watches for the wait and ends the call, since some calls do not wait
# for long.
sub end_victim
{
	my ($function, $what) = @_;

	foreach (1 .. 1800)
	{
		return
		  if $control->query_safe(
			"SELECT count($function(pid)) FROM pg_stat_activity WHERE application_name = 'victim' AND $what"
		  ) eq '1';
		usleep(5_000);
	}
	die "the victim does not reach this wait: $what";
}

my @ends = (
	[ 'canceled', '57014' ],
	[ 'timed out', '57014' ],
	[ 'terminated', '57P01' ]);
my $ncases = 0;

# One session holds a lock, and the victim's call waits for the lock. In a
# block, the call's transaction has done some work before. Otherwise the
# transaction consists of this call.
sub try
{
	my ($hold, $call, %how) = @_;
	my $queue = 'q' . ++$ncases . '.';
	my $waits = $how{waits} // q{wait_event_type = 'Lock'};

	my $work = "SELECT fairq.enqueue('$queue', 'b', '\"b9\"'), (SELECT count(*) FROM fairq.pop('$queue', 2))";

	s/@/$queue/g foreach ($hold, $call);
	$call = "SELECT $call" if $call !~ /^CALL/;
	# a pop in a block leaves h1 to others, but at most for a second
	$control->query_safe("SELECT make('$queue', " . ($how{block} ? 'false' : 'true') . ')');
	my $before = $control->query_safe("SELECT state('$queue')");
	foreach my $end (@ends)
	{
		my ($name, $sqlstate) = @$end;

		begin_victim() if !$victim;
		# the call runs once while no other session works, to fill the caches
		# of its session
		$victim->query_safe("BEGIN; $work; ROLLBACK") if $how{block};
		$holder->query_safe("BEGIN; $hold");
		$victim->query_safe("BEGIN; $work; SAVEPOINT s") if $how{block};
		$victim->query_safe(q{SET statement_timeout = }
			  . ($name eq 'timed out' ? q{'100ms'} : '0'));
		$victim->query_until(qr/begun/,
			"\\set VERBOSITY sqlstate\n\\echo begun\n$call;\n");
		if ($name ne 'timed out')
		{
			end_victim($name eq 'canceled' ? 'pg_cancel_backend' : 'pg_terminate_backend',
				$waits);
		}
		if ($name eq 'terminated')
		{
			$victim->{run}->finish;
		}
		else
		{
			$victim->query($how{block} ? 'ROLLBACK TO s; ROLLBACK' : 'SELECT 1');
		}
		$holder->query_safe('ROLLBACK');
		like($victim->{stderr}, qr/$sqlstate/, "$name: $call");
		$victim->{stderr} = '';
		$victim = undef if $name eq 'terminated';
	}
	# the victim's transaction has ended once its session is gone
	usleep(5_000)
	  while $control->query_safe(
		q{SELECT count(*) FROM pg_stat_activity WHERE application_name = 'victim'}
	  ) ne '0';
	is($control->query_safe("SELECT state('$queue')"),
		$before, 'the tables are as before');
	# a failed pop may have used b's turn in this block
	like(
		$control->query_safe(
			"SELECT (SELECT fairq.check_queue('$queue')); CALL serve_rest('$queue')"),
		$how{block} ? qr/^\n(b1 c2|c2 b1) b2 - a2 -$/ : qr/^\nb1 c2 b2 - a2 -$/,
		'the queue is sound, and served in order');
	$control->query_safe("SELECT fairq.drop_queue('$queue', true)");
	return;
}

# A key that another transaction has just taken, or is about to free.
my %block = (block => 1);
try(q{SELECT fairq.enqueue('@', 'x', dedup_key => 'k')},
	q{fairq.enqueue('@', 'y', dedup_key => 'k')}, %block);
try(q{SELECT fairq.complete(id('@', 'c1'))},
	q{fairq.enqueue_batch('@', '{b,new,b}', '{1,2,3}', dedup_keys => '{a,NULL,c1}')}, %block);

# A row that another transaction is changing.
my $row = q{SELECT 1 FROM fairq.task WHERE id = id('@', 'c1') FOR UPDATE};
try($row, qq{fairq.$_}, %block)
  foreach q{complete(id('@', 'c1'))},
  q{complete_batch(ARRAY[id('@', 'a1'), id('@', 'b1'), id('@', 'c1')])},
  q{fail(id('@', 'c1'))}, q{release(id('@', 'c1'))}, q{extend(id('@', 'c1'))},
  q{cancel(id('@', 'c1'))};

# The call waits in the middle, when it has to write to a second table, too.
my $archive = q{LOCK TABLE fairq.archive IN SHARE MODE};
try($archive, qq{fairq.$_}, %block)
  foreach q{complete(id('@', 'c1'))}, q{fail(id('@', 'c1'), dead => true)},
  q{cancel(id('@', 'd1'))}, q{redrive('@')};
try($archive, qq{fairq.$_})
  foreach q{pop('@', 100)}, q{take('@', 100)}, q{expire_leases('@')}, q{maintain('@')};
my $keys = q{LOCK TABLE fairq.dedup IN SHARE MODE};
try($keys, qq{fairq.$_}, %block)
  foreach q{enqueue('@', 'b', dedup_key => 'k')}, q{take('@', 100)},
  q{complete(id('@', 'c1'))}, q{purge('@')};
my $groups = q{LOCK TABLE fairq.group_number IN SHARE MODE};
try($groups, qq{fairq.$_}, %block)
  foreach q{enqueue('@', 'new')}, q{enqueue_batch('@', '{b,c,new}', '{1,2,3}')},
  q{set_group('@', 'new', weight => 2)}, q{pause('@', 'new')};
try($groups, q{fairq.drop_queue('@', true)});
try(q{LOCK TABLE fairq.group_setting IN SHARE MODE}, q{fairq.set_group('@', 'b', weight => 2)}, %block);
try(q{LOCK TABLE fairq.queue IN SHARE MODE}, q{fairq.alter_queue('@', concurrency => 1)}, %block);

# A call that would drop the queue, or change its settings, waits for the
# queue's users.
my $use = q{SELECT fairq.enqueue('@', 'x')};
try($use, q{fairq.drop_queue('@', true)});
try($use, q{fairq.alter_queue('@', block_length => 100)});
my $drop = q{SELECT fairq.drop_queue('@', true)};
try($drop, qq{fairq.$_})
  foreach q{enqueue('@', 'b')}, q{pop('@')}, q{complete(id('@', 'c1'))},
  q{purge('@')}, q{maintain('@')}, q{check_queue('@')};
try($drop, q{CALL fairq.wait('@')});
my $set = q{SELECT fairq.set_group('@', 'c', weight => 2)};
try($set, qq{fairq.$_}, %block)
  foreach q{set_group('@', 'a', concurrency => 2)}, q{pause('@')},
  q{alter_queue('@', max_running => 1)}, q{grant_queue('@', 'postgres', 'work')};
try(q{SELECT fairq.create_queue('@ too')}, q{fairq.create_queue('@ too')}, %block);

# maintain waits a second for open transactions, outside of a block.
try($use, q{fairq.maintain('@')},
	waits => q{state = 'active' AND query_start < clock_timestamp() - interval '0.1 s'});

# fairq.wait returns if there are tasks, so this queue has none.
$node->safe_psql('postgres', q{SELECT fairq.create_queue('empty')});
foreach my $end (@ends)
{
	my ($name, $sqlstate) = @$end;

	begin_victim() if !$victim;
	$victim->query_safe(q{SET statement_timeout = '100ms'}) if $name eq 'timed out';
	$victim->query_safe(q{SET statement_timeout = 0}) if $name eq 'terminated';
	$victim->query_until(qr/begun/,
		"\\set VERBOSITY sqlstate\n\\echo begun\nCALL fairq.wait('empty');\n");
	if ($name ne 'timed out')
	{
		end_victim($name eq 'canceled' ? 'pg_cancel_backend' : 'pg_terminate_backend',
			q{state = 'active' AND wait_event_type = 'Extension'});
	}
	$name eq 'terminated' ? $victim->{run}->finish : $victim->query('SELECT 1');
	like($victim->{stderr}, qr/$sqlstate/, "$name: fairq.wait");
	$victim->{stderr} = '';
}
# the session that ends passes its wake-up on to another waiter
$holder->query_until(qr/begun/, "\\echo begun\nCALL fairq.wait('empty', '1 minute');\n");
usleep(100_000);
$control->query_safe(q{SELECT fairq.enqueue('empty', 'a')});
like($holder->query('SELECT 1'), qr/^t/, 'the next waiter is woken');

$holder->quit;
$control->quit;
unlike(slurp_file($node->logfile),
	qr/PANIC|TRAP|terminated by signal|could not (update|delete) a locked task|WARNING/,
	'nothing has crashed');

done_testing();
