"""Faults in the life of a task, at least one for each of its paths. Each class
names the kinds of fault that the model may report for it.
"""

from fake import DAY, Fake
from life import due_order
from server import Blocked
from state import FAILED


# ---- scheduled tasks

class ServesTooEarly(Fake):
    def is_due(self, row):
        return True


class NeverDue(Fake):
    def is_due(self, row):
        return False


class NeverReadyLater(Fake):
    """Each scheduled task is dropped."""

    def change(self, session, row, state, *arguments, **values):
        super().change(session, row, "done" if state == "scheduled" else
                       state, *arguments, **values)


class DueComesFirst(Fake):
    """Due tasks precede the ready tasks of their group."""

    def first_by_time(self, rows):
        return self.first_due(rows, False) or super().first_by_time(rows)


class DueComesLast(Fake):
    def first_by_time(self, rows):
        return super().first_by_time([row for row in rows
                                      if row.state == "ready"] or rows)


class ExpiredByItsTime(Fake):
    """An expired task is served in the order of times, like the other tasks of
    its group, not before them."""

    def first(self, session, rows):
        expired = self.first_expired(rows)
        other = super().first(session, [row for row in rows
                                        if row.state != "running"])
        if expired is None or other is None:
            return expired or other
        since = (other.ready_at if other.state == "ready" else other.run_at)
        return expired if expired.lease_until < since else other


class RetryByItsTime(Fake):
    def first_due(self, rows, begun):
        if begun:
            return None
        return min((row for row in rows if row.state == "scheduled"),
                   key=due_order, default=None)


class RetryBeforeExpired(Fake):
    def first(self, session, rows):
        return self.first_due(rows, True) or super().first(session, rows)


class LatestIsFirst(Fake):
    def first_due(self, rows, begun):
        return max((row for row in rows if row.state == "scheduled"
                    and row.begun == begun),
                   key=lambda row: row.run_at, default=None)


class DueJumpsTheTurn(Fake):
    """A due task is served at once, whichever group's turn it is."""

    def next(self, session):
        rows = self.candidates(session)[1]
        return (self.first_due(rows, False) or self.first_expired(rows)
                or super().next(session))


class DueMissesItsTurn(Fake):
    """Groups with a ready task are served before other groups."""

    def candidates(self, session):
        lane, rows = super().candidates(session)
        ready = {row.group for row in rows if row.state == "ready"}
        return lane, [row for row in rows if row.group in ready] or rows


class ForgetsWhatWasDue(Fake):
    """If a pop of a scheduled task is rolled back, the task is delayed by a
    day."""

    def back(self, session, length):
        for row, values in self.undo[session][length:]:
            if row is not None and values["state"] == "scheduled":
                values["run_at"] += DAY
        super().back(session, length)


class SleepsOn(Fake):
    def worth_a_pop(self, session):
        return False


class WakesForNothing(Fake):
    def worth_a_pop(self, session):
        return True


class PurgeSparesTheScheduled(Fake):
    def purge(self, session, group):
        hidden = [row for row in self.rows.values()
                  if row.state == "scheduled"]
        for row in hidden:
            row.state = "hidden"
        dropped = super().purge(session, group)
        for row in hidden:
            row.state = "scheduled"
        return dropped


# ---- leases

class NeverExpires(Fake):
    def has_expired(self, row):
        return False


class ExpiresTooEarly(Fake):
    def has_expired(self, row):
        return row.lease_until <= self.now + 8000


class ExpiredNeedsRoom(Fake):
    """An expired task needs a free slot, instead of the slot of the dead
    worker."""

    def candidates(self, session):
        lane, rows = super().candidates(session)
        rows = [row for row in rows if row.state != "running" or min(
            self.room(session, row.group), self.room_in_queue(session)) > 0]
        return min((row.lane for row in rows), default=None), rows


class ExpiredLeavesItsPlace(Fake):
    """Expired tasks do not count as running."""

    def running(self, group=None):
        return sum(row.leases for row in self.rows.values()
                   if group in (None, row.group) and not (
                       row.state == "running" and self.has_expired(row)))


class TakesOverBeyondLimits(Fake):
    def may_take_over(self, session, row):
        return not row.cancelled and not self.used_up(session, row)


class TakesASecondPlace(Fake):
    def lease_of(self, row):
        return 1


class PutsBackWhatExpired(Fake):
    def may_take_over(self, session, row):
        return False


class TakesOverTheAttempt(Fake):
    """An expired task is served in its old attempt."""

    def serve(self, session, row, *arguments):
        if row.state == "running":
            row.attempt -= 1
        return super().serve(session, row, *arguments)


class ServesAloneBesideOthers(Fake):
    """A task whose lease has expired twice is served like any other task."""

    @staticmethod
    def is_alone(row):
        return False


class ForgetsLapses(Fake):
    """A claim does not return how often the task's lease has expired."""

    def serve(self, session, row, *arguments):
        return super().serve(session, row, *arguments)._replace(lapses=0)


class EarliestExpiryFirst(Fake):
    """Expired tasks are served in the order of their expiry, not of their
    places."""

    def first_expired(self, rows):
        return min((row for row in rows if row.state == "running"),
                   key=lambda row: row.lease_until, default=None)


class AlwaysTheSameExpired(Fake):
    """The first expired task is served again, although another one is next."""

    def first_expired(self, rows):
        return min((row for row in rows if row.state == "running"),
                   key=lambda row: row.stands, default=None)


class ForgetsExpiry(Fake):
    """If a pop of an expired task is rolled back, its lease is extended by a
    day."""

    def back(self, session, length):
        for row, values in self.undo[session][length:]:
            if row is not None and values["state"] == "running":
                values["lease_until"] += DAY
        super().back(session, length)


class ExpiredGoLast(Fake):
    """Tasks that expire_leases returns to the queue have the last place."""

    def expire_leases(self, session, most):
        before = set(row for row in self.rows.values()
                     if row.state == "running")
        count = super().expire_leases(session, most)
        for row in before:
            if row.state == "scheduled":
                row.state = "done"
                self.again(session, row)
        return count


class ExpireMiscounts(Fake):
    def expire_leases(self, session, most):
        return super().expire_leases(session, most - 1)


class MaintainExpiresNothing(Fake):
    def maintain(self, session):
        expire, self.expire_leases = self.expire_leases, lambda *_: 0
        super().maintain(session)
        self.expire_leases = expire


class ExtendsNothing(Fake):
    def extend(self, session, id, attempt, lease):
        row = self.held(id, attempt)
        if row is None or row.cancelled:
            return None
        return self.now + lease


class ExtendsWhatIsLost(Fake):
    def extend(self, session, id, attempt, lease):
        return super().extend(session, id, None, lease)


class ExtendsForTwiceAsLong(Fake):
    def extend(self, session, id, attempt, lease):
        return super().extend(session, id, attempt, 2 * lease)


class ExtendOutlivesRollback(Fake):
    def back(self, session, length):
        for row, values in self.undo[session][length:]:
            if row is not None and values["state"] == row.state == "running":
                values["lease_until"] = row.lease_until
        super().back(session, length)


# ---- attempts

class TriesForever(Fake):
    def used_up(self, session, row):
        return False


class CountsReleases(Fake):
    def used_up(self, session, row):
        most = row.max_attempts or self.settings_of(session).max_attempts
        return row.attempt >= most


class OneAttemptTooMany(Fake):
    def used_up(self, session, row):
        most = row.max_attempts or self.settings_of(session).max_attempts
        return row.attempt - row.released > most


class ForgetsTheTasksOwn(Fake):
    """The task's own max_attempts is ignored."""

    def used_up(self, session, row):
        most = self.settings_of(session).max_attempts
        return row.attempt - row.released >= most


class ExpiryIsNoAttempt(Fake):
    def expire(self, session, row):
        if row.cancelled:
            super().expire(session, row)
        else:
            self.put_off(session, row, 0, begun=True)


# ---- fail, release

class FailsAtOnce(Fake):
    """Any delay of the call is ignored."""

    def put_off(self, session, row, delay, *arguments, **values):
        super().put_off(session, row, 0, *arguments, **values)


class ReadyAgainSinceEver(Fake):
    """A task that is ready again is served as if it had been ready since its
    enqueue."""

    def again(self, session, row, **values):
        super().again(session, row, **values)
        row.ready_at = row.enqueued_at


class FailedGoLast(Fake):
    """A task that is to be retried at once has the last place."""

    def put_off(self, session, row, delay, begun=False, **values):
        super().put_off(session, row, delay, begun and delay > 0, **values)


class ReleaseJumpsTheQueue(Fake):
    def again(self, session, row, **values):
        super().again(session, row, **values)
        row.order = -row.id


class ForgetsDead(Fake):
    def fail(self, session, id, attempt, error, delay, dead):
        return super().fail(session, id, attempt, error, delay, False)


class ForgetsTheError(Fake):
    def fail(self, session, id, attempt, error, delay, dead):
        return super().fail(session, id, attempt, None, delay, dead)


class NeverDoublesBackoff(Fake):
    def backoff(self, session, row):
        return self.settings_of(session).backoff


class FailsOthersAttempts(Fake):
    def fail(self, session, id, attempt, *arguments):
        return super().fail(session, id, None, *arguments)


class ReleasesOthersAttempts(Fake):
    def release(self, session, id, attempt, delay):
        return super().release(session, id, None, delay)


class ReleasesWhatIsCancelled(Fake):
    def release(self, session, id, attempt, delay):
        row = self.held(id, attempt)
        if row is not None and row.cancelled:
            self.put_off(session, row, delay)
            return True
        return super().release(session, id, attempt, delay)


# ---- cancel

class CancelsNothing(Fake):
    def cancel(self, session, id):
        row = self.rows.get(id)
        return row is not None and row.state not in ("none", "done")


class CancelsOnlyWhatWaits(Fake):
    def cancel(self, session, id):
        row = self.rows.get(id)
        return (row is not None and row.state != "running"
                and super().cancel(session, id))


class CancelsAgain(Fake):
    """cancel() is true for a finished task."""

    def cancel(self, session, id):
        return super().cancel(session, id) or id in self.rows


class ServesWhatIsCancelled(Fake):
    def may_take_over(self, session, row):
        cancelled, row.cancelled = row.cancelled, False
        may = super().may_take_over(session, row)
        row.cancelled = cancelled and not may
        return may


class CancelOutlivesRollback(Fake):
    def back(self, session, length):
        for row, values in self.undo[session][length:]:
            if row is not None:
                values["cancelled"] |= row.cancelled
        super().back(session, length)


# ---- dedup keys

class IgnoresKeys(Fake):
    def holder(self, session, key):
        return None


class DoesNotWaitForKeys(Fake):
    def holder(self, session, key):
        try:
            return super().holder(session, key)
        except Blocked:
            return None


class KeysAreNeverFree(Fake):
    def holder(self, session, key):
        super().holder(session, key)
        return next((row for row in self.rows.values()
                     if row.key == key and row.state != "none"), None)


class KeysAreFreeTooSoon(Fake):
    """A key is free as soon as a worker has the task."""

    def holder(self, session, key):
        row = super().holder(session, key)
        return None if row and row.state == "running" else row


class KeysOutliveRollback(Fake):
    """The key of a rolled back enqueue stays taken."""

    def holder(self, session, key):
        return super().holder(session, key) or next(
            (row for row in self.rows.values()
             if row.key == key and row.state == "none"), None)


# ---- the archive

class ForgetsTheFailed(Fake):
    def finish(self, session, row, outcome, **values):
        super().finish(session, row, outcome, **values)
        if outcome == FAILED:
            row.outcome = None


class RetainsAll(Fake):
    def finish(self, session, row, outcome, **values):
        super().finish(session, row, outcome, **values)
        row.outcome = outcome


class ForgetsTheResult(Fake):
    def complete(self, session, id, attempt, result):
        return super().complete(session, id, attempt, None)


class MaintainDeletesNothing(Fake):
    def maintain(self, session):
        self.expire_leases(session, 1 << 30)


class RedrivesTheNewest(Fake):
    def redrive(self, session, group, most):
        for row in self.rows.values():
            if row.finished is not None:
                row.finished = -row.finished
        back = super().redrive(session, group, most)
        for row in self.rows.values():
            if row.finished is not None:
                row.finished = -row.finished
        return back


class RedrivesAll(Fake):
    """max_tasks is ignored."""

    def redrive(self, session, group, most):
        return super().redrive(session, group, None)


class RedrivesUsedKeys(Fake):
    def is_free(self, session, key):
        return True


class RedrivesUsedUp(Fake):
    """Redriven tasks keep their used attempts."""

    def again(self, session, row, **values):
        if row.state == "done":
            del values["released"]
        super().again(session, row, **values)


LIFE_FAULTS = {
    ServesTooEarly: {"early"},
    NeverDue: {"lost", "turn", "fifo", "wait"},
    NeverReadyLater: {"lost", "turn", "fifo", "view", "purge", "wait"},
    DueComesFirst: {"fifo"},
    DueComesLast: {"fifo"},
    ExpiredByItsTime: {"fifo"},
    RetryByItsTime: {"fifo"},
    RetryBeforeExpired: {"fifo"},
    LatestIsFirst: {"fifo"},
    DueJumpsTheTurn: {"turn", "twice", "fifo"},
    DueMissesItsTurn: {"turn"},
    ForgetsWhatWasDue: {"lost", "fifo", "view"},
    SleepsOn: {"wait"},
    WakesForNothing: {"wait"},
    PurgeSparesTheScheduled: {"purge"},
    NeverExpires: {"lost", "turn", "fifo", "wait"},
    ExpiresTooEarly: {"doubled", "expire"},
    ExpiredNeedsRoom: {"lost", "turn", "wait"},
    ExpiredLeavesItsPlace: {"limit"},
    TakesOverBeyondLimits: {"limit"},
    TakesASecondPlace: {"lost"},
    PutsBackWhatExpired: {"lost", "doubled", "claim", "fifo", "expiry"},
    TakesOverTheAttempt: {"claim"},
    ServesAloneBesideOthers: {"alone"},
    ForgetsLapses: {"claim"},
    EarliestExpiryFirst: {"behind"},
    AlwaysTheSameExpired: {"behind"},
    ForgetsExpiry: {"lost", "view", "doubled", "expire", "fifo", "behind"},
    ExpiredGoLast: {"fifo"},
    ExpireMiscounts: {"expire"},
    MaintainExpiresNothing: {"expire"},
    ExtendsNothing: {"doubled", "view"},
    ExtendsWhatIsLost: {"extend"},
    ExtendsForTwiceAsLong: {"extend"},
    ExtendOutlivesRollback: {"lost", "turn", "fifo", "behind", "expire",
                             "view"},
    TriesForever: {"attempts", "view", "lost", "doubled", "expiry"},
    CountsReleases: {"lost", "view", "expiry", "error", "fifo", "fail"},
    OneAttemptTooMany: {"attempts", "view", "lost", "doubled", "expiry"},
    ForgetsTheTasksOwn: {"attempts", "doubled", "lost", "redrive", "expiry"},
    ExpiryIsNoAttempt: {"expiry", "alone"},
    FailsAtOnce: {"view", "fail", "release"},
    ReadyAgainSinceEver: {"fifo", "view"},
    FailedGoLast: {"fifo"},
    ReleaseJumpsTheQueue: {"fifo"},
    ForgetsDead: {"doubled", "redrive", "view"},
    ForgetsTheError: {"view"},
    NeverDoublesBackoff: {"fail"},
    FailsOthersAttempts: {"fail"},
    ReleasesOthersAttempts: {"release"},
    ReleasesWhatIsCancelled: {"doubled", "unknown", "view", "release"},
    CancelsNothing: {"doubled", "extend", "view", "purge", "lost", "key"},
    CancelsOnlyWhatWaits: {"cancel"},
    CancelsAgain: {"cancel"},
    ServesWhatIsCancelled: {"cancel"},
    CancelOutlivesRollback: {"complete", "extend", "lost", "priority", "view", "expiry"},
    IgnoresKeys: {"key"},
    DoesNotWaitForKeys: {"key"},
    KeysAreNeverFree: {"unknown"},
    KeysAreFreeTooSoon: {"key"},
    KeysOutliveRollback: {"unknown", "doubled", "lost"},
    ForgetsTheFailed: {"view", "redrive", "expiry"},
    RetainsAll: {"view", "redrive"},
    ForgetsTheResult: {"view"},
    MaintainDeletesNothing: {"view"},
    RedrivesTheNewest: {"doubled", "fifo", "turn"},
    RedrivesAll: {"redrive"},
    RedrivesUsedKeys: {"redrive", "key", "doubled"},
    RedrivesUsedUp: {"view", "lost", "expiry", "fifo"},
}
