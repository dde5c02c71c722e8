"""The ring of one lane: the next group, and the data of groups.

A few groups have one seat each in every block, and a busy group beside them
always has work, so that blocks go by.  The lane keeps its position (the block
that is served, and the seat that service has reached in it) and one bit per
group for each of these:

    ring        may have a ready task
    front       of these, the groups that are served before the position moves on
    served      has had a turn in the block of the position
    parked      has no slot under a limit, and is not in the ring
    late        one of its tasks may be ready below its next turn
    vain        its last turn yielded no task, and the call continues

A group may have an entry in the cache: a hand, its first ready tasks by
address, and "upto": each ready task below that is in the hand, or in
flight.  An entry can be evicted at any time; the bits cannot.

    The next turn of a group is at its seat in the block of the position, or in
    the following block if it has had a turn in this one.  Of the groups in the
    ring the one with the lowest next turn is served.

Rows may be changed behind its back, or shared memory be lost.  Then recovery
begins: after a loss a block; else position and "served" stay.  All other bits are
clear, and the groups that have rows get theirs seat by seat, from the one behind
the position on and round, in steps.  In a step the table is
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

A group that was in front as rows were changed, and is not known yet, may be passed
by in that block.

From "passed by" and "twice" follows the bound: while a group waits, another
one has at most one turn in what is left of the block, and one in the next; and
who has had no turn in the block waits for those in front only, if the position
has passed its seat.
"""

from lane import (ABSENT, BUSY, CLAIMED, GONE, INSERTING, READ, READY, RULES,
                  Group, Lane, at)
from states import Explorer, Fault

__all__ = ["Model", "RULES", "SCENARIOS"]

# In each the tasks, by their groups; the seats, of the busy one last; the
# weights, and the last block.  H is the size of a hand.  What may happen:
# evict, room (who is told finds room for an entry), none (who takes a turn may
# find none), rollback, purge, park, lock, abort, rewrite (rows move), settings
# (change in a call).  turns: how many can be in flight at once; 0: each is
# claimed at once.  resets: how often rows may be changed, or memory be lost, and
# scans: how many steps are under way at once.
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
            if group.vain:
                lane = self.lane(state)
                lane.call_leaves(g)
                yield f"the call leaves that had {self.name(g)} in vain", lane
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

    # ---- when all is quiet, a session alone, until nothing comes

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
