"""The sessions of chaos.py: clients that die, a session that disturbs them, and
sessions that check.

Each session records its work on tasks in tables, in the transaction of that
work.  self.chaos is the run, which all sessions share.
"""

import json
import random
import threading
import time
import traceback
from collections import Counter, defaultdict, namedtuple

import psycopg

from base import (Fault, column, connect, cut, expect, now, rows, value)

ENDED = ("57P01", "57P02", "57P03", "08006", "08003", "53300")

Kind = namedtuple("Kind", "name options own")
KINDS = [
    Kind("life_free", dict(lease="300 ms", backoff="2 ms"), {}),
    Kind("life_kept", dict(lease="300 ms", backoff="2 ms", retain="1 day",
                           max_attempts=4), {}),
    Kind("life_groups", dict(lease="300 ms", backoff="2 ms", concurrency=2,
                             max_attempts=8), {"g0": 1, "g3": 5}),
    Kind("life_tight", dict(lease="300 ms", backoff="2 ms", concurrency=3,
                            max_running=6, retain="1 day"), {}),
]
HELPED = "life_kept"            # expire_leases() runs for this queue all the
                                # time, and for others only in the second half
REDRIVEN = "life_tight"         # the queue whose failed tasks are redriven
SHAKY = ("life_groups", "g5")   # this group's limit changes all the time
MOST_SHAKY = 4
GROUPS = [f"g{n}" for n in range(8)]
MOST_BACKLOG = 250
SLICE = 5                       # seconds


class Lost(Exception):
    """Raised when the connection is gone."""


class Session(threading.Thread):
    """A client that may be killed, and then starts again."""

    def __init__(self, chaos, name, seed):
        super().__init__(name=name, daemon=True)
        self.chaos = chaos
        self.random = random.Random(f"{seed} {name}")
        self.db = None
        self.pid = 0

    def run(self):
        try:
            while not self.is_over():
                try:
                    if self.db is None:
                        self.db = connect("life " + self.name)
                        self.pid = self.db.info.backend_pid
                    self.act()
                except psycopg.Error as error:
                    if not self.is_lost(error):
                        raise
                    self.lose()
                except Lost:
                    self.lose()
        except Fault as fault:
            self.chaos.fail(f"{self.name}: {fault}")
        except Exception:
            self.chaos.fail(f"{self.name}: {traceback.format_exc()}")
        finally:
            if self.db is not None:
                self.db.close()

    def is_over(self):
        return self.chaos.over.is_set()

    def is_lost(self, error):
        return (self.db is None or self.db.closed or self.db.broken
                or error.sqlstate in ENDED)

    def lose(self):
        self.chaos.lost += 1
        if self.db is not None:
            self.db.close()
        else:
            # the server may be down
            time.sleep(0.02)
        self.db = None

    # ---- death

    def may_die(self, where, likely=0.015):
        if self.chaos.calm or self.random.random() > likely:
            return
        self.chaos.deaths[where] += 1
        if self.random.random() < 0.5:
            self.chaos.end(self.pid)
            # the client notices the loss at its next statement
            while True:
                self.db.execute("SELECT pg_sleep(0.001)")
        cut(self.db)
        raise Lost()

    def commit(self, what):
        """Sends COMMIT or ROLLBACK, or loses the connection before the answer
        to COMMIT.
        """
        if not self.chaos.calm and self.random.random() < 0.1:
            time.sleep(self.random.random() * 0.15)
        self.may_die(f"before the commit of {what}")
        if not self.chaos.calm and self.random.random() < 0.01:
            self.chaos.deaths[f"during the commit of {what}"] += 1
            self.db.pgconn.send_query(b"COMMIT")
            if self.random.random() < 0.5:
                time.sleep(self.random.random() * 0.002)
            cut(self.db)
            raise Lost()
        if self.random.random() < 0.07:
            self.db.execute("ROLLBACK")
            return False
        self.db.execute("COMMIT")
        self.may_die(f"after the commit of {what}")
        return True


class Producer(Session):
    def is_over(self):
        return self.chaos.calm

    def act(self):
        r = self.random
        kind = r.choice(KINDS)
        if self.chaos.backlog[kind.name] > MOST_BACKLOG:
            time.sleep(0.01)
            return
        way = r.random()
        if way < 0.5:
            self.enqueue(kind.name, keyed=True)
            self.may_die("after an enqueue", 0.005)
        elif way < 0.7:
            self.batch(kind.name)
        elif way < 0.75:
            self.waiting(kind.name)
        else:
            self.db.execute("BEGIN")
            # keys are in one order only, or two transactions might wait for
            # each other
            for n in range(r.choice((1, 2, 5))):
                self.enqueue(r.choice(KINDS).name, keyed=n == 0)
            if r.random() < 0.3:
                self.db.execute("SAVEPOINT s")
                self.batch(kind.name, keyed=False)
                self.db.execute(r.choice(("ROLLBACK TO s", "RELEASE s")))
            self.commit("enqueues")

    def group(self):
        r = self.random
        if r.random() < 0.08:
            return f"guest{r.randrange(300)}"
        return r.choice(GROUPS)

    def key(self, likely=0.15):
        r = self.random
        return f"k{r.randrange(40)}" if r.random() < likely else None

    def options(self):
        """Draws a priority, the seconds until the task may begin, and the
        seconds until it expires."""
        r = self.random
        return (r.choice((0, 0, 0, 0, 0, 1, 5)),
                r.random() * 1.5 if r.random() < 0.15 else None,
                r.random() * r.choice((0.1, 2)) if r.random() < 0.1 else None)

    def waiting(self, queue):
        """Creates a batch.  If the session dies, its batch stays open."""
        r = self.random
        self.db.execute("BEGIN")
        batch = value(self.db,
                      "WITH b AS MATERIALIZED (SELECT fairq.create_batch(%s,"
                      " %s, on_success => %s) AS id) INSERT INTO life_sent"
                      " SELECT id, %s, %s, 0 FROM b RETURNING id", queue,
                      group := self.group(), r.random() < 0.3, queue, group)
        for n in range(r.choice((0, 1, 2, 5))):
            self.enqueue(r.choice(KINDS).name, False, batch)
        if self.commit("a batch"):
            self.db.execute("SELECT fairq.close_batch(%s)", [batch])

    def enqueue(self, queue, keyed, batch=None):
        r = self.random
        group, key = self.group(), self.key() if keyed else None
        priority, delay, expiry = self.options()
        most = r.randint(1, 3) if r.random() < 0.1 else None
        self.db.execute(
            "WITH t AS MATERIALIZED (SELECT now + %s * interval '1 s' AS run_at,"
            " now + %s * interval '1 s' AS expires_at FROM clock_timestamp() now),"
            " e AS MATERIALIZED (SELECT fairq.enqueue(%s, %s, priority => %s,"
            " run_at => run_at, dedup_key => %s, max_attempts => %s,"
            " expires_at => expires_at, batch => %s) AS id, run_at, expires_at"
            " FROM t),"
            " a AS (INSERT INTO life_answers SELECT id, %s, %s FROM e)"
            " INSERT INTO life_sent SELECT id, %s, %s, %s, %s, %s, run_at,"
            " expires_at, %s FROM e ON CONFLICT DO NOTHING",
            [delay, expiry, queue, group, priority, key, most, batch, queue,
             key, queue, group, priority, key, most, batch])

    def batch(self, queue, keyed=True):
        count = self.random.choice((1, 3, 10, 30))
        groups = [self.group() for _ in range(count)]
        keys = [self.key(0.1 if keyed else 0) for _ in range(count)]
        priority, delay, expiry = self.options()
        self.db.execute(
            "WITH t AS MATERIALIZED (SELECT now + %s * interval '1 s' AS run_at,"
            " now + %s * interval '1 s' AS expires_at FROM clock_timestamp() now),"
            " e AS MATERIALIZED (SELECT e.id, g.grp, g.key, e.n, t.run_at,"
            " t.expires_at FROM t, fairq.enqueue_batch(%s, %s::text[],"
            " array_fill('{}'::jsonb, ARRAY[%s::int]), %s, t.run_at,"
            " %s::text[], expires_at => t.expires_at)"
            " WITH ORDINALITY AS e (id, n)"
            " JOIN unnest(%s::text[], %s::text[]) WITH ORDINALITY"
            " AS g (grp, key, n) ON e.n = g.n),"
            " a AS (INSERT INTO life_answers SELECT id, %s, key FROM e)"
            " INSERT INTO life_sent SELECT DISTINCT ON (id) id, %s, grp, %s,"
            " key, NULL, run_at, expires_at FROM e ORDER BY id, n"
            " ON CONFLICT DO NOTHING",
            [delay, expiry, queue, groups, count, priority, keys, groups, keys,
             queue, queue, priority])


class Worker(Session):
    def act(self):
        r = self.random
        queue = r.choice(KINDS).name
        if r.random() < 0.08:
            self.take(queue)
            return
        tasks = self.pop(queue)
        self.may_die("after a pop")
        if not tasks:
            if r.random() < 0.9:
                self.wait(queue)
        else:
            while tasks:
                self.work(tasks)

    def wait(self, queue):
        timeout = self.random.choice(("50 ms", "200 ms"))
        if not self.chaos.calm and self.random.random() < 0.02:
            self.chaos.deaths["while it waits"] += 1
            self.db.pgconn.send_query(
                f"CALL fairq.wait('{queue}', '{timeout}')".encode())
            time.sleep(self.random.random() * 0.02)
            cut(self.db)
            raise Lost()
        self.db.execute(f"CALL fairq.wait('{queue}', '{timeout}')")

    def pop(self, queue):
        r = self.random
        call = ("WITH p AS MATERIALIZED (SELECT id, attempt, lease_until"
                " FROM fairq.pop(%s, %s, lease => %s, worker => %s)),"
                " b AS (INSERT INTO life_pops"
                " SELECT *, lease_until - %s::interval FROM p)"
                " SELECT id, attempt FROM p")
        lease = f"{r.randint(100, 500)} ms"
        arguments = [queue, r.choice((1, 1, 1, 2, 4, 10)), lease, self.name,
                     lease]
        if r.random() < 0.6:
            return rows(self.db, call, *arguments)
        self.db.execute("BEGIN")
        tasks = rows(self.db, call, *arguments)
        return tasks if self.commit("a pop") else []

    def take(self, queue):
        self.db.execute("BEGIN")
        tasks = rows(self.db,
                     "WITH p AS MATERIALIZED (SELECT id, attempt"
                     " FROM fairq.take(%s, %s)),"
                     " b AS (INSERT INTO life_pops"
                     " SELECT id, attempt, '-infinity', NULL FROM p),"
                     " d AS (INSERT INTO life_done"
                     " SELECT id, attempt, 'take' FROM p)"
                     " SELECT id, attempt FROM p",
                     queue, self.random.choice((1, 1, 3, 10)))
        for id, attempt in tasks:
            self.put_back(id, attempt)
        self.commit("a take")
        if not tasks:
            time.sleep(0.005)

    def put_back(self, id, attempt):
        """Sometimes returns the task to the queue in the transaction that took
        it."""
        way = self.random.random()
        if self.chaos.calm or way > 0.3:
            return
        self.db.execute("DELETE FROM life_done WHERE id = %s", [id])
        if way < 0.2:
            expect(self.do_fail(id, attempt), f"task {id} was taken, and"
                   " cannot fail")
        else:
            expect(self.do_release(id, attempt), f"task {id} was taken, and"
                   " cannot be released")
        self.chaos.put_back += 1

    def work(self, tasks):
        r = self.random
        id, attempt = tasks.pop(0)
        time.sleep(r.random() * 0.01)
        self.may_die("while it works")
        if not self.chaos.calm and r.random() < 0.03:
            self.chaos.slow += 1
            time.sleep(r.random() * 0.7)
        if r.random() < 0.15 and not self.extend(id, attempt):
            if r.random() < 0.7:
                return
        way = r.random()
        if self.chaos.calm:
            way *= 0.75
        if way < 0.65:
            self.complete(id, attempt)
        elif way < 0.75:
            self.complete_batch([(id, attempt), *tasks])
            tasks.clear()
        elif way < 0.87:
            self.fail(id, attempt)
        elif way < 0.95:
            self.release(id, attempt)
        # otherwise the lease is lost

    def extend(self, id, attempt):
        return value(self.db,
                     "WITH e AS MATERIALIZED (SELECT"
                     " fairq.extend(%s, %s, %s) AS until),"
                     " b AS (INSERT INTO life_extends SELECT %s, %s, until"
                     " FROM e WHERE until IS NOT NULL)"
                     " SELECT until IS NOT NULL FROM e",
                     id, attempt, f"{self.random.randint(50, 400)} ms",
                     id, attempt)

    def complete(self, id, attempt):
        """Completes the task. The work is done exactly once, since it and its
        end are one transaction."""
        self.db.execute("BEGIN")
        self.db.execute("INSERT INTO life_done VALUES (%s, %s, 'complete')",
                        [id, attempt])
        if value(self.db, "SELECT fairq.complete(%s, %s, %s)", id, attempt,
                 json.dumps(attempt)):
            self.commit("a complete")
        else:
            self.chaos.late += 1
            self.db.execute("ROLLBACK")

    def complete_batch(self, tasks):
        ids, attempts = zip(*tasks)
        self.db.execute("BEGIN")
        lost = value(self.db, "SELECT fairq.complete_batch(%s::bigint[],"
                     " %s::int[])", list(ids), list(attempts))
        if not lost:
            self.db.execute("INSERT INTO life_done SELECT *, 'batch'"
                            " FROM unnest(%s::bigint[], %s::int[])",
                            [list(ids), list(attempts)])
            self.commit("a batch of completes")
        else:
            self.chaos.late += 1
            self.db.execute("ROLLBACK")

    def fail(self, id, attempt):
        self.db.execute("BEGIN")
        self.do_fail(id, attempt)
        self.commit("a fail")

    def do_fail(self, id, attempt):
        r = self.random
        error = f"{self.name} {r.randrange(1000000)}"
        retry_in = r.choice((None, None, "0", "3 ms", "20 ms"))
        dead = r.random() < 0.05
        told = rows(self.db,
                    "WITH f AS MATERIALIZED (SELECT fairq.fail(%s, %s, %s, %s,"
                    " %s) AS good) INSERT INTO life_fails"
                    " SELECT %s, %s, %s, %s FROM f WHERE good RETURNING id",
                    id, attempt, error, retry_in, dead, id, attempt, error, dead)
        return told or self.untold(id, attempt)

    def release(self, id, attempt):
        self.db.execute("BEGIN")
        self.do_release(id, attempt)
        self.commit("a release")

    def do_release(self, id, attempt):
        told = rows(self.db,
                    "WITH f AS MATERIALIZED (SELECT fairq.release(%s, %s, %s)"
                    " AS good) INSERT INTO life_releases"
                    " SELECT %s, %s FROM f WHERE good RETURNING id",
                    id, attempt, self.random.choice(("0", "0", "10 ms")),
                    id, attempt)
        return told or self.untold(id, attempt)

    def untold(self, id, attempt):
        """Records the end of a cancelled task. The call that ended it returned
        false, as for a lost lease.

        The archive shows the end, in a row that this transaction has added.
        """
        self.db.execute("INSERT INTO life_untold SELECT id, attempt"
                        " FROM fairq.archive WHERE id = %s AND attempt = %s"
                        " AND pg_xact_status(xmin::text::xid8) = 'in progress'",
                        [id, attempt])
        return []


class Admin(Session):
    """Disturbs the other sessions: redrives, pauses, changed limits, calls of
    maintain(). This session is not killed."""

    def is_over(self):
        return self.chaos.calm

    def act(self):
        r = self.random
        time.sleep(r.random() * 0.05)
        way = r.random()
        kind = r.choice(KINDS)
        if way < 0.6:
            self.cancel()
        elif way < 0.7:
            self.db.execute("SELECT fairq.set_group(%s, %s,"
                            " concurrency => %s)",
                            [*SHAKY, r.randint(1, MOST_SHAKY)])
        elif way < 0.76:
            group = r.choice(GROUPS)
            self.db.execute("SELECT fairq.pause(%s, %s)", [kind.name, group])
            time.sleep(r.random() * 0.1)
            self.db.execute("SELECT fairq.resume(%s, %s)", [kind.name, group])
        elif way < 0.81:
            self.db.execute(
                "INSERT INTO life_redrives SELECT %s, fairq.redrive(%s,"
                " max_tasks => 2)", [REDRIVEN, REDRIVEN])
        else:
            self.help(way, kind.name)

    def help(self, way, queue):
        """Makes calls that could hide that pops alone do not find some
        tasks."""
        if self.chaos.unaided():
            queue = HELPED
        if way < 0.86:
            self.db.execute("SELECT fairq.expire_leases(%s, 5)", [queue])
        elif way < 0.9:
            if not self.chaos.unaided() and self.random.random() < 0.3:
                queue = None
            self.db.execute("SELECT fairq.maintain(%s)", [queue])
            self.chaos.maintained += 1
        elif way < 0.91 and not self.chaos.unaided():
            self.db.execute("SELECT fairq.reset_hints()")

    def cancel(self):
        ids = self.chaos.unfinished
        if not ids:
            return
        self.db.execute("BEGIN")
        for id in sorted(self.random.sample(ids, min(len(ids), 3))):
            self.db.execute("WITH c AS MATERIALIZED (SELECT fairq.cancel(%s)"
                            " AS good) INSERT INTO life_cancels"
                            " SELECT %s FROM c WHERE good", [id, id])
        self.db.execute(self.random.choice(("COMMIT", "COMMIT", "ROLLBACK")))


class Checker(Session):
    """Calls fairq.check_queue() all the time."""

    def act(self):
        for kind in KINDS:
            # check_queue() may report a change in progress as a fault, so only
            # faults that a second call repeats count
            faults = set(self.look(kind))
            if faults:
                again = faults & set(self.look(kind))
                if again:
                    raise Fault(f"check_queue('{kind.name}'):"
                                f" {sorted(again)[:5]}")
                self.chaos.passing += 1
            self.chaos.checked += 1
            time.sleep(0.2)

    def look(self, kind):
        return column(self.db, "SELECT * FROM fairq.check_queue(%s)",
                      kind.name)


class Observer(Session):
    """Checks limits, backlogs and keys, each time in one snapshot."""

    def __init__(self, chaos, name, seed):
        super().__init__(chaos, name, seed)
        self.looks = self.full = 0
        self.began = now()
        self.waiting = defaultdict(set)     # slice -> groups at each check
        self.least = {}

    def act(self):
        at, tasks, keys = self.db.execute(
            "SELECT clock_timestamp(), (SELECT json_agg(json_build_array("
            "q.name, s.group_key, t.id, t.lease_until IS NOT NULL,"
            " t.priority = 0 AND t.lease_until IS NULL AND t.blocked IS NULL"
            " AND (t.run_at IS NULL OR t.run_at < clock_timestamp())"
            " AND (t.expires_at IS NULL OR t.expires_at > clock_timestamp())))"
            " FROM fairq.task t JOIN fairq.queue q USING (queue_id)"
            " CROSS JOIN LATERAL (SELECT group_key FROM fairq.group_number s"
            " WHERE s.queue_id = t.queue_id AND s.group_no = t.group_no"
            " LIMIT 1) s), (SELECT array_agg(dedup_key) FROM ("
            "SELECT dedup_key FROM fairq.task WHERE dedup_key IS NOT NULL"
            " GROUP BY queue_id, dedup_key HAVING count(*) > 1) k)").fetchone()
        tasks = tasks or []
        expect(not keys, f"two tasks have the dedup_key {keys}")
        running = Counter()
        backlog = Counter()
        ready = set()
        for queue, group, _, runs, is_ready in tasks:
            running[queue, group] += runs
            running[queue, None] += runs
            backlog[queue] += 1
            if is_ready and group in GROUPS:
                ready.add((queue, group))
        for kind in KINDS:
            self.compare(kind, running)
        self.chaos.backlog = backlog
        self.chaos.unfinished = [task[2] for task in tasks]
        self.looks += 1
        if not self.chaos.calm:
            part = int(at.timestamp()) // SLICE
            self.least.setdefault(part, set(ready))
            self.least[part] &= ready
        time.sleep(0.02)

    def compare(self, kind, running):
        for (queue, group), count in running.items():
            if queue != kind.name:
                continue
            if group is None:
                most = kind.options.get("max_running")
            elif (queue, group) == SHAKY:
                most = MOST_SHAKY
            else:
                most = kind.own.get(group, kind.options.get("concurrency"))
            if most is not None:
                self.full += count == most
                expect(count <= most, f"{count} tasks of group {group} of"
                       f" {queue} are running; the limit is {most}")
