# A rate holds after a failover. The promoted standby, which was queried
# before, does not know the later starts on the primary. So its rates begin as
# after a restart.
#
# Fails if the starts that the standby counted as available before the promotion
# stay available (end_replay() in registry.c).
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib $FindBin::Bin;
use Load;
use PostgreSQL::Test::Cluster;
use Test::More;
use Time::HiRes qw(usleep);

my $primary = new_server('primary', allows_streaming => 1);
$primary->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'backup', has_streaming => 1);
$standby->start;

# the rates allow one task in 6 seconds: for each group of the queue "groups", and
# for the whole queue "all"
$primary->safe_psql(
	'postgres', q{
	SELECT fairq.create_queue('groups', rate => 10, per => '1 minute');
	SELECT fairq.create_queue('all', max_rate => 10, per => '1 minute');
	SELECT fairq.enqueue(q, 'a') FROM unnest('{groups,all}'::text[]) q, generate_series(1, 3);
});
$primary->wait_for_catchup($standby);
my $session = $standby->background_psql('postgres');
my $peek = q{SELECT (SELECT count(*) FROM fairq.peek('groups')), (SELECT count(*) FROM fairq.peek('all'))};
$session->query_safe($peek);
usleep(6_500_000);
is($session->query_safe($peek), '1|1', 'peek shows tasks on the standby');

my $pop = q{SELECT (SELECT count(*) FROM fairq.pop('groups')), (SELECT count(*) FROM fairq.pop('all'))};
my $since = time;
is($primary->safe_psql('postgres', $pop), '1|1', 'they start on the primary');
$primary->wait_for_catchup($standby);
$primary->stop('immediate');
$standby->promote;
my $soon = $session->query_safe($pop);
my $elsewhere = $standby->safe_psql('postgres', $pop);
SKIP:
{
	skip 'the promotion has taken too long', 2 if time - $since > 4;
	is($soon, '0|0', 'no task starts soon after the promotion');
	is($elsewhere, '0|0', 'nor in another session');
}
$session->query_safe('SELECT pg_sleep(6.5)');
is($session->query_safe($pop), '1|1', 'but later');
$session->quit;

done_testing();
