"""The events that wake a waiting worker. Each event is a case.

A case is a generator.  It prepares the queue, so that no task can be popped, and
yields.  Then two workers sleep in fairq.wait().  The generator continues with the
event.  If the event only needs time, it may return the moment at which the event is
due.  A worker must be notified within moments after the event, and not before.
"""

import time

from base import TooSlow, connect, cut, expect, now, rows, value

SOON = 0.15                     # seconds until a task becomes due
CROWDED = 2                     # the same, if a hundred workers go to sleep


def take_time(factor):
    """Multiplies the usual seconds until a task becomes due."""
    global SOON, CROWDED
    SOON, CROWDED = 0.15 * factor, 2 * factor


def in_time(truth, text):
    if not truth:
        raise TooSlow(text)


class Queue:
    """The queue of one case, and short methods for its calls."""

    def __init__(self, db, name):
        self.db, self.name = db, name
        self.others = []
        self.verb = "pop"       # the call that workers make
        self.ends_one = False   # whether a pop may only end a task

    def create(self, **options):
        names = "".join(f", {name} => %s" for name in options)
        self.db.execute(f"SELECT fairq.create_queue(%s{names})",
                        [self.name, *options.values()])

    def session(self):
        self.others.append(connect("another"))
        return self.others[-1]

    def close(self):
        for db in self.others:
            db.close()

    def enqueue(self, group="bob", db=None, **options):
        names = "".join(f", {name} => %s" for name in options)
        return value(db or self.db, f"SELECT fairq.enqueue(%s, %s{names})",
                     self.name, group, *options.values())

    def later(self, seconds=None, db=None, **options):
        """Adds a scheduled task.  Returns its id, and when it is due."""
        at = now() + (seconds or SOON)
        return self.enqueue(db=db, run_at=as_timestamp(at), **options), at

    def pop(self, max_tasks=1, lease="1 hour", db=None):
        """[(id, attempt)]"""
        return rows(db or self.db, "SELECT id, attempt FROM"
                    " fairq.pop(%s, %s, lease => %s)",
                    self.name, max_tasks, lease)

    def call(self, function, *arguments, db=None):
        places = ", ".join(["%s"] * len(arguments))
        return value(db or self.db, f"SELECT fairq.{function}({places})",
                     *arguments)

    def change(self, **options):
        names = "".join(f", {name} => %s" for name in options)
        self.db.execute(f"SELECT fairq.alter_queue(%s{names})",
                        [self.name, *options.values()])

    def lease_ends(self, id):
        return self.instant("lease_until", id)

    def instant(self, column, id):
        """Returns the time in a column of a task, on this program's clock."""
        at = value(self.db, f"SELECT extract(epoch FROM {column})"
                   " FROM fairq.tasks WHERE id = %s", id)
        return now() + float(at) - time.time()

    def expired(self, max_tasks=1, **options):
        """Makes and returns tasks whose worker is lost and whose lease has
        expired."""
        for _ in range(max_tasks):
            self.enqueue(**options)
        tasks = self.pop(max_tasks, "1 ms")
        time.sleep(0.003)
        return tasks


def as_timestamp(at):
    """Returns the server's time for a time on this program's clock."""
    seconds = time.time() + at - now()
    return time.strftime("%Y-%m-%d %H:%M:%S",
                         time.gmtime(seconds)) + f"{seconds % 1:.6f}"[1:] + "Z"


CASES = []


def case(name):
    def add(function):
        CASES.append((name, function))
        return function
    return add


# ---- producers

@case("enqueue")
def _(q):
    q.create()
    yield
    q.enqueue()


@case("the commit of enqueues, not the enqueues")
def _(q):
    q.create()
    yield
    db = q.session()
    with db.transaction():
        q.enqueue(db=db)
        q.enqueue(db=db)
        time.sleep(0.05)
        at = now()
    return at


@case("a task falls due")
def _(q):
    q.create()
    _, at = q.later()
    yield
    return at


@case("a task that is enqueued meanwhile falls due before another one")
def _(q):
    q.create()
    q.later(3600)
    yield
    return q.later()[1]


@case("a task falls due in a lane that is read again")
def _(q):
    q.create()
    _, at = q.later()
    yield
    q.call("reset_hints")
    return at


@case("enqueue, after reset_hints()")
def _(q):
    q.create()
    yield
    q.call("reset_hints")
    q.enqueue()


@case("redrive")
def _(q):
    q.create()
    q.enqueue()
    (id, attempt), = q.pop()
    q.db.execute("SELECT fairq.fail(%s, %s, dead => true)", [id, attempt])
    yield
    expect(q.call("redrive", q.name) == 1, "nothing was redriven")


@case("the rollback of a purge")
def _(q):
    q.create()
    q.enqueue()
    db = q.session()
    db.execute("BEGIN")
    expect(q.call("purge", q.name, db=db) == 1, "nothing was purged")
    yield
    db.execute("ROLLBACK")


@case("the rollback of a cancel")
def _(q):
    q.create()
    id = q.enqueue()
    db = q.session()
    db.execute("BEGIN")
    expect(q.call("cancel", id, db=db), "could not cancel")
    yield
    db.execute("ROLLBACK")


# ---- workers

@case("release")
def _(q):
    q.create()
    q.enqueue()
    (id, attempt), = q.pop()
    yield
    q.call("release", id, attempt)


@case("release with a delay")
def _(q):
    q.create()
    q.enqueue()
    (id, attempt), = q.pop()
    yield
    at = now() + SOON
    q.call("release", id, attempt, f"{SOON} s")
    return at


@case("fail, to be retried at once")
def _(q):
    q.create()
    q.enqueue()
    (id, attempt), = q.pop()
    yield
    q.call("fail", id, attempt, "oh", "0")


@case("fail, and the retry falls due")
def _(q):
    q.create()
    q.enqueue()
    (id, attempt), = q.pop()
    yield
    at = now() + SOON
    q.call("fail", id, attempt, "oh", f"{SOON} s")
    return at


@case("fail, and the backoff is over")
def _(q):
    q.create(backoff="100 ms")
    q.enqueue()
    (id, attempt), = q.pop()
    yield
    q.call("fail", id, attempt)
    return q.instant("run_at", id)


@case("a lease expires")
def _(q):
    q.create()
    q.enqueue()
    (id, _), = q.pop(lease=f"{SOON} s")
    at = q.lease_ends(id)
    yield
    return at


@case("a lease that begins meanwhile expires")
def _(q):
    q.create()
    yield
    with q.db.transaction():
        q.enqueue()
        (id, _), = q.pop(lease=f"{SOON} s")
        at = q.lease_ends(id)
    return at


@case("a lease that is shortened meanwhile expires")
def _(q):
    q.create()
    q.enqueue()
    (id, attempt), = q.pop()
    yield
    q.call("extend", id, attempt, f"{SOON} s")
    return q.lease_ends(id)


@case("a lease expires after it was extended")
def _(q):
    q.create()
    q.enqueue()
    (id, attempt), = q.pop(lease=f"{SOON} s")
    first = q.lease_ends(id)
    yield
    time.sleep(SOON / 2)
    # an extend is in time as long as no other worker has the task
    in_time(q.call("extend", id, attempt, f"{SOON} s") and now() < first,
            "the lease has expired")
    return q.lease_ends(id)


@case("the rollback of a pop")
def _(q):
    q.create()
    q.enqueue()
    db = q.session()
    db.execute("BEGIN")
    expect(q.pop(db=db), "nothing was popped")
    yield
    db.execute("ROLLBACK")


@case("the rollback of a pop to a savepoint")
def _(q):
    q.create()
    q.enqueue()
    db = q.session()
    db.execute("BEGIN")
    db.execute("SAVEPOINT s")
    expect(q.pop(db=db), "nothing was popped")
    yield
    db.execute("ROLLBACK TO s")


@case("the rollback of a take")
def _(q):
    q.create()
    q.enqueue()
    db = q.session()
    db.execute("BEGIN")
    expect(q.call("take", q.name, db=db), "nothing was taken")
    yield
    db.execute("ROLLBACK")


@case("the end of a session that has popped but has not committed")
def _(q):
    q.create()
    q.enqueue()
    db = q.session()
    db.execute("BEGIN")
    expect(q.pop(db=db), "nothing was popped")
    yield
    cut(db)


@case("the rollback of a pop that took an expired lease over")
def _(q):
    q.create()
    q.expired()
    db = q.session()
    db.execute("BEGIN")
    expect(q.pop(db=db), "nothing was popped")
    yield
    db.execute("ROLLBACK")


@case("the rollback of a pop of a task that was due")
def _(q):
    q.create()
    q.later(0.01)
    time.sleep(0.02)
    db = q.session()
    db.execute("BEGIN")
    expect(q.pop(db=db), "nothing was popped")
    yield
    db.execute("ROLLBACK")


def undone_when_expired(name, function, *arguments):
    """A lease expires while its worker's transaction changes the task, and the
    change is rolled back.
    """

    @case(f"the rollback of a {name}, when the lease has expired meanwhile")
    def _(q):
        q.create()
        q.expired()
        (id, attempt), = q.pop(lease="10 ms")
        db = q.session()
        db.execute("BEGIN")
        expect(q.call(function, id, attempt, *arguments, db=db),
               f"could not {name}")
        time.sleep(0.02)
        yield
        db.execute("ROLLBACK")


undone_when_expired("complete", "complete")
undone_when_expired("release", "release")
undone_when_expired("fail", "fail", "oh")
undone_when_expired("extend", "extend", "1 hour")


# ---- rates and holds

def next_start(q):
    at = value(q.db, "SELECT extract(epoch FROM next_at) FROM fairq.groups"
               " WHERE queue = %s", q.name)
    return now() + float(at) - time.time()


def paced(name, **options):
    """One task of the group has started, and the next one may start in a
    moment."""

    @case(name)
    def _(q):
        q.create(per=f"{SOON} s", **options)
        q.enqueue()
        q.enqueue()
        in_time(q.pop() and not q.pop(), "a rate is exceeded")
        at = next_start(q)
        yield
        return at


paced("the next start of a group is due", rate=1)
paced("the next start of a queue is due", max_rate=1)


def held(name, group):
    @case(name)
    def _(q):
        q.create()
        q.enqueue()
        q.db.execute("SELECT fairq.hold(%s, %s, until => clock_timestamp()"
                     " + %s * interval '1 s')", [q.name, group, SOON])
        in_time(not q.pop(), "a hold has no effect")
        at = next_start(q)
        yield
        return at


held("the hold of a group ends", "bob")
held("the hold of a queue ends", None)


# ---- limits

def place(name, queue, end, expires=False, ends_one=False):
    """Enqueues two tasks, only one of which may run at a time."""

    @case(name)
    def _(q):
        q.ends_one = ends_one
        q.create(**queue)
        q.enqueue()
        q.enqueue()
        (id, attempt), = q.pop(lease=f"{SOON} s" if expires else "1 hour")
        at = q.lease_ends(id)
        if expires:
            end(q, id, attempt)
        expect(expires or not q.pop(), "a limit is exceeded")
        yield
        if not expires:
            end(q, id, attempt)
        return at if expires else None


def complete(q, id, attempt):
    expect(q.call("complete", id, attempt), "could not complete")


def fail_for_good(q, id, attempt):
    q.db.execute("SELECT fairq.fail(%s, %s, dead => true)", [id, attempt])


def retry_later(q, id, attempt):
    q.call("fail", id, attempt, "oh", "1 hour")


def release_for_long(q, id, attempt):
    q.call("release", id, attempt, "1 hour")


def cancel(q, id, attempt):
    q.call("cancel", id)


def nothing(q, id, attempt):
    pass


place("complete, in a group that is full", {"concurrency": 1}, complete)
place("complete, in a group that is full, of a queue that retains",
      {"concurrency": 1, "retain": "1 hour"}, complete)
place("fail for good, in a group that is full", {"concurrency": 1},
      fail_for_good)
place("fail, in a group that is full", {"concurrency": 1}, retry_later)
place("release for later, in a group that is full", {"concurrency": 1},
      release_for_long)
place("complete, in a queue that is full", {"max_running": 1}, complete)
place("release for later, in a queue that is full", {"max_running": 1},
      release_for_long)
place("a lease expires in a group that is full", {"concurrency": 1}, nothing,
      expires=True)
place("a lease expires in a queue that is full", {"max_running": 1}, nothing,
      expires=True)
place("the lease of a cancelled task expires, in a group that is full",
      {"concurrency": 1}, cancel, expires=True, ends_one=True)
place("the lease of a task's last attempt expires, in a group that is full",
      {"concurrency": 1, "max_attempts": 1}, nothing, expires=True,
      ends_one=True)
place("the lease of a task's last attempt expires, in a queue that is full",
      {"max_running": 1, "max_attempts": 1}, nothing, expires=True,
      ends_one=True)


@case("the rollback of a pop, in a group that is full")
def _(q):
    q.create(concurrency=1)
    q.enqueue()
    q.enqueue()
    db = q.session()
    db.execute("BEGIN")
    expect(q.pop(db=db), "nothing was popped")
    yield
    db.execute("ROLLBACK")


@case("the commit of a take, in a group that is full")
def _(q):
    q.create(concurrency=1)
    q.enqueue()
    q.enqueue()
    db = q.session()
    db.execute("BEGIN")
    expect(q.call("take", q.name, db=db), "nothing was taken")
    yield
    db.execute("COMMIT")


def raised(name, queue, more):
    @case(name)
    def _(q):
        q.create(**queue)
        q.enqueue()
        q.enqueue()
        expect(q.pop(), "nothing was popped")
        yield
        more(q)


def raise_group(q):
    q.db.execute("SELECT fairq.set_group(%s, 'bob', concurrency => 2)",
                 [q.name])


raised("a group's limit is raised", {"concurrency": 1}, raise_group)
raised("the limit of all groups is raised", {"concurrency": 1},
       lambda q: q.change(concurrency=2))
raised("the limit of all groups is taken away", {"concurrency": 1},
       lambda q: q.change(concurrency=0))
raised("the queue's limit is raised", {"max_running": 1},
       lambda q: q.change(max_running=2))


@case("a group is resumed")
def _(q):
    q.create()
    q.enqueue()
    q.call("pause", q.name, "bob")
    yield
    q.call("resume", q.name, "bob")


@case("the queue is resumed")
def _(q):
    q.create()
    q.enqueue()
    q.call("pause", q.name)
    yield
    q.call("resume", q.name)


@case("a group with a due task is resumed")
def _(q):
    q.create()
    q.later(0.02)
    q.call("pause", q.name, "bob")
    yield
    time.sleep(0.05)
    q.call("resume", q.name, "bob")


@case("the queue, with an expired lease, is resumed")
def _(q):
    q.create()
    q.enqueue()
    q.pop(lease="20 ms")
    q.call("pause", q.name)
    yield
    time.sleep(0.05)
    q.call("resume", q.name)
