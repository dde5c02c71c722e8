"""Flatness: the cost of a call must not depend on the contents of the queue.

Each measurement first draws a line for every contender, as the contents grow.
Then it checks fairq's promise.  The measurement makes the same calls
alternately in two databases: one queue has small contents, and the other one
has large contents.  A round pops 100 tasks, completes them, and adds the same
number, ten of them by single enqueues.  So the backlog keeps its size.  No
call waits until its commit is flushed, since such waits would hide
differences.
"""

import random
import statistics
import time

from contender import key_of
from server import Cancelled, Session, connect, create_database, \
    drop_database, fail, one_core, vacuum

N = 100                 # tasks per pop
SINGLES = 10            # tasks per round that are enqueued one by one
WARMUP = 20             # rounds
# A contender's line ends at a statement, or at the preparation of a point, that
# takes longer than this.
STATEMENT_SECONDS = 5
POINT_SECONDS = 5
POINT_ROUNDS = 60
CHURN_SECONDS = 60
FILL_SECONDS = 300

# fairq's promise: the greatest ratio of the times.
SAME = 1.15
SAME_BLOCKED = 1.1


class Place:
    """A contender in a database of its own."""

    def __init__(self, database, contender, groups, blocked=None):
        self.database = database
        self.contender = contender
        # fairq's line has no time limit.
        self.limited = contender.name != "fairq"
        self.groups = groups
        create_database(database)
        with connect(database) as connection:
            contender.set_up(connection, groups)
            if blocked is not None:
                contender.run(connection, "block")
                contender.fill(connection, blocked, "'blocked'")
        suffix = ("_unblocked" if blocked is not None
                  and (contender.has("pop_unblocked")
                       or contender.has("take_unblocked")) else "")
        self.open(suffix)

    def open(self, suffix=""):
        """Opens the session that is timed, and prepares its statements."""
        contender = self.contender
        self.session = Session(
            self.database, limit=STATEMENT_SECONDS if self.limited else None)
        if contender.has("pop"):
            self.pop_sql = contender.sql("pop" + suffix, n=N)
            self.complete_sql = contender.sql("complete")
        else:
            self.pop_sql = contender.sql("take" + suffix, n=N)
            self.complete_sql = None
        self.batch_sql = contender.sql("enqueue_batch", n=N - SINGLES,
                                       key=key_of(self.groups))
        self.enqueue_sql = contender.sql("enqueue", group="")

    def fill(self, tasks):
        with connect(self.database) as connection:
            connection.execute("SET synchronous_commit = off")
            if not self.contender.fill(
                    connection, tasks, key_of(self.groups),
                    until=self.limited and time.monotonic() + FILL_SECONDS):
                raise Cancelled("fill > %d s" % FILL_SECONDS)
            vacuum(connection)

    def turn(self):
        """The time of a pop and its completion, in two transactions."""
        took, rows = self.session.run(self.pop_sql)
        if self.complete_sql is None:
            popped = len(rows)
        else:
            popped = int(rows[0]["popped"])
            took += self.session.run(self.complete_sql, **rows[0])[0]
        if popped != N:
            fail("%s popped %d tasks instead of %d"
                 % (self.contender.name, popped, N))
        return took

    def enqueue(self):
        return self.session.run(self.enqueue_sql,
                                group=random.randint(1, self.groups))[0]

    def round(self):
        """The times of a turn, and of an enqueue."""
        turn = self.turn()
        self.session.run(self.batch_sql)
        return turn, statistics.median(self.enqueue() for _ in range(SINGLES))

    def buffers(self):
        """The numbers of buffers that a turn and an enqueue read."""
        connection = self.session.connection
        counts = []
        for _ in range(5):
            # EXPLAIN discards the rows that a pop returns, unless they go into
            # a table.  The buffers of a temporary table are not shared buffers.
            turn = explain(connection,
                           "CREATE TEMP TABLE popped AS " + self.pop_sql)
            _, rows = self.session.run("SELECT * FROM popped")
            connection.execute("DROP TABLE popped")
            turn += explain(connection, self.complete_sql, **rows[0])
            counts.append((turn, explain(
                connection, self.enqueue_sql,
                group=random.randint(1, self.groups))))
            self.session.run(self.batch_sql)
            for _ in range(SINGLES - 1):
                self.enqueue()
        return [statistics.median(c[i] for c in counts) for i in range(2)]

    def churn(self, tasks, chunk=5000):
        """Adds and completes this number of tasks."""
        fill = self.contender.sql("enqueue_batch", n=chunk,
                                  key=key_of(self.groups))
        script = "pop" if self.contender.has("pop") else "take"
        pop = self.contender.sql(script, n=chunk)
        start = time.monotonic()
        for _ in range(tasks // chunk):
            if self.limited and time.monotonic() - start > CHURN_SECONDS:
                raise Cancelled("> %d s to there" % CHURN_SECONDS)
            self.session.run(fill)
            rows = self.session.run(pop)[1]
            if self.complete_sql:
                self.session.run(self.complete_sql, **rows[0])

    def drop(self):
        self.session.close()
        drop_database(self.database)


def explain(connection, sql, **variables):
    """The number of buffers that a statement reads."""
    for name, value in variables.items():
        sql = sql.replace(":" + name, "'%s'" % value)
    plan = connection.execute("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "
                              + sql).fetchone()[0][0]["Plan"]
    return plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]


# -------------------------------------------------------------------- lines

def point(bench, plot, place, x, prepare):
    """Prepares and measures a point of a contender's line.

    Returns False if the point or the preparation was too slow.
    """
    times = []
    try:
        prepare()
        start = time.monotonic()
        with one_core(place.session.connection):
            for i in range(WARMUP + POINT_ROUNDS):
                took = place.round()[0]
                if i >= WARMUP or took > 1000:
                    times.append(took)
                if (time.monotonic() - start > POINT_SECONDS
                        and len(times) >= 3):
                    break
    except Cancelled as why:
        bench.results.cut(plot, place.contender.name, x, str(why))
        return False
    bench.results.point(plot, place.contender.name, x,
                        statistics.median(times))
    return True


def drawn(bench):
    """The contenders that get a line: all that have the needed scripts, except
    "fifo", with which single calls are compared."""
    return [bench.contenders[name]
            for name in ["fairq"] + bench.having("pop", besides=["fairq"])
            + bench.having("take", besides=["fairq", "fifo"])]


def compare(bench, one, other, promise=SAME):
    """Adds two rows of times and two rows of buffers.  Rounds alternate between
    the places."""
    with one_core(one.session.connection, other.session.connection):
        rounds = [[place.round() for place in (one, other)]
                  for _ in range(WARMUP + bench.sizes["rounds"])][WARMUP:]
    counts = [place.buffers() for place in (one, other)]
    for i, what in enumerate(("pop(100) + complete_batch", "enqueue")):
        bench.results.row(what, [(a[i], b[i]) for a, b in rounds], " ms",
                          at_most=promise if i == 0 else SAME)
        bench.results.row(what + ", buffers read",
                          [(counts[0][i], counts[1][i])], "")


# ------------------------------------------------------------- measurements

def backlog(bench):
    """Measures from a thousand tasks to ten million."""
    sizes = bench.sizes["backlog"]
    print("\npop(100) + complete, tasks queued")
    for contender in reversed(drawn(bench)):
        place = Place("flat_many", contender, 1000)
        queued = 0
        for size in sizes:
            if not point(bench, "backlog", place, size,
                         lambda: place.fill(size - queued)):
                break
            queued = size
        if contender.name != "fairq":
            place.drop()
    # the last contender of the loop was fairq
    few = Place("flat_few", contender, 1000)
    few.fill(10000)
    bench.results.table("tasks queued", "{:,}".format(sizes[-1]), "10,000")
    compare(bench, place, few)
    place.drop()
    few.drop()


LOOKS = {
    "fairq.stats": "SELECT * FROM fairq.stats",
    "fairq.group_stats(queue)": "SELECT * FROM fairq.group_stats('bench')",
    "fairq.peek(queue, 10)": "SELECT * FROM fairq.peek('bench', 10)",
}


def watched(name, bench, tasks):
    """A queue with this number of tasks in ten groups; two of the tasks run."""
    place = Place(name, bench.contenders["fairq"], 10)
    place.fill(tasks)
    place.session.run(place.contender.sql("pop", n=2))
    # SQL has filled the table, so maintain() has to count the tasks
    place.session.run("SELECT fairq.maintain()")
    return place


def watching(bench):
    """Measures the views for operators with few tasks, and with ten
    million."""
    size = bench.sizes["backlog"][-1]
    many = watched("flat_many", bench, size)
    # with ten tasks a group has fewer tasks than a view reads at most
    for few_tasks, promise in ((10, None), (10000, SAME)):
        few = watched("flat_few", bench, few_tasks)
        bench.results.table("tasks queued", "{:,}".format(size),
                            "{:,}".format(few_tasks))
        for what, sql in LOOKS.items():
            with one_core(many.session.connection, few.session.connection):
                pairs = [[place.session.run(sql)[0] for place in (many, few)]
                         for _ in range(WARMUP + bench.sizes["rounds"])]
            bench.results.row(what, pairs[WARMUP:], " ms", at_most=promise)
            bench.results.row(what + ", buffers read",
                              [[explain(place.session.connection, sql)
                                for place in (many, few)]], "")
        few.drop()
    many.drop()


def groups(bench):
    """Measures from ten groups to a million."""
    sizes = bench.sizes["groups"]
    print("\npop(100) + complete, groups")
    for contender in reversed(drawn(bench)):
        for size in sizes:
            place = Place("flat_many", contender, size)
            fast = point(bench, "groups", place, size,
                         lambda: place.fill(max(100000, 2 * size)))
            if (contender.name, size) != ("fairq", sizes[-1]):
                place.drop()
            if not fast:
                break
    few = Place("flat_few", contender, sizes[0])
    few.fill(max(100000, 2 * sizes[-1]))
    bench.results.table("groups", "{:,}".format(sizes[-1]),
                        "{:,}".format(sizes[0]))
    compare(bench, place, few)
    place.drop()
    few.drop()


def waiting(bench):
    """Measures calls while a blocked group has up to a million tasks."""
    sizes = bench.sizes["blocked"]
    print("\npop(100) + complete, waiting tasks of a blocked group")
    kept = []
    for contender in reversed(drawn(bench)):
        for size in sizes:
            keep = contender.name == "fairq" and size in (sizes[0], sizes[-1])
            place = Place("flat_%d" % size if keep else "flat", contender,
                          1000, blocked=size)
            fast = point(bench, "blocked", place, size,
                         lambda: place.fill(10000))
            if keep:
                kept.append(place)
            else:
                place.drop()
            if not fast:
                break
    bench.results.table("waiting tasks of a blocked group",
                        "{:,}".format(sizes[-1]), "none")
    compare(bench, kept[1], kept[0], promise=SAME_BLOCKED)
    for place in kept:
        place.drop()


def snapshot(bench):
    """Measures calls after many tasks were added and completed under an old
    snapshot."""
    sizes = bench.sizes["churn"]
    print("\npop(100) + complete, tasks that came and went")
    for contender in reversed(drawn(bench)):
        place = Place("flat_old", contender, 1000)
        # this point is measured before the snapshot keeps any dead rows
        point(bench, "snapshot", place, 0, lambda: place.fill(10000))
        with connect("flat_old") as old:
            old.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            old.execute("SELECT count(*) FROM pg_class")
            gone = 0
            for size in sizes:
                if not point(bench, "snapshot", place, size,
                             lambda: place.churn(size - gone)):
                    break
                gone = size
            if contender.name == "fairq":
                fresh = Place("flat_new", contender, 1000)
                fresh.fill(10000)
                bench.results.table(
                    "an old snapshot, %s tasks came and went"
                    % "{:,}".format(sizes[-1]), "then", "at the start")
                compare(bench, place, fresh)
                fresh.drop()
        place.drop()
