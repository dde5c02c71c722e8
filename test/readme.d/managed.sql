-- docs/managed.md speaks of a queue that there is.
SELECT fairq.create_queue('invoices');
