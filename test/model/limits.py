"""The limits: all interleavings of short transactions.

protocol.py has the protocol (src/base/counter.c, running.c, lane_turns.c,
transaction.c) as atomic steps.  Each scenario has a few tasks and the
transactions of two or three backends.  The model visits once every state that
some order of the steps can reach.  The rules make these promises

strict          a claim exceeds no limit that was in effect when its slot was taken,
                or after that.  A task runs from its claim until its end is visible.
too little      a known counter is at least the true number.
not exact       when every transaction is over, or idle, a known counter is exact.
stranded        Assume that every transaction is over, or idle, and that a task is
                ready and has a free slot under the committed settings.  Then a pop
                serves it, unless a transaction that does not count is open.
"""

from collections import deque

import protocol
from protocol import (ABSENT, CALLS, ENDS, GONE, IN_CALL, IRREGULAR, NO_LIMIT,
                      NOBODY, NOT_NOW, OWN, READY, REGULAR, RULES, RUNNING,
                      SHARED)

__all__ = ["Model", "RULES", "SCENARIOS", "size"]

# Each scenario has the limit, the rows, and other shared fields with unusual values.
# After that it has the transactions of each backend, one after the other.
A, W, R = ABSENT, READY, RUNNING                # W: waits, ready
LIMITED = {"limited": 1, "group": IRREGULAR}
COUNTED = {**LIMITED, "known": 1}


def limit(c, rows, base=COUNTED, **other):
    shared = {**base, "limits": (c,), **other}
    if shared.get("known"):
        shared.setdefault("committed", rows.count(RUNNING))
    shared["rows"] = tuple((row, NOBODY, ABSENT) for row in rows)
    return shared


def unlimited(rows):
    return limit(NO_LIMIT, rows, {"group": IRREGULAR})


SCENARIOS = {
    "two pops": (
        limit(1, [W, W]), ["pop any", "pop any"]),
    "two pops, not loaded": (
        limit(1, [W, W], LIMITED), ["pop any", "pop any"]),
    "two takes, not loaded": (
        limit(1, [W, W], LIMITED), ["take any", "take any"]),
    "pop and complete": (
        limit(1, [R, W]), ["pop any", "complete:0 any"]),
    "pop and complete, not loaded": (
        limit(1, [R, W], LIMITED), ["pop any", "complete:0 any"]),
    "pop and two completes": (
        limit(2, [R, R, W], LIMITED),
        ["pop any", "complete:0 end", "complete:1 end"]),
    "two pops and a complete": (
        limit(1, [R, W, W], LIMITED),
        ["pop end", "pop end", "complete:0 any"]),
    "two pops and a take": (
        limit(1, [W, W, W]), ["pop end", "pop end", "take end"]),
    "two pops of one task": (
        limit(2, [W]), ["pop any", "pop any"]),
    "enqueue to a group in service": (
        limit(1, [A]), ["enqueue:0 any", "pop end"]),
    "enqueue": (
        limit(1, [A, R], group=REGULAR), ["enqueue:0 any", "pop end",
                                          "complete:1 end"]),
    "enqueue and pop": (
        limit(1, [A, A], group=REGULAR), ["enqueue:0 end", "pop end",
                                          "enqueue:1 pop any"]),
    "all in one": (
        limit(1, [R, W, W], LIMITED), ["complete:0 pop any", "pop any"]),
    "pop and complete in one": (
        limit(1, [W, W, W], LIMITED), ["pop complete:0 pop any", "pop any"]),
    "take, take": (
        limit(2, [W, W, W], LIMITED), ["take take any", "pop end"]),
    "loaded in between": (
        limit(2, [R, W, W], LIMITED),
        ["pop reset_hints pop end", "pop end"]),
    "release and pop again": (
        limit(3, [R, W, W]), ["release:0 pop pop end", "reset_hints pop end"]),
    "release": (
        limit(1, [R]), ["release:0 any", "pop end"]),
    "a first limit": (
        unlimited([W, W]), ["pop any", "set_group:1 commit pop end"]),
    "a first limit during two": (
        unlimited([W, W]), ["pop end", "pop end", "set_group:1 commit"]),
    "a first limit during a complete": (
        unlimited([R, W]), ["complete:0 any", "set_group:1 commit pop end"]),
    "a first limit in the middle": (
        unlimited([W, W]), ["pop pop any", "set_group:1 commit"]),
    "a first limit in the middle of completes": (
        unlimited([R, W, W]), ["complete:0 pop any", "set_group:1 commit",
                               "pop end"]),
    "a first limit of one's own": (
        unlimited([W, W]), ["pop set_group:1 pop any", "pop end"]),
    "raise": (
        limit(1, [R, W]), ["pop end", "set_group:2 any"]),
    "raise during a complete": (
        limit(1, [R, W, W]), ["pop end", "set_group:2 end", "complete:0 end"]),
    "raise and pop": (
        limit(1, [R, W, W]), ["set_group:2 pop any", "pop end"]),
    "lower": (
        limit(2, [R, W, W]), ["pop end", "set_group:1 any", "pop end"]),
    "lower and pop": (
        limit(2, [R, W]), ["set_group:1 pop any", "pop end"]),
    "no limit any more": (
        limit(1, [R, W]), ["pop end", "set_group:99 any"]),
    "pause": (
        limit(1, [W, W]), ["set_group:0 any", "pop end", "pop end"]),
    "pause and pop": (
        limit(1, [W, W]), ["set_group:0 pop any", "pop end"]),
    "resume": (
        limit(0, [W, W]), ["set_group:1 any", "pop end"]),
    "resume, never loaded": (
        limit(0, [W], LIMITED), ["set_group:99 any", "pop end"]),
    "pause and resume": (
        limit(1, [W]), ["set_group:0 commit set_group:1 commit", "pop end"]),
    "reset": (
        limit(1, [R, W]), ["pop end", "complete:0 end", "reset_hints commit"]),
    "reset during an abort": (
        limit(1, [W, W]), ["pop end", "pop end", "reset_hints commit"]),
    "deleted by SQL": (
        limit(1, [R, W]), ["delete_by_sql:0 any", "pop end"]),
    "made ready by SQL": (
        limit(1, [R, W]), ["release_by_sql:0 end", "pop end", "pop end"]),
}


def script(text):
    """The calls and ends of a backend: (kind, the argument or None)."""
    calls = []
    for word in text.split():
        kind, _, value = word.partition(":")
        if kind not in CALLS and kind not in ENDS:
            raise SystemExit(f"no such call: {word}")
        calls.append((kind, int(value) if value else None))
    return calls


class Model:
    """A scenario, with some of the rules."""

    def __init__(self, scenario, rules):
        shared, texts = SCENARIOS[scenario]
        self.rules = rules
        self.scripts = [script(text) for text in texts]
        self.scripts.append([("pop", None), ("commit", None)])
        self.start = ({**SHARED, **shared}, [
            self.begin(i, dict(OWN)) for i in range(len(texts))])
        self.quiet = {}

    def begin(self, number, own, fate=""):
        """Prepares the next call, or the end of the transaction."""
        calls = self.scripts[number]
        if own["call"] == len(calls) or fate == "open":
            return {**OWN, "call": len(calls), "served": own["served"]}
        kind, value = calls[own["call"]]
        own["kind"] = kind
        if kind in ENDS:
            own["step"] = "end"
            return own
        own["step"], name = CALLS[kind]
        if name:
            own[name] = value
        if kind == "release_by_sql":
            own["running"] = READY
        elif kind == "delete_by_sql":
            own["running"] = GONE
        elif own["step"] == "pending_show" and not own["ready"]:
            own["step"] = "queue_use"
        return own

    def step(self, shared, own, number):
        """All next steps of this backend: (step, shared, own)."""
        if own[STEP] == "":
            return
        if own[STEP] == "end":
            for fate in ENDS[own[KIND]]:
                p = Record(OWN, own)
                p.call += 1
                if fate == "open":
                    yield "open", shared, tuple(self.begin(
                        number, p.__dict__, fate).values())
                    continue
                p.committed = int(fate == "commit")
                p.step = protocol.end_steps(self.rules, p)[0]
                yield fate, shared, p.freeze()
            return
        s, p = Record(SHARED, shared), Record(OWN, own)
        then = getattr(protocol, p.step)(self.rules, s, p, number)
        if then is NOT_NOW:
            return
        if then == "next":
            over = p.kind in ENDS
            if over:
                kept = {"call": p.call, "served": p.served}
                p.__dict__.update({**OWN, **kept})
            else:
                p.call += 1
                for name in IN_CALL:
                    setattr(p, name, OWN[name])
            p.step = ""
            self.begin(number, p.__dict__)
        else:
            p.step = then
        yield own[STEP], s.freeze(), tuple(p.__dict__.values())

    def explore(self, most=None):
        """Returns None, or (a fault, the steps that lead to it).  Searches
        breadth first, and visits at most this number of states.
        """
        shared, backends = self.start
        first = (tuple(shared.values()),
                 tuple(tuple(own.values()) for own in backends))
        came = {first: None}
        todo = deque([first])
        while todo and (most is None or len(came) < most):
            state = todo.popleft()
            shared, backends = state
            quiet = True
            for number, own in enumerate(backends):
                for name, s, p in self.step(shared, own, number):
                    quiet = False
                    after = (s, backends[:number] + (p,)
                             + backends[number + 1:])
                    if after in came:
                        continue
                    came[after] = (state, number, name)
                    fault = p[FAULT] or too_little(s)
                    if fault:
                        return fault, trace(came, after)
                    todo.append(after)
            if quiet:
                fault = self.fault_when_quiet(shared)
                if fault:
                    return fault, trace(came, state)
        self.states = len(came)
        return None

    def fault_when_quiet(self, shared):
        if shared in self.quiet:
            return self.quiet[shared]
        s = Record(SHARED, shared)
        truth = sum(map(protocol.is_running, s.rows))
        ready = any(row[0] == READY and row[1] == NOBODY for row in s.rows)
        fault = None
        if (s.known and s.as_of == s.resets and
                protocol.running(s) != truth):
            fault = f"not exact: {protocol.running(s)} for {truth}"
        elif (ready and truth < s.limits[-1] and not s.uncounted
              and not self.pop_serves(shared)):
            fault = f"stranded: {truth} running, limited to {s.limits[-1]}"
        self.quiet[shared] = fault
        return fault

    def pop_serves(self, shared):
        number = len(self.scripts) - 1
        own = tuple(self.begin(number, dict(OWN)).values())
        while own[STEP]:
            (_, shared, own), = self.step(shared, own, number)
        return own[SERVED] > 0


STEP, KIND, FAULT, SERVED = (list(OWN).index(name) for name in
                             ("step", "kind", "fault", "served"))


class Record:
    def __init__(self, names, values):
        self.__dict__ = dict(zip(names, values))

    def freeze(self):
        return tuple(self.__dict__.values())


def too_little(shared):
    s = Record(SHARED, shared)
    if s.known and s.as_of == s.resets and not s.too_late:
        truth = sum(map(protocol.is_running, s.rows))
        if protocol.running(s) < truth:
            return f"too little: {protocol.running(s)} for {truth}"
    return None


def trace(came, state):
    lines = []
    while came[state] is not None:
        before, number, name = came[state]
        changed = [
            f"{field} {value}"
            for field, old, value in zip(SHARED, before[0], state[0])
            if old != value and field != "lock"]
        kind = before[1][number][KIND]
        name = name if kind in ENDS else f"{kind}: {name}"
        lines.append(f"{'    ' * number}{number + 1} {name:<28} "
                     + ", ".join(changed))
        state = before
    return lines[::-1]


def size(scenario):
    """The scenario's approximate duration."""
    texts = SCENARIOS[scenario][1]
    return len(texts), sum(len(text.split()) for text in texts)
