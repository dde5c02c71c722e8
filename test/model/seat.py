"""The ring of one lane: the next group, and the data of groups.

Each group has one seat in every block.  A busy group always has work, so that
blocks pass.  The lane stores its position: the present block, and the seat that
service has reached in it.  The lane has one bit per group in each of these
sets:

    ring        may have a ready task
    front       in the ring, and served before the position advances
    served      has had a turn in the present block
    parked      has no slot under a limit, and is not in the ring
    late        one of its tasks may be ready below its next turn
    vain        its last turn yielded no task, and the call continues

A group may have an entry in the cache.  The entry has a hand, the group's first
ready tasks by address.  The entry also has "upto": each ready task below upto
is in the hand, or in flight.  An entry can be evicted at any time, but the bits
cannot.

    The next turn of a group is at its seat in the present block, or in the next
    block if it has had a turn in the present one.  The group in the ring with
    the lowest next turn is served.

SQL may change rows, or shared memory may be lost.  Then recovery begins.  After
a loss, service begins with a new block. After SQL, the position and the bits
"served" stay.  All other bits are clear.  Steps read the table seat by seat,
from the seat after the position, and wrap around.  Each step sets the bits of
the groups that have rows.  A step first reads the table, and later stores the
result. Other steps can run meanwhile.

A step of the model is a section under the lane's lock.  An enqueue gets an
address, an end publishes a task, or a pop takes a turn, claims a task of the hand,
or reads.  hand.py has the races within these sections.  Published, due and
lapsed tasks are the same here.  A pop takes one task at a time.  If the group
has a weight, the next pop continues its turn.

The rules make these promises

stranded    Assume that all calls and transactions are over and no group is
            parked.  Then turns that are taken one after the other serve every
            ready task.
passed over A turn is taken only if no group with a ready task and a slot has a
            lower next turn.  (A turn that yielded no task, because the group
            had no task or no slot, does not count.)
twice       No group has two turns in a block.  A turn counts even if its claim
            was rolled back, or the row was locked.
back        The blocks of the turns that are taken never decrease.
the front   The front is empty when the position enters another block.
address     A task is served at its address, unless a task is late, rolled back,
            purged, parked or locked.  This promise does not apply to an enqueue
            in the middle of its group's own turn.

There is one exception. A group that was in front when SQL changed rows, and is
not known yet, may be passed over in that block.

"passed over" and "twice" imply the bound.  While a group waits, another group
has at most one turn in the rest of the block, and one in the next block.  A
group without a turn in the block waits only for groups in front, if the
position has passed its seat.
"""

from lane import (ABSENT, BUSY, CLAIMED, GONE, INSERTING, READ, READY, RULES,
                  Group, Lane, at)
from states import Explorer, Fault

__all__ = ["Model", "RULES", "SCENARIOS"]

# Each scenario has the tasks (a string of their groups), the seats (the last one is the
# busy group's), the weights and the last block.  H is the size of a hand.  "may" lists the
# events: evict, rollback, purge, park, lock, abort, rewrite (rows move) and settings (they
# change during a call).  Other events are room (a published task finds space
# for an entry) and none (a call that takes a turn may find no space).  turns is the
# largest number of turns in flight. With 0, each turn is claimed immediately.  resets: how
# often rows may change, or memory may be lost.  scans: how many steps of recovery run
# concurrently.
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
    "during a reading": {
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


class Model(Explorer):
    """A scenario, with some of the rules."""

    def __init__(self, scenario, rules):
        self.__dict__.update(SCENARIOS[scenario])
        self.rules = rules
        self.length = len(self.seats)
        self.group = ["abc".index(letter) for letter in self.tasks]
        self.regular = getattr(self, "regular", False)
        # at first the busy group has just been served, and all groups are known
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
        """Whether the turn of task i is over, or an uncommitted task of its
        group precedes the task."""
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
            if group.vain:
                lane = self.lane(state)
                lane.call_leaves(g)
                yield f"a call that found no task of {self.name(g)} leaves", lane
            if group.entry is not None and "evict" in self.may:
                lane = self.lane(state)
                lane.evict(g)
                yield f"{self.name(g)} is evicted", lane
            if group.ring and "taking makes an entry" not in self.rules:
                lane = self.lane(state)
                turn = lane.turn(g, group.served)
                if turn > lane.position and lane.block(turn) <= self.blocks:
                    lane.position = turn
                    yield f"the position advances to {turn}", lane
        if "rewrite" in self.may and not state[5]:
            lane = self.lane(state)
            lane.version = 1
            yield "rows move", lane

    def steps_of_recovery(self, state):
        lane = self.lane(state)
        if lane.number_of < self.resets and not state[4] and lane.can_lose():
            lane.lose(restart=False)
            yield "rows are changed", lane
        lane = self.lane(state)
        if (lane.number_of < self.resets and not state[4]
                and not self.regular):
            lane.lose(restart=True)
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

    # ---- at the end, one session alone, until no task is left

    def check(self, state):
        if state[4] or any(status in (INSERTING, CLAIMED)
                           for status, _ in state[0]):
            return
        lane = self.lane(state)
        for g, group in enumerate(lane.groups):
            if group.parked:
                lane.unpark(g)
            if group.vain:
                lane.call_leaves(g)
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
