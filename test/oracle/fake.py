"""A queue in this process, and the same with faults: the oracle's self-test.

The sound one serves by a cursor that goes round the groups of a lane and
gives each its weight.  It is here to show that the properties can be had, and
so that each fault below, which is a small change to it, is the only reason
for the oracle to complain.
"""

from server import Claim


class Row:
    def __init__(self, id, group, lane):
        self.id, self.group, self.lane = id, group, lane
        self.state, self.changer = "none", None
        self.order, self.attempt = 0, 0


class Fake:
    """The queue and its faultless service; session numbers in, claims out."""

    def __init__(self):
        self.rows = {}
        self.weights = {}
        self.seats = {}
        self.undo = {}
        self.marks = {}
        self.cursors = {}       # lane: (seat, served there)
        self.last = 0

    # ---- rows and transactions

    def change(self, session, row, state, last=False, attempt=0):
        if session in self.undo:
            self.undo[session].append((row, dict(vars(row))))
            row.changer = session
        row.state = state
        row.attempt += attempt
        if last:
            self.last += 1
            row.order = self.last

    def end(self, session, commit):
        if not commit:
            self.back(session, 0)
        for row, _ in self.undo.pop(session):
            row.changer = None
        del self.marks[session]

    def back(self, session, length):
        undo = self.undo[session]
        while len(undo) > length:
            row, values = undo.pop()
            vars(row).update(values)

    def ready(self, session, row):
        return row.state == "ready" and row.changer in (None, session)

    # ---- the service

    def enqueue(self, session, group, lane):
        id = len(self.rows) + 1
        self.seats.setdefault(group, len(self.seats))
        row = self.rows[id] = Row(id, group, lane)
        self.change(session, row, "ready", last=True)
        return id

    def candidates(self, session):
        rows = [row for row in self.rows.values() if self.ready(session, row)]
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
        while len(claims) < tasks:
            before = dict(self.cursors)
            row = self.choose(session)
            if row is None:
                break
            each[row.group] = each.get(row.group, 0) + 1
            if per_group and each[row.group] > per_group:
                self.cursors = before
                break
            claims.append(self.serve(session, row, take))
        return claims

    def serve(self, session, row, take):
        self.change(session, row, "done" if take else "running", attempt=1)
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
            row.late = commit and len(self.undo[session]) > 1
        super().end(session, commit)

    def choose(self, session):
        for row in self.candidates(session)[1]:
            if getattr(row, "late", False):
                return row
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
    Fails: {"error"},
}
