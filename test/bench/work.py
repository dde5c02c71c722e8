"""Rates: the work per second of fairq and of the other contenders, which take
turns."""

from contender import key_of
from server import Run, Session, connect, create_database, drop_database, \
    fail, one_core, percentile, pgbench, vacuum

GROUPS = 1000
MANY = 32, 64               # numbers of clients
BATCH = 1000

# fairq's promise: the least ratio to the rate of the floor, fifo or fifo_lease.
ENQUEUE = 0.9
ENQUEUE_BATCH = 0.6
POP_COMPLETE = {(1, 1): 1.2, (1, 10): 1.3, (1, 100): 1.8,
                (8, 1): 1.5, (8, 10): 2.0, (8, 100): 2.6}
TAKE = {1: 1.1, 10: 1.2, 100: 1.4}
EQUILIBRIUM = 1.0
# The greatest ratios to the times of the floor.
POP_TIME = 0.4
TAIL = 1.0
# The least ratio of two rates: of two producers in one group, and of two
# producers in two groups. Without noise, the ratio is about 1.
SAME_RATE = 0.85
# Tasks of a batch take at most 1.05 times the time of tasks without a batch.
OF_BATCH = 1 / 1.05


def clients_text(n, who):
    return "%d %s%s" % (n, who, "" if n == 1 else "s")


def prepare(bench):
    """Creates the database of these measurements, which has no tasks yet."""
    create_database("work")
    with connect("work") as connection:
        for contender in bench.contenders.values():
            contender.set_up(connection, GROUPS)


def in_turn(bench, names, measure):
    """Measures all contenders in turn, several times. Returns lists by name."""
    measured = {name: [] for name in names}
    for _ in range(bench.sizes["repeats"]):
        for name in names:
            measured[name].append(measure(bench.contenders[name]))
    return measured


def pairs(measured, a, b):
    return list(zip(measured[a], measured[b]))


def compare(bench, what, measured, floor, bar=None, unit="/s", **promise):
    """Adds a row against the floor, and a bar for each contender if `bar` is
    given."""
    bench.results.row(what, pairs(measured, "fairq", floor), unit, **promise)
    if bar:
        for name, rates in measured.items():
            bench.results.bar(bar, name, rates)


def for_information(bench, rows, floor):
    """Adds rows of fairq against the measured contenders other than the
    floor."""
    names = [name for name in bench.contenders if name not in ("fairq", floor)]
    for name in names:
        of_it = [(what, measured) for what, measured in rows
                 if name in measured]
        if of_it:
            bench.results.table("the same, for information", "fairq", name)
            for what, measured in of_it:
                bench.results.row(what, pairs(measured, "fairq", name), "/s")


# ---------------------------------------------------------------- producers

def rate(bench, contender, script, clients, wait=True):
    """The rate of a producer's script that starts with an empty queue."""
    with connect("work") as connection:
        contender.run(connection, "empty")
    return pgbench("work", script, clients, bench.sizes["seconds"],
                   wait_for_commit=wait)


def enqueue(bench):
    """Enqueues one task per transaction, compared with an INSERT. Then compares
    one group with two."""
    prepare(bench)
    rows = []
    bench.results.table("enqueue, one per transaction", "fairq", "fifo")
    for group, groups in (("random(1, %d)" % GROUPS, "1,000 groups"),
                          ("1", "one group")):
        for wait in (True, False):
            for clients in (1, 2, 8):
                shown = (wait, groups) == (True, "1,000 groups")
                names = ["fairq", "fifo"]
                if shown and clients != 2:
                    names += bench.having("enqueue", besides=names)
                measured = in_turn(bench, names, lambda c: rate(
                    bench, c, c.enqueue_script(group), clients, wait))
                what = "%s, %s, commit %s" % (
                    clients_text(clients, "client"), groups,
                    "on" if wait else "off")
                compare(bench, what, measured, "fifo", at_least=ENQUEUE,
                        bar="enqueue, " + clients_text(clients, "client")
                        if shown and clients != 2 else None)
                rows.append((what, measured))
    for_information(bench, rows, "fifo")

    fairq = bench.contenders["fairq"]
    bench.results.table("enqueue, two producers", "same group", "two groups")
    for wait in (True, False):
        both = [[rate(bench, fairq, fairq.enqueue_script(group), 2, wait)
                 for group in ("1", "1 + :client_id")]
                for _ in range(bench.sizes["repeats"])]
        bench.results.row("commit " + ("on" if wait else "off"), both, "/s",
                          at_least=SAME_RATE)
    drop_database("work")


def batch(bench):
    """Enqueues 1,000 tasks per call, compared with INSERT ... SELECT."""
    prepare(bench)
    rows = []
    bench.results.table("enqueue_batch of %s, tasks" % "{:,}".format(BATCH),
                        "fairq", "fifo")
    for groups, text in ((GROUPS, "1,000 groups"), (1, "one group")):
        for clients in (1, 8):
            names = ["fairq", "fifo"]
            if groups > 1:
                names += bench.having("enqueue_batch", besides=names)
            measured = in_turn(bench, names, lambda c: BATCH * rate(
                bench, c, c.batch_script(BATCH, key_of(groups)), clients))
            what = "%s, %s" % (clients_text(clients, "client"), text)
            compare(bench, what, measured, "fifo", at_least=ENQUEUE_BATCH,
                    bar="enqueue_batch of 1,000, 1 client"
                    if (groups, clients) == (GROUPS, 1) else None)
            rows.append((what, measured))
    for_information(bench, rows, "fifo")
    drop_database("work")


# ------------------------------------------------------------------ workers

class Stock:
    """The tasks for the workers, topped up before each row."""

    def __init__(self, bench, names, tasks, groups=GROUPS, lanes=1):
        self.contenders = [bench.contenders[name] for name in names]
        self.tasks = tasks
        self.missing = tasks
        self.groups = groups
        self.lanes = lanes

    def top_up(self):
        with connect("work") as connection:
            connection.execute("SET synchronous_commit = off")
            for contender in self.contenders:
                contender.fill(connection, self.missing, key_of(self.groups),
                               lanes=self.lanes)
            vacuum(connection)
        self.missing = 0

    def use(self, tasks):
        self.missing += tasks
        if self.missing > self.tasks:
            fail("the runs use more tasks than the stock has")


def workers(bench, names, floor, title, bar, script, promise):
    """Rates of 1 and 8 workers, with calls of 1, 10 and 100 tasks."""
    prepare(bench)
    sizes = bench.sizes
    stock = Stock(bench, names, sizes["stock"])
    bench.results.table(title, "fairq", floor)
    rows = []
    for clients in (1, 8):
        for n in (1, 10, 100):
            # all runs of a row must find enough tasks, and a single worker
            # runs fewer tasks
            tasks = min(sizes["work_tasks"][n] // (2 if clients == 1 else 1),
                        int(0.9 * sizes["stock"]) // sizes["repeats"])
            stock.top_up()
            measured = in_turn(bench, names, lambda c: n * pgbench(
                "work", script(c, n), clients, times=tasks // n))
            stock.use(tasks * sizes["repeats"])
            what = "batches of %d, %s" % (n, clients_text(clients, "worker"))
            compare(bench, what, measured, floor, at_least=promise(clients, n),
                    bar="%s, batches of %d, 8 workers" % (bar, n)
                    if clients == 8 and n != 10 else None)
            rows.append((what, measured))
    for_information(bench, rows, floor)
    drop_database("work")


def work(bench):
    """Measures pop and complete, in two transactions."""
    names = ["fairq", "fifo_lease"]
    workers(bench, names + bench.having("pop", besides=names), "fifo_lease",
            "pop + complete, tasks", "pop + complete",
            lambda c, n: c.work_script(n), lambda *of: POP_COMPLETE[of])


def take(bench):
    """Measures take, which removes tasks in a single transaction."""
    names = ["fairq", "fifo"]
    workers(bench, names + bench.having("take", besides=names), "fifo",
            "take, tasks", "take",
            lambda c, n: c.take_script(n), lambda _, n: TAKE[n])


def few(bench):
    """Measures 8 workers with one group, with few groups, and with a queue of
    several lanes."""
    names = ["fairq", "fifo_lease"]
    sizes = bench.sizes
    bench.results.table("pop + complete, tasks, 8 workers", "fairq",
                        "fifo_lease")
    for groups, lanes, text in ((1, 1, "one group"), (8, 1, "8 groups"),
                                (GROUPS, 8, "8 lanes of 1,000 groups")):
        prepare(bench)
        stock = Stock(bench, names, sizes["stock"] // 2, groups, lanes)
        for n in (1, 10, 100):
            tasks = min(sizes["work_tasks"][n],
                        int(0.9 * stock.tasks) // sizes["repeats"])
            stock.top_up()
            measured = in_turn(bench, names, lambda c: n * pgbench(
                "work", c.work_script(n), 8, times=tasks // n))
            stock.use(tasks * sizes["repeats"])
            compare(bench, "batches of %d, %s" % (n, text), measured, "fifo_lease")
        drop_database("work")


def work_of(bench, tasks, n, of_batch):
    """The rate of 8 workers, with tasks that belong to one batch or to none."""
    fairq = bench.contenders["fairq"]
    with connect("work") as connection:
        fairq.run(connection, "empty")
        connection.execute("SET synchronous_commit = off")
        batch = "NULL"
        if of_batch:
            batch, = connection.execute(
                "SELECT fairq.create_batch('bench', 'g1')").fetchone()
        connection.execute(
            "SELECT count(*) FROM fairq.enqueue_batch('bench',"
            " ARRAY(SELECT %s FROM generate_series(1, %d)),"
            " array_fill('1'::jsonb, ARRAY[%d]), batch => %s)"
            % (key_of(GROUPS), tasks, tasks, batch))
        if of_batch:
            connection.execute("SELECT fairq.close_batch(%s)" % batch)
        vacuum(connection)
    return n * pgbench("work", fairq.work_script(n), 8, times=tasks // n)


def one_batch(bench):
    """Measures 8 workers with tasks of one batch, compared with tasks of no
    batch."""
    prepare(bench)
    bench.results.table("pop + complete, tasks, 8 workers", "one batch",
                        "no batch")
    for n in (1, 10, 100):
        tasks = min(100000, bench.sizes["work_tasks"][n])
        both = [[work_of(bench, tasks, n, of_batch)
                 for of_batch in (True, False)]
                for _ in range(bench.sizes["repeats"])]
        bench.results.row("%d per call" % n, both, "/s", at_least=OF_BATCH)
    drop_database("work")


def rate_and_tail(script, clients, **options):
    """A script's rate per second, and the milliseconds of its p99."""
    run = Run("work", script, clients, wait_for_commit=False, log=True,
              **options)
    rate = run.wait()
    times = [took for client in run.latencies() for took in client]
    return rate, percentile(times, 99)


def many(bench):
    """Measures the rate and p99 of 32 and 64 clients that do not wait until
    commits are flushed."""
    sizes = bench.sizes
    prepare(bench)
    names = ["fairq", "fifo_lease"]
    stock = Stock(bench, names, sizes["stock"])

    def rows(what, measured, floor, n):
        compare(bench, what, {name: [n * rate for rate, _ in values]
                              for name, values in measured.items()}, floor)
        compare(bench, what + ", p99",
                {name: [tail for _, tail in values]
                 for name, values in measured.items()}, floor, unit=" ms")

    bench.results.table("pop + complete, tasks", "fairq", "fifo_lease")
    for clients in MANY:
        for n in (1, 10):
            tasks = min(sizes["work_tasks"][n],
                        int(0.9 * sizes["stock"]) // sizes["repeats"])
            stock.top_up()
            measured = in_turn(bench, names, lambda c: rate_and_tail(
                c.work_script(n), clients, times=tasks // n))
            stock.use(tasks * sizes["repeats"])
            rows("batches of %d, %d workers" % (n, clients), measured, "fifo_lease", n)

    bench.results.table("enqueue, one per transaction", "fairq", "fifo")
    for clients in MANY:
        measured = in_turn(bench, ["fairq", "fifo"], lambda c: rate_and_tail(
            c.enqueue_script("random(1, %d)" % GROUPS), clients,
            seconds=sizes["seconds"]))
        rows("%d clients" % clients, measured, "fifo", 1)
    drop_database("work")


def turns(run):
    """The times of the pops of steps_script() that returned tasks."""
    times = []
    for client in run.latencies():
        for i in range(0, len(client) - 2, 3):
            pop, complete, nap = client[i:i + 3]
            if complete > nap:
                times.append(pop)
    return times


def equilibrium(bench):
    """Measures 4 producers, and 4 workers that keep up with them."""
    prepare(bench)
    names = ["fairq", "fifo_lease"]
    seconds = 2 * bench.sizes["seconds"]
    start = 10000       # enough tasks for the plans of a large table

    def run(contender):
        with connect("work") as connection:
            contender.run(connection, "empty")
            contender.fill(connection, start, key_of(GROUPS))
            vacuum(connection)
        producers = Run("work", contender.enqueue_script(
            "random(1, %d)" % GROUPS), 4, seconds)
        consumers = Run("work", contender.steps_script(10), 4, seconds,
                        log=True, variables=["step=0", "popped=0"])
        produced = producers.wait()
        consumers.wait()
        with connect("work") as connection:
            left = connection.execute("SELECT count(*) FROM %s.task"
                                      % contender.name).fetchone()[0]
        # The rate does not include tasks by which the backlog grows, because
        # they are not done.
        done = produced - max(0, left - start) / seconds
        times = turns(consumers)
        return done, percentile(times, 50), percentile(times, 99)

    bench.results.table("4 producers + 4 workers, batches of up to 10", "fairq",
                        "fifo_lease")
    measured = in_turn(bench, names, run)
    for i, what, unit, promise in (
            (0, "tasks", "/s", {"at_least": EQUILIBRIUM}),
            (1, "pop, p50", " ms", {}),
            (2, "pop, p99", " ms", {"at_most": TAIL})):
        compare(bench, what, {name: [values[i] for values in measured[name]]
                              for name in names},
                "fifo_lease", unit=unit,
                bar="4 producers + 4 workers" if i == 0 else None, **promise)
    drop_database("work")


def tail(bench):
    """The ratio of the slowest calls' time (p99) to the usual time (p50), with
    8 workers."""
    prepare(bench)
    repeats = bench.sizes["repeats"]
    tasks = min(bench.sizes["work_tasks"][10],
                int(0.9 * bench.sizes["stock"]) // repeats)

    def pop(contender):
        run = Run("work", contender.steps_script(10), 8, times=3 * tasks // 10,
                  log=True, variables=["step=0", "popped=0"])
        run.wait()
        return turns(run)

    def take_(contender):
        run = Run("work", contender.take_script(10), 8, times=tasks // 10,
                  log=True)
        run.wait()
        return [took for client in run.latencies() for took in client]

    for what, floor, times in (("pop", "fifo_lease", pop),
                               ("take", "fifo", take_)):
        stock = Stock(bench, ["fairq", floor], int(1.1 * tasks * repeats))
        stock.top_up()
        measured = in_turn(bench, ["fairq", floor], lambda c: (
            lambda t: [percentile(t, 50), percentile(t, 99)])(times(c)))
        bench.results.table("%s, batches of 10, 8 workers" % what, "fairq", floor)
        for i, part in enumerate(("p50", "p99")):
            compare(bench, part, {name: [v[i] for v in values] for name, values
                                  in measured.items()}, floor, unit=" ms")
        compare(bench, "p99 / p50",
                {name: [p99 / p50 for p50, p99 in values]
                 for name, values in measured.items()},
                floor, unit="x", at_most=TAIL)
    drop_database("work")


def pop(bench):
    """The time of a pop of 100 tasks, without its completion and without a wait
    until its commit is flushed."""
    prepare(bench)
    names = ["fairq", "fifo_lease"]
    rounds = bench.sizes["rounds"]
    stock = Stock(bench, names, max(bench.sizes["stock"], 200 * rounds))
    stock.top_up()
    times = {name: [] for name in names}
    with Session("work") as session, one_core(session.connection):
        for _ in range(20 + rounds):
            for name in names:
                pop_sql, complete_sql = bench.contenders[name].pop_sql(100)
                took, rows = session.run(pop_sql)
                if rows[0]["popped"] != "100":
                    fail("%s popped %s tasks instead of 100"
                         % (name, rows[0]["popped"]))
                session.run(complete_sql, **rows[0])
                times[name].append(took)
    bench.results.table("the time of pop(100) alone, p50", "fairq",
                        "fifo_lease")
    compare(bench, "1 worker, no other work",
            {name: values[20:] for name, values in times.items()},
            "fifo_lease", unit=" ms", at_most=POP_TIME)
    drop_database("work")
