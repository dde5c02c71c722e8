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
from psycopg.conninfo import conninfo_to_dict

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
        self.begun = self.ended = math.inf      # the work, by the monotonic clock

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

    def took(self):     # for queues that are fair by time
        return timedelta(seconds=self.ended - self.begun)

    def release(self):
        """Hands it back; ends it if it is cancelled; nothing if it is lost."""
        self.call("release")


def connect(uri):
    at = {"connect_timeout": os.environ.get("PGCONNECT_TIMEOUT", 10), **conninfo_to_dict(uri)}
    hosts = (at.get("host") or os.environ.get("PGHOST", "")).split(",")
    ports = (at.get("port") or os.environ.get("PGPORT", "")).split(",")
    if len(hosts) == 1:
        return psycopg.connect(**at, autocommit=True)
    # each by itself, as one that is mute would use up the time of all
    for i, host in enumerate(hosts):
        at.update(host=host, port=ports[i % len(ports)])
        try:
            return psycopg.connect(**at, autocommit=True)
        except psycopg.OperationalError as error:
            problem = error
    raise problem


class Database:
    """A connection for several threads; made anew when it is lost."""

    def __init__(self, uri):
        self.uri = uri
        self.lock = threading.Lock()
        self.connection = None

    def query(self, sql, *args, once=False):
        # If only the answer was lost, the attempt sees to it that a second
        # complete does no harm; what a lost pop took comes back by its lease.
        failures = 0
        while True:
            with self.lock:
                try:
                    if self.connection is None or self.connection.closed:
                        self.connection = connect(self.uri)
                    return self.connection.execute(sql, args).fetchall()
                except psycopg.errors.QueryCanceled:
                    raise
                except LOST as error:
                    log.warning("%s", error)
                    failures += 1
                    if self.connection is not None:
                        self.connection.close()
                    if once or stop.is_set() and failures > 1:
                        raise
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
        self.slots = 0              # that its pop, which has not returned, is to fill
        self.taking = -math.inf     # when it last had tasks, and room for them

    def tasks(self):
        return [task for task in running if task.shard is self]

    def answers(self):
        """Does it have tasks, and has it said something within a second?"""
        return self.taking > time.monotonic() - 1

    def count_groups(self):
        if len(shards) > 1 and time.monotonic() - self.counted > 1:
            counts = self.popper.query(
                "SELECT groups_active FROM fairq.stats WHERE queue = %s", queue)
            groups = counts[0][0] or 1 if counts else 1
            with changed:
                # what it is ahead by is tasks: of each group it is another part now
                least = min((s.service for s in shards if s.answers()),
                            default=self.service)
                self.service = least + (self.service - least) * self.groups / groups
                self.groups = groups
            self.counted = time.monotonic()

    def take_slots(self):
        """Those of the free slots that are this shard's; waits for one.

        Each goes to the shard that has had the fewest tasks per group, of those that
        have some: so groups of all shards get the same.  A shard that does not answer
        within a second is not waited for, and if it cannot be told what has ended it
        gets no more.
        """
        with changed:
            while not stop.is_set():
                late = time.monotonic() - 1
                if all(task.ended > late for task in self.tasks()):
                    others = [s.service for s in shards if s is not self and s.answers()]
                    if others and not self.answers():
                        # it has saved up none; and not all workers come to it at once
                        self.service = max(self.service,
                                           min(others) + random.random() / self.groups)
                    self.taking = time.monotonic()
                    free = free_slots(late)
                    while self.slots < free and self.is_next():
                        self.count(1)
                    if self.slots > 0:
                        break
                changed.wait(0.5)
            return self.slots

    def is_next(self):
        return all(self.service <= s.service for s in shards if s.answers())

    def count(self, slots):
        self.slots += slots
        self.service += slots / self.groups

    def got(self, tasks):
        """What its pop has brought; the other slots are free again."""
        with changed:
            self.count(len(tasks) - self.slots)
            self.slots = 0
            if not tasks:
                self.taking = -math.inf
            running.update(tasks)
            changed.notify_all()


shards = []
running = set()                             # tasks
room = threading.Semaphore(CONCURRENCY)     # for their work
stop = threading.Event()
changed = threading.Condition()             # of all these


def free_slots(late):
    # what a shard has not answered since then keeps no others from running
    popping = sum(shard.slots for shard in shards if shard.answers())
    return CONCURRENCY - popping - sum(task.ended > late for task in running)


def pop_tasks(shard):
    while not stop.is_set():
        tasks = []
        try:
            shard.count_groups()
            if shard.take_slots() == 0:
                break
            claims = shard.popper.query(
                "SELECT id, attempt, group_key, payload"
                " FROM fairq.pop(%s, %s, lease => %s, worker => %s)",
                queue, shard.slots, LEASE, NAME, once=True)
            tasks = [Task(shard, *claim) for claim in claims]
        except psycopg.errors.QueryCanceled:
            pass        # by end(), or by a statement_timeout
        except LOST:
            shard.got([])
            shard.counted = -math.inf   # it connects again by that, without slots
            stop.wait(1)
            continue
        shard.got(tasks)
        for task in tasks:
            threading.Thread(target=work, args=(task,), daemon=True).start()
        if not tasks:
            try:
                shard.popper.query("CALL fairq.wait(%s)", queue)
            except LOST:
                pass    # cancelled; or lost, at the end


def work(task):
    try:
        result = call_handle(task)
        task.call("complete", None if result is None else json.dumps(result),
                  took=task.took())
    except Stopped:
        task.release()
    except Exception as error:
        log.exception("task %s, attempt %s", task.id, task.attempt)
        task.call("fail", f"{type(error).__name__}: {error}", took=task.took())
    finally:
        with changed:
            running.remove(task)
            changed.notify_all()


def call_handle(task):
    try:
        with room:      # there is some, unless a shard has answered late
            if stop.is_set():
                raise Stopped
            task.check()
            task.begun = time.monotonic()
            return handle(task)
    finally:
        task.ended = time.monotonic()


def heartbeat(shard):
    while True:
        time.sleep(LEASE.total_seconds() / 3)
        with changed:
            tasks = shard.tasks()
        for task in tasks:
            try:
                task.stopped = task.call("extend", LEASE) is None
            except psycopg.Error as error:
                log.error("heartbeat: %s", error)


def end(shard, popping):
    """Lets its tasks end, and hands back what does not."""
    while popping.is_alive():
        shard.popper.cancel()       # most likely it is in fairq.wait
        popping.join(0.1)
    with changed:
        changed.wait_for(lambda: not shard.tasks(), GRACE)
        left = shard.tasks()
    for task in left:
        try:
            task.release()
        except psycopg.Error as error:
            log.error("release: %s", error)


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
    limit = time.monotonic() + GRACE + 4    # a shard may be down, or mute
    ending = [threading.Thread(target=end, args=args, daemon=True)
              for args in zip(shards, popping)]
    for thread in ending:
        thread.start()
    for thread in ending:
        thread.join(max(0, limit - time.monotonic()))
    sys.stdout.flush()
    os._exit(status)    # now, as the threads of what was released live on


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    queue = sys.argv[1]
    if len(sys.argv) > 2:
        sys.path.insert(0, os.getcwd())
        handle = importlib.import_module(sys.argv[2]).handle
    main()
