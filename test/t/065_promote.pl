# The primary is killed during work of all kinds, and its synchronous standby is
# promoted. All commits that clients have seen are there, all numbers add up,
# and work continues at once.
#
# Fails if the calls commit asynchronously (fairq_written() in transaction.c).
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib $FindBin::Bin;
use Life;
use Load;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);

my $primary = new_server('primary', allows_streaming => 1);
$primary->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'backup', has_streaming => 1);
# queries on the standby do not delay replay for long
$standby->append_conf('postgresql.conf', 'max_standby_streaming_delay = -1');
$standby->start;
$primary->append_conf('postgresql.conf',
	"synchronous_standby_names = 'standby'");
$primary->reload;

# While one queue is in use, another queue does not change. a is limited, and a1
# is leased for an hour, so a2 waits. b1 was leased for a moment. c1 will soon
# be due, and d1 never. e1 has a key, and f is paused.
$primary->safe_psql(
	'postgres', q{
	SELECT fairq.create_queue('still', max_attempts => 2, lease => '1 hour');
	SELECT fairq.set_group('still', 'a', concurrency => 1), fairq.pause('still', 'f');
	SELECT fairq.enqueue('still', g, to_jsonb(g || '1'), dedup_key => g) FROM unnest('{a,b,e,f}'::text[]) g;
	SELECT fairq.pop('still');
	SELECT fairq.pop('still', lease => '1 microsecond');
	SELECT fairq.enqueue('still', 'a', '"a2"');
	SELECT fairq.enqueue('still', 'c', '"c1"', run_at => clock_timestamp() + '3 seconds');
	SELECT fairq.enqueue('still', 'd', '"d1"', run_at => 'infinity', dedup_key => 'd');
});
prepare_life($primary);
$primary->wait_for_catchup($standby);

my $life = start_life($primary, 5);
my ($looks, $found) = (0, '');
my $end = time + 2 + rand;
while (time < $end)
{
	# each query reads the rows that have been replayed by then
	$found .= $standby->safe_psql('postgres',
		q{SELECT fairq.check_queue('life'); SELECT 'more than all' FROM fairq.queues WHERE queue = 'life' AND running > 12});
	$looks++;
	usleep(100_000);
}
is($found, '', "the queue on the standby is sound in $looks checks");
my ($status, $stdout, $stderr) = $standby->psql('postgres',
	"\\set VERBOSITY sqlstate\nSELECT end_work(get_work())");
like($stderr, qr/ERROR:  25006/, 'and accepts no work');

# The standby is cut off before the primary is killed. Replication is
# synchronous, so clients then see no further commit, and the standby has all
# commits that they have seen.
$standby->append_conf('postgresql.conf', "primary_conninfo = ''");
$standby->reload;
usleep(300_000);
$primary->kill9;
$standby->promote;
end_life($life);
$standby->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()')
  or die 'the standby is not promoted';
is_kept($standby, $life, 'promoted');

# The queue that does not change is the same on the standby.
is( $standby->safe_psql(
		'postgres',
		q{SELECT string_agg(format('%s/%s', payload #>> '{}', attempt), ' ' ORDER BY payload #>> '{}')
		  FROM fairq.pop('still', 100) WHERE payload <> '"c1"'}),
	'b1/2 e1/1',
	'promoted: leases, limits, pauses and schedules hold');
is( $standby->safe_psql(
		'postgres',
		q{SELECT string_agg(fairq.enqueue('still', g, dedup_key => g) || ' ' || t.id, ', ')
		  FROM unnest('{a,b,d,e,f}'::text[]) g JOIN fairq.tasks t ON t.queue = 'still' AND t.payload = to_jsonb(g || '1')
		  WHERE fairq.enqueue('still', g, dedup_key => g) <> t.id}),
	'',
	'promoted: and keys');
is( $standby->safe_psql(
		'postgres', q{
		SELECT fairq.complete(id, attempt) FROM fairq.tasks WHERE queue = 'still' AND payload = '"a1"';
		SELECT payload FROM fairq.pop('still', 100) WHERE payload <> '"c1"'}),
	qq{t\n"a2"},
	'promoted: a free slot is used');
is( $standby->safe_psql(
		'postgres', q{
		SELECT fairq.resume('still', 'f');
		SELECT payload FROM fairq.pop('still', 100) WHERE payload <> '"c1"'}),
	qq{\n"f1"},
	'promoted: a pause ends');
$standby->poll_query_until('postgres',
	q{SELECT run_at < clock_timestamp() FROM fairq.tasks WHERE payload = '"c1"'});
$standby->safe_psql('postgres', q{SELECT fairq.pop('still', 100)});
is( $standby->safe_psql(
		'postgres',
		q{SELECT string_agg((payload #>> '{}') || ' ' || status, ', ' ORDER BY payload #>> '{}') FROM fairq.tasks WHERE queue = 'still'}
	),
	'a2 running, b1 running, c1 running, d1 scheduled, e1 running, f1 running',
	'promoted: due tasks are popped');
is($standby->safe_psql('postgres', q{SELECT fairq.check_queue('still')}),
	'', 'promoted: the queue is sound');
$standby->safe_psql('postgres', q{SELECT fairq.drop_queue('still', true)});

# The other queue continues.
$life = start_life($standby, 5);
usleep(1_000_000);
end_life($life, 1);
is_kept($standby, $life, 'continues');
finish_life($standby, 'promoted');

done_testing();
