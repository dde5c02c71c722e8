"""The properties that a round must have, under the names that run lists.

The checks count all tasks of a group that calls have returned, also those of a
rolled back pop, because its turn is used.  Steady groups always have work.
Joiners have work from their arrival on.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from itertools import accumulate

from load import BLOCK_LENGTH, block


class Fault(Exception):
    pass


class Account:
    def __init__(self, load):
        self.load, self.shape = load, load.shape
        self.weights = load.shape.weights
        self.calls = sorted((call for call in load.calls
                             if call.rows is not None),
                            key=lambda call: call.sent)
        self.failed = [call for call in load.calls if call.rows is None]
        self.turns = defaultdict(Counter)       # block -> group -> tasks
        self.first_turn = {}                    # id -> its first turn
        self.taken_by = {}                      # id -> the call
        for call in self.calls:
            for group, id, addr in call.rows:
                self.turns[block(addr)][group] += 1
                if addr <= self.first_turn.get(id, addr):
                    self.first_turn[id] = addr
                    self.taken_by[id] = call
        self.last_block = max(self.turns)
        steady = set(self.shape.steady)
        self.of_steady = [[addr for group, _, addr in call.rows
                           if group in steady] for call in self.calls]
        self.joined = {a.group: a for a in load.arrivals
                       if a.group in self.shape.joiners
                       and a.ids[0] in self.first_turn}
        self.beyond = 0     # number of differences that tasks in flight explain
        self.came = 0

    # ---- one turn per block

    def one_turn(self):
        """Checks that no group has two turns in a block."""
        seats = {}
        for call in self.calls:
            for group, _, addr in call.rows:
                if seats.setdefault(group, addr % BLOCK_LENGTH) \
                        != addr % BLOCK_LENGTH:
                    raise Fault(f"{group} has two seats")
        for number, groups in self.turns.items():
            for group, tasks in groups.items():
                if tasks > self.weights[group]:
                    raise Fault(
                        f"{group}, of weight {self.weights[group]}, was served"
                        f" {tasks} tasks in block {number}")

    # ---- no block is left too early

    def missed(self):
        """Yields (block, group, number of missing tasks) of groups that have
        work."""
        since = {group: min(block(addr) for addrs in self.of_steady
                            for addr in addrs)
                 for group in self.shape.steady}
        for group, arrival in self.joined.items():
            since[group] = block(self.first_turn[arrival.ids[0]])
        for group, first in since.items():
            for number in range(first, self.last_block):
                tasks = self.turns[number][group]
                if tasks < self.weights[group]:
                    yield number, group, self.weights[group] - tasks

    def each_turn(self):
        """Service leaves a block only when all groups with work have had their
        turn."""
        for number, group, tasks in self.missed():
            raise Fault(f"{group} was served {tasks} tasks too few in block"
                        f" {number}; the last one is {self.last_block}")

    def few_lost(self):
        """Only calls that were cancelled or disturbed lose turns."""
        lost = sum(tasks for _, _, tasks in self.missed())
        held = sum(call.most for call in self.failed)
        for sent, returned in self.load.changes:
            held += sum(call.most for call in self.calls
                        if call.sent <= returned and call.returned >= sent)
        held *= max(self.weights.values())
        if lost > held:
            raise Fault(f"{lost} tasks too few, but disturbed calls had"
                        f" {held} in flight at most")

    # ---- turns are taken in the order of the calls

    def in_order(self):
        """
        For groups that are never in front, a call that begins after another one has
        returned has later turns.
        """
        returned = sorted((call.returned, max(addrs))
                          for call, addrs in zip(self.calls, self.of_steady)
                          if addrs)
        latest, i = -1, 0
        for call, addrs in zip(self.calls, self.of_steady):
            while i < len(returned) and returned[i][0] < call.sent:
                latest = max(latest, returned[i][1])
                i += 1
            for before, after in zip(addrs, addrs[1:]):
                if after < before:
                    raise Fault(f"{call.worker} had turn {after} after"
                                f" {before} in one call")
            if addrs and addrs[0] < latest:
                raise Fault(f"{call.worker} had turn {addrs[0]} after {latest}"
                            " was returned")

    # ---- two groups that have work

    def pairs(self, count):
        """Yields (g, h, bound in turns, arrivals of g and h if they have
        joined)."""
        groups = self.shape.steady + sorted(self.joined)
        pairs = [(g, h) for g in groups for h in groups if g != h]
        for g, h in self.shape.random.sample(pairs, min(count, len(pairs))):
            joined = [self.joined[x] for x in (g, h) if x in self.joined]
            yield (g, h, 2 if joined else 1, joined)

    def by_turns(self):
        """Over any stretch of turns, the numbers of tasks of two groups differ
        by at most the bound."""
        for g, h, bound, joined in self.pairs(40):
            first = max((block(self.first_turn[a.ids[0]]) for a in joined),
                        default=0)
            addrs = sorted((addr, group) for call in self.calls
                           for group, _, addr in call.rows
                           if group in (g, h) and block(addr) >= first)
            ahead = low = 0
            for addr, group in addrs:
                ahead += (1 if group == g else -1) / self.weights[group]
                low = min(low, ahead)
                if ahead - low > bound + 1e-9:
                    raise Fault(f"{g} is {ahead - low:.2f} ahead of {h}, up to"
                                f" turn {addr}")

    def by_time(self):
        """
        Over any stretch of time, the check counts two groups' tasks in the calls
        that return in it.  The two numbers differ by at most the bound, plus
        tasks in flight.  The tasks in flight are those of the first group at the
        beginning, and those of the second group at the end.
        """
        # if times are equal, more tasks count as in flight, not fewer
        events = sorted(
            [(call.sent, 0, n) for n, call in enumerate(self.calls)]
            + [(call.returned, 1, n) for n, call in enumerate(self.calls)])
        counts = [Counter(group for group, _, _ in call.rows)
                  for call in self.calls]
        for g, h, bound, joined in self.pairs(40):
            begin = max((a.returned for a in joined), default=0)
            ahead = of_g = of_h = 0     # tasks in flight, of calls in progress
            low = alone = None
            for when, is_end, n in events:
                in_g = counts[n][g] / self.weights[g]
                in_h = counts[n][h] / self.weights[h]
                if is_end:
                    ahead += in_g - in_h
                    in_g, in_h = -in_g, -in_h
                of_g += in_g
                of_h += in_h
                if when < begin:
                    continue
                low = ahead + of_g if low is None else min(low, ahead + of_g)
                alone = ahead if alone is None else min(alone, ahead)
                self.beyond += is_end and ahead - alone > bound + 1e-9
                if ahead - of_h - low > bound + 1e-9:
                    raise Fault(
                        f"{g} is {ahead - low:.2f} ahead of {h}, of which"
                        f" {of_h:.2f} are in flight; bound {bound}")

    # ---- groups that become active

    def comes(self):
        """
        Checks that the first task of a newly active group is in the present
        block.  If the group has had its turn, the task is in the next block. So
        it waits for the tasks in flight, and for one turn of each other group.

        A turn without a task, of a group without a slot, may have begun a
        block.  Clients cannot see such a turn.  But in that case no more turns
        are taken in the previous block.
        """
        sent = [call.sent for call in self.calls]
        reached = list(accumulate(
            (max((block(addr) for _, _, addr in call.rows), default=0)
             for call in self.calls), max, initial=self.load.first))
        steady = set(self.shape.steady)
        for arrival in self.load.arrivals:
            turn = self.first_turn.get(arrival.ids[0])
            if turn is None:
                continue            # the round was over before its turn
            self.came += 1
            until = bisect_left(sent, arrival.returned)
            present = reached[until]
            entered = not any(block(addr) <= present
                              for call in self.calls[until:]
                              for _, _, addr in call.rows)
            if block(turn) > max(arrival.last + 1, present + entered):
                raise Fault(
                    f"{arrival.group} came when block {present} was reached at"
                    f" most, had its last turn in {arrival.last}, and was"
                    f" served in {block(turn)}")
            before = Counter()
            for call in self.calls[until:]:
                if call.sent > self.taken_by[arrival.ids[0]].returned:
                    break
                before.update(group for group, _, addr in call.rows
                              if addr < turn and group in steady)
            for group, tasks in before.items():
                if tasks > self.weights[group]:
                    raise Fault(
                        f"{arrival.group} waited for {tasks} tasks of {group},"
                        " which were not in flight when it came")
