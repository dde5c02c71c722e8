"""Queues that are cost-fair, time-fair or have tenants: their cost, compared
with a task-fair queue of groups."""

import time

from server import connect, create_database, drop_database, one_core, vacuum

DATABASE = "fair_by"
KINDS = "tasks", "cost", "time", "tenants"
GROUPS = 10, 1000, 30000        # the last number gives 90,000 tasks
WARMUP = 20                     # rounds

# The greatest allowed ratios of the times of a pop with its completion. The
# first ratio compares with the time in a task-fair queue. The second ratio
# compares the times with many groups and with few groups.
SLOWER = {1: 1.25, 10: None, 100: 2.0}
MORE_GROUPS = 1.3


def fair_by(bench):
    """Pop and complete in queues of each kind of fairness."""
    sizes = [n for n in GROUPS if n <= max(bench.sizes["groups"])]
    create_database(DATABASE)
    with connect(DATABASE) as connection, one_core(connection):
        connection.execute("CREATE EXTENSION fairq")
        connection.execute("SET synchronous_commit = off")
        queues = [(kind, groups) for groups in sizes for kind in KINDS]
        for kind, groups in queues:
            tenants = kind == "tenants"
            connection.execute(
                "SELECT fairq.create_queue(%s, fair_by => %s, separator => %s)",
                [name(kind, groups), "tasks" if tenants else kind,
                 "/" if tenants else None])
            for _ in range(3):
                add(connection, kind, groups, max(groups, 10000))
        vacuum(connection)
        # queues take turns, so that other load on the machine affects all of
        # them
        took = {}
        for tasks in SLOWER:
            for round_ in range(WARMUP + bench.sizes["rounds"]):
                for kind, groups in queues:
                    milliseconds = turn(connection, kind, groups, tasks)
                    add(connection, kind, groups, tasks)
                    if round_ >= WARMUP:
                        took.setdefault((kind, groups, tasks), []).append(
                            milliseconds)
    drop_database(DATABASE)
    report(bench, took, sizes)


def report(bench, took, sizes):
    for groups in sizes:
        for kind in KINDS[1:]:
            bench.results.table("{:,} groups, {}".format(groups, title(kind)),
                                kind, "tasks")
            for tasks, most in SLOWER.items():
                bench.results.row(
                    "pop(%d) + complete" % tasks,
                    list(zip(took[kind, groups, tasks],
                             took["tasks", groups, tasks])),
                    " ms", at_most=most)
    for kind in KINDS:
        bench.results.table("{}, {:,} groups against {}".format(
            title(kind), sizes[-1], sizes[0]),
            *map("{:,}".format, (sizes[-1], sizes[0])))
        for tasks in SLOWER:
            bench.results.row(
                "pop(%d) + complete" % tasks,
                list(zip(took[kind, sizes[-1], tasks],
                         took[kind, sizes[0], tasks])),
                " ms", at_most=MORE_GROUPS)


def title(kind):
    return "tenants of 10 users" if kind == "tenants" else "fair_by " + kind


def name(kind, groups):
    return "%s, %d groups" % (kind, groups)


def add(connection, kind, groups, tasks):
    """Adds this number of tasks, with random groups and costs."""
    key = "(n / 10) || '/' || n" if kind == "tenants" else "n::text"
    connection.execute(
        "SELECT count(*) FROM fairq.enqueue_batch(%s,"
        " ARRAY(SELECT " + key + " FROM (SELECT (random() * %s)::int AS n"
        " FROM generate_series(1, %s)) numbers),"
        " array_fill('{}'::jsonb, ARRAY[%s]),"
        " costs => ARRAY(SELECT (1 + random() * 9)::real"
        " FROM generate_series(1, %s)))",
        [name(kind, groups), groups - 1, tasks, tasks, tasks])


def turn(connection, kind, groups, tasks):
    """The time of a pop and its completion, in two transactions."""
    start = time.perf_counter()
    ids = [row[0] for row in connection.execute(
        "SELECT id FROM fairq.pop(%s, %s)", [name(kind, groups), tasks])]
    connection.execute("SELECT fairq.complete_batch(%s)", [ids])
    return (time.perf_counter() - start) * 1000
