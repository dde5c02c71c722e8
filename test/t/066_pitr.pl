# A server is restored to a point in the middle of work. All commits before that
# point are there, all numbers add up, and work continues.
#
# Fails if a new recovery of a lane leaves out one group (find_groups() in
# line.c).
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib $FindBin::Bin;
use Life;
use Load;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

my $primary = new_server('primary', allows_streaming => 1, has_archiving => 1);
prepare_life($primary);

# The backup is also taken during work.
my $life = start_life($primary, 4);
usleep(500_000);
$primary->backup('backup');

# The restore point comes after a commit.
sub pick
{
	my ($point) = @_;
	my $ended = $primary->safe_psql('postgres',
		q{SELECT string_agg(format('(%s, %s)', id, attempt), ', ') FROM ended});
	my $most = $primary->safe_psql('postgres', 'SELECT max(id) FROM sent');
	my $at = $primary->safe_psql('postgres', $point);

	return { ended => $ended, most => $most, point => $at,
		sent => $primary->safe_psql('postgres', 'SELECT count(*) FROM sent') };
}
usleep(500_000);
my $named = pick(q{SELECT pg_create_restore_point('middle')});
usleep(300_000 + rand(300_000));
my $lsn = pick(q{SELECT pg_current_wal_insert_lsn()});
$primary->poll_query_until('postgres', "SELECT count(*) > $lsn->{sent} FROM sent")
  or die 'no more is sent';
end_life($life, 1);
my $last = $primary->safe_psql('postgres', 'SELECT pg_walfile_name(pg_switch_wal())');
$primary->poll_query_until('postgres',
	"SELECT last_archived_wal >= '$last' FROM pg_stat_archiver")
  or die 'nothing is archived';

foreach my $target (
	[ 'name', 'recovery_target_name = middle', $named ],
	[ 'lsn', "recovery_target_lsn = '$lsn->{point}'", $lsn ])
{
	my ($name, $setting, $point) = @$target;
	my $node = PostgreSQL::Test::Cluster->new("restored_$name");

	$node->init_from_backup($primary, 'backup', has_restoring => 1, standby => 0);
	$node->append_conf('postgresql.conf',
		"$setting\nrecovery_target_action = promote\narchive_mode = off");
	$node->start;
	$node->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()')
	  or die 'the server is not restored';

	is($node->safe_psql('postgres', 'SELECT problems() LIMIT 20'),
		'', "$name: all tasks are accounted for");
	is( $node->safe_psql(
			'postgres',
			"SELECT count(*) FROM (VALUES $point->{ended}) v (id, attempt) LEFT JOIN ended USING (id, attempt) WHERE how IS NULL"
		),
		'0',
		"$name: earlier ends are there");
	cmp_ok(
		$node->safe_psql('postgres', 'SELECT count(*) FROM sent'), '<',
		$primary->safe_psql('postgres', 'SELECT count(*) FROM sent'),
		"$name: and later ones are not");

	# ids are not used again, and work continues
	cmp_ok(
		$node->safe_psql('postgres',
			q{SELECT fairq.enqueue('life', 'g0') AS id \gset
			  INSERT INTO sent VALUES (:id) RETURNING id}),
		'>',
		$point->{most},
		"$name: ids continue");
	$life = start_life($node, 4);
	usleep(700_000);
	end_life($life, 1);
	is_kept($node, $life, $name);
	finish_life($node, $name);
	$node->stop;
}

done_testing();
