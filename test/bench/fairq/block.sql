-- One task of the group runs, and its limit is 1.
SELECT fairq.set_group('bench', 'blocked', concurrency => 1);
SELECT fairq.enqueue('bench', 'blocked');
SELECT id FROM fairq.pop('bench');
