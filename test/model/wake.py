"""Waking sessions that wait: which session searches, and which session is called
(src/base/wake.c).

Producers make tasks ready, and call waiters.  A waiter that searches and finds a
task leaves.  Then its client pops a task, or is gone.  The rules make these
promises

lost            when only time can change the state, no session sleeps while a task
                is ready, unless a search is about to follow.
late            the search after a second is needed only if a client is gone.
                Otherwise no session sleeps while a task is ready.
crowd           as many sessions are notified as there were tasks.  One more
                session is notified for each search without a call.  Such
                searches are the first search of a session, the search after a
                second, and the search after another session was ended.

A step is atomic for all other sessions.  It is a search, an access to an
atomic, or a change of the list of sleepers.  The names of steps that happen
only as time passes begin with "later".  A signal goes to the first session in
the list, and removes that session from the list.  The model leaves out the
timekeeper's clock, because the clock is only one more reason for a call.
"""

from collections import namedtuple

from states import Explorer, Fault

__all__ = ["Model", "RULES", "SCENARIOS"]

RULES = {
    "visible first": "waiters are called after the tasks are visible",
    "counted first": "a waiter is counted before it searches",
    "join first": "a waiter joins the sleepers before it checks for a call",
    "call first": "calls are added before a session is signalled",
    "take a call": "a woken waiter searches only if it takes a call",
    "pass on": "an ended waiter calls another one",
    "recheck": "after a call, one session searches again a second later",
    "recheck once": "and only one session",
    "all called": "one waiter is called per task, if enough wait",
}

# at: the waiter's next step. fresh: whether its search has begun without a
# call.
Waiter = namedtuple("Waiter", "at fresh")
# left: tasks that a producer is about to make ready
Producer = namedtuple("Producer", "at left")
State = namedtuple("State", "tasks waiters calls recheck sleepers woken announced most"
                   " gone waiting producing")

ASLEEP, COMES, ENDS, GONE = "asleep", "comes", "ends", "gone"

# The states of waiters, and how many tasks each producer makes ready.  A waiter
# is asleep or arriving at first.  A sleeping waiter may be ended, or its client
# may leave.
SCENARIOS = {
    "one of three": ((ASLEEP, ASLEEP, ASLEEP), (1,)),
    "two of three": ((ASLEEP, ASLEEP, ASLEEP), (2,)),
    "more than wait": ((ASLEEP, ASLEEP), (3,)),
    "two producers": ((ASLEEP, ASLEEP, ASLEEP), (1, 1)),
    "one comes": ((COMES,), (1,)),
    "two come": ((COMES, COMES), (1, 1)),
    "one arrives while others wait": ((ASLEEP, ASLEEP, COMES), (1, 1)),
    "one is ended": ((ENDS, ASLEEP), (1,)),
    "ended and come": ((ENDS, COMES, ASLEEP), (1,)),
    "clients are gone": ((GONE, GONE, ASLEEP), (1,)),
    "gone among others": ((GONE, ASLEEP, ASLEEP), (1, 1)),
}


class Model(Explorer):
    """A scenario, with some of the rules."""

    def __init__(self, scenario, rules):
        self.kinds, producers = SCENARIOS[scenario]
        self.rules = rules
        asleep = tuple(n for n, kind in enumerate(self.kinds) if kind != COMES)
        self.start = State(
            0, len(asleep), 0, False, asleep, (), 0, 0, 0,
            tuple(Waiter("come" if kind == COMES else "sleep", kind == COMES)
                  for kind in self.kinds),
            tuple(Producer("show" if "visible first" in rules else "call", n)
                  for n in producers))

    def steps(self, state):
        for n in range(len(state.waiting)):
            for name, after in self.waiter(state, n):
                yield f"{name}: waiter {n}", after
        for n in range(len(state.producing)):
            for name, after in self.producer(state, n):
                yield f"{name}: producer {n}", after

    # the steps of producers

    def producer(self, state, n):
        at, left = state.producing[n]
        shown = state._replace(tasks=state.tasks + left,
                               most=state.most + left)
        if at == "show":
            yield at, self.go_on(shown, n, "call", left)
        elif at == "call":
            if "call first" in self.rules:
                yield at, self.go_on(self.called(state, left), n, "signal",
                                     left)
            else:
                yield at, self.go_on(state, n, "signal", left)
        elif at == "signal":
            after = state
            for _ in range(left):
                after = self.signalled(after)
            then = "done" if "visible first" in self.rules else "late show"
            then = then if "call first" in self.rules else "late call"
            yield at, self.go_on(after, n, then, left)
        elif at == "late call":
            yield at, self.go_on(self.called(state, left), n, "done", 0)
        elif at == "late show":
            yield at, self.go_on(shown, n, "done", 0)

    def go_on(self, state, n, at, left):
        producing = list(state.producing)
        producing[n] = Producer(at, 0 if at == "done" else left)
        return state._replace(producing=tuple(producing))

    def called(self, state, n):
        if "all called" not in self.rules:
            n = min(n, 1)
        recheck = state.recheck or (state.waiters > 0
                                    and "recheck" in self.rules)
        return state._replace(
            calls=max(state.calls, min(state.calls + n, state.waiters)),
            recheck=recheck)

    def signalled(self, state):
        if not state.sleepers:
            return state
        first, *others = state.sleepers
        return state._replace(sleepers=tuple(others),
                              woken=tuple(sorted((*state.woken, first))))

    # the steps of waiters

    def waiter(self, state, n):
        at, fresh = state.waiting[n]
        kind = self.kinds[n]
        if at == "come":
            first = "counted first" in self.rules
            yield at, self.at(state._replace(waiters=state.waiters + first), n,
                              "look", True)
        elif at == "look":
            yield from self.look(state, n, fresh)
        elif at == "count":
            yield at, self.at(state._replace(waiters=state.waiters + 1), n,
                              "join")
        elif at == "join":
            joined = state._replace(sleepers=(*state.sleepers, n))
            if "join first" in self.rules:
                yield at, self.at(joined, n, "check")
            else:
                yield at, self.at(joined, n, "sleep")
        elif at == "check":
            if state.calls > 0:
                yield "take", self.at(self.leave(self.taken(state), n), n,
                                      "look")
            elif "join first" in self.rules:
                yield at, self.at(state, n, "sleep")
            else:
                yield at, self.at(state, n, "join")
        elif at == "sleep":
            yield from self.sleep(state, n)
        elif at == "pop":
            yield at, self.at(state._replace(tasks=max(state.tasks - 1, 0)), n,
                              "out")
            if kind == GONE:
                yield "gone", self.at(state._replace(gone=state.gone + 1), n,
                                      "out")
        if kind == ENDS and at in ("look", "join", "check", "sleep"):
            yield "end", self.ended(state, n)

    def look(self, state, n, fresh):
        if state.tasks == 0:
            then = "join" if "join first" in self.rules else "check"
            if fresh and "counted first" not in self.rules:
                then = "count"
            yield "look", self.at(state, n, then)
            return
        counted = not fresh or "counted first" in self.rules
        yield "announced", self.at(state._replace(
            announced=state.announced + 1, most=state.most + fresh,
            waiters=state.waiters - counted,
            recheck="recheck" in self.rules), n, "pop")

    def sleep(self, state, n):
        if n in state.woken:
            woken = tuple(other for other in state.woken if other != n)
            awake = state._replace(woken=woken)
            if state.calls > 0:
                yield "take", self.at(self.taken(awake), n, "look")
            else:
                then = "join" if "join first" in self.rules else "check"
                yield "wake", self.at(awake, n, then)
        elif state.recheck:
            yield "later", self.at(self.leave(state._replace(
                recheck="recheck once" not in self.rules), n), n, "look",
                "recheck once" in self.rules)
        elif "take a call" not in self.rules:
            yield "later", self.at(self.leave(state, n), n, "look")

    def taken(self, state):
        return state._replace(calls=state.calls - 1)

    def leave(self, state, n):
        """Removes the session from the list of sleepers. If it was signalled,
        the signal goes to the next session."""
        if n in state.sleepers:
            return state._replace(sleepers=tuple(
                other for other in state.sleepers if other != n))
        if n in state.woken:
            return self.signalled(state._replace(woken=tuple(
                other for other in state.woken if other != n)))
        return state

    def ended(self, state, n):
        state = self.leave(state, n)._replace(waiters=state.waiters - 1,
                                              most=state.most + 1)
        if "pass on" in self.rules:
            state = self.signalled(self.called(state, 1))
        return self.at(state, n, "out")

    def at(self, state, n, at, fresh=False):
        waiting = list(state.waiting)
        waiting[n] = Waiter(at, fresh)
        return state._replace(waiting=tuple(waiting))

    # the promises

    def check(self, state):
        if state.announced > state.most:
            raise Fault(f"crowd: {state.announced} were called")
        if state.tasks == 0 or all(
                at != "sleep" for at, _ in state.waiting):
            return
        names = [name for name, _ in self.steps(state)]
        if any(not name.startswith(("later", "end")) for name in names):
            return
        if not any(name.startswith("later") for name in names):
            raise Fault("lost: no session will search")
        if state.gone == 0:
            raise Fault("late: no session searches within a second")
