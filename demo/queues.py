"""The two queues of the comparison, with the same four methods.

Both insert the results into demo.result, in the transaction that finishes the
tasks.  That table has no unique constraint, so that a duplicate run is
visible.
"""

from collections import namedtuple

from psycopg.types.json import Jsonb

# attempt is the number that complete needs; turn is the address of the task's
# turn.
Task = namedtuple("Task", "id group path attempt turn")
Result = namedtuple("Result", "worker task started finished words sha256")

# Tasks enqueued by one call.
CHUNK = 1000


class Queue:
    """The part that both queues share: the results, and enqueueing in
    chunks."""

    def __init__(self, connection):
        self.connection = connection

    def create(self):
        with self.connection.transaction():
            self.connection.execute("SET LOCAL client_min_messages = warning")
            self.connection.execute("CREATE SCHEMA IF NOT EXISTS demo")
            self.connection.execute("""
                CREATE TABLE IF NOT EXISTS demo.result (
                    queue text NOT NULL,
                    task_id bigint NOT NULL,
                    turn bigint,
                    group_key text NOT NULL,
                    worker int NOT NULL,
                    path text NOT NULL,
                    words bigint,
                    sha256 text,
                    started double precision NOT NULL,
                    finished double precision NOT NULL)""")
            self.create_queue()

    def enqueue(self, group, paths):
        ids = []
        for first in range(0, len(paths), CHUNK):
            ids += self.enqueue_chunk(group, paths[first:first + CHUNK])
        return ids

    def keep(self, results):
        with self.connection.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO demo.result VALUES"
                " (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
                [(self.name, r.task.id, r.task.turn, r.task.group, r.worker,
                  r.task.path, r.words, r.sha256, r.started, r.finished)
                 for r in results])

    def results(self):
        return self.connection.execute(
            "SELECT task_id, turn, group_key, worker, path, sha256, started,"
            " finished FROM demo.result WHERE queue = %s ORDER BY started",
            [self.name]).fetchall()


class Fairq(Queue):
    """fairq: pop takes a lease, which complete_batch ends."""

    name = "fairq"

    def create_queue(self):
        self.connection.execute("SELECT fairq.create_queue('documents')")

    def enqueue_chunk(self, group, paths):
        rows = self.connection.execute(
            "SELECT fairq.enqueue_batch('documents', %s, %s)",
            [[group] * len(paths), [Jsonb({"path": path}) for path in paths]])
        return [id for id, in rows]

    def work(self, most, worker, do):
        """Pops and runs at most `most` tasks.  Returns their number."""
        rows = self.connection.execute(
            "SELECT id, group_key, payload ->> 'path', attempt, addr"
            " FROM fairq.pop('documents', %s, worker => %s)",
            [most, "worker %d" % worker])
        tasks = [Task(*row) for row in rows]
        if not tasks:
            return 0
        results = [do(task) for task in tasks]
        with self.connection.transaction():
            self.keep(results)
            lost, = self.connection.execute(
                "SELECT fairq.complete_batch(%s::bigint[], %s::int[])",
                [[t.id for t in tasks], [t.attempt for t in tasks]]).fetchone()
            if lost:
                raise RuntimeError("tasks were lost: %s" % lost)
        return len(tasks)

    def left(self):
        return self.connection.execute(
            "SELECT count(*) FROM fairq.tasks"
            " WHERE queue = 'documents'").fetchone()[0]


class Fifo(Queue):
    """The textbook's queue: a table in which workers lock the oldest rows FOR
    UPDATE SKIP LOCKED."""

    name = "FIFO"

    def create_queue(self):
        self.connection.execute("""
            CREATE TABLE demo.fifo (
                id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
                group_key text NOT NULL,
                payload jsonb NOT NULL)""")

    def enqueue_chunk(self, group, paths):
        rows = self.connection.execute(
            "INSERT INTO demo.fifo (group_key, payload)"
            " SELECT %s, payload FROM unnest(%s) AS payload RETURNING id",
            [group, [Jsonb({"path": path}) for path in paths]])
        return [id for id, in rows]

    def work(self, most, worker, do):
        """Locks and runs at most `most` tasks.  Returns their number."""
        with self.connection.transaction():
            rows = self.connection.execute(
                "SELECT id, group_key, payload ->> 'path', NULL, NULL"
                " FROM demo.fifo ORDER BY id LIMIT %s"
                " FOR UPDATE SKIP LOCKED", [most])
            tasks = [Task(*row) for row in rows]
            if tasks:
                self.keep([do(task) for task in tasks])
                self.connection.execute(
                    "DELETE FROM demo.fifo WHERE id = ANY (%s)",
                    [[t.id for t in tasks]])
        return len(tasks)

    def left(self):
        return self.connection.execute(
            "SELECT count(*) FROM demo.fifo").fetchone()[0]
