"""Fairness by cost and by time: what it costs beside that by tasks."""

import time

from server import connect, create_database, drop_database, one_core, vacuum

DATABASE = "fair_by"
GROUPS = 10, 1000, 10000        # of the sizes that are measured
WARMUP = 20                     # rounds

# Such pops and their completions take at most so many times the time.
SLOWER = {1: 1.5, 100: 2.5}


def fair_by(bench):
    """Pop and complete where groups get the same cost, or time."""
    for groups in (n for n in bench.sizes["groups"] if n in GROUPS):
        create_database(DATABASE)
        with connect(DATABASE) as connection, one_core(connection):
            connection.execute("CREATE EXTENSION fairq")
            connection.execute("SET synchronous_commit = off")
            for queue in ("tasks", "cost", "time"):
                connection.execute(
                    "SELECT fairq.create_queue(%s, fair_by => %s)",
                    [queue, queue])
                for _ in range(3):
                    add(connection, queue, groups, max(groups, 10000))
            vacuum(connection)
            for tasks in SLOWER:
                took = {queue: [] for queue in ("tasks", "cost", "time")}
                for _ in range(WARMUP + bench.sizes["rounds"]):
                    for queue in took:
                        took[queue].append(turn(connection, queue, tasks))
                        add(connection, queue, groups, tasks)
                for queue in ("cost", "time"):
                    bench.results.table(
                        "{:,} groups, fair by {}".format(groups, queue),
                        queue, "tasks")
                    bench.results.row(
                        "pop(%d) + complete" % tasks,
                        list(zip(took[queue], took["tasks"]))[WARMUP:],
                        " ms", at_most=SLOWER[tasks])
        drop_database(DATABASE)


def add(connection, queue, groups, tasks):
    """So many tasks, of groups and costs at random."""
    connection.execute(
        "SELECT count(*) FROM fairq.enqueue_batch(%s,"
        " ARRAY(SELECT 'g' || (random() * %s)::int"
        " FROM generate_series(1, %s)), array_fill('{}'::jsonb, ARRAY[%s]),"
        " costs => ARRAY(SELECT (1 + random() * 9)::real"
        " FROM generate_series(1, %s)))",
        [queue, groups - 1, tasks, tasks, tasks])


def turn(connection, queue, tasks):
    """The time of a pop and its completion, two transactions."""
    start = time.perf_counter()
    ids = [row[0] for row in connection.execute(
        "SELECT id FROM fairq.pop(%s, %s)", [queue, tasks])]
    connection.execute("SELECT fairq.complete_batch(%s)", [ids])
    return (time.perf_counter() - start) * 1000
