# A session that was open on a standby, for example in a pooler, continues after
# the promotion. The session does not use what it has cached on the standby.
#
# Fails if a session does not notice the promotion, and uses the settings that
# it has read before (queue.c).
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
	SELECT fairq.create_queue('q'), fairq.create_queue('old'), fairq.create_queue('gone');
	SELECT fairq.enqueue('q', 'alice', '"of alice"'), fairq.enqueue('old', 'a', '"a1"');
	SELECT fairq.set_group('q', 'alice', concurrency => 2);
});
$primary->wait_for_catchup($standby);
my $session = $standby->background_psql('postgres', on_error_stop => 0);
$session->query_safe(q{\set VERBOSITY sqlstate});

# Everything that the session can have read on the standby.
sub look
{
	return $session->query(
		q{SELECT fairq.address('q', 'alice', 0); SELECT concurrency FROM fairq.groups WHERE queue = 'q' AND group_no = 0;
		SELECT fairq.check_queue('q'); SELECT fairq.block_of('old', 1); SELECT fairq.block_of('gone', 1)});
}
is(look(), "0\n2\n0\n0", 'the session has read the queues');

# On the primary, alice's tasks are done, her group is deleted, and bob gets
# her number. One queue gets other settings, one gets another name, and one is
# dropped.
$primary->safe_psql(
	'postgres', q{
	SELECT fairq.set_group('q', 'alice', concurrency => 0);
	SELECT id FROM fairq.take('q');
	SELECT fairq.maintain();
	SELECT fairq.enqueue('q', 'bob', '"of bob"');
	SELECT fairq.enqueue('q', 'bob', '"of bob, too"');
	SELECT fairq.alter_queue('q', 1);
	SELECT fairq.drop_queue('gone');
	UPDATE fairq.queue SET name = 'new' WHERE name = 'old';
});
$primary->wait_for_catchup($standby);
is( $primary->safe_psql(
		'postgres', q{SELECT group_key, group_no FROM fairq.groups WHERE queue = 'q'}),
	'bob|0',
	'bob has the number of alice');
is( $session->query(q{SELECT fairq.address('q', 'bob', 0)}),
	'0', 'the session sees on the standby that bob has the number');
is($session->query(q{SELECT fairq.address('q', 'alice', 0)}), '', 'alice has no group there');
like($session->{stderr}, qr/QF007/, 'which is an error');
$session->{stderr} = '';

$primary->stop;
$standby->promote;
$standby->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()')
  or die 'the standby is not promoted';

$session->query_safe(q{SELECT fairq.enqueue('q', 'alice', '"of alice"')});
is( $session->query_safe(
		q{SELECT string_agg(group_key || ': ' || (payload #>> '{}'), ', ' ORDER BY id) FROM fairq.tasks WHERE queue = 'q'}
	),
	'bob: of bob, bob: of bob, too, alice: of alice',
	'promoted: the task belongs to its group');
is( $session->query_safe(
		q{SELECT string_agg(group_key || ': ' || (payload #>> '{}'), ', ') FROM fairq.pop('q', 10)}),
	'bob: of bob, alice: of alice',
	'promoted: the new limit applies');
is($session->query(q{SELECT id FROM fairq.pop('gone')}) . $session->query(q{SELECT id FROM fairq.pop('old')}),
	'', 'promoted: the dropped queue and the old name');
like($session->{stderr}, qr/QF001.*QF001/s, 'are not known');
$session->{stderr} = '';
is($session->query_safe(q{SELECT payload FROM fairq.pop('new')}),
	'"a1"', 'promoted: the renamed queue has its new name');
is( $session->query_safe(
		q{SELECT fairq.check_queue('q') UNION ALL SELECT fairq.check_queue('new')}),
	'',
	'promoted: all is sound');
$session->quit;

done_testing();
