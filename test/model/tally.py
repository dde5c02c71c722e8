"""The tally: how many tasks there are, by commits and one count (src/tally.c).

A queue has a few tasks in two kinds, ready and running.  Transactions change
them, and note by how much; a commit adds that to the queue's numbers.  A count
reads all rows as of a snapshot, row by row.  Promised is

wrong           when no transaction is between the moment at which its commit
                is visible and its end, known numbers are those of the rows.
unknown         when all is quiet, and nothing was changed by SQL since it
                began, the last count has made the numbers known.

A step is what happens at once for all others.  Rows have versions: (made by,
kind, ended by), where 0 stands for what was there before.
"""

from collections import namedtuple

from states import Explorer, Fault

__all__ = ["Model", "RULES", "SCENARIOS"]

RULES = {
    "one section": "the numbers begin at 0 as the snapshot is taken, in one "
                   "section",
    "one decision": "to look at the snapshot and to add is one section, too",
    "visible first": "a commit adds after it is visible, not before",
    "seen adds nothing": "what the snapshot has seen is not added",
    "running adds": "what it has seen running is",
    "later adds": "and so is what had no xid then",
    "stays": "the snapshot stays when the count is over",
    "from zero": "a new count begins at 0",
    "found is added": "what was found is added to what commits have",
    "one at a time": "no count begins while one goes on",
    "known last": "numbers are known when the count is over, not before",
    "aborts add nothing": "what is rolled back is not added",
    "resets first": "resets are read before the snapshot is taken",
    "resets void": "numbers are not known after another reset",
    "no xid": "a transaction that has written does not count",
    "still none": "unless there is no row, also once its snapshot is taken",
    "own runs": "and then its own xid is kept as one that runs",
}

READY, RUNNING = "ready", "running"
KINDS = (READY, RUNNING)

# transaction: xid, 0: none yet; what is noted; snapshot: xmax, running
Session = namedtuple("Session", "at xid noted number snapshot rows resets")
BEGUN = Session(0, 0, (0, 0), 0, None, (0, 0), 0)
# ended: the xids that have ended, visibly; aborted: those of them that did so
State = namedtuple("State", "next ended aborted versions resets number counting"
                   " xmax running numbers of_number known sessions")

ENQUEUE = [("enqueue",), ("end", ("commit", "abort")), ("tell",)]
POP = [("pop",), ("end", ("commit", "abort")), ("tell",)]
BOTH = [("enqueue",), ("pop",), ("end", ("commit", "abort")), ("tell",)]
SQL = [("delete",), ("end", ("commit", "abort")), ("reset",)]
COUNT = [("begin",), ("read",), ("publish",), ("over",)]
# by a transaction that has an xid: a look whether there is any row comes first
COUNT_NONE = [("number",), ("ask",)] + COUNT
OTHER = [("number",), ("end", ("commit", "abort")), ("tell",)]

# tasks that are ready at the beginning, and the scripts of sessions
SCENARIOS = {
    "an enqueue": (1, [ENQUEUE, COUNT]),
    "a pop": (1, [POP, COUNT]),
    "two transactions": (1, [BOTH, POP, COUNT]),
    "one after the other": (1, [ENQUEUE + POP, COUNT]),
    "two counts": (1, [POP, COUNT, COUNT]),
    "counted again": (0, [ENQUEUE, COUNT + COUNT]),
    "changed by SQL": (1, [SQL, COUNT]),
    "counted by one that has written": (0, [[("enqueue",)] + COUNT + [
        ("end", ("commit",)), ("tell",)]]),
    "nothing is counted": (0, [COUNT_NONE + ENQUEUE, ENQUEUE]),
    "beside another table": (0, [COUNT_NONE + ENQUEUE, OTHER]),
}


class Model(Explorer):
    """A scenario, with some of the rules."""

    def __init__(self, scenario, rules):
        ready, scripts = SCENARIOS[scenario]
        self.rules = rules
        self.scripts = [self.script(script) for script in scripts]
        self.start = State(1, (), (), ((0, READY, None),) * ready, 0, 0, False,
                           1, (), (0, 0), 0, None, (BEGUN,) * len(scripts))

    def script(self, script):
        script = list(script)
        if "one section" not in self.rules:
            at = [i for i, step in enumerate(script) if step == ("begin",)]
            for i in reversed(at):
                script[i + 1:i + 1] = [("take",)]
        if "one decision" not in self.rules:
            at = [i for i, step in enumerate(script) if step == ("tell",)]
            for i in reversed(at):
                script[i:i + 1] = [("decide",), ("add",)]
        if "visible first" not in self.rules:
            for i in range(len(script) - 1):
                if script[i][0] == "end" and script[i + 1] == ("tell",):
                    script[i:i + 2] = [("tell",), ("end", ("commit",))]
        return script

    def steps(self, state):
        for number, session in enumerate(state.sessions):
            script = self.scripts[number]
            self.turn = number
            if session.at == len(script):
                continue
            name, *args = script[session.at]
            for fate in args[0] if args else ("",):
                after = getattr(self, name)(state, session, fate)
                if after is None:
                    continue
                shared, own, *goto = after
                at = goto[0] if goto else session.at + 1
                sessions = list(state.sessions)
                sessions[number] = own._replace(at=at)
                yield (f"{number + 1} {fate or name}",
                       shared._replace(sessions=tuple(sessions)))

    # what transactions do

    def with_xid(self, state, session):
        if session.xid:
            return state, session
        return (state._replace(next=state.next + 1),
                session._replace(xid=state.next))

    def is_there(self, state, version, xid):
        """Is that the version of a row that a transaction can change?"""
        made, _, ended = version
        return (made in (0, xid) or made in state.ended
                and made not in state.aborted) and (
                    ended is None or ended in state.aborted)

    def change(self, state, session, to):
        state, session = self.with_xid(state, session)
        versions, noted = list(state.versions), list(session.noted)
        for i, version in enumerate(versions):
            if version[1] == READY and self.is_there(state, version,
                                                     session.xid):
                versions[i] = (*version[:2], session.xid)
                noted[0] -= 1
                if to:
                    versions.append((session.xid, to, None))
                    noted[KINDS.index(to)] += 1
                break
        return (state._replace(versions=tuple(versions)),
                session._replace(noted=tuple(noted)))

    def number(self, state, session, _):
        return self.with_xid(state, session)

    def enqueue(self, state, session, _):
        state, session = self.with_xid(state, session)
        ready, running = session.noted
        return (state._replace(
            versions=(*state.versions, (session.xid, READY, None))),
                session._replace(noted=(ready + 1, running)))

    def pop(self, state, session, _):
        return self.change(state, session, RUNNING)

    def delete(self, state, session, _):
        state, session = self.change(state, session, None)
        return state, session._replace(noted=(0, 0))

    def end(self, state, session, fate):
        aborted = state.aborted
        noted = session.noted
        if fate == "abort":
            aborted = (*aborted, session.xid)
            if "aborts add nothing" in self.rules:
                noted = (0, 0)
        return (state._replace(ended=(*state.ended, session.xid),
                               aborted=aborted),
                session._replace(noted=noted))

    def reset(self, state, session, _):
        return (state._replace(resets=state.resets + 1),
                session._replace(xid=0))

    def is_added(self, state, session):
        if "stays" not in self.rules and not state.counting:
            return True
        if session.xid >= state.xmax:
            return "later adds" in self.rules
        if session.xid in state.running:
            return "running adds" in self.rules
        return "seen adds nothing" not in self.rules

    def added(self, state, what):
        numbers = state.numbers
        if state.of_number != state.number and "from zero" in self.rules:
            numbers = (0, 0)
        return state._replace(of_number=state.number, numbers=tuple(
            a + b for a, b in zip(numbers, what)))

    def decide(self, state, session, _):
        if not self.is_added(state, session):
            session = session._replace(noted=(0, 0))
        return state, session

    def add(self, state, session, _):
        if session.noted != (0, 0):
            state = self.added(state, session.noted)
        return state, session._replace(xid=0, noted=(0, 0))

    def tell(self, state, session, _):
        xid = session.xid if "visible first" not in self.rules else 0
        state, session = self.add(*self.decide(state, session, _), _)
        return state, session._replace(xid=xid)

    # what a count does

    def after_count(self, session):
        return self.scripts[self.turn].index(("over",), session.at) + 1

    def is_for_none(self):
        return ("ask",) in self.scripts[self.turn]

    def ask(self, state, session, _):
        if state.versions:
            return state, session, self.after_count(session)
        return state, session

    def begin(self, state, session, _):
        if "one at a time" in self.rules and state.counting or (
                "no xid" in self.rules and session.xid
                and not self.is_for_none()):
            return state, session, self.after_count(session)
        state = state._replace(number=state.number + 1, counting=True,
                               known=state.resets
                               if "known last" not in self.rules else None)
        session = session._replace(number=state.number, rows=(0, 0),
                                   resets=state.resets)
        if "one section" not in self.rules:
            return state, session
        return self.take(state, session, _)

    def take(self, state, session, _):
        xmax = max((0, *state.ended)) + 1
        running = tuple(xid for xid in range(1, xmax) if xid not in state.ended)
        if session.xid in running and "own runs" not in self.rules:
            # PostgreSQL leaves one's own out of the list
            running = tuple(xid for xid in running if xid != session.xid)
        return (state._replace(xmax=xmax, running=running),
                session._replace(snapshot=(xmax, running)))

    def sees(self, state, session, xid):
        """Has the session's snapshot seen that transaction commit?"""
        xmax, running = session.snapshot
        return xid == 0 or xid == session.xid or (
            xid < xmax and xid not in running and xid not in state.aborted)

    def read(self, state, session, _):
        rows = [0, 0]
        if self.is_for_none() and state.versions and (
                "still none" in self.rules):
            return (state._replace(counting=False),
                    session._replace(snapshot=None),
                    self.after_count(session))
        for made, kind, ended in () if self.is_for_none() else state.versions:
            if self.sees(state, session, made) and not (
                    ended is not None and self.sees(state, session, ended)):
                rows[KINDS.index(kind)] += 1
        if "resets first" not in self.rules:
            session = session._replace(resets=state.resets)
        return state, session._replace(rows=tuple(rows))

    def publish(self, state, session, _):
        if "found is added" not in self.rules:
            return state._replace(numbers=session.rows,
                                  of_number=state.number), session
        return self.added(state, session.rows), session

    def over(self, state, session, _):
        return (state._replace(counting=False, known=session.resets),
                session._replace(snapshot=None))

    # what is promised

    def rows(self, state):
        rows = [0, 0]
        for made, kind, ended in state.versions:
            gone = (*state.aborted,)
            if (made == 0 or made in state.ended and made not in gone) and (
                    ended is None or ended not in state.ended
                    or ended in gone):
                rows[KINDS.index(kind)] += 1
        return tuple(rows)

    def check(self, state):
        if any(session.xid in state.ended for session in state.sessions
               if session.xid):
            return
        known = state.known is not None and (
            state.known == state.resets or "resets void" not in self.rules)
        numbers = state.numbers if state.of_number == state.number else (0, 0)
        if known and numbers != self.rows(state):
            raise Fault(f"wrong: {numbers} instead of {self.rows(state)}")
        # one for no rows that finds some comes to nothing
        if any(("ask",) in script for script in self.scripts):
            return
        if (not known and state.resets == 0 and state.number > 0
                and all(session.at == len(self.scripts[i])
                        for i, session in enumerate(state.sessions))):
            raise Fault("unknown: when all is quiet")
