# What was running before a restart is counted by pops, each of which looks at a
# part of the table (census.c).  Meanwhile, and whatever happens in between, no
# limit is exceeded; and nobody who was passed over has to wait for others.
#
# Fails when what our own transaction has changed is not seen (is_seen() in
# store_pages.c), when a table that was rewritten is gone on with (goes_on()), when a
# queue that is being dropped is not passed over but taken as counted (skip_queue()),
# when no line is counted before a census has begun (fairq_counter_was_long()), and
# when a pop does not go on to the end (is_to_count() in serve.c).
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib $FindBin::Bin;
use Load;
use Test::More;

my $node = new_server('census', autovacuum => 'off');

sub sql
{
	my ($sql) = @_;
	return $node->safe_psql('postgres', $sql);
}

# Does the call come to the end of the census?
sub goes_to_the_end
{
	my ($sql) = @_;
	my ($out, $err);

	$node->psql(
		'postgres', "SET client_min_messages = debug1; $sql",
		stdout => \$out,
		stderr => \$err);
	return $err =~ /the census has found/ ? 1 : 0;
}

sub enqueue
{
	my ($queue, $groups, $n) = @_;
	return "SELECT count(*) FROM fairq.enqueue_batch('$queue',"
	  . " ARRAY(SELECT '$groups' || i % 20 FROM generate_series(1, $n) i),"
	  . " array_fill('1'::jsonb, ARRAY[$n]));";
}

# A step, or a few: there is enough to be served.
sub pop_others
{
	my ($n) = @_;
	return "SELECT count(*) FROM fairq.pop('others', 1);" x $n;
}

my $pop = "SELECT count(*) FROM fairq.pop('limited', 100);";
my $running =
  "SELECT count(*) FROM fairq.tasks WHERE queue = 'limited' AND status = 'running' AND group_key = 'long';";

# "long" has more tasks than are counted beside the census, and 3 of them run,
# far behind in the table.
sql("SELECT fairq.create_queue('limited', concurrency => 3, lease => '1 hour');"
	  . "SELECT fairq.create_queue('others', lease => '1 hour');"
	  . "SELECT fairq.create_queue('expired', lease => '1 microsecond');"
	  . "SELECT fairq.create_queue('full', max_running => 2, lease => '1 hour');"
	  . enqueue('others', 'o', 40000)
	  . enqueue('expired', 'e', 3000)
	  . "SELECT count(*) FROM fairq.pop('expired', 30);"
	  . "SELECT count(*) FROM fairq.enqueue_batch('limited', array_fill('long'::text, ARRAY[5000]), array_fill('1'::jsonb, ARRAY[5000]));"
	  . "SELECT fairq.enqueue('limited', 'short');"
	  . enqueue('full', 'f', 3000)
	  . "SELECT count(*) FROM fairq.pop('full', 10);"
	  . $pop);
is(sql($running), '3', 'up to the limit');

crash($node);
is(goes_to_the_end(pop_others(3)), 0, 'who is served takes a step');
is(sql($pop), '0', 'the limit holds');
is(goes_to_the_end($pop), 0, 'and nothing is left to be counted');
is(sql("SELECT count(*) FROM fairq.pop('full', 10)"),
	'0', 'so does that of a queue');
is( sql("SELECT count(*) FILTER (WHERE attempt = 2) FROM fairq.pop('expired', 40)"
	),
	'30',
	'leases of before are known');

# A slot that was left is given away by the pop that counts, and by the one who
# waits for it.
sub complete_one
{
	return
	  "SELECT fairq.complete(min(id)) FROM fairq.tasks WHERE queue = 'limited' AND status = 'running' AND group_key = 'long';";
}
sql(complete_one());
crash($node);
is(sql($pop), '1', 'whose place is free is served by the pop that counts');
sql(complete_one());
crash($node);
is(sql("CALL fairq.wait('limited', '10 seconds')"),
	't', 'who waits counts, too');
is(goes_to_the_end($pop), 0, 'to the end');
is(sql($running), '3', 'up to the limit again');

# A short line is counted at once, also by the first call of all.
sql("SELECT fairq.create_queue('short'), fairq.set_group('short', 'x', concurrency => 1);"
	  . "SELECT fairq.enqueue('short', g) FROM unnest('{x,y}'::text[]) g;");
crash($node);
is(sql("SELECT group_key FROM fairq.pop('short')"),
	'x', 'who has few rows is not passed over');

# Two sessions, each with its steps; one of them is cancelled in one.
crash($node);
my @sessions = map { $node->background_psql('postgres') } 1 .. 2;
$_->query_safe(pop_others(2)) foreach @sessions, @sessions;
$node->psql('postgres',
	"SET statement_timeout = '1ms'; $pop" . pop_others(20));
is(sql($pop), '0', 'shared steps: the limit holds');
is(sql($running), '3', 'shared steps: and is not exceeded');

# What our own transaction has changed is running, for the others.
crash($node);
$sessions[0] = $node->background_psql('postgres');
$sessions[0]->query_safe('BEGIN;' . complete_one());
is($sessions[0]->query_safe($pop), '0', 'own: there is no place yet');
is(sql($pop), '0', 'own: nor for others');
$sessions[0]->query_safe('ROLLBACK');
is(sql($pop), '0', 'own: nor after a rollback');
$sessions[0]->query_safe('BEGIN;' . complete_one());
$sessions[0]->query_safe('COMMIT');
is(sql($pop), '1', 'own: but after a commit');

# The table is rewritten in the middle: what is behind comes to the front.
crash($node);
sql(pop_others(3));
sql('CLUSTER fairq.task USING task_by_group');
is(sql($pop), '0', 'rewritten: the limit holds');
is(sql($running), '3', 'rewritten: and is not exceeded');

# The queue is dropped meanwhile, and then it is not.
crash($node);
$sessions[0] = $node->background_psql('postgres');
$sessions[0]->query_safe("BEGIN; SELECT fairq.drop_queue('limited', force => true)");
is(goes_to_the_end("SELECT count(*) FROM fairq.pop('expired', 1000000)"),
	1, 'dropped: nobody waits for it');
$sessions[0]->query_safe('ROLLBACK');
is(sql($pop), '0', 'dropped and back: the limit holds');
is(sql($running), '3', 'dropped and back: and is not exceeded');

# Rows are changed by SQL again and again: there is a way without a census.
my $changing = $node->background_psql('postgres');
$changing->query_until(
	qr/started/, q{\echo started
	DO $$BEGIN FOR i IN 1 .. 3000 LOOP
		UPDATE fairq.task SET worker = worker WHERE id = -1; COMMIT;
	END LOOP; END$$;
});
is(sql($pop), '0', 'changed all the time: the limit holds')
  foreach 1 .. 3;
$changing->quit;
sql(complete_one());
is(sql($pop), '1', 'changed all the time: then a place is given away');
is(sql($running), '3', 'changed all the time: up to the limit');

is(sql("SELECT fairq.check_queue(q) FROM unnest('{limited,others,expired,full}'::text[]) q"
	),
	'',
	'the queues are sound');

done_testing();
