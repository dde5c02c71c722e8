"""Faults of service and limits. Each class is a small change to the correct
queue. It names the kinds of fault that the model may report for it.
"""

from fractions import Fraction

from fake import START, Fake, Round
from shares import Shares
from state import NO_LIMIT


def by_order(rows):
    return sorted(rows, key=lambda row: row.order)


class FirstComeFirstServed(Fake):
    def next(self, session):
        return next(iter(by_order(self.candidates(session)[1])), None)


class LosesOne(Fake):
    """Every 17th task that is served is removed, but not returned."""
    served = 0

    def pop(self, *arguments):
        claims = super().pop(*arguments)
        self.served += len(claims)
        return claims[1:] if self.served % 17 < len(claims) else claims


class ServesTwice(Fake):
    """Every 17th task that is served stays ready."""
    served = 0

    def serve(self, session, row, *arguments):
        claim = super().serve(session, row, *arguments)
        self.served += 1
        if self.served % 17 == 0:
            row.state = "ready"
        return claim


class TwoTurnsWhenLate(Fake):
    """A task that is committed late is served at once, whichever group's turn
    it is.
    """

    def end(self, session, commit):
        for row, _ in self.undo[session]:
            if row is not None:
                row.late = commit and len(self.undo[session]) > 1
        super().end(session, commit)

    def next(self, session):
        late = {}
        for row in by_order(self.candidates(session)[1]):
            first = late.setdefault(row.group, row)
            if getattr(row, "late", False):
                return first
        return super().next(session)


class MissesTurns(Fake):
    """Service only continues from its last place, so a late or returning group
    waits until no other task is left.
    """

    def next(self, session):
        lane, rows = self.candidates(session)
        before = self.cursors.get(lane, (-1, 0))
        row = super().next(session)
        if row and row.order < getattr(self, "position", 0):
            later = [other for other in by_order(rows)
                     if other.order > self.position]
            if later:
                self.cursors[lane] = before
                row = later[0]
        if row:
            self.position = row.order
        return row


class RejoinsInItsBlock(Fake):
    """A group that returns is served at once, although it has had its turn
    in the block.
    """

    def enqueue(self, session, group, lane, *arguments, **values):
        if not any(row.group == group and row.state == "ready"
                   for row in self.rows.values()):
            now = self.cursors.get(lane, START)
            self.cursors[lane] = now._replace(
                had=now.had - {self.seats.get(group)})
        return super().enqueue(session, group, lane, *arguments, **values)


class RollbackGivesBack(Fake):
    """A turn does not count if its pop is rolled back."""

    def end(self, session, commit):
        rows = [] if commit else [row for row, _ in self.undo[session] if row]
        super().end(session, commit)
        for row in rows:
            now = self.cursors.get(row.lane, START)
            self.cursors[row.lane] = now._replace(
                had=now.had - {self.seats[row.group]}, turn=None)


class ArrivalsWait(Fake):
    """A group that becomes active after its seat was passed waits for the
    next block.
    """

    def next_round(self, lane, groups, weights):
        now = self.cursors.get(lane, START)
        return now._replace(had=frozenset(range(now.seat + 1))).next(
            groups, weights)


class ArrivalsComeLast(Fake):
    """A newly active group is served at the end of its block."""

    def next_round(self, lane, groups, weights):
        now = self.cursors.get(lane, START)
        ahead = {seat for seat in groups if seat > now.seat}
        if now.turn in groups and now.served < weights[now.turn]:
            ahead.add(now.turn)
        return now.next(ahead or groups, weights)


class ArrivalsBySize(Fake):
    """The lowest seat of several groups in front is not first."""

    def next_round(self, lane, groups, weights):
        now = self.cursors.get(lane, START)
        front = {seat for seat in groups
                 if seat <= now.seat and seat not in now.had}
        if len(front) > 1 and now.turn not in groups:
            return now.next({max(front)}, weights)
        return now.next(groups, weights)


class ArrivalsOfTheBlockBefore(Fake):
    """A group in front gets a turn of the previous block."""

    def addr(self, row):
        now = self.cursors.get(row.lane, START)
        addr = super().addr(row)
        return addr - (self.block_length
                       if now.turn != now.seat and now.block > 1 else 0)


class TurnsWithoutEnd(Fake):
    """A turn does not end while no other group has a task."""

    def next_round(self, lane, groups, weights):
        now = self.cursors.get(lane, START)
        if groups.keys() == {now.turn}:
            return now
        return now.next(groups, weights)


class LiesAboutTurns(FirstComeFirstServed):
    """The address of each service names a turn in a new block."""
    turns = 0

    def addr(self, row):
        self.turns += 1
        return self.turns * self.block_length + self.seats[row.group]


class SaysWhereItStood(Fake):
    """The address names the place in the group instead of the turn."""

    def addr(self, row):
        return row.order * self.block_length + self.seats[row.group]


class BlocksGoBack(Fake):
    """Blocks decrease after a rollback."""

    def end(self, session, commit):
        super().end(session, commit)
        if not commit:
            for lane, now in self.cursors.items():
                if isinstance(now, Round) and now.block:
                    self.cursors[lane] = now._replace(block=now.block - 1,
                                                      had=frozenset())


class LastInFirstOut(Fake):
    def first(self, session, rows):
        return max(rows, key=lambda row: row.order)


class SeesUncommitted(Fake):
    def mine(self, session, row):
        return True


class ForgetsRollback(Fake):
    """A rolled back pop leaves its tasks running."""

    def back(self, session, length):
        for row, values in self.undo[session][length:]:
            if row is not None and row.state == "running":
                values.update(state="running", lease_until=row.lease_until)
        super().back(session, length)


class NoPriorities(Fake):
    def candidates(self, session):
        return 0, [row for row in self.rows.values()
                   if self.is_ready(session, row)]


class NoWeights(Fake):
    """Each group is served one task per turn."""

    def next(self, session):
        weights, self.weights = self.weights, {}
        row = super().next(session)
        self.weights = weights
        return row


class TooMuchWeight(Fake):
    """Groups with a weight are served one task more than their weight."""

    def next(self, session):
        weights = self.weights
        self.weights = {group: weight + 1 for group, weight in weights.items()}
        row = super().next(session)
        self.weights = weights
        return row


class PopsShort(Fake):
    def pop(self, session, tasks, *arguments):
        return super().pop(session, min(tasks, 10), *arguments)


class IgnoresPerGroup(Fake):
    def pop(self, session, tasks, per_group, *arguments):
        return super().pop(session, tasks, None, *arguments)


class WholeBlocks(Fake):
    """per_group counts whole blocks, even if the first block is nearly over."""

    def is_within(self, row, blocks):
        if self.window is None:
            self.window = row.lane, self.cursors[row.lane].block
        lane, first = self.window
        return row.lane == lane and self.cursors[lane].block < first + blocks


class CountsEachGroup(Fake):
    """per_group ends the call with the first group that has had its turns."""

    def pop(self, *arguments):
        self.each = {}
        return super().pop(*arguments)

    def is_within(self, row, blocks):
        turns = self.each.setdefault(row.group, set())
        turns.add(self.addr(row))
        return len(turns) <= blocks


class OneBlockMore(Fake):
    def is_within(self, row, blocks):
        return super().is_within(row, blocks + 1)


class NoLimits(Fake):
    def room(self, session, group):
        return self.settings_of(session).limit(group) != 0


class NoMaxRunning(Fake):
    def room_in_queue(self, session):
        return NO_LIMIT


class PopsWhatIsPaused(Fake):
    def room(self, session, group):
        settings = self.settings_of(session)
        limit = settings.changed(paused=False,
                                 paused_groups=frozenset()).limit(group)
        return NO_LIMIT if limit is None else limit - self.running(group)


class MakesRoomTooEarly(Fake):
    """An end frees its slot before the end is visible."""

    def running(self, group=None):
        return sum(row.state == "running" for row in self.rows.values()
                   if group in (None, row.group))


class ForgetsWhoWaits(Fake):
    """A limited group is searched again only when another task is enqueued."""

    def candidates(self, session):
        lane, rows = super().candidates(session)
        full = {row.group for row in self.rows.values()
                if self.is_ready(session, row)
                and self.room(session, row.group) <= 0}
        if len(self.rows) != getattr(self, "rows_then", None):
            self.rows_then, self.parked = len(self.rows), set()
        self.parked |= full
        rows = [row for row in rows if row.group not in self.parked]
        return min((row.lane for row in rows), default=None), rows


class HoldsOthersUp(Fake):
    """No group is served before a limited group whose turn is next."""

    def room(self, session, group):
        return 1

    def next(self, session):
        before = dict(self.cursors)
        row = super().next(session)
        if row and Fake.room(self, session, row.group) <= 0:
            self.cursors = before
            return None
        return row


class CatchesUp(Fake):
    """A group that had no slot catches up as soon as it has a slot."""

    def next(self, session):
        full = {row.group for row in self.rows.values()
                if self.is_ready(session, row)
                and self.room(session, row.group) <= 0}
        missed = self.__dict__.setdefault("missed", {})
        for row in by_order(self.candidates(session)[1]):
            if missed.get(row.group):
                missed[row.group] -= 1
                return row
        for group in full:
            missed[group] = missed.get(group, 0) + 1
        return super().next(session)


class LimitedComeLast(Fake):
    """Groups with a limit are served only if no other group is ready."""

    def candidates(self, session):
        lane, rows = super().candidates(session)
        free = [row for row in rows
                if self.settings_of(session).limit(row.group) is None]
        return lane, free or rows


class Fails(Fake):
    """Calls fail like those of a server that cannot serialize, or that waits
    too long."""

    def pop(self, *arguments):
        if len(self.undo) > 1 and self.last > 20:
            raise RuntimeError("could not serialize access")
        return super().pop(*arguments)


class ForeseesNothing(Fake):
    def peek(self, session):
        return []


class ForeseesByAge(Fake):
    """peek() returns the task that was enqueued first."""

    def peek(self, session):
        return [(row.id, self.addr(row))
                for row in by_order(self.candidates(session)[1])[:1]]


class StrictShares(Fake):
    def shares_by(self, session):
        return Shares()


class EqualShares(Fake):
    def have_shares(self, session):
        super().have_shares(session)
        self.shares.share = dict.fromkeys(self.shares.share, 1)


class BanksShares(Fake):
    """A priority that had no tasks catches up when it gets tasks."""

    def have_shares(self, session):
        super().have_shares(session)
        self.shares.reached = 0


class ChargesRollbacksNothing(Fake):
    """The rollback of a pop also undoes its charge to the share."""

    def end(self, session, commit):
        rows = [] if commit else [row for row, _ in self.undo[session]
                                  if row and row.state == "running"]
        super().end(session, commit)
        for row in rows:
            if row.lane in self.shares.got:
                self.shares.got[row.lane] -= Fraction(
                    1, self.shares.share[row.lane])


FAULTS = {
    FirstComeFirstServed: {"turn", "share", "priority", "twice"},
    LiesAboutTurns: {"turn", "priority"},
    SaysWhereItStood: {"twice", "back", "turn"},
    LosesOne: {"lost"},
    ServesTwice: {"doubled", "unknown", "complete"},
    TwoTurnsWhenLate: {"turn", "twice"},
    MissesTurns: {"turn", "twice", "fifo"},
    RejoinsInItsBlock: {"twice"},
    RollbackGivesBack: {"twice"},
    ArrivalsWait: {"turn"},
    ArrivalsComeLast: {"turn"},
    ArrivalsBySize: {"turn"},
    ArrivalsOfTheBlockBefore: {"back"},
    TurnsWithoutEnd: {"twice"},
    BlocksGoBack: {"back"},
    LastInFirstOut: {"fifo"},
    SeesUncommitted: {"uncommitted", "count", "fifo", "purge"},
    ForgetsRollback: {"lost", "fifo"},
    NoPriorities: {"priority"},
    NoWeights: {"share"},
    TooMuchWeight: {"turn", "twice"},
    PopsShort: {"lost"},
    IgnoresPerGroup: {"per_group"},
    WholeBlocks: {"lost"},
    CountsEachGroup: {"per_group"},
    OneBlockMore: {"per_group"},
    NoLimits: {"limit"},
    NoMaxRunning: {"limit"},
    PopsWhatIsPaused: {"limit"},
    MakesRoomTooEarly: {"limit"},
    ForgetsWhoWaits: {"lost", "turn"},
    HoldsOthersUp: {"lost"},
    CatchesUp: {"turn", "twice"},
    LimitedComeLast: {"turn", "share"},
    StrictShares: {"shares"},
    EqualShares: {"shares"},
    BanksShares: {"shares"},
    ChargesRollbacksNothing: {"shares"},
    Fails: {"error"},
    ForeseesNothing: {"peek"},
    ForeseesByAge: {"peek"},
}
