#!/usr/bin/env python3
"""A worker for a fairq queue: Python, psycopg 3, threads.

    worker.py QUEUE [MODULE]

Does the queue's tasks with MODULE.handle(task), or with handle() below.
The database is that of PGHOST, PGDATABASE and so on.  See README.md.
"""

import importlib
import json
import logging
import os
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
NAME = f"{socket.gethostname()}:{os.getpid()}"

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
    def __init__(self, id, attempt, group_key, payload):
        self.id, self.attempt = id, attempt
        self.group_key, self.payload = group_key, payload
        self.stopped = False

    def check(self):
        """To be called now and then in long work: raises if it is in vain."""
        if self.stopped:
            raise Stopped

    def call(self, function, *args, **named):
        """Calls a function of fairq for this attempt of the task."""
        marks = ", %s" * len(args) + "".join(f", {name} => %s" for name in named)
        [(value,)] = keeper.query(f"SELECT fairq.{function}(%s, %s{marks})",
                                  self.id, self.attempt, *args, *named.values())
        return value

    def release(self):
        """Hands it back; ends it if it is cancelled; nothing if it is lost."""
        self.call("release")


class Database:
    """A connection for several threads; made anew when it is lost."""

    def __init__(self):
        self.lock = threading.Lock()
        self.connection = None

    def query(self, sql, *args):
        # If only the answer was lost, the attempt sees to it that a second
        # complete does no harm; what a lost pop took comes back by its lease.
        failures = 0
        while True:
            with self.lock:
                try:
                    if self.connection is None or self.connection.closed:
                        self.connection = psycopg.connect(autocommit=True)
                    return self.connection.execute(sql, args).fetchall()
                except psycopg.errors.QueryCanceled:
                    raise
                except psycopg.OperationalError as error:
                    log.warning("%s", error)
                    failures += 1
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


popper, keeper = Database(), Database()     # fairq.wait takes its time
running = set()                             # tasks
stop = threading.Event()
changed = threading.Condition()             # of these two


def pop_tasks():
    while not stop.is_set():
        with changed:
            changed.wait_for(lambda: stop.is_set() or len(running) < CONCURRENCY)
            free = CONCURRENCY - len(running)
        if stop.is_set():
            break
        try:
            claims = popper.query(
                "SELECT id, attempt, group_key, payload"
                " FROM fairq.pop(%s, %s, lease => %s, worker => %s)",
                queue, free, LEASE, NAME)
            for claim in claims:
                task = Task(*claim)
                with changed:
                    running.add(task)
                threading.Thread(target=work, args=(task,), daemon=True).start()
            if not claims:
                popper.query("CALL fairq.wait(%s)", queue)
        except psycopg.errors.QueryCanceled:
            pass        # by main(), or by a statement_timeout


def work(task):
    begun = time.monotonic()

    def took():     # for queues that are fair by time
        return timedelta(seconds=time.monotonic() - begun)

    try:
        result = handle(task)
        task.call("complete", None if result is None else json.dumps(result),
                  took=took())
    except Stopped:
        task.release()
    except Exception as error:
        log.exception("task %s, attempt %s", task.id, task.attempt)
        task.call("fail", f"{type(error).__name__}: {error}", took=took())
    finally:
        with changed:
            running.remove(task)
            changed.notify_all()


def heartbeat():
    while True:
        time.sleep(LEASE.total_seconds() / 3)
        with changed:
            tasks = list(running)
        for task in tasks:
            try:
                task.stopped = task.call("extend", LEASE) is None
            except psycopg.Error as error:
                log.error("heartbeat: %s", error)


def main():
    popping = threading.Thread(target=pop_tasks, daemon=True)
    # SIGTERM, like SIGINT, comes to this thread as an exception.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        popping.start()
        threading.Thread(target=heartbeat, daemon=True).start()
        while popping.is_alive():
            time.sleep(1)
        status = 1      # it has ended with an error
    except KeyboardInterrupt:
        status = 0
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with changed:
        stop.set()
        changed.notify_all()
    while popping.is_alive():
        popper.cancel()
        popping.join(0.1)
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
