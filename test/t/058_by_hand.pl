# SQL changes settings while shared memory does not know the queue, as after a
# restart. Other sessions make the queue known before the change commits, and
# park a group according to the old settings.
#
# Fails if a change of settings invalidates nothing when shared memory does not
# know the queue (setting_changed() in fairq.c).
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib $FindBin::Bin;
use Load;
use Test::More;

my $node = new_server('by_hand');

foreach my $change (
	'DELETE FROM fairq.group_setting',
	'TRUNCATE fairq.group_setting',
	'UPDATE fairq.group_setting SET paused = false')
{
	$node->safe_psql(
		'postgres', q{SELECT fairq.create_queue('q');
		SELECT fairq.enqueue('q', 'bob'), fairq.pause('q', 'bob')});
	$node->restart;
	my $by_hand = $node->background_psql('postgres');
	$by_hand->query_safe("BEGIN; $change");
	is($node->safe_psql('postgres', q{SELECT count(*) FROM fairq.pop('q')}),
		'0', "$change: paused before the commit") if $change !~ /TRUNCATE/;
	$by_hand->query_safe('COMMIT');
	$by_hand->quit;
	is( $node->safe_psql(
			'postgres',
			q{SELECT count(*) FROM fairq.pop('q'); SELECT * FROM fairq.check_queue('q')}
		),
		'1', "$change: and served after it");
	$node->safe_psql('postgres', q{SELECT fairq.drop_queue('q', true)});
}

# Roles without a privilege on a queue do not learn its name, also not from
# messages.
$node->safe_psql('postgres',
	q{CREATE ROLE stranger; SELECT fairq.create_queue('secret')});
my ($out, $err);
$node->psql(
	'postgres', q{SET ROLE stranger; SET client_min_messages = debug2;
	SELECT fairq_internal.has_queue_privilege(n, 'any') FROM generate_series(1, 20) n; SELECT * FROM fairq.queues},
	stdout => \$out,
	stderr => \$err);
unlike($out . $err, qr/secret/, 'a role without privileges sees no name');

$node->stop;
done_testing();
