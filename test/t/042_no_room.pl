# fairq works although a role without privileges can fill the main shared memory
# segment with locks. With shared_preload_libraries, all of fairq's space in
# that segment is reserved. Without that setting, fairq needs no space there
# from PostgreSQL 17 on. In earlier versions it needs space for a handle.
#
# Fails if the handle is a struct of 4 kB (compat.h). Fails if the hook that
# requests the block's space is not set (fairq_shmem_init() in shmem.c).
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib $FindBin::Bin;
use Load;
use PostgreSQL::Test::Utils;
use Test::More;

# the lock table is small, so few locks fill it
my %settings = (max_connections => 20, max_locks_per_transaction => 10);
my $node = new_server('no_room', %settings);
my $registry = $node->pg_version >= 17;
my $reserved = 24 * 1024 * 1024;
my $in_main = q{SELECT coalesce(sum(allocated_size), 0) FROM pg_shmem_allocations WHERE name = 'fairq'};

$node->safe_psql('postgres', q{CREATE ROLE nobody_at_all LOGIN; CREATE DATABASE other;
	SELECT fairq.create_queue('q')});
$node->safe_psql('other', q{CREATE EXTENSION fairq; SELECT fairq.create_queue('q')});
is($node->safe_psql('postgres', $in_main), $registry ? 0 : 128,
	'fairq uses at most one cache line of the main segment');

# Fills the lock table, as any role can.
sub attack
{
	my (undef, undef, $error) = $node->psql('postgres',
		'SELECT count(pg_advisory_lock(g)) FROM generate_series(1, 3000000) g',
		extra_params => [ '-U', 'nobody_at_all' ]);
	like($error, qr/out of shared memory/, 'the lock table is full');
	$node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM pg_locks WHERE locktype = 'advisory'})
	  or die 'locks stay';
}

sub works
{
	my ($what) = @_;
	foreach my $db (qw(postgres other))
	{
		is($node->safe_psql($db, q{SELECT fairq.enqueue('q', 'a') > 0; SELECT count(*) FROM fairq.pop('q');
			SELECT count(*) FROM fairq.stats}), "t\n1\n1", "$what, in database $db");
	}
}

# fairq is first used after the attack. Before PostgreSQL 17, either the
# handle fits, or the error's hint names the remedy.
$node->restart;
attack();
my ($status, $out, $error) = $node->psql('postgres', q{SELECT fairq.enqueue('q', 'a') > 0},
	extra_params => [ '-v', 'VERBOSITY=verbose' ]);
if ($status == 0)
{
	works('fairq works after the attack');
}
else
{
	ok(!$registry, 'only before version 17 the handle does not fit');
	like($error, qr/53200.*HINT:.*shared_preload_libraries/s, 'the error has a hint');
}

# Memory that was used before the attack stays usable.
$node->restart;
works('before the attack');
attack();
works('after a later attack');

$node->append_conf('postgresql.conf', q{shared_preload_libraries = 'fairq'});
$node->restart;
is($node->safe_psql('postgres', $in_main), $reserved, 'memory is reserved before the first use');
attack();
works('preloaded, after the attack');

# after a crash, the same postmaster creates shared memory again
$node->safe_psql('postgres', q{ALTER SYSTEM SET restart_after_crash = on; SELECT pg_reload_conf()});
my $pid = $node->safe_psql('postgres', q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'});
kill 'KILL', $pid;
my $up = 0;
for (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
{
	my ($rc, $now) = $node->psql('postgres', q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'});
	last if $up = $rc == 0 && $now ne '' && $now != $pid;
	select undef, undef, undef, 0.1;
}
ok($up, 'the server is back after a crash');
is($node->safe_psql('postgres', $in_main), $reserved, 'memory is reserved again');
attack();
works('after a crash and an attack');

# the extension is created again in one database, and used in both databases at
# once
$node->safe_psql('other', q{DROP EXTENSION fairq; CREATE EXTENSION fairq; SELECT fairq.create_queue('q')});
works('after the extension was created again');
$node->restart;
attack();
my @sessions = map { $node->background_psql($_ % 2 ? 'postgres' : 'other') } 1 .. 8;
$_->{stdin} .= "SELECT fairq.enqueue('q', 'b');\n" foreach @sessions;
$_->query_safe('SELECT 1') foreach @sessions;
$_->quit foreach @sessions;
works('after a first use by many sessions at once');
is($node->safe_psql('postgres', q{SELECT count(*) FROM fairq.tasks WHERE group_key = 'b'})
	  + $node->safe_psql('other', q{SELECT count(*) FROM fairq.tasks WHERE group_key = 'b'}),
	8, '... none of which was lost');
$node->stop;
done_testing();
