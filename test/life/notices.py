"""Sessions that LISTEN get one NOTIFY per transaction that makes a task ready.
"""

import time

from base import connect, drop, expect, until, value
from wakes import Queue

FENCE = "life_fence"


class Listener:
    def __init__(self, channels):
        self.db = connect("listener")
        self.notices = []
        self.db.add_notify_handler(self.notices.append)
        for channel in [*channels, FENCE]:
            name = channel.replace('"', '""')
            self.db.execute(f'LISTEN "{name}"')

    def heard(self, db):
        """Returns [(channel, payload)] of the notifications up to now."""
        db.execute(f"NOTIFY {FENCE}")
        until(lambda: self.db.execute("SELECT 1") and self.notices
              and self.notices[-1].channel == FENCE, "there is no NOTIFY")
        heard = [(notice.channel, notice.payload)
                 for notice in self.notices[:-1]]
        self.notices.clear()
        return heard

    def close(self):
        self.db.close()


def steps(q):
    """Yields (name, number of notifications, the transaction). None means at
    most one notification, since any change of settings may send one.
    """
    db = q.db

    def popped(count=1):
        return q.pop(count)

    def enqueue():
        q.enqueue()

    def several():
        with db.transaction():
            q.enqueue()
            q.enqueue("alice")
            batch()
            with db.transaction():
                q.enqueue("carol")

    def batch():
        db.execute("SELECT fairq.enqueue_batch(%s, '{a,b,c}', '{1,2,3}')",
                   [q.name])

    def nothing_of_it():
        db.execute("BEGIN")
        q.enqueue()
        db.execute("ROLLBACK")

    def to_savepoint():
        with db.transaction():
            db.execute("SELECT 1")
            db.execute("SAVEPOINT s")
            q.enqueue()
            db.execute("ROLLBACK TO s")

    def known_key():
        q.enqueue(dedup_key="k")

    yield "enqueue", 1, enqueue
    yield "a batch", 1, batch
    yield "a transaction of many enqueues", 1, several
    yield "a rollback", 0, nothing_of_it
    yield "a rollback to a savepoint", 0, to_savepoint
    yield "a new dedup_key", 1, known_key
    yield "a known dedup_key", 0, known_key
    yield "a scheduled task", 0, lambda: q.later(3600)
    (a, _), (b, _), (c, _), (d, _), (e, _) = tasks = popped(5)
    yield "release", 1, lambda: q.call("release", a, 1)
    yield "release with a delay", 0, lambda: q.call("release", b, 1, "1 hour")
    yield "fail, to be retried at once", 1, lambda: q.call(
        "fail", c, 1, "oh", "0")
    yield "fail, to be retried later", 0, lambda: q.call(
        "fail", d, 1, "oh", "1 hour")
    yield "fail for good", 0, lambda: db.execute(
        "SELECT fairq.fail(%s, 1, dead => true)", [e])
    yield "redrive", 1, lambda: q.call("redrive", q.name)
    yield "redrive of nothing", 0, lambda: q.call("redrive", q.name)
    yield "pop", 0, lambda: tasks.extend(popped(3))
    yield "complete", 0, lambda: q.call("complete", tasks[5][0])
    yield "complete_batch", 0, lambda: q.call(
        "complete_batch", [tasks[6][0]])
    q.call("release", tasks[7][0])
    yield "pause", None, lambda: q.call("pause", q.name)
    yield "resume", 1, lambda: q.call("resume", q.name)
    q.pop(1, "1 ms")
    time.sleep(0.005)
    yield "expire_leases", 1, lambda: q.call("expire_leases", q.name)
    yield "expire_leases of none", 0, lambda: q.call("expire_leases", q.name)
    yield "take", 0, lambda: q.call("take", q.name)
    q.call("purge", q.name)
    db.execute("SELECT fairq.set_group(%s, 'bob', concurrency => 1)", [q.name])
    q.enqueue()
    q.enqueue()
    (f, _), = popped()
    yield "complete in a queue with limits", 1, lambda: q.call("complete", f)
    yield "a higher limit", 1, lambda: db.execute(
        "SELECT fairq.set_group(%s, 'bob', concurrency => 2)", [q.name])
    yield "notify => false", None, lambda: q.change(notify=False)
    yield "enqueue, without notify", 0, enqueue


def once_per_transaction(run):
    """Each transaction of steps() sends the stated number of notifications,
    without payload, on the channel of the queue."""
    names = ["life_notify", "Life.\"notify'; ü", "l" * 57]
    channels = {name: "fairq." + name for name in names}
    listener = Listener(channels.values())
    told = 0
    try:
        for name in names:
            q = Queue(run.db, name)
            drop(run.db, name)
            q.create(notify=True)
            silent = Queue(run.db, "life_silent")
            drop(run.db, silent.name)
            silent.create()
            silent.enqueue()
            for what, count, act in steps(q):
                listener.heard(run.db)
                act()
                heard = listener.heard(run.db)
                if count is None:
                    count = min(len(heard), 1)
                expect(heard == [(channels[name], "")] * count,
                       f"{what}: {heard}, not {count} of"
                       f" {channels[name]}")
                told += count
            drop(run.db, name)
            drop(run.db, silent.name)
    finally:
        listener.close()
    return f"{told} notifications"


def together(run):
    """A transaction sends one notification for each queue."""
    queues = [Queue(run.db, f"life_notify_{n}") for n in range(3)]
    listener = Listener([f"fairq.{q.name}" for q in queues])
    try:
        for q in queues:
            drop(run.db, q.name)
            q.create(notify=True)
        listener.heard(run.db)
        with run.db.transaction():
            for q in queues * 3:
                q.enqueue()
        heard = listener.heard(run.db)
        expect(sorted(heard) == [(f"fairq.{q.name}", "") for q in queues],
               f"{heard}")
        expect(value(run.db, "SELECT count(*) FROM fairq.tasks"
                     " WHERE queue LIKE 'life\\_notify\\__'") == 9,
               "tasks are missing")
    finally:
        listener.close()
        for q in queues:
            drop(run.db, q.name)
