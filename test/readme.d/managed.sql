-- docs/managed.md uses a queue that exists.
SELECT fairq.create_queue('invoices');
