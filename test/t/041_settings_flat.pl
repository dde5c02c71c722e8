# After a change of one group's settings, each session reads only that group,
# however many groups have settings. The test counts rows read from the index of
# fairq.group_setting, and measures no time.
#
# Fails if all settings are read again after each change (find_stale() in
# queue.c), including changes by this session and changes of the queue's
# settings. Fails if changes are lost once shared memory has overwritten older
# ones (changes_since() in queue.c). Fails if a rolled back change is not
# published (publish_versions() in transaction.c). Fails if a tenant without a
# slot is not shut (fairq_lane_put_aside() in lane_turns.c). Fails if a paused
# tenant is visited for lapsed tasks (is_active() in lane_internal.h). Fails if
# a paused tenant's users are visited in a full queue (next_lapsed() in
# lane_turns.c), or do not return afterwards (fairq_seats_unpark_lapsed() in
# seats.c).
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib $FindBin::Bin;
use Load;
use Test::More;

my $groups = 3000;
my $node = new_server('settings_flat');

$node->safe_psql('postgres', qq{
	SELECT fairq.create_queue('q');
	SELECT fairq.enqueue_batch('q', array_agg('g' || i % $groups), array_agg('1'::jsonb))
	FROM generate_series(1, 3 * $groups) i;
	INSERT INTO fairq.group_setting (queue_id, group_no, weight, paused)
	SELECT queue_id, group_no, 2, false FROM fairq.group_number});

# The session stays in a transaction, because the statistics of one transaction
# add up.
my $session = $node->background_psql('postgres');
$session->query_safe('BEGIN');

sub rows_read
{
	return $session->query_safe(
		q{SELECT pg_stat_get_xact_tuples_returned('fairq.group_setting_pkey'::regclass)});
}

# The number of settings that the session reads for a statement.
sub reads
{
	my ($sql) = @_;
	my $before = rows_read();
	$session->query_safe($sql);
	return rows_read() - $before;
}

my $pop = q{SELECT fairq.pop('q')};

cmp_ok(reads($pop), '>=', $groups, 'the first call reads the settings of all groups');
is(reads($pop), 0, 'the next call reads no settings');

sub others_set
{
	my ($n, $weight) = @_;
	# a separate transaction for each group
	$node->safe_psql('postgres', join ';',
		map { "SELECT fairq.set_group('q', 'g$_', weight => $weight)" } 1 .. $n);
}

others_set(1, 5);
my $one = reads($pop);
cmp_ok($one, '>', 0, 'a group that another session has changed is read');
cmp_ok($one, '<=', 20, '... and no other');
is(reads($pop), 0, '... once');
others_set(100, 6);
cmp_ok(reads($pop), '<=', 20 * 100, 'after 100 changes at most 100 groups are read');
$node->safe_psql('postgres',
	q{SELECT fairq.set_group('q', 'g7', weight => i % 9 + 2) FROM generate_series(1, 500) i});
cmp_ok(reads($pop), '<=', 20, 'a group that was changed often is read once');

# If a tenant has no slot, a call visits one of its users.
$node->safe_psql('postgres', q{
	SELECT fairq.create_queue('t', separator => '/'),
		fairq.set_group('t', 'acme', concurrency => 1);
	SELECT count(fairq.enqueue('t', 'acme/' || i)) FROM generate_series(1, 500) i;
	SELECT fairq.pop('t')});
my $debug;
$node->psql('postgres',
	q{SET client_min_messages = debug2; SELECT fairq.pop('t', 100)},
	stderr => \$debug);
like($debug, qr/passed over [12] groups/,
	'at a tenant without a slot, a call visits one user');
# If a tenant is paused, a call also visits one of its users, even if they have
# lapsed tasks.
$node->safe_psql('postgres', q{SELECT fairq.set_group('t', 'acme', concurrency => 0);
	SELECT count(*) FROM fairq.pop('t', 100, lease => '1 ms'); SELECT pg_sleep(0.1)});
foreach (
	[ q{pause('t', 'acme')}, q{resume('t', 'acme')} ],
	[ q{hold('t', 'acme', 'tomorrow')}, q{hold('t', 'acme')} ],
	[ q{set_group('t', 'acme', rate => 1)}, q{set_group('t', 'acme', rate => 0)} ])
{
	my ($begin, $end) = @$_;
	$node->psql('postgres',
		"SET client_min_messages = debug2; SELECT fairq.$begin; SELECT fairq.pop('t', 100)",
		stderr => \$debug);
	like($debug, qr/passed over [12] groups/, "... and after $begin");
	$node->safe_psql('postgres', "SELECT fairq.$end");
}

# In a full queue, which serves lapsed tasks only, no call visits a paused
# tenant's users again.
foreach (
	[ q{pause('f', 'acme')}, q{resume('f', 'acme')} ],
	[ q{hold('f', 'acme', 'tomorrow')}, q{hold('f', 'acme')} ])
{
	my ($begin, $end) = @$_;
	$node->safe_psql('postgres', qq{
		SELECT fairq.create_queue('f', separator => '/', max_running => 500, max_attempts => 9);
		SELECT count(fairq.enqueue('f', 'acme/' || i)) FROM generate_series(1, 500) i;
		SELECT count(*) FROM fairq.pop('f', 500, lease => '1 ms');
		SELECT pg_sleep(0.1), fairq.$begin});
	is($node->safe_psql('postgres', q{SELECT count(*) FROM fairq.pop('f', 500);
		SELECT parked FROM fairq.lanes WHERE queue = 'f' AND priority = 0;
		SELECT count(*) FROM fairq.check_queue('f')}),
		"0\n500\n0", "users of a tenant are parked after $begin");
	is($node->safe_psql('postgres', qq{SELECT count(fairq.$end);
		SELECT count(*) FROM fairq.pop('f', 500); SELECT count(*) FROM fairq.check_queue('f');
		SELECT fairq.drop_queue('f', true)}),
		"1\n500\n0\nt", '... and return with it');
}

# the session itself changes settings
my $n = 300;
cmp_ok(reads(qq{SELECT count(fairq.set_group('q', 'g' || i, weight => 7)) FROM generate_series(1, $n) i}),
	'<=', 20 * $n, "a statement that changes $n groups reads at most 20 rows for each");
cmp_ok(reads($pop), '<=', 20, '... and the next call reads the last one');
cmp_ok(reads(qq{SELECT count(fairq.$_) FROM generate_series(1, $n) i}), '<=', 20 * $n, "$_, too")
  foreach q{pause('q', 'g' || i)}, q{resume('q', 'g' || i)},
  q{hold('q', 'g' || i, clock_timestamp() + interval '1 h')};
cmp_ok( reads(qq{DO \$\$ BEGIN FOR i IN 1 .. $n LOOP
		BEGIN PERFORM fairq.set_group('q', 'g' || i, weight => 9); RAISE 'no';
		EXCEPTION WHEN OTHERS THEN NULL; END; PERFORM fairq.pop('q'); END LOOP; END \$\$}),
	'<=', 40 * $n, "$n subtransactions that roll back read at most 40 rows each");

# the queue's own settings
$session->query_safe('ROLLBACK; BEGIN');
reads($pop);
$node->safe_psql('postgres', $_), is(reads($pop), 0, "$_: no group is read")
  foreach q{SELECT fairq.alter_queue('q', concurrency => 900)}, q{SELECT fairq.pause('q')},
  q{SELECT fairq.resume('q')}, q{CREATE ROLE someone}, q{SELECT fairq.grant_queue('q', 'someone', 'work')};
is(reads(q{SELECT fairq.alter_queue('q', concurrency => 800)}), 0, 'own change of the queue: no group is read');
is(reads($pop), 0, '... after it');

# more changes than shared memory keeps
$session->query_safe('ROLLBACK; BEGIN');
reads($pop);
$node->safe_psql('postgres',
	qq{SELECT fairq.set_group('q', 'g' || i, weight => 4) FROM generate_series(1, 1500) i});
my $all = reads($pop);
cmp_ok($all, '>=', $groups, 'after very many changes all settings are read');
cmp_ok($all, '<=', 3 * $groups, '... twice');
is(reads($pop), 0, '... and once only');
$session->query_safe('ROLLBACK');

# After changes of all kinds, the session serves the same groups as a session
# without cached settings.
my $ready = q{SELECT md5(string_agg(g, ',')) FROM (SELECT DISTINCT group_key g
	FROM fairq.peek('q', 20000) ORDER BY 1) _};
sub is_ready
{
	my ($group) = @_;
	return $session->query_safe(qq{SELECT count(*) > 0 FROM fairq.peek('q', 20000) WHERE group_key = '$group'});
}
sub same
{
	my ($what) = @_;
	is($session->query_safe($ready), $node->safe_psql('postgres', $ready), "served tasks after: $what");
}

$session->query_safe(q{SELECT fairq.resume('q')});
foreach (
	q{SELECT fairq.pause('q', 'g1')}, q{SELECT fairq.resume('q', 'g1')},
	q{BEGIN; SELECT fairq.pause('q', 'g2'); ROLLBACK},
	q{BEGIN; SAVEPOINT s; SELECT fairq.pause('q', 'g2'); ROLLBACK TO s; SELECT fairq.pause('q', 'g3'); COMMIT},
	q{BEGIN; SAVEPOINT s; SELECT fairq.pause('q', 'g4'); RELEASE s; ROLLBACK},
	q{BEGIN; SELECT fairq.pause('q'), fairq.pause('q', 'g5'), fairq.resume('q'); COMMIT},
	q{UPDATE fairq.group_setting SET paused = true WHERE group_no % 3 = 0},
	q{DELETE FROM fairq.group_setting WHERE group_no % 6 = 0},
	q{UPDATE fairq.group_setting SET group_no = group_no + 1 WHERE group_no % 6 = 1 AND NOT EXISTS
	  (SELECT FROM fairq.group_setting s WHERE s.group_no = group_setting.group_no + 1)},
	q{TRUNCATE fairq.group_setting},
	q{SELECT fairq.hold('q', 'g6', clock_timestamp() + interval '1 hour')},
	q{SELECT fairq.set_group('q', 'g7', concurrency => 1)},
	q{SELECT fairq.alter_queue('q', concurrency => 1)},
	q{SELECT fairq.alter_queue('q', concurrency => 0)})
{
	# first another session makes the change, then this one
	$node->safe_psql('postgres', $_);
	same($_);
	$session->query_safe($_);
	same("own $_");
}
# the session's own change is not committed
$session->query_safe(q{BEGIN; SELECT fairq.hold('q', 'g6', NULL); SELECT fairq.pause('q', 'g8')});
is(is_ready('g6'), 't', 'own changes are in effect at once');
is(is_ready('g8'), 'f', '... each of them');
$session->query_safe(q{SAVEPOINT s; SELECT fairq.resume('q', 'g8')});
is(is_ready('g8'), 't', '... in a subtransaction, too');
$session->query_safe(q{ROLLBACK TO s});
is(is_ready('g8'), 'f', '... until that is rolled back');
$session->query_safe(q{ROLLBACK});
same('a rollback');
$session->quit;
$node->stop;
done_testing();
