# Producers and workers run concurrently, with rollbacks, savepoints, releases
# and takes. In the end each task is done once.
#
# Fails if a task whose claim is undone is not ready again (fairq_claim()).
# Fails if a task is lost when the pop that finished its batch is rolled back
# (fairq_look_at_blocked() in outcome.c).
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib $FindBin::Bin;
use Load;
use Test::More;

my $node = new_server('soak');
prepare_account($node);

# the load's seconds, and the number of disturbances
my ($seconds, $times) = $ENV{FAIRQ_SHORT} ? (1, 4) : (10, 20);
my $load = start_load($node, producers => 4, workers => 4);
sleep $seconds;
# hints are reset and settings changed during the load
foreach (1 .. $times)
{
	$node->safe_psql(
		'postgres', q{
		SELECT fairq.reset_hints();
		SELECT fairq.set_group('q', 'g1', weight => 3);
		SELECT fairq.pause('q'); SELECT fairq.resume('q');
		SELECT fairq.alter_queue('q', block_length => 1000 + (random() * 1000)::int);
	});
	sleep 0.3;
}
sleep $seconds / 3;
end_load($load);
account($node, 'soak');

my $log = PostgreSQL::Test::Utils::slurp_file($node->logfile);
unlike($log, qr/(ERROR|FATAL|PANIC|TRAP).*/, 'no call has failed');

done_testing();
