"""Publishing in a transaction of the caller."""

import contextvars

current_publishing = contextvars.ContextVar("fairq_publishing", default=None)


class publishing:
    """Tasks that are published in this context are enqueued by the connection.

    So they are there when it commits, and never were if it rolls back.  It is a
    connection, or another thing that has cursors, of a driver with %s for parameters.
    Without one they are committed at once.  "ids" are fairq's ids of them.
    """

    def __init__(self, connection=None):
        self.connection = connection
        self.ids = []

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
