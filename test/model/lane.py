"""The lane of seat.py: its state, and a method for each section under its
lock."""

from states import Fault

READ = -1                       # in place of a task: the line must be read
MOST = 4                        # the most tasks
INFINITE = 1 << 20
ABSENT, INSERTING, READY, CLAIMED, GONE = range(5)
BUSY = -1                       # the group that always has work

# The rules that make the lane correct. Each can be left out.
RULES = {
    "late at eviction": "a group is late if it is evicted with a task that may be "
                        "ready below its turn",
    "parked is late": "a parked group is late if it is evicted, since the "
                      "position advances",
    "parked without an entry": "a group without an entry is late when it is parked",
    "published behind is late": "a group without an entry is late if a task is "
                                "published below its turn",
    "vanished is late": "a moved row is published",
    "parked is not empty": "a new entry is complete only if its group is neither "
                           "in the ring nor parked",
    "late says 0": "a late group's new entry knows no task from 0 on",
    "late stays": "late is cleared only for a group that is not in the ring",
    "taking makes an entry": "the position passes no group in the ring",
    "passed over is late": "a group for which no entry is available is late",
    "passed over is served": "a group for which no entry is available loses its turn",
    "front": "a published group without a turn in the block is in front",
    "front at the position": "a group in front may have the seat of the position",
    "front goes first": "the front is served before the position advances",
    "front by seats": "groups in front are served in the order of their seats",
    "front keeps the position": "a turn of a group in front does not move the position",
    "front leaves with the ring": "a group that leaves the ring leaves the front",
    "unparked in front": "a group that gets a slot is in front, too",
    "served": "a group that has had a turn in the block is not in front",
    "served in one block": "in the next block no group has had a turn",
    "empty gives back": "a turn without a ready task does not count",
    "leaving gives back": "a turn that yielded no task during another pop's read does not "
                          "count, once its call leaves the lane",
    "vain in its block": "such a turn counts in a later block",
    "parked gives back": "a turn without a slot does not count",
    "back in its block": "a turn is given back only in its block",
    "back if whole": "a turn is given back only if no other call continued it",
    "settings give back": "a turn that a change of settings stopped does not count",
    "given back in front": "the group of a turn that is given back is in front",
    "the position stays": "the position does not go back for such a group",
    "locked keeps": "a turn that found a locked row is not given back",
    "abort keeps": "a turn that was rolled back is not given back",
    "a turn continues": "a group of a greater weight ends its turn before another "
                        "turn begins",
    "address in the block": "a group without a turn in the block gets an address in it",
    "address behind a turn": "after its turn it gets an address in the next block",
    "address behind a tail": "a new address is in a block after the group's last one",
    "a seat for its weight": "a group of weight 2 has two tasks at an address",
    "covered": "a turn is taken only if all seats that could precede it are known",
    "nobody when all is known": "a pop reports no task only if all seats are known",
    "unknown is not empty": "a published group that is not known may have more tasks",
    "unknown knows nothing": "a new entry of an unknown group begins at 0",
    "recovered is late": "a recovered group with rows is late",
    "recovered in the ring": "a recovered group with rows is in the ring",
    "published counts": "a published task of an unknown group counts",
    "old steps are void": "a result of an earlier recovery's step is dropped",
    "served stays": "a turn counts, even if rows change later",
}


def at(item):
    """The address of a task in a hand."""
    return item // (2 * MOST)


class Group:
    """A group: its bits, its last address, and its entry, which is None or
    (hand, upto). Since a promise depends on it, also whether the group has had
    a turn in the block.
    """
    __slots__ = ("ring", "front", "served", "parked", "late", "tail", "entry",
                 "had", "vain")

    def __init__(self, values=(0, 0, 0, 0, 0, -1, None, 0, 0)):
        (self.ring, self.front, self.served, self.parked, self.late,
         self.tail, self.entry, self.had, self.vain) = values

    def freeze(self):
        return (self.ring, self.front, self.served, self.parked, self.late,
                self.tail, self.entry, self.had, self.vain)


class Lane:
    """A mutable state.

    tasks       (status, address) of each task
    position    address of the highest turn that was not in front
    last        the last turn, and how many more tasks of its group it may take
    groups      see Group
    turns       in flight: (group, address of the turn, a task or READ, the
                address from which to read, whether it is the turn's first task)
    version     1 once the rows were rewritten, so that they have other TIDs
    recovery    the recovery's number, the turn with which it began, and the
                number of known seats from that turn on, cyclically
    scans       steps whose result is not stored yet: (number, first seat, last
                seat, the groups that were found)

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
        """Task i and its place in the order of (address, number)."""
        return (self.tasks[i][1] * MOST + i) * 2 + self.version

    # ---- addresses

    def block(self, address):
        return address // self.of.length

    def turn(self, g, had):
        """The next turn of a group, according to its bit or to the truth."""
        return (self.of.seats[g] + self.of.length
                * (self.block(self.position) + had))

    def reserve(self, i):
        g = self.of.group[i]
        group = self.groups[g]
        served = group.served or not self.on("address in the block")
        block = self.block(self.position) + (
            served if self.on("address behind a turn") else 0)
        tail = self.table_tail(g) if group.tail is None else group.tail
        if tail >= 0 and self.on("address behind a tail"):
            last = self.block(tail)
            there = sum(address == tail and status != ABSENT
                        and self.of.group[j] == g for j, (status, address)
                        in enumerate(self.tasks))
            joins = (self.on("a seat for its weight") and last >= block
                     and there < self.of.weights[g])
            block = max(last if joins else last + 1, block)
        group.tail = self.of.seats[g] + self.of.length * block
        if self.of.regular and group.tail < self.turn(g, group.had):
            raise Fault(f"address: {group.tail} is given, but its turn is over")
        self.tasks[i] = (INSERTING, group.tail)

    def rows(self, g):
        return [address for i, (status, address) in enumerate(self.tasks)
                if self.of.group[i] == g
                and status in (INSERTING, READY, CLAIMED)]

    def table_tail(self, g):
        return max(self.rows(g), default=-1)

    # ---- recovery

    def seats_off(self, g, turn=None):
        """The distance from the first seat to the group's seat, or to a turn."""
        if turn is None:
            return (self.of.seats[g] - self.first) % self.of.length
        return turn - self.first

    def is_known(self, g):
        return self.seats_off(g) < self.known

    def is_unsure(self, g):
        """Whether service had passed the seat in the block in which recovery
        began, and the seat is not known yet.
        """
        return (not self.is_known(g)
                and self.turn(g, 0) < self.first)

    def lose(self, restart):
        """SQL changed rows, or all hints are lost. Recovery begins."""
        if restart:             # all groups had a turn in the previous block
            self.position -= self.position % self.of.length + 1
        for g, group in enumerate(self.groups):
            had = restart or group.had
            # turns that yielded no task are not given back, nor are turns in
            # flight
            served = restart or (group.served and self.on("served stays"))
            self.groups[g] = Group((0, 0, int(served), 0, 0, None, None,
                                     int(had), 0))
        self.last = (-1, 0)
        self.number_of += 1
        self.first, self.known = self.position + 1, 0

    def can_lose(self):
        """Whether rows may change now. In a regular scenario no group may be in
        front at that moment."""
        return not self.of.regular or not any(
            address < self.turn(g, 1) and not group.had
            and self.turn(g, 0) <= self.position
            for g, group in enumerate(self.groups)
            for i, (status, address) in enumerate(self.tasks)
            if self.of.group[i] == g and status in (INSERTING, READY))

    def scan(self):
        """Reads which group has rows at the next seat."""
        found = tuple(g for g in range(len(self.groups))
                      if self.seats_off(g) == self.known and self.rows(g))
        self.scans.append((self.number_of, self.known, self.known + 1, found))

    def note(self, scan):
        self.scans.remove(scan)
        number, start, known, found = scan
        if number != self.number_of and self.on("old steps are void"):
            return
        if start != self.known:         # other steps have been stored first
            return
        for g in found:
            group = self.groups[g]
            if group.entry is None and self.on("recovered is late"):
                group.late = 1
            if self.on("recovered in the ring"):
                self.enter(g)
        self.known = known

    def is_covered(self, turn, front):
        return (front or self.known == self.of.length
                or self.seats_off(None, turn) < self.known
                or not self.on("covered"))

    # ---- published tasks

    def enter(self, g):
        """Every group enters the ring here."""
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
        if not self.is_known(g) and not self.on("published counts"):
            return
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
                         and self.on("published behind is late"))
            if self.on("late stays") and (group.ring or group.parked):
                behind |= group.late
            group.late = behind
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
        group.tail = None
        # the entry loses what it knows of an unused turn, so that turn is lost
        group.vain = 0

    # ---- turns

    def can_take(self):
        """Whether a turn can be taken. If not, recovery must continue first."""
        if self.goes_on() is not None:
            return True
        after = self.next_turn()
        return after is not None and self.is_covered(*after[1:])

    def goes_on(self):
        """The group whose turn may take more tasks, or None."""
        if self.on("a turn continues"):
            for g, group in enumerate(self.groups):
                if group.ring and self.in_turn(g):
                    return g
        return None

    def in_turn(self, g):
        """Whether the last turn is that of the group, and may take more
        tasks."""
        turn, left = self.last
        return left > 0 and turn % self.of.length == self.of.seats[g]

    def next_turn(self):
        """Returns (group, address of the turn, is it in front), or None if the
        known part of the ring is empty."""
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
        """Whether the group has a slot, and a ready task that is not in
        flight."""
        if self.groups[g].parked:
            return False
        free = set(self.ready(g))
        mine = [turn[2] for turn in self.turns if turn[0] == g]
        free -= {self.number(item) for item in mine if item != READ}
        return len(free) > mine.count(READ)

    def check_passed(self, g, turn):
        for other, group in enumerate(self.groups):
            if (other != g and self.turn(other, group.had) < turn
                    and not self.is_unsure(other) and self.waits(other)):
                raise Fault(f"passed over: {self.of.name(other)} waits for"
                            f" {self.turn(other, group.had)}, and"
                            f" {self.of.name(g)} is served at {turn}")

    def enter_block(self):
        for g, group in enumerate(self.groups):
            if group.front:
                raise Fault(f"the front: {self.of.name(g)} is still in front")
            group.had = 0
            if self.on("served in one block"):
                group.served = 0
        self.last = (-1, 0)

    def take(self, entries=True):
        """Takes the next turn, or the rest of the last turn. Returns the group that
        was served, and what it holds: the task's address, READ, or None if there
        was no task.
        """
        g = self.goes_on()
        first = g is None
        if first:
            g, turn, front = self.next_turn()
            if not self.is_covered(turn, front):
                raise Fault("a turn is taken that recovery does not allow yet")
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

    def pass_over(self, g):
        """Passes over the group in the ring whose turn is next, since no entry
        is free."""
        group = self.groups[g]
        if group.had:
            raise Fault(f"twice: {self.of.name(g)}, passed over")
        group.had = 1
        group.late |= int(self.on("passed over is late"))
        if self.on("passed over is served"):
            group.served, group.front = 1, 0

    def give_back(self, held, rule):
        """Gives back a turn that yields no task, because its group has left
        the ring."""
        g, turn, _, _, _ = held
        group = self.groups[g]
        same = self.block(turn) == self.block(self.position)
        whole = self.is_whole(held)
        if same and whole:
            group.had = 0
        if (same or not self.on("back in its block")) and self.on(rule) and (
                whole or not self.on("back if whole")):
            group.served = 0

    def is_whole(self, held):
        """Whether no other call can have continued the turn."""
        g, turn, _, _, first = held
        weight = self.of.weights[g]
        return first and (weight == 1 or self.last == (turn, weight - 1))

    def call_leaves(self, g):
        """Records that the call leaves the lane. It had a turn of the group
        that yielded no task, because another call was reading.
        """
        group = self.groups[g]
        same = group.vain == self.block(self.position) + 1
        group.vain = 0
        if same:
            group.had = 0
        if (same or not self.on("vain in its block")) and self.on(
                "leaving gives back"):
            group.served = 0
            if group.ring:
                self.enter(g)

    # ---- the end of turns

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
        """Claims the task that was taken. If the task is gone, claims the next
        one in the same turn. Returns the number of the task, or None.
        """
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
        if group.entry is None:         # evicted meanwhile: this call reads alone
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
        """Whether the group has an entry with an empty hand, and more of its
        line to read."""
        return group.entry is not None and not group.entry[0] \
            and group.entry[1] < INFINITE

    def read_beside(self, held):
        """Reads while another reading changes the entry. This reading serves
        only the turn, and changes no data of the group.
        """
        g, turn, _, _, _ = held
        group = self.groups[g]
        found = self.found(g, group.entry[1])
        if found:
            return self.claimed(found[0], turn)
        if self.is_whole(held):
            # until the call leaves the lane, the turn counts as taken
            group.vain = self.block(turn) + 1
        if self.last[0] == turn:
            self.last = (-1, 0)
        return None

    def next_item(self, group, g):
        """A task of the hand or of the present reading, or None."""
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
        """Reads rows, to the end of the line."""
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
        """Publishes again the task that was taken from the hand."""
        self.turns.remove(held)
        g, _, item, _, _ = held
        if item == READ:
            self.enter(g)
        else:
            self.tell(self.number(item))


    def change_settings(self, held):
        """Acts like a call that finds that settings have changed since it took
        its turn."""
        self.put_back(held)
        if self.position == held[1] and not self.on("the position stays"):
            self.position -= 1
        self.give_back(held, "settings give back")
        if self.on("given back in front"):
            self.enter(held[0])
