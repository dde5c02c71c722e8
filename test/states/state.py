"""The states of a queue, each made on purpose.

A queue that only had enqueues and pops in order is "fresh". In other states,
tasks were late, deleted or failed, or wait for a limit or a time. Shared memory
may also have been lost.  test/states/run counts the buffers of a pop in each
state, and test/bench times it.

A state is made in a copy of the database that create_template() makes.  That database
has tasks of other queues, so indexes are as high as those of a table in use.

    queue = Queue(connect)          # connect(): another connection, autocommit
    make(STATES["hole"], queue, 10) # this number of tasks per group is to be served
    ...
    queue.close()

There are GROUPS groups, and each has the same number of tasks.  Random choices
are always the same.  make() pops and completes the first tasks, whose pops
would not show the state.  From then on each pop is like the next.  A state
whose "refill" is set has no backlog: this number of tasks is enqueued before
each pop.
"""

import random
import time
from collections import namedtuple

GROUPS = 1000
N = 100                     # tasks per pop
CHURN = 20000               # tasks added and deleted under an old snapshot
OTHERS = 120000             # tasks of other queues
SCHEDULED = 2 ** 62 + 2 ** 61       # the first address of scheduled tasks

# make(queue, rounds) prepares the queue for this number of rounds.  It first serves
# `warmup` of them, after which all pops cost the same.  `refill` tasks are to be enqueued
# before each pop.  If `old` is true, CHURN tasks were added and deleted under a snapshot
# that is open.
State = namedtuple("State", "name text make warmup refill old",
                   defaults=(1, 0, False))


class Wrong(Exception):
    """Raised when the queue is not in the intended state."""


def create_template(cluster, connect, name):
    """Creates a database to copy.  connect() connects to it."""
    cluster.execute("CREATE DATABASE " + name)
    with connect() as db:
        db.execute("SET synchronous_commit = off")
        db.execute("CREATE EXTENSION fairq")
        for table, in db.execute(
                "SELECT relid::regclass::text FROM pg_stat_user_tables"
                " WHERE schemaname = 'fairq'").fetchall():
            db.execute("ALTER TABLE %s SET (autovacuum_enabled = off)" % table)
        db.execute("SELECT fairq.create_queue('others')")
        db.execute("SELECT count(*) FROM fairq.enqueue_batch('others',"
                   " ARRAY(SELECT 'g' || n %% %s"
                   " FROM generate_series(1, %s) n),"
                   " array_fill('{}'::jsonb, ARRAY[%s]))",
                   [GROUPS, OTHERS, OTHERS])
        db.execute("VACUUM (ANALYZE)")


class Queue:
    """The queue "bench", and the sessions that have made its state."""

    def __init__(self, connect, payload="{}"):
        self.connect = connect
        self.payload = payload
        # a condition in SQL, true for popped tasks if the queue is in this state
        self.served = "true"
        self.random = random.Random(1)
        self.sessions = []
        self.db = self.session()

    def session(self):
        connection = self.connect()
        connection.execute("SET synchronous_commit = off")
        self.sessions.append(connection)
        return connection

    def value(self, sql, *arguments):
        return self.db.execute(sql, arguments).fetchone()[0]

    def create(self, **settings):
        self.value("SELECT fairq.create_queue('bench'%s)" % "".join(
            ", %s => %%s" % name for name in settings), *settings.values())
        # a pop that finds nothing reads the whole table, unless another pop has
        # done so
        self.value("SELECT count(*) FROM fairq.pop('bench')")

    def enqueue(self, rounds, db=None, run_at=None, of=range(GROUPS),
                scattered=False):
        """Adds this number of tasks of each group, one round after the other."""
        keys = ["g%d" % group for group in of] * rounds
        if scattered:
            self.random.shuffle(keys)
        self.put(keys, db, run_at)

    def put(self, keys, db=None, run_at=None, expires_at=None):
        (db or self.db).execute(
            "SELECT count(*) FROM fairq.enqueue_batch('bench', %s::text[],"
            " array_fill(%s::jsonb, ARRAY[%s]), run_at => %s, expires_at => %s)",
            [keys, self.payload, len(keys), run_at, expires_at])

    def refill(self, tasks):
        self.put(["g%d" % group for group
                  in self.random.sample(range(GROUPS), tasks)])

    def pop(self, tasks, db=None, lease=None):
        """Returns the ids and attempts of the popped tasks, in two lists."""
        rows = (db or self.db).execute(
            "SELECT id, attempt FROM fairq.pop('bench', %s, lease => %s)",
            [tasks, lease]).fetchall()
        if len(rows) != tasks:
            raise Wrong("%d tasks were popped instead of %d"
                        % (len(rows), tasks))
        return [list(column) for column in zip(*rows)]

    def serve(self, tasks):
        """Serves and ends this number of tasks, with pops like the measured
        ones."""
        for at in range(0, tasks, N):
            self.value("SELECT fairq.complete_batch(%s, %s)",
                       *self.pop(min(N, tasks - at)))

    def close(self):
        for session in self.sessions:
            session.close()


def make(state, queue, rounds):
    state.make(queue, rounds + state.warmup)
    warm_up(state, queue)


def warm_up(state, queue):
    if state.refill:
        for _ in range(state.warmup * GROUPS // state.refill):
            queue.refill(state.refill)
            queue.serve(state.refill)
    else:
        queue.serve(state.warmup * GROUPS)


# ------------------------------------------------------------------ the states

def fresh(queue, rounds):
    queue.create()
    queue.enqueue(rounds)


def scattered(queue, rounds):
    """The tasks of a round are not neighbours in the table."""
    queue.create()
    queue.enqueue(rounds, scattered=True)


def empty(queue, _):
    """The groups have had tasks before, so they have their seats."""
    fresh(queue, 1)
    queue.serve(GROUPS)


def limited(concurrency):
    def made(queue, rounds):
        queue.create(concurrency=concurrency)
        # the warm-up serves the tasks with reserved addresses
        queue.enqueue(rounds)
    return made


def late(queue, rounds):
    """Some tasks were enqueued before all others, and committed after pops of
    the others."""
    queue.create()
    queue.enqueue(1)
    queue.serve(GROUPS)
    with queue.session().transaction() as transaction:
        queue.enqueue(rounds, db=transaction.connection)
        last = transaction.connection.execute(
            "SELECT max(id) FROM fairq.task").fetchone()[0]
        queue.enqueue(rounds)
        queue.serve(GROUPS)
    queue.served = "id <= %d" % last


def hole(queue, rounds):
    """Some tasks were enqueued before all others, and were rolled back."""
    queue.create()
    queue.enqueue(1)
    with queue.session().transaction(force_rollback=True) as transaction:
        queue.enqueue(rounds, db=transaction.connection)
        queue.enqueue(rounds)
    queue.serve(GROUPS)
    queue.served = "fairq.block_of('bench', addr) > %d" % rounds


def rolled_back_pop(queue, rounds):
    """A pop of a round was rolled back, so its tasks are served again."""
    queue.create()
    queue.enqueue(rounds)
    with queue.session().transaction(force_rollback=True) as transaction:
        queue.pop(GROUPS, db=transaction.connection)
        queue.serve(GROUPS)


def healed(queue, rounds):
    """The tasks of a rolled back pop were served again, and so were all tasks
    that were popped after it."""
    rolled_back_pop(queue, 3)
    queue.serve(2 * GROUPS)
    queue.enqueue(rounds)


def purged(queue, rounds):
    """Half of the groups were purged, and each second task of the others was
    cancelled."""
    queue.create()
    queue.enqueue(2 * rounds)
    queue.value("SELECT count(fairq.purge('bench', 'g' || n))"
                " FROM generate_series(0, %s, 2) n", GROUPS - 1)
    queue.value(
        "SELECT count(fairq.cancel(id)) FROM (SELECT id, row_number() OVER"
        " (PARTITION BY group_key ORDER BY addr) AS n FROM fairq.tasks"
        " WHERE queue = 'bench') t WHERE n %% 2 = 1")
    queue.enqueue(rounds, of=range(0, GROUPS, 2))


def due(queue, rounds):
    """All tasks were scheduled, and are due."""
    queue.create()
    queue.served = "run_at IS NOT NULL AND attempt = 1"
    delay = 0.5
    while True:
        queue.enqueue(rounds, run_at=queue.db.execute(
            "SELECT clock_timestamp() + %s * interval '1 second'",
            [delay]).fetchone()[0])
        ready = queue.value("SELECT count(*) FROM fairq.task"
                            " WHERE addr < %s AND run_at IS NOT NULL",
                            SCHEDULED)
        queue.value("SELECT pg_sleep(0.01 + greatest(0, extract(epoch FROM"
                    " max(run_at) - clock_timestamp()))) FROM fairq.task")
        if not ready:
            break
        # the machine was too slow to schedule the tasks in time
        queue.value("SELECT fairq.purge('bench')")
        delay *= 4


def retried(retry_in):
    """All tasks have failed once, and can be retried."""
    def made(queue, rounds):
        queue.create()
        queue.served = "attempt = 2"
        queue.enqueue(rounds)
        queue.value("SELECT count(fairq.fail(id, attempt, retry_in => %s))"
                    " FROM unnest(%s::bigint[], %s::int[]) AS t (id, attempt)",
                    retry_in, *queue.pop(rounds * GROUPS))
        time.sleep(0.01)
    return made


def lapsed(queue, rounds):
    """The leases of all tasks have expired."""
    queue.create()
    queue.served = "attempt = 2"
    queue.enqueue(rounds)
    queue.pop(rounds * GROUPS, lease="1 microsecond")
    time.sleep(0.01)


def expired(queue, rounds):
    """Each task follows an expired task of its group."""
    queue.create()
    for _ in range(rounds):
        queue.put(["g%d" % group for group in range(GROUPS)], expires_at="-infinity")
        queue.enqueue(1)


def restart(queue, rounds):
    """Shared memory was lost, and no pop has followed."""
    fresh(queue, rounds)
    queue.value("SELECT fairq.reset_hints()")


def alone(queue, rounds):
    """A single group has all tasks."""
    queue.create()
    queue.enqueue(rounds * GROUPS, of=[0])


def take_snapshot(connection):
    connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    connection.execute("SELECT count(*) FROM pg_class")


def old_snapshot(of):
    """Many tasks were added and deleted, and an old snapshot still sees them."""
    def made(queue, rounds):
        take_snapshot(queue.session())
        of(queue, rounds + CHURN // GROUPS)
        queue.serve(CHURN)
    return made


STATES = {state.name: state for state in (
    State("fresh", "a fresh backlog", fresh),
    State("scattered", "a fresh backlog in random order", scattered),
    State("empty", "near-empty: 100 enqueued, 100 popped", empty, refill=N),
    State("limited to 5", "concurrency => 5, most tasks wait", limited(5),
          warmup=6),
    State("limited to 1", "concurrency => 1, most tasks wait", limited(1),
          warmup=2),
    State("late", "a late commit of many tasks", late),
    State("hole", "a rolled back enqueue of many tasks", hole),
    State("rolled back pop", "a rolled back pop of a round", rolled_back_pop,
          warmup=2),
    State("healed", "a fresh backlog, after a rolled back pop", healed),
    State("purged", "groups purged, tasks cancelled", purged),
    State("due", "scheduled tasks that are due", due),
    State("retried", "failed tasks, to be retried a moment later",
          retried("1 millisecond")),
    State("retried at once", "failed tasks, to be retried at once",
          retried("0")),
    State("lapsed", "tasks whose leases have expired", lapsed),
    State("expired", "an expired task before each task", expired),
    State("restart", "after a restart", restart),
    State("alone", "one group alone", alone),
    State("snapshot", "an old snapshot", old_snapshot(fresh), old=True),
    State("limited, snapshot", "concurrency => 5, an old snapshot",
          old_snapshot(limited(5)), old=True),
)}
