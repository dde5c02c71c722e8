"""Publishes tasks in the caller's transaction."""

import contextvars

current_publishing = contextvars.ContextVar("fairq_publishing", default=None)


class publishing:
    """In this context, the connection enqueues the tasks that Celery publishes.

    The tasks exist once the connection's transaction commits.  After a rollback
    they do not exist.
    The connection must have cursors whose driver uses %s for parameters.  Without a
    connection, each task is committed at once.  "ids" are the tasks' ids in fairq.
    """

    batch = None        # the batch to which the tasks are added

    def __init__(self, connection=None):
        self.connection = connection
        self.ids = []

    def function(self, named):
        """The SQL function that publishes a task with these named arguments."""
        return "fairq.enqueue"

    def named(self):
        """Additional named arguments of that function."""
        return {} if self.batch is None else {"batch": self.batch}

    def __enter__(self):
        self.token = current_publishing.set(self)
        return self

    def __exit__(self, *exc_info):
        current_publishing.reset(self.token)

    def execute(self, sql, values):
        cursor = self.connection.cursor()
        try:
            cursor.execute(sql, values)
            return cursor.fetchone()[0]
        finally:
            cursor.close()


class batch(publishing):
    """Tasks that are published in this context form a batch.  Once all of them have ended,
    the signature "then" runs.  The connection also enqueues that task.

    With on_success, "then" fails as soon as a task of the batch ends without success.  The
    options are those of Celery's apply_async, for "then".  "id" is the id of the batch.
    """

    def __init__(self, connection, then, on_success=False, **options):
        super().__init__(connection)
        self.then, self.on_success, self.options = then, on_success, options

    def __enter__(self):
        outer = current_publishing.get()
        with creating(self.connection, self.on_success) as created:
            # the batch that contains the task of the new batch
            created.batch = outer and outer.batch
            self.then.apply_async(**self.options)
        self.id = self.batch = created.ids[0]
        return super().__enter__()

    def __exit__(self, kind, *exc_info):
        super().__exit__(kind, *exc_info)
        if kind is None:
            self.execute("SELECT fairq.close_batch(%s)", [self.id])


class creating(publishing):
    """In this context, the published task becomes the one that waits for a new batch."""

    def __init__(self, connection, on_success):
        super().__init__(connection)
        self.on_success = on_success

    def function(self, named):
        unfit = set(named) - {"batch", "on_success", "max_attempts"}
        if unfit:
            raise ValueError(f"the task that waits for a batch cannot have {', '.join(sorted(unfit))}")
        return "fairq.create_batch"

    def named(self):
        return {**super().named(), "on_success": self.on_success}


no_publishing = publishing()
