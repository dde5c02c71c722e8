# Queries on a hot standby change nothing, and after a promotion the server
# accepts work.
#
# Fails if a session of the standby may write (fairq_writes() in args.c). Fails
# if columns whose values no standby knows show zeros (RecoveryInProgress() in
# inspect.c, has_groups() in survey.c).
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib $FindBin::Bin;
use Load;
use PostgreSQL::Test::Cluster;
use Test::More;

my $primary = new_server('primary', allows_streaming => 1);
$primary->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'backup', has_streaming => 1);
$standby->start;

$primary->safe_psql(
	'postgres', q{
	SELECT fairq.create_queue('q');
	SELECT fairq.enqueue_batch('q', ARRAY['a', 'b', 'a', 'b', 'a', 'b'], ARRAY['1', '1', '2', '2', '3', '3']::jsonb[]);
	SELECT fairq.pop('q', 3);
});
my $open = $primary->background_psql('postgres');
$open->query_safe(q{BEGIN; SELECT id FROM fairq.pop('q'); SELECT fairq.enqueue('q', 'late')});
$primary->safe_psql('postgres', q{SELECT fairq.enqueue('q', 'c', '1')});
$primary->wait_for_catchup($standby);

foreach my $call (
	q{fairq.enqueue('q', 'a')},
	q{fairq.enqueue_batch('q', ARRAY['a'], ARRAY['1']::jsonb[])},
	q{fairq.pop('q')},
	q{fairq.take('q')},
	q{fairq.complete(1)},
	q{fairq.complete_batch(ARRAY[1])},
	q{fairq.release(1)},
	q{fairq.fail(1)},
	q{fairq.extend(1)},
	q{fairq.cancel(1)},
	q{fairq.expire_leases('q')},
	q{fairq.redrive('q')},
	q{fairq.maintain()},
	q{fairq.purge('q')},
	q{fairq.create_queue('r')},
	q{fairq.alter_queue('q', lease => '1 minute')},
	q{fairq.drop_queue('q')},
	q{fairq.set_group('q', 'a', weight => 2)},
	q{fairq.pause('q')},
	q{fairq.resume('q')},
	q{fairq.grant_queue('q', 'postgres', 'work')},
	q{fairq.revoke_queue('q', 'postgres', 'work')})
{
	my ($status, $stdout, $stderr) =
	  $standby->psql('postgres', "\\set VERBOSITY sqlstate\nSELECT $call");
	like($stderr, qr/ERROR:  25006/, "standby: $call");
}
{
	my ($status, $stdout, $stderr) = $standby->psql('postgres',
		"\\set VERBOSITY sqlstate\nCALL fairq.wait('q')");
	like($stderr, qr/ERROR:  25006/, 'standby: fairq.wait');
}
is( $standby->safe_psql(
		'postgres', q{SELECT queue, ready, running FROM fairq.queues}),
	'q|4|3',
	'standby: queues');
is( $standby->safe_psql(
		'postgres',
		q{SELECT string_agg(group_key || ready, ' ' ORDER BY group_no) FROM fairq.groups}
	),
	'a1 b2 c1',
	'standby: groups');
is($standby->safe_psql('postgres', q{SELECT fairq.check_queue('q')}),
	'', 'standby: check');
is($standby->safe_psql('postgres', q{SELECT fairq.address('q', 'b', 2)}),
	2 * 1048576 + 1, 'standby: address');
is( $standby->safe_psql(
		'postgres',
		q{SELECT (SELECT count(*) FROM fairq.lanes), (SELECT count(*) FROM fairq.lane_groups('q', 0))}
	),
	'0|0',
	'standby: the views of lanes are empty');
# A standby does no work, so fairq counts nothing, and all values except
# settings are NULL.
is( $standby->safe_psql(
		'postgres',
		q{SELECT queue, paused, groups_paused, (SELECT count(*) FROM jsonb_each_text(jsonb_strip_nulls(to_jsonb(s))))
			FROM fairq.stats s}
	),
	'q|f|0|3',
	'standby: stats');
my $reasons = q{SELECT string_agg(group_key || ':' || coalesce(reason, '-'), ' ' ORDER BY id)
	FROM fairq.tasks WHERE status = 'queued'};
is( $standby->safe_psql('postgres', $reasons),
	'b:workers a:workers b:workers c:workers',
	'standby: reasons without limits');
$primary->safe_psql(
	'postgres', q{
	SELECT fairq.set_group('q', 'b', concurrency => 1);
	SELECT fairq.pause('q', 'a');
});
$primary->wait_for_catchup($standby);
is( $standby->safe_psql('postgres', $reasons),
	'b:- a:paused b:- c:workers',
	'standby: reasons, as far as they are known there');
$primary->safe_psql(
	'postgres', q{
	SELECT fairq.set_group('q', 'b', concurrency => 0);
	SELECT fairq.resume('q', 'a');
});
$primary->wait_for_catchup($standby);
# the result lacks the task of b that the open transaction has popped
is( $standby->safe_psql(
		'postgres', q{SELECT string_agg(group_key || addr / 1048576, ' ') FROM fairq.peek('q')}
	),
	'a1 b1 c1',
	'standby: peek shows the order after a restart');
is($standby->safe_psql('postgres', q{SELECT fairq.reset_hints()}),
	'', 'standby: hints may be reset');

$standby->promote;
is( $standby->safe_psql(
		'postgres',
		q{SELECT popped, array_length(wait_histogram, 1) > 0 FROM fairq.stats}),
	'0|t',
	'promoted: counts begin');
is($standby->safe_psql('postgres', q{SELECT fairq.check_queue('q')}),
	'', 'promoted: check');
is( $standby->safe_psql(
		'postgres', q{SELECT string_agg(group_key || addr / 1048576, ' ') FROM fairq.peek('q', 2)}
	),
	'a1 b1',
	'promoted: peek');
is( $standby->safe_psql(
		'postgres',
		q{SELECT string_agg(group_key || payload, ' ') FROM fairq.pop('q', 2)}),
	'a3 b2',
	'promoted: a round begins, without tasks of the open transaction');
is( $standby->safe_psql(
		'postgres',
		q{SELECT fairq.enqueue('q', 'c', '2') > (SELECT max(id) FROM fairq.task)}),
	't',
	'promoted: ids continue');
is( $standby->safe_psql(
		'postgres',
		q{SELECT string_agg(group_key || payload, ' ') FROM fairq.pop('q', 100)}
	),
	'c1 b3 c2',
	'promoted: in fair order');
is( $standby->safe_psql(
		'postgres',
		q{SELECT count(*) FILTER (WHERE fairq.complete(id)) FROM fairq.tasks}),
	'8',
	'promoted: all can be completed');
$open->query_safe('ROLLBACK');
$open->quit;

done_testing();
