"""The hand of one group: its next few ready tasks, which pops know without a
read of the index.

A group has tasks at the addresses 0, 1, 2 ...  The lane's shared memory has
these data of the group:

    bit         the group may have a ready task
    entry       None (never made, or evicted), or
      hand      the first ready tasks: (address, TID of the row), H at most
      upto      each published ready task at an address below upto is in the
                hand, or in flight
      lost      the lowest address of the tasks that were published since the
                reading began, and are not in the hand
      reader    the pop that may add what it reads to the entry; other pops use
                their reading alone
      by_row    the next reading visits rows, not only index entries
    known       the lane has been read since all hints were lost

All of these data are hints, and the rows are the truth.  A step is atomic for
all other backends.  It is a section under the lane's lock, a read of an index
entry, or a claim (tuple lock, verify, update).  The moment at which a
transaction's end becomes visible is also a step.  The callback that publishes
the end is the next step.

A pop takes the first task of the hand, and then claims the row at the TID in
the hand.  If the hand is used up, the pop reads the line from upto on, entry by
entry, and offers the entries to the hand.

The rules make these promises

stranded    Assume that every pop is over, and every transaction has ended and
            was published.  Then a session that pops until no task is left gets
            every ready task, once, in the order of the addresses.
not ready   only ready tasks are claimed.
forever     that session ends.

The model leaves out two parts that only affect costs.  One part is the choice
of the pops that use their reading alone.  The other part removes the reader's
name when the reader ends.
"""

from collections import namedtuple

from states import Explorer, Fault

INFINITE = 99
NOBODY = -1
# The states of a row. A row that is GONE is finished or rolled back, and its
# place can be used again.
ABSENT, INSERTING, READY, CLAIMED, FINISHED, DEAD, GONE = range(7)

# The rules that make the hand correct. Each can be left out.
RULES = {
    "announced after visible": "a commit is published once it is visible",
    "abort publishes": "a rolled back pop publishes its task again",
    "overflow lowers upto": "a task that leaves a full hand lowers upto to its address",
    "lost bounds offer": "a task that is published during a reading, but not kept, "
                         "bounds the reading",
    "one reader offers": "only the reader in the entry may offer, and the start of "
                         "its reading resets lost",
    "partial reading": "a reading that stopped knows nothing of later addresses",
    "clear if complete": "the bit is cleared only if the hand is empty and upto "
                         "is infinite",
    "new entry knows nothing": "an entry made while the bit is set starts "
                               "with upto at 0",
    "offer keeps the hand": "an offer is merged with tasks published meanwhile",
    "vanished lowers upto": "a missing row drops the hand, and lowers upto and lost to "
                            "its address",
    "dropped hand lowers upto": "a missing row lowers them to the lowest address in the hand",
    "then rows are read": "after a missing row, the next reading visits rows",
    "verify": "a claim verifies the address, and that the row is ready",
    "error gives back": "tasks that are taken but not claimed are published again "
                        "when the call fails",
    "locked goes back": "a call that cannot claim a locked task publishes it again",
    "in order": "a task of the hand is served only below upto",
    "announced while unknown": "a published task sets the bit, even while the lane is not "
                          "known",
    "old reading is void": "a reading of the lane that began before a reset does not "
                           "make it known",
    "unknown, nothing known": "an entry made while the lane is not known "
                              "starts with upto at 0",
}

Entry = namedtuple("Entry", "hand upto lost reader by_row")
# rows: (status, place).  announced: rows whose commit is not published yet.  left: how many
# evictions, rewrites and resets may still happen.
State = namedtuple("State", "rows announced bit entry pops evictions rewrites"
                   " locked known resets")
# left: calls to make.  found, at: the entries that were read, and the address
# up to which they were read.  taken: (address, place).  offers, by_row: how
# the pop reads.  as_of: resets left at its start.
Pop = namedtuple("Pop", "phase left found at taken offers by_row as_of")
IDLE = Pop("idle", 0, (), INFINITE, None, False, 0, 0)


def empty(upto=INFINITE):
    return Entry((), upto, INFINITE, NOBODY, 0)


# The size of a hand, the number of entries read at once, the rows, and for each
# pop its calls and its start. Then the other events: errors in calls, rollbacks
# (of enqueues), and the numbers of evictions, rewrites and resets. A row that
# another session may lock, and the rows whose places another session uses
# again. Own tasks that are published early to a pop, and readings that visit
# each row.
A, R = ABSENT, READY
USUAL = {"H": 2, "reads": 2, "calls": (1, 1), "bit": 1, "entry": None,
         "errors": True, "rollbacks": False, "evictions": 0, "rewrites": 0,
         "resets": 0, "known": 1, "lock": None, "reuse": (), "shown": False,
         "by_row": False}
SCENARIOS = {
    "three come": {**USUAL, "H": 1, "rows": [A, A, A], "calls": (2,), "bit": 0,
                   "entry": empty(), "rollbacks": True},
    "three come, a hand of two": {
        **USUAL, "reads": 3, "rows": [A, A, A], "calls": (2,), "bit": 0,
        "rollbacks": True, "errors": False},
    "four come": {**USUAL, "rows": [A, A, A, A], "calls": (1,), "bit": 0,
                  "errors": False},
    "unknown backlog": {**USUAL, "H": 1, "rows": [A, R, R], "evictions": 1,
                        "rollbacks": True},
    "two readers": {**USUAL, "rows": [A, A, R], "entry": empty(0)},
    "backlog, a hand of two": {**USUAL, "reads": 3, "rows": [R, R, R, A],
                               "evictions": 1, "errors": False},
    "tail behind a reading": {
        **USUAL, "H": 1, "reads": 1, "rows": [R, A, A], "calls": (2,),
        "entry": empty(0), "evictions": 1},
    "rewrite": {**USUAL, "rows": [R, R, A], "calls": (2,), "entry": empty(0),
                "rewrites": 1, "evictions": 1, "rollbacks": True},
    "a place used again": {**USUAL, "rows": [R, A, A], "entry": empty(0),
                           "reuse": (0, 2)},
    "not known": {**USUAL, "rows": [A, A], "bit": 0, "known": 0,
                  "errors": False, "rollbacks": True},
    "reset": {**USUAL, "rows": [A, R], "entry": empty(0), "resets": 1,
              "errors": False},
    "reset while not known": {
        **USUAL, "rows": [A, A], "calls": (1,), "bit": 0, "known": 0,
        "resets": 1, "errors": False},
    "own tasks are shown": {**USUAL, "H": 1, "rows": [A, A], "bit": 0,
                            "entry": empty(), "shown": True,
                            "rollbacks": True},
    "two and two": {**USUAL, "rows": [A, A, R, R], "evictions": 1,
                    "errors": False},
    "a locked row": {**USUAL, "H": 1, "rows": [R, A], "calls": (2, 1),
                     "entry": empty(0), "lock": 0, "errors": False,
                     "rollbacks": True},
    "readings look at rows": {**USUAL, "rows": [A, A, R], "by_row": True},
}


def replaced(rows, i, row):
    return rows[:i] + (row,) + rows[i + 1:]


class Model(Explorer):
    """A scenario, with some of the rules."""

    def __init__(self, scenario, rules):
        self.__dict__.update(SCENARIOS[scenario])
        self.on = rules.__contains__
        self.start = State(
            tuple((status, i) for i, status in enumerate(self.rows)), (),
            self.bit, self.entry,
            tuple(IDLE._replace(left=calls) for calls in self.calls),
            self.evictions, self.rewrites, False, self.known, self.resets)

    # ---- sections under the lane's lock

    def tell(self, s, i, place=None):
        """Records that row i may be ready. Returns the next state."""
        if not s.known and not self.on("announced while unknown"):
            return s
        item = (i, s.rows[i][1] if place is None else place)
        entry = s.entry
        if entry is None:
            # whether the lane knows that the group has no other task
            nothing = s.bit == 0 and (
                s.known or not self.on("unknown, nothing known"))
            if nothing or not self.on("new entry knows nothing"):
                entry = empty()._replace(hand=(item,))
            return s._replace(bit=1, entry=entry)
        hand, upto, lost = entry.hand, entry.upto, entry.lost
        if i < upto or not self.on("in order"):
            hand, upto, out = self.shortened({*hand, item}, upto)
            lost = min(lost, out)
        else:
            lost = min(lost, i)
        return s._replace(bit=1, entry=entry._replace(
            hand=hand, upto=upto, lost=lost))

    def shortened(self, items, upto):
        """Returns the hand, upto, and the lowest address that does not fit into
        the hand."""
        hand = tuple(sorted(items))
        if len(hand) <= self.H:
            return hand, upto, INFINITE
        out = hand[self.H][0]
        if self.on("overflow lowers upto"):
            upto = min(upto, out)
        return hand[:self.H], upto, out

    def take(self, s, me):
        """Returns the next state, and what follows: ("end",), ("recover",),
        ("claim", task) or ("read", from, by_row, offers)."""
        if not s.known:
            return s, ("recover",)
        if s.bit == 0:
            return s, ("end",)
        entry = s.entry
        if entry is None:
            entry = empty(0 if self.on("new entry knows nothing")
                          else INFINITE)
        hand, upto = entry.hand, entry.upto
        if hand and (hand[0][0] < upto or not self.on("in order")):
            return (s._replace(entry=entry._replace(hand=hand[1:])),
                    ("claim", hand[0]))
        if upto == INFINITE or (not hand and not self.on("clear if complete")):
            return s._replace(bit=0, entry=entry), ("end",)
        offers = entry.reader == NOBODY or not self.on("one reader offers")
        if offers:
            entry = entry._replace(lost=INFINITE, reader=me)
        return s._replace(entry=entry), ("read", upto, entry.by_row, offers)

    def offer(self, s, me, found, end):
        """Offers the entries that were read, at addresses below end."""
        entry = s.entry
        if entry is None or (self.on("one reader offers")
                             and entry.reader != me):
            return s
        upto = min(end, entry.lost) if self.on("lost bounds offer") else end
        kept = entry.hand if self.on("offer keeps the hand") else ()
        hand, upto, _ = self.shortened(
            {*kept, *(item for item in found if item[0] < upto)}, upto)
        return s._replace(entry=empty(upto)._replace(hand=hand))

    def vanished(self, s, address):
        """Records that the row is gone. The rest of the hand is probably
        outdated, too, so the line is read again from the lowest address of
        both. A reading that has begun is not used beyond that address.
        """
        if not self.on("vanished lowers upto"):
            return s
        entry = s.entry
        if entry is not None:
            low = address
            if entry.hand and self.on("dropped hand lowers upto"):
                low = min(low, entry.hand[0][0])
            entry = entry._replace(
                hand=(), upto=min(entry.upto, low), lost=min(entry.lost, low),
                by_row=int(self.on("then rows are read")))
        return s._replace(bit=1, entry=entry)

    def nobody_reads(self, s, me):
        if s.entry is not None and s.entry.reader == me:
            return s._replace(entry=s.entry._replace(reader=NOBODY))
        return s

    # ---- index entries and rows

    def next_entry(self, s, at, by_row):
        """The next entry from an address on. The index keeps dead entries but
        does not show that they are dead."""
        seen = ((READY,) if self.by_row or by_row else
                (INSERTING, READY, CLAIMED, FINISHED, DEAD))
        return next((i for i in range(at, len(s.rows))
                     if s.rows[i][0] in seen), None)

    def any_entry(self, s):
        return int(any(status not in (ABSENT, GONE) for status, _ in s.rows))

    def look(self, s, address, place):
        """The result of a claim: the row to be claimed, None if there is none, or
        NOBODY if another transaction is changing it.
        """
        there = [i for i, (status, at) in enumerate(s.rows)
                 if at == place and status not in (ABSENT, GONE)]
        if not self.on("verify"):
            return next((i for i in there if s.rows[i][0] != DEAD), None)
        for i in there:
            if i == address:
                status = s.rows[i][0]
                return i if status == READY else \
                    None if status == DEAD else NOBODY
        return None

    def claim(self, s, i, status):
        if s.rows[i][0] != READY:
            raise Fault(f"not ready: {i} is claimed")
        return s._replace(rows=replaced(s.rows, i, (status, s.rows[i][1])))

    # ---- at the end, one session alone

    def check(self, s):
        if (s.announced or s.locked or any(pop.phase != "idle" for pop in s.pops)
                or any(status in (INSERTING, CLAIMED)
                       for status, _ in s.rows)):
            return
        ready = [i for i, (status, _) in enumerate(s.rows) if status == READY]
        served = self.drain(s)
        if served != ready:
            raise Fault(f"stranded: served {served} of {ready}")

    def drain(self, s):
        me, served = 0, []
        if s.entry is not None:         # forgets a reader that has ended
            s = self.nobody_reads(s, s.entry.reader)
        for _ in range(400):
            s, what = self.take(s, me)
            if what[0] == "end":
                return served
            if what[0] == "recover":
                s = s._replace(known=1, bit=s.bit | self.any_entry(s))
            elif what[0] == "read":
                s = self.offer(s, me, *self.read_on(s, (), *what[1:3]))
            else:
                i = self.look(s, *what[1])
                if i is None:
                    s = self.vanished(s, what[1][0])
                elif i != NOBODY:
                    s = self.claim(s, i, FINISHED)
                    served.append(i)
        raise Fault("forever: a pop does not end")

    def read_on(self, s, found, at, by_row):
        while True:
            i = self.next_entry(s, at, by_row)
            if i is None:
                return found, INFINITE
            found, at = found + ((i, s.rows[i][1]),), i + 1
            if len(found) == self.reads:
                return found, self.end_of(at)

    def end_of(self, at):
        return at if self.on("partial reading") else INFINITE

    # ---- all possible steps

    def steps(self, s):
        yield from self.steps_of_rows(s)
        if s.resets:
            yield "reset", s._replace(bit=0, entry=None, known=0,
                                      resets=s.resets - 1)
        if s.evictions and s.entry is not None:
            yield "evict", s._replace(entry=None, evictions=s.evictions - 1)
        if (s.rewrites and all(pop.phase == "idle" for pop in s.pops)
                and not any(status in (INSERTING, CLAIMED)
                            for status, _ in s.rows)):
            yield "rewrite", s._replace(
                rows=tuple((status, at + 10) for status, at in s.rows),
                rewrites=s.rewrites - 1)
        if self.lock is not None and s.rows[self.lock][0] == READY:
            yield ("unlock" if s.locked else "lock",
                   s._replace(locked=not s.locked))
        for me, pop in enumerate(s.pops):
            for name, after in getattr(self, "pop_" + pop.phase)(s, me, pop):
                yield f"pop {me + 1}: {name}", after

    def steps_of_rows(self, s):
        late = self.on("announced after visible")
        for i, (status, place) in enumerate(s.rows):
            if status == ABSENT:
                yield f"insert {i}", self.changed(
                    s, i, INSERTING, self.place_for(s, i))
            elif status == INSERTING:
                if late or i in s.announced:
                    announced = s.announced + (i,) if late else tuple(
                        j for j in s.announced if j != i)
                    yield f"commit {i}", self.changed(s, i, READY)._replace(
                        announced=tuple(sorted(announced)))
                else:
                    yield f"publish {i}, early", self.tell(s, i)._replace(
                        announced=tuple(sorted(s.announced + (i,))))
                if self.rollbacks and i not in s.announced:
                    yield f"roll back {i}", self.changed(s, i, DEAD)
                if self.shown and self.tell(s, i) != s:
                    yield f"show {i} to its own pop", self.tell(s, i)
            elif status in (FINISHED, DEAD) and i in self.reuse[:1]:
                yield f"vacuum {i}", self.changed(s, i, GONE)
        for i in s.announced if late else ():
            yield f"publish {i}", self.tell(s, i)._replace(
                announced=tuple(j for j in s.announced if j != i))

    def place_for(self, s, i):
        if i in self.reuse[1:] and s.rows[self.reuse[0]][0] == GONE:
            return s.rows[self.reuse[0]][1]
        return s.rows[i][1]

    @staticmethod
    def changed(s, i, status, place=None):
        place = s.rows[i][1] if place is None else place
        return s._replace(rows=replaced(s.rows, i, (status, place)))

    # Each of these functions is a phase of a pop. The function yields (step,
    # the state after the step).

    @staticmethod
    def then(s, me, phase, **values):
        """The pop continues, and forgets all other values."""
        pop = IDLE._replace(phase=phase, left=s.pops[me].left)
        return s._replace(pops=replaced(s.pops, me, pop._replace(**values)))

    def pop_idle(self, s, me, pop):
        if pop.left:
            yield "begin", self.then(s, me, "take", left=pop.left - 1)

    def pop_take(self, s, me, pop):
        s, what = self.take(s, me)
        if what[0] == "recover":
            yield "look at the index", self.then(
                s, me, "publish", at=self.any_entry(s), as_of=s.resets)
        elif what[0] == "end":
            yield "nothing", self.then(s, me, "idle")
        elif what[0] == "claim":
            yield f"take {what[1][0]}", self.then(s, me, "claim",
                                                  taken=what[1])
        else:
            _, start, by_row, offers = what
            yield (f"read from {start}" + ("" if offers else " for itself"),
                   self.then(s, me, "read", at=start, by_row=by_row,
                             offers=offers))

    def pop_publish(self, s, me, pop):
        if pop.as_of == s.resets or not self.on("old reading is void"):
            s = s._replace(bit=s.bit | pop.at, known=1)
        yield "publish", self.then(s, me, "take")

    def pop_read(self, s, me, pop):
        how = {"offers": pop.offers, "by_row": pop.by_row}
        i = self.next_entry(s, pop.at, pop.by_row)
        if i is None:
            yield "end of the line", self.then(s, me, "offer", found=pop.found,
                                               **how)
        else:
            found = pop.found + ((i, s.rows[i][1]),)
            full = len(found) == self.reads
            yield f"read {i}", self.then(
                s, me, "offer" if full else "read", found=found,
                at=self.end_of(i + 1) if full else i + 1, **how)
        if self.errors:
            yield "fail", self.then(
                self.nobody_reads(s, me) if pop.offers else s, me, "idle")

    def pop_offer(self, s, me, pop):
        if pop.offers:
            yield "offer", self.then(self.offer(s, me, pop.found, pop.at), me,
                                     "take")
        elif pop.found:
            yield "use what the pop has read", self.then(s, me, "claim",
                                                    taken=pop.found[0])
        else:
            yield "nothing", self.then(s, me, "idle")

    def pop_claim(self, s, me, pop):
        address, place = pop.taken
        i = self.look(s, address, place)
        if i is None:
            yield f"{address} has vanished", self.then(
                self.vanished(s, address), me, "take")
        elif s.locked and i == self.lock:
            announced = s
            if self.on("locked goes back"):
                announced = self.tell(s, address, place)
            yield f"{address} is locked", self.then(announced, me, "idle")
        elif i == NOBODY:
            yield f"{address} is in flight", self.then(s, me, "idle")
        else:
            yield f"claim {i}", self.then(
                self.claim(s, i, CLAIMED), me, "open",
                taken=(i, s.rows[i][1]))
        if self.errors:
            announced = s
            if self.on("error gives back"):
                announced = self.tell(s, address, place)
            yield "fail", self.then(announced, me, "idle")

    def pop_open(self, s, me, pop):
        i = pop.taken[0]
        yield "commit", self.then(self.changed(s, i, FINISHED), me, "idle")
        yield "abort", self.then(self.changed(s, i, READY), me, "undo",
                                 taken=pop.taken)

    def pop_undo(self, s, me, pop):
        if self.on("abort publishes"):
            s = self.tell(s, *pop.taken)
        yield "publish it again", self.then(s, me, "idle")
