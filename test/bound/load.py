"""The load: concurrent workers, and groups that become active meanwhile.

Each session is a thread with a connection.  It records each call with the times just
before its send and just after its return, and with its result.  Between these times the
call has its effect in the server.  Calls that are rolled back are recorded,
too.
"""

import random
import threading
import time
import traceback
from collections import namedtuple

import psycopg

# A small block length, so that a reader of a message easily finds seats and
# blocks.
BLOCK_LENGTH = 1000

# ValueError: psycopg gets a result and an error if a statement is cancelled
# just as it ends.
CANCELLED = (psycopg.errors.QueryCanceled, ValueError)

# rows: (group, id, addr).  rows is None if the call has failed.
Call = namedtuple("Call", "worker sent returned most rows")
# last: the last block in which the group had a turn before
Arrival = namedtuple("Arrival", "group ids sent returned last")


def connect(name):
    return psycopg.connect(
        autocommit=True, prepare_threshold=3, application_name=name,
        options="-c lock_timeout=120s -c statement_timeout=120s"
                " -c client_min_messages=error")


def block(addr):
    return addr // BLOCK_LENGTH


class Shape:
    """The groups, weights and workers of one round, drawn from its seed."""

    def __init__(self, part, seed):
        r = self.random = random.Random(seed)
        self.part = part
        self.workers = r.choice(part.workers)
        self.most = r.choice(part.most)
        steady = [f"s{i:02}" for i in range(r.choice((2, 3, 8, 20, 40)))]
        self.comers = [f"c{i}" for i in range(5)]
        self.joiners = ["j0", "j1"]
        self.limited = [f"l{i}" for i in range(4)] if part.limits else []
        # seats are assigned in this order, so some groups that join have low
        # seats
        self.groups = (self.comers[:3] + self.joiners[:1] + self.limited[:2]
                       + steady + self.comers[3:] + self.joiners[1:]
                       + self.limited[2:])
        self.steady = steady
        self.weights = {group: r.choice((1, 1, 2, 3, 5, 7))
                        if part.weights and group not in self.comers else 1
                        for group in self.groups}
        self.concurrency = {group: r.randint(1, 3) for group in self.limited}
        self.rollbacks = r.choice((0.1, 0.3)) if part.rollbacks else 0
        in_block = sum(self.weights[group] for group in steady)
        self.blocks = max(8, min(400, part.tasks // in_block))
        # enough for tasks in flight, for tasks that transactions hold, and for
        # a reserve
        self.stock = self.blocks + 3 * self.workers * self.most // in_block + 30

    def __str__(self):
        return (f"{self.workers} workers, up to {self.most} tasks a call,"
                f" {len(self.steady)} groups")


class Load:
    def __init__(self, shape, queue, deadline):
        self.shape, self.queue, self.deadline = shape, queue, deadline
        self.lock = threading.Lock()
        self.stop = threading.Event()
        self.calls, self.arrivals, self.changes = [], [], []
        self.done = set()
        self.last = {}
        self.block = -1
        self.first = None
        self.errors = []
        self.pids = []

    def run(self, connection):
        shape = self.shape
        connection.execute(
            "SELECT fairq.create_queue(%s::text, block_length => %s::bigint)",
            [self.queue, BLOCK_LENGTH])
        for group in shape.groups:
            connection.execute(
                "SELECT fairq.set_group(%s::text, %s::text, weight => %s::int,"
                " concurrency => %s::int)",
                [self.queue, group, shape.weights[group],
                 shape.concurrency.get(group)])
            # now each group has its seat, and has had a turn
            connection.execute("SELECT fairq.enqueue(%s::text, %s::text)",
                               [self.queue, group])
        rows = connection.execute(
            "SELECT id, addr FROM fairq.take(%s::text, 1000)",
            [self.queue]).fetchall()
        self.block = max(block(addr) for _, addr in rows)
        self.last.update(dict.fromkeys(shape.groups, self.block))
        for group in shape.steady + shape.limited:
            self.enqueue(connection, group,
                         shape.stock * shape.weights[group])
        self.first = self.block
        sessions = [Worker(self, f"w{i}") for i in range(shape.workers)]
        sessions += [Comer(self, "comers"), Joiner(self, "joiners")]
        if shape.part.changes:
            sessions += [Changer(self, "changer")]
        for session in sessions:
            session.start()
        for session in sessions:
            session.join(150)
        if any(session.is_alive() for session in sessions):
            self.errors.append("a session hangs")
        connection.execute("SELECT fairq.drop_queue(%s::text, true)",
                           [self.queue])

    def enqueue(self, connection, group, count):
        return [id for id, in connection.execute(
            "SELECT fairq.enqueue_batch(%s::text, array_fill(%s::text,"
            " ARRAY[%s::int]), array_fill('1'::jsonb, ARRAY[%s::int]))",
            [self.queue, group, count, count]).fetchall()]

    def note(self, call):
        with self.lock:
            self.calls.append(call)
            for group, _, addr in call.rows or ():
                self.last[group] = max(self.last.get(group, 0), block(addr))
                self.block = max(self.block, block(addr))
            # A slow machine serves fewer blocks, but at least four.
            gone = self.block - self.first
            if gone >= self.shape.blocks or (
                    gone >= 4 and time.monotonic() > self.deadline):
                self.stop.set()


class Session(threading.Thread):
    def __init__(self, load, name):
        super().__init__(name=name, daemon=True)
        self.load, self.shape = load, load.shape
        self.random = random.Random(f"{load.shape.random.random()} {name}")

    def run(self):
        try:
            with connect(self.name) as self.connection:
                self.load.pids.append(self.connection.info.backend_pid)
                self.work()
        except BaseException:       # the round has failed
            self.load.errors.append(f"{self.name}: {traceback.format_exc()}")
            self.load.stop.set()


class Worker(Session):
    def work(self):
        self.held = []
        while not self.load.stop.is_set():
            try:
                self.step()
            except CANCELLED:
                self.come_to_rest()
        self.come_to_rest()

    def come_to_rest(self):
        """Ends the transaction and all held tasks."""
        while True:
            try:
                self.connection.execute("ROLLBACK")
                self.complete_held()
                return
            except CANCELLED:
                pass

    def step(self):
        way = self.random.random()
        if way < self.shape.rollbacks:
            self.roll_back()
        elif way < self.shape.rollbacks + 0.2:
            self.done(self.call("take"))
        elif way < self.shape.rollbacks + 0.3:
            self.connection.execute("BEGIN")
            popped, taken = self.call("pop"), self.call("take")
            self.connection.execute("COMMIT")
            self.done(taken)
            self.held += popped
        else:
            self.held += self.call("pop")
            if self.random.random() < 0.5:
                self.complete_held()

    def roll_back(self):
        self.connection.execute("BEGIN")
        self.call("pop")
        if self.random.random() < 0.3:
            self.call("pop")
        if self.random.random() < 0.3:
            time.sleep(self.random.random() * 0.005)
        self.connection.execute("ROLLBACK")

    def call(self, function):
        most = self.random.choice((1, self.shape.most,
                                   self.random.randint(1, self.shape.most)))
        per_group = self.random.randint(1, 5) \
            if self.random.random() < 0.1 else None
        sent = time.monotonic()
        rows = None
        try:
            rows = self.connection.execute(
                f"SELECT group_key, id, addr FROM fairq.{function}(%s::text,"
                " %s::int, per_group => %s::int)",
                [self.load.queue, most, per_group]).fetchall()
        finally:
            self.load.note(Call(self.name, sent, time.monotonic(), most, rows))
        return [id for _, id, _ in rows]

    def complete_held(self):
        self.connection.execute("SELECT fairq.complete_batch(%s::bigint[])",
                                [self.held])
        self.done(self.held)
        self.held = []

    def done(self, ids):
        with self.load.lock:
            self.load.done.update(ids)


class Comer(Session):
    """Groups without tasks repeatedly get one task or a few."""

    def work(self):
        load, out = self.load, {}
        while not load.stop.is_set():
            time.sleep(self.random.random() * 0.01)
            group = self.random.choice(self.shape.comers)
            with load.lock:
                if not load.done.issuperset(out.get(group, ())):
                    continue
                last = load.last.get(group, 0)
            sent = time.monotonic()
            # a group's cache entry has eight tasks, so further ones are read in
            # the index
            count = self.random.choice((1, 1, 3, 9, 10))
            out[group] = ids = load.enqueue(self.connection, group, count)
            load.arrivals.append(Arrival(group, ids, sent, time.monotonic(),
                                         last))


class Joiner(Session):
    """Gives groups without tasks as many tasks as the other groups have."""

    def work(self):
        load, shape = self.load, self.shape
        for share, group in zip((0.2, 0.5), shape.joiners):
            while (load.block - load.first < share * shape.blocks
                   and not load.stop.is_set()):
                time.sleep(0.002)
            sent = time.monotonic()
            ids = load.enqueue(self.connection, group,
                               shape.stock * shape.weights[group])
            load.arrivals.append(Arrival(group, ids, sent, time.monotonic(),
                                         load.first))


class Changer(Session):
    """Cancels calls, and changes settings during them."""

    def work(self):
        load, r = self.load, self.random
        workers = None
        while not load.stop.is_set():
            time.sleep(r.random() * 0.004)
            if r.random() < 0.5:
                workers = workers or [
                    pid for pid, in self.connection.execute(
                        "SELECT pid FROM pg_stat_activity WHERE"
                        " application_name ~ '^w[0-9]+$' AND pid = ANY (%s)",
                        [load.pids])]
                if workers:
                    self.connection.execute("SELECT pg_cancel_backend(%s::int)",
                                            [r.choice(workers)])
            else:
                sent = time.monotonic()
                self.connection.execute(
                    "SELECT fairq.set_group(%s::text, 'x',"
                    " concurrency => %s::int)", [load.queue, r.randint(1, 9)])
                load.changes.append((sent, time.monotonic()))
