"""A queue in this process, and the same with faults: the oracle's self-test.

The sound one serves by a cursor that goes round the groups of a lane and
gives each its weight.  It is here to show that the properties can be had, and
so that each fault below, which is a small change to it, is the only reason
for the oracle to complain.
"""

from model import NO_LIMIT, Settings
from server import Claim


class Row:
    def __init__(self, id, group, lane):
        self.id, self.group, self.lane = id, group, lane
        self.state, self.changer = "none", None
        self.order, self.attempt, self.leases = 0, 0, 0


class Fake:
    """The queue and its faultless service; session numbers in, claims out."""

    def __init__(self):
        self.rows = {}
        self.weights = {}
        self.seats = {}
        self.undo = {}
        self.marks = {}
        self.cursors = {}       # lane: (seat, served there)
        self.settings = Settings()
        self.pending = {}       # session: settings not committed
        self.last = 0

    # ---- rows and transactions

    def change(self, session, row, state, last=False, attempt=0, lease=0):
        if session in self.undo:
            self.undo[session].append((row, dict(vars(row))))
            row.changer = session
        row.state = state
        row.attempt += attempt
        row.leases += lease
        if session not in self.undo:
            row.leases = int(state == "running")
        if last:
            self.last += 1
            row.order = self.last

    def end(self, session, commit):
        if not commit:
            self.back(session, 0)
        self.settings = self.pending.pop(session, self.settings)
        for row, _ in self.undo.pop(session):
            if row is not None:
                row.changer = None
                row.leases = int(row.state == "running")
        del self.marks[session]

    def back(self, session, length):
        undo = self.undo[session]
        while len(undo) > length:
            row, values = undo.pop()
            if row is not None:
                vars(row).update(values)
            elif values is not None:
                self.pending[session] = values
            else:
                del self.pending[session]

    def ready(self, session, row):
        return row.state == "ready" and row.changer in (None, session)

    def enqueue(self, session, group, lane):
        id = len(self.rows) + 1
        self.seats.setdefault(group, len(self.seats))
        row = self.rows[id] = Row(id, group, lane)
        self.change(session, row, "ready", last=True)
        return id

    # ---- limits

    def set(self, session, **values):
        settings = self.settings_of(session).changed(**values)
        if session in self.undo:
            self.undo[session].append((None, self.pending.get(session)))
            self.pending[session] = settings
        else:
            self.settings = settings

    def settings_of(self, session):
        return self.pending.get(session, self.settings)

    def running(self, group=None):
        return sum(row.leases for row in self.rows.values()
                   if group in (None, row.group))

    def room(self, session, group):
        limit = self.settings_of(session).limit(group)
        return NO_LIMIT if limit is None else limit - self.running(group)

    def room_in_queue(self, session):
        most = self.settings_of(session).max_running
        return NO_LIMIT if most is None else most - self.running()

    # ---- service

    def candidates(self, session):
        rows = [row for row in self.rows.values() if self.ready(session, row)]
        room = {group: self.room(session, group)
                for group in {row.group for row in rows}}
        rows = [row for row in rows if room[row.group] > 0]
        lane = min((row.lane for row in rows), default=None)
        return lane, sorted((row for row in rows if row.lane == lane),
                            key=lambda row: row.order)

    def choose(self, session):
        lane, rows = self.candidates(session)
        if not rows:
            return None
        seat, served = self.cursors.get(lane, (-1, 0))
        first = {}
        for row in rows:
            first.setdefault(self.seats[row.group], row)
        row = first.get(seat)
        if row is None or served >= self.weights.get(row.group, 1):
            later = [other for other in first if other > seat]
            seat, served = min(later or first), 0
            row = first[seat]
        self.cursors[lane] = (seat, served + 1)
        return row

    def pop(self, session, tasks, per_group, take):
        claims, each = [], {}
        inside = session in self.undo
        if not inside:
            self.undo[session], self.marks[session] = [], []
        while len(claims) < tasks and self.room_in_queue(session) > 0:
            before = dict(self.cursors)
            row = self.choose(session)
            if row is None:
                break
            each[row.group] = each.get(row.group, 0) + 1
            if per_group and each[row.group] > per_group:
                self.cursors = before
                break
            claims.append(self.serve(session, row, take))
        if not inside:
            self.end(session, commit=True)
        return claims

    def serve(self, session, row, take):
        self.change(session, row, "done" if take else "running", attempt=1,
                    lease=1)
        return Claim(row.id, row.group, row.attempt, row.lane)


class FakeSession:
    """The methods of server.Session, on a Fake."""

    def __init__(self, name, fake, log):
        self.name, self.fake, self.log = name, fake, log

    def note(self, text, result=None):
        self.log.append([self.name, text, (), result and [(str(result),)]])
        return result

    def begin(self, level=None):
        self.note("BEGIN")
        self.fake.undo[self] = []
        self.fake.marks[self] = []

    def commit(self):
        self.note("COMMIT")
        self.fake.end(self, commit=True)

    def rollback(self):
        self.note("ROLLBACK")
        self.fake.end(self, commit=False)

    def savepoint(self, depth):
        self.note(f"SAVEPOINT s{depth}")
        self.fake.marks[self].append(len(self.fake.undo[self]))

    def rollback_to(self, depth):
        self.note(f"ROLLBACK TO SAVEPOINT s{depth}")
        del self.fake.marks[self][depth + 1:]
        self.fake.back(self, self.fake.marks[self][depth])

    def release_savepoint(self, depth):
        self.note(f"RELEASE SAVEPOINT s{depth}")
        del self.fake.marks[self][depth:]

    def set_weight(self, group, weight):
        self.note(f"set_group {group} weight {weight}")
        self.fake.weights[group] = weight

    def set_limit(self, group, limit):
        self.note(f"limit {group} {limit}")
        if group is None:
            self.fake.set(self, concurrency=limit or None)
        else:
            limits = self.fake.settings_of(self).concurrency_of
            self.fake.set(self, concurrency_of={**limits,
                                                group: limit or None})

    def set_max_running(self, limit):
        self.note(f"max_running {limit}")
        self.fake.set(self, max_running=limit or None)

    def set_paused(self, group, paused):
        self.note(f"{'pause' if paused else 'resume'} {group}")
        groups = self.fake.settings_of(self).paused_groups
        if group is None:
            self.fake.set(self, paused=paused)
        else:
            self.fake.set(self, paused_groups=groups | {group} if paused
                          else groups - {group})

    def purge(self, group=None):
        rows = [row for row in self.fake.rows.values()
                if group in (None, row.group) and self.fake.ready(self, row)]
        for row in rows:
            self.fake.change(self, row, "done")
        return self.note(f"purge {group}", len(rows)) or 0

    def reset_hints(self):
        self.note("reset_hints")

    def check_queue(self):
        return []

    def enqueue(self, group, priority):
        return self.note(f"enqueue {group} priority {priority}",
                         self.fake.enqueue(self, group, priority))

    def enqueue_batch(self, groups, priority):
        return [self.enqueue(group, priority) for group in groups]

    def pop(self, tasks, per_group=None, take=False):
        claims = self.fake.pop(self, tasks, per_group, take)
        self.note(f"{'take' if take else 'pop'} {tasks}", " ".join(
            f"{claim.group}:{claim.id}" for claim in claims))
        return claims

    def finish(self, id, attempt, state):
        row = self.fake.rows.get(id)
        if (row is None or row.state != "running"
                or attempt not in (None, row.attempt)):
            return False
        self.fake.change(self, row, state, last=state == "ready")
        return True

    def complete(self, id, attempt=None):
        return self.note(f"complete {id}", self.finish(id, attempt, "done"))

    def complete_batch(self, ids, attempts):
        return sum(map(self.complete, ids, attempts))

    def release(self, id, attempt=None):
        return self.note(f"release {id}", self.finish(id, attempt, "ready"))


class FakeServer:
    """The methods of server.Server, for one kind of Fake."""

    def __init__(self, kind=Fake):
        self.kind = kind

    def open(self, count, log, block_length):
        fake = self.kind()
        return [FakeSession(f"s{number + 1}", fake, log)
                for number in range(count)]

    def close(self, sessions, clean):
        pass


# ---- faults

class FirstComeFirstServed(Fake):
    def choose(self, session):
        return next(iter(self.candidates(session)[1]), None)


class LosesOne(Fake):
    """Every 17th task that is served is taken off, but not returned."""
    served = 0

    def pop(self, *arguments):
        claims = super().pop(*arguments)
        self.served += len(claims)
        return claims[1:] if self.served % 17 < len(claims) else claims


class ServesTwice(Fake):
    """Every 17th task that is served stays ready."""
    served = 0

    def serve(self, session, row, take):
        claim = super().serve(session, row, take)
        self.served += 1
        if self.served % 17 == 0:
            row.state = "ready"
        return claim


class TwoTurnsWhenLate(Fake):
    """What was committed late is served at once, whoever had the turn."""

    def end(self, session, commit):
        for row, _ in self.undo[session]:
            if row is not None:
                row.late = commit and len(self.undo[session]) > 1
        super().end(session, commit)

    def choose(self, session):
        late = {}
        for row in self.candidates(session)[1]:
            first = late.setdefault(row.group, row)
            if getattr(row, "late", False):
                return first
        return super().choose(session)


class MissesTurns(Fake):
    """Served only from the place where the last one was: whoever comes late
    or back waits until nothing else is there."""

    def choose(self, session):
        lane, rows = self.candidates(session)
        before = self.cursors.get(lane, (-1, 0))
        row = super().choose(session)
        if row and row.order < getattr(self, "position", 0):
            later = [other for other in rows if other.order > self.position]
            if later:
                self.cursors[lane] = before
                row = later[0]
        if row:
            self.position = row.order
        return row


class JoinsTooEarly(Fake):
    """A group that comes back takes the seat right before the cursor."""

    def enqueue(self, session, group, lane):
        if not any(row.group == group and row.state == "ready"
                   for row in self.rows.values()):
            self.cursors[lane] = (self.seats.get(group, len(self.seats)) - 1,
                                  10)
        return super().enqueue(session, group, lane)


class LastInFirstOut(Fake):
    def choose(self, session):
        row = super().choose(session)
        if row is None:
            return None
        return [other for other in self.candidates(session)[1]
                if other.group == row.group][-1]


class SeesUncommitted(Fake):
    def ready(self, session, row):
        return row.state == "ready"


class ForgetsRollback(Fake):
    """A pop that was rolled back leaves its tasks running."""

    def back(self, session, length):
        for row, values in self.undo[session][length:]:
            if row.state == "running":
                values["state"] = "running"
        super().back(session, length)


class NoPriorities(Fake):
    def candidates(self, session):
        return 0, sorted((row for row in self.rows.values()
                          if self.ready(session, row)),
                         key=lambda row: row.order)


class NoWeights(Fake):
    """Everybody is served one task per turn."""

    def choose(self, session):
        weights, self.weights = self.weights, {}
        row = super().choose(session)
        self.weights = weights
        return row


class TooMuchWeight(Fake):
    """One more than the weight, for groups with a weight."""

    def choose(self, session):
        weights = self.weights
        self.weights = {group: weight + 1 for group, weight in weights.items()}
        row = super().choose(session)
        self.weights = weights
        return row


class PopsShort(Fake):
    def pop(self, session, tasks, per_group, take):
        return super().pop(session, min(tasks, 10), per_group, take)


class IgnoresPerGroup(Fake):
    def pop(self, session, tasks, per_group, take):
        return super().pop(session, tasks, None, take)


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
    """What is finished makes room before that is visible."""

    def running(self, group=None):
        return sum(row.state == "running" for row in self.rows.values()
                   if group in (None, row.group))


class ForgetsWhoWaits(Fake):
    """A limited group is looked for again only when something else is
    enqueued."""

    def candidates(self, session):
        lane, rows = super().candidates(session)
        full = {row.group for row in self.rows.values()
                if self.ready(session, row)
                and self.room(session, row.group) <= 0}
        if len(self.rows) != getattr(self, "rows_then", None):
            self.rows_then, self.parked = len(self.rows), set()
        self.parked |= full
        rows = [row for row in rows if row.group not in self.parked]
        return min((row.lane for row in rows), default=None), rows


class HoldsOthersUp(Fake):
    """Nobody is served before a limited group whose turn it is."""

    def room(self, session, group):
        return 1

    def choose(self, session):
        before = dict(self.cursors)
        row = super().choose(session)
        if row and Fake.room(self, session, row.group) <= 0:
            self.cursors = before
            return None
        return row


class CatchesUp(Fake):
    """Whoever had no room is served what he missed as soon as he has."""

    def choose(self, session):
        full = {row.group for row in self.rows.values()
                if self.ready(session, row)
                and self.room(session, row.group) <= 0}
        missed = self.__dict__.setdefault("missed", {})
        for row in self.candidates(session)[1]:
            if missed.get(row.group):
                missed[row.group] -= 1
                return row
        for group in full:
            missed[group] = missed.get(group, 0) + 1
        return super().choose(session)


class LimitedComeLast(Fake):
    """Groups with a limit are served if nobody else is ready."""

    def candidates(self, session):
        lane, rows = super().candidates(session)
        free = [row for row in rows
                if self.settings_of(session).limit(row.group) is None]
        return lane, free or rows


class Fails(Fake):
    """What a server says that cannot serialize, or that waits too long."""

    def pop(self, session, tasks, per_group, take):
        if len(self.undo) > 1 and self.last > 20:
            raise RuntimeError("could not serialize access")
        return super().pop(session, tasks, per_group, take)


# the kinds that each fault may be reported as
FAULTS = {
    FirstComeFirstServed: {"turn", "share", "priority"},
    LosesOne: {"lost"},
    ServesTwice: {"doubled", "unknown"},
    TwoTurnsWhenLate: {"turn"},
    MissesTurns: {"turn", "fifo"},
    JoinsTooEarly: {"turn"},
    LastInFirstOut: {"fifo"},
    SeesUncommitted: {"uncommitted", "count", "fifo", "purge"},
    ForgetsRollback: {"lost"},
    NoPriorities: {"priority"},
    NoWeights: {"share"},
    TooMuchWeight: {"turn"},
    PopsShort: {"lost"},
    IgnoresPerGroup: {"per_group"},
    NoLimits: {"limit"},
    NoMaxRunning: {"limit"},
    PopsWhatIsPaused: {"limit"},
    MakesRoomTooEarly: {"limit"},
    ForgetsWhoWaits: {"lost", "turn"},
    HoldsOthersUp: {"lost"},
    CatchesUp: {"turn"},
    LimitedComeLast: {"turn", "share"},
    Fails: {"error"},
}
