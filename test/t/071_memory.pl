# The size of shared memory: fairq.shared_memory, in the main segment or in
# dynamic shared memory. When shared memory is full, a call that needs more of it
# fails and changes nothing. Other calls continue, and freed memory is reused.
#
# An enqueue creates the accounts that pops need. Views, maintain() and
# drop_queue() work for queues for which shared memory has no room.
#
# Fails if the area grows because nothing limits it (init_area() in shmem.c).
# Fails if no counter counts as idle (fairq_counter_is_idle() in counter.c),
# because other groups then get no counter. Fails if the hints of deleted queues
# are not freed (give_back_deleted() in maintain.c). Fails if an enqueue creates
# no accounts (make_row() in enqueue.c). Fails if a view or maintain()
# needs room for each queue (hints_if_room() in queue.c). Fails if the hints of
# a dropped extension (object_access() in fairq.c) or of a dropped database
# (free_some() in registry.c) are not freed.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib $FindBin::Bin;
use Load;
use Test::More;

my $node = new_server('memory', 'fairq.shared_memory' => '16MB', synchronous_commit => 'off');

sub sql
{
	return $node->safe_psql('postgres', $_[0]);
}

# The error of a statement, with its SQLSTATE.
sub error
{
	my (undef, undef, $error) = $node->psql('postgres', $_[0],
		extra_params => [ '-v', 'VERBOSITY=verbose' ]);
	return $error;
}

sub is_full
{
	my ($error, $name) = @_;
	like($error, qr/ERROR:  53100: fairq's shared memory is full.*HINT:  Set fairq\.shared_memory to more than/s, $name);
	return;
}

# Enqueues a task for each of this number of groups, and pops as many as fit.
sub fill
{
	my ($queue, $groups) = @_;
	my ($popped, $error) = (0, '');

	sql(qq{SELECT fairq.create_queue('$queue', concurrency => 1);
		SELECT count(*) FROM fairq.enqueue_batch('$queue', ARRAY(SELECT 'g' || n FROM generate_series(1, $groups) n),
			array_fill('1'::jsonb, '{$groups}'))});
	while ($error eq '' && $popped < $groups)
	{
		my $status;
		my $n;
		($status, $n, $error) = $node->psql('postgres', qq{SELECT count(*) FROM fairq.pop('$queue', 1000)},
			extra_params => [ '-v', 'VERBOSITY=verbose' ]);
		$popped += $n if $status == 0;
		last if $status == 0 && $n == 0;
	}
	return ($popped, $error);
}

# Completes all running tasks, in one transaction.
my $complete = q{SELECT cardinality(fairq.complete_batch((SELECT coalesce(array_agg(id), '{}')
	FROM fairq.tasks WHERE queue = '%s' AND status = 'running')))};

# Pops and completes until no task is left. Returns how many tasks were not
# served.
sub rest
{
	my ($queue, $n) = @_;

	while (sql("SELECT count(*) FROM fairq.pop('$queue', $n)") > 0)
	{
		sql(sprintf $complete, $queue);
	}
	return sql("SELECT count(*) FROM fairq.tasks WHERE queue = '$queue'");
}

is(sql('SELECT size, preloaded, queues FROM fairq.shared_memory()'),
	16 * 1024 * 1024 . '|f|0', 'the segment has the size in the setting');
is(sql(q{SELECT context FROM fairq.version(), pg_settings WHERE name = 'fairq.shared_memory'}),
	'sighup', 'which no session sets');
sql(q{ALTER SYSTEM SET fairq.shared_memory = '24MB'; SELECT pg_reload_conf()});
is(sql('SELECT size FROM fairq.shared_memory()'), 16 * 1024 * 1024, 'it keeps its size');

# Memory that groups of many queues have used is reused for the groups of one
# queue.
is_full(error(q{DO $$ BEGIN FOR i IN 1 .. 200 LOOP
	PERFORM fairq.create_queue('x' || i); COMMIT;
	PERFORM count(*) FROM fairq.enqueue_batch('x' || i, ARRAY(SELECT 'g' || n FROM generate_series(1, 3000) n),
		array_fill('1'::jsonb, '{3000}')); COMMIT;
	END LOOP; END $$}), 'full of groups');
sql(q{SELECT count(fairq.drop_queue(name, true)) FROM (SELECT name FROM fairq.queue WHERE name ~ '^x' OFFSET 0) x});
is(sql(q{SELECT fairq.create_queue('wide');
	SELECT count(*) FROM fairq.enqueue_batch('wide', ARRAY(SELECT 'g' || n FROM generate_series(1, 120000) n),
		array_fill('1'::jsonb, '{120000}'))}), "\n120000", 'one queue can use the memory of many');
sql(q{SELECT fairq.drop_queue('wide', true)});

# Queues.
sql(q{SELECT fairq.create_queue('other'), fairq.create_queue('running', concurrency => 1);
	SELECT fairq.enqueue('running', g) FROM unnest('{a,b}'::text[]) g;
	SELECT id FROM fairq.pop('running')});
is_full(error(q{DO $$ BEGIN FOR i IN 1 .. 1000 LOOP
	PERFORM fairq.create_queue('q' || i); COMMIT; END LOOP; END $$}), 'full of queues');
my $queues = sql('SELECT count(*) FROM fairq.queue');
cmp_ok($queues, '>', 200, 'there is room for more than 200 queues');
is(sql('SELECT queues FROM fairq.shared_memory()'), $queues, 'the failed queue is not counted');
is(sql(q{SELECT area_used BETWEEN area * 0.5 AND area * 0.7 FROM fairq.shared_memory()}), 't', 'queues leave memory free');
is(sql(q{SELECT fairq.enqueue('other', 'x') > 0; SELECT fairq.complete(id, attempt) FROM fairq.pop('other')}),
	"t\nt", 'all other calls work');
is(sql(q{SELECT fairq.complete(id) FROM fairq.tasks WHERE queue = 'running' AND status = 'running';
	SELECT group_key FROM fairq.pop('running'); SELECT fairq.check_queue('running')}), "t\nb",
	'... limits, too');
is(sql(q{SELECT fairq.drop_queue('q1'), fairq.drop_queue('q2'); SELECT fairq.create_queue('q1')}), "t|t\n",
	'a dropped queue frees memory');
sql(q{SELECT count(fairq.drop_queue(name)) FROM (SELECT name FROM fairq.queue WHERE name ~ '^q' OFFSET 0) q});

# Many groups have running tasks at the same time, and each needs a counter.
my ($popped, $error) = fill('limited', 30000);
is_full($error, 'full of counters');
cmp_ok($popped, '>', 3000, 'there is room for many counters');
is(sql(q{SELECT fairq.check_queue('limited')}), '', 'the queue is sound');
is(sql(sprintf $complete, 'limited'), '0', 'the tasks end, all at once');
is(rest('limited', 2000), 0, 'then all other groups are served');
is(sql(q{SELECT fairq.check_queue('limited')}), '', 'and the queue is sound');
sql(q{SELECT fairq.drop_queue('limited')});

# One transaction ends tasks of more groups than it can record separately.
$node->restart;
is(sql('SELECT size FROM fairq.shared_memory()'), 24 * 1024 * 1024, 'another size after a restart');
($popped, $error) = fill('limited', 100000);
is_full($error, 'full of more counters');
cmp_ok($popped, '>', 66000, 'there is room for more counters');
is(sql(sprintf $complete, 'limited'), '0', 'the tasks end, all at once');
is(rest('limited', 20000), 0, 'then all other groups are served');
is(sql(q{SELECT fairq.check_queue('limited')}), '', 'and the queue is sound');

# A queue for which shared memory has no space after a restart does not delay
# others.
sql(q{SELECT fairq.create_queue('wide', concurrency => 1), fairq.create_queue('near', concurrency => 1);
	SELECT count(*) FROM fairq.enqueue_batch('wide', ARRAY(SELECT 'g' || n FROM generate_series(1, 140000) n),
		array_fill('1'::jsonb, '{140000}'));
	DELETE FROM fairq.task WHERE id NOT IN (SELECT min(id) FROM fairq.task UNION SELECT max(id) FROM fairq.task);
	SELECT id FROM fairq.pop('wide', 5);
	SELECT fairq.enqueue('near', g) FROM unnest('{a,b}'::text[]) g; SELECT id FROM fairq.pop('near');
	ALTER SYSTEM SET fairq.shared_memory = '4MB'});
$node->restart;
is(sql(q{SELECT group_key FROM fairq.pop('near')}), 'b', 'a limited queue works, though another one has no memory');
is_full(error(q{SELECT id FROM fairq.pop('wide')}), '... whose own calls say so');
is_full(error(q{SELECT fairq.maintain('wide')}), '... and its maintenance');
like(error('SELECT fairq.maintain()'), qr/^psql:[^\n]*WARNING:  53100: [^\n]*full\nDETAIL:  fairq\.maintain\(\) has skipped \d+ queues?\.\nHINT(?!.*ERROR)/s,
	'... but not that of the database');
$node->restart;

# Pops serve all groups that enqueues accepted.
for ([ 'cost', undef ], [ 'time', undef ], [ 'tasks', '/' ])
{
	my ($fair_by, $separator) = @$_;
	my $name = defined $separator ? 'tenants' : "by $fair_by";
	my $accepted = 0;
	my $full = '';

	$separator = defined $separator ? "'/'" : 'NULL';
	sql("SELECT fairq.create_queue('full', fair_by => '$fair_by', separator => $separator)");
	for (1 .. 60)
	{
		$full = error(qq{SELECT count(*) FROM fairq.enqueue_batch('full',
			ARRAY(SELECT 't' || n || coalesce($separator || n, '') FROM generate_series($accepted + 1, $accepted + 500) n),
			array_fill('1'::jsonb, '{500}'))});
		last if $full ne '';
		$accepted += 500;
	}
	is_full($full, "$name: full of groups");
	cmp_ok($accepted, '>=', 1500, '... after some of them');
	is(sql(q{SELECT count(*) FROM fairq.pop('full', 100000)}), $accepted, '... whose tasks are all served');
	sql(q{SELECT fairq.drop_queue('full', true)});
}

# After a restart the groups of some queues take all memory, before other
# queues have any. Views, maintain() and drop_queue() need no memory.
sql(q{DO $$ BEGIN FOR i IN 1 .. 60 LOOP
	PERFORM fairq.create_queue('f' || i, concurrency => 1); PERFORM fairq.enqueue('f' || i, 'a'); COMMIT; END LOOP; END $$});
$node->restart;
sql(q{DO $$ DECLARE q text; n int; BEGIN
	FOREACH n IN ARRAY ARRAY[16000, 8000, 4000, 2000, 1000, 500, 250, 120, 60] LOOP
		FOR i IN 1 .. 10 LOOP
			BEGIN
				PERFORM count(*) FROM fairq.enqueue_batch('f' || i, ARRAY(SELECT 'g' || g FROM generate_series(1, n) g),
					array_fill('1'::jsonb, ARRAY[n]));
			EXCEPTION WHEN SQLSTATE '53100' THEN NULL;
			END; COMMIT;
		END LOOP;
	END LOOP; END $$});
is_full(error(q{SELECT id FROM fairq.pop('f60')}), 'no room for a queue');
is(sql(q{SELECT fairq.drop_queue('f60', true)}), 't', '... which can be dropped');
is(sql(q{SELECT count(*) FROM fairq.queue WHERE name = 'f60'}), 0, '... and is gone');
like(error('SELECT fairq.maintain()'), qr/^psql:[^\n]*WARNING:  53100: [^\n]*full\nDETAIL:  fairq\.maintain\(\) has skipped \d+ queues?\.\nHINT(?!.*ERROR)/s,
	'maintain() skips such queues');
is(sql(q{SELECT count(*) FROM fairq.stats}), sql('SELECT count(*) FROM fairq.queue'), 'the view stats has all queues');
is(sql(q{SELECT paused, queued, running, popped FROM fairq.stats WHERE queue = 'f59'}), 'f|||', '... without numbers that are not known');
is(sql(q{SELECT queue, group_key, status, reason FROM fairq.tasks WHERE queue = 'f59'}), 'f59|a|queued|', '... tasks');
is(sql(q{SELECT ready, popped FROM fairq.queues WHERE queue = 'f59'}), '1|', '... queues');
is(sql(q{SELECT group_key, ready, next_at, got FROM fairq.groups WHERE queue = 'f59'}), 'a|1||', '... groups');
is(sql(q{SELECT fairq.check_queue('f1')}), '', '... and other queues are sound');
sql(q{SELECT count(fairq.drop_queue(name, true)) FROM (SELECT name FROM fairq.queue WHERE name ~ '^f' OFFSET 0) f});

# Memory becomes free after SQL has deleted queues, and after a database or an
# extension was dropped.
sql(q{ALTER SYSTEM SET fairq.shared_memory = '16MB'});
$node->restart;
sql(q{SELECT fairq.drop_queue('wide', true)});
my $make = q{DO $$ BEGIN FOR i IN 1 .. %d LOOP PERFORM fairq.create_queue('q' || i); COMMIT; END LOOP; END $$};
is_full(error(sprintf $make, 1000), 'full of queues');
my $few = sql('SELECT queues - 20 FROM fairq.shared_memory()');

sub makes_few
{
	my ($database, $name) = @_;
	my ($status, undef, $said) = $node->psql($database, sprintf $make, $few);
	is("$status $said", '0 ', $name);
	return;
}

sql(q{DELETE FROM fairq.queue WHERE name ~ '^q'});
sql('SELECT fairq.maintain()');
is(sql('SELECT queues <= count(*) FROM fairq.shared_memory(), fairq.queue GROUP BY queues'), 't',
	'maintain() frees the memory of deleted queues');
sql('CREATE DATABASE next');
$node->safe_psql('next', 'CREATE EXTENSION fairq');
makes_few('next', '... and another database can use it');
sql('DROP DATABASE next');
# fairq searches for memory that it can free once per second at most
sql('SELECT pg_sleep(1.1)');
makes_few('postgres', 'memory of a dropped database can be used again');
sql('SELECT FROM fairq.queues; DROP EXTENSION fairq');
sql('CREATE DATABASE next');
$node->safe_psql('next', 'CREATE EXTENSION fairq');
makes_few('next', '... or a dropped extension');
sql('DROP DATABASE next');
sql(q{CREATE EXTENSION fairq; SELECT fairq.create_queue('other')});

# In the main segment.
$node->append_conf('postgresql.conf', q{shared_preload_libraries = 'fairq'});
$node->restart;
is(sql('SELECT size, preloaded FROM fairq.shared_memory()'), 16 * 1024 * 1024 . '|t', 'reserved at the start');
is(sql(q{SELECT context FROM fairq.version(), pg_settings WHERE name = 'fairq.shared_memory'}), 'postmaster', '... by that setting');
is_full(error(q{DO $$ BEGIN FOR i IN 1 .. 1000 LOOP
	PERFORM fairq.create_queue('s' || i); COMMIT; END LOOP; END $$}), 'full of queues');
crash($node);
is(sql(q{SELECT fairq.enqueue('other', 'x') > 0; SELECT group_key FROM fairq.pop('other')}), "t\nx", 'after a crash');
like(error(q{SET fairq.shared_memory = '9MB'}), qr/55P02/, 'no session changes it');

$node->stop;
done_testing();
