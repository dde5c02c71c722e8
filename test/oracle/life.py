"""The life of a task: how it becomes ready, how it ends, and what the archive
keeps.

Terms.  A *scheduled* task has an instant from which it is *due*.  The lease of
a running task has an instant at which it *expires*.  A call reads the clock
once.  The model knows all instants, and the times before and after each call.
clock.py ensures that no instant is between these two times.  So the model knows
what the call must find.

An attempt *counts* towards max_attempts unless it was released.  An attempt
ends by complete, fail, release or the expiry of its lease.  A pop at the
group's turn, expire_leases or maintain notices the expiry.  Until then the task
runs.  Such a task keeps its slot, and its worker may still end or extend it.

The promises, in addition to those of model.py (kinds):

early     no scheduled task is served before its time.
attempts  a task that has had all of its attempts is not served again.  It
          failed at the end of the last attempt.
cancel    cancel() is true for an unfinished task.  If the task did not run, it is
          gone.  If the task ran, it is not served again, as fail, release and
          expiry end it.
extend    a lease ends at the time that extend() returns.  If extend() returns
          NULL, the lease is lost or the task is cancelled.
fail, release, complete, expire, redrive, purge
          return true if they act, or the number of tasks on which they act.  The
          first three return false for a cancelled task, which they end.  A retry
          comes after the requested delay, or after the queue's backoff.  The backoff
          doubles with each attempt that counted, plus or minus a quarter.  Without a
          delay the task is due at once.
key       a dedup key belongs to one unfinished task that the calling session
          sees.  A call waits while an open transaction may still change to
          which task the key belongs.
expiry    the state of expired tasks is correct after a pop, wait or
          expire_leases.  A task has ended if the attempt was its last one, or
          if the task was cancelled.  Otherwise it is ready, as after a failure.
view      the row of fairq.tasks is correct, also for a finished task.
"""

from state import (CANCELLED, FAILED, FOREVER, GONE, LAPSES_ALONE, PURGED,
                   READY, RUNNING, SCHEDULED, COMPLETED, Fault, Task)
from transactions import Transactions

HOUR = 3600 * 1000000
LEASE_EXPIRED = "lease expired"


def due_at(run_at):
    """The instant at which the task is due: run_at, rounded up to 1 ms."""
    return run_at if run_at == FOREVER else -(-run_at // 1000) * 1000


def due_order(task):
    """The key by which due tasks are sorted: by milliseconds, and within one
    millisecond by id."""
    return due_at(task.run_at), task.id % 65536


class Life(Transactions):
    # ---- results that a session sees

    def holder(self, key):
        """The unfinished task of a dedup key, or None."""
        return next((task for task in self.keys.get(key, ())
                     if task.unfinished()), None)

    def busy(self, session, key):
        """Whether another open transaction may change which task has the
        key."""
        return any(task.owner not in (None, session)
                   and (task.born is not None or not task.unfinished())
                   for task in self.keys.get(key, ()))

    def held(self, session):
        """Running tasks that this session may finish without waiting."""
        return [task for task in self.tasks.values()
                if task.status == RUNNING and task.owner in (None, session)]

    def unfinished(self):
        return [task for task in self.tasks.values() if task.unfinished()]

    def finished_ids(self):
        return self.ids - {task.id for task in self.unfinished()}

    def is_late(self, task):
        """Whether the task is due, or its lease has expired."""
        return task.instant is not None and task.instant <= self.clock.start

    def expired(self, session):
        return [task for task in self.held(session) if self.is_late(task)]

    def ending(self, session, task):
        """The task's outcome if its attempt ends without success, or None if
        the task is retried."""
        if task.cancelled:
            return CANCELLED
        most = task.max_attempts or self.settings_of(session).max_attempts
        return FAILED if task.attempt - task.released >= most else None

    def _late_in(self, fifo):
        return any(task.owner is None and (
            task.status == SCHEDULED or not self.ending(None, task))
            for status in (SCHEDULED, RUNNING)
            for task in fifo.late(None, self.clock.start, status))

    # ---- calls and their results

    def enqueued(self, session, id, group, priority, run_at=None, key=None,
                 max_attempts=None, cost=None, batch=None):
        holder = self.holder(key) if key is not None else None
        if holder is not None:
            if id != holder.id:
                raise Fault("key", f"{key} is the key of task {holder.id},"
                            f" but enqueue returned {id}")
            return
        if id in self.ids:
            raise Fault("unknown", f"id {id} was returned twice")
        task = Task(id, group, priority, key, max_attempts,
                    (self.clock.start, self.clock.end), cost, batch)
        self._learn(task)
        if run_at is None or run_at <= self.clock.start:
            self._change(session, task, READY, last=True, born=session)
        else:
            self._schedule(session, task, run_at, born=session)

    def _schedule(self, session, task, run_at, begun=False, **values):
        self.clock.expect(due_at(run_at))
        self._fifo(task).regular = False
        self._change(session, task, SCHEDULED, run_at=run_at, begun=begun,
                     retry=None, instant=due_at(run_at), **values)

    def _retry(self, session, task, since=None, **values):
        """Makes the task due at once.  The task has been due since the given
        time, or since some moment of this call.  Times may be whole
        milliseconds.
        """
        self._fifo(task).regular = False
        low, high = self.clock.start - 1000, self.clock.end
        if since is not None and not low <= since <= high:
            raise Fault("view", f"task {task.id} is ready again since {since},"
                        f" and not {low} to {high}")
        retry = (low, high) if since is None else (since, since)
        self._change(session, task, SCHEDULED, run_at=retry[0], begun=True,
                     retry=retry, instant=self.clock.start, **values)

    def _again(self, session, task, **values):
        """Makes the task ready again, behind the others of its group."""
        self._fifo(task).regular = False
        self._change(session, task, READY, last=True, moved=True,
                     since=(self.clock.start, self.clock.end), **values)

    def _end(self, session, task, outcome, status=GONE, ended=None, **values):
        how = outcome
        if outcome != FAILED and not self.settings_of(session).retain:
            outcome = None
        self._change(session, task, status, outcome=outcome, how=how,
                     ended=ended or self.clock.start, **values)

    def finished(self, session, id, result=None):
        task = self.tasks[id]
        self._end(session, task, CANCELLED if task.cancelled else COMPLETED,
                  result=result)

    def fate(self, session, task, delay, dead=False):
        """The next state of a failed task.  If delay is None, the queue's
        backoff applies."""
        ending = self.ending(session, task)
        if ending or dead:
            return ending or FAILED
        if delay is None:
            delay = self.settings_of(session).backoff
        return SCHEDULED if delay else READY

    def failed(self, session, id, error, delay, fate, run_at=None):
        task = self.tasks[id]
        if fate == SCHEDULED:
            self._check_delay(session, "fail", task, delay, run_at)
            self._schedule(session, task, run_at, begun=True, error=error)
        elif fate == READY:
            self._retry(session, task, run_at, error=error)
        else:
            self._end(session, task, fate, error=error)

    def _check_delay(self, session, call, task, delay, run_at):
        low = high = delay
        if delay is None:
            counted = task.attempt - task.released
            backoff = self.settings_of(session).backoff << (counted - 1)
            low, high = min(backoff * 3 // 4, HOUR), min(backoff * 5 // 4,
                                                         HOUR)
            low = min(low, HOUR * 3 // 4)
        if not (self.clock.start + low - 1 <= run_at
                <= self.clock.end + high + 1):
            raise Fault(call, f"task {task.id} is to be retried after"
                        f" {run_at - self.clock.start} microseconds, not"
                        f" {low} to {high}")

    def released(self, session, id, delay=0, run_at=None):
        task = self.tasks[id]
        if task.cancelled:
            self._end(session, task, CANCELLED)
        elif delay:
            self._check_delay(session, "release", task, delay, run_at)
            self._schedule(session, task, run_at, released=task.released + 1)
        elif task.lapses >= LAPSES_ALONE:
            # run_at of a released task is the time of the release, in whole
            # milliseconds
            if not self.clock.start - 1000 <= run_at <= self.clock.end:
                raise Fault("view", f"task {task.id} is ready again since"
                            f" {run_at}")
            self._fifo(task).regular = False
            self._change(session, task, SCHEDULED, run_at=run_at, begun=False,
                         retry=None, instant=self.clock.start,
                         released=task.released + 1)
        else:
            self._again(session, task, released=task.released + 1)

    def extended(self, session, id, lease, lease_until):
        task = self.tasks[id]
        if task.cancelled:
            if lease_until is not None:
                raise Fault("extend", f"task {id} is cancelled, and was"
                            " extended")
            self._change(session, task, RUNNING)    # the task's row is locked
            return
        self.check_lease(lease, lease_until, "extend")
        self._change(session, task, RUNNING, instant=lease_until)

    def check_lease(self, lease, lease_until, call):
        if lease_until is None or not (
                self.clock.start <= lease_until - lease <= self.clock.end):
            raise Fault(call, f"the lease ends at {lease_until}, not {lease}"
                        f" microseconds after {self.clock.start}")
        self.clock.expect(lease_until)

    def cancel(self, session, id):
        """Cancel in the model.  Returns the required result of the call."""
        task = self.tasks.get(id)
        if task is None or not task.unfinished():
            return False
        if task.status == RUNNING:
            self._change(session, task, RUNNING, cancelled=True)
        else:
            self._fifo(task).regular = False
            self._end(session, task, CANCELLED, PURGED)
        return True

    def purge(self, session, group=None):
        """Purge in the model.  Returns the number of dropped tasks."""
        dropped = [task for task in self.tasks.values()
                   if group in (None, task.group)
                   and task.status in (READY, SCHEDULED)
                   and task.owner in (None, session)]
        for task in dropped:
            self._fifo(task).regular = False
            self._change(session, task, PURGED, how=PURGED)
        return len(dropped)

    def lapsed(self, session, task, status, when):
        """The state of an expired task that a call found, and the time since
        which it has ended or is ready again.
        """
        due = self.ending(session, task) or READY
        if status != due:
            raise Fault("expiry", f"task {task.id}, whose lease expired, is"
                        f" {status}, not {due}")
        lapses = task.lapses + 1
        if due == READY:
            self._retry(session, task, when, lapses=lapses)
        else:
            self._end(session, task, due, ended=when, error=LEASE_EXPIRED,
                      lapses=lapses)

    def redrive(self, session, group=None, most=None):
        """Redrive in the model.  Returns the number of redriven tasks."""
        failed = sorted((task for task in self.tasks.values()
                         if task.outcome == FAILED
                         and group in (None, task.group)
                         and task.owner in (None, session)),
                        key=lambda task: (task.ended, task.id))
        back = 0
        for task in failed:
            if most is not None and back == most:
                break
            if task.key is None or not (self.holder(task.key) or
                                        self.busy(session, task.key)):
                self._again(session, task, outcome=None, how=None,
                            released=task.attempt, lapses=0)
                back += 1
        return back

    def maintained(self, session):
        """Deletes tasks that are not retained, and groups without tasks."""
        if not self.settings_of(session).retain:
            for task in list(self.tasks.values()):
                if task.owner is None and task.outcome in (COMPLETED,
                                                           CANCELLED):
                    self._change(session, task, GONE, outcome=None)
        unused = self.groups - {task.group for task in self.unfinished()}
        for group in unused:
            self._unknown(group)
        self.groups -= unused

    # ---- the view

    def check_row(self, session, task, row):
        """Whether this is the task's row, in the version that the session must see."""
        if not task.unfinished() and task.outcome is None:
            if row is not None:
                raise Fault("view", f"task {task.id} is gone, but {row}")
            return
        if row is None:
            raise Fault("view", f"no row for task {task.id}, which is"
                        f" {task.outcome or task.status}")
        statuses = {READY: ("queued", "waiting"), RUNNING: ("running",),
                    SCHEDULED: ("scheduled",)}.get(task.status,
                                                   (task.outcome,))
        if task.status == SCHEDULED and self.is_late(task):
            statuses = ("queued", "waiting")
        if task.blocked and task.unfinished():
            statuses = ("blocked",)
        due = {"attempt": task.attempt}
        if task.status == SCHEDULED and not task.blocked:
            low, high = task.retry or (task.run_at, task.run_at)
            due["run_at"] = min(max(low, row.run_at or 0), high)
        if task.status == RUNNING:
            due["lease_until"] = task.instant
        if task.status == READY and task.moved:
            due["run_at"] = min(max(task.since[0], row.run_at or 0),
                                task.since[1])
        if task.outcome in (COMPLETED, CANCELLED):
            due["result"] = task.result
        elif task.error is not None:
            due["error"] = task.error
        wrong = [f"{name} {getattr(row, name)}, not {value}"
                 for name, value in due.items() if getattr(row, name) != value]
        if row.status not in statuses:
            wrong.append(f"status {row.status}, not {' or '.join(statuses)}")
        if wrong:
            raise Fault("view", f"task {task.id}: {'; '.join(wrong)}")
