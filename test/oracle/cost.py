"""The model of a cost-fair queue: the next group.

Terms.  A lane has a *virtual time* v.  v is the highest start tag that was
served in the lane, and 0 at first.  Each group has an *account*, the end of
its last service, and a *tie*.  At a service the group's start tag is its
account, or v if that is higher.  The account is then the start tag plus the
task's cost per weight.  This quotient is in units of 2^-32, rounded down, and
at least one.

A group that becomes active without an account, or with one below v, is a
*newcomer*.  A newcomer's place is v.  It precedes all groups with the same place
that were served before.  Newcomers are in the order of their arrival.  Newcomers
between the same two pops are in the order of their seats.  So are all newcomers
while a lane is recovered.  The place of any other group is its account.  Groups
with the same account are in the order of their last services.

One property (kind "order") is checked at every service instead of "turn",
"twice", "back" and "share". The first group of those that wait properly is
served.  The call skips a group that did not wait properly when the call visited
the group.  It also skips a group that has had per_group * w tasks in the call.

A rolled back service stays charged, and each attempt is charged.  In a full
queue expired tasks are served in rounds, as in other queues, and are charged.

The model keeps the lowest and the highest possible value of an account.  The two
differ if the model does not know whether a group has returned since its last
service, or which seat the group has.  The model also keeps two values of v.  A
result that may be correct is not a fault.
"""

import struct

from model import Model
from shares import parts_of
from state import NO_LIMIT, READY, RUNNING, SCHEDULED, Fault

UNIT = 1 << 32
DOUBT = "doubt"
TIMES = 1 << 62                 # addresses from this one on are times
SOON = 3600 * 1000000           # microseconds within which an instant may come


def units(cost, weight):
    """The charge, in the server's float4 arithmetic."""
    def single(value):
        return struct.unpack("f", struct.pack("f", value))[0]

    return max(int(single(single(cost) / weight) * UNIT), 1)


class Account:
    def __init__(self, most=0, known=True):
        self.low, self.high = 0, most
        self.tie = None         # services before its own last service, or None
        self.known = known      # whether it is surely this group's account
        # When it became active: (services, calls) in the lane so far. None
        # means that it has not become active since its last service.
        self.came = None
        self.away = known       # whether it has no task to serve
        self.ran = False        # whether its tasks ran at a recovery

    def is_new(self):
        return self.known and self.tie is None


class Order:
    """The accounts of a lane."""

    def __init__(self):
        self.accounts = {}      # group: Account
        self.low = self.high = 0    # virtual time v
        self.most = 0           # highest end in any account so far
        self.services = self.calls = 0
        self.recovered = None   # calls so far when all seats were known

    def is_newcomer(self, account):
        return account.is_new() or (account.known
                                    and account.high < self.low)

    def is_not(self, account):
        """Whether the group is certainly not a newcomer."""
        return (account.known and account.tie is not None
                and account.low >= self.high)

    def stands_at_most(self, account):
        return self.high if account.is_new() else max(account.high, self.high)

    def came_before(self, one, other, seats):
        """Which of two newcomers is certainly first.  seats has the seats of
        both, or None for an unknown seat.
        """
        if DOUBT in (one.came, other.came) or None in (one.came, other.came):
            return False
        by_seat = None not in seats and seats[0] < seats[1]
        if one.came[1] == other.came[1]:
            return by_seat
        return one.came[0] < other.came[0] and (
            by_seat or (self.recovered is not None
                        and other.came[1] > self.recovered))

    def is_before(self, one, other, seats):
        """Whether one account certainly precedes the other."""
        if self.is_newcomer(other):
            return self.is_newcomer(one) and self.came_before(one, other,
                                                              seats)
        if not self.is_not(other):
            return False
        if self.is_newcomer(one):
            return True
        if self.stands_at_most(one) < other.low:
            return True
        return (one.tie is not None and one.known
                and one.tie < other.tie
                and self.stands_at_most(one) == other.low)


class CostModel(Model):
    def __init__(self, clock, block_length):
        super().__init__(clock, block_length)
        self.orders = {}        # priority: Order
        self.call = None        # the priority that the call serves, or None
        self.each = {}          # group: services of the call in that lane
        self.still = set()      # groups that waited in that lane during the whole call
        self.per_group = None

    # ---- tasks that a call must serve

    def _check_claims(self, session, wanted, claims, per_group, take, lease):
        self.call, self.per_group = None, per_group
        self._next_call()
        super()._check_claims(session, wanted, claims, per_group, take, lease)
        if len(claims) < wanted and per_group is None and not self.stopped:
            settings = self.settings_of(session)
            if not settings.paused and settings.max_running is None:
                for order in self.orders.values():
                    if order.recovered is None:
                        order.recovered = order.calls
        self._next_call()

    def _next_call(self):
        for priority in self.lanes:
            self._order(priority)
        for order in self.orders.values():
            order.calls += 1

    def _levels(self, task):
        """For each level: the order in which the task is served, its flow's
        name there, and the other flows that could have been served instead.
        """
        return [(self._order(task.lane), task.group, self._others(task))]

    def _in_order(self, session, lane, waiting, task, addr, in_full):
        if self.call != task.lane:
            self.call, self.each, self.still = task.lane, {}, set(waiting)
        self.still &= waiting
        self._account(task.lane, task.group)
        levels = self._levels(task)
        if in_full is False:
            if addr < TIMES:
                self.seats[task.group] = addr % self.block_length
            for level in levels:
                self._check_first(*level, task)
            self.each[task.group] = self.each.get(task.group, 0) + 1
        for level in levels:
            self._charge(*level, task, in_full)
        for order, _, _ in levels:
            self._see_waiting(order, waiting)

    def _see_waiting(self, order, waiting):
        for name, other in order.accounts.items():
            if other.came is not None and not self._is_among(name, waiting):
                other.came = DOUBT

    @staticmethod
    def _is_among(name, waiting):
        return name in waiting

    def _passed(self, group):
        """Whether the group has had all of its turns in the call."""
        return (self.per_group is not None and self.each.get(group, 0)
                >= self.per_group * self._weight(group)[0])

    def _others(self, task):
        """The groups that could have been served instead."""
        return [(group, self._account(task.lane, group))
                for group in self.still
                if group != task.group and not self._passed(group)]

    def _check_first(self, order, name, others, task):
        account = order.accounts[name]
        for group, other in others:
            seats = (self.seats.get(group), self.seats.get(name))
            if order.is_before(other, account, seats):
                raise Fault("order", f"task {task.id} of {name}, which"
                            f" is at {self._stand(order, account)}, before"
                            f" {group}, which is at"
                            f" {self._stand(order, other)}")

    @staticmethod
    def _stand(order, account):
        return (f"{account.low / UNIT} to {account.high / UNIT} (tie"
                f" {account.tie}, came {account.came}; v {order.low / UNIT} to"
                f" {order.high / UNIT})")

    def _charge(self, order, name, others, task, in_full):
        account = order.accounts[name]
        low, high = account.low, account.high
        if in_full is False:
            low = max(low, order.low)
        if in_full is not True:
            high = max(high, order.high)
        if in_full is False:
            # none of the other groups that could have been served preceded this
            # group
            high = max(low, min([high] + [
                order.stands_at_most(other) for _, other in others]))
            order.services += 1
            order.low = low
        if in_full is not True:
            order.high = max(order.high if in_full is None else 0, high)
        elif not account.is_new():
            # the group may have become active since its last service, at the
            # place v
            high = max(high, order.high)
        amount = units(self._cost(task), self._weight(name)[0])
        if in_full is True and account.is_new() and not account.away:
            high = max(high, order.high)
        account.low, account.high = low + amount, high + amount
        account.tie, account.known = self.services, True
        account.came, account.away, account.ran = None, False, False
        order.calls += 1
        order.most = max(order.most, account.high)
        self._see_who_left(order, task.lane)

    @staticmethod
    def _cost(task):
        return 1 if task.cost is None else task.cost

    def _see_who_left(self, order, priority):
        """Records that the call has visited the groups that precede v and have
        no tasks."""
        for name, account in order.accounts.items():
            if (account.came is None and not account.away
                    and order.is_newcomer(account)):
                account.away = self._is_away(name, priority)
                account.came = None if account.away else DOUBT

    def _is_away(self, name, priority):
        return self._has_nothing(name, self.lanes[priority].groups[name])

    def _has_nothing(self, group, fifo):
        """Whether the group has no task, and no transaction can return one."""
        return not (
            fifo.tasks
            or any(instant < self.clock.end + SOON
                   for instant, _, _ in fifo.timed)
            or any(task is not None and task.group == group
                   for session, undo in self.undo.items()
                   if session != self.single for task, _ in undo))

    def _parts_of(self, task):
        return parts_of(task.cost or 1)

    def _window(self, session, lane, turns, per_group, short):
        if not short or self.ended or self._queue_places(session) <= 0:
            return
        for group in self._waiting(session, lane) & self.still:
            if not self._passed(group):
                raise Fault("lost", f"{group} waits, and had only"
                            f" {self.each.get(group, 0)} turns")

    # ---- groups that become active

    def _put(self, task):
        super()._put(task)
        account = self._account(task.lane, task.group)
        if not account.away or not (
                task.status in (READY, SCHEDULED)
                or (task.status == RUNNING
                    and task.instant < self.clock.end + SOON)):
            return
        self._comes(task, self._order_of(task.lane, task.group), account)

    def _comes(self, task, order, account):
        account.away = False
        sure = (task.status == READY and task.owner not in self.undo
                and self.settings.limit(task.group) is None
                and self.settings.max_running is None
                and not account.ran
                and not self._runs(task.lane, task.group))
        account.came = (order.services, order.calls) if sure else DOUBT

    def _runs(self, priority, group):
        """Whether the group has running tasks in this lane. If it has, a lease
        or a recovery may show it as ready, so it may have become active before.
        """
        return any(task.status == RUNNING and task.group == group
                   and task.lane == priority for task in self.tasks.values())

    def set(self, session, **values):
        super().set(session, **values)
        self._in_doubt()

    def _in_doubt(self):
        for order in self.orders.values():
            for account in order.accounts.values():
                account.came = account.came and DOUBT

    def rollback(self, session):
        super().rollback(session)
        self._in_doubt()

    def _unknown(self, group):
        super()._unknown(group)
        for order in self.orders.values():
            if group in order.accounts:
                order.accounts[group] = Account(order.most, False)

    def forget(self):
        """Makes all groups equal, in the order of their seats."""
        super().forget()
        self.orders = {}
        for priority, lane in self.lanes.items():
            self._order(priority)
            for group, fifo in lane.groups.items():
                order = self._order_of(priority, group)
                account = order.accounts[group] = Account()
                account.away = self._has_nothing(group, fifo)
                account.ran = self._runs(priority, group)
                if not account.away:
                    account.came = (0, 0) if (
                        not self.undo and fifo.committed
                        and not fifo.timed) else DOUBT

    def _order(self, priority):
        return self.orders.setdefault(priority, Order())

    def _order_of(self, priority, group):
        """The order in which the group is served."""
        return self._order(priority)

    def _account(self, priority, group):
        return self._have(self._order_of(priority, group), group)

    def _have(self, order, name):
        if name not in order.accounts:
            order.accounts[name] = (Account() if self.seats_are_new
                                    else Account(order.most, False))
        return order.accounts[name]
