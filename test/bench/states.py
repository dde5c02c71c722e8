"""States: the cost of pops in a queue with a history.

test/states/state.py makes the queues.  Each queue is compared with a pristine
queue, which only had enqueues and pops in order.  Then each queue is compared
with the floor, which is fifo_lease.  Each queue has its own database, and the
databases take turns.  Completed tasks are not replaced, and no call waits until
its commit is flushed.
"""

import math
import os
import sys
from functools import partial

import flat
from contender import PAYLOAD, key_of
from server import Run, Session, at, connect, create_database, \
    drop_database, fail, one_core, restart, vacuum

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                os.pardir, "states"))
from state import CHURN, GROUPS, N, STATES, Queue, create_template, make, \
    take_snapshot

WARMUP = 10             # rounds
BATCH = 50000           # tasks per call of enqueue_batch
TEMPLATE = "states_template"

# fairq's promise: the greatest ratio to the time of a pristine queue ...
SLOWER = {
    "limited to 5": 1.25, "limited to 1": 1.25, "late": 1.25, "hole": 1.25,
    "rolled back pop": 1.25, "purged": 1.25, "due": 1.4, "retried": 1.4,
    "retried at once": 1.4, "lapsed": 1.4,
}
# ... and the least ratio to the floor's rate, with 8 workers, per batch size.
RATE = {100: 1.5, 10: 1.5, 1: 1.1}


class Place(flat.Place):
    """A contender in a database that has the tasks to be popped."""

    def __init__(self, database, contender, refill=0):
        self.database, self.contender = database, contender
        self.limited, self.groups = False, GROUPS
        self.queue = self.old = None
        self.refill = refill

    def start(self):
        """From here on, only the timed calls change the databases."""
        with connect(self.database) as connection:
            vacuum(connection)
        self.open()
        if self.refill:
            # the new tasks belong to existing groups
            self.refill_sql = self.contender.sql(
                "enqueue_batch", n=self.refill, key=key_of(GROUPS - 1))

    def turn(self):
        if self.refill:
            self.session.run(self.refill_sql)
        return super().turn()

    def rate(self, n, tasks, workers=8):
        """Tasks per second, of this number of workers and tasks per call."""
        before = self.count()
        run = Run(self.database, self.contender.work_script(n), workers,
                  times=tasks // n)
        rate = run.wait()
        return (before - self.count()) * rate / run.count

    def count(self):
        return int(self.session.run("SELECT count(*) AS n FROM %s.task"
                                    % self.contender.name)[1][0]["n"])

    def drop(self):
        for opened in (self.queue, self.old):
            if opened:
                opened.close()
        super().drop()


def in_state(bench, database, state, rounds):
    """A database with a queue of fairq in this state."""
    copy_template(database)
    place = Place(database, bench.contenders["fairq"], state.refill)
    place.queue = Queue(partial(connect, database), PAYLOAD)
    make(state, place.queue, rounds)
    place.start()
    return place


def floor(bench, database, state, rounds):
    """A database with fifo_lease, either empty or under an old snapshot."""
    contender = bench.contenders["fifo_lease"]
    create_database(database)
    place = Place(database, contender, state.refill)
    if state.old:
        place.old = connect(database)
        take_snapshot(place.old)
    with connect(database) as connection:
        connection.execute("SET synchronous_commit = off")
        contender.set_up(connection, GROUPS)
        contender.fill(connection, rounds * GROUPS, key_of(GROUPS))
        if state.refill:
            vacuum(connection)
            connection.execute("DELETE FROM fifo_lease.task")
    place.start()
    if state.old:
        place.churn(CHURN)
    return place


def copy_template(database):
    with connect("postgres") as connection:
        connection.execute("CREATE DATABASE %s TEMPLATE %s"
                           % (database, TEMPLATE))


# ------------------------------------------------------------------ in a state

def in_turn(places, count):
    """The times of the places' turns after the warm-up.  The places alternate."""
    with one_core(*(place.session.connection for place in places)):
        return [[place.turn() for place in places]
                for _ in range(WARMUP + count)][WARMUP:]


def beside(bench, state):
    """The times of pops, compared with a pristine queue and with the floor.

    These are two comparisons of two databases.  If three databases took turns,
    the turn after the floor's would find fairq's code evicted from the
    processor's caches.
    """
    count = bench.sizes["state_rounds"]
    rounds = 1 + math.ceil((2 * WARMUP + 2 * count) * N / GROUPS)
    here = in_state(bench, "states_here", state, rounds)
    fresh = in_state(bench, "states_fresh", STATES["fresh"], rounds)
    other = floor(bench, "states_floor", state, rounds)
    times = [in_turn((here, place), count) for place in (fresh, other)]
    for place in (here, fresh, other):
        place.drop()
    return times


def rates(bench, what, here, other):
    """Adds rows of the rates of 8 workers with batches of 100, 10 and 1."""
    for n, promise in RATE.items():
        tasks = bench.sizes["state_work"][n]
        bench.results.row("%s, batches of %d" % (what, n),
                          [(here.rate(n, tasks), other.rate(n, tasks))
                           for _ in range(bench.sizes["repeats"])],
                          "/s", at_least=promise)


def work_in(bench, state):
    tasks = bench.sizes["repeats"] * sum(bench.sizes["state_work"].values())
    rounds = 1 + math.ceil(tasks / GROUPS)
    here = in_state(bench, "states_here", state, rounds)
    other = floor(bench, "states_floor", state, rounds)
    rates(bench, state.text, here, other)
    here.drop()
    other.drop()


# ------------------------------------------------------------- after a restart

def queued(database, groups, tasks):
    """Fills a database with this number of tasks and groups."""
    copy_template(database)
    queue = Queue(partial(connect, database), PAYLOAD)
    queue.create()
    if groups < BATCH:
        for _ in range(0, tasks, BATCH):
            queue.enqueue(min(tasks, BATCH) // groups, of=range(groups))
    else:
        for first in range(0, groups, BATCH):
            queue.enqueue(max(1, tasks // groups),
                          of=range(first, min(groups, first + BATCH)))
    vacuum(queue.db)
    queue.close()


def first_pop(bench, database):
    """The milliseconds of a first pop, in a session that has only loaded the library."""
    pop_sql, complete_sql = bench.contenders["fairq"].pop_sql(N)
    restart()
    with Session(database) as session:
        session.run("SELECT fairq.version()")
        took, rows = session.run(pop_sql)
        if rows[0]["popped"] != str(N):
            fail("%s tasks were popped instead of %d" % (rows[0]["popped"], N))
        session.run(complete_sql, **rows[0])
    return took


def restarted(bench):
    """The first pop after a start of the server, and the rate of work."""
    tasks = bench.sizes["restart_tasks"]
    bench.results.table("the first pop(100) after a restart", "fairq", "goal")
    for groups, goal in bench.sizes["restart_groups"].items():
        database = "states_%d" % groups
        queued(database, groups, tasks)
        bench.results.row(
            "{:,} tasks of {:,} groups".format(max(tasks, groups), groups),
            [(first_pop(bench, database), goal)
             for _ in range(bench.sizes["repeats"])], " ms", at_most=1.0)
    if bench.sizes["state_work"]:
        bench.results.table("8 workers after a restart, tasks", "fairq",
                            "fifo_lease")
        here = Place("states_%d" % GROUPS, bench.contenders["fairq"])
        here.start()
        other = floor(bench, "states_floor", STATES["restart"],
                      tasks // GROUPS)
        here.session.run("SELECT fairq.reset_hints()")
        rates(bench, "{:,} tasks of {:,} groups".format(tasks, GROUPS), here,
              other)
        here.session.close()
        other.drop()
    for groups in bench.sizes["restart_groups"]:
        drop_database("states_%d" % groups)


# ---------------------------------------------------------------- measurements

def make_template():
    with connect("postgres") as connection:
        create_template(connection, partial(connect, TEMPLATE), TEMPLATE)


def states(bench):
    """Measures pops in each state of a queue: late, limited, due, ..."""
    make_template()
    bench.results.table("pop(100) + complete_batch", "in this state",
                        "pristine")
    beside_floor = {}
    for name, state in STATES.items():
        times, beside_floor[state.text] = beside(bench, state)
        bench.results.row(state.text, times, " ms", at_most=SLOWER.get(name))
    bench.results.table("the same, for information", "in this state",
                        "fifo_lease")
    for text, times in beside_floor.items():
        bench.results.row(text, times, " ms")
    if bench.sizes["state_work"]:
        bench.results.table("8 workers, tasks", "in this state", "fifo_lease")
        for state in STATES.values():
            if not state.refill and not state.old:
                work_in(bench, state)
    restarted(bench)
    drop_database(TEMPLATE)


def builds(bench):
    """Compares each state in this build and in another build (see run)."""
    hosts = os.environ["PGHOST"], os.environ["FAIRQ_OTHER"]
    for host in hosts:
        with at(host):
            make_template()

    def in_both(state, rounds):
        places = []
        for host in hosts:
            with at(host):
                places.append(in_state(bench, "states_here", state, rounds))
        return places

    def drop(places):
        for place, host in zip(places, hosts):
            with at(host):
                place.drop()

    count = bench.sizes["rounds"]
    rounds = 1 + math.ceil((WARMUP + count) * N / GROUPS)
    bench.results.table("pop(100) + complete_batch", "this build", "other")
    for state in STATES.values():
        places = in_both(state, rounds)
        times = in_turn(places, count)
        bench.results.row(state.text, times, " ms")
        drop(places)

    bench.results.table("pop + complete, a fresh backlog, tasks", "this build",
                        "other")
    sizes = bench.sizes["work_tasks"]
    repeats = 2 * bench.sizes["repeats"]
    for workers in (1, 8, 32, 64):
        for n, tasks in sizes.items():
            tasks //= 4
            places = in_both(STATES["fresh"],
                             1 + math.ceil(repeats * tasks / GROUPS))

            def rate(which):
                with at(hosts[which]):
                    return places[which].rate(n, tasks, workers)

            # alternate the order of the two builds
            pairs = [(rate(0), rate(1)) if i % 2 else
                     (rate(1), rate(0))[::-1] for i in range(repeats)]
            bench.results.row("batches of %d, %d worker%s"
                              % (n, workers, "s" * (workers > 1)), pairs, "/s")
            drop(places)
    for host in hosts:
        with at(host):
            drop_database(TEMPLATE)
