# A transaction that has changed tasks cannot be prepared: nobody would say what
# it owes.  The others can, and what they leave behind is sound.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib $FindBin::Bin;
use Load;
use Test::More;

my $node = new_server('prepare', max_prepared_transactions => 10);
$node->safe_psql(
	'postgres', q{
	SELECT fairq.create_queue('q'), fairq.create_queue('empty');
	SELECT fairq.enqueue_batch('q', ARRAY['a', 'b', 'a'], ARRAY['1', '1', '2']::jsonb[]);
	SELECT fairq.pop('q');
});
my $tasks = q{SELECT string_agg(group_key || payload || left(status, 1), ' ' ORDER BY id) FROM fairq.tasks};

foreach my $call (
	q{SELECT fairq.enqueue('q', 'a')},
	q{SELECT fairq.pop('q')},
	q{SELECT fairq.take('q')},
	q{SELECT fairq.complete(1)},
	q{SELECT fairq.release(1)},
	q{SELECT fairq.purge('q')},
	q{SAVEPOINT s; SELECT fairq.pop('q'); RELEASE s},
	q{UPDATE fairq.task SET payload = '3'},
	q{SELECT fairq.create_queue('r')},
	q{SELECT fairq.drop_queue('q', true)},
	q{SELECT fairq.set_group('q', 'new')},
	q{SELECT fairq.pause('q')})
{
	my ($status, $stdout, $stderr) = $node->psql('postgres',
		"\\set VERBOSITY sqlstate\nBEGIN; $call; PREPARE TRANSACTION 'p'");
	like($stderr, qr/ERROR:  0A000/, "not after: $call");
	is($node->safe_psql('postgres', $tasks),
		'a1r b1q a2q', 'and it is rolled back');
	# for those that could be prepared after all
	$node->psql('postgres', q{ROLLBACK PREPARED 'p'});
}

# These wrote nothing.
foreach my $call (
	q{SELECT fairq.pop('empty')},
	q{SELECT fairq.complete(1000)},
	q{SELECT * FROM fairq.tasks})
{
	$node->safe_psql('postgres', "BEGIN; $call; PREPARE TRANSACTION 'p'");
	$node->safe_psql('postgres', q{COMMIT PREPARED 'p'});
	pass("prepared: $call");
}

is( $node->safe_psql(
		'postgres',
		q{SELECT string_agg(group_key || payload, ' ' ORDER BY id) FROM fairq.pop('q', 100)}
	),
	'b1 a2',
	'all that was ready is served');
is($node->safe_psql('postgres', q{SELECT fairq.check_queue('q')}),
	'', 'the queue is sound');

# Nothing of a group that was made in vain stays with the session.
$node->psql('postgres',
	q{BEGIN; SELECT fairq.set_group('q', 'new'); PREPARE TRANSACTION 'p';
	  ROLLBACK PREPARED 'p'; ROLLBACK; SELECT fairq.enqueue('q', 'new')},
	on_error_stop => 0);
$node->safe_psql('postgres', q{SELECT fairq.enqueue('q', 'other')});
is( $node->safe_psql(
		'postgres',
		q{SELECT string_agg(group_key, ' ' ORDER BY id) FROM fairq.pop('q', 100)}),
	'new other',
	'tasks are of the groups that they were enqueued for');

done_testing();
