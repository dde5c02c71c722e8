# Workers wait for several queues. For each enqueued task, one waiter of its
# queue pops, even if others are notified for another queue first. The workers
# wait for a minute, so the test notices a task that no worker pops.
#
# Fails if workers that wait for several queues are not woken (fairq_wake() in
# wake.c).
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib $FindBin::Bin;
use Load;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);

my $node = new_server('wait_several', autovacuum => 'off');
my $control = $node->background_psql('postgres');
$control->set_query_timer_restart;
$control->query_safe(
	q{SELECT fairq.create_queue(q) FROM unnest('{a,b,c}'::text[]) q});
$control->query_safe(q{SELECT setseed(0.5)});

my @benches;

sub workers
{
	my ($n, $queues) = @_;
	my $script = "$PostgreSQL::Test::Utils::tmp_check/work_" . ($queues =~ tr/a-c//cdr) . '.sql';

	append_to_file($script,
		"CALL fairq.wait($queues, '1 minute');\n"
		  . "SELECT fairq.complete(id, attempt) FROM fairq.pop($queues);\n");
	push @benches,
	  IPC::Run::start([
			$node->installed_command('pgbench'),
			'-n', '-c', $n, '-t', 1000000,
			'-f', $script, '-h', $node->host, '-p', $node->port, 'postgres' ],
		'>', "$script.log", '2>&1');
	return;
}

workers(2, q{'{a,b}'::text[]});
workers(2, q{'{b,c}'::text[]});
workers(1, q{'{c,a,b}'::text[]});
workers(1, q{'c'});
foreach (1 .. 1000)
{
	last
	  if $control->query_safe(
		q{SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'CALL fairq.wait%'}) eq '6';
	usleep(10_000);
}

my $longest = 0;
my $rounds = 0;
my $end = time() + 8;
while (time() < $end)
{
	my $since = time();

	$control->query_safe(
		q{SELECT fairq.enqueue(chr(97 + floor(random() * 3)::int), 'g')
		FROM generate_series(0, floor(random() * 3)::int)});
	while (time() - $since < 20)
	{
		last
		  if $control->query_safe('SELECT NOT EXISTS (SELECT FROM fairq.task)') eq 't';
		usleep(1_000);
	}
	$longest = time() - $since if time() - $since > $longest;
	$rounds++;
	usleep(int(rand(20_000)));
}
note("$rounds rounds, the longest took $longest s");
cmp_ok($longest, '<', 10, 'no task waits while workers sleep');

# the other waiters continue to sleep, and a session that ends passes its
# wake-up on to another one
$control->query_safe(q{
	SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pgbench'
	ORDER BY random() LIMIT 3});
$control->query_safe(q{SELECT fairq.enqueue(q, 'g') FROM unnest('{a,b,c}'::text[]) q});
my $since = time();
usleep(10_000)
  until $control->query_safe('SELECT NOT EXISTS (SELECT FROM fairq.task)') eq 't'
  or time() - $since > 20;
cmp_ok(time() - $since, '<', 10, 'nor after the end of some workers');

$_->kill_kill foreach @benches;
is( $control->query_safe(
		q{SELECT count(*) FROM unnest('{a,b,c}'::text[]) q, fairq.check_queue(q)}),
	'0', 'the queues are sound');
$control->quit;
$node->stop('fast');
done_testing();
