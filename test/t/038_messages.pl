# fairq seen from outside: its log messages, at DEBUG1 and DEBUG2, and the
# entry of a waiting session in pg_stat_activity.
#
# Fails if no message reports that an expired lease is taken over
# (take_over() in claim.c).
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib $FindBin::Bin;
use Load;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_server('messages');

# The messages of fairq that a session has written to the server's log.
sub messages
{
	my ($sql) = @_;
	my $before = -s $node->logfile;
	$node->safe_psql('postgres', "SET log_min_messages = debug2; $sql");
	return join '', grep { /DEBUG: .*(queue "q"|group|load)/ } split /^/m,
	  slurp_file($node->logfile, $before);
}

$node->safe_psql('postgres',
	q{SELECT fairq.create_queue('q', 2, max_attempts => 2);
	  SELECT fairq.enqueue_batch('q', '{a,a,b}', '{"\"secret\"","\"secret\"","\"secret\""}')});
$node->restart;

like(messages(q{SELECT fairq.pop('q', 1, '1 ms')}),
	qr/reading priority 0 of queue "q" from its table: first tasks are in block \d+, service continues at seat \d+/,
	'a lane is read after a restart');
unlike(messages(q{SELECT fairq.pop('q', 1)}),
	qr/from its table/, 'and once only');

$node->restart;
like(messages(q{SELECT pg_sleep(0.01); SELECT fairq.pop('q', 5, '1 ms')}),
	qr/the load has found \d running tasks/,
	'running tasks are found after a restart');

my $expired = messages(q{SELECT pg_sleep(0.01); SELECT fairq.pop('q', 5, '1 ms')});
like($expired,
	qr/lease of task \d+ of queue "q" has expired: it is served again/,
	'a lease has expired');
$expired .= messages(q{SELECT pg_sleep(0.01); SELECT fairq.pop('q', 5, '1 ms')})
  foreach 1 .. 2;
like($expired, qr/lease of task \d+ of queue "q" has expired: it is failed/,
	'the last attempt has expired');
unlike($expired, qr/secret/, 'no message has a payload');

$node->safe_psql('postgres',
	q{SELECT fairq.cancel(id) FROM fairq.tasks WHERE queue = 'q' AND finished_at IS NULL});
like(messages(q{SELECT fairq.expire_leases('q')}) . messages(q{SELECT fairq.maintain('q')}),
	qr/\d groups of queue "q" are not used: forgotten/, 'groups are forgotten');

# A session reads a queue's settings once, and again only after they have
# changed, no matter which session has changed them, and how.
{
	my $pop = q{SELECT fairq.pop('q')};
	my $session = $node->background_psql('postgres');
	$session->query_safe(q{SET log_min_messages = debug2});

	my $reads = sub {
		my ($by_others, $sql) = @_;
		$node->safe_psql('postgres', $by_others) if $by_others;
		my $before = -s $node->logfile;
		$session->query_safe($sql // $pop);
		return join ',', map { /read the settings of queue "(\w+)"/ ? $1 : () } split /^/m,
		  slurp_file($node->logfile, $before);
	};
	is($reads->(''), 'q', 'the first call reads the settings');
	is($reads->(''), '', 'the next call does not read them');
	$node->safe_psql('postgres', q{SELECT fairq.create_queue('other'); CREATE ROLE someone});
	is($reads->($_), '', "settings are not read after: $_")
	  foreach q{SELECT fairq.create_queue('gone')}, q{SELECT fairq.drop_queue('gone')},
	  q{SELECT fairq.alter_queue('other', 1)}, q{SELECT fairq.set_group('other', 'a', weight => 2)},
	  q{SELECT fairq.pause('other')}, q{SELECT fairq.grant_queue('other', 'someone', 'work')},
	  q{UPDATE fairq.queue SET max_attempts = 7 WHERE name = 'other'},
	  q{DELETE FROM fairq.group_setting WHERE queue_id = (SELECT queue_id FROM fairq.queue WHERE name = 'other')},
	  q{SELECT fairq.enqueue('q', 'new'), fairq.enqueue('other', 'new')};
	is($reads->($_), 'q', "settings are read after: $_")
	  foreach q{SELECT fairq.alter_queue('q', 1)}, q{SELECT fairq.set_group('q', 'a', weight => 2)},
	  q{SELECT fairq.grant_queue('q', 'someone', 'work')}, q{SELECT fairq.revoke_queue('q', 'someone', 'work')},
	  q{UPDATE fairq.queue SET max_attempts = 7 WHERE name = 'q'},
	  q{BEGIN; SELECT fairq.pause('q'); ROLLBACK},
	  q{DELETE FROM fairq.group_setting WHERE queue_id = (SELECT queue_id FROM fairq.queue WHERE name = 'q')},
	  q{TRUNCATE fairq.queue_privilege};
	is($reads->('', "BEGIN; $pop; SELECT fairq.pause('q', 'a'); $pop; $pop; ROLLBACK"),
		'q', 'a session\'s own change is read once');
	is($reads->(''), 'q', 'and settings are read again after its rollback');
	is($reads->('', "BEGIN; SAVEPOINT s; SELECT fairq.pause('q', 'a'); $pop; ROLLBACK TO s; $pop; COMMIT"),
		'q,q', 'the same applies to a change of a subtransaction');
	# after a restart SQL changes settings of a queue that shared memory does
	# not know
	$session->quit;
	$node->restart;
	$session = $node->background_psql('postgres');
	my $changing = $node->background_psql('postgres');
	$session->query_safe(q{SET log_min_messages = debug2});
	$changing->query_safe(
		q{BEGIN; INSERT INTO fairq.group_setting (queue_id, group_no, weight, paused) SELECT queue_id, 0, 1, true FROM fairq.queue WHERE name = 'q'});
	is($reads->(''), 'q', 'settings are read during an open change');
	is($reads->(''), '', 'once');
	$changing->query_safe('COMMIT');
	is($reads->(''), 'q', 'and after its commit');
	$changing->quit;
	$session->quit;
	$node->safe_psql('postgres', q{TRUNCATE fairq.group_setting; SELECT fairq.alter_queue('q', 0)});
}

# A session that waits.
my $waiter = $node->background_psql('postgres');
$waiter->query_until(qr/begun/, "\\echo begun\nCALL fairq.wait('q', '1 hour');\n");
my $event = $node->pg_version >= 17 ? 'FairqWait' : 'Extension';
ok( $node->poll_query_until('postgres',
		qq{SELECT count(*) = 1 FROM pg_stat_activity
		   WHERE wait_event_type = 'Extension' AND wait_event = '$event'
		   AND state = 'active' AND backend_xmin IS NULL AND backend_xid IS NULL}),
	"a session that waits shows $event");
$node->safe_psql('postgres',
	q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query ~ '^CALL fairq.wait'});
eval { $waiter->quit };

$node->stop;
done_testing();
