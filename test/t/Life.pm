# Clients do work of all kinds on a queue and record their results, and then the
# records are checked.
#
# Tables record the work of a transaction, in the same transaction: "sent",
# "popped", "ended". When a client has seen a commit, it prints the record of
# that transaction. So after any failure of the server, all commits that clients
# have seen must be there, and all numbers must add up.
package Life;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';
use IPC::Run;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

our @EXPORT = qw(prepare_life start_life end_life is_kept finish_life);

# The statements that a client repeats.
my $turn = <<'SQL';
SELECT produce() AS said \gset
\echo :said
SELECT get_work() AS tasks \gset
SELECT end_work(:'tasks') AS said \gset
\echo :said
BEGIN;
SELECT produce(), end_work(get_work());
ROLLBACK;
SELECT look() AS said \gset
\echo :said
SQL

sub prepare_life
{
	my ($node) = @_;

	$node->safe_psql(
		'postgres', q{
		SELECT fairq.create_queue('life', concurrency => 3, max_running => 12, lease => '300 milliseconds',
			max_attempts => 3, backoff => '10 milliseconds', retain => '1 day');
		SELECT fairq.set_group('life', 'g0', concurrency => 1), fairq.set_group('life', 'g1', weight => 2);
		CREATE VIEW task AS SELECT t.* FROM fairq.task t JOIN fairq.queue q USING (queue_id) WHERE q.name = 'life';
		CREATE TABLE sent (id bigint PRIMARY KEY, not_before timestamptz);
		CREATE TABLE popped (id bigint, attempt int, at timestamptz, lease_until timestamptz, PRIMARY KEY (id, attempt));
		CREATE TABLE ended (id bigint, attempt int, how text, PRIMARY KEY (id, attempt));

		CREATE FUNCTION produce() RETURNS text LANGUAGE plpgsql AS $$
		DECLARE
			ids bigint[];
			not_before timestamptz;
			key text;
			n int := 1 + floor(random() * 3);
		BEGIN
			IF (SELECT count(*) FROM task) > 300 THEN
				RETURN '';
			END IF;
			IF random() < 0.2 THEN
				not_before := clock_timestamp() + random() * interval '0.3 s';
			END IF;
			-- one at a time: keys in any order would deadlock
			IF random() < 0.2 THEN
				key := floor(random() * 30);
				n := 1;
			END IF;
			IF random() < 0.1 THEN
				BEGIN
					PERFORM fairq.enqueue('life', 'new' || random(), dedup_key => key);
					RAISE division_by_zero;
				EXCEPTION WHEN division_by_zero THEN
				END;
			END IF;
			ids := array(SELECT fairq.enqueue_batch('life', array(SELECT 'g' || floor(random() * 6) FROM generate_series(1, n)),
				array_fill('1'::jsonb, ARRAY[n]), floor(random() * 2)::int, not_before, array_fill(key, ARRAY[n])));
			-- of a key that was taken, it is sent already
			INSERT INTO sent SELECT id, not_before FROM unnest(ids) id ON CONFLICT DO NOTHING;
			RETURN 'sent ' || array_to_string(ids, ' ');
		END $$;

		CREATE FUNCTION get_work() RETURNS text LANGUAGE sql AS $$
			WITH p AS (
				SELECT * FROM fairq.pop('life', 1 + floor(random() * 3)::int,
					CASE WHEN random() < 0.1 THEN interval '100 milliseconds' END)
			), i AS (
				INSERT INTO popped SELECT id, attempt, clock_timestamp(), lease_until FROM p RETURNING id, attempt
			)
			SELECT coalesce(string_agg(id || ' ' || attempt, ','), '') FROM i
		$$;

		CREATE FUNCTION end_work(tasks text) RETURNS text LANGUAGE plpgsql AS $$
		DECLARE
			task text;
			task_id bigint;
			attempt int;
			chance float8;
			how text;
			said text := '';
		BEGIN
			FOREACH task IN ARRAY string_to_array(tasks, ',') LOOP
				task_id := split_part(task, ' ', 1);
				attempt := split_part(task, ' ', 2);
				chance := random();
				how := CASE
					WHEN chance < 0.6 AND fairq.complete(task_id, attempt) THEN 'done'
					WHEN chance BETWEEN 0.6 AND 0.7 AND fairq.fail(task_id, attempt, 'no') THEN 'failed'
					WHEN chance BETWEEN 0.7 AND 0.75 AND fairq.release(task_id, attempt) THEN 'released'
					WHEN chance BETWEEN 0.75 AND 0.8 AND fairq.release(task_id, attempt, '50 milliseconds') THEN 'released'
					WHEN chance BETWEEN 0.8 AND 0.85 AND fairq.cancel(task_id)
						AND fairq.extend(task_id, attempt) IS NULL AND fairq.release(task_id, attempt) THEN 'cancelled'
					END;
				-- who is given up by now has ended nothing; and some leave it at that
				IF how IS NOT NULL THEN
					INSERT INTO ended VALUES (task_id, attempt, how);
					said := said || format('ended %s %s %s ', task_id, attempt, how);
				END IF;
			END LOOP;
			IF random() < 0.5 THEN
				RETURN said;
			END IF;
			WITH t AS (
				SELECT * FROM fairq.take('life')
			), p AS (
				INSERT INTO popped SELECT t.id, t.attempt, clock_timestamp() FROM t
			), e AS (
				INSERT INTO ended SELECT t.id, t.attempt, 'taken' FROM t RETURNING id, ended.attempt
			)
			SELECT said || coalesce(string_agg(format('ended %s %s taken', e.id, e.attempt), ' '), '') INTO said FROM e;
			RETURN said;
		END $$;

		-- do more tasks run than allowed?
		CREATE FUNCTION look() RETURNS text LANGUAGE sql AS $$
			SELECT coalesce(string_agg(format('%s of group %s', n, group_no), ', '), '') FROM (
				SELECT group_no, count(*) AS n FROM task WHERE lease_until IS NOT NULL GROUP BY ROLLUP (group_no)) g
			WHERE n > CASE WHEN group_no IS NULL THEN 12 WHEN group_no = 0 THEN 1 ELSE 3 END
		$$;

		-- whatever does not add up
		CREATE FUNCTION problems() RETURNS SETOF text LANGUAGE sql AS $$
			WITH there AS (
				SELECT id, attempt, 'live' AS state FROM task
				UNION ALL SELECT id, attempt, (ARRAY['done', 'failed', 'cancelled'])[status] FROM fairq.archive
				UNION ALL SELECT id, attempt, how FROM ended WHERE how = 'taken'
			)
			SELECT fairq.check_queue('life')
			UNION ALL SELECT 'more tasks run than allowed: ' || look() WHERE look() <> ''
			UNION ALL SELECT format('task %s is lost', id) FROM sent LEFT JOIN there USING (id) WHERE state IS NULL
			UNION ALL SELECT format('task %s was never sent', id) FROM there LEFT JOIN sent USING (id) WHERE sent IS NULL
			UNION ALL SELECT format('task %s exists twice', id) FROM there GROUP BY id HAVING count(*) > 1
			UNION ALL SELECT format('no client ended task %s as %s', id, state) FROM there LEFT JOIN ended USING (id, attempt)
				WHERE state IN ('done', 'taken', 'cancelled') AND how IS DISTINCT FROM state
					-- a cancelled task that its worker leaves alone ends with its lease
					AND (state <> 'cancelled' OR how IS NOT NULL)
			UNION ALL SELECT format('task %s was recorded as %s, and is %s', id, how, state) FROM ended JOIN there USING (id)
				WHERE how IN ('done', 'taken', 'cancelled') AND state <> how
			UNION ALL SELECT format('task %s has attempt %s, and was popped %s times', t.id, t.attempt, count(p.id))
				FROM there t LEFT JOIN popped p ON p.id = t.id GROUP BY t.id, t.attempt
				HAVING count(p.id) <> t.attempt OR coalesce(max(p.attempt), 0) <> t.attempt
			UNION ALL SELECT format('task %s has %s releases, and clients recorded %s', t.id, t.released, count(e.id))
				FROM task t LEFT JOIN ended e ON e.id = t.id AND e.how = 'released' GROUP BY t.id, t.released
				HAVING count(e.id) <> t.released
			UNION ALL SELECT format('task %s was popped too early', id) FROM popped JOIN sent USING (id) WHERE at < not_before
			UNION ALL SELECT format('task %s was popped though it had a lease', p.id)
				FROM popped p JOIN popped q ON p.id = q.id AND p.attempt = q.attempt + 1
				LEFT JOIN ended e ON e.id = q.id AND e.attempt = q.attempt
				WHERE p.at < q.lease_until AND e.id IS NULL
		$$;
	});
	return;
}

# Starts clients, which work until the server stops or end_life() is called.
sub start_life
{
	my ($node, $nclients) = @_;
	my $directory = PostgreSQL::Test::Utils::tempdir_short();
	my $script = "$directory/script";
	my $life = { clients => [], said => [] };

	append_to_file($script, "\\o /dev/null\n" . $turn x 5000);
	foreach my $client (0 .. $nclients - 1)
	{
		my $said = "$directory/$client";

		push @{ $life->{said} }, $said;
		push @{ $life->{clients} },
		  IPC::Run::start(
			[
				'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1',
				'-d', $node->connstr('postgres'), '-f', $script
			],
			'<', \undef, '>', $said, '2>', "$said.errors");
	}
	return $life;
}

# Clients end on their own when the server stops.
sub end_life
{
	my ($life, $kill) = @_;

	foreach my $client (@{ $life->{clients} })
	{
		$client->signal('KILL') if $kill;
		eval { $client->finish };
	}
	return;
}

# All commits that clients have seen are there, and the numbers add up.
sub is_kept
{
	my ($node, $life, $name) = @_;
	my (%sent, @ended);
	my $over = '';

	foreach my $said (@{ $life->{said} })
	{
		foreach my $line (split /\n/, slurp_file($said))
		{
			if ($line =~ /^sent (.*)/) { $sent{$_} = 1 foreach split / /, $1; }
			elsif ($line =~ /^ended/) { push @ended, "($1, $2, '$3')" while $line =~ /ended (\d+) (\d+) (\w+)/g; }
			elsif ($line ne '') { $over = $line; }
		}
	}
	is($over, '', "$name: never did more tasks run than allowed");
	cmp_ok(scalar(keys %sent), '>', 20, "$name: clients have sent " . keys(%sent) . ' tasks');
	cmp_ok(scalar(@ended), '>', 20, "$name: and ended " . @ended);
	is( $node->safe_psql(
			'postgres',
			'SELECT id FROM (VALUES ' . join(', ', map { "($_)" } keys %sent) . ') v (id) EXCEPT SELECT id FROM sent LIMIT 10'
		),
		'',
		"$name: nothing that was sent is lost");
	is( $node->safe_psql(
			'postgres',
			'SELECT id, attempt, how FROM (VALUES ' . join(', ', @ended) . ') v (id, attempt, how) EXCEPT TABLE ended LIMIT 10'
		),
		'',
		"$name: nothing that was ended");
	is($node->safe_psql('postgres', 'SELECT problems() LIMIT 20'),
		'', "$name: all adds up");
	return;
}

# Takes tasks until none is left.
sub finish_life
{
	my ($node, $name) = @_;

	$node->safe_psql('postgres',
		q{SELECT fairq.alter_queue('life', concurrency => 0, max_running => 0), fairq.set_group('life', 'g0', concurrency => 0)});
	foreach (1 .. 600)
	{
		last if $node->safe_psql(
			'postgres', q{
			INSERT INTO popped SELECT id, attempt, clock_timestamp() FROM fairq.take('life', 1000);
			INSERT INTO ended SELECT id, attempt, 'taken' FROM popped p WHERE lease_until IS NULL ON CONFLICT DO NOTHING;
			SELECT count(*) FROM task}) eq '0';
		usleep(50_000);
	}
	is($node->safe_psql('postgres', 'SELECT count(*) FROM task'),
		'0', "$name: nothing is left that no pop finds");
	is($node->safe_psql('postgres', 'SELECT problems() LIMIT 20'),
		'', "$name: all adds up in the end");
	note $node->safe_psql('postgres',
		q{SELECT how, count(*) FROM ended GROUP BY 1 UNION ALL SELECT 'sent', count(*) FROM sent UNION ALL SELECT 'failed for good', count(*) FROM fairq.archive WHERE status = 2});
	return;
}

1;
