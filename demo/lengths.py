"""Short and long tasks in one queue, either task-fair or time-fair.

Each task sleeps as long as its payload says.  The timelines come from fairq's
archive, which has the start, the end and the worker of each attempt.
"""

import threading
import time
from collections import namedtuple

import psycopg
from psycopg.types.json import Jsonb

# The tasks of a group: their number, and the seconds and the cost of each.
Load = namedtuple("Load", "group tasks seconds cost", defaults=[1])
Ran = namedtuple("Ran", "group worker began ended cost")

WORKERS = 4
# 60 thumbnails of alice, 6 videos of bob.
LOADS = (Load("bob", 6, 2.5), Load("alice", 60, 0.05))


def connect():
    return psycopg.connect(autocommit=True)


class Lengths:
    """Runs the loads in a task-fair or time-fair queue, and keeps the
    outcome."""

    def __init__(self, fair_by, loads=LOADS, workers=WORKERS, until=None):
        """until: the workers stop after this number of seconds; None: when all
        tasks are done."""
        self.fair_by, self.loads, self.workers = fair_by, loads, workers
        self.queue = "lengths by " + fair_by
        self.until = until
        self.tasks = sum(load.tasks for load in loads)
        self.left = self.tasks
        self.lock = threading.Lock()
        self.broken = []

    def run(self):
        """Runs the workers.  Then drops the queue with all tasks that are left
        in it."""
        with connect() as db:
            db.execute("SELECT fairq.drop_queue(queue, true) FROM fairq.queues"
                       " WHERE queue = %s", [self.queue])
            db.execute("SELECT fairq.create_queue(%s, retain => '1 hour',"
                       " fair_by => %s)", [self.queue, self.fair_by])
            with db.transaction():
                for load in self.loads:
                    db.execute(
                        "SELECT fairq.enqueue(%s, %s, %s, cost => %s)"
                        " FROM generate_series(1, %s)",
                        [self.queue, load.group, Jsonb(load.seconds), load.cost,
                         load.tasks])
            self.work_all()
            self.read(db)
            db.execute("SELECT fairq.drop_queue(%s, true)", [self.queue])
        return self

    def work_all(self):
        ready = threading.Barrier(self.workers)
        threads = [threading.Thread(target=self.worker, args=[str(n), ready],
                                    daemon=True)
                   for n in range(1, self.workers + 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.broken:
            raise self.broken[0]

    def worker(self, name, ready):
        try:
            with connect() as db:
                ready.wait(60)
                self.work(db, name)
        except (psycopg.Error, threading.BrokenBarrierError) as error:
            ready.abort()
            self.broken.append(error)

    def work(self, db, name):
        """Takes and runs one task at a time, until the queue has none."""
        stop = time.monotonic() + (self.until or float("inf"))
        while self.left and not self.broken and time.monotonic() < stop:
            task = db.execute(
                "SELECT id, attempt, payload FROM fairq.pop(%s, worker => %s)",
                [self.queue, name]).fetchone()
            if task is None:
                # other workers run the remaining tasks
                return
            time.sleep(task[2])
            db.execute("SELECT fairq.complete(%s, %s)", task[:2])
            with self.lock:
                self.left -= 1

    def read(self, db):
        """Sets self.ran to the tasks in the order of their starts, with times
        in seconds since the first start.  Sets self.seconds to the end of the
        last task."""
        rows = db.execute(
            "SELECT group_key, worker::int, extract(epoch FROM popped_at)::float8,"
            " extract(epoch FROM finished_at)::float8, cost"
            " FROM fairq.finished_tasks WHERE queue = %s AND status = 'completed'"
            " ORDER BY popped_at", [self.queue]).fetchall()
        start = rows[0][2]
        self.ran = [Ran(group, worker, began - start, ended - start, cost)
                    for group, worker, began, ended, cost in rows]
        self.seconds = max(row.ended for row in self.ran)

    def of(self, group):
        return [row for row in self.ran if row.group == group]

    def last(self, group):
        """The end of the group's last task."""
        return max(row.ended for row in self.of(group))

    def had(self, group, until):
        """The worker time in seconds that a group got before the time until."""
        return sum(max(0, min(row.ended, until) - row.began)
                   for row in self.of(group))

    def both_until(self):
        """The time until which both groups had unfinished tasks."""
        return min(self.last(load.group) for load in self.loads)

    def both_ready_until(self):
        """The time until which both groups had waiting tasks."""
        return min(self.of(load.group)[-1].began for load in self.loads)

    def part(self, group):
        """The group's share of the seconds while both had work."""
        until = self.both_until()
        return self.had(group, until) / sum(self.had(load.group, until)
                                            for load in self.loads)


def verdicts(tasks, by_time):
    """Returns (claim, whether it holds) for each claim about the two runs."""
    found = [("fair_by = %s: each of %d tasks done exactly once"
              % (run.fair_by, run.tasks),
              len(run.ran) == run.tasks and run.left == 0)
             for run in (tasks, by_time)]

    # The guarantee: the difference is at most two, plus the running tasks.
    until = tasks.both_ready_until()
    begun = [sum(row.began <= until for row in tasks.of(load.group))
             for load in LOADS]
    found.append(("task-fair: %d and %d tasks started while both groups had waiting tasks"
                  % tuple(begun), abs(begun[0] - begun[1]) <= 2 + 2 * WORKERS))

    # The guarantee: the difference is at most the longest tasks of both groups
    # together, plus 10 % because workers pause between tasks.
    until = by_time.both_ready_until()
    had = [by_time.had(load.group, until) for load in LOADS]
    longest = [max(row.ended - row.began for row in by_time.of(load.group))
               for load in LOADS]
    found.append(("time-fair: %.1f and %.1f s of workers while both had waiting tasks;"
                  " the difference is at most the longest task of each"
                  % tuple(had), abs(had[0] - had[1]) <= 1.1 * sum(longest)))
    found.append(("alice finishes earlier in the time-fair queue",
                  by_time.last("alice") < 0.8 * tasks.last("alice")))
    return found
