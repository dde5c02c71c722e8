"""Limits: the cost of a limited group's waiting tasks, for that group and for
others."""

import time

from server import connect, create_database, drop_database, one_core, vacuum

WARMUP = 20
# The greatest ratio of the times, which differ only by noise.
SAME = 1.3


def blocked(bench):
    """The calls of a limited group, and pops that find only blocked groups."""
    many = bench.sizes["blocked"][-1]
    sizes = {"blocked_many": many, "blocked_few": 10}
    for database, tasks in sizes.items():
        create_database(database)
        with connect(database) as connection:
            bench.contenders["fairq"].run(connection, "setup")
            make_blocked(connection, tasks)
            vacuum(connection)
    with connect("blocked_many") as here, connect("blocked_few") as there, \
            one_core(here, there):
        for connection in (here, there):
            connection.execute("SET synchronous_commit = off")
        columns = "{:,}".format(many), "10"
        rounds = WARMUP + bench.sizes["rounds"]

        bench.results.table("a group limited to 1, by its waiting tasks",
                            *columns)
        # the first task of the queue
        running = {here: 1, there: 1}
        steps = []
        for _ in range(rounds):
            pair = []
            for connection in running:
                took, running[connection] = next_of_one(connection,
                                                        running[connection])
                pair.append(took)
            steps.append(pair)
        for i, what in enumerate(("enqueue", "complete", "pop of the next")):
            bench.results.row(what, [(one[i], other[i])
                                     for one, other in steps[WARMUP:]],
                              " ms", at_most=SAME)

        bench.results.table("100 blocked groups, by their waiting tasks",
                            *columns)
        times(bench, "a pop that finds nothing", here, there, rounds,
              "SELECT id FROM fairq.pop('full', 100)")

        bench.results.table("tasks that were queued before the limit was set",
                            *columns)
        times(bench, "a pop of another group's task", here, there, rounds,
              "SELECT id FROM fairq.pop('late', 100)",
              before="SELECT fairq.enqueue('late', 'h')")
    for database in sizes:
        drop_database(database)


def make_blocked(connection, tasks):
    """Fills each of three queues with this number of waiting tasks.

    Queue "one" has a single group, and queue "full" has 100.  Queue "late" has
    a single group, and gets its limit after its tasks.  Each group of the three
    queues has a running task.
    """
    for queue, groups in (("one", 1), ("full", 100), ("late", 1)):
        connection.execute(
            "SELECT fairq.create_queue(%s, concurrency => %s)",
            [queue, None if queue == "late" else 1])
        connection.execute(
            "SELECT count(*) FROM generate_series(1, %s) g, LATERAL"
            " fairq.enqueue_batch(%s, array_fill('g' || g, ARRAY[%s]),"
            " array_fill('{}'::jsonb, ARRAY[%s]))",
            [groups, queue] + 2 * [1 + tasks // groups])
        connection.execute("SELECT id FROM fairq.pop(%s, %s)",
                           [queue, groups])
    connection.execute("SELECT fairq.alter_queue('late', concurrency => 1)")


def next_of_one(connection, running):
    """The times of an enqueue, a complete and a pop of a limited group.

    Completes the running task.  Returns the times and the next running task.
    """
    took = []
    for sql in ("SELECT fairq.enqueue('one', 'g1')",
                "SELECT fairq.complete(%d)" % running,
                "SELECT id FROM fairq.pop('one', 10)"):
        start = time.perf_counter()
        result = connection.execute(sql)
        took.append((time.perf_counter() - start) * 1000)
    return took, result.fetchone()[0]


def times(bench, what, here, there, rounds, sql, before=None):
    """Measures how long a statement takes in each of two databases."""
    pairs = []
    for _ in range(rounds):
        pair = []
        for connection in (here, there):
            if before:
                connection.execute(before)
            start = time.perf_counter()
            connection.execute(sql)
            pair.append((time.perf_counter() - start) * 1000)
        pairs.append(pair)
    bench.results.row(what, pairs[WARMUP:], " ms", at_most=SAME)
