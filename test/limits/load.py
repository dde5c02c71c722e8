"""The load: sessions that enqueue, claim, finish and roll back, and are ended.

Each session is a thread with a connection.  Its calls are drawn from its own seed, and
their results depend on the other sessions.

The records are in the database, in tables limits_sent, limits_done and limits_purged,
written in the transactions that they describe.  So the records are correct
whatever happens to sessions and servers.

In a "risky" transaction, statements may be cancelled. The session deregisters
the claims of its innermost level before each statement, since an error would
end these claims before the session notices the error. The session registers
them again when the statement has succeeded.
"""

import random
import threading
import time
from collections import deque

import psycopg
from psycopg.pq import TransactionStatus

from outside import Claim, Fault, now

LEVELS = ("READ COMMITTED", "READ COMMITTED", "READ COMMITTED",
          "REPEATABLE READ", "SERIALIZABLE")
CANCELLED = "57014"
ENDED = ("57P01", "57P02", "57P03", "08006", "08003", "53300")


class Lost(Exception):
    """Raised when the connection is gone."""


class Failed(Exception):
    """Raised when a risky statement was cancelled."""


def connect(name):
    return psycopg.connect(
        autocommit=True, prepare_threshold=3, application_name=name,
        options="-c lock_timeout=120s -c statement_timeout=180s"
                " -c client_min_messages=error")


class Level:
    """A transaction, or the part of a transaction after a savepoint."""

    def __init__(self):
        self.claims = []        # claims that were made at this level
        self.ended = []         # claims that were ended at this level


class Session(threading.Thread):
    """One session of the load. main: whether this is the session of the test
    itself, which is not a thread.
    """

    def __init__(self, load, name, seed, profile=None):
        super().__init__(name=name, daemon=True)
        self.load, self.profile = load, profile
        self.outside = load.outside
        self.random = random.Random(f"{seed} {name}")
        self.connection = None
        self.pid = None
        self.doomed = False     # whether the session is about to be ended
        self.levels = []        # the open transaction's savepoints, with claims
        self.held = {}          # key -> claim: leases that have committed
        self.cancel = threading.Lock()  # held while the session's statement is cancelled
        self.cancellable = False
        self.risky = False
        self.serial = 0
        self.idle = threading.Event()
        self.statements = 0

    # ---- statements

    def connect(self):
        while True:
            self.load.may_connect.wait()
            try:
                connection = connect(self.name)
            except psycopg.OperationalError:
                time.sleep(0.03)
                continue
            with self.outside.lock:
                if not self.load.may_connect.is_set():
                    connection.close()
                    continue
                self.connection = connection
                self.pid = connection.info.backend_pid
                self.doomed = False
            return

    def execute(self, sql, *arguments):
        """Returns rows, or None. Does not change the registered claims."""
        hidden = []
        if self.risky:
            if self.levels:
                hidden = self.levels[-1].claims
                self.outside.deregister(hidden)
            with self.cancel:
                self.cancellable = True
        self.statements += 1
        entry = [now(), None, self.name, sql, arguments, None]
        self.load.log.append(entry)
        try:
            # If a timeout occurs at the end of a prepared COMMIT, the Sync
            # reports it as an error of a statement that has taken effect. If
            # the COMMIT is not prepared, the next statement reports it.
            cursor = self.connection.execute(
                sql, arguments, prepare=None if arguments else False)
            rows = cursor.fetchall() if cursor.description else None
            entry[5] = rows
        except psycopg.Error as error:
            entry[5] = f"{error.sqlstate}: {error}"
            self._failed(error, error.sqlstate, sql)
        except ValueError as error:
            # The driver got a result and an error while it prepared the statement,
            # because of a shutdown or a late timeout. The test does not know which of
            # the two statements ended.
            entry[5] = str(error)
            if self.risky:
                with self.outside.lock:
                    self.doom()
            self._failed(error, ENDED[0], sql)
        finally:
            entry[1] = now()
            if self.risky:
                with self.cancel:
                    self.cancellable = False
        self._register(hidden)
        return rows

    def _failed(self, error, sqlstate, sql):
        # psycopg does not always notice a dead connection at once
        if (self.connection.closed or self.connection.broken
                or sqlstate in ENDED):
            if not self.doomed and not self.load.stopping:
                raise Fault(f"{self.name} lost its connection: {error}"
                            f" in {sql}") from None
            raise Lost() from None
        if self.risky and sqlstate == CANCELLED:
            raise Failed() from None
        raise Fault(f"{self.name}: {sqlstate} {error} in {sql}"
                    ) from None

    def value(self, sql, *arguments):
        return self.execute(sql, *arguments)[0][0]

    def _register(self, claims):
        with self.outside.lock:
            if not self.doomed:
                self.outside.register(claims)

    def doom(self):
        """Prepares for the end of this session. The caller holds
        outside.lock."""
        self.doomed = True
        for level in self.levels:
            self.outside.deregister(level.claims)

    # ---- the queue

    def label(self):
        """A number that the claims of one call of pop share with no other
        claims."""
        self.serial += 1
        label = f"{self.name}.{self.serial}"
        self.load.labels[label] = [now(), None]
        return label

    def claims(self, rows, sent, taken=False):
        returned = now()
        return [Claim(id, group, attempt, sent, returned, taken)
                for id, group, attempt in rows]

    def pop(self, most, per_group=None):
        label = self.label()
        sent = now()
        rows = self.execute(
            "SELECT id, group_key, attempt FROM fairq.pop(%s::text, %s::int,"
            " per_group => %s::int, worker => %s::text)",
            self.load.queue, most, per_group, label)
        claims = self.claims(rows, sent)
        self.load.labels[label][1] = now()
        if self.levels:
            self.levels[-1].claims = self.levels[-1].claims + claims
        else:
            self.held.update((claim.key, claim) for claim in claims)
        self._register(claims)
        return claims

    def take(self, most, per_group=None):
        sent = now()
        rows = self.execute(
            "WITH c AS (SELECT id, group_key, attempt"
            " FROM fairq.take(%s::text, %s::int, %s::int)),"
            " d AS (INSERT INTO limits_done SELECT id FROM c)"
            " SELECT id, group_key, attempt FROM c",
            self.load.queue, most, per_group)
        claims = self.claims(rows, sent, taken=True)
        if self.levels:
            self.levels[-1].claims = self.levels[-1].claims + claims
            self._register(claims)
        return claims

    def ending(self, claims):
        """Call this before a statement that finishes these claims is sent."""
        if not self.levels:
            self.outside.deregister(claims)

    def ended(self, claims, good, what):
        if not good:
            raise Fault(f"{self.name} could not {what} {claims}: lost")
        if self.levels:
            self.levels[-1].ended = self.levels[-1].ended + list(claims)
        else:
            for claim in claims:
                del self.held[claim.key]

    def in_vain(self, claims):
        """Call this after a statement in autocommit was cancelled. Its tasks
        are then still running."""
        if not self.levels:
            self._register(claims)

    def complete(self, claim):
        self.ending([claim])
        try:
            good = self.value(
                "WITH c AS MATERIALIZED ("
                "SELECT fairq.complete(%s::bigint, %s::int) AS good),"
                " d AS (INSERT INTO limits_done SELECT %s FROM c WHERE good)"
                " SELECT good FROM c", claim.id, claim.attempt, claim.id)
        except Failed:
            self.in_vain([claim])
            raise
        self.ended([claim], good, "complete")

    def complete_batch(self, claims):
        ids = [claim.id for claim in claims]
        self.ending(claims)
        try:
            lost = self.value(
                "WITH c AS MATERIALIZED (SELECT"
                " fairq.complete_batch(%s::bigint[], %s::int[]) AS lost),"
                " d AS (INSERT INTO limits_done"
                " SELECT unnest(%s::bigint[]) FROM c)"
                " SELECT lost FROM c", ids, [claim.attempt for claim in claims],
                ids)
        except Failed:
            self.in_vain(claims)
            raise
        self.ended(claims, lost == [], f"complete (lost: {lost})")

    def release(self, claim):
        self.ending([claim])
        try:
            good = self.value("SELECT fairq.release(%s::bigint, %s::int)",
                              claim.id, claim.attempt)
        except Failed:
            self.in_vain([claim])
            raise
        self.ended([claim], good, "release")

    def enqueue(self, group, priority):
        self.execute("INSERT INTO limits_sent SELECT fairq.enqueue(%s::text,"
                     " %s::text, priority => %s::int)",
                     self.load.queue, group, priority)

    def enqueue_batch(self, groups, priority):
        self.execute("INSERT INTO limits_sent SELECT * FROM"
                     " fairq.enqueue_batch(%s::text, %s::text[],"
                     " array_fill('{}'::jsonb, ARRAY[%s::int]), %s::int)",
                     self.load.queue, groups, len(groups), priority)

    def purge(self, group):
        """Purges all ready tasks of a group."""
        self.execute("INSERT INTO limits_purged SELECT"
                     " fairq.purge(%s::text, %s::text)"
                     " FROM fairq.group_number JOIN fairq.queue USING (queue_id)"
                     " WHERE name = %s AND group_key = %s LIMIT 1",
                     self.load.queue, group, self.load.queue, group)

    # ---- transactions

    def begin(self, isolation="READ COMMITTED"):
        self.execute(f"BEGIN ISOLATION LEVEL {isolation}")
        self.levels = [Level()]

    def savepoint(self):
        self.execute(f"SAVEPOINT s{len(self.levels)}")
        self.levels.append(Level())

    def release_savepoint(self):
        self.execute(f"RELEASE SAVEPOINT s{len(self.levels) - 1}")
        # doom() must find each claim in some level
        with self.outside.lock:
            level = self.levels.pop()
            self.levels[-1].claims = self.levels[-1].claims + level.claims
            self.levels[-1].ended = self.levels[-1].ended + level.ended

    def _gone(self, first):
        """Call this before a rollback to the level first is sent."""
        with self.outside.lock:
            for level in self.levels[first:]:
                self.outside.deregister(level.claims)
                level.claims = []

    def rollback_to(self, first):
        self._gone(first)
        try:
            self.execute(f"ROLLBACK TO SAVEPOINT s{first}")
        finally:
            # in any case this savepoint still exists, but no later savepoint
            # does
            self.levels[first:] = [Level()]

    def rollback(self):
        self._gone(0)
        while True:
            try:
                self.execute("ROLLBACK")
                break
            except Failed:
                continue
        self.levels = []

    def commit(self):
        claims = {claim.key: claim for level in self.levels
                  for claim in level.claims}
        ended = {claim.key: claim for level in self.levels
                 for claim in level.ended}
        stay = {key: claim for key, claim in claims.items()
                if key not in ended and not claim.taken}
        self.outside.deregister(claims.values() if self.risky else
                                [c for c in claims.values()
                                 if c.key not in stay])
        self.outside.deregister(ended.values())
        for level in self.levels if self.risky else ():
            level.claims = []
        try:
            self.execute("COMMIT")
        except Failed:
            self.levels = [Level()]
            self._register([claim for key, claim in ended.items()
                            if key in self.held])
            raise
        with self.outside.lock:
            self.levels = []
            for key in ended:
                self.held.pop(key, None)
            self.held.update(stay)
            if self.risky:
                self._register(stay.values())

    def available(self):
        """The tasks that this session may finish."""
        ended = {claim.key for level in self.levels for claim in level.ended}
        mine = list(self.held.values()) + [
            claim for level in self.levels for claim in level.claims
            if not claim.taken]
        return [claim for claim in mine if claim.key not in ended]

    def reconcile(self):
        """Reads this session's tasks from the table after the connection was
        lost.
        """
        rows = self.execute(
            "SELECT id, group_key, attempt, worker FROM fairq.tasks"
            " WHERE queue = %s AND status = 'running'"
            " AND starts_with(worker, %s)",
            self.load.queue, self.name + ".")
        seen = now()
        mine = {}
        for id, group, attempt, label in rows:
            claim = self.held.get((id, attempt))
            if claim is None:
                times = self.load.labels[label]
                times[1] = times[1] or seen
                claim = Claim(id, group, attempt, *times)
            mine[claim.key] = claim
        with self.outside.lock:
            self.outside.deregister([claim for key, claim in self.held.items()
                                     if key not in mine])
            self.held = mine
            self._register(mine.values())

    # ---- the life of a session

    def run(self):
        try:
            self.connect()
            while not self.load.stopping:
                if self.load.resting.is_set():
                    if self.doomed:
                        self.come_back()
                    self.idle.set()
                    time.sleep(0.01)
                    continue
                self.idle.clear()
                try:
                    self.act()
                except Failed:
                    self.recover()
                except Lost:
                    self.come_back()
            self.connection.close()
        except BaseException as error:
            self.load.fail(error)
        finally:
            self.idle.set()

    def come_back(self):
        self.load.lost += 1
        while True:
            old = self.pid
            self.connection.close()
            self.connect()
            self.levels = []
            self.risky = False
            try:
                # the client learns of the session's end before the transaction
                # is undone
                while self.execute("SELECT pid FROM pg_stat_activity"
                                   " WHERE pid = %s", old):
                    time.sleep(0.01)
                return self.reconcile()
            except Lost:
                pass

    def recover(self):
        """Rolls back after a statement was cancelled."""
        self.load.cancelled += 1
        try:
            if not self.levels:
                if (self.connection.info.transaction_status
                        != TransactionStatus.IDLE):
                    self.rollback()
                self.plain()
                return
            # the session's innermost level is gone
            with self.outside.lock:
                self.levels[-1].claims = []
            if len(self.levels) > 1 and self.random.random() < 0.7:
                try:
                    self.rollback_to(self.random.randrange(1,
                                                           len(self.levels)))
                    self.commit()
                    self.plain()
                    return
                except Failed:
                    pass
            self.rollback()
            self.plain()
        except Lost:
            self.come_back()

    def plain(self):
        """Disable statement_timeout. The timeout may also hit the SET. The
        server may report that only for the next statement.
        """
        while True:
            try:
                self.execute("SET statement_timeout = '180s'")
                self.execute("SELECT 1")
                break
            except Failed:
                continue
        self.risky = False

    def act(self):
        r = self.random
        self.risky = self.load.cancels and r.random() < 0.25
        timeout = self.risky and r.random() < 0.7
        if timeout:
            self.execute(f"SET statement_timeout = {r.randint(1, 12)}")
        if r.random() < 0.4:
            self.step()
        else:
            self.begin(r.choice(LEVELS))
            for _ in range(r.choice((1, 1, 2, 2, 3, 4, 6))):
                if r.random() < 0.3:
                    self.structure()
                else:
                    self.step()
                if self.load.naps and r.random() < 0.05:
                    time.sleep(r.random() * 0.1)
            if r.random() < 0.75:
                self.commit()
            else:
                self.rollback()
        self.plain() if timeout else None
        self.risky = False

    def structure(self):
        r = self.random
        inside = len(self.levels)
        if inside == 1 or r.random() < 0.4:
            self.savepoint()
        elif r.random() < 0.6:
            self.rollback_to(r.randrange(1, inside))
        else:
            self.release_savepoint()

    def step(self):
        r = self.random
        produce, claim = self.profile
        if r.random() < produce:
            if self.load.backlog > self.load.most_backlog:
                time.sleep(0.02)
                return
            if r.random() < 0.5:
                self.enqueue(self.load.group(r), self.load.priority(r))
            else:
                self.enqueue_batch([self.load.group(r) for _ in
                                    range(r.choice((2, 5, 20, 60)))],
                                   self.load.priority(r))
            return
        mine = self.available()
        wanted = 5 + self.load.hold
        if r.random() < (claim if len(mine) < wanted else 0.1):
            per_group = r.choice((None,) * 8 + (1, 2))
            most = r.choice((1, 1, 2, 4, 8, 20))
            if r.random() < 0.75:
                self.pop(most, per_group)
            else:
                self.take(most, per_group)
        elif r.random() < 0.01:
            self.purge(self.load.group(r))
        elif mine:
            way = r.random()
            if way < 0.4:
                self.complete(r.choice(mine))
            elif way < 0.8:
                self.complete_batch(r.sample(mine, r.randint(1, len(mine))))
            else:
                self.release(r.choice(mine))


class Admin(Session):
    """Changes limits, pauses and resumes groups and queues, and resets
    hints."""

    def reconcile(self):
        pass

    def act(self):
        r = self.random
        time.sleep(r.random() * 0.3)
        way = r.random()
        if way < 0.2:
            self.execute("SELECT fairq.reset_hints()")
        elif way < 0.3:
            # the statement has had no effect
            sql, arguments, _ = self.draw()
            self.execute("BEGIN")
            self.execute(sql, *arguments)
            time.sleep(r.random() * 0.05)
            self.execute("ROLLBACK")
        else:
            sql, arguments, note = self.draw()
            note()
            self.outside.changing()
            self.insist(sql, arguments, r.random() < 0.3)
            self.outside.changed()

    def insist(self, sql, arguments, block):
        """Repeats the statement until it is known to have committed."""
        while True:
            try:
                if not block:
                    self.execute(sql, *arguments)
                    return
                self.execute("BEGIN")
                self.execute(sql, *arguments)
                time.sleep(self.random.random() * 0.05)
                self.execute("COMMIT")
                return
            except Lost:
                self.come_back()

    def draw(self):
        """A change: its statement, and the function that records that it is
        about to be sent."""
        r, queue = self.random, self.load.queue
        settings = self.outside.settings
        way = r.random()
        group = r.choice(sorted(settings))
        paused = sorted(g for g in settings if settings[g][1])
        if self.outside.paused or way < 0.02:
            return self.pause_queue(not self.outside.paused)
        if paused and (way < 0.3 or len(paused) > 5):
            return self.pause_group(r.choice(paused), False)
        if way < 0.4:
            return self.pause_group(group, True)
        if way < 0.5 and self.load.of_queue:
            return self.limit_queue("concurrency", r.choice((1, 2, 3, 4, 0)))
        if way < 0.6 and self.load.max_running:
            return self.limit_queue("max_running",
                                    r.choice((1, 10, 20, 40, 60, 0)))
        most = r.choice((0, 1, 2, 3, 4, 5))
        return self.limit_group(
            group, 3 * most if group in self.outside.tenants else most)

    def pause_queue(self, paused):
        def note():
            self.outside.paused = paused
        return (f"SELECT fairq.{'pause' if paused else 'resume'}(%s::text)",
                (self.load.queue,), note)

    def pause_group(self, group, paused):
        def note():
            self.outside.settings[group][1] = paused
        return (f"SELECT fairq.{'pause' if paused else 'resume'}"
                "(%s::text, %s::text)", (self.load.queue, group), note)

    def limit_group(self, group, most):
        def note():
            self.outside.settings[group][0] = most or None
        return ("SELECT fairq.set_group(%s::text, %s::text,"
                " concurrency => %s::int)",
                (self.load.queue, group, most), note)

    def limit_queue(self, name, most):
        def note():
            setattr(self.outside, name, most or None)
        return (f"SELECT fairq.alter_queue(%s::text, {name} => %s::int)",
                (self.load.queue, most), note)


class Observer(threading.Thread):
    """Checks the table all the time."""

    def __init__(self, load):
        super().__init__(daemon=True)
        self.load = load
        self.looks = 0

    def run(self):
        connection = None
        try:
            while not self.load.stopping:
                self.load.may_connect.wait()
                try:
                    if connection is None:
                        connection = connect("observer")
                    self.look(connection)
                except psycopg.OperationalError:
                    connection = None
                    time.sleep(0.05)
            if connection:
                connection.close()
        except BaseException as error:
            self.load.fail(error)

    def look(self, connection):
        if self.looks % 5 == 0:
            self.load.backlog = connection.execute(
                "SELECT count(*) FROM fairq.task").fetchone()[0]
        self.looks += 1
        rows = connection.execute(
            "SELECT id, group_key, attempt, worker FROM fairq.tasks"
            " WHERE queue = %s AND status = 'running'",
            (self.load.queue,)).fetchall()
        seen = now()
        labels = self.load.labels
        self.load.outside.observed(
            [Claim(id, group, attempt, labels[label][0],
                   labels[label][1] or seen)
             for id, group, attempt, label in rows])
        time.sleep(0.03)


class Log(deque):
    """The last statements of a session. If a file is given, all statements are
    written to the file."""

    def lines(self, count=60):
        for sent, returned, name, *call in list(self)[-count:]:
            sql, arguments, result = call
            yield (f"{sent:.4f} {returned or 0:.4f} {name}: {sql} {arguments}"
                   f" -- {result}")
