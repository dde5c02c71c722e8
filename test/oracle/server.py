"""Sessions of a server, with one method per SQL function. Every call is logged.

A log entry is (session, SQL, arguments, result), and text() makes the steps of a
replay from it.  No call may wait for another session, so lock_timeout and
statement_timeout turn every wait into an error.  Times and intervals are in
microseconds.  FOREVER is an interval that never ends.
"""

import json
import os
import subprocess
import time
from collections import namedtuple
from datetime import datetime, timedelta, timezone

import psycopg

from clock import Clock, Pace
from state import FOREVER

Claim = namedtuple("Claim", "id group attempt priority addr enqueued_at lapses"
                   " lease_until")
Batch = namedtuple("Batch", "id status addr error headers numbers")
Row = namedtuple("Row", "id status attempt run_at lease_until finished_at"
                 " error result")

LEVELS = ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE")


def _micros(column):
    return (f"CASE WHEN {column} = 'infinity' THEN {FOREVER}"
            f" ELSE (extract(epoch FROM {column}) * 1000000)::bigint END")


CLAIMS = ("SELECT id, group_key, attempt, priority, addr,"
          f" {_micros('enqueued_at')}, lapses, {_micros('lease_until')}"
          " FROM fairq.")
TIMES = ", ".join(map(_micros, ("run_at", "lease_until", "finished_at")))
ROWS = (f"SELECT id, status, attempt, {TIMES}, error, result"
        " FROM fairq.tasks WHERE ")
ROWS_CHANGED = (
    f"SELECT id, status, attempt, {TIMES}, error, result FROM ("
    "SELECT xmin, id, CASE WHEN lease_until IS NULL THEN 'queued'"
    " ELSE 'running' END AS status, attempt, run_at, lease_until,"
    " NULL::timestamptz AS finished_at, error, NULL::jsonb AS result"
    " FROM fairq.task UNION ALL SELECT xmin, id,"
    " (ARRAY['completed', 'failed', 'cancelled'])[status], attempt, run_at,"
    " NULL, finished_at, error, result FROM fairq.archive) t"
    " WHERE pg_xact_status(xmin::text::xid8) = 'in progress' AND ")

BATCHES = (
    "SELECT id, t.status, t.addr, t.error, t.headers -> 'batch', CASE WHEN"
    " b.completed IS NOT NULL THEN jsonb_build_object('completed',"
    " b.completed, 'failed', b.failed, 'cancelled', b.cancelled, 'expired',"
    " b.expired, 'purged', b.purged) END"
    " FROM fairq.batches b LEFT JOIN fairq.tasks t USING (id) WHERE ")

# a replay needs only the rows
SHORT = {CLAIMS: "SELECT * FROM fairq.",
         BATCHES: "SELECT * FROM fairq.batches WHERE ",
         ROWS: "SELECT * FROM fairq.tasks WHERE ",
         ROWS_CHANGED: "-- changed: SELECT * FROM fairq.tasks WHERE ",
         f"SELECT {_micros('extend')} FROM": "SELECT * FROM"}


class Blocked(Exception):
    """Raised when the call waited for another transaction."""


def _timestamp(micros):
    if micros is None:
        return None
    if micros == FOREVER:
        return "infinity"
    return str(datetime(1970, 1, 1, tzinfo=timezone.utc)
               + timedelta(microseconds=micros))


def _interval(micros):
    return None if micros is None else f"{micros} microseconds"


class Session:
    def __init__(self, name, queue, log):
        self.name, self.queue, self.log = name, queue, log
        self.connect()

    def connect(self):
        self.connection = psycopg.connect(
            autocommit=True, prepare_threshold=1,
            options="-c lock_timeout=5s -c statement_timeout=60s"
                    " -c client_min_messages=error")

    def close(self):
        self.connection.close()

    def call(self, sql, *arguments):
        entry = [self.name, sql, arguments, None]
        self.log.append(entry)
        try:
            cursor = self.connection.execute(sql, arguments)
            rows = cursor.fetchall() if cursor.description else None
        except psycopg.Error as error:
            entry[3] = f"{error.sqlstate}: {error}"
            raise
        entry[3] = rows
        return rows

    def value(self, sql, *arguments):
        return self.call(sql, *arguments)[0][0]

    # ---- transactions

    def begin(self, level=LEVELS[0]):
        self.call(f"BEGIN ISOLATION LEVEL {level}")

    def commit(self):
        self.call("COMMIT")

    def rollback(self):
        self.call("ROLLBACK")

    def savepoint(self, depth):
        self.call(f"SAVEPOINT s{depth}")

    def rollback_to(self, depth):
        self.call(f"ROLLBACK TO SAVEPOINT s{depth}")

    def release_savepoint(self, depth):
        self.call(f"RELEASE SAVEPOINT s{depth}")

    # ---- queues

    def create_queue(self, block_length, settings):
        sql = ("SELECT fairq.create_queue(%s::text, lease => '1 day',"
               " block_length => %s::bigint")
        options = {"max_attempts": settings.max_attempts,
                   "backoff": _interval(settings.backoff),
                   "retain": "1 day" if settings.retain else None,
                   "fair_by": None if settings.fair_by == "tasks"
                   else settings.fair_by,
                   "separator": settings.separator,
                   "shares": list(settings.shares) or None}
        self._named(sql, (self.queue, block_length), options)

    def _named(self, sql, arguments, options):
        """Calls the function with the optional arguments that are not NULL."""
        types = {"max_attempts": "int", "backoff": "interval",
                 "retain": "interval", "run_at": "timestamptz",
                 "dedup_key": "text", "dedup_keys": "text[]",
                 "result": "jsonb", "lease": "interval",
                 "delay": "interval", "retry_in": "interval",
                 "dead": "boolean", "error": "text", "max_tasks": "int",
                 "per_group": "int", "fair_by": "text", "cost": "real",
                 "costs": "real[]", "shares": "int[]", "batch": "bigint",
                 "separator": "text", "took": "interval"}
        given = {name: value for name, value in options.items()
                 if value is not None}
        sql += "".join(
            f", {name} => %s::{types[name]}"
            + ("[]" if isinstance(value, list) and name == "took" else "")
            for name, value in given.items())
        return self.call(sql + ")", *arguments, *given.values())

    def drop_queue(self, force=False):
        self.call("SELECT fairq.drop_queue(%s::text, %s::boolean)",
                  self.queue, force)

    def set_weight(self, group, weight):
        self.call("SELECT fairq.set_group(%s::text, %s::text,"
                  " weight => %s::int)", self.queue, group, weight)

    def set_limit(self, group, limit):
        if group is None:
            self.call("SELECT fairq.alter_queue(%s::text,"
                      " concurrency => %s::int)", self.queue, limit)
        else:
            self.call("SELECT fairq.set_group(%s::text, %s::text,"
                      " concurrency => %s::int)", self.queue, group, limit)

    def set_max_running(self, limit):
        self.call("SELECT fairq.alter_queue(%s::text,"
                  " max_running => %s::int)", self.queue, limit)

    def set_shares(self, shares):
        self.call("SELECT fairq.alter_queue(%s::text, shares => %s::int[])",
                  self.queue, list(shares))

    def set_max_attempts(self, most):
        self.call("SELECT fairq.alter_queue(%s::text,"
                  " max_attempts => %s::int)", self.queue, most)

    def set_retain(self, retain):
        self.call("SELECT fairq.alter_queue(%s::text,"
                  " retain => %s::interval)", self.queue,
                  "1 day" if retain else "0")

    def set_paused(self, group, paused):
        self.call(f"SELECT fairq.{'pause' if paused else 'resume'}(%s::text,"
                  " %s::text)", self.queue, group)

    def purge(self, group=None):
        if group is None:
            return self.value("SELECT fairq.purge(%s::text)", self.queue)
        return self.value("SELECT fairq.purge(%s::text, %s::text)",
                          self.queue, group)

    def reset_hints(self):
        self.call("SELECT fairq.reset_hints()")

    def check_queue(self):
        return [row[0] for row in
                self.call("SELECT * FROM fairq.check_queue(%s::text)",
                          self.queue)]

    # ---- tasks

    def enqueue(self, group, priority, run_at=None, key=None,
                max_attempts=None, cost=None, batch=None):
        return self._named(
            "SELECT fairq.enqueue(%s::text, %s::text, priority => %s::int",
            (self.queue, group, priority),
            {"run_at": _timestamp(run_at), "dedup_key": key,
             "max_attempts": max_attempts, "cost": cost,
             "batch": batch})[0][0]

    def enqueue_briefly(self, *arguments):
        """wait(), for a moment at most."""
        self.call("SET lock_timeout = '20ms'")
        self.call("SET statement_timeout = '30ms'")
        try:
            return self.enqueue(*arguments)
        except (psycopg.errors.LockNotAvailable,
                psycopg.errors.QueryCanceled) as error:
            raise Blocked from error
        finally:
            self.call("RESET lock_timeout")
            self.call("RESET statement_timeout")

    def enqueue_batch(self, groups, priority, run_at=None, keys=None,
                      costs=None):
        return [row[0] for row in self._named(
            "SELECT * FROM fairq.enqueue_batch(%s::text, %s::text[],"
            " array_fill('{}'::jsonb, ARRAY[%s::int]), %s::int",
            (self.queue, groups, len(groups), priority),
            {"run_at": _timestamp(run_at), "dedup_keys": keys,
             "costs": costs})]

    def pop(self, tasks, per_group=None, take=False, lease=None):
        rows = self._named(
            CLAIMS + ("take" if take else "pop") + "(%s::text, %s::int",
            (self.queue, tasks),
            {"per_group": per_group, "lease": _interval(lease)})
        self.log[-1][3] = [Claim(*row) for row in rows]
        return self.log[-1][3]

    def peek(self, tasks):
        """(id, turn) of each task that a pop would serve."""
        return self.call("SELECT id, addr FROM fairq.peek(%s::text, %s::int)",
                         self.queue, tasks)

    def wait(self):
        return self.value("CALL fairq.wait(%s::text, '1 ms')", self.queue)

    def complete(self, id, attempt=None, result=None, took=None):
        return self._named(
            "SELECT fairq.complete(%s::bigint, %s::int", (id, attempt),
            {"result": None if result is None else json.dumps(result),
             "took": _interval(took)})[0][0]

    def complete_batch(self, ids, attempts, took=None):
        return self._named(
            "SELECT fairq.complete_batch(%s::bigint[], %s::int[]",
            (ids, attempts),
            {"took": took and [_interval(time) for time in took]})[0][0]

    def fail(self, id, attempt=None, error=None, retry_in=None, dead=False,
             took=None):
        return self._named(
            "SELECT fairq.fail(%s::bigint, %s::int", (id, attempt),
            {"error": error, "retry_in": _interval(retry_in),
             "dead": dead or None, "took": _interval(took)})[0][0]

    def release(self, id, attempt=None, delay=None):
        return self._named(
            "SELECT fairq.release(%s::bigint, %s::int", (id, attempt),
            {"delay": _interval(delay)})[0][0]

    def extend(self, id, attempt=None, lease=None):
        return self.value(
            f"SELECT {_micros('extend')} FROM fairq.extend(%s::bigint,"
            " %s::int, %s::interval)", id, attempt, _interval(lease))

    def cancel(self, id):
        return self.value("SELECT fairq.cancel(%s::bigint)", id)

    def expire(self, most):
        return self.value("SELECT fairq.expire_leases(%s::text, %s::int)",
                          self.queue, most)

    def redrive(self, group=None, most=None):
        return self.value("SELECT fairq.redrive(%s::text, %s::text, %s::int)",
                          self.queue, group, most)

    def maintain(self):
        self.call("SELECT fairq.maintain(%s::text)", self.queue)

    # ---- batches

    def create_batch(self, group, priority, on_success, batch):
        return self._named(
            "SELECT fairq.create_batch(%s::text, %s::text,"
            " priority => %s::int, on_success => %s::boolean",
            (self.queue, group, priority, on_success), {"batch": batch})[0][0]

    def close_batch(self, id):
        return self.value("SELECT fairq.close_batch(%s::bigint)", id)

    def cancel_batch(self, id):
        return self.value("SELECT fairq.cancel_batch(%s::bigint)", id)

    def reschedule(self, id):
        return self.value("SELECT fairq.reschedule(%s::bigint)", id)

    def batches(self, ids):
        """{id: the waiting task, with the numbers if it has any}."""
        rows = self.call(BATCHES + "id = ANY(%s::bigint[])", ids)
        self.log[-1][3] = [Batch(*row) for row in rows]
        return {row.id: row for row in self.log[-1][3]}

    # ---- views

    def look(self, ids=None):
        """The view's rows of these tasks, or of all tasks of the queue, by
        id."""
        if ids is None:
            return self._rows(ROWS + "queue = %s::text", self.queue)
        return self._rows(ROWS + "id = ANY(%s::bigint[])", ids)

    def look_at_changed(self, ids):
        """The rows of tasks that this transaction has changed, in the form of
        look(), but from the tables. An old snapshot may lack the group's key,
        and may show an old version of the row.
        """
        return self._rows(ROWS_CHANGED + "id = ANY(%s::bigint[])", ids)

    def _rows(self, *call):
        rows = self.call(*call)
        self.log[-1][3] = [Row(*row) for row in rows]
        return {row.id: row for row in self.log[-1][3]}


class Server:
    """The server at PGHOST, PGPORT, PGDATABASE."""

    def __init__(self):
        self.pool = []
        self.queues = 0
        self.pace = Pace()

    def clock(self, log):
        return Clock(log, self.pace)

    def open(self, count, log, block_length, settings):
        """Opens sessions s1, s2, ... on a new queue, with one log."""
        while len(self.pool) < count:
            self.pool.append(Session(f"s{len(self.pool) + 1}", None, log))
        self.queues += 1
        sessions = self.pool[:count]
        for session in sessions:
            session.queue = f"oracle_{os.getpid()}_{self.queues}"
            session.log = log
        sessions[0].create_queue(block_length, settings)
        return sessions

    def close(self, sessions, clean):
        """Ends the use of the queue. Unless clean is set, the queue may be in
        any state."""
        if clean:
            self.pace.fast_enough()
            sessions[0].drop_queue()
            return
        self.disconnect()
        last = Session("cleanup", sessions[0].queue, [])
        try:
            last.drop_queue(force=True)
        except psycopg.Error:
            pass                # no other history uses the queue's name
        last.close()

    def give_up(self, sessions):
        """Ends the use of the queue after a history without a fault. The
        sessions continue, since new sessions are slow at first.
        """
        self.pace.too_slow()
        for session in sessions:
            session.rollback()
        sessions[0].drop_queue(force=True)

    def disconnect(self):
        while self.pool:
            self.pool.pop().close()

    def can_restart(self):
        return "FAIRQ_RESTART_COMMAND" in os.environ

    def restart(self, crash):
        """Runs the command, or the same command with "fast" for a clean
        restart. Vacuums the table before, so that the first call reads the
        table at once if few rows are left.
        """
        last = Session("vacuum", None, [])
        last.call("VACUUM fairq.task")
        last.close()
        command = os.environ["FAIRQ_RESTART_COMMAND"]
        if not crash:
            command = command.replace("immediate", "fast")
        subprocess.run(command, shell=True, check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for session in self.pool:
            session.log.append([session.name, "reconnect", (), None])
            session.close()
            for _ in range(300):
                try:
                    session.connect()
                    break
                except psycopg.OperationalError:
                    time.sleep(0.1)


def _literal(value):
    if value is None:
        return "NULL"
    if isinstance(value, list):
        return "'{" + ",".join(json.dumps(item) for item in value) + "}'"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return str(value)


def text(log):
    """A log as lines: session, SQL, and the result."""
    lines = []
    for name, sql, arguments, result in log:
        for columns, short in SHORT.items():
            sql = sql.replace(columns, short)
        line = f"{name}: " + sql % tuple(map(_literal, arguments)) + ";"
        if isinstance(result, str):
            line += "  -- " + " ".join(result.split())
        elif result and isinstance(result[0], Claim):
            line += "  -- " + " ".join(f"{claim.group}:{claim.id}@{claim.addr}"
                                       for claim in result)
        elif result and isinstance(result[0], Row):
            line += "  -- " + " ".join(map(str, result))
        elif result and result[0][0] not in (None, ""):
            line += "  -- " + " ".join(str(row[0]) for row in result)
        lines.append(line)
    return lines
