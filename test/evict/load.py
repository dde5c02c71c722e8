"""The load of test/evict/run.

Sessions enqueue, pop, complete, release, cancel and roll back at the same time, in queues
with and without limits.  In the end all tasks must be served.
"""

import os
import random
import signal
import subprocess
import sys
import time

import psycopg

SECONDS = 6
WORKERS = 8
GROUPS = 20
QUEUES = {"free": None, "one": 1, "two": 2}


def connect():
    return psycopg.connect(autocommit=True, options="-c statement_timeout=30s"
                           " -c client_min_messages=error -c synchronous_commit=off")


def enqueue(db, queue, books):
    keys = [f"g{random.randrange(GROUPS)}" for _ in range(random.choice((1, 1, 4)))]
    with db.transaction(force_rollback=random.random() < 0.15) as transaction:
        ids = [row[0] for row in db.execute(
            "SELECT fairq.enqueue_batch(%s, %s, %s)", [queue, keys, ["1"] * len(keys)])]
    if not transaction.force_rollback:
        books["enqueued"] += len(ids)


def pop(db, queue, books):
    with db.transaction(force_rollback=random.random() < 0.1):
        popped = db.execute("SELECT id, attempt FROM fairq.pop(%s, %s)",
                            [queue, random.choice((1, 1, 3, 10))]).fetchall()
    for task, attempt in popped:
        # a task whose pop was rolled back belongs to another call
        verb = "release" if random.random() < 0.15 else "complete"
        done = db.execute(f"SELECT fairq.{verb}(%s, %s)", [task, attempt]).fetchone()[0]
        books["completed"] += done and verb == "complete"


def cancel(db, queue, books):
    for task, in db.execute("SELECT id FROM fairq.tasks WHERE queue = %s"
                            " AND status <> 'running' ORDER BY random() LIMIT 1", [queue]):
        # if the task is running by now, it is not cancelled
        with db.transaction():
            status = db.execute("SELECT lease_until FROM fairq.task WHERE id = %s FOR UPDATE",
                                [task]).fetchone()
            if status is not None and status[0] is None:
                books["cancelled"] += db.execute("SELECT fairq.cancel(%s)", [task]).fetchone()[0]


def work(seed):
    random.seed(seed)
    books = {"enqueued": 0, "completed": 0, "cancelled": 0}
    end = time.monotonic() + SECONDS
    with connect() as db:
        while time.monotonic() < end:
            queue = random.choice(list(QUEUES))
            random.choices((enqueue, pop, cancel), (10, 12, 2))[0](db, queue, books)
    return books


def drain(db, queue):
    """Serves the remaining tasks.  Returns their number."""
    done = 0
    for _ in range(1000):
        popped = db.execute("SELECT fairq.complete(id, attempt) FROM fairq.pop(%s, 20)",
                            [queue]).fetchall()
        done += len(popped)
        if not popped:
            break
    return done


def main():
    seed = int(os.environ.get("FAIRQ_SEED") or random.randrange(1 << 31))
    print(f"# seed {seed}")
    number = 0

    def report(good, text):
        nonlocal number
        number += 1
        print(f"{'ok' if good else 'not ok'} {number} - {text}", flush=True)
        return good

    with connect() as db:
        for queue, concurrency in QUEUES.items():
            db.execute("SELECT fairq.create_queue(%s, concurrency => %s)", [queue, concurrency])
    workers = [subprocess.Popen([sys.executable, __file__, str(seed + n)], stdout=subprocess.PIPE,
                                text=True) for n in range(WORKERS)]
    books = {"enqueued": 0, "completed": 0, "cancelled": 0}
    good = True
    for worker in workers:
        try:
            output = worker.communicate(timeout=SECONDS + 60)[0]
        except subprocess.TimeoutExpired:
            worker.send_signal(signal.SIGKILL)
            good = False
            continue
        if worker.returncode != 0:
            good = False
            continue
        for name, count in zip(books, output.split()):
            books[name] += int(count)
    if not report(good, f"no session hangs or fails ({books['enqueued']} tasks)"):
        sys.exit(1)
    with connect() as db:
        left = sum(drain(db, queue) for queue in QUEUES)
        rest = db.execute("SELECT count(*) FROM fairq.task").fetchone()[0]
        good = report(rest == 0, f"no task is stranded ({left} served in the end, {rest} left)")
        found = books["completed"] + books["cancelled"] + left
        good &= report(rest > 0 or found == books["enqueued"],
                       f"each is served once ({found} of {books['enqueued']})")
        for queue in QUEUES:
            faults = [row[0] for row in db.execute("SELECT * FROM fairq.check_queue(%s)", [queue])]
            good &= report(not faults, f"queue \"{queue}\" is sound {faults[:3]}")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(*work(int(sys.argv[1])).values())
    else:
        main()
