# The number of a shard, and concurrent sessions. set_shard waits for
# transactions that have written, and fails if they have added tasks. A session
# that waits for set_shard takes ids of the new shard. A dump, a copy of the
# database and a restart keep the number.
#
# Fails if fairq_set_shard() has no LOCK TABLE.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib $FindBin::Bin;
use Load;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_server('shard');
my $first = 5 * 2**43;

sub waits_for_lock
{
	my ($query) = @_;
	return $node->poll_query_until('postgres',
		qq{SELECT count(*) = 1 FROM pg_stat_activity
		WHERE wait_event_type = 'Lock' AND query ~ '$query'
		AND pid <> pg_backend_pid()});
}

sub connection
{
	return $node->background_psql('postgres', on_error_stop => 0);
}

$node->safe_psql('postgres', q{SELECT fairq.create_queue('q')});

# an enqueue that has not committed
my $open = connection();
my $setter = connection();
$open->query_safe(q{BEGIN; SELECT fairq.enqueue('q', 'a')});
$setter->query_until(qr/begun/, "\\echo begun\nSELECT fairq.set_shard(5);\n");
ok(waits_for_lock('set_shard'), 'set_shard waits for an enqueue');
$open->query_safe('COMMIT');
$setter->query('SELECT 1');
like($setter->{stderr}, qr/because there are tasks/, 'and sees its task');
is($node->safe_psql('postgres', 'SELECT fairq.shard()'), '0', 'no shard yet');
$setter->{stderr} = '';

# an enqueue while another session sets the number
$node->safe_psql('postgres', q{SELECT id FROM fairq.take('q')});
$setter->query_safe('BEGIN; SELECT fairq.set_shard(5)');
$open->query_until(qr/begun/,
	"\\echo begun\nSELECT fairq.enqueue('q', 'a');\n");
ok(waits_for_lock('enqueue'), 'an enqueue waits for set_shard');
$setter->query_safe('COMMIT');
$open->query_safe('SELECT 1');
is($node->safe_psql('postgres', 'SELECT id FROM fairq.tasks'),
	$first + 1, 'and the new task has an id of the shard');
$open->quit;
$setter->quit;

# a dump and a copy of the database keep the number
my $dump = "$PostgreSQL::Test::Utils::tmp_check/shard.sql";
$node->command_ok([ 'pg_dump', '-f', $dump, 'postgres' ], 'dump');
$node->safe_psql('postgres', 'CREATE DATABASE restored');
$node->command_ok(
	[ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', $dump, 'restored' ],
	'restore');
$node->safe_psql('template1', 'CREATE DATABASE copied TEMPLATE postgres');
$node->restart;
$node->stop('immediate');
$node->start;
foreach my $database (qw(postgres restored copied))
{
	is($node->safe_psql($database, 'SELECT fairq.shard()'),
		'5', "$database: the number is there");
	cmp_ok($node->safe_psql($database, q{SELECT fairq.enqueue('q', 'a')}),
		'>', $first + 1, "$database: ids go on in the shard");
	is($node->safe_psql($database, q{SELECT fairq.check_queue('q')}),
		'', "$database: the queue is sound");
}

done_testing();
