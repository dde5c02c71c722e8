"""The model's data: tasks, settings, counts, and each group's tasks."""

from bisect import bisect_left, insort
from heapq import merge
from operator import attrgetter

READY, SCHEDULED, RUNNING = "ready", "scheduled", "running"
PURGED, GONE = "purged", "gone"     # a task ended before it ran, or by its worker
COMPLETED, FAILED, CANCELLED = "completed", "failed", "cancelled"
NO_LIMIT = 1 << 60
FOREVER = 1 << 62               # an instant that never arrives
UNKNOWN = -1                    # an unknown turn: the group may have had a turn
ANYWHERE = "anywhere"           # in cycles: any task may be next


class Fault(Exception):
    """A broken promise. kind names the promise, see model.py and life.py."""

    def __init__(self, kind, text):
        super().__init__(f"{kind}: {text}")
        self.kind = kind


LAPSES_ALONE = 2                # a task with this number of lapses is served alone


class Task:
    """The fields in CHANGING change, and a rollback restores them."""
    CHANGING = ("status",       # see above
                "owner",        # the session whose open transaction changed it
                "born",         # the session whose enqueue is not committed
                "place",        # its place in its group's line, or 0
                "attempt",
                "released",     # attempts that max_attempts ignores
                "lapses",       # attempts whose leases expired
                "moved",        # whether it has left its first place
                "since",        # the task became ready between these moments
                "leases",       # see Terms
                "run_at",
                "instant",      # when the task is due, or its lease expires
                "begun",        # scheduled: whether it is retried
                "retry",        # the task became due between these moments
                "stands",       # its place among expired tasks, if it runs
                "cancelled",    # whether it was cancelled while it ran
                "blocked",      # whether it waits for its batch, or None
                "closed",       # whether its batch accepts no more tasks
                "how",          # how it ended
                "outcome",      # how it ended, according to the archive
                "ended",        # when it was put into the archive
                "error", "result")
    __slots__ = ("id", "group", "lane", "key", "max_attempts",
                 "enqueued", "cost", "batch", "on_success") + CHANGING

    def __init__(self, id, group, lane, key=None, max_attempts=None,
                 enqueued=(0, 0), cost=None, batch=None, on_success=None):
        """batch: the batch to which the task belongs. on_success: the setting
        of the batch for which the task waits.
        """
        self.id, self.group, self.lane = id, group, lane
        self.key, self.max_attempts = key, max_attempts
        self.enqueued = enqueued    # between these moments
        self.cost = cost
        self.batch, self.on_success = batch, on_success
        self.blocked = None if on_success is None else False
        self.closed = False
        self.how = None
        self.status, self.owner, self.born = GONE, None, None
        self.place = self.attempt = self.released = self.leases = 0
        self.lapses = 0
        self.moved = self.cancelled = False
        self.since = enqueued
        self.begun = False
        self.run_at = self.instant = self.retry = self.stands = None
        self.outcome = self.ended = None
        self.error = self.result = None

    def state(self):
        return _changing(self)

    def restore(self, state):
        for name, value in zip(self.CHANGING, state):
            setattr(self, name, value)

    def unfinished(self):
        return self.status in (READY, SCHEDULED, RUNNING)

    def is_alone(self):
        """Whether the task is served alone, if it can be served. If the task
        has a lease, the lease has expired by then.
        """
        return self.lapses + (self.status == RUNNING) >= LAPSES_ALONE


_changing = attrgetter(*Task.CHANGING)


class Settings:
    """The settings of the queue. A change replaces the object by a changed
    copy."""

    def __init__(self):
        self.concurrency = None     # limit of the queue's groups, or None
        self.max_running = None
        self.paused = False         # whether the queue is paused
        self.concurrency_of = {}    # groups with a limit of their own
        self.paused_groups = frozenset()    # paused groups and tenants
        self.max_attempts = 20
        self.backoff = 1000000      # microseconds
        self.retain = False
        self.fair_by = "tasks"
        self.separator = None       # separator between tenant and user, or None
        self.shares = ()            # shares of priorities; () for strict order

    def changed(self, **values):
        other = Settings()
        vars(other).update(vars(self), **values)
        return other

    def are_limits(self):
        return (self.concurrency is not None or self.max_running is not None
                or any(self.concurrency_of.values())
                or bool(self.paused_groups))

    def _is_paused(self, group):
        return (self.paused or group in self.paused_groups
                or self.separator is not None
                and group.split(self.separator)[0] in self.paused_groups)

    def limit(self, group):
        if self._is_paused(group):
            return 0
        own = self.concurrency_of.get(group)
        return self.concurrency if own is None else own


class Counts:
    """The counted running tasks of a group or of the queue."""

    def __init__(self):
        self.running = 0        # tasks
        self.leases = 0         # a task may have several, see Terms
        self.purged = {}        # session: tasks in its uncommitted purge

    def add(self, task, sign):
        self.running += sign * (task.leases > 0)
        self.leases += sign * task.leases
        if task.status == PURGED and task.owner is not None:
            self.purged[task.owner] = self.purged.get(task.owner, 0) + sign

    def most(self, session):
        return self.leases + sum(count for owner, count in self.purged.items()
                                 if owner != session)


class Fifo:
    """One group's tasks in one lane, in the order of their places. Tasks
    without a place have an instant at which they must be served.
    """

    def __init__(self, is_new=True):
        self.committed = []     # places of the ready tasks
        self.own = {}           # session: places of its uncommitted ready tasks
        self.leaving = {}       # session: places of tasks that it is purging
        self.tasks = {}         # place: task
        self.timed = []         # (instant, id, task) if scheduled or running
        self.regular = True
        # (other group, whether in a full queue): services of that group while
        # this one waited
        self.since = {}
        self.waits_since = None     # services when its wait began, or None
        self.served_at = None       # services when its last turn began
        self.turn = None if is_new else UNKNOWN     # the address of its last turn
        self.cycles = {None}    # one of these expired tasks was served last
        self.stretch = 0        # number of the stretch (see "share")
        self.first_turn = None  # the first turn of the stretch

    def end_wait(self):
        self.since.clear()
        self.waits_since = None

    def end_stretch(self):
        self.stretch += 1
        self.first_turn = None

    def forget_turns(self):
        self.end_wait()
        self.end_stretch()
        self.turn = UNKNOWN

    def _list(self, task):
        if not task.place:
            return None
        if task.status == READY:
            if task.owner is None:
                return self.committed
            return self.own.setdefault(task.owner, [])
        if task.status == PURGED and task.owner is not None:
            return self.leaving.setdefault(task.owner, [])
        return None

    def put(self, task):
        places = self._list(task)
        if places is not None:
            insort(places, task.place)
            self.tasks[task.place] = task
        if task.instant is not None:
            insort(self.timed, (task.instant, task.id, task))

    def remove(self, task):
        places = self._list(task)
        if places is not None:
            del places[bisect_left(places, task.place)]
            del self.tasks[task.place]
        if task.instant is not None:
            del self.timed[bisect_left(self.timed, (task.instant, task.id))]

    def nothing_ready(self):
        return not (self.committed or any(self.own.values()))

    def visible(self, session):
        return len(self.committed) + len(self.own.get(session, ()))

    def first(self, session):
        own = self.own.get(session)
        if own and (not self.committed or own[0] < self.committed[0]):
            return own[0]
        return self.committed[0] if self.committed else None

    def visible_tasks(self, session):
        """The ready tasks that the session sees, in order of their places."""
        for place in merge(self.committed, self.own.get(session, ())):
            yield self.tasks[place]

    def any_late(self, now):
        return bool(self.timed) and self.timed[0][0] <= now

    def late(self, session, now, status):
        """Tasks whose instant has passed: scheduled tasks that are due, or
        running tasks whose lease has expired.
        """
        if not self.any_late(now):
            return ()
        late = []
        for instant, _, task in self.timed:
            if instant > now:
                break
            if task.status == status and task.owner in (None, session):
                late.append(task)
        return late

    def unsettled(self, session):
        """The first place that another open transaction holds."""
        return min((places[0]
                    for held in (self.own, self.leaving)
                    for owner, places in held.items()
                    if owner != session and places), default=None)

    def in_order(self, session):
        """Whether the first place with a visible task is the first of all."""
        first = self.first(session)
        if first is None:
            return False
        unsettled = self.unsettled(session)
        return unsettled is None or first < unsettled


class Lane:
    def __init__(self):
        self.groups = {}        # group: Fifo
        self.stretches = {}     # pair of groups: see Model._share
        self.forget_turns()

    def forget_turns(self):
        """Makes past turns unknown."""
        self.stretches.clear()
        for fifo in self.groups.values():
            fifo.forget_turns()
        self.block = None       # the block of the last turn
        self.turn = None        # the address of the last turn
        self.in_turn = 0        # how many tasks were served in that turn
        self.served_at = None   # services before the last turn
