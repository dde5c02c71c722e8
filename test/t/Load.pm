# Many sessions put load on a queue, and then the result is checked.
#
# Producers store the id of each task that they enqueue in table "sent".
# Workers store the id of each task that they finish in table "done". Both
# store the id in the transaction of their call. So, whatever happens to
# sessions and servers, in the end "done" has each id of "sent" once, and no
# other id. A task that waits for a batch is in "done" after the batch's tasks.
package Load;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

# PostgreSQL's modules keep these variables of the caller, and those that the
# Makefile sets for tests on a running server. These variables would override a
# test's own settings.
delete $ENV{PGOPTIONS};

our @EXPORT = qw(new_server crash prepare_account start_load end_load account);

my $produce = <<'SQL';
\set n random(1, 4)
\set way random(1, 20)
BEGIN;
INSERT INTO sent SELECT fairq.enqueue_batch('q',
	(SELECT array_agg('g' || floor(random() * 8)) FROM generate_series(1, :n)),
	array_fill('1'::jsonb, ARRAY[:n]));
\if :way <= 3
ROLLBACK;
\elif :way <= 6
SAVEPOINT s;
INSERT INTO sent SELECT fairq.enqueue('q', 'g' || floor(random() * 8), priority => :n);
ROLLBACK TO s;
INSERT INTO sent SELECT fairq.enqueue('q', 'g' || floor(random() * 8), priority => :n);
COMMIT;
\elif :way <= 8
SELECT fairq.create_batch('q', 'g' || floor(random() * 8)) AS batch \gset
INSERT INTO sent VALUES (:batch);
INSERT INTO sent SELECT id, :batch FROM fairq.enqueue_batch('q', ARRAY['g1', 'g' || :n], '{1,2}', batch => :batch) id;
COMMIT;
BEGIN;
INSERT INTO sent SELECT fairq.enqueue('q', 'g' || :n, batch => :batch), :batch;
SELECT fairq.close_batch(:batch);
ROLLBACK;
SELECT fairq.close_batch(:batch);
\else
COMMIT;
\endif
SQL

my $work = <<'SQL';
\set n random(1, 6)
\set way random(1, 20)
BEGIN;
SELECT coalesce(array_agg(id), '{}') AS ids FROM fairq.pop('q', :n) \gset
\if :way <= 3
ROLLBACK;
\elif :way <= 5
COMMIT;
SELECT fairq.release(id) FROM unnest(':ids'::bigint[]) id;
\elif :way <= 7
SAVEPOINT s;
SELECT count(*) FROM fairq.pop('q', :n);
ROLLBACK TO s;
INSERT INTO done SELECT id FROM unnest(':ids'::bigint[]) id WHERE fairq.complete(id);
COMMIT;
\elif :way <= 9
COMMIT;
BEGIN;
SELECT fairq.complete_batch(':ids');
ROLLBACK;
INSERT INTO done SELECT id FROM unnest(':ids'::bigint[]) id WHERE fairq.complete(id);
\elif :way <= 12
COMMIT;
BEGIN;
INSERT INTO done SELECT id FROM unnest(':ids'::bigint[]) id WHERE fairq.complete(id);
INSERT INTO done SELECT id FROM fairq.take('q', :n);
COMMIT;
\else
COMMIT;
INSERT INTO done SELECT id FROM unnest(':ids'::bigint[]) id WHERE fairq.complete(id, 1)
	OR fairq.complete(id);
\endif
SQL

# From 17 on PostgreSQL::Test::Cluster itself copies INITDB_TEMPLATE, if that
# is set, instead of running initdb.
sub init
{
	my ($node, %params) = @_;
	my $run = \&PostgreSQL::Test::Utils::system_or_bail;

	no warnings 'redefine';
	local *PostgreSQL::Test::Utils::system_or_bail = sub {
		return $_[0] eq 'initdb' && defined $ENV{INITDB_TEMPLATE}
		  ? $run->('cp', '-a', $ENV{INITDB_TEMPLATE}, $node->data_dir)
		  : $run->(@_);
	};
	$node->init(%params);
	return;
}

sub new_server
{
	my ($name, %settings) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);

	init($node, map { $_ => delete $settings{$_} } qw(allows_streaming has_archiving));
	# a notice, for example that a group was created, ends a background
	# session's statement
	$node->append_conf('postgresql.conf', 'client_min_messages = warning');
	# logging the statements of a load would be most of the server's work
	$node->append_conf('postgresql.conf', 'log_statement = none');
	$node->append_conf('postgresql.conf', "$_ = '$settings{$_}'")
	  foreach sort keys %settings;
	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION fairq');
	return $node;
}

# Restarts the server without a clean shutdown. The node's own restart() has no
# mode: it ignores such an argument, or fails.
sub crash
{
	my ($node) = @_;

	$node->stop('immediate');
	$node->start;
	return;
}

sub prepare_account
{
	my ($node) = @_;

	$node->safe_psql(
		'postgres', q{
		SELECT fairq.create_queue('q');
		CREATE TABLE sent (id bigint, batch bigint);
		CREATE TABLE done (id bigint, at timestamptz DEFAULT clock_timestamp());
		INSERT INTO sent SELECT fairq.enqueue_batch('q',
			(SELECT array_agg('g' || least(i % 20, 7)) FROM generate_series(1, 5000) i),
			array_fill('1'::jsonb, ARRAY[5000]));
	});
	return;
}

# The load begins with a backlog. A session that ends is started again, until
# end_load() is called.
sub start_load
{
	my ($node, %sessions) = @_;
	my $directory = PostgreSQL::Test::Utils::tempdir_short();
	my $load = { node => $node, stop => "$directory/stop", runs => [] };
	my $bench = $node->installed_command('pgbench');

	append_to_file("$directory/producer", $produce);
	append_to_file("$directory/worker", $work);
	foreach my $kind ('producer', 'worker')
	{
		my $clients = $sessions{"${kind}s"};
		my $options = $sessions{"${kind}_options"} // '';
		local $ENV{PGHOST} = $node->host;
		local $ENV{PGPORT} = $node->port;
		local $ENV{PGDATABASE} = 'postgres';
		local $ENV{PGOPTIONS} = $options;
		local $ENV{PGAPPNAME} = $kind;
		my $rate = $kind eq 'producer' ? '-R 1000' : '';

		push @{ $load->{runs} },
		  IPC::Run::start(
			[
				'sh', '-c',
				"until [ -e $load->{stop} ]; do"
				  . " $bench -n -c $clients -T 1 $rate -f $directory/$kind; sleep 0.05;"
				  . " done"
			],
			'>',
			"$PostgreSQL::Test::Utils::log_path/load_$kind.log",
			'2>&1');
	}
	return $load;
}

sub end_load
{
	my ($load) = @_;

	# wait for the batches that account() needs, on a slow machine too
	$load->{node}->poll_query_until('postgres', 'SELECT count(DISTINCT batch) > 10 FROM sent');
	append_to_file($load->{stop}, '');
	$_->finish foreach @{ $load->{runs} };
	return;
}

# Finishes the remaining tasks, and compares "done" with "sent".
sub account
{
	my ($node, $name) = @_;
	my $rounds = 0;

	is($node->safe_psql('postgres', q{SELECT fairq.check_queue('q')}),
		'', "$name: the queue is sound");

	# Running tasks belong to sessions that have died.
	my $orphans = $node->safe_psql('postgres',
		q{WITH o AS (INSERT INTO done SELECT id FROM fairq.tasks WHERE status = 'running' AND fairq.complete(id) RETURNING 1)
		  SELECT count(*) FROM o});
	# these sessions have not closed their batches either
	$node->safe_psql('postgres',
		q{SELECT fairq.close_batch(id) FROM fairq.batches WHERE status = 'open'});
	# a batch is next checked after a quarter of its age
	while ($node->safe_psql('postgres', 'SELECT count(*) FROM fairq.task') > 0
		&& $node->safe_psql('postgres', q{CALL fairq.wait('q', '60 s')}) eq 't')
	{
		$node->safe_psql('postgres',
			q{INSERT INTO done SELECT id FROM fairq.take('q', 10000)});
		$rounds++;
	}
	is( $node->safe_psql('postgres', 'SELECT count(*) FROM fairq.task'),
		'0', "$name: nothing is left ready that no pop finds");
	is( $node->safe_psql(
			'postgres', 'SELECT id FROM sent EXCEPT SELECT id FROM done ORDER BY 1 LIMIT 10'),
		'',
		"$name: nothing is lost");
	is( $node->safe_psql(
			'postgres', 'SELECT id FROM done EXCEPT SELECT id FROM sent ORDER BY 1 LIMIT 10'),
		'',
		"$name: nothing is done that was not enqueued");
	is( $node->safe_psql(
			'postgres',
			'SELECT id, count(*) FROM done GROUP BY 1 HAVING count(*) > 1 LIMIT 10'
		),
		'',
		"$name: nothing is done twice");
	is( $node->safe_psql(
			'postgres',
			'SELECT batch FROM sent JOIN done t USING (id) JOIN done w ON w.id = batch WHERE w.at < t.at LIMIT 10'
		),
		'',
		"$name: what waits for a batch is done after it");
	is( $node->safe_psql(
			'postgres',
			q{SELECT batch, status, completed, count(*) FROM sent LEFT JOIN fairq.batches b ON b.id = batch
			  WHERE batch > 0 GROUP BY 1, 2, 3 HAVING (status = 'finished' AND completed = count(*)) IS NOT TRUE LIMIT 10}
		),
		'',
		"$name: the batches are finished, and count their tasks");
	my $done = $node->safe_psql('postgres', 'SELECT count(*) FROM done');
	cmp_ok($done, '>', 100, "$name: there was work");
	cmp_ok($node->safe_psql('postgres', 'SELECT count(DISTINCT batch) FROM sent'),
		'>', 10, "$name: and there were batches");
	note("$name: $done tasks, $orphans of sessions that had died, $rounds rounds to drain");
	return;
}

1;
