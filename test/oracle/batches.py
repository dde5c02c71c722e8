"""Batches: tasks that wait for the ends of other tasks.

A waiting task is *blocked*, and has no instant for which it is scheduled.  Pops
check its batch, at times that the model does not know.  So after each pop the
driver reads the blocked tasks.  If a pop finds no other task, it may serve a
task that it has made ready.  fairq makes these promises (kind "batch")

early     a task becomes ready only if its batch is closed.  Each task of the
          batch was ended by a committed transaction or by the session itself.
twice     the waiting task becomes ready once, if that is not rolled back.
          (After that it is a task like any other, so a second service is
          "doubled" or "unknown".)
numbers   the headers of the waiting task and fairq.batches have the number of
          each kind of end.
success   a task with on_success fails as soon as a task of its batch has ended
          without success, and only then.
lost      when no other task is left, the waiting task of each finished batch
          has run.

A session that pops or ends tasks may lock the row of a waiting task.  Other
sessions would block on this lock, so they do not change the waiting task
(may_change).
"""

from life import Life
from state import (CANCELLED, COMPLETED, FAILED, FOREVER, PURGED, READY,
                   SCHEDULED, Fault, Task)

ENDS = (COMPLETED, FAILED, CANCELLED, "expired", PURGED)


class Batches(Life):
    def __init__(self, clock):
        super().__init__(clock)
        self.members = {}       # id of a batch: its tasks, including ended ones
        self.touching = set()   # sessions that may have locked rows of batches
        self.ends = {}          # the rows of waiting tasks, read after the pop

    # ---- transactions

    def commit(self, session):
        super().commit(session)
        self.touching.discard(session)

    def rollback(self, session):
        super().rollback(session)
        self.touching.discard(session)

    def touches(self, session):
        """Records that the session pops or ends tasks in a transaction."""
        if session in self.undo and self.members:
            self.touching.add(session)

    def may_change(self, session, task):
        """Whether the session can change the task without waiting for
        another one.
        """
        return task.owner in (None, session) and not (
            task.blocked and self.touching - {session})

    def batches_are_busy(self, session):
        """Whether another session may be changing or checking a waiting
        task.
        """
        return any(task.blocked and not self.may_change(session, task)
                   for task in self.tasks.values())

    # ---- calls

    def blocked(self, session):
        return [task for task in self.tasks.values()
                if task.blocked and task.unfinished()
                and task.owner in (None, session)]

    def open_batches(self, session):
        """The batches that accept tasks."""
        return [task for task in self.blocked(session) if not task.closed]

    def created(self, session, id, group, priority, on_success, batch):
        task = Task(id, group, priority, batch=batch, on_success=on_success,
                    enqueued=(self.clock.start, self.clock.end))
        self._learn(task)
        self._change(session, task, SCHEDULED, born=session, blocked=True,
                     run_at=FOREVER, instant=FOREVER)

    def _learn(self, task):
        super()._learn(task)
        if task.blocked is not None:
            self.members.setdefault(task.id, [])
        if task.batch is not None:
            self.members[task.batch].append(task)

    def close_batch(self, session, task):
        """Closes the batch in the model.  Returns what the call must return."""
        if not task.blocked or not task.unfinished() or task.closed:
            return False
        self._change(session, task, SCHEDULED, closed=True)
        return True

    def cancel_batch(self, session, task):
        self.close_batch(session, task)
        return sum(self.cancel(session, member.id)
                   for member in self.members[task.id]
                   if member.status in (READY, SCHEDULED)
                   and member.owner in (None, session))

    # ---- checks

    def end_batches(self, session, ends):
        """Ends batches in the order of their waiting tasks' places."""
        for row in sorted(ends.values(), key=lambda row: row.addr or 0):
            self.end_batch(session, row)

    def end_failed_batches(self, session, ends):
        """Ends failed batches, inner batches first.  Returns the rows of the
        other batches."""
        for id in sorted(ends, reverse=True):
            if ends[id].status == FAILED:
                self.end_batch(session, ends[id])
        return {id: row for id, row in ends.items() if row.status != FAILED}

    def end_batch(self, session, row):
        """Judges the changes that a check has made to a waiting task, and
        stores them.
        """
        task = self.tasks[row.id]
        members = self.members[task.id]
        hidden = [member for member in members
                  if member.owner not in (None, session)
                  and (member.unfinished() or member.how)]
        ends = [member.how for member in members
                if member not in hidden and member.how]
        if row.status == FAILED:
            self._check_failure(task, members, hidden, row)
            self._end(session, task, FAILED, error=row.error, blocked=False)
            return
        left = [member for member in members
                if member in hidden or member.unfinished()]
        if not task.closed or left or (
                task.on_success and set(ends) - {COMPLETED}):
            raise Fault("batch", f"task {task.id} is {row.status}: closed"
                        f" {task.closed}, ends {ends}, with "
                        + str([(member.id, member.status) for member in left]))
        numbers = {end: ends.count(end) for end in ENDS}
        for got in (row.numbers, row.headers):
            if got not in (None, numbers):
                raise Fault("batch", f"the numbers of {task.id} are {got}, not"
                            f" {numbers}")
        self._fifo(task).forget_turns()
        self._again(session, task, blocked=False)

    @staticmethod
    def _check_failure(task, members, hidden, row):
        failed = [member.id for member in members if member not in hidden
                  and member.how not in (None, COMPLETED)]
        if not task.on_success or row.error not in [
                f"task {id} did not succeed" for id in failed]:
            raise Fault("batch", f"task {task.id} has failed, by {row.error},"
                        f" and these did not succeed: {failed}")

    def is_over(self, task):
        """Whether the batch for which the task waits is over."""
        return task.closed and not any(member.unfinished() for member in
                                       self.members[task.id])
