"""After: the moment at which a task that waits for named tasks becomes ready
(src/task/blocked.c).

A session enqueues a task that waits for others, its predecessors.  Other sessions end
the predecessors, with or without success, or redrive one of them.  Pops check whether
all predecessors have ended.  As in batch.py, each transaction can be rolled back at
each step, and a crash rolls back all of them.  The rules make these promises

early       the waiting task is not ready before its predecessors have
            succeeded.
lost        if a predecessor fails, the waiting task does not become ready, in
            any order of commits.
twice       the wait of the task ends once.
stranded    once all transactions and all predecessors have ended, a check
            follows.

In a state, "closed" contains the sessions that have inserted the rows of
predecessors.  "shared" contains the sessions that hold the lock of an end
without success.
"""

from collections import namedtuple

import batch
from batch import DONE, FAILED, LIVE, NO, YES, Session
from states import Fault

__all__ = ["Model", "RULES", "SCENARIOS"]

RULES = {
    "insert first": "an enqueue inserts its rows before it reads the predecessors",
    "probe last": "an end without success searches for these rows after its delete",
    "uncommitted": "the search for these rows finds rows of open transactions, too",
    "lock first": "before that search, the transaction takes the lock of its end",
    "test": "an enqueue that finds a row being changed tests the changer's lock",
    "read again": "after that test, the enqueue reads the row again",
    "archive": "a predecessor that has failed before counts as a failure",
    "failures last": "a check reads failures after its search",
    "deletes count": "a task that a transaction ends exists until the commit",
    "row lock": "a check locks the row of the waiting task",
    "look again": "a check is repeated if that task still waits",
}

State = namedtuple("State", batch.State._fields + ("failures",))

# the predecessors' rows, whether any end is enough, and the work of the sessions
SCENARIOS = {
    "complete": ([LIVE], False, ["enqueue", "complete 0", "look"]),
    "fail": ([LIVE], False, ["enqueue", "fail 0", "look"]),
    "one of two": ([LIVE, LIVE], False,
                   ["enqueue", "complete 0", "fail 1", "look"]),
    "fail twice": ([LIVE], False, ["enqueue", "fail 0", "fail 0", "look"]),
    "failed before": ([FAILED, LIVE], False, ["enqueue", "complete 1", "look"]),
    "redrive": ([LIVE], False, ["enqueue", "fail 0", "redrive 0", "look"]),
    "two looks": ([LIVE], False, ["enqueue", "complete 0", "look", "look"]),
    "any": ([LIVE, LIVE], True, ["enqueue", "complete 0", "fail 1", "look"]),
}


class Model(batch.Model):
    """A scenario, with some of the rules."""

    def __init__(self, scenario, rules):
        rows, self.any, self.does = SCENARIOS[scenario]
        self.rules = rules
        self.start = State(tuple((row, None) for row in rows), NO, None, None, False,
                           None, frozenset(), None, 0, True,
                           tuple(Session("begin", None) for _ in self.does),
                           frozenset())

    def undone(self, state, n):
        return super().undone(state._replace(failures=frozenset(
            (task, by) for task, by in state.failures if by != n)), n)

    def committed(self, state, n):
        return super().committed(state._replace(failures=frozenset(
            (task, None if by == n else by) for task, by in state.failures)), n)

    def failed(self, state, n, task):
        return state if self.any else state._replace(
            failures=state.failures | {(task, n)})

    # A session's calls. "seen" of an enqueue is (the next predecessor, the
    # session that changes it).

    def enqueue_begin(self, state, n):
        if "insert first" in self.rules:
            state = state._replace(closed=n)
        yield "begin", self.at(state, n, "read", (0, None))

    def enqueue_read(self, state, n):
        task, changer = state.sessions[n].seen
        if task == len(state.rows):
            yield "write", self.at(state._replace(closed=n), n, "commit")
            return
        row, by = state.rows[task]
        if by and by[1] == LIVE and by[0] != changer and "test" in self.rules:
            yield "is changing", self.at(state, n, "test", (task, by[0]))
            return
        if (by[1] if by else row) == FAILED and "archive" in self.rules:
            state = self.failed(state, n, task)
        yield "read", self.at(state, n, "read", (task + 1, None))

    def enqueue_test(self, state, n):
        task, changer = state.sessions[n].seen
        if changer in state.shared:
            yield "refuse", self.undone(state, n)
        elif "read again" in self.rules:
            yield "test", self.at(state, n, "read", (task, changer))
        else:
            yield "test", self.at(state, n, "read", (task + 1, None))

    def enqueue_commit(self, state, n):
        yield "commit", self.committed(state._replace(due=True), n)

    def fail_begin(self, state, n, task):
        if state.rows[task] == (LIVE, None):
            steps = ["delete", "lock", "probe", "commit"]
            if "lock first" not in self.rules:
                steps = ["delete", "probe", "lock", "commit"]
            if "probe last" not in self.rules:
                steps = ["lock", "probe", "delete", "commit"]
            yield "begin", self.at(state, n, steps[0], tuple(steps[1:]))

    def next_step(self, state, n):
        then, *steps = state.sessions[n].seen
        return self.at(state, n, then, tuple(steps))

    def fail_delete(self, state, n, task):
        if state.rows[task] == (LIVE, None):
            yield "delete", self.next_step(
                self.row(state, task, FAILED, (n, LIVE)), n)

    def fail_lock(self, state, n, task):
        yield "lock", self.next_step(
            state._replace(shared=state.shared | {n}), n)

    def fail_probe(self, state, n, task):
        if state.closed == YES or (state.closed != NO and
                                   "uncommitted" in self.rules):
            state = self.failed(state, n, task)
        yield "probe", self.next_step(state, n)

    def fail_commit(self, state, n, task):
        yield "commit", self.committed(state, n)

    def redrive_begin(self, state, n, task):
        if state.rows[task] == (FAILED, None):
            yield "redrive", self.at(self.row(state, task, LIVE, (n, FAILED)), n,
                                     "commit")

    def look_begin(self, state, n):
        if state.closed == YES:
            yield from super().look_begin(state, n)

    def look_read(self, state, n):
        if "failures last" in self.rules:
            yield from self.look_search(state, n)
        else:
            yield "failures", self.at(state, n, "search", self.has_failed(state))

    def look_search(self, state, n):
        failed = state.sessions[n].seen
        if self.has_tasks(state):
            failed = failed or self.has_failed(state)
            yield ("search", self.at(state, n, "commit", True) if failed else
                   self.waits(state, n))
        elif failed is None:
            yield "search", self.at(state, n, "count")
        else:
            yield "search", self.at(state, n, "commit", failed)

    def look_count(self, state, n):
        yield "failures", self.at(state, n, "commit", self.has_failed(state))

    def look_commit(self, state, n):
        cancelled = state.sessions[n].seen
        yield "commit", self.ended(state._replace(
            ready="cancelled" if cancelled else "ready", made=state.made + 1), n)

    def has_failed(self, state):
        return any(by is None for _, by in state.failures)

    # the promises

    def check(self, state):
        live = self.has_rows(state)
        if state.ready == "ready" and live:
            raise Fault("early: a predecessor has not ended")
        if state.ready == "ready" and not self.any and any(
                row == FAILED for row, _ in state.rows):
            raise Fault("lost: a predecessor has failed")
        if state.made > 1:
            raise Fault("twice: the wait has ended again")
        quiet = all(at in ("begin", "over") for at, _ in state.sessions)
        if (quiet and state.closed == YES and not live and not state.due
                and not state.ready):
            raise Fault("stranded: no check follows")

    @staticmethod
    def has_rows(state):
        return any(row == LIVE or by and by[1] == LIVE for row, by in state.rows)
