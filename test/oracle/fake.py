"""A correct queue in this process, for the oracle's self-test.

The queue serves in rounds.  Each group has one seat in each block.  The ready
group with the lowest next turn is served. At one turn it gets at most as many
tasks as its weight.  This queue shows that the properties are possible.  Each
fault (faults.py, life_faults.py) is a small change to this queue, so the oracle
can report only that fault.  The queue's clock advances only when a call reads
it.
"""

from collections import namedtuple

from clock import Clock, Pace
from life import HOUR, LEASE_EXPIRED, due_at, due_order
from batches import ENDS
from server import Batch, Blocked, Claim, Row
from shares import PARTS, Shares
from state import (CANCELLED, COMPLETED, FAILED, LAPSES_ALONE, NO_LIMIT,
                   PURGED)

DAY = 24 * HOUR
READING = 100                   # microseconds that reading the clock takes


class FakeClock(Clock):
    def __init__(self, log):
        super().__init__(log, Pace())
        self.time = DAY

    def now(self):
        self.time += READING
        return self.time

    def sleep_until(self, instant):
        self.log.append(["clock", f"sleep until {instant}", (), None])
        self.time = max(self.time, instant)


class Task:
    """A row.  state: none, ready, scheduled, running or done."""

    def __init__(self, id, group, lane, key, max_attempts, enqueued_at,
                 cost=None):
        self.id, self.group, self.lane, self.key = id, group, lane, key
        self.max_attempts, self.enqueued_at = max_attempts, enqueued_at
        self.ready_at = enqueued_at
        self.cost = cost
        self.state, self.changer, self.born = "none", None, None
        self.order = self.attempt = self.released = self.leases = 0
        self.lapses = 0
        self.begun = False      # whether the task waits for a retry
        self.stands = None      # its place among expired tasks, if it runs
        self.run_at = self.lease_until = self.finished = None
        self.outcome = self.error = self.result = None
        self.cancelled = False
        self.batch = self.how = self.numbers = None
        self.on_success = self.closed = False


class Round(namedtuple("Round", "block seat had turn served")):
    """The position of a lane's service: the block, the seat that it has reached,
    and the seats that have had a turn in it. It also has the seat of the last
    turn, and its number of tasks.
    """

    def next(self, ready, weights):
        """Serves one of the ready seats.  Returns the round after that
        service."""
        if self.turn in ready and self.served < weights[self.turn]:
            return self._replace(served=self.served + 1)
        behind = [seat for seat in ready
                  if seat <= self.seat and seat not in self.had]
        ahead = [seat for seat in ready if seat > self.seat]
        if behind:
            turn = min(behind)
            return self._replace(had=self.had | {turn}, turn=turn, served=1)
        turn = min(ahead or ready)
        if ahead:
            return self._replace(seat=turn, had=self.had | {turn}, turn=turn,
                                 served=1)
        return Round(self.block + 1, turn, frozenset({turn}), turn, 1)


START = Round(0, -1, frozenset(), None, 0)


class Fake:
    """The queue and its correct service. Sessions call the queue, and it
    returns claims."""

    def __init__(self, clock, settings, block_length):
        self.clock = clock
        self.block_length = block_length
        self.rows = {}
        self.weights = {}
        self.seats = {}
        self.undo = {}
        self.marks = {}
        self.cursors = {}       # lane: Round; for full queues see next_full()
        self.cycles = {}        # (lane, group): where expired tasks continue
        self.settings = settings
        self.window = None      # the window of a call with per_group
        self.shares = Shares()
        self.shares_of = ()
        self.pending = {}       # session: its uncommitted settings
        self.last = 0
        self.now = 0            # time of the present call

    # ---- rows and transactions

    def change(self, session, row, state, last=False, lease=0, **values):
        if session in self.undo:
            self.undo[session].append((row, dict(vars(row))))
            row.changer = session
        row.state = state
        row.leases += lease
        vars(row).update(values)
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
                row.changer = row.born = None
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

    def mine(self, session, row):
        """Whether no other session may be changing the row."""
        return row.changer in (None, session)

    # ---- enqueue

    def enqueue(self, session, group, lane, run_at=None, key=None,
                max_attempts=None, cost=None, batch=None):
        if key is not None:
            holder = self.holder(session, key)
            if holder is not None:
                return holder.id
        id, row = self.add(session, group, lane, key, max_attempts, cost)
        row.batch = batch
        if run_at is None or run_at <= self.now:
            self.change(session, row, "ready", last=True)
        else:
            self.change(session, row, "scheduled", run_at=run_at)
        return id

    def add(self, session, group, lane, key=None, max_attempts=None,
            cost=None):
        id = len(self.rows) + 1
        self.seats.setdefault(group, len(self.seats))
        row = self.rows[id] = Task(id, group, lane, key, max_attempts,
                                   self.now, cost)
        if session in self.undo:
            row.born = session
        return id, row

    def holder(self, session, key):
        for row in self.rows.values():
            if row.key == key and row.state != "none":
                if not self.mine(session, row) and (
                        row.born or row.state == "done"):
                    raise Blocked
                if row.state != "done":
                    return row
        return None

    # ---- batches

    def create_batch(self, session, group, lane, on_success, batch):
        id, row = self.add(session, group, lane)
        row.batch, row.on_success = batch, on_success
        self.change(session, row, "blocked")
        return id

    def close_batch(self, session, id):
        row = self.rows[id]
        if row.state != "blocked" or row.closed:
            return False
        self.change(session, row, "blocked", closed=True)
        return True

    def cancel_batch(self, session, id):
        self.close_batch(session, id)
        return sum(self.cancel(session, row.id) for row in self.rows.values()
                   if row.batch == id and self.mine(session, row)
                   and row.state in ("ready", "scheduled", "blocked"))

    def look_at_batches(self, session):
        for row in self.rows.values():
            if row.state == "blocked" and self.mine(session, row):
                self.look_at_batch(session, row)

    def look_at_batch(self, session, row):
        members = [member for member in self.rows.values()
                   if member.batch == row.id and member.state != "none"]
        ends = {member.id: member.how for member in members
                if member.state == "done" and self.mine(session, member)}
        failed = [id for id, how in ends.items() if how != COMPLETED]
        if row.on_success and failed:
            self.finish(session, row, FAILED,
                        error=f"task {min(failed)} did not succeed")
        elif self.is_over(row, members, ends):
            numbers = {how: list(ends.values()).count(how) for how in ENDS}
            self.again(session, row, numbers=numbers)

    def is_over(self, row, members, ends):
        return row.closed and len(ends) == len(members)

    def batches(self, session, ids):
        return {id: Batch(id, self.row(self.rows[id]).status,
                          self.rows[id].order, self.rows[id].error, None,
                          self.rows[id].numbers)
                for id in ids}

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

    # ---- time

    def is_due(self, row):
        return row.run_at <= self.now

    def has_expired(self, row):
        return row.lease_until <= self.now

    def is_expired(self, session, row):
        return (row.state == "running" and self.mine(session, row)
                and self.has_expired(row))

    def is_ready(self, session, row):
        return self.mine(session, row) and (
            row.state == "ready"
            or row.state == "scheduled" and self.is_due(row))

    def used_up(self, session, row):
        most = row.max_attempts or self.settings_of(session).max_attempts
        return row.attempt - row.released >= most

    def expire(self, session, row):
        """Ends an attempt whose lease expired."""
        if row.cancelled:
            self.finish(session, row, CANCELLED)
        elif self.used_up(session, row):
            self.finish(session, row, FAILED, error=LEASE_EXPIRED)
        else:
            self.put_off(session, row, 0, begun=True, lapses=row.lapses + 1)

    # ---- service

    def candidates(self, session):
        """The lane, its rows that may be served, and its expired rows."""
        room = {}
        rows = []
        for row in self.rows.values():
            if self.is_expired(session, row):
                rows.append(row)
            elif self.is_ready(session, row):
                if row.group not in room:
                    room[row.group] = min(self.room(session, row.group),
                                          self.room_in_queue(session))
                if room[row.group] > 0:
                    rows.append(row)
        key = self.shares_by(session).key
        lane = self.window[0] if self.window else min(
            (row.lane for row in rows), key=key, default=None)
        return lane, [row for row in rows if row.lane == lane]

    def shares_by(self, session):
        """The amounts of the lanes.  When shares are set, all amounts are equal
        at first."""
        shares = self.settings_of(session).shares
        return self.shares if shares == self.shares_of else Shares(shares)

    def parts_of(self, row):
        """The charge to its lane's share."""
        return PARTS

    def have_shares(self, session):
        settings = self.settings_of(session)
        if settings.shares and not settings.paused:
            self.shares = self.shares_by(session)
            self.shares_of = settings.shares

    def first(self, session, rows):
        """The task of a group that is served next."""
        return (self.first_expired(rows) or self.first_due(rows, True)
                or self.first_by_time(rows))

    def first_by_time(self, rows):
        ready = min((row for row in rows if row.state == "ready"),
                    key=lambda row: row.order, default=None)
        due = self.first_due(rows, False)
        if due is None or ready is None:
            return due or ready
        return due if due.run_at < ready.ready_at else ready

    def first_due(self, rows, begun):
        return min((row for row in rows if row.state == "scheduled"
                    and row.begun == begun), key=due_order, default=None)

    def first_expired(self, rows):
        expired = sorted((row for row in rows if row.state == "running"),
                         key=lambda row: row.stands)
        if not expired:
            return None
        last = self.cycles.get((expired[0].lane, expired[0].group))
        return next((row for row in expired
                     if last is not None and row.stands > last), expired[0])

    def choose(self, session):
        """The next task.  Ends tasks that cannot be served again."""
        before = dict(self.cursors)
        row = self.next(session)
        while (row is not None and row.state == "running"
               and not self.may_take_over(session, row)):
            self.expire(session, row)
            self.cursors = dict(before)
            row = self.next(session)
        return row

    def may_take_over(self, session, row):
        return not row.cancelled and not self.used_up(session, row) and min(
            self.room(session, row.group), self.room_in_queue(session)) >= 0

    def next(self, session):
        lane, rows = self.candidates(session)
        if not rows:
            return None
        groups = {}
        for row in rows:
            groups.setdefault(self.seats[row.group], []).append(row)
        weights = {seat: self.weights.get(groups[seat][0].group, 1)
                   for seat in groups}
        if self.room_in_queue(session) <= 0:
            seat = self.next_full(lane, groups, weights)
        else:
            self.cursors[lane] = self.next_round(lane, groups, weights)
            seat = self.cursors[lane].turn
        return self.first(session, groups[seat])

    def next_round(self, lane, groups, weights):
        return self.cursors.get(lane, START).next(groups, weights)

    def next_full(self, lane, groups, weights):
        """A full queue has rounds of its own, and no turns."""
        seat, served = self.cursors.get((lane, "full"), (-1, 0))
        if seat not in groups or served >= weights[seat]:
            seat = min([other for other in groups if other > seat] or groups)
            served = 0
        self.cursors[lane, "full"] = (seat, served + 1)
        return seat

    def pop(self, session, tasks, per_group, take, lease):
        claims = []
        self.have_shares(session)
        inside = session in self.undo
        if not inside:
            self.undo[session], self.marks[session] = [], []
        self.look_at_batches(session)
        while len(claims) < tasks:
            before = dict(self.cursors)
            row = self.choose(session)
            if row is None:
                break
            alone = self.is_alone(row)
            if (alone and claims
                    or per_group and not self.is_within(row, per_group)):
                self.cursors = before
                break
            claims.append(self.serve(session, row, take, lease))
            self.shares_by(session).serve(row.lane, self.parts_of(row),
                                          not per_group or len(claims) == 1)
            if alone:
                break
        self.window = None
        if not inside:
            self.end(session, commit=True)
        return claims

    @staticmethod
    def is_alone(row):
        """Whether the task is served alone."""
        return row.lapses + (row.state == "running") >= LAPSES_ALONE

    def peek(self, session):
        """Returns None, because this queue has no peek()."""
        return None

    def worth_a_pop(self, session):
        self.look_at_batches(session)
        return any(row.state != "running" or self.may_take_over(session, row)
                   for row in self.candidates(session)[1])

    def is_within(self, row, blocks):
        """Whether a call with per_group may serve this task."""
        addr = self.addr(row)
        if self.window is None:
            self.window = row.lane, addr
        lane, first = self.window
        return (row.lane == lane and addr < first + blocks * self.block_length)

    def addr(self, row):
        return (self.seats[row.group]
                + self.cursors.get(row.lane, START).block * self.block_length)

    def serve(self, session, row, take, lease):
        values = {"attempt": row.attempt + 1, "lease": self.lease_of(row)}
        if row.state == "running":
            self.cycles[row.lane, row.group] = row.stands
            values["lapses"] = row.lapses + 1
        else:
            values["stands"] = self.stands(row)
        if take:
            self.change(session, row, "done", lease_until=None, how=COMPLETED,
                        **values)
        else:
            self.change(session, row, "running",
                        lease_until=self.now + (lease or DAY), **values)
        return Claim(row.id, row.group, row.attempt, row.lane, self.addr(row),
                     row.enqueued_at, row.lapses, row.lease_until)

    @staticmethod
    def stands(row):
        return ((0, row.order) if row.state == "ready"
                else (1 if row.begun else 2, *due_order(row), row.id))

    def lease_of(self, row):
        """The number of slots that a service of the task needs, which is 0 if
        the service takes over the task's slot."""
        return int(row.state != "running")

    # ---- ends

    def again(self, session, row, **values):
        self.change(session, row, "ready", last=True, ready_at=self.now,
                    run_at=self.now, **values)

    def put_off(self, session, row, delay, begun=False, **values):
        """Makes the task run again after the delay.  begun is true for a
        retry."""
        if delay or begun:
            self.change(session, row, "scheduled", run_at=self.now + delay,
                        begun=begun, **values)
        elif row.lapses >= LAPSES_ALONE:
            self.change(session, row, "scheduled", begun=False,
                        run_at=self.now - self.now % 1000, **values)
        else:
            self.again(session, row, **values)

    def finish(self, session, row, outcome, **values):
        how = outcome
        if outcome != FAILED and not self.settings_of(session).retain:
            outcome = None
        self.change(session, row, "done", outcome=outcome, how=how,
                    finished=self.now, **values)

    def held(self, id, attempt):
        row = self.rows.get(id)
        if (row is None or row.state != "running"
                or attempt not in (None, row.attempt)):
            return None
        return row

    def complete(self, session, id, attempt, result):
        row = self.held(id, attempt)
        if row is None:
            return False
        self.finish(session, row, CANCELLED if row.cancelled else COMPLETED,
                    result=result)
        return not row.cancelled

    def fail(self, session, id, attempt, error, delay, dead):
        row = self.held(id, attempt)
        if row is None:
            return False
        if row.cancelled:
            self.finish(session, row, CANCELLED)
        elif dead or self.used_up(session, row):
            self.finish(session, row, FAILED, error=error)
        else:
            if delay is None:
                delay = self.backoff(session, row)
            self.put_off(session, row, delay, begun=True, error=error)
        return not row.cancelled

    def backoff(self, session, row):
        return min(self.settings_of(session).backoff
                   << (row.attempt - row.released - 1), HOUR)

    def release(self, session, id, attempt, delay):
        row = self.held(id, attempt)
        if row is None:
            return False
        if row.cancelled:
            self.finish(session, row, CANCELLED)
        else:
            self.put_off(session, row, delay, released=row.released + 1)
        return not row.cancelled

    def extend(self, session, id, attempt, lease):
        row = self.held(id, attempt)
        if row is None or row.cancelled:
            return None
        self.change(session, row, "running", lease_until=self.now + lease)
        return row.lease_until

    def cancel(self, session, id):
        row = self.rows.get(id)
        if row is None or row.state in ("none", "done"):
            return False
        if row.state == "running":
            self.change(session, row, "running", cancelled=True)
        else:
            self.finish(session, row, CANCELLED)
        return True

    # ---- many tasks

    def purge(self, session, group):
        rows = [row for row in self.rows.values()
                if group in (None, row.group) and self.mine(session, row)
                and row.state in ("ready", "scheduled", "blocked")]
        for row in rows:
            self.change(session, row, "done", how=PURGED)
        return len(rows)

    def expire_leases(self, session, most):
        rows = sorted((row for row in self.rows.values()
                       if self.is_expired(session, row)),
                      key=lambda row: row.stands)[:most]
        for row in rows:
            self.expire(session, row)
        return len(rows)

    def redrive(self, session, group, most):
        rows = sorted((row for row in self.rows.values()
                       if row.outcome == FAILED and group in (None, row.group)
                       and self.mine(session, row)),
                      key=lambda row: (row.finished, row.id))
        back = 0
        for row in rows:
            if back != most and self.is_free(session, row.key):
                self.again(session, row, outcome=None, released=row.attempt,
                           cancelled=False, lapses=0)
                back += 1
        return back

    def is_free(self, session, key):
        try:
            return key is None or self.holder(session, key) is None
        except Blocked:
            return False

    def maintain(self, session):
        self.expire_leases(session, NO_LIMIT)
        if not self.settings_of(session).retain:
            for row in self.rows.values():
                if row.outcome in (COMPLETED, CANCELLED):
                    self.change(session, row, "done", outcome=None)

    # ---- the view

    def look(self, session, ids):
        if ids is None:
            ids = self.rows
        return {id: self.row(self.rows[id]) for id in ids
                if id in self.rows and self.rows[id].state != "none"
                and (self.rows[id].state != "done" or self.rows[id].outcome)}

    def row(self, row):
        status = row.outcome or row.state
        if status == "ready" or status == "scheduled" and self.is_due(row):
            status = "queued"
        return Row(row.id, status, row.attempt, row.run_at, row.lease_until,
                   row.finished, row.error, row.result)


class FakeSession:
    """The methods of server.Session, on a Fake."""

    def __init__(self, name, fake, log):
        self.name, self.fake, self.log = name, fake, log

    def note(self, text, result=None):
        self.log.append([self.name, text, (), result and [(str(result),)]])
        return result

    def ask(self, name, *arguments):
        """Calls the queue, which reads the clock once."""
        self.fake.now = self.fake.clock.now()
        return self.note(" ".join(map(str, (name, *arguments))),
                         getattr(self.fake, name)(self, *arguments))

    # ---- transactions

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

    # ---- settings

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

    def set_shares(self, shares):
        self.note(f"shares {shares}")
        self.fake.set(self, shares=shares)

    def set_max_attempts(self, most):
        self.note(f"max_attempts {most}")
        self.fake.set(self, max_attempts=most)

    def set_retain(self, retain):
        self.note(f"retain {retain}")
        self.fake.set(self, retain=retain)

    def set_paused(self, group, paused):
        self.note(f"{'pause' if paused else 'resume'} {group}")
        groups = self.fake.settings_of(self).paused_groups
        if group is None:
            self.fake.set(self, paused=paused)
        else:
            self.fake.set(self, paused_groups=groups | {group} if paused
                          else groups - {group})

    # ---- calls

    def enqueue(self, group, priority, run_at=None, key=None,
                max_attempts=None, cost=None, batch=None):
        return self.ask("enqueue", group, priority, run_at, key, max_attempts,
                        cost, batch)

    enqueue_briefly = enqueue

    def create_batch(self, *arguments):
        return self.ask("create_batch", *arguments)

    def close_batch(self, id):
        return self.ask("close_batch", id)

    def cancel_batch(self, id):
        return self.ask("cancel_batch", id)

    def batches(self, ids):
        return self.ask("batches", ids)

    def reschedule(self, id):
        pass

    def enqueue_batch(self, groups, priority, run_at=None, keys=None,
                      costs=None):
        self.fake.now = self.fake.clock.now()
        return [self.note(
            f"enqueue {group} {priority} {run_at} {keys and keys[number]}",
            self.fake.enqueue(self, group, priority, run_at,
                              keys and keys[number],
                              cost=costs and costs[number]))
                for number, group in enumerate(groups)]

    def pop(self, tasks, per_group=None, take=False, lease=None):
        self.fake.now = self.fake.clock.now()
        claims = self.fake.pop(self, tasks, per_group, take, lease)
        self.note(f"{'take' if take else 'pop'} {tasks} lease {lease}",
                  " ".join(f"{claim.group}:{claim.id}" for claim in claims))
        return claims

    def peek(self, tasks):
        return self.fake.peek(self)

    def wait(self):
        return self.ask("worth_a_pop")

    def complete(self, id, attempt=None, result=None, took=None):
        return self.ask("complete", id, attempt, result)

    def complete_batch(self, ids, attempts, took=None):
        self.fake.now = self.fake.clock.now()
        return [id for id, attempt in zip(ids, attempts)
                if not self.note(f"complete {id} {attempt}",
                                 self.fake.complete(self, id, attempt, None))]

    def fail(self, id, attempt=None, error=None, retry_in=None, dead=False,
             took=None):
        return self.ask("fail", id, attempt, error, retry_in, dead)

    def release(self, id, attempt=None, delay=0):
        return self.ask("release", id, attempt, delay)

    def extend(self, id, attempt=None, lease=None):
        return self.ask("extend", id, attempt, lease or DAY)

    def cancel(self, id):
        return self.ask("cancel", id)

    def purge(self, group=None):
        return self.ask("purge", group)

    def expire(self, most):
        return self.ask("expire_leases", most)

    def redrive(self, group=None, most=None):
        return self.ask("redrive", group, most)

    def maintain(self):
        self.ask("maintain")

    def look(self, ids=None):
        return self.ask("look", ids)

    look_at_changed = look

    def reset_hints(self):
        self.note("reset_hints")

    def check_queue(self):
        return []


class FakeServer:
    """The methods of server.Server, for one kind of Fake."""

    def __init__(self, kind=Fake):
        self.kind = kind

    def clock(self, log):
        self.time = FakeClock(log)
        return self.time

    def open(self, count, log, block_length, settings):
        fake = self.kind(self.time, settings, block_length)
        return [FakeSession(f"s{number + 1}", fake, log)
                for number in range(count)]

    def close(self, sessions, clean):
        pass

    def give_up(self, sessions):
        pass
