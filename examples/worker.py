#!/usr/bin/env python3
"""A worker for a fairq queue: Python, psycopg 3, threads.

    worker.py QUEUE [MODULE]

Does the queue's tasks with MODULE.handle(task), or with handle() below.
The database is that of PGHOST, PGDATABASE and so on, or those of SHARDS are, if
the queue is spread over several.  See README.md.
"""

import importlib
import json
import logging
import math
import os
import random
import signal
import socket
import sys
import threading
import time
from datetime import timedelta

import psycopg

CONCURRENCY = int(os.environ.get("CONCURRENCY", 4))     # tasks at a time
LEASE = timedelta(seconds=float(os.environ.get("LEASE", 60)))
GRACE = float(os.environ.get("GRACE", 5))   # seconds for what runs at the end
SHARDS = os.environ.get("SHARDS", "").split() or [""]   # connection URIs
NAME = f"{socket.gethostname()}:{os.getpid()}"
# What a new connection may mend; read-only is a server that was the primary, or a
# shard that is being moved.
LOST = psycopg.OperationalError, psycopg.errors.ReadOnlySqlTransaction

log = logging.getLogger("worker")


def handle(task):
    """The work, to be replaced by yours.

    To return is to have done it; what is returned is kept as the result if
    the queue retains.  To raise is to have failed: it is tried again later.
    """
    log.info("task %s of %s: %s", task.id, task.group_key, task.payload)


class Stopped(Exception):
    """Somebody cancelled the task, or its lease is lost."""


class Task:
    def __init__(self, shard, id, attempt, group_key, payload):
        self.shard, self.id, self.attempt = shard, id, attempt
        self.group_key, self.payload = group_key, payload
        self.stopped = False
        self.ended = False      # the work has; the server may not know yet

    def check(self):
        """To be called now and then in long work: raises if it is in vain."""
        if self.stopped:
            raise Stopped

    def call(self, function, *args, **named):
        """Calls a function of fairq for this attempt of the task."""
        marks = ", %s" * len(args) + "".join(f", {name} => %s" for name in named)
        [(value,)] = self.shard.keeper.query(
            f"SELECT fairq.{function}(%s, %s{marks})",
            self.id, self.attempt, *args, *named.values())
        return value

    def release(self):
        """Hands it back; ends it if it is cancelled; nothing if it is lost."""
        self.call("release")


class Database:
    """A connection for several threads; made anew when it is lost."""

    def __init__(self, uri):
        self.uri = uri
        self.lock = threading.Lock()
        self.connection = None
        self.lost = False

    def query(self, sql, *args):
        # If only the answer was lost, the attempt sees to it that a second
        # complete does no harm; what a lost pop took comes back by its lease.
        failures = 0
        while True:
            with self.lock:
                try:
                    if self.connection is None or self.connection.closed:
                        self.connection = psycopg.connect(self.uri, autocommit=True)
                    rows = self.connection.execute(sql, args).fetchall()
                    self.lost = False
                    return rows
                except psycopg.errors.QueryCanceled:
                    raise
                except LOST as error:
                    log.warning("%s", error)
                    failures += 1
                    self.lost = True
                    if stop.is_set() and failures > 1:
                        raise
                    if self.connection is not None:
                        self.connection.close()
            stop.wait(1)

    def cancel(self):
        try:
            if self.connection is not None:
                self.connection.cancel()
        except psycopg.Error:
            pass        # it is being lost anyway


class Shard:
    """A database that has a part of the queue's groups."""

    def __init__(self, uri):
        self.popper, self.keeper = Database(uri), Database(uri)  # fairq.wait takes its time
        self.groups = 1             # that have something to do
        self.counted = -math.inf    # when they were, by the monotonic clock
        self.service = 0.0          # tasks taken, per group
        self.taking = math.inf      # since when it takes some; inf: it has none to take

    def count_groups(self):
        if len(shards) > 1 and time.monotonic() - self.counted > 1:
            counts = self.popper.query(
                "SELECT groups_active FROM fairq.stats WHERE queue = %s", queue)
            groups = counts[0][0] or 1 if counts else 1
            with changed:
                # what it is ahead by is tasks: of each group it is another part now
                least = min((s.service for s in shards if s.taking < math.inf),
                            default=self.service)
                self.service = least + (self.service - least) * self.groups / groups
                self.groups = groups
            self.counted = time.monotonic()

    def take_slots(self):
        """Those of the free slots that are this shard's; waits for one.

        Each goes to the shard that has had the fewest tasks per group, of those that
        have some: so groups of all shards get the same.  A shard that does not answer
        within a second is not waited for.
        """
        with changed:
            others = [s.service for s in shards if s.taking < math.inf and s is not self]
            if self.taking == math.inf and others:
                # it has saved up none; and not all workers come to it at once
                self.service = max(self.service,
                                   min(others) + random.random() / self.groups)
            self.taking = time.monotonic()
            while not stop.is_set():
                n = 0
                while free_slots() > 0 and self.is_next():
                    self.count(1)
                    n += 1
                if n > 0:
                    break
                changed.wait(1)
                self.taking = time.monotonic()
            return n

    def is_next(self):
        late = time.monotonic() - 1
        return all(self.service <= s.service for s in shards if late < s.taking < math.inf)

    def count(self, tasks):
        global taken
        taken += tasks
        self.service += tasks / self.groups

    def give_back(self, slots, idle):
        """What no task was got for."""
        with changed:
            self.count(-slots)
            if idle:
                self.taking = math.inf
            changed.notify_all()


shards = []
running = set()                             # tasks
taken = 0                                   # slots that no task has yet
stop = threading.Event()
changed = threading.Condition()             # of all these


def free_slots():
    # done tasks of which a server cannot be told keep no others from running
    return CONCURRENCY - taken - sum(
        not (task.ended and task.shard.keeper.lost) for task in running)


def pop_tasks(shard):
    global taken
    while not stop.is_set():
        slots = 0
        claims = []
        try:
            shard.count_groups()
            slots = shard.take_slots()
            if slots == 0:
                break
            claims = shard.popper.query(
                "SELECT id, attempt, group_key, payload"
                " FROM fairq.pop(%s, %s, lease => %s, worker => %s)",
                queue, slots, LEASE, NAME)
            for claim in claims:
                task = Task(shard, *claim)
                with changed:
                    running.add(task)
                    taken -= 1
                threading.Thread(target=work, args=(task,), daemon=True).start()
        except psycopg.errors.QueryCanceled:
            pass        # by main(), or by a statement_timeout
        finally:
            shard.give_back(slots - len(claims), idle=not claims)
        if not claims:
            try:
                shard.popper.query("CALL fairq.wait(%s)", queue)
            except psycopg.errors.QueryCanceled:
                pass


def work(task):
    begun = time.monotonic()

    def took():     # for queues that are fair by time
        return timedelta(seconds=time.monotonic() - begun)

    try:
        result = handle(task)
        task.ended = True
        task.call("complete", None if result is None else json.dumps(result),
                  took=took())
    except Stopped:
        task.ended = True
        task.release()
    except Exception as error:
        log.exception("task %s, attempt %s", task.id, task.attempt)
        task.ended = True
        task.call("fail", f"{type(error).__name__}: {error}", took=took())
    finally:
        with changed:
            running.remove(task)
            changed.notify_all()


def heartbeat(shard):
    while True:
        time.sleep(LEASE.total_seconds() / 3)
        with changed:
            tasks = [task for task in running if task.shard is shard]
        for task in tasks:
            try:
                task.stopped = task.call("extend", LEASE) is None
            except psycopg.Error as error:
                log.error("heartbeat: %s", error)


def main():
    shards.extend(map(Shard, SHARDS))
    popping = [threading.Thread(target=pop_tasks, args=(shard,), daemon=True)
               for shard in shards]
    # SIGTERM, like SIGINT, comes to this thread as an exception.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        for thread in popping:
            thread.start()
        for shard in shards:
            threading.Thread(target=heartbeat, args=(shard,), daemon=True).start()
        while all(thread.is_alive() for thread in popping):
            time.sleep(1)
        status = 1      # one has ended with an error
    except KeyboardInterrupt:
        status = 0
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with changed:
        stop.set()
        changed.notify_all()
    for shard, thread in zip(shards, popping):
        while thread.is_alive():
            shard.popper.cancel()
            thread.join(0.1)
    with changed:
        changed.wait_for(lambda: not running, GRACE)
        left = list(running)
    for task in left:
        task.release()
    sys.stdout.flush()
    os._exit(status)    # now, as the threads of what was released live on


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    queue = sys.argv[1]
    if len(sys.argv) > 2:
        sys.path.insert(0, os.getcwd())
        handle = importlib.import_module(sys.argv[2]).handle
    main()
