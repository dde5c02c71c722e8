# What one can see of fairq from outside: its log messages, at DEBUG1 and
# DEBUG2, and what pg_stat_activity says of a session that waits.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib $FindBin::Bin;
use Load;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_server('messages');

# The messages of fairq that a session has written into the server's log.
sub messages
{
	my ($sql) = @_;
	my $before = -s $node->logfile;
	$node->safe_psql('postgres', "SET log_min_messages = debug2; $sql");
	return join '', grep { /DEBUG: .*(queue "q"|group)/ } split /^/m,
	  slurp_file($node->logfile, $before);
}

$node->safe_psql('postgres',
	q{SELECT fairq.create_queue('q', 2, max_attempts => 2);
	  SELECT fairq.enqueue_batch('q', '{a,a,b}', '{"\"secret\"","\"secret\"","\"secret\""}')});
$node->restart;

like(messages(q{SELECT fairq.pop('q', 1, '1 ms')}),
	qr/read priority 0 of queue "q" off its table: 2 groups have tasks/,
	'a lane is read after a restart');
unlike(messages(q{SELECT fairq.pop('q', 1)}),
	qr/off its table/, 'and once only');

$node->restart;
like(messages(q{SELECT pg_sleep(0.01); SELECT fairq.pop('q', 5, '1 ms')}),
	qr/counted the running tasks of group number 0 of queue "q": \d/,
	'running tasks are counted after a restart');

my $expired = messages(q{SELECT pg_sleep(0.01); SELECT fairq.pop('q', 5, '1 ms')});
like($expired,
	qr/lease of task \d+ of queue "q" has expired: it is served again/,
	'a lease has expired');
$expired .= messages(q{SELECT pg_sleep(0.01); SELECT fairq.pop('q', 5, '1 ms')})
  foreach 1 .. 2;
like($expired, qr/lease of task \d+ of queue "q" has expired: it is failed/,
	'one that was the last');
unlike($expired, qr/secret/, 'no payload is told');

$node->safe_psql('postgres',
	q{SELECT fairq.cancel(id) FROM fairq.tasks WHERE queue = 'q' AND finished_at IS NULL});
like(messages(q{SELECT fairq.expire_leases('q')}) . messages(q{SELECT fairq.maintain('q')}),
	qr/\d groups of queue "q" are not used: forgotten/, 'groups are forgotten');

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
