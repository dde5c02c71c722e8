"""Sessions of a server: one method per SQL function, every call logged.

A log entry is (session, SQL, arguments, result); text() makes the steps of a
replay of it.  No call may wait for another session, so lock_timeout and
statement_timeout turn every wait into an error.
"""

import json
import os
import subprocess
import time
from collections import namedtuple

import psycopg

Claim = namedtuple("Claim", "id group attempt priority")

LEVELS = ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE")

CLAIMS = "SELECT id, group_key, attempt, priority, addr FROM fairq."


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

    def create_queue(self, block_length):
        self.call("SELECT fairq.create_queue(%s::text, lease => '1 day',"
                  " block_length => %s::bigint)", self.queue, block_length)

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

    def enqueue(self, group, priority):
        return self.value("SELECT fairq.enqueue(%s::text, %s::text,"
                          " priority => %s::int)", self.queue, group, priority)

    def enqueue_batch(self, groups, priority):
        return [row[0] for row in self.call(
            "SELECT * FROM fairq.enqueue_batch(%s::text, %s::text[],"
            " array_fill('{}'::jsonb, ARRAY[%s::int]), %s::int)",
            self.queue, groups, len(groups), priority)]

    def pop(self, tasks, per_group=None, take=False):
        rows = self.call(
            CLAIMS + ("take" if take else "pop") + "(%s::text, %s::int,"
            " per_group => %s::int)", self.queue, tasks, per_group)
        return [Claim(*row[:4]) for row in rows]

    def complete(self, id, attempt=None):
        return self.value("SELECT fairq.complete(%s::bigint, %s::int)",
                          id, attempt)

    def complete_batch(self, ids, attempts):
        return self.value("SELECT fairq.complete_batch(%s::bigint[],"
                          " %s::int[])", ids, attempts)

    def release(self, id, attempt=None):
        return self.value("SELECT fairq.release(%s::bigint, %s::int)",
                          id, attempt)


class Server:
    """The server at PGHOST, PGPORT, PGDATABASE."""

    def __init__(self):
        self.pool = []
        self.queues = 0

    def open(self, count, log, block_length):
        """So many sessions s1, s2, ... on a new queue; one log for all."""
        while len(self.pool) < count:
            self.pool.append(Session(f"s{len(self.pool) + 1}", None, log))
        self.queues += 1
        sessions = self.pool[:count]
        for session in sessions:
            session.queue = f"oracle_{os.getpid()}_{self.queues}"
            session.log = log
        sessions[0].create_queue(block_length)
        return sessions

    def close(self, sessions, clean):
        """Done with the queue; unless clean, in whatever state it is."""
        if clean:
            sessions[0].drop_queue()
            return
        self.disconnect()
        last = Session("cleanup", sessions[0].queue, [])
        try:
            last.drop_queue(force=True)
        except psycopg.Error:
            pass                # the queue's name is not used again
        last.close()

    def disconnect(self):
        while self.pool:
            self.pool.pop().close()

    def can_restart(self):
        return "FAIRQ_RESTART_COMMAND" in os.environ

    def restart(self, crash):
        """Run the command; the same with "fast" for a clean restart."""
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
    """A log as lines: session, SQL, and what came back."""
    lines = []
    for name, sql, arguments, result in log:
        line = f"{name}: " + sql % tuple(map(_literal, arguments)) + ";"
        if isinstance(result, str):
            line += "  -- " + " ".join(result.split())
        elif result and len(result[0]) == 5:
            line += "  -- " + " ".join(f"{row[1]}:{row[0]}@{row[4]}"
                                       for row in result)
        elif result and result[0][0] not in (None, ""):
            line += "  -- " + " ".join(str(row[0]) for row in result)
        lines.append(line)
    return lines
