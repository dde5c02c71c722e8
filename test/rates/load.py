"""The load: workers, and disturbances.

A worker is a process with its own connection.  The worker logs the result of
each call, with the times before the send and after the result.  The times are
those of the monotonic clock, which all processes and the server share.  In the
same statement, each call also writes its result into a table.  So the test
knows a committed result even if it has not reached its worker.
"""

import logging
import multiprocessing
import pickle
import random
import time
from collections import defaultdict, namedtuple

import psycopg

from account import Epoch

now = time.monotonic
# otherwise psycopg logs each transaction whose connection is closed
logging.getLogger("psycopg").setLevel(logging.CRITICAL)


class Kind(namedtuple("Kind", "name options groups own supply tenants",
                      defaults=[()])):
    """A queue: its first settings, the number of its groups, the rate of the
    first group, the tasks of each group, and its tenants.
    """

    def group(self, i):
        return (f"{self.tenants[i % len(self.tenants)]}/g{i}" if self.tenants
                else f"g{i}")

    def all_groups(self):
        return [self.group(i) for i in range(self.groups)]

    def held(self):
        """The keys for which a hold is possible.  None is the queue itself."""
        return [None] if self.supply == 1 else [
            None, self.group(0), self.group(1), *self.tenants]


KINDS = [
    Kind("even", dict(per="1 second", rate=10, burst=1), 3, 4, 60),
    Kind("bursts", dict(per="1 second", rate=10, burst=6, max_rate=20,
                        concurrency=6), 4, None, 60),
    Kind("total", dict(per="1 second", max_rate=20, burst=3, max_running=12),
         3, None, 60),
    Kind("by_time", dict(per="1 second", rate=8, burst=2, fair_by="time"),
         2, None, 60),
    Kind("by_cost", dict(per="1 second", rate=8, burst=2, max_rate=14,
                         fair_by="cost", shares=[3, 1]), 2, None, 60),
    # the groups of these queues are created and deleted
    Kind("passing", dict(rate=2, per="4 seconds", burst=2), 12, None, 1),
]
KIND = {kind.name: kind for kind in KINDS}
PERS = {"1 second": 1.0, "4 seconds": 4.0}
OWN = (2, 4, 30)                # possible rates of a group or tenant

# The errors of a connection or statement that the test has ended on purpose.
# (25P02: an earlier statement of the transaction was ended.)
ENDED = ("25P02", "57014", "57P01", "57P02", "57P03", "57P05")


def draw(seed):
    """Gives queues tenants: "bursts" always, "by_time" never, and others as
    the seed determines.
    """
    r = random.Random(f"{seed} tenants")
    for i, kind in enumerate(KINDS):
        if kind.name == "bursts" or (kind.name != "by_time"
                                     and r.random() < 0.5):
            options = dict(kind.options, separator="/")
            KINDS[i] = kind._replace(options=options, tenants=("t0", "t1"))
            KIND[kind.name] = KINDS[i]


def connect(server, name):
    return psycopg.connect(
        **server, autocommit=True, application_name=name, connect_timeout=10,
        options="-c statement_timeout=60s -c client_min_messages=error")


def is_ended(error):
    """Returns whether the test has ended the session or the statement."""
    return error.sqlstate in ENDED or (
        error.sqlstate is None and isinstance(error, psycopg.OperationalError))


class Worker(multiprocessing.Process):
    def __init__(self, server, number, seed, end, path):
        super().__init__(daemon=True)
        self.server, self.number, self.path = server, number, path
        self.seed, self.end = seed, end
        self.calls = []
        self.faults = []

    def run(self):
        self.random = random.Random(f"{self.seed} {self.number}")
        self.made = 0
        db = None
        while now() < self.end:
            try:
                if db is None or db.closed:
                    db = connect(self.server, "rates worker")
                self.step(db)
            except psycopg.Error as error:
                if not is_ended(error):
                    self.faults.append(f"{type(error).__name__}: {error}")
                    break
                time.sleep(0.01)
            if db is not None and not db.closed:
                try:
                    db.rollback()
                    db.execute("SET statement_timeout = '60s'")
                except psycopg.Error:
                    db.close()
        with open(self.path, "wb") as file:
            pickle.dump((self.calls, self.faults), file)

    def claim(self, db, queue):
        """[id] of the tasks of one call."""
        r = self.random
        self.made += 1
        call = f"{self.number}.{self.made}"
        got = (f"fairq.take('{queue}', {r.choice((1, 3, 100))})"
               if r.random() < 0.2 else
               f"fairq.pop('{queue}', {r.choice((1, 1, 3, 100))},"
               f" lease => '{r.choice((20, 50, 200, 2000))} ms')")
        if r.random() < 0.05:
            # the call usually ends before this timeout
            db.execute(f"SET statement_timeout = {r.randint(1, 3)}")
        since = now()
        try:
            rows = db.execute(
                f"INSERT INTO started SELECT '{call}', group_key, id FROM {got}"
                " RETURNING group_key, id").fetchall()
        except psycopg.Error:
            self.calls.append((call, queue, since, now(), None))
            raise
        by = now()
        if rows:
            self.calls.append((call, queue, since, by,
                               [key for key, _ in rows]))
        return [id for _, id in rows]

    def step(self, db):
        r = self.random
        queue = r.choice(KINDS).name
        way = r.random()
        if way < 0.7:
            ids = self.claim(db, queue)
        else:
            with db.transaction(force_rollback=way < 0.85):
                if way > 0.95:
                    with db.transaction(force_rollback=True):
                        self.claim(db, queue)
                ids = self.claim(db, queue)
            if way < 0.85:
                ids = []
        if ids:
            self.finish(db, ids)
        elif r.random() < 0.03:
            # the timeout follows the wall clock, which may be set back
            db.execute(f"CALL fairq.wait('{queue}', '100 ms')")

    def finish(self, db, ids):
        """Ends the tasks, or keeps them running until their leases end."""
        fate = self.random.random()
        if fate < 0.6:
            db.execute("SELECT fairq.complete_batch(%s::bigint[])", [ids])
        elif fate < 0.7:
            db.execute("SELECT fairq.release(id) FROM unnest(%s::bigint[]) id",
                       [ids])
        elif fate < 0.8:
            db.execute("SELECT fairq.fail(id, retry_in => '0')"
                       " FROM unnest(%s::bigint[]) id", [ids])


class Settings:
    """The settings, and the times of their changes."""

    def __init__(self):
        self.of = {kind.name: dict(kind.options) for kind in KINDS}
        self.own = {kind.name: dict.fromkeys(kind.tenants[:1], 3)
                    for kind in KINDS}
        for kind in KINDS:
            if kind.own:
                self.own[kind.name][kind.group(0)] = kind.own
        self.epochs = defaultdict(list)     # (queue, group or None) -> epochs
        self.open = {}                      # ... -> the current epoch
        self.holds = defaultdict(list)      # ... -> [since, to]

    def keys(self, queue):
        """The keys of a queue's settings. None is the queue itself."""
        kind = KIND[queue]
        return [None, *kind.tenants, *kind.all_groups()]

    def rate(self, queue, key):
        if key is None:
            return self.of[queue].get("max_rate")
        # the queue's rate does not apply to tenants
        return self.own[queue].get(key) or (
            key not in KIND[queue].tenants and self.of[queue].get("rate"))

    def end(self, queue, keys):
        """Call this before a change of the settings."""
        for key in keys:
            epoch = self.open.pop((queue, key), None)
            if epoch:
                self.epochs[queue, key].append(epoch._replace(to=now()))

    def begin(self, queue, keys):
        """Call this after a change of the settings."""
        at = now()
        of = self.of[queue]
        for key in keys:
            if self.rate(queue, key):
                self.open[queue, key] = Epoch(
                    at, None, self.rate(queue, key),
                    PERS[of["per"]], of["burst"])

    def end_holds(self, queue=None, key=None):
        """Ends the known holds of one key, or of all keys.  After that the test
        does not know whether these holds continue."""
        for at, holds in self.holds.items():
            if holds and queue in (None, at[0]) and (queue is None
                                                      or key == at[1]):
                holds[-1][1] = min(holds[-1][1], now())
