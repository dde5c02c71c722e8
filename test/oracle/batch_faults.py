"""Faults of batches.  Each fault is a small change to the correct queue, and
names the kinds of fault that the oracle may report for it."""

from fake import Fake
from state import COMPLETED


class EndsWithRunning(Fake):
    """A batch is over although some of its tasks are still running."""

    def is_over(self, row, members, ends):
        return row.closed and not any(
            member.state in ("ready", "scheduled", "blocked")
            for member in members)


class EndsUncommitted(Fake):
    """A batch counts the end of a task before this end is committed."""

    def is_over(self, row, members, ends):
        return row.closed and all(member.state == "done"
                                  for member in members)


class EndsBeforeItIsClosed(Fake):
    def is_over(self, row, members, ends):
        return len(ends) == len(members) > 0


class EndsTwice(Fake):
    """A batch ends once more when the task that waits for it has been
    completed."""

    def complete(self, session, id, attempt, result):
        done = super().complete(session, id, attempt, result)
        row = self.rows[id]
        if done and row.numbers and not getattr(row, "again", False):
            row.again = True
            self.change(session, row, "ready", last=True)
        return done


class NeverEnds(Fake):
    def is_over(self, row, members, ends):
        return False


class NeedsSuccess(Fake):
    """All tasks must succeed, also without on_success."""

    def is_over(self, row, members, ends):
        return super().is_over(row, members, ends) and not any(
            how != COMPLETED for how in ends.values())


class CountsAttempts(Fake):
    """A task that failed and ran again counts as failed."""

    def again(self, session, row, **values):
        if values.get("numbers"):
            twice = sum(other.batch == row.id and other.attempt > 1
                        for other in self.rows.values())
            values["numbers"] = {**values["numbers"], "failed":
                                 values["numbers"]["failed"] + twice}
        super().again(session, row, **values)


class SucceedsInAnyCase(Fake):
    """on_success has no effect."""

    def look_at_batch(self, session, row):
        row.on_success = False
        super().look_at_batch(session, row)


class CancelsTheRunning(Fake):
    """cancel_batch also cancels and counts running tasks."""

    def cancel_batch(self, session, id):
        return super().cancel_batch(session, id) + sum(
            self.cancel(session, row.id) for row in self.rows.values()
            if row.batch == id and self.mine(session, row)
            and row.state == "running")


BATCH_FAULTS = {
    EndsWithRunning: {"batch"},
    EndsUncommitted: {"batch"},
    EndsBeforeItIsClosed: {"batch"},
    EndsTwice: {"doubled", "unknown", "view", "complete"},
    NeverEnds: {"batch"},
    NeedsSuccess: {"batch"},
    CountsAttempts: {"batch"},
    SucceedsInAnyCase: {"batch"},
    CancelsTheRunning: {"batch"},
}
