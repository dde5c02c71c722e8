# During work of all kinds the server is shut down in immediate mode, and then
# its postmaster is killed. After the recovery all commits that clients have
# seen are there, and the numbers of tasks add up.
#
# Fails if the calls commit asynchronously (fairq_written() in transaction.c).
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib $FindBin::Bin;
use Life;
use Load;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

# with little memory and many checkpoints, pages are written to disk all the
# time
my $node = new_server(
	'recovery',
	fsync => 'on',
	full_page_writes => 'on',
	shared_buffers => '1MB',
	bgwriter_delay => '10ms',
	restart_after_crash => 'off');
prepare_life($node);

foreach my $how ('kill', 'immediate', 'kill')
{
	my $life = start_life($node, 5);

	usleep(700_000 + rand(500_000));
	$node->safe_psql('postgres', 'CHECKPOINT');
	usleep(rand(500_000));
	if ($how eq 'kill')
	{
		$node->kill9;
		end_life($life);
		# the backends have to notice that their postmaster is gone before
		# another one can start
		my $up = 0;
		foreach (1 .. 300)
		{
			last
			  if $up = system_log('pg_ctl', '-w', '-D', $node->data_dir, '-l',
				$node->logfile, 'start') == 0;
			usleep(100_000);
		}
		ok($up, "$how: the server starts again");
		$node->_update_pid(1);
	}
	else
	{
		$node->stop('immediate');
		end_life($life);
		$node->start;
	}
	is_kept($node, $life, $how);
}
finish_life($node, 'recovery');
unlike(slurp_file($node->logfile), qr/PANIC|TRAP|terminated by signal (6|7|8|11)\b/,
	'nothing has crashed by itself');

done_testing();
