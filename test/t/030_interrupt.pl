# Sessions are terminated, cancelled and timed out during calls. Still each task
# is done once.
#
# Fails if a task whose claim is undone is not ready again (fairq_claim()).
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib $FindBin::Bin;
use Load;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

my $node = new_server('interrupt');
prepare_account($node);

my $load = start_load(
	$node,
	producers => 3,
	workers => 3,
	producer_options => '-c statement_timeout=20ms',
	worker_options => '-c statement_timeout=20ms');
my $rounds = $ENV{FAIRQ_SHORT} ? 30 : 150;
my $hits = 0;
foreach my $round (1 .. $rounds)
{
	my $how = $round % 3 == 0 ? 'pg_terminate_backend' : 'pg_cancel_backend';

	$hits += $node->safe_psql(
		'postgres', qq{
		SELECT count(*) FILTER (WHERE $how(pid)) FROM (
			SELECT pid FROM pg_stat_activity
			WHERE application_name IN ('producer', 'worker') AND state <> 'idle'
			ORDER BY random() LIMIT 2) s});
	usleep(20_000);
}
end_load($load);
cmp_ok($hits, '>', $rounds / 8, 'sessions were interrupted');
account($node, 'interrupt');

# A waiting session can be interrupted, and then works normally.
my ($id) = $node->safe_psql('postgres',
	q{SELECT fairq.enqueue('q', 'a'); SELECT id FROM fairq.pop('q')}) =~ /(\d+)$/;
my $session = $node->background_psql('postgres');
$session->query_safe("BEGIN; SELECT fairq.complete($id)");
my ($status, $stdout, $stderr) = $node->psql('postgres',
	"SET statement_timeout = '100ms'; SELECT fairq.release($id)");
like($stderr, qr/canceling statement due to statement timeout/,
	'a release that waits is timed out');
$session->query_safe('ROLLBACK');
$session->quit;
is($node->safe_psql('postgres', "SELECT fairq.release($id)"),
	't', 'and works afterwards');
is($node->safe_psql('postgres', q{SELECT count(*) FROM fairq.take('q')}),
	'1', 'and the task is ready');

# fairq.maintain(), which waits for others in a subtransaction of its own, can
# also be interrupted. The session must leave that subtransaction.
$node->safe_psql('postgres',
	q{SELECT fairq.set_group('q', 'unused', weight => 2), fairq.set_group('q', 'unused', weight => 0)}
);
$session = $node->background_psql('postgres');
$session->query_safe(q{BEGIN; SELECT fairq.enqueue('q', 'a')});
($status, $stdout, $stderr) = $node->psql(
	'postgres', q{
	SET statement_timeout = '100ms';
	SELECT fairq.maintain('q');
	SET statement_timeout = 0;
	SELECT 'continues';
	ROLLBACK;
	SELECT 'works'},
	on_error_stop => 0);
like($stderr, qr/canceling statement due to statement timeout/,
	'a call of maintain that waits is timed out');
is($stdout, "continues\nworks", 'and the session continues');
$session->query_safe('ROLLBACK');
$session->quit;

unlike(slurp_file($node->logfile),
	qr/PANIC|TRAP|terminated by signal|could not (update|delete) a locked task/,
	'nothing has crashed');

done_testing();
