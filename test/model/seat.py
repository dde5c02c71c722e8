"""The ring of one lane: which group is served next, and what is known of it.

A few groups have one seat each in every block, and a busy group beside them
always has work, so that blocks go by.  The lane keeps its position (the block
that is served, and the seat that service has reached in it) and one bit per
group for each of these:

    ring        may have a ready task
    front       of these, who is to be served before the position goes on
    served      has had a turn in the block of the position
    parked      has no slot under a limit, and is not in the ring
    late        something of it may be ready below its next turn
    vain        its last turn came to nothing, and was not given back

A group may have an entry in the cache: a hand, its first ready tasks by
address, and "upto": each ready task below that is in the hand, or in
flight.  An entry can be evicted at any time; the bits cannot.

    The next turn of a group is at its seat in the block of the position, or in
    the following block if it has had a turn in this one.  Of the groups in the
    ring the one with the lowest next turn is served.

Shared memory may be lost.  Then recovery begins: the position is found again,
all bits are clear, and the groups that have rows get theirs seat by seat, from
the one behind the position on and round, in steps.  In a step the table is
read first, and what was found is noted later; others may do the same at once.

A step is a section under the lane's lock: an address is given, a task is told
as its transaction ends, a pop takes a turn, and later claims what it has taken
off the hand, or reads.  The races inside of these are hand.py's matter, and a
task that is told, one that falls due and one whose lease expires are alike
here.  A pop takes one task at a time; the next one goes on with the turn of a
group of a greater weight.

Promised is

stranded    when all is quiet and nobody is parked, turns taken one after the
            other serve every ready task.
passed by   a turn is taken only if no group with a ready task, and a place,
            has a lower next turn.  (A turn that came to nothing because the
            group had nothing, or no slot, counts as not taken.)
twice       no group has two turns in a block.  A turn counts also if the claim
            is rolled back, or the row was locked.
back        the blocks of the turns that are taken never go back.
the front   is empty when the position enters another block.
address     where nothing is late, rolled back, purged, parked or locked, nor
            enqueued in the middle of its group's own turn, a task is served
            at its address.

After a recovery "twice" and "passed by" are about this: who was passed, and has
rows, has had his turn in the block; who has none, has had none.

From "passed by" and "twice" follows the bound: while a group waits, another
one has at most one turn in what is left of the block, and one in the next; and
who has had no turn in the block waits for those in front only, if the position
has passed its seat.
"""

from states import Explorer, Fault

READ = -1                       # in place of a task: the line is to be read
MOST = 4                        # tasks
INFINITE = 1 << 20
ABSENT, INSERTING, READY, CLAIMED, GONE = range(5)
BUSY = -1                       # the group that always has work

# What makes it sound.  Each can be left out.
RULES = {
    "late at eviction": "evicted with what may be ready below its turn: late",
    "parked is late": "evicted while parked: late, since the position goes on",
    "parked without an entry": "parked when it has none: late, too",
    "told behind is late": "told below its turn, without an entry: late",
    "vanished is late": "a row that is not where it was taken from is told",
    "parked is not empty": "a new entry is complete only if neither in the "
                           "ring nor parked",
    "late says 0": "a late group's new entry knows nothing from 0 on",
    "late stays": "late is taken away only from who is not in the ring",
    "taking makes an entry": "the position passes nobody in the ring by",
    "passed over is late": "if there is no entry to be had: late",
    "passed over is served": "and the turn is lost",
    "front": "who is told, and has had no turn in the block, is in front",
    "front at the position": "also at the seat that the position is at",
    "front goes first": "the front is served before the position goes on",
    "front by seats": "in the order of the seats",
    "front keeps the position": "and the position stays where it is",
    "front leaves with the ring": "who leaves the ring leaves the front",
    "unparked in front": "who gets a place is in front, too",
    "served": "who has had a turn in the block is not in front",
    "served in one block": "in the next block nobody has had a turn",
    "empty gives back": "a turn that found nothing does not count",
    "told gives back": "one that found nothing beside the reading of another "
                       "pop, when the group is told of",
    "vain until a turn": "but not after the group's next turn",
    "parked gives back": "nor does one that found no place",
    "back in its block": "a turn is given back only in its block",
    "back if whole": "and only if nobody went on with it",
    "settings give back": "nor does one that was stopped by a change of "
                          "settings",
    "given back in front": "its group is in front, then",
    "the position stays": "and the position does not go back for it",
    "locked keeps": "a turn that met a locked row is not given back",
    "abort keeps": "nor is one that was rolled back",
    "a turn goes on": "a turn of a greater weight goes on before another one",
    "address in the block": "who has had no turn in the block gets an address "
                            "in it",
    "address behind a turn": "who has had one, an address in the next",
    "address behind a tail": "and each in a block behind the group's last",
    "a seat for its weight": "but that a weight of 2 has room for two",
    "covered": "a turn is taken if all seats are known that could come before",
    "nobody when all is known": "nobody is ready only if all seats are known",
    "unknown is not empty": "who is told, and is not known, may have more",
    "unknown knows nothing": "a new entry of one not known begins at 0",
    "recovered is late": "who is found to have rows is late",
    "recovered in the ring": "and in the ring",
    "told counts": "what is told of one not known counts",
    "old steps are void": "a step of an earlier recovery is not noted",
    "recovered is served": "who was passed, and has rows, counts as served",
    "told is served": "as does who is told before he is known",
    "newcomers are not": "but not who was given an address in the block since",
}

# In each the tasks, by their groups; the seats, of the busy one last; the
# weights, and the last block.  H is the size of a hand.  What may happen:
# evict, room (who is told finds room for an entry), none (who takes a turn may
# find none), rollback, purge, park, lock, abort, rewrite (rows move), settings
# (change in a call).  turns: how many can be in flight at once; 0: each is
# claimed at once.  resets: how often shared memory may be lost, and steps: how
# many are under way at once.
USUAL = {"seats": (0, 1), "weights": (1, 1), "blocks": 3, "H": 1, "turns": 1,
         "room": True, "may": ("evict", "rollback", "park", "abort"),
         "resets": 0, "scans": 1}
SCENARIOS = {
    "one group behind": {**USUAL, "tasks": "aaa"},
    "one group ahead": {**USUAL, "tasks": "aaa", "seats": (1, 0)},
    "no room for an entry": {**USUAL, "tasks": "aaa", "room": False},
    "a hand of two": {**USUAL, "tasks": "aaa", "H": 2},
    "two behind": {
        **USUAL, "tasks": "aab", "seats": (0, 1, 2), "weights": (1, 1, 1),
        "may": ("rollback", "park")},
    "before and behind": {
        **USUAL, "tasks": "aab", "seats": (0, 2, 1), "weights": (1, 1, 1),
        "may": ("rollback", "park")},
    "three groups": {
        **USUAL, "tasks": "abc", "seats": (0, 1, 3, 2),
        "weights": (1, 1, 1, 1), "may": ("abort",)},
    "two turns at once": {
        **USUAL, "tasks": "aaa", "turns": 2, "blocks": 2,
        "may": ("purge", "evict")},
    "beside a reading": {
        **USUAL, "tasks": "aaa", "turns": 2, "blocks": 3,
        "may": ("purge", "evict")},
    "purges": {
        **USUAL, "tasks": "aab", "seats": (0, 2, 1), "weights": (1, 1, 1),
        "may": ("purge",)},
    "settings change": {
        **USUAL, "tasks": "aab", "seats": (0, 2, 1), "weights": (1, 1, 1),
        "may": ("settings",), "turns": 2, "blocks": 2},
    "locked rows": {**USUAL, "tasks": "aa", "may": ("lock", "evict")},
    "rows move": {**USUAL, "tasks": "aa", "may": ("rewrite", "evict")},
    "nothing to evict": {
        **USUAL, "tasks": "aa", "room": False, "may": ("none", "abort")},
    "in order": {
        **USUAL, "tasks": "aab", "seats": (0, 2, 1), "weights": (1, 1, 1),
        "turns": 0, "may": ("evict",), "regular": True},
    "in order, a weight of 2": {
        **USUAL, "tasks": "aaab", "seats": (0, 2, 1), "weights": (2, 1, 1),
        "turns": 0, "may": (), "regular": True},
    "a weight of 2": {
        **USUAL, "tasks": "aaa", "weights": (2, 1), "turns": 2, "blocks": 2,
        "may": ("purge", "park")},
    "lost": {
        **USUAL, "tasks": "aa", "may": ("evict", "abort", "park"),
        "resets": 1},
    "lost, ahead": {
        **USUAL, "tasks": "aa", "seats": (1, 0), "may": ("evict", "abort"),
        "resets": 1},
    "lost, no room": {
        **USUAL, "tasks": "aaa", "seats": (1, 0), "room": False, "blocks": 2,
        "may": ("rollback",), "resets": 1},
    "lost, two groups": {
        **USUAL, "tasks": "aab", "seats": (0, 2, 1), "weights": (1, 1, 1),
        "may": (), "blocks": 2, "resets": 1},
    "lost again": {
        **USUAL, "tasks": "aa", "may": (), "blocks": 2, "resets": 2,
        "scans": 2},
    "lost, in order": {
        **USUAL, "tasks": "aab", "seats": (0, 2, 1), "weights": (1, 1, 1),
        "turns": 0, "may": ("evict",), "regular": True, "resets": 1},
    "lost, in order, two behind": {
        **USUAL, "tasks": "aab", "seats": (0, 1, 2), "weights": (1, 1, 1),
        "turns": 0, "may": (), "regular": True, "resets": 1},
}


def at(item):
    """The address of a task in a hand."""
    return item // (2 * MOST)


class Group:
    """Its bits, its last address, its entry: None or (hand, upto); and for
    the promise, whether it has had a turn in the block."""
    __slots__ = ("ring", "front", "served", "parked", "late", "tail", "entry",
                 "had", "newcomer", "vain")

    def __init__(self, values=(0, 0, 0, 0, 0, -1, None, 0, 0, 0)):
        (self.ring, self.front, self.served, self.parked, self.late,
         self.tail, self.entry, self.had, self.newcomer,
         self.vain) = values

    def freeze(self):
        return (self.ring, self.front, self.served, self.parked, self.late,
                self.tail, self.entry, self.had, self.newcomer, self.vain)


class Lane:
    """A state that can be changed.

    tasks       (status, address) of each
    position    address of the highest turn that was not in front
    last        the last turn, and how many more tasks of its group it has room
                for
    groups      see Group
    turns       in flight: (group, address of the turn, a task or
                READ, read from where, is it the turn's first)
    version     of the TIDs of rows
    recovery    its number, the turn that it began with, and of how many seats
                from there on and round it is known who has rows
    scans       steps that were not noted yet: (number, from how many seats on,
                to how many, the groups that were found)

    A task in a hand is a number, see item().
    """
    __slots__ = ("of", "on", "tasks", "position", "last", "groups", "turns",
                 "version", "number_of", "first", "known", "scans")

    def __init__(self, of, rules, state):
        self.of, self.on = of, rules.__contains__
        (tasks, self.position, self.last, groups, turns,
         self.version, recovery, scans) = state
        self.tasks, self.turns = list(tasks), list(turns)
        self.number_of, self.first, self.known = recovery
        self.scans = list(scans)
        self.groups = [Group(group) for group in groups]

    def freeze(self):
        return (tuple(self.tasks), self.position, self.last,
                tuple([group.freeze() for group in self.groups]),
                tuple(sorted(self.turns)), self.version,
                (self.number_of, self.first, self.known),
                tuple(sorted(self.scans)))

    def item(self, i):
        """Task i and where it stands, in the order of (address, number)."""
        return (self.tasks[i][1] * MOST + i) * 2 + self.version

    # ---- addresses

    def block(self, address):
        return address // self.of.length

    def turn(self, g, had):
        """The next turn of a group, by its bit or by the truth."""
        return (self.of.seats[g] + self.of.length
                * (self.block(self.position) + had))

    def reserve(self, i):
        g = self.of.group[i]
        group = self.groups[g]
        served = group.served or not self.on("address in the block")
        block = self.block(self.position) + (
            served if self.on("address behind a turn") else 0)
        tail = self.table_tail(g) if group.tail is None else group.tail
        if self.is_unsure(g) and not self.rows(g):
            group.had = group.served
        if tail >= 0 and self.on("address behind a tail"):
            last = self.block(tail)
            there = sum(address == tail and status != ABSENT
                        and self.of.group[j] == g for j, (status, address)
                        in enumerate(self.tasks))
            joins = (self.on("a seat for its weight") and last >= block
                     and there < self.of.weights[g])
            block = max(last if joins else last + 1, block)
        group.tail = self.of.seats[g] + self.of.length * block
        if self.is_unsure(g) and block == self.block(self.position):
            group.newcomer = 1
        if self.of.regular and group.tail < self.turn(g, group.had):
            raise Fault(f"address: {group.tail} is given, its turn is over")
        self.tasks[i] = (INSERTING, group.tail)

    def rows(self, g):
        return [address for i, (status, address) in enumerate(self.tasks)
                if self.of.group[i] == g
                and status in (INSERTING, READY, CLAIMED)]

    def table_tail(self, g):
        return max(self.rows(g), default=-1)

    # ---- recovery

    def seats_off(self, g, turn=None):
        """How many seats from the first one on the group's is, or a turn."""
        if turn is None:
            return (self.of.seats[g] - self.first) % self.of.length
        return turn - self.first

    def is_known(self, g):
        return self.seats_off(g) < self.known

    def is_unsure(self, g):
        """Passed in the block in which recovery began, and not known?"""
        return (not self.is_known(g)
                and self.turn(g, 0) < self.first)

    def presume_served(self, g):
        group = self.groups[g]
        if (self.is_unsure(g) and not group.front
                and not self.is_newcomer(g)):
            group.served = group.had = 1
        elif self.is_unsure(g) and not self.of.regular:
            group.had = group.served

    def is_newcomer(self, g):
        """Given an address in the block since, as long as the entry says so."""
        return self.groups[g].newcomer and self.on("newcomers are not")

    def lose(self):
        """All hints are lost, and recovery begins."""
        for g, group in enumerate(self.groups):
            passed = self.turn(g, 0) <= self.position
            rows = bool(self.rows(g))
            had = passed and rows and (group.had or not self.of.regular)
            self.groups[g] = Group((0, 0, 0, 0, 0, None, None, int(had), 0,
                                     0))
        self.last = (-1, 0)
        self.number_of += 1
        self.first, self.known = self.position + 1, 0

    def can_lose(self):
        """What is in order stays so if nobody is in front at that moment."""
        return not self.of.regular or not any(
            address < self.turn(g, 1) and not group.had
            and self.turn(g, 0) <= self.position
            for g, group in enumerate(self.groups)
            for i, (status, address) in enumerate(self.tasks)
            if self.of.group[i] == g and status in (INSERTING, READY))

    def scan(self):
        """Read which group has rows at the next seat."""
        found = tuple(g for g in range(len(self.groups))
                      if self.seats_off(g) == self.known and self.rows(g))
        self.scans.append((self.number_of, self.known, self.known + 1, found))

    def note(self, scan):
        self.scans.remove(scan)
        number, start, known, found = scan
        if number != self.number_of and self.on("old steps are void"):
            return
        if start != self.known:         # others have gone beyond
            return
        for g, group in enumerate(self.groups):
            if (self.is_unsure(g) and self.seats_off(g) == start
                    and g not in found):
                group.had = group.served
        for g in found:
            group = self.groups[g]
            if group.entry is None and self.on("recovered is late"):
                group.late = 1
            if self.on("recovered is served"):
                self.presume_served(g)
            if self.on("recovered in the ring"):
                self.enter(g)
        self.known = known

    def is_covered(self, turn, front):
        return (front or self.known == self.of.length
                or self.seats_off(None, turn) < self.known
                or not self.on("covered"))

    # ---- what is told

    def enter(self, g):
        """The one door into the ring."""
        group = self.groups[g]
        if group.parked:
            return
        group.ring = 1
        seat = self.position % self.of.length
        passed = self.of.seats[g] < seat or (
            self.of.seats[g] == seat and self.on("front at the position"))
        if passed and self.on("front") and not (
                group.served and self.on("served")):
            group.front = 1

    def leave(self, g):
        group = self.groups[g]
        group.ring = 0
        if self.on("front leaves with the ring"):
            group.front = 0

    def tell(self, i):
        g = self.of.group[i]
        group = self.groups[g]
        address = self.tasks[i][1]
        if not self.is_known(g) and not self.on("told counts"):
            return
        if self.on("told is served"):
            self.presume_served(g)
        empty = not group.ring and not (
            group.parked and self.on("parked is not empty")) and (
            self.is_known(g) or not self.on("unknown is not empty"))
        if group.entry is None and self.of.room and empty:
            group.entry = ((), INFINITE)
        if group.entry is not None:
            hand, upto = group.entry
            if address < upto:
                hand = sorted({*hand, self.item(i)})
                hand, upto = self.shortened(hand, upto)
            group.entry = (hand, upto)
        else:
            behind = int(address < self.turn(g, group.served)
                         and self.on("told behind is late"))
            if self.on("late stays") and (group.ring or group.parked):
                behind |= group.late
            group.late = behind
        if group.vain and group.served:
            group.vain = group.served = 0
        self.enter(g)

    def shortened(self, hand, upto):
        if len(hand) > self.of.H:
            upto = min(upto, at(hand[self.of.H]))
        return tuple(hand[:self.of.H]), upto

    def park(self, g):
        group = self.groups[g]
        self.leave(g)
        group.parked = 1
        if group.entry is None and self.on("parked without an entry"):
            group.late = 1

    def unpark(self, g):
        group = self.groups[g]
        group.parked = 0
        if self.on("unparked in front"):
            self.enter(g)
        else:
            group.ring = 1

    def evict(self, g):
        group = self.groups[g]
        hand, upto = group.entry
        low = min(at(hand[0]) if hand else upto, upto)
        group.entry = None
        group.late = int(
            group.ring and low < self.turn(g, group.served)
            and self.on("late at eviction")
            or group.parked and self.on("parked is late"))
        group.tail, group.newcomer = None, 0
        # what the entry knew of a turn in vain is lost, and so is that
        if group.vain and group.served:
            group.had = 1
        group.vain = 0

    # ---- turns

    def can_take(self):
        """Is there a turn to be taken, or is more to be known first?"""
        if self.goes_on() is not None:
            return True
        after = self.next_turn()
        return after is not None and self.is_covered(*after[1:])

    def goes_on(self):
        """The group whose turn has room for more, or None."""
        if self.on("a turn goes on"):
            for g, group in enumerate(self.groups):
                if group.ring and self.in_turn(g):
                    return g
        return None

    def in_turn(self, g):
        """Is the last turn the group's, with room for more?"""
        turn, left = self.last
        return left > 0 and turn % self.of.length == self.of.seats[g]

    def next_turn(self):
        """(group, address of the turn, is it in front); or None, if nobody
        is in the ring, as far as is known."""
        length, seats = self.of.length, self.of.seats
        block, seat = divmod(self.position, length)
        front = [g for g, group in enumerate(self.groups) if group.front]
        ring = [g for g, group in enumerate(self.groups) if group.ring]
        if self.is_known(BUSY):
            ring.append(BUSY)
        if not ring:
            return None
        ahead = [g for g in ring if seats[g] > seat]
        if front and (self.on("front goes first") or not ahead):
            first = min if self.on("front by seats") else max
            g = first(front, key=lambda g: seats[g])
            return g, seats[g] + length * block, True
        g = min(ahead or ring, key=lambda g: seats[g])
        return g, seats[g] + length * (block if ahead else block + 1), False

    def waits(self, g):
        """Has it a ready task, and a slot, that is not in flight?"""
        if self.groups[g].parked:
            return False
        free = set(self.ready(g))
        mine = [turn[2] for turn in self.turns if turn[0] == g]
        free -= {self.number(item) for item in mine if item != READ}
        return len(free) > mine.count(READ)

    def check_passed(self, g, turn):
        for other, group in enumerate(self.groups):
            if (other != g and self.turn(other, group.had) < turn
                    and self.waits(other)):
                raise Fault(f"passed by: {self.of.name(other)} waits for"
                            f" {self.turn(other, group.had)}, and"
                            f" {self.of.name(g)} is served at {turn}")

    def enter_block(self):
        for g, group in enumerate(self.groups):
            if group.front:
                raise Fault(f"the front: {self.of.name(g)} is still there")
            group.had = 0
            if self.on("served in one block"):
                group.served = 0
        self.last = (-1, 0)

    def take(self, entries=True):
        """Take the next turn, or what is left of the last one; returns the
        group that was served, and what it holds: the task's address, READ, or
        None if there was nothing."""
        g = self.goes_on()
        first = g is None
        if first:
            g, turn, front = self.next_turn()
            if not self.is_covered(turn, front):
                raise Fault("a turn is taken that is not to be")
            if self.block(turn) < self.block(self.position):
                raise Fault(f"back: a turn at {turn}, behind {self.position}")
            self.check_passed(g, turn)
            if not front or not self.on("front keeps the position"):
                if self.block(turn) != self.block(self.position):
                    self.enter_block()
                self.position = turn
            self.last = (-1, 0)
        else:
            turn = self.last[0]
        if g == BUSY:
            return g, None
        if not entries and self.groups[g].entry is None:
            return g, self.pass_over(g)
        return g, self.take_of(g, turn, first)

    def take_of(self, g, turn, first):
        group = self.groups[g]
        if not group.ring:
            raise Fault(f"stray: {self.of.name(g)} is not in the ring")
        if group.entry is None:
            known = (self.is_known(g) or not self.on("unknown knows nothing"))
            late = group.late and self.on("late says 0")
            group.entry = ((), turn if known and not late else 0)
        hand, upto = group.entry
        item = None
        if hand and at(hand[0]) < upto:
            item, hand = hand[0], hand[1:]
            group.entry = (hand, upto)
        elif upto < INFINITE:
            item = READ
        if not hand and upto == INFINITE:
            self.leave(g)
        if item is None:
            return None
        if first:
            self.count_turn(g)
        self.last = (turn, (self.of.weights[g] if first else self.last[1]) - 1)
        if not self.last[1]:
            self.last = (-1, 0)
        self.turns.append((g, turn, item, upto, first))
        return item

    def count_turn(self, g):
        group = self.groups[g]
        if group.had:
            raise Fault(f"twice: {self.of.name(g)} in block"
                        f" {self.block(self.position)}")
        group.had = group.served = 1
        group.front = 0
        if self.on("vain until a turn"):
            group.vain = 0

    def pass_over(self, g):
        """No entry can be had: the group in the ring whose turn it is."""
        group = self.groups[g]
        if group.had:
            raise Fault(f"twice: {self.of.name(g)}, passed over")
        group.had = 1
        group.late |= int(self.on("passed over is late"))
        if self.on("passed over is served"):
            group.served, group.front = 1, 0

    def give_back(self, held, rule):
        """A turn that came to nothing, as its group has left the ring."""
        g, turn, _, _, first = held
        group = self.groups[g]
        same = self.block(turn) == self.block(self.position)
        # only as long as nobody can have gone on with it
        weight = self.of.weights[g]
        whole = first and (weight == 1 or self.last == (turn, weight - 1))
        if same and whole:
            group.had = 0
        if (same or not self.on("back in its block")) and self.on(rule) and (
                whole or not self.on("back if whole")):
            group.served = 0

    # ---- what becomes of what was taken

    @staticmethod
    def number(item):
        return item // 2 % MOST

    def is_ready(self, item):
        return (item & 1 == self.version
                and self.tasks[self.number(item)] == (READY, at(item)))

    def ready(self, g):
        return [i for i, (status, _) in enumerate(self.tasks)
                if status == READY and self.of.group[i] == g]

    def claim(self, held):
        """Claim what was taken; if it is gone, what comes next in the same
        turn.  Returns the number of the task, or None."""
        g, turn, item, start, first = held
        group = self.groups[g]
        beside = item == READ and any(
            other[0] == g and other[2] == READ
            for other in self.turns[:self.turns.index(held)])
        self.turns.remove(held)
        if beside and self.reads_beside(group):
            return self.read_beside(held)
        if item != READ:
            if self.is_ready(item):
                return self.claimed(item, turn)
            self.vanished(g, item)
        if group.entry is None:         # evicted meanwhile: read for oneself
            found = self.found(g, start) if item == READ else []
            return self.claimed(found[0], turn) if found else None
        while True:
            item = self.next_item(group, g)
            if item is None:
                break
            if self.is_ready(item):
                if group.entry == ((), INFINITE):
                    self.leave(g)
                return self.claimed(item, turn)
            self.vanished(g, item)
        self.leave(g)
        self.give_back(held, "empty gives back")
        return None

    @staticmethod
    def reads_beside(group):
        """Nothing is in the hand, and what it may have another pop reads."""
        return group.entry is not None and not group.entry[0] \
            and group.entry[1] < INFINITE

    def read_beside(self, held):
        """The other reading counts: this one is for the turn alone, and says
        nothing of the group."""
        g, turn, _, _, first = held
        group = self.groups[g]
        found = self.found(g, group.entry[1])
        if found:
            return self.claimed(found[0], turn)
        served = group.served
        self.give_back(held, "empty gives back")
        if served > group.served:
            group.vain = int(self.on("told gives back"))
            group.served = 1
        return None

    def next_item(self, group, g):
        """Off the hand, or of what is read now, or None."""
        hand, upto = group.entry
        if not hand or at(hand[0]) >= upto:
            if upto == INFINITE:
                return None
            hand = sorted({*hand, *self.found(g, upto)})
            upto = INFINITE
            if not hand:
                group.entry = ((), INFINITE)
                return None
        group.entry = self.shortened(hand[1:], upto)
        return hand[0]

    def found(self, g, start):
        """By a reading of rows, to the end of the line."""
        return sorted(self.item(i) for i in self.ready(g)
                      if self.tasks[i][1] >= start)

    def vanished(self, g, item):
        group = self.groups[g]
        if group.entry is not None:
            hand, upto = group.entry
            group.entry = ((), min([at(item), upto] + [at(i) for i in hand]))
        elif self.on("vanished is late"):
            group.late |= at(item) < self.turn(g, group.served)
        self.enter(g)

    def claimed(self, item, turn):
        i, address = self.number(item), at(item)
        if self.of.regular and turn != address:
            raise Fault(f"address: {address} is served at {turn}")
        self.tasks[i] = (CLAIMED, address)
        return i

    def put_back(self, held):
        """Tell again what was taken off the hand."""
        self.turns.remove(held)
        g, _, item, _, _ = held
        if item == READ:
            self.enter(g)
        else:
            self.tell(self.number(item))


    def change_settings(self, held):
        """A call finds other settings than those by which it took a turn."""
        self.put_back(held)
        if self.position == held[1] and not self.on("the position stays"):
            self.position -= 1
        self.give_back(held, "settings give back")
        if self.on("given back in front"):
            self.enter(held[0])


class Model(Explorer):
    """A scenario, with some of the rules."""

    def __init__(self, scenario, rules):
        self.__dict__.update(SCENARIOS[scenario])
        self.rules = rules
        self.length = len(self.seats)
        self.group = ["abc".index(letter) for letter in self.tasks]
        self.regular = getattr(self, "regular", False)
        # the busy one has just been served, and all is known
        self.start = (((ABSENT, 0),) * len(self.tasks),
                      self.seats[BUSY] + self.length, (-1, 0),
                      (Group().freeze(),) * (len(self.seats) - 1), (), 0,
                      (0, 0, self.length), ())

    @staticmethod
    def name(g):
        return "the busy one" if g == BUSY else "abc"[g]

    def lane(self, state):
        return Lane(self, self.rules, state)

    def steps(self, state):
        for some in (self.steps_of_tasks, self.steps_of_groups,
                     self.steps_of_recovery, self.steps_of_pops):
            for name, lane in some(state):
                yield name, lane.freeze()

    def steps_of_tasks(self, state):
        may = self.may
        for i, (status, address) in enumerate(state[0]):
            g = self.group[i]
            if status == ABSENT:
                lane = self.lane(state)
                first = all(state[0][j][0] != ABSENT for j in range(i)
                            if self.group[j] == g)
                if first and not (self.regular and lane.in_turn(g)):
                    lane.reserve(i)
                    yield f"{self.tasks[i]} enqueues at" \
                        f" {lane.tasks[i][1]}", lane
            elif status == INSERTING:
                if self.regular and self.is_late(state, i):
                    continue
                yield f"commit of {address}", self.told(state, i)
                if "rollback" in may:
                    yield f"rollback of {address}", self.gone(state, i)
            elif status == READY and "purge" in may:
                yield f"purge of {address}", self.gone(state, i)
            elif status == CLAIMED:
                yield f"the pop of {address} commits", self.gone(state, i)
                if "abort" in may:
                    lane = self.told(state, i)
                    if "abort keeps" not in self.rules:
                        lane.groups[g].served = 0
                        lane.enter(g)
                    yield f"the pop of {address} aborts", lane

    def is_late(self, state, i):
        """Is its turn over, or does one of its group come before it?"""
        lane = self.lane(state)
        g = self.group[i]
        address = state[0][i][1]
        return (address < lane.turn(g, lane.groups[g].had)
                or any(status == INSERTING and self.group[j] == g
                       for j, (status, _) in enumerate(state[0][:i])))

    def told(self, state, i):
        lane = self.lane(state)
        lane.tasks[i] = (READY, lane.tasks[i][1])
        lane.tell(i)
        return lane

    def gone(self, state, i):
        lane = self.lane(state)
        lane.tasks[i] = (GONE, lane.tasks[i][1])
        return lane

    def steps_of_groups(self, state):
        for g, values in enumerate(state[3]):
            group = Group(values)
            if group.parked:
                lane = self.lane(state)
                lane.unpark(g)
                yield f"{self.name(g)} has a slot", lane
            if group.entry is not None and "evict" in self.may:
                lane = self.lane(state)
                lane.evict(g)
                yield f"{self.name(g)} is evicted", lane
            if group.ring and "taking makes an entry" not in self.rules:
                lane = self.lane(state)
                turn = lane.turn(g, group.served)
                if turn > lane.position and lane.block(turn) <= self.blocks:
                    lane.position = turn
                    yield f"the position goes on to {turn}", lane
        if "rewrite" in self.may and not state[5]:
            lane = self.lane(state)
            lane.version = 1
            yield "rows move", lane

    def steps_of_recovery(self, state):
        lane = self.lane(state)
        if lane.number_of < self.resets and not state[4] and lane.can_lose():
            lane.lose()
            yield "all is lost", lane
        lane = self.lane(state)
        if lane.known < self.length and len(lane.scans) < self.scans:
            lane.scan()
            yield f"a step reads seat {lane.known}", lane
        for scan in set(state[7]):
            lane = self.lane(state)
            lane.note(scan)
            yield f"what it has read of seat {scan[1]} is noted", lane

    def steps_of_pops(self, state):
        can_take = self.lane(state).can_take()
        if can_take and len(state[4]) < max(self.turns, 1):
            lane = self.lane(state)
            g, held = lane.take()
            if held is not None and not self.turns:
                lane.claim(lane.turns[0])
            if lane.block(lane.position) <= self.blocks:
                yield f"a turn of {self.name(g)}:" + (
                    "" if held is None else " to read" if held == READ
                    else f" {at(held)}"), lane
        if can_take and "none" in self.may:
            lane = self.lane(state)
            g, held = lane.take(entries=False)
            if lane.block(lane.position) <= self.blocks:
                yield f"{self.name(g)} is passed over", lane
        for held in set(state[4]):
            g = held[0]
            lane = self.lane(state)
            i = lane.claim(held)
            yield f"{self.name(g)}: " + (
                "nothing" if i is None else f"claim {lane.tasks[i][1]}"), lane
            if "park" in self.may:
                lane = self.lane(state)
                lane.put_back(held)
                lane.park(g)
                lane.give_back(held, "parked gives back")
                yield f"{self.name(g)} has no slot", lane
            if "settings" in self.may:
                lane = self.lane(state)
                lane.change_settings(held)
                yield f"{self.name(g)} is given back", lane
            if "lock" in self.may and held[2] != READ:
                lane = self.lane(state)
                lane.put_back(held)
                if "locked keeps" not in self.rules:
                    lane.groups[g].served = 0
                    lane.enter(g)
                yield f"{self.name(g)}: {at(held[2])} is locked", lane

    # ---- when all is quiet, a session alone, until nothing comes

    def check(self, state):
        if state[4] or any(status in (INSERTING, CLAIMED)
                           for status, _ in state[0]):
            return
        lane = self.lane(state)
        for g, group in enumerate(lane.groups):
            if group.parked:
                lane.unpark(g)
        rounds = 2 * len(self.tasks) + 2
        for _ in range(rounds * self.length):
            if not lane.can_take():
                nobody = lane.next_turn() is None
                if lane.known == self.length or (
                        nobody and not lane.on("nobody when all is known")):
                    break
                lane.scan()
                lane.note(lane.scans[-1])
                continue
            _, held = lane.take()
            if held is not None:
                lane.claim(lane.turns[0])
        left = [address for status, address in lane.tasks if status == READY]
        if left:
            raise Fault(f"stranded: {left}")
