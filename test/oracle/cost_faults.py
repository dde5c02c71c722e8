"""A correct cost-fair queue, and faults of its order. Each fault is a small
change to the queue. Each class names the kinds of fault that the model may
report for it.
"""

from cost import units
from fake import Fake
from shares import parts_of


class Accounts:
    """For each group of a lane: (the charges so far, tie)."""

    def __init__(self):
        self.start = 0          # the virtual time
        self.of = {}
        self.last_cost = {}
        self.there = set()      # groups that are active
        self.ties = 0

    def tie(self, late):
        self.ties += 1
        return late, self.ties


class FakeByCost(Fake):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.lanes = {}         # lane: Accounts
        self.per_group = None
        self.each = {}          # group: number of its tasks in this call

    def pop(self, session, tasks, per_group, *arguments):
        self.per_group, self.each = per_group, {}
        return super().pop(session, tasks, per_group, *arguments)

    def is_within(self, row, blocks):
        if self.window is None:
            self.window = row.lane, None
        return row.lane == self.window[0]

    def next(self, session):
        lane, rows = self.candidates(session)
        for other, accounts in self.lanes.items():
            if lane is None or other < lane:
                accounts.there.clear()
        if lane is None or self.room_in_queue(session) <= 0:
            return super().next(session)
        groups = {}
        for row in rows:
            groups.setdefault(row.group, []).append(row)
        accounts = self.lanes.setdefault(lane, Accounts())
        for group in sorted(groups.keys() - accounts.there,
                            key=self.seats.get):
            self.comes(accounts, group)
        accounts.there = set(groups)
        left = [group for group in groups if self.per_group is None
                or self.each.get(group, 0)
                < self.per_group * self.weights.get(group, 1)]
        if not left:
            return None
        return self.first(session, groups[min(left, key=accounts.of.get)])

    def comes(self, accounts, group):
        if accounts.of.get(group, (-1,))[0] < accounts.start:
            accounts.of[group] = accounts.start, accounts.tie(False)

    def serve(self, session, row, *arguments):
        accounts = self.lanes.setdefault(row.lane, Accounts())
        self.each[row.group] = self.each.get(row.group, 0) + 1
        amount = accounts.of.get(row.group, (0,))[0]
        if self.room_in_queue(session) > 0:
            amount = accounts.start = max(amount, accounts.start)
        accounts.of[row.group] = (amount + self.charge(accounts, row),
                                  accounts.tie(True))
        return super().serve(session, row, *arguments)

    def charge(self, accounts, row):
        return units(row.cost or 1, self.weights.get(row.group, 1))

    def parts_of(self, row):
        return parts_of(row.cost or 1)


class SavesUp(FakeByCost):
    """A group that becomes active keeps its account, and so is ahead of the
    others.
    """

    def comes(self, accounts, group):
        accounts.of.setdefault(group, (0, accounts.tie(False)))

    def serve(self, session, row, *arguments):
        accounts = self.lanes.setdefault(row.lane, Accounts())
        claim = super().serve(session, row, *arguments)
        accounts.start = 0
        return claim


class NewcomersLast(FakeByCost):
    """A group that becomes active is behind those that were served and have an
    equal account.
    """

    def comes(self, accounts, group):
        if accounts.of.get(group, (-1,))[0] < accounts.start:
            accounts.of[group] = accounts.start, accounts.tie(True)


class ForgivesDebts(FakeByCost):
    """A group that becomes active no longer owes anything."""

    def comes(self, accounts, group):
        accounts.of[group] = accounts.start, accounts.tie(False)


class ForgivesRollbacks(FakeByCost):
    """A rollback undoes the charge."""

    def end(self, session, commit):
        for row, values in self.undo[session]:
            if (not commit and row is not None and row.state == "running"
                    and values["state"] != "running"):
                accounts = self.lanes[row.lane]
                amount, tie = accounts.of[row.group]
                accounts.of[row.group] = amount - self.charge(accounts,
                                                              row), tie
        super().end(session, commit)


class SupposesCosts(FakeByCost):
    """An estimated charge is never corrected."""

    def charge(self, accounts, row):
        supposed = accounts.last_cost.get(row.group, 1)
        accounts.last_cost[row.group] = row.cost or 1
        return units(supposed, self.weights.get(row.group, 1))


class ForgetsWeights(FakeByCost):
    def charge(self, accounts, row):
        return units(row.cost or 1, 1)


COST_FAULTS = {kind: {"order"} for kind in (
    SavesUp, NewcomersLast, ForgivesDebts, ForgivesRollbacks, SupposesCosts,
    ForgetsWeights)}
