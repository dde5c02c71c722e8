"""Batches: the moment at which the waiting task becomes ready
(src/task/blocked.c).

Sessions add tasks to a batch, end them, redrive a failed task and close the
batch.  Pops check whether the batch is finished.  Each transaction can be rolled
back at each step, and a crash rolls back all of them.  The rules make these
promises

early       the waiting task is not ready before each task of the batch has ended.
twice       the waiting task becomes ready once.
refused     a batch accepts tasks until its close has committed.
numbers     the number of failures that the waiting task gets is correct.
stranded    once all transactions and all tasks of the batch have ended, and the
            batch is closed, a check follows.

A step is atomic for all other sessions. It is a lock, a read, the change of a
row, or a commit.
"""

from collections import namedtuple

from states import Explorer, Fault

__all__ = ["Model", "RULES", "SCENARIOS"]

RULES = {
    "lock to add": "an addition holds a lock on the batch until the commit",
    "check again": "an addition checks under this lock that the batch is open",
    "search again": "a check searches for tasks after it has locked the batch",
    "deletes count": "a task that a transaction ends exists until the commit",
    "closed": "a batch that is not closed is not finished",
    "row lock": "a check locks the row of the waiting task",
    "look again": "a check is repeated if that task still waits",
    "numbers last": "a check adds up numbers after its search",
    "rejoin": "a redriven task checks under the lock that its batch is not finished",
}

# rows: the rows of the batch's tasks.  closed: NO, YES, or the session that is
# about to close the batch
State = namedtuple("State", "rows closed ready failed due locked shared"
                   " exclusive made crash sessions")
# at: the next step.  seen: failures that a check has counted
Session = namedtuple("Session", "at seen")

ABSENT, LIVE, DONE, FAILED, OTHER = "absent", "live", "done", "failed", "other"
NO, YES = "no", "yes"

# the rows, whether the batch is closed, and what the sessions do
SCENARIOS = {
    "add during close": ([ABSENT], NO, ["add 0", "close", "look"]),
    "two add": ([ABSENT, ABSENT], NO, ["add 0", "add 1", "close", "look"]),
    "two ends": ([LIVE, LIVE], YES, ["fail 0", "complete 1", "look"]),
    "two looks": ([LIVE], YES, ["complete 0", "look", "look"]),
    "redrive": ([FAILED], YES, ["redrive 0", "look"]),
    "redrive and close": ([FAILED, LIVE], NO,
                          ["redrive 0", "fail 1", "close", "look"]),
    "add and end": ([LIVE, ABSENT], NO,
                    ["complete 0", "add 1", "close", "look"]),
    "none": ([], NO, ["close", "look", "look"]),
}


class Model(Explorer):
    """A scenario, with some of the rules."""

    def __init__(self, scenario, rules):
        rows, closed, self.does = SCENARIOS[scenario]
        self.rules = rules
        self.start = State(tuple((row, None) for row in rows), closed, False, None,
                           closed == YES, None, frozenset(), None, 0, True,
                           tuple(Session("begin", None) for _ in self.does))

    def steps(self, state):
        for n, does in enumerate(self.does):
            at = state.sessions[n].at
            call, *task = does.split()
            step = getattr(self, f"{call}_{at}", None)
            if at != "over" and step:
                for name, after in step(state, n, *map(int, task)):
                    yield f"{name}: {does} of {n}", after
            if at not in ("begin", "over"):
                yield f"rollback: {does} of {n}", self.undone(state, n)
        if state.crash:
            after = state
            for n in range(len(self.does)):
                if state.sessions[n].at not in ("begin", "over"):
                    after = self.undone(after, n)
            yield "crash", after._replace(crash=False)

    # ---- parts that transactions share

    def at(self, state, n, at, seen=None):
        sessions = list(state.sessions)
        sessions[n] = Session(at, seen)
        return state._replace(sessions=tuple(sessions))

    def row(self, state, task, row, by=None):
        rows = list(state.rows)
        rows[task] = (row, by)
        return state._replace(rows=tuple(rows))

    def ended(self, state, n):
        """Releases the locks.  The pop can be repeated later."""
        then = "begin" if self.does[n] == "look" else "over"
        return self.at(state._replace(
            shared=state.shared - {n},
            locked=None if state.locked == n else state.locked,
            exclusive=None if state.exclusive == n else state.exclusive),
            n, then)

    def undone(self, state, n):
        rows = tuple((by[1], None) if by and by[0] == n else (row, by)
                     for row, by in state.rows)
        return self.ended(state._replace(
            rows=rows, closed=NO if state.closed == n else state.closed), n)

    def committed(self, state, n):
        rows = tuple((row, by if by and by[0] != n else None)
                     for row, by in state.rows)
        return self.ended(state._replace(
            rows=rows, closed=YES if state.closed == n else state.closed), n)

    def is_open(self, state):
        if state.ready and state.closed != YES:
            raise Fault("refused: the batch is finished, but not closed")
        return state.closed != YES and not state.ready

    def to_lock(self, state, n, then):
        if "lock to add" not in self.rules:
            yield "no lock", self.at(state, n, then)
        elif state.exclusive in (None, n):
            yield "lock", self.at(state._replace(shared=state.shared | {n}),
                                  n, then)

    # the calls

    def add_begin(self, state, n, task):
        then = "lock" if self.is_open(state) else "over"
        yield "check", self.at(state, n, then)

    def add_lock(self, state, n, task):
        again = "check again" in self.rules
        yield from self.to_lock(state, n, "check" if again else "insert")

    def add_check(self, state, n, task):
        if self.is_open(state):
            yield "check again", self.at(state, n, "insert")
        else:
            yield "refuse", self.undone(state, n)

    def add_insert(self, state, n, task):
        yield "insert", self.at(self.row(state, task, LIVE, (n, ABSENT)), n,
                                "commit")

    def add_commit(self, state, n, *task):
        yield "commit", self.committed(state, n)

    def end(self, state, n, task, as_what):
        if state.rows[task] == (LIVE, None):
            yield "end", self.at(self.row(state, task, as_what, (n, LIVE)), n,
                                 "commit")

    def complete_begin(self, state, n, task):
        yield from self.end(state, n, task, DONE)

    def fail_begin(self, state, n, task):
        yield from self.end(state, n, task, FAILED)

    fail_commit = complete_commit = redrive_commit = close_commit = add_commit

    def redrive_begin(self, state, n, task):
        if state.rows[task] != (FAILED, None):
            return
        if state.ready:
            yield "as another's", self.at(self.row(state, task, OTHER), n,
                                          "over")
        else:
            yield "check", self.at(state, n, "lock")

    def redrive_lock(self, state, n, task):
        again = "rejoin" in self.rules
        yield from self.to_lock(state, n, "check" if again else "insert")

    def redrive_check(self, state, n, task):
        if not state.ready:
            yield "check again", self.at(state, n, "insert")
        else:
            yield "as another's", self.ended(self.row(state, task, OTHER), n)

    def redrive_insert(self, state, n, task):
        yield "insert", self.at(self.row(state, task, LIVE, (n, FAILED)), n,
                                "commit")

    def close_begin(self, state, n):
        if state.locked is None and not state.ready:
            yield "close", self.at(state._replace(locked=n, closed=n,
                                                  due=True), n, "commit")

    def look_begin(self, state, n):
        if not state.due or state.ready or (
                "row lock" in self.rules and state.locked is not None):
            return
        if "row lock" in self.rules:
            state = state._replace(locked=n)
        yield "begin", self.at(state, n, "read")

    def look_read(self, state, n):
        seen = None if "numbers last" in self.rules else self.failures(state)
        if state.closed == YES or "closed" not in self.rules:
            yield "read", self.at(state, n, "search", seen)
        else:
            yield "not closed", self.waits(state, n)

    def look_search(self, state, n):
        if self.has_tasks(state):
            yield "has tasks", self.waits(state, n)
        else:
            yield "search", self.at(state, n, "lock", state.sessions[n].seen)

    def look_lock(self, state, n):
        if state.shared - {n} or state.exclusive not in (None, n):
            yield "is locked", self.waits(state, n)
            return
        again = "search again" in self.rules
        yield "lock", self.at(state._replace(exclusive=n), n,
                              "again" if again else "count",
                              state.sessions[n].seen)

    def look_again(self, state, n):
        if self.has_tasks(state):
            yield "has tasks", self.waits(state, n)
        else:
            yield "search again", self.at(state, n, "count",
                                          state.sessions[n].seen)

    def look_count(self, state, n):
        seen = state.sessions[n].seen
        yield "count", self.at(state, n, "commit",
                               self.failures(state) if seen is None else seen)

    def look_commit(self, state, n):
        yield "commit", self.ended(state._replace(
            ready=True, failed=state.sessions[n].seen, made=state.made + 1), n)

    def waits(self, state, n):
        return self.ended(state._replace(due="look again" in self.rules), n)

    def failures(self, state):
        return sum(row == (FAILED, None) for row in state.rows)

    def has_tasks(self, state):
        return any(row == LIVE or by and by[1] == LIVE
                   and "deletes count" in self.rules
                   for row, by in state.rows)

    # the promises

    def check(self, state):
        tasks = any(row == LIVE or by and by[1] == LIVE
                    for row, by in state.rows)
        if state.ready and tasks:
            raise Fault("early: a task of the batch has not ended")
        if state.made > 1:
            raise Fault("twice: the waiting task became ready again")
        if state.ready and state.failed != sum(
                row in (FAILED, OTHER) for row, _ in state.rows):
            raise Fault(f"numbers: {state.failed} failures")
        quiet = all(at in ("begin", "over") for at, _ in state.sessions)
        if (quiet and state.closed == YES and not tasks and not state.due
                and not state.ready):
            raise Fault("stranded: no check follows")
