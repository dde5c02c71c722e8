# A restart beside many groups: finding all of them takes longer than a statement
# may last.  What a call has read before it is cancelled is not lost, so a session
# gets through by trying again.  Seen to fail when each call began anew.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib $FindBin::Bin;
use Load;
use Test::More;

my $groups = 80000;
my $node = new_server('cold_start');

$node->safe_psql(
	'postgres', "SELECT fairq.create_queue('cold');
	SELECT count(*) FROM (SELECT fairq.enqueue_batch('cold', array_agg('g' || n), array_agg(to_jsonb(n)))
		FROM generate_series(1, $groups) n) b;");

# What the same session sees, calls that may last 20 ms each until one is done.
sub tries
{
	my ($begin, $call) = @_;
	my ($out, $err);

	$node->psql(
		'postgres',
		"$begin\nSET statement_timeout = '20ms';\n" . "$call\n" x 400,
		stdout => \$out,
		stderr => \$err,
		on_error_stop => 0);
	my $cancelled = () = $err =~ /canceling statement due to statement timeout/g;
	return ($cancelled, split(/\n/, $out // ''));
}

$node->restart('immediate');
my ($cancelled, @served) =
  tries('', "SELECT group_key FROM fairq.pop('cold', 1, lease => '1 hour');");
cmp_ok($cancelled, '>', 1, 'a call does not get through at once');
like($served[0], qr/^g[1-9]$/, 'but a later one does');

# a turn in which a call was cancelled is over
my @seats = map { /(\d+)/ } @served[0 .. 9];
is_deeply(\@seats, [ sort { $a <=> $b } @seats ], 'in the order of their turns');
cmp_ok($seats[9], '<=', 10 + $cancelled, 'which nobody misses');

# the same by enqueue, after hints were thrown away
($cancelled, my @ids) = tries('DO $$BEGIN PERFORM fairq.reset_hints(); END$$;',
	"SELECT 'id ' || fairq.enqueue('cold', 'g3');");
cmp_ok($cancelled, '>', 0, 'nor does an enqueue');
cmp_ok(scalar(@ids), '>', 0, 'but a later one does');

# All of it is there, once.
is( $node->safe_psql(
		'postgres', "SELECT count(DISTINCT id), count(*) FROM fairq.pop('cold', 1000000);
		SELECT ready, running FROM fairq.queues WHERE queue = 'cold';"),
	join("\n", ($groups + @ids - @served) . '|' . ($groups + @ids - @served),
		'0|' . ($groups + @ids)),
	'nothing is lost or there twice');

$node->stop;
done_testing();
