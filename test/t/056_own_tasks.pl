# A transaction's pops find all tasks that it has enqueued. Meanwhile other
# transactions enqueue and pop in the same lanes, and find none of these tasks.
# Each search by another transaction may invalidate tasks that were published
# early. A pop misses a task only while another call reads the line of the
# task's group, which is rare. At most one transaction in a hundred may miss a
# task, and it must find that task later.
#
# Fails if a pop publishes its transaction's tasks only before it begins to
# search.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib $FindBin::Bin;
use Load;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_server('own');
my $script = PostgreSQL::Test::Utils::tempdir() . '/own.sql';

# tasks of this script are taken before they are committed
append_to_file(
	$script, q{
\set group random(1, 6)
DO $$
DECLARE
	found int;
	total int := 0;
	wanted int;
BEGIN
	FOR i IN 1 .. 5 LOOP
		PERFORM fairq.enqueue('own', :group || ' of ' || pg_backend_pid(), priority => i % 3);
	END LOOP;
	FOREACH wanted IN ARRAY ARRAY[1, 1, 10] LOOP
		SELECT count(*) INTO found FROM fairq.take('own', wanted);
		total := total + found;
	END LOOP;
	IF total <> 5 THEN
		RAISE WARNING 'missed: only % of 5', total;
	END IF;
	FOR i IN 1 .. 1000 LOOP
		EXIT WHEN total = 5;
		PERFORM pg_sleep(0.01);
		SELECT count(*) INTO found FROM fairq.take('own', 10);
		total := total + found;
	END LOOP;
	IF total <> 5 THEN
		RAISE EXCEPTION 'lost: only % of 5', total;
	END IF;
END $$;
});
$node->safe_psql('postgres', q{SELECT fairq.create_queue('own')});
my ($stdout, $stderr) = run_command(
	[ 'pgbench', '-n', '-c', 4, '-j', 2, '-T', 4, '-f', $script, $node->connstr('postgres') ]);
my ($n) = $stdout =~ /number of transactions actually processed: (\d+)/;
my $missed = () = $stderr =~ /missed/g;
note("$missed of $n");
unlike($stderr, qr/lost|error/, 'no task is lost');
cmp_ok($missed * 100, '<=', $n + 100, 'pops find the tasks of their transactions');
is( $node->safe_psql(
		'postgres',
		q{SELECT count(*) FROM fairq.task; SELECT * FROM fairq.check_queue('own')}
	),
	'0', 'nothing is left');

$node->stop;
done_testing();
