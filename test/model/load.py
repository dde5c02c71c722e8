"""The load: one pass over the table, which finds the numbers of tasks and of
running tasks.  Commits then maintain them.

A queue has one group, and a few tasks that are ready or running
(src/serve/load.c, counter.c, running.c).  Commits maintain its numbers of
tasks.  The group's counter has two numbers.  "committed" has the running tasks
according to commits.  "open" has the slots of transactions whose ends are not
published here.  A load reads all rows of a snapshot, row by row, and adds the
numbers that it has found.  There are two books of numbers: one for the last
load that is over, and one for the load in progress.  A load's number is even in
book 0, and odd in book 1.  The rules make these promises

strict          when a task is claimed with a slot, or continues to run with
                another worker, the limit is not exceeded.  A task runs
                from its claim until its end is visible.
too little      a known counter is at least the true number.
wrong           Assume that no transaction is between the moment at which its commit
                is visible and its end here.  Then known numbers of tasks are those
                of the rows, and a known counter is exact.
unknown         Assume that all transactions are over, no load was cancelled, and
                SQL has changed no row since the last load began.  Then the numbers
                are known.  The counter is also known, if the load began with a
                limit and without a transaction that does not count.
lost            known numbers remain known until SQL changes rows, even while
                another load runs, or when that load fails.

A step is atomic for all other sessions.  A transaction is an xid, and has at most
one savepoint.  A row's versions are (task, made by, kind, ended by).  0 means that
the version was made or ended before the start, and None that it has not ended.
"""

from collections import namedtuple

from states import Explorer, Fault

__all__ = ["Model", "RULES", "SCENARIOS"]

RULES = {
    # the load and the ends of transactions
    "one section": "numbers begin at 0 in the same section that takes the snapshot",
    "one decision": "the check of the snapshot and the addition are one section",
    "visible first": "a commit adds after it is visible, not before",
    "seen adds nothing": "tasks that the snapshot sees are not added",
    "running adds": "tasks that the snapshot sees running are added",
    "later adds": "changes that had no xid at the snapshot are added",
    "stays": "the snapshot stays when the load is over",
    "from zero": "a new load begins at 0",
    "found is added": "the found numbers are added to those of commits",
    "own number": "the found numbers are added only if no other load has begun",
    "known last": "numbers are known when the load is over, not before",
    "known stays": "numbers of the last load stay known during another load",
    "other book": "a load takes the book that the last finished load does not use",
    "both books": "commits add to both books",
    "own snapshot": "each addition uses the snapshot of that book's load",
    "current first": "a load is the current one before its resets are known",
    "looks in order": "a reader reads the resets first, then the current load",
    "aborts add nothing": "rolled back changes are not added",
    "undo": "changes that are rolled back to a savepoint are not added",
    "resets first": "resets are read before the snapshot is taken",
    "resets void": "numbers are not known after another reset",
    "own runs": "the load counts its own xid as running",
    "own hidden": "the load sees its own transaction's changes as others do",
    # the counter
    "enter in mutex": "the limit is checked and the slot taken in one section",
    "enter first": "a slot is taken before the claim",
    "open until published": "the slot is open until the end is visible",
    "together": "closing the slot and adding the claim is one section",
    "back": "an unused slot is given back",
    "undo back": "a slot is given back after a rollback to its savepoint",
    "open stays": "no load touches open slots",
    "end at commit": "a task that ends counts until its end is committed",
    "moves on": "a transaction that adds nothing also records the loads in the counter",
    "same number": "no slot is taken by the numbers of another load",
    "within": "an expired task continues if the limit is not exceeded",
    "idle": "a counter is freed only if it is 0 in the last load's book",
    "idle in both": "a counter is freed only if it is 0 in both books",
    "not open": "a counter is freed only if it has no open slots",
    # the first limit
    "limited": "a call that sees a limit counts, and so do all later calls",
    "limited again": "a call that will not count announces that, then checks again",
    "until the end": "a call that does not count lasts until its transaction ends",
    "not limited": "a call that has found no limit lasts until its transaction ends",
    "calls": "a load that begins during such calls does not count",
}

READY, RUNNING = "ready", "running"
KINDS = (READY, RUNNING)
EACH = -1                       # a value of counts_since: no load counts so far

# sub: the savepoint's number, or 0. number: that of the load that was read.
# known: first the resets at which its numbers were known, then whether they
# still are. mine, snapshot, resets: number, snapshot and resets of the
# session's own load. noted: changes of tasks (ready, running), of the counter,
# and slots. below: the changes outside the savepoint. slot: whether a slot is
# taken for the next claim. call: None, "counts" or "not". limit: the limit that
# the session has read, which may be old by now. kept: whether the session is
# registered as one that does not count. decided: the books to which the commit
# adds.
NOTHING = (0, 0, 0, 0)
Session = namedtuple("Session", "at xid sub number known mine snapshot rows"
                     " resets noted below slot call limit kept pins seen decided")
BEGUN = Session(0, 0, 0, 0, False, 0, None, (0, 0), 0, NOTHING, NOTHING,
                False, None, None, False, False, None, None)
# ended: the xids whose ends are visible. aborted: the xids, and savepoints
# (xid, number), that were rolled back. number: the number of the load that was
# begun last.  current: the number of the last load that is over.  snapshots:
# (number, xmax, running) of each book.  numbers: (number, (ready, running)) of
# each book.  known, over: resets with which numbers are known, or should be.
# counter: (number, committed) of each book, and open.
State = namedtuple("State", "next ended aborted versions resets number counting"
                   " current snapshots numbers known over counter limit limited"
                   " calls counts_since cancelled changed blind sessions")

BOOKS = (0, 1)
NEW = (((0, 0), (0, 0)), 0)
FIRST = 3                       # the first load's number


def with_book(books, book, value):
    return tuple(value if b == book else books[b] for b in BOOKS)


COMMIT, ABORT, END = (("commit",), ("abort",), ("commit", "abort"))


def ended(*calls, by=END):
    return [step for call in calls for step in call] + [("end", by), ("tell",)]


OLD = [("old",)]
LOOK = [("look",), ("look_again",)]
POP = [("begin",), *LOOK, ("pin",), ("enter",), ("claim",), ("done",)]
COMPLETE = [("begin",), ("finish",), ("done",)]
TAKE_OVER = [("begin",), *LOOK, ("pin",), ("go_on",), ("done",)]
SAVE, UNDO, RELEASE = [("save",)], [("undo",)], [("release",)]
ENQUEUE = [("enqueue",)]
SQL = [("sql",), ("end", END), ("reset",)]
LOAD = [("load",), ("read",), ("publish",), ("over",), ("resets",)]
CANCELLED = [("load",), ("read",), ("cancel",)]
OTHER = [("xid",)]
FREE = [("free",)]


def limited(limit):
    return [("settings", (limit,))]


# The ready tasks, the running tasks, and the limit, which is None if there was
# no limit so far. Then whether a load has ended (None if not, and no call has
# seen the limit), and the scripts of sessions.
SCENARIOS = {
    "an enqueue": (1, 0, None, 0, [ended(ENQUEUE), LOAD]),
    "two enqueue": (1, 0, None, 0, [ended(ENQUEUE), ended(ENQUEUE), LOAD]),
    "a pop": (1, 0, 1, 0, [ended(POP), LOAD]),
    "two pops": (2, 0, 1, 1, [ended(POP), ended(POP)]),
    "two pops during a load": (2, 0, 1, 1, [ended(POP), ended(POP), LOAD]),
    "pop, then pop": (2, 0, 1, 1, [ended(POP) + ended(POP), LOAD]),
    "a pop and a complete": (
        1, 1, 1, 1, [ended(COMPLETE), ended(POP), LOAD]),
    "a pop and a complete, not loaded": (
        1, 1, 1, 0, [ended(COMPLETE), LOAD, ended(POP)]),
    "pop and complete in one": (
        2, 0, 1, 1, [ended(POP, COMPLETE), ended(POP), LOAD]),
    "complete and pop in one": (
        1, 1, 1, 1, [ended(COMPLETE, POP), ended(POP, by=COMMIT), LOAD]),
    "nothing to pop": (0, 0, 1, 1, [ended(POP), LOAD]),
    "rolled back to a savepoint": (
        2, 0, 2, 1, [ended(POP, SAVE, POP, UNDO), LOAD]),
    "an end that is rolled back": (
        1, 1, 1, 1, [ended(SAVE, COMPLETE, UNDO), ended(POP), LOAD]),
    "a savepoint released": (
        2, 0, 1, 1, [ended(SAVE, POP, RELEASE), ended(POP), LOAD]),
    "two loads": (1, 0, 1, 0, [ended(POP), LOAD, LOAD]),
    "loaded again": (2, 0, 1, 0, [ended(POP), LOAD + LOAD]),
    "loaded again during two": (
        2, 0, 1, 1, [ended(POP, by=COMMIT), ended(POP, by=COMMIT), LOAD]),
    "loaded twice during two": (
        2, 0, 1, 1, [ended(POP, by=COMMIT), ended(POP, by=COMMIT),
                     LOAD + LOAD]),
    "cancelled": (1, 0, 1, 0, [ended(POP), CANCELLED + LOAD]),
    "cancelled, for good": (1, 1, 1, 1, [ended(POP), CANCELLED]),
    "cancelled twice": (1, 1, 1, 1, [ended(COMPLETE), CANCELLED + CANCELLED]),
    "cancelled during another": (
        1, 1, 1, 1, [ended(COMPLETE), CANCELLED, LOAD]),
    "changed by SQL": (1, 0, 1, 0, [SQL, LOAD, ended(POP)]),
    "changed by SQL during a pop": (1, 1, 1, 1, [SQL, ended(POP), LOAD]),
    "changed by SQL and loaded again": (2, 0, 2, 1, [SQL, LOAD, ended(POP)]),
    "loaded by one that has popped": (
        2, 0, 1, 0, [ended(POP, LOAD), ended(POP)]),
    "loaded by one that has enqueued": (
        0, 0, 1, 0, [ended(ENQUEUE, LOAD), ended(OTHER)]),
    "loaded by one that has completed": (
        1, 1, 1, 0, [ended(COMPLETE, LOAD), ended(POP)]),
    "loads, then pops": (
        2, 0, 1, 0, [ended(OTHER, LOAD, POP), ended(POP), ended(OTHER)]),
    "expired": (0, 1, 1, 1, [ended(TAKE_OVER), LOAD]),
    "expired during a pop": (
        1, 1, 1, 1, [ended(TAKE_OVER), ended(POP), ended(COMPLETE)]),
    "expired, and a lower limit": (
        0, 2, 2, 1, [limited(1) + ended(TAKE_OVER), ended(COMPLETE), LOAD]),
    "freed": (1, 1, 1, 1, [ended(COMPLETE), FREE, ended(POP)]),
    "freed in a load": (
        2, 0, 1, 1, [ended(POP, by=COMMIT), ended(POP), LOAD + FREE]),
    "freed during a load": (
        1, 1, 1, 1, [ended(POP), LOAD, FREE]),
    "freed while a task ends": (0, 1, 1, 1, [ended(COMPLETE), LOAD, FREE]),
    "freed during two loads": (
        2, 0, 1, 1, [ended(POP), LOAD + LOAD, FREE, ended(POP, by=COMMIT)]),
    "freed during an open pop": (2, 0, 1, 1, [ended(POP), FREE, ended(POP)]),
    "after a restart": (1, 1, 1, None, [LOAD + LOAD, ended(POP)]),
    "a first limit": (
        2, 0, None, 0, [ended(POP), limited(1) + LOAD, ended(POP)]),
    "a first limit, known": (
        2, 0, None, 1, [ended(POP), limited(1) + POP[:1] + LOAD, ended(POP)]),
    "a first limit during a complete": (
        1, 1, None, 0, [ended(COMPLETE), limited(1) + LOAD, ended(POP)]),
    "a first limit of one's own": (
        2, 0, None, 0, [ended(POP, limited(1), LOAD, POP), ended(POP)]),
    "a first limit and old settings": (
        2, 0, None, 0, [ended(OLD + POP, by=COMMIT),
                        limited(1) + ended(POP[:1]) + LOAD,
                        ended(POP, by=COMMIT)]),
    "a first limit and a savepoint": (
        2, 0, None, 0, [ended(SAVE, POP, UNDO), limited(1) + LOAD,
                        ended(POP)]),
}


class Model(Explorer):
    """A scenario, with some of the rules."""

    def __init__(self, scenario, rules):
        ready, running, limit, loaded, scripts = SCENARIOS[scenario]
        self.rules = rules
        self.scripts = [self.script(script) for script in scripts]
        self.cancels = any(("cancel",) in script for script in self.scripts)
        versions = tuple((task, 0, RUNNING if task < running else READY, None)
                         for task in range(running + ready))
        limited_now = limit is not None and loaded is not None
        number = FIRST if loaded else 0
        numbers = (0, (0, 0)), (number, (ready, running) if loaded else (0, 0))
        counter = (0, 0), (number, running if loaded and limited_now else 0)
        self.start = State(
            1, (), (), versions, 0, number, False, number,
            ((0, 1, ()), (number, 1, ())), numbers, 0 if loaded else None,
            0 if loaded else None, (counter, 0), limit, limited_now, 0,
            0 if limit else EACH, False, False, 0, (BEGUN,) * len(scripts))

    def script(self, script):
        script = list(script)

        def instead(step, *steps):
            for i in reversed([i for i, s in enumerate(script) if s == step]):
                script[i:i + 1] = steps

        if "one section" not in self.rules:
            instead(("load",), ("load",), ("take",))
        if "current first" not in self.rules:
            for i in range(len(script) - 1):
                if script[i:i + 2] == [("over",), ("resets",)]:
                    script[i:i + 2] = [("resets",), ("over",)]
        if "visible first" not in self.rules:
            for i in range(len(script) - 1):
                if script[i][0] == "end" and script[i + 1] == ("tell",):
                    script[i:i + 2] = [("tell",), ("end", COMMIT)]
        if "one decision" not in self.rules:
            instead(("tell",), ("decide",), ("tell",))
        if "open until published" not in self.rules:
            for i in reversed([i for i, s in enumerate(script)
                               if s[0] == "end"]):
                script.insert(i, ("close",))
        if "together" not in self.rules:
            instead(("tell",), ("close",), ("tell",))
        if "enter first" not in self.rules:
            for i in range(len(script) - 1):
                if script[i:i + 2] == [("enter",), ("claim",)]:
                    script[i:i + 2] = [("claim",), ("enter",)]
        if "enter in mutex" not in self.rules:
            instead(("enter",), ("ask",), ("enter",))
        return script

    def steps(self, state):
        for number, session in enumerate(state.sessions):
            script = self.scripts[number]
            if session.at == len(script):
                continue
            name, *args = script[session.at]
            self.turn = number
            for fate in args[0] if args else ("",):
                after = getattr(self, name)(state, session, fate)
                if after is None:
                    continue
                shared, own, *goto = after
                at = goto[0] if goto else session.at + 1
                sessions = list(state.sessions)
                sessions[number] = own._replace(at=at)
                yield (f"{number + 1} {name} {fate}",
                       shared._replace(sessions=tuple(sessions)))

    def after(self, session, *names):
        script = self.scripts[self.turn]
        return next(i for i in range(session.at, len(script))
                    if script[i][0] in names) + 1

    # rows

    def gone(self, state, by):
        """Whether the transaction or the savepoint was rolled back."""
        return by in state.aborted or by and by[0] in state.aborted

    def committed(self, state, by):
        return by == 0 or by is not None and (
            by[0] in state.ended and not self.gone(state, by))

    def is_open(self, state, by):
        return by not in (0, None) and by[0] not in state.ended and (
            not self.gone(state, by))

    def usable(self, state, xid):
        """Indexes of the versions that a transaction can change."""
        for i, (_, made, _, end) in enumerate(state.versions):
            if (self.committed(state, made) or self.is_open(state, made)
                    and made[0] == xid) and (
                        end is None or self.gone(state, end)):
                yield i

    def with_xid(self, state, session):
        if session.xid:
            return state, session
        return (state._replace(next=state.next + 1),
                session._replace(xid=state.next))

    def change(self, state, session, kind, to):
        """Gives a task of that kind another version.  Returns None if there is
        no such task."""
        xid = session.xid or state.next
        at = next((i for i in self.usable(state, xid)
                   if state.versions[i][2] == kind), None)
        if at is None:
            return None
        state, session = self.with_xid(state, session)
        by = (session.xid, session.sub)
        versions = list(state.versions)
        versions[at] = (*versions[at][:3], by)
        if to:
            versions.append((versions[at][0], by, to, None))
        return state._replace(versions=tuple(versions)), session

    def note(self, session, ready=0, running=0, counted=0, slots=0):
        return session._replace(noted=tuple(
            a + b for a, b in zip(session.noted,
                                  (ready, running, counted, slots))))

    def xid(self, state, session, _):
        return self.with_xid(state, session)

    def enqueue(self, state, session, _):
        state, session = self.with_xid(state, session)
        by = (session.xid, session.sub)
        return (state._replace(versions=(
            *state.versions, (10 + session.xid, by, READY, None))),
            self.note(session, ready=1))

    def sql(self, state, session, _):
        """Another session makes a running task ready, or makes a ready task
        run."""
        changed = (self.change(state, session, READY, RUNNING)
                   or self.change(state, session, RUNNING, READY))
        if changed is None:
            # the session waits for the row
            return None
        state, session = changed
        return state._replace(blind=state.blind + 1), session

    def reset(self, state, session, _):
        return (state._replace(resets=state.resets + 1, changed=True,
                               blind=state.blind - 1),
                session._replace(xid=0))

    # calls

    def old(self, state, session, _):
        """Read the present settings."""
        return state, session._replace(limit=state.limit or 0)

    def begin(self, state, session, _):
        if session.call is None:
            limit = state.limit if session.limit is None else session.limit
            if limit and "limited" in self.rules:
                state = state._replace(limited=True)
            if limit or state.limited:
                return self.counting(state), session._replace(call="counts")
            if session.kept:
                return state, session._replace(call="not")
            if "limited again" not in self.rules:
                return state, session._replace(call="late"), session.at
            state = state._replace(calls=state.calls + 1, counts_since=EACH)
            return state, session._replace(call="again"), session.at
        if session.call == "late":
            state = state._replace(calls=state.calls + 1, counts_since=EACH)
        elif state.limited:
            state = self.counting(state._replace(calls=state.calls - 1))
            return state, session._replace(call="counts")
        return state, session._replace(call="not")

    def counting(self, state):
        """Records that all transactions count running tasks from now on, unless
        a call that does not count is in progress."""
        if state.counts_since == EACH and (
                state.calls == 0 or "calls" not in self.rules):
            return state._replace(counts_since=state.number)
        return state

    def pin(self, state, session, _):
        if session.call != "counts":
            return state, session
        return state, session._replace(pins=True)

    def is_known(self, state):
        return state.known is not None and (
            state.known == state.resets or "resets void" not in self.rules)

    def counter_is_known(self, state):
        return (self.is_known(state)
                and EACH != state.counts_since < state.current)

    def look(self, state, session, _):
        """Reads the numbers of the known load."""
        if session.call != "counts":
            return state, session
        return self.counting(state), session._replace(number=state.current,
                                                      known=state.known)

    def look_again(self, state, session, _):
        """Checks that the known load is still the one whose numbers were
        read."""
        if session.call != "counts":
            return state, session
        if "looks in order" in self.rules:
            session = session._replace(number=state.current)
            state_then = state._replace(known=session.known)
        else:
            state_then = state._replace(current=session.number)
        known = self.counter_is_known(state_then)
        session = session._replace(known=known)
        found = self.find(state, session) if known else None
        if found is not None:
            self.check_enough(state, self.says(found, session.number))
        return state, session

    def says(self, counter, number):
        books, opened = counter
        return books[number & 1][1] + opened

    def find(self, state, session):
        """The counter's value, in the book of the load that was read."""
        books, opened = state.counter
        book = session.number & 1
        number, committed = books[book]
        if number > session.number and "same number" in self.rules:
            return None
        if number < session.number:
            number, committed = session.number, 0
        return with_book(books, book, (number, committed)), opened

    def ask(self, state, session, _):
        found = self.find(state, session) if session.known else None
        return state, session._replace(
            seen=found is not None
            and self.says(found, session.number) < state.limit)

    def enter(self, state, session, _):
        skip = (self.after(session, "claim")
                if "enter first" in self.rules else session.at + 1)
        if session.call != "counts":
            return state, session
        found = self.find(state, session) if session.known else None
        if found is None:
            return state, session, skip
        books, opened = found
        free = (self.says(found, session.number) < state.limit
                if session.seen is None else session.seen)
        session = session._replace(seen=None)
        if not free:
            return state._replace(counter=found), session, skip
        return (state._replace(counter=(books, opened + 1)),
                session._replace(slot=True))

    def claim(self, state, session, _):
        changed = self.change(state, session, READY, RUNNING)
        if changed is None:
            if session.slot and "back" in self.rules:
                state = self.closed(state, 1)
            return state, session._replace(slot=False)
        state, session = changed
        counts = session.call == "counts"
        session = self.note(session, -1, 1, counts, counts)
        if counts and session.slot:
            self.check_strict(state)
        return state, session._replace(slot=False)

    def finish(self, state, session, _):
        changed = self.change(state, session, RUNNING, None)
        if changed is None:
            return state, session
        state, session = changed
        counts = session.call == "counts"
        if counts and "end at commit" not in self.rules:
            for book in BOOKS:
                state = self.counted(state, book, -1)
            counts = False
        return state, self.note(session, 0, -1, -counts, 0)

    def go_on(self, state, session, _):
        """Another worker takes over an expired task, if the limit permits."""
        if session.call != "counts":
            return state, session
        found = self.find(state, session) if session.known else None
        if "within" in self.rules and (
                found is None
                or self.says(found, session.number) > state.limit):
            return state, session
        changed = self.change(state, session, RUNNING, RUNNING)
        if changed is None:
            return state, session
        self.check_strict(changed[0])
        return changed

    def done(self, state, session, _):
        if session.call == "not" and not session.kept:
            if session.xid and "until the end" in self.rules:
                session = session._replace(kept=True)
            else:
                state = state._replace(calls=state.calls - 1)
        return state, session._replace(call=None, pins=False, known=False,
                                       limit=None)

    def settings(self, state, session, limit):
        return state._replace(limit=limit), session

    def free(self, state, session, _):
        books, opened = state.counter
        looked_at = (BOOKS if "idle in both" in self.rules
                     else (state.current & 1,))
        committed = any(books[book][1] and books[book][0] >= state.current
                        for book in looked_at)
        if (committed and "idle" in self.rules
                or opened and "not open" in self.rules
                or any(other.pins or other.noted[3] or other.below[3]
                       or other.noted[2] or other.below[2]
                       for other in state.sessions) and not (
                           opened and "not open" not in self.rules)):
            return state, session
        return state._replace(counter=NEW), session

    # the ends of transactions

    def save(self, state, session, _):
        state, session = self.with_xid(state, session)
        return state, session._replace(sub=1, below=session.noted,
                                       noted=NOTHING)

    def release(self, state, session, _):
        noted = tuple(a + b for a, b in zip(session.noted, session.below))
        return state, session._replace(sub=0, noted=noted, below=NOTHING)

    def undo(self, state, session, _):
        state = state._replace(
            aborted=(*state.aborted, (session.xid, session.sub)))
        slots = session.noted[3]
        if "undo back" in self.rules:
            state = self.closed(state, slots)
        noted = session.below
        if "undo" not in self.rules:
            noted = tuple(a + b for a, b in zip(session.noted[:3], noted)
                          ) + noted[3:]
        return state, session._replace(sub=0, noted=noted, below=NOTHING)

    def end(self, state, session, fate):
        # an xid is needed, although the transaction may have written nothing
        state, session = self.with_xid(state, session)
        aborted = state.aborted
        noted = session.noted
        if fate == "abort":
            aborted = (*aborted, session.xid)
            if "aborts add nothing" in self.rules:
                noted = (0, 0, 0, noted[3])
            session = session._replace(seen=fate)
        return (state._replace(ended=(*state.ended, session.xid),
                               aborted=aborted),
                session._replace(noted=noted))

    def is_added(self, state, session, book):
        if "stays" not in self.rules and not state.counting:
            return True
        if "own snapshot" not in self.rules:
            book = state.number & 1
        _, xmax, running = state.snapshots[book]
        if session.xid >= xmax:
            return "later adds" in self.rules
        if session.xid in running:
            return "running adds" in self.rules
        return "seen adds nothing" not in self.rules

    def added(self, state, book, what):
        of = state.snapshots[book][0]
        number, numbers = state.numbers[book]
        if number != of and "from zero" in self.rules:
            numbers = (0, 0)
        numbers = tuple(a + b for a, b in zip(numbers, what))
        return state._replace(
            numbers=with_book(state.numbers, book, (of, numbers)))

    def counted(self, state, book, what):
        of = state.snapshots[book][0]
        books, opened = state.counter
        number, committed = books[book]
        if number != of and "from zero" in self.rules:
            committed = 0
        books = with_book(books, book, (of, committed + what))
        return state._replace(counter=(books, opened))

    def closed(self, state, slots):
        books, opened = state.counter
        return state._replace(counter=(books, opened - slots))

    def close(self, state, session, _):
        return (self.closed(state, session.noted[3]),
                session._replace(noted=(*session.noted[:3], 0)))

    def books(self, state):
        """The books to which a commit adds."""
        return BOOKS if "both books" in self.rules else (state.number & 1,)

    def decide(self, state, session, _):
        return state, session._replace(decided=tuple(
            book for book in self.books(state)
            if self.is_added(state, session, book)))

    def tell(self, state, session, _):
        ready, running, counted, slots = session.noted
        for book in self.books(state):
            adds = (self.is_added(state, session, book)
                    if session.decided is None else book in session.decided)
            if adds and (ready or running):
                state = self.added(state, book, (ready, running))
            if adds and counted:
                state = self.counted(state, book, counted)
            elif (counted or slots) and "moves on" in self.rules and (
                    session.seen != "abort"):
                state = self.counted(state, book, 0)
        state = self.closed(state, slots)
        if session.kept:
            state = state._replace(calls=state.calls - 1)
        xid = session.xid if "visible first" not in self.rules else 0
        return state, session._replace(xid=xid, noted=NOTHING, seen=None,
                                       kept=False, decided=None)

    # the load

    def load(self, state, session, _):
        number = state.number // 2 + 1
        book = (1 - (state.current & 1) if "other book" in self.rules
                else number & 1)
        number = 2 * number + book
        snapshot = (number, *state.snapshots[book][1:])
        state = state._replace(
            number=number, counting=True, cancelled=False, changed=False,
            snapshots=with_book(state.snapshots, book, snapshot))
        if "known last" not in self.rules:
            state = state._replace(known=state.resets, current=number)
        if "known stays" not in self.rules:
            state = state._replace(known=None)
        if "open stays" not in self.rules:
            state = state._replace(counter=(state.counter[0], 0))
        session = session._replace(mine=number, rows=(0, 0),
                                   resets=state.resets)
        if "one section" not in self.rules:
            return state, session
        return self.take(state, session, _)

    def take(self, state, session, _):
        xmax = max((0, *state.ended)) + 1
        running = tuple(xid for xid in range(1, xmax)
                        if xid not in state.ended)
        if "own runs" not in self.rules:
            # PostgreSQL leaves the transaction's own xid out of the list
            running = tuple(xid for xid in running if xid != session.xid)
        book = session.mine & 1
        snapshot = (state.snapshots[book][0], xmax, running)
        return (state._replace(snapshots=with_book(state.snapshots, book,
                                                   snapshot)),
                session._replace(snapshot=(xmax, running)))

    def sees(self, state, session, by):
        """Whether the session's snapshot sees the transaction as committed."""
        xmax, running = session.snapshot
        if by == 0 or by is None:
            return by == 0
        if by[0] == session.xid:
            return "own hidden" not in self.rules and (
                not self.gone(state, by))
        return (by[0] < xmax and by[0] not in running
                and not self.gone(state, by))

    def read(self, state, session, _):
        rows = [0, 0]
        for _, made, kind, end in state.versions:
            if self.sees(state, session, made) and not (
                    self.sees(state, session, end)):
                rows[KINDS.index(kind)] += 1
        if "resets first" not in self.rules:
            session = session._replace(resets=state.resets)
        return state, session._replace(rows=tuple(rows))

    def cancel(self, state, session, _):
        if state.number == session.mine:
            state = state._replace(counting=False, cancelled=True)
        return state, session._replace(snapshot=None)

    def publish(self, state, session, _):
        if state.number != session.mine and "own number" in self.rules:
            return state, session, self.after(session, "over", "resets")
        book = session.mine & 1
        counts = EACH != state.counts_since < session.mine
        if "found is added" not in self.rules:
            books, opened = state.counter
            found = with_book(state.numbers, book,
                              (session.mine, session.rows))
            books = with_book(books, book, (session.mine, session.rows[1]))
            return state._replace(numbers=found,
                                  counter=(books, opened)), session
        state = self.added(state, book, session.rows)
        has_limit = state.limited or "limited" not in self.rules
        if counts and (has_limit or "not limited" not in self.rules):
            state = self.counted(state, book,
                                 session.rows[1] if has_limit else 0)
        elif not has_limit:
            state = state._replace(counts_since=EACH)
        return state, session

    def is_mine(self, state, session):
        return state.number == session.mine or "own number" not in self.rules

    def over(self, state, session, _):
        if self.is_mine(state, session):
            state = state._replace(counting=False, current=session.mine)
        return state, session._replace(snapshot=None)

    def resets(self, state, session, _):
        """This step and the previous one are one section, but other sessions
        can read in between.
        """
        if self.is_mine(state, session):
            state = state._replace(known=session.resets, over=session.resets)
        return state, session

    # the promises

    def truth(self, state):
        """The number of running tasks, from the claim until the end is visible."""
        tasks = set()
        for task, made, kind, end in state.versions:
            if kind == RUNNING and not self.gone(state, made) and (
                    not self.committed(state, end) or end is None):
                tasks.add(task)
        return len(tasks)

    def check_enough(self, state, says):
        # fairq learns of changes by SQL only at the reset
        if not state.blind and says < self.truth(state):
            raise Fault(f"too little: {says} instead of {self.truth(state)}")

    def check_strict(self, state):
        if not state.blind and self.truth(state) > state.limit:
            raise Fault(f"strict: {self.truth(state)} running, limited to "
                        f"{state.limit}")

    def rows(self, state):
        rows = [0, 0]
        for _, made, kind, end in state.versions:
            if self.committed(state, made) and (
                    not self.committed(state, end) or end is None):
                rows[KINDS.index(kind)] += 1
        return tuple(rows)

    def check(self, state):
        books, opened = state.counter
        book = state.current & 1
        number, committed = books[book]
        number_of, numbers = state.numbers[book]
        if state.over == state.resets and (
                not self.is_known(state)
                or max(number, number_of) > state.current):
            raise Fault("known numbers are lost")
        if number != state.current:
            committed = 0
        if number_of != state.current:
            numbers = (0, 0)
        says = committed + opened
        if self.counter_is_known(state):
            self.check_enough(state, says)
        if state.blind or any(session.xid in state.ended
                              for session in state.sessions if session.xid):
            return
        if self.is_known(state) and numbers != self.rows(state):
            raise Fault(f"wrong: {numbers} instead of {self.rows(state)}")
        idle = all(not session.slot and session.call is None
                   for session in state.sessions)
        if idle and self.counter_is_known(state) and says != self.truth(state):
            raise Fault(f"wrong: {says} counted instead of "
                        f"{self.truth(state)}")
        self.check_quiet(state)

    def check_quiet(self, state):
        if (state.changed or state.cancelled or state.number == 0 or any(
                session.at < len(self.scripts[i])
                for i, session in enumerate(state.sessions))):
            return
        if not self.is_known(state):
            raise Fault("unknown: the numbers, when all transactions are over")
