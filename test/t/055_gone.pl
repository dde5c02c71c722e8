# Dropped or rolled back queues, extensions and databases leave nothing behind
# in shared memory. Other queues reuse their memory, and never see their hints.
#
# Fails if hints of dropped queues are not reused (fairq_shmem_release(),
# reclaim_dropped() in registry.c), or if counters of dropped queues stay
# (free_idle_counters()). Fails if a new extension does not remove the hints of
# dropped ones (enter_extension()). Fails if keys in shared memory do not
# contain the database's creation (fairq_key_of() in shmem.c).
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib $FindBin::Bin;
use Load;
use Test::More;

my $node = new_server('gone',
	synchronous_commit => 'off',
	autovacuum => 'off',
	# less memory than a leak would use in this test
	'fairq.shared_memory' => '8MB');
my $session;

# Each part begins with new shared memory.
sub begin_anew
{
	$session->quit if $session;
	$node->restart;
	$session = $node->background_psql('postgres', on_error_stop => 0);
	return;
}

# How much of shared memory is used.
sub used
{
	return $session->query_safe('SELECT area_used FROM fairq.shared_memory()');
}

# If memory leaked, all of it would be full long before the end.
sub does_not_grow
{
	my ($name, $sql) = @_;

	begin_anew();
	$session->query_safe($sql) for 1 .. 2;
	is($session->{stderr}, '', "$name: shared memory does not grow");
	return;
}

# The dropped queues have more counters than fairq keeps before it frees idle
# ones.
does_not_grow('dropped while tasks run', q{
	DO $$
	BEGIN
		FOR i IN 1 .. 250 LOOP
			PERFORM fairq.create_queue('d', concurrency => 1);
			PERFORM fairq.enqueue_batch('d', ARRAY(SELECT 'g' || n FROM generate_series(1, 100) n),
				array_fill('1'::jsonb, '{100}'));
			COMMIT;
			ASSERT (SELECT count(*) FROM fairq.pop('d', 1000)) = 100;
			COMMIT;
			ASSERT fairq.drop_queue('d', force => true);
			COMMIT;
		END LOOP;
	END
	$$});
does_not_grow('creations that are rolled back', q{
	DO $$
	BEGIN
		FOR i IN 1 .. 500 LOOP
			PERFORM fairq.create_queue('v', concurrency => 1), fairq.enqueue('v', 'a');
			ASSERT (SELECT count(*) FROM fairq.pop('v')) = 1;
			ROLLBACK;
		END LOOP;
	END
	$$});
does_not_grow('creations that are rolled back to a savepoint', q{
	DO $$
	BEGIN
		FOR i IN 1 .. 500 LOOP
			BEGIN
				PERFORM fairq.create_queue('v', concurrency => 1), fairq.enqueue('v', 'a');
				ASSERT (SELECT count(*) FROM fairq.pop('v')) = 1;
				RAISE division_by_zero;
			EXCEPTION WHEN division_by_zero THEN
			END;
			CONTINUE WHEN i % 10 <> 0;
			COMMIT;
		END LOOP;
	END
	$$});

# A session waits for each queue while another session drops it.
begin_anew();
my $waiter = $node->background_psql('postgres', on_error_stop => 0);
my $queues = 100;
$waiter->query_safe(q{SET application_name = 'waiter'});
my $waits = join('', map { "CALL fairq.wait('w$_', '10 minutes');\n" } 1 .. $queues);
my $create = "SELECT count(fairq.create_queue('w' || i)) FROM generate_series(1, $queues) i";
my $drop = qq{
	DO \$\$
	BEGIN
		FOR i IN 1 .. $queues LOOP
			WHILE NOT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'waiter'
					AND wait_event_type = 'Extension' AND query LIKE '%''w' || i || '''%') LOOP
				PERFORM pg_sleep(0.001), pg_stat_clear_snapshot();
			END LOOP;
			PERFORM fairq.drop_queue('w' || i);
			COMMIT;
		END LOOP;
	END
	\$\$};
my $before;
foreach my $time (1 .. 2)
{
	$before = used();
	$session->query_safe($create);
	$waiter->query_until(qr/begun/, "\\set VERBOSITY sqlstate\n\\echo begun\n$waits");
	$session->query_safe($drop);
	$waiter->query('SELECT 1');
	is(scalar(() = $waiter->{stderr} =~ /ERROR:  QF001/g),
		$queues, 'each wait ends with QF001');
	$waiter->{stderr} = '';
}
# the hash table may keep some memory for the last queues
cmp_ok(abs(used() - $before), '<', $queues * 1000,
	'dropped while a session waits: shared memory does not grow');
$waiter->quit;
$session->quit;

# From here on shared memory has space for all groups.
$node->append_conf('postgresql.conf', "fairq.shared_memory = '24MB'");
$node->restart;

# More groups than the cache has entries for. Each group is limited to one
# running task, so its second task waits.
sub fill
{
	my ($database) = @_;

	$node->safe_psql($database, q{
		CREATE EXTENSION IF NOT EXISTS fairq;
		SELECT fairq.create_queue('q', concurrency => 1);
		DO $$
		BEGIN
			FOR i IN 0 .. 13 LOOP
				PERFORM count(*) FROM fairq.enqueue_batch('q',
					ARRAY(SELECT 'g' || i * 10000 + n / 2 FROM generate_series(0, 19999) n),
					array_fill('1'::jsonb, '{20000}'));
				COMMIT;
			END LOOP;
		END
		$$});
	return;
}

# Each round serves each group once.
sub serves_in_turn
{
	my ($database, $name) = @_;

	is( $node->safe_psql($database, q{
			SELECT fairq.create_queue('q', concurrency => 1);
			SELECT count(*) FROM fairq.enqueue_batch('q', ARRAY(SELECT 'g' || n % 100 FROM generate_series(1, 1000) n),
				array_fill('1'::jsonb, '{1000}'));
			CREATE TABLE served (round int, group_key text);
			DO $$
			BEGIN
				FOR i IN 0 .. 99 LOOP
					INSERT INTO served SELECT i / 10, group_key FROM fairq.pop('q', 10)
					WHERE fairq.complete(id, attempt);
					COMMIT;
				END LOOP;
			END
			$$;
			SELECT count(*), min(n), max(n) FROM
				(SELECT count(DISTINCT group_key) AS n FROM served GROUP BY round) r;
			SELECT fairq.check_queue('q')}),
		"\n1000\n10|100|100",
		"$name: each group is served once per round");
	return;
}

$node->safe_psql('postgres', "CREATE DATABASE $_") foreach qw(old new);
fill('old');
$node->safe_psql('postgres', 'DROP DATABASE old');
$node->safe_psql('new', 'CREATE EXTENSION fairq');
serves_in_turn('new', 'after another database was dropped');
$node->safe_psql('new', q{SELECT fairq.drop_queue('q'); DROP TABLE served});
$node->restart;
fill('new');
$node->safe_psql('new', 'DROP EXTENSION fairq; CREATE EXTENSION fairq');
serves_in_turn('new', 'after the extension was dropped');

# A database with the OID of a dropped one. OIDs of tables and ids of queues
# are equal, too, as both were created from the same template.
$node->safe_psql('postgres', 'CREATE DATABASE template');
$node->safe_psql('template',
	q{CREATE EXTENSION fairq; SELECT fairq.create_queue('q')});
$node->safe_psql('postgres',
	'CREATE DATABASE again TEMPLATE template OID = 77777');
is( $node->safe_psql('again',
		q{SELECT fairq.enqueue('q', 'a'); SELECT id FROM fairq.take('q'); SELECT id FROM fairq.take('q')}),
	"1\n1", 'all is taken');
$node->safe_psql('postgres', 'DROP DATABASE again');
$node->safe_psql('template', q{SELECT fairq.enqueue('q', 'x')});
$node->safe_psql('postgres',
	'CREATE DATABASE again TEMPLATE template OID = 77777');
is($node->safe_psql('again', q{SELECT group_key FROM fairq.pop('q')}),
	'x', 'the same OID: the new tasks are found');
is($node->safe_psql('again', q{SELECT fairq.check_queue('q')}),
	'', 'and the queue is sound');

# A transaction drops the extension, creates it again and uses it, and is rolled
# back.
$node->safe_psql('postgres', q{
	SELECT fairq.create_queue('limited', concurrency => 2);
	SELECT count(*) FROM fairq.enqueue_batch('limited', '{a,a,a,a,b}', '{1,2,3,4,1}')});
my @sessions = map { $node->background_psql('postgres') } 1 .. 2;
my $pop = q{SELECT coalesce(string_agg(group_key || payload, ' '), '-') FROM fairq.pop('limited', 100)};
my $one = q{SELECT group_key || payload FROM fairq.pop('limited')};
is($sessions[$_]->query_safe($one), ('a1', 'b1')[$_], 'a session works') foreach 0, 1;
$sessions[0]->query_safe($_) foreach 'BEGIN', 'DROP EXTENSION fairq', 'CREATE EXTENSION fairq';
is( $sessions[0]->query_safe(q{
		SELECT fairq.create_queue('limited', concurrency => 1);
		SELECT count(*) FROM fairq.enqueue_batch('limited', '{a,a,c}', '{11,12,11}')}),
	"\n3", 'the transaction uses its new extension');
is($sessions[0]->query_safe($pop), 'a11 c11', 'works');
$sessions[0]->query_safe('ROLLBACK');
is($sessions[1]->query_safe($pop), 'a2',
	'rolled back: another session continues, within the limit');
is($sessions[0]->query_safe($pop), '-', 'so does this one');
is( $sessions[0]->query_safe(
		q{SELECT fairq.complete(id) FROM fairq.tasks WHERE group_key = 'a' AND payload = '1'}),
	't', 'an old task is completed');
is($sessions[1]->query_safe($pop), 'a3', 'which frees a slot');
is($sessions[1]->query_safe($pop), '-', 'and no other');
is( $sessions[0]->query_safe(
		q{SELECT count(*) - cardinality(fairq.complete_batch(array_agg(id))) FROM fairq.tasks WHERE status = 'running'}),
	'3', 'all are completed');
is($sessions[0]->query_safe($pop), 'a4', 'the last one');
is($node->safe_psql('postgres', q{SELECT fairq.check_queue('limited')}),
	'', 'the queue is sound');
$_->quit foreach @sessions;

$node->stop;
done_testing();
