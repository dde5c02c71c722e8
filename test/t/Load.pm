# Load on a queue from many sessions, and its account.
#
# Producers note the id of each task that they enqueue in table "sent",
# workers the id of each that they finish in table "done", both in the very
# transaction that does it.  So whatever happens to sessions and servers, in
# the end each id of "sent" must be in "done" once, and no other.
package Load;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

# PostgreSQL's modules leave these, the caller's and those that the Makefile has
# for tests on a running server.  They would win over a test's own settings.
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

sub new_server
{
	my ($name, %settings) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);

	$node->init(map { $_ => delete $settings{$_} } qw(allows_streaming has_archiving));
	# a notice, say of a group that is created, ends what a background session does
	$node->append_conf('postgresql.conf', 'client_min_messages = warning');
	$node->append_conf('postgresql.conf', "$_ = '$settings{$_}'")
	  foreach sort keys %settings;
	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION fairq');
	return $node;
}

# Restart without a shutdown.  The node's own restart() has no mode: where it
# does not die of one, it ignores it.
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
		CREATE TABLE sent (id bigint);
		CREATE TABLE done (id bigint);
		INSERT INTO sent SELECT fairq.enqueue_batch('q',
			(SELECT array_agg('g' || least(i % 20, 7)) FROM generate_series(1, 5000) i),
			array_fill('1'::jsonb, ARRAY[5000]));
	});
	return;
}

# The load begins with a backlog.  Sessions that end, for whatever reason, begin again until end_load.
sub start_load
{
	my ($node, %sessions) = @_;
	my $directory = PostgreSQL::Test::Utils::tempdir_short();
	my $load = { stop => "$directory/stop", runs => [] };
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

	append_to_file($load->{stop}, '');
	$_->finish foreach @{ $load->{runs} };
	return;
}

# Finish what is left, and compare.
sub account
{
	my ($node, $name) = @_;
	my $rounds = 0;

	is($node->safe_psql('postgres', q{SELECT fairq.check_queue('q')}),
		'', "$name: the queue is sound");

	# What is running is the work of those who have died.
	my $orphans = $node->safe_psql('postgres',
		q{WITH o AS (INSERT INTO done SELECT id FROM fairq.tasks WHERE status = 'running' AND fairq.complete(id) RETURNING 1)
		  SELECT count(*) FROM o});
	while ($node->safe_psql('postgres',
			q{WITH t AS (INSERT INTO done SELECT id FROM fairq.take('q', 10000) RETURNING 1)
			  SELECT count(*) FROM t}) > 0)
	{
		$rounds++;
	}
	is( $node->safe_psql('postgres', 'SELECT count(*) FROM fairq.task'),
		'0', "$name: nothing is left ready that no pop finds");
	is( $node->safe_psql(
			'postgres', '(TABLE sent EXCEPT TABLE done) ORDER BY 1 LIMIT 10'),
		'',
		"$name: nothing is lost");
	is( $node->safe_psql(
			'postgres', '(TABLE done EXCEPT TABLE sent) ORDER BY 1 LIMIT 10'),
		'',
		"$name: nothing is done that was not enqueued");
	is( $node->safe_psql(
			'postgres',
			'SELECT id, count(*) FROM done GROUP BY 1 HAVING count(*) > 1 LIMIT 10'
		),
		'',
		"$name: nothing is done twice");
	my $done = $node->safe_psql('postgres', 'SELECT count(*) FROM done');
	cmp_ok($done, '>', 100, "$name: there was work");
	note("$name: $done tasks, $orphans of sessions that had died, $rounds rounds to drain");
	return;
}

1;
