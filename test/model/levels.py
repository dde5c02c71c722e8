"""Tenants with users: the next flow in an order of orders.

This is the model of two levels of groups (src/lane/lane_order.c).

A lane serves *flows*: tenants, in the lane's order, and users, each in the order
of its tenant.  Each flow has an account, and each order has a virtual time of its
own.  A service asks the lane's order for a tenant and the tenant's order for a user, and is
charged to both flows.  In cost-fair lanes this is start-time fair queueing at each level.
In task-fair lanes the rule is the same, and each task costs 1.  In time-fair lanes the next
flow at each level is the one with the least

    got + 2 * E * level

as src/README explains.

Lane works like shared memory.  Each flow has some bits, an event changes only
the flows that it concerns, and an order has only flows with ready tasks.

    ring        the flow may have a ready task. A tenant's bit is set if its
                order has a user
    served      is in its order
    todo        the flow has become active, and the next call that takes turns
                adds it
    aside       the flow has no slot, and no call tries it until it has one

Plain is the rule itself: before each service it reads all tasks and slots.
Lane and Plain see the same history of enqueues, services, ends, locked rows,
purges and dead workers.  The history also has limits, holds and pauses of
tenants and of users.  Two calls are in progress at a time.  Each takes a turn,
and claims the task later.  Costs and times have too many values to try all
orders, so histories are random. A seed repeats each of them.

Promises:

turn        The service is of the tenant and the user that the rule names, also if
            several flows are equal.
stranded    If the rule names a user, a user is served.
endless     A call does not try a flow again that has yielded no task.
flat        A call tries a tenant without a slot once, however many users the
            tenant has.
bound       Assume that two tenants, or two users of one tenant, have work and
            slots.  Over any stretch, what they get per weight differs by at most
            l_i / w_i + l_j / w_j, where l is the largest cost of each.  In a
            time-fair lane this holds between tenants if no flow comes or goes,
            and l is the longest task.  Otherwise i is ahead of j by at most
            2 * (E * H_j + l_i), or by its first lead plus the tasks then in
            hand.  H_j is the largest number of tasks of j that
            ran at once, per weight.

The model leaves out three parts that are the same with one level.  One part is
the expected cost of a turn, which is corrected later.  The other parts are the
search through levels, and the maximum debt.  E is the longest task from the
start, and never changes.

`levels.py` prints the largest lead of each scenario, divided by its bound.
"""

from collections import defaultdict
from itertools import combinations
from random import Random

from states import Fault

__all__ = ["Model", "RULES", "SCENARIOS"]

UNIT = 60                       # the unit of amounts; each weight divides it
LONGEST = 40 * UNIT             # the longest task, E

RULES = {
    "a user brings its tenant": "the first user in a tenant's order brings the tenant in",
    "an empty tenant leaves": "a tenant without users to serve is not in the "
                              "order",
    "a tenant banks nothing": "a tenant that becomes active has at least as much as others",
    "a user banks nothing": "a user that becomes active has at least as much as the "
                          "tenant's other users",
    "the tenant is charged": "a turn is charged to the tenant, too",
    "by the tenant's weight": "a turn is charged to the tenant by the tenant's own weight",
    "a virtual time per order": "a user becomes active at its tenant's virtual time",
    "ties per order": "a turn that is given back was the last of its order, "
                      "whatever other tenants got meanwhile",
    "given back to both": "a turn that yields nothing is charged to no flow",
    "the user is passed over": "after a user without a task, the same tenant is asked again",
    "the tenant is passed over": "a tenant whose users were all asked is not asked again",
    "a tenant comes again": "time-fair: a tenant that was passed over has saved nothing meanwhile",
    "a tenant is aside": "a tenant without a slot is out of the order",
    "aside is not brought in": "a tenant aside stays out of the order when a user becomes active",
    "back with its users": "a tenant is back with all users once it has a slot",
    "back in time": "a flow on hold, or without a start under its rate, returns when "
                    "its time comes",
    "lapsed first": "a lapsed task has its slot, and is found at once if its "
                    "tenant has no other task",
    "lapsed is not aside": "a lapsed task is found even if its tenant has no other slot",
    "lapsed comes with its tenant": "a lapsed task is found even if its tenant was aside",
    "the dead one's clock stops": "the running tasks of a dead worker do not delay its tenant",
    "running at both levels": "time-fair: a tenant's level counts the tasks of its users",
    "ended at both levels": "time-fair: the ends of a user's tasks count for its tenant",
}

USUAL = {"by": "cost", "tenants": ((1, (1, 1)), (1, (1,)), (1, (1, 1, 1))),
         "histories": 40, "steps": 300, "may": (), "steady": False}
SCENARIOS = {
    "tasks": {**USUAL, "by": "tasks"},
    "costs": USUAL,
    "costs and weights": {
        **USUAL, "tenants": ((2, (3, 1)), (1, (1, 2)), (3, (1, 5, 1)))},
    "locked rows": {**USUAL, "may": ("lock",)},
    "limits and pauses": {**USUAL, "may": ("limit", "pause")},
    "holds": {**USUAL, "may": ("limit", "hold", "hold", "die")},
    "purges": {**USUAL, "may": ("limit", "pause", "purge", "purge")},
    "dead workers": {**USUAL, "may": ("limit", "pause", "die")},
    "all of it": {
        **USUAL, "tenants": ((2, (3, 1)), (1, (1, 2)), (3, (1, 5, 1))),
        "may": ("lock", "limit", "pause", "hold", "die")},
    "a thousand users": {
        **USUAL, "by": "tasks", "tenants": ((1, (1,)), (1, (1,) * 1000)),
        "histories": 1, "steps": 500, "steady": True},
    "a thousand users of a full tenant": {
        **USUAL, "tenants": ((1, (1,)), (1, (1,) * 1000)), "histories": 2,
        "steps": 300, "steady": True, "may": ("limit", "die")},
    "time, steady": {**USUAL, "by": "time", "steady": True},
    "time": {**USUAL, "by": "time"},
    "time and weights": {
        **USUAL, "by": "time",
        "tenants": ((2, (3, 1)), (1, (1, 2)), (3, (1, 5, 1)))},
    "time, locked rows": {**USUAL, "by": "time", "may": ("lock",)},
    "time, all of it": {
        **USUAL, "by": "time", "may": ("lock", "limit", "pause", "hold", "die")},
}


class Flow:
    """The true state of a tenant or a user."""

    def __init__(self, number, parent, weight):
        self.number, self.parent, self.weight = number, parent, weight
        self.users = []
        self.ready = []                 # the costs or the durations of tasks
        self.running = self.lapsed = 0  # lapsed tasks are running, too
        self.limit, self.paused, self.locked = None, False, False
        self.held = False               # whether it is on hold
        if parent:
            parent.users.append(self)

    def path(self):
        return (self, self.parent) if self.parent else (self,)

    def is_open(self):
        return not self.paused and not self.held

    def has_slot(self):
        return self.is_open() and (self.limit is None
                                   or self.running < self.limit)

    def has_work(self):
        return bool(self.ready or self.lapsed)

    def takes_over(self):
        """Whether a lapsed task may run again.  Such a task needs no slot,
        because it has one."""
        return bool(self.lapsed and self.is_open() and self.parent.is_open())

    def may_start(self):
        """Whether the flow has a slot, or a task that has one."""
        return self.has_slot() or any(
            user.takes_over() for user in self.users or (self,) if user.parent)

    def __str__(self):
        return f"{'user' if self.parent else 'tenant'} {self.number}"


class Account:
    def __init__(self):
        self.got, self.tie = 0, None    # time-fair: what ended tasks have got
        self.n = self.started = 0       # time-fair: numbers of running tasks
        self.stopped = None             # time-fair: when a user lapsed


class Books:
    """The accounts of all flows and orders, which Lane and Plain share."""

    def __init__(self, by_time):
        self.by_time = by_time
        self.of = defaultdict(Account)
        self.v = defaultdict(int)       # keys: a tenant, or None for the lane
        self.ties = defaultdict(int)

    def rule(self, name):
        return True

    def stopped(self, flow):
        """The users whose tasks do not count as running, since one of their
        leases has lapsed."""
        if flow.parent or not self.rule("the dead one's clock stops"):
            return []
        users = [self.of[user] for user in flow.users]
        return [a for a in users if a.stopped is not None]

    def running(self, flow):
        return self.of[flow].n - sum(a.n for a in self.stopped(flow))

    def got(self, flow, now):
        a = self.of[flow]
        late = sum(a.n * (now - a.stopped) for a in self.stopped(flow))
        return a.got + (a.n * now - a.started - late) * UNIT // flow.weight

    def note_lapses(self, user, now):
        """Records that a task of the user lapses, or is taken over."""
        a = self.of[user]
        if not user.lapsed:
            a.stopped = None
        elif a.stopped is None:
            a.stopped = now

    def key(self, flow, now, lapsed):
        """The flow's rank in its order.  The flow with the least rank is
        next."""
        a = self.of[flow]
        if flow.parent:
            first = flow.parent.has_slot() or not (
                lapsed and self.rule("lapsed first"))
        else:
            first = 0
        if not self.by_time:
            return first, a.got, a.tie
        return (first, self.got(flow, now)
                + 2 * LONGEST * (self.running(flow) // flow.weight), a.tie)

    def order(self, flow, ties=False):
        if ties and not self.rule("ties per order"):
            return None
        if not ties and not self.rule("a virtual time per order"):
            return None
        return flow.parent

    def comes(self, flow, least, now):
        a = self.of[flow]
        if not self.by_time:
            least = self.v[self.order(flow)]
        got = self.got(flow, now) if self.by_time else a.got
        banks = not self.rule("a user banks nothing" if flow.parent
                              else "a tenant banks nothing")
        given = 0 if banks else max(least - got, 0)
        a.got += given
        if a.tie is None or given > 0:
            ties = self.order(flow, ties=True)
            self.ties[ties] += 1
            a.tie = (0, self.ties[ties])

    def charge(self, flow, cost, now):
        """Charge a turn.  Returns the function that gives the charge back."""
        a, order = self.of[flow], self.order(flow)
        ties = self.order(flow, ties=True)
        before, start = a.tie, self.v[order]
        self.ties[ties] += 1
        a.tie = tie = (1, self.ties[ties])
        given = amount = 0
        if self.by_time:
            self.v[order] = self.got(flow, now)
            a.n, a.started = a.n + 1, a.started + now
        else:
            weight = flow.weight
            given = max(start - a.got, 0)
            self.v[order] = max(start, a.got)
            amount = cost * UNIT // weight
            a.got += given + amount

        def back():
            same = a.tie == tie
            if self.by_time:
                a.n, a.started = a.n - 1, a.started - now
            else:
                a.got -= amount + (given if same else 0)
                if same and self.ties[ties] == tie[1]:
                    self.v[order] = start
            if same:
                a.tie = before
        return back

    def ended(self, flow, start, now):
        if not self.by_time:
            return
        a = self.of[flow]
        a.n, a.started = a.n - 1, a.started - start
        a.got += (now - start) * UNIT // flow.weight


class Plain(Books):
    """The rule: it reads all flows."""

    def __init__(self, flows, by_time):
        super().__init__(by_time)
        self.flows = flows
        self.present, self.waits, self.again = set(), set(), set()

    def is_lapsed(self, flow):
        return bool(flow.lapsed if flow.parent else
                    any(user.lapsed for user in flow.users
                        if user in self.present))

    def leave(self):
        """Removes the flows without a task or a slot, which the rule leaves
        out."""
        for flow in self.flows:         # which has users before tenants
            has = (flow.has_work() if flow.parent else
                   any(user in self.present for user in flow.users))
            if not has or flow in self.waits:
                self.present.discard(flow)

    def least(self, order, now):
        got = [self.got(flow, now) for flow in self.present
               if flow.parent is order]
        return min(got, default=self.v[order])

    def come(self, now):
        self.leave()
        self.waits -= {flow for flow in self.waits if flow.may_start()}
        users = [flow for flow in self.flows if flow.parent
                 and (flow not in self.present or flow in self.again)
                 and flow not in self.waits and flow.has_work()]
        self.again = set()
        here = [flow.parent for flow in self.present if flow.parent]
        came = defaultdict(lambda: 1 << 30)
        for flow in users:
            came[flow] = flow.number
            if flow.parent not in self.present | self.waits:
                came[flow.parent] = min(came[flow.parent], flow.number)
        for flow in self.flows:
            if not flow.parent and flow not in self.present | self.waits:
                if flow in here:
                    came[flow] = min(came[flow], flow.number)
        least = {flow.parent: self.least(flow.parent, now) for flow in came}
        for flow in sorted(came, key=lambda f: (came[f], f.parent is None)):
            self.comes(flow, least[flow.parent], now)
            self.present.add(flow)

    def best(self, order, passed, now):
        return min((flow for flow in self.present
                    if flow.parent is order and flow not in passed),
                   key=lambda f: self.key(f, now, self.is_lapsed(f)),
                   default=None)

    def next(self, passed, now):
        """(user, whether the call takes over a lapsed task), or None."""
        while True:
            self.come(now)
            tenant = self.best(None, passed, now)
            if tenant is None:
                return None
            user = self.best(tenant, passed, now)
            if user is None:
                passed.add(tenant)
                if self.by_time:
                    self.present.discard(tenant)
            elif user.takes_over():
                return user, True
            elif not user.has_slot() or not tenant.has_slot():
                waits = user if not user.has_slot() else tenant
                self.waits.add(waits)
                self.present.discard(waits)
            else:
                return user, False

    def take(self, user, cost, now):
        backs = [self.charge(flow, cost, now) for flow in user.path()]
        self.leave()

        def back(now):
            for each in backs:
                each()
            if self.by_time:
                self.present.discard(user)
        return back

    def told(self, user, now):
        self.note_lapses(user, now)
        if user.lapsed:
            self.again.add(user)

    def end(self, user, start, now):
        self.note_lapses(user, now)
        for flow in user.path():
            self.ended(flow, start, now)


class Bits:
    def __init__(self):
        self.ring = self.served = self.todo = self.aside = False
        self.until = False              # the flow is aside until some time


class Lane(Books):
    """The lane's algorithm: an event changes only the flows that it concerns."""

    def __init__(self, flows, by_time, rules):
        super().__init__(by_time)
        self.rules = rules
        self.flows = sorted(flows, key=lambda flow: flow.number)
        self.bits = {flow: Bits() for flow in flows}
        self.orders = defaultdict(list)
        self.asked = 0                  # tries since a task was served

    def rule(self, name):
        return name in self.rules

    def is_lapsed(self, flow):
        return bool(flow.lapsed if flow.parent else
                    any(user.lapsed for user in self.orders[flow]))

    def remove(self, flow):
        was_in = self.bits[flow].served
        if was_in:
            self.orders[flow.parent].remove(flow)
        self.bits[flow].served = False
        return was_in

    def add(self, flow):
        self.orders[flow.parent].append(flow)
        self.bits[flow].served = True

    def let_in(self, flow):
        bits = self.bits[flow]
        if not bits.aside:
            bits.ring = True
            bits.todo |= not bits.served

    def touch(self, tenant):
        """Removes the tenant from its order if the change of a user's place
        has left it empty."""
        if not self.orders[tenant] and self.rule("an empty tenant leaves"):
            self.bits[tenant].ring = False
            self.remove(tenant)

    def find_least(self, order, now):
        return min((self.got(flow, now) for flow in self.orders[order]),
                   default=self.v[self.order_of(order)])

    def order_of(self, order):
        return order if self.rule("a virtual time per order") else None

    def enter(self, flow, least, now):
        bits = self.bits[flow]
        bits.todo = False
        self.remove(flow)
        order = flow.parent
        if order not in least:
            least[order] = self.find_least(order, now)
        self.comes(flow, least[order], now)
        self.add(flow)
        if order is None:
            return
        above = self.bits[order]
        if flow.takes_over() and self.rule("lapsed comes with its tenant"):
            above.aside = False
        if above.aside and self.rule("aside is not brought in"):
            return
        if self.rule("a user brings its tenant"):
            above.ring = True
            if not above.served:
                self.enter(order, least, now)

    def add_those_that_come(self, now):
        least = {}
        came = [flow for flow in self.flows if self.bits[flow].todo]
        for order in {flow.parent for flow in came}:
            least[order] = self.find_least(order, now)
        least.setdefault(None, self.find_least(None, now))
        for flow in came:
            if self.bits[flow].todo:
                self.enter(flow, least, now)
        for tenant in {flow.parent for flow in came if flow.parent}:
            self.touch(tenant)

    def best(self, order, passed, now):
        return min((flow for flow in self.orders[order] if flow not in passed),
                   key=lambda f: self.key(f, now, self.is_lapsed(f)),
                   default=None)

    def put_aside(self, flow, now):
        self.bits[flow].ring = self.bits[flow].todo = False
        if self.rule("a tenant is aside") or flow.parent:
            self.bits[flow].aside = True
        self.bits[flow].until = flow.held
        self.remove(flow)
        if flow.parent:
            self.touch(flow.parent)

    def take_back(self):
        for flow, bits in self.bits.items():
            if bits.aside and not bits.until and (
                    flow.has_slot() or flow.parent and flow.takes_over()):
                bits.aside = False
                if flow.parent or self.rule("back with its users"):
                    self.let_in(flow)

    def come_back(self, flow):
        bits = self.bits[flow]
        if bits.aside:
            bits.aside = bits.until = False
            self.let_in(flow)

    def settings_changed(self):
        """Takes all flows back, so that calls try them again."""
        for flow in self.bits:
            self.come_back(flow)

    def next(self, passed, now):
        self.asked = 0
        self.take_back()
        while True:
            self.asked += 1
            if self.asked > 50:
                raise Fault("endless: a call asks the same flow again"
                            if passed else "flat: a call asks all users")
            self.add_those_that_come(now)
            tenant = self.best(None, passed, now)
            if tenant is None:
                return None
            if self.bits[tenant].aside:
                raise Fault("flat: a call asks a tenant that is aside")
            user = self.best(tenant, passed, now)
            if user is not None and not user.has_work():
                self.bits[user].ring = False        # its tasks were purged
                self.remove(user)
                self.touch(tenant)
            elif user is None and not self.orders[tenant]:
                self.bits[tenant].ring = False      # the call returned without a task
                self.remove(tenant)
            elif user is None:
                if self.rule("the tenant is passed over"):
                    passed.add(tenant)
                if self.by_time and self.rule("a tenant comes again"):
                    self.remove(tenant)
                    self.bits[tenant].todo = True
            elif user.takes_over():
                if tenant.has_slot() or self.rule("lapsed is not aside"):
                    return user, True
                self.put_aside(tenant, now)
            elif not user.has_slot() or not tenant.has_slot():
                self.put_aside(user if not user.has_slot() else tenant, now)
            else:
                return user, False

    def take(self, user, cost, now):
        backs = []
        for flow in user.path():
            was_in = self.remove(flow)
            if not flow.parent and not self.rule("the tenant is charged"):
                backs.append(lambda: None)
            else:
                backs.append(self.charge_at(flow, user, cost, now))
            bits = self.bits[flow]
            bits.ring = (flow.has_work() if flow.parent
                         else bool(self.orders[flow])
                         or not self.rule("an empty tenant leaves"))
            if was_in and bits.ring:
                self.add(flow)
        self.touch(user.parent)

        def back(now):
            for flow, each in zip(user.path(), backs):
                if flow.parent or self.rule("given back to both"):
                    each()
            was_in = self.remove(user) and not self.by_time
            if was_in:
                self.add(user)
            else:
                self.let_in(user)
            self.touch(user.parent)
        return back

    def charge_at(self, flow, user, cost, now):
        if flow.parent or self.rule("by the tenant's weight"):
            if (flow.parent or not self.by_time
                    or self.rule("running at both levels")):
                return self.charge(flow, cost, now)
            return lambda: None
        weight, flow.weight = flow.weight, user.weight
        back = self.charge(flow, cost, now)
        flow.weight = weight
        return back

    def told(self, user, now):
        """Records that a task became ready, or has lapsed, which changes the
        user's place."""
        self.note_lapses(user, now)
        self.let_in(user)
        if user.lapsed and not self.bits[user].aside:
            self.bits[user].todo = True

    def end(self, user, start, now):
        self.note_lapses(user, now)
        for flow in user.path():
            if flow.parent or self.rule("ended at both levels"):
                self.ended(flow, start, now)
        self.touch(user.parent)


class Leads:
    """The service that flows got, and the greatest difference between two flows
    of the same order.
    """

    def __init__(self, flows, by, steady):
        self.by, self.steady = by, steady
        self.pairs = [(i, j) for i, j in combinations(flows, 2)
                      if i.parent is j.parent][:200]
        self.total = defaultdict(int)
        self.largest = defaultdict(int)
        self.most = defaultdict(int)
        self.span = {}
        self.measured = 0

    def is_busy(self, flow):
        if flow.locked or not flow.has_slot() or flow.lapsed:
            return False
        if flow.parent:
            return bool(flow.ready)
        return (any(self.is_busy(user) for user in flow.users)
                and not any(u.locked or u.lapsed for u in flow.users))

    def bound(self, i, j):
        """The bound for cost-fair lanes, and for time-fair lanes in which no
        flow comes or goes."""
        if self.by == "time":
            return (self.largest[i] + self.largest[j]) * UNIT
        return sum(self.largest[f] * UNIT / f.weight for f in (i, j))

    def check_lead(self, i, j, lead):
        low, high = self.span.get((i, j), (lead, lead))
        self.span[i, j] = low, high = min(low, lead), max(high, lead)
        self.compare(i, j, high - low, self.bound(i, j))

    def check_ahead(self, i, j, lead):
        """The bound also admits the lead that i had when both became active,
        plus the tasks in hand."""
        hand = (i.running // i.weight + 1) * self.largest[i] * UNIT
        start = self.span.setdefault((i, j), lead + hand)
        level = -(-self.most[j] // j.weight)
        self.compare(i, j, lead, max(start, 2 * (
            LONGEST * level + self.largest[i] * UNIT)))

    def compare(self, i, j, lead, bound):
        if lead > bound:
            raise Fault(f"bound: {i} is {lead} ahead of {j}, over {bound}")
        if bound:
            self.measured = max(self.measured, lead / bound)

    def check(self, got, present):
        for flow in {flow for pair in self.pairs for flow in pair}:
            self.most[flow] = max(self.most[flow], flow.running)
        for i, j in self.pairs:
            if not (self.is_busy(i) and self.is_busy(j)
                    and {i, j} <= present):
                self.forget(i, j)
            elif self.by != "time" or self.steady and not i.parent:
                self.check_lead(i, j, got(i) - got(j))
            else:
                self.check_ahead(i, j, got(i) - got(j))
                self.check_ahead(j, i, got(j) - got(i))

    def forget(self, i, j):
        self.span.pop((i, j), None)
        self.span.pop((j, i), None)


class History:
    """One history.  Lane and Plain get the same events."""

    def __init__(self, scenario, seed, rules):
        self.__dict__.update(SCENARIOS[scenario])
        self.random = Random(f"{scenario} {seed}")
        self.trace, self.now = [], 0
        self.make_flows()
        by_time = self.by == "time"
        self.lane = Lane(self.flows, by_time, rules)
        self.plain = Plain(self.flows, by_time)
        self.leads = Leads(self.flows, self.by, self.steady)
        self.turns, self.tasks = [], []     # turns in flight; running tasks
        self.workers = self.random.randint(2, 7)
        self.scale = {user: self.random.choice((1, 4, 40))
                      for user in self.users}

    def make_flows(self):
        """Numbers are in random order, so a tenant's number precedes those of
        some of its users.
        """
        numbers = list(range(sum(1 + len(t[1]) for t in self.tenants)))
        self.random.shuffle(numbers)
        tenants = [Flow(numbers.pop(), None, t[0]) for t in self.tenants]
        self.users = [Flow(numbers.pop(), tenant, weight)
                      for tenant, of in zip(tenants, self.tenants)
                      for weight in of[1]]
        self.flows = self.users + tenants

    def run(self):
        if self.steady:
            for user in self.users:
                self.enqueue(user, 2)
        if "limit" in self.may:
            for flow in self.flows:
                if self.random.random() < 0.4:
                    flow.limit = self.random.randint(1, 3)
        for _ in range(self.steps):
            self.random.choices(
                (self.step_enqueue, self.step_take, self.step_settle,
                 self.step_end, self.step_change), (2, 4, 4, 3, 1))[0]()
            self.check()
        self.drain()

    def check(self):
        if self.by == "time":
            self.leads.check(lambda flow: self.plain.got(flow, self.now),
                             self.plain.present)
        else:
            self.leads.check(lambda flow: self.leads.total[flow],
                             set(self.flows))

    def say(self, what):
        self.trace.append(f"{self.now}: {what}")

    def enqueue(self, user, n):
        for _ in range(n):
            user.ready.append(1 if self.by == "tasks" else
                              self.random.randint(1, self.scale[user]))
        self.say(f"{n} tasks of {user} of {user.parent}")
        self.lane.told(user, self.now)
        self.plain.told(user, self.now)

    def step_enqueue(self):
        users = self.users
        if self.steady:
            users = [user for user in users if len(user.ready) < 2]
            if len(users) > 20:
                users = users[:20]
        if users:
            self.enqueue(self.random.choice(users), self.random.randint(1, 4))

    def step_take(self, passed=None):
        if len(self.turns) == 2 or len(self.turns) + sum(
                not task[3] for task in self.tasks) >= self.workers:
            return False
        passed = passed or (set(), set())
        named = self.plain.next(passed[1], self.now)
        found = self.lane.next(passed[0], self.now)
        if named and not found:
            raise Fault(f"stranded: {named[0]} of {named[0].parent}")
        if found != named:
            raise Fault(f"turn: {found[0]} of {found[0].parent} is served"
                        + (f", not {named[0]} of {named[0].parent}"
                           if named else ""))
        if found is None:
            return False
        self.take(*found, passed)
        return True

    def take(self, user, takes_over, passed):
        if takes_over:
            user.lapsed -= 1
            task = next(task for task in self.tasks
                        if task[0] is user and task[3] == "lapsed")
            self.tasks.remove(task)
            cost = task[2]
            self.lane.end(user, task[1], self.now)
            self.plain.end(user, task[1], self.now)
        else:
            cost = user.ready.pop(0)
            for flow in user.path():
                flow.running += 1
        self.say(f"a turn of {user} of {user.parent}, {cost}")
        backs = [each.take(user, cost, self.now)
                 for each in (self.lane, self.plain)]
        for flow in user.path():
            self.leads.total[flow] += cost * UNIT // flow.weight
            self.leads.largest[flow] = max(self.leads.largest[flow], cost)
        turn = (user, cost, backs, passed)
        if takes_over:
            self.claim(turn)
        else:
            self.turns.append(turn)

    def step_settle(self):
        if not self.turns:
            return
        turn = self.turns.pop(self.random.randrange(len(self.turns)))
        if not turn[0].locked:
            self.claim(turn)
            return
        user, cost, backs, passed = turn
        self.say(f"{user} yields nothing")
        user.ready.insert(0, cost)
        for flow in user.path():
            flow.running -= 1
            self.leads.total[flow] -= cost * UNIT // flow.weight
        for pair in self.leads.pairs:
            if set(pair) & set(user.path()):
                self.leads.forget(*pair)
        for back in backs:
            back(self.now)
        passed[1].add(user)
        passed[0].add(user if self.lane.rule("the user is passed over")
                      else user.parent)
        if self.step_take(passed) and self.random.random() < 0.7:
            self.step_settle()

    def claim(self, turn):
        user, cost = turn[:2]
        dies = "die" in self.may and self.random.random() < 0.15
        self.tasks.append((user, self.now, cost, "dead" if dies else ""))

    def step_end(self):
        """Advances the clock to the next end. In a cost-fair lane any task may
        end."""
        if self.by != "time":
            alive = [task for task in self.tasks if task[3] != "lapsed"]
            if alive:
                self.finish(self.random.choice(alive))
            return
        if self.turns:                  # a claim takes no time
            self.step_settle()
            return
        while True:
            alive = [task for task in self.tasks if task[3] != "lapsed"]
            if not alive or self.random.random() < 0.3:
                break
            task = min(alive, key=lambda t: t[1] + t[2])
            self.now = max(self.now, task[1] + task[2])
            self.finish(task)
            if self.steady:
                while self.step_take():
                    self.step_settle()
                    self.check()

    def finish(self, task):
        user, start, cost, state = task
        self.tasks.remove(task)
        if state == "dead":
            self.say(f"a task of {user} of {user.parent} has lapsed")
            self.tasks.append((user, start, cost, "lapsed"))
            user.lapsed += 1
            self.lane.told(user, self.now)
            self.plain.told(user, self.now)
            return
        self.say(f"a task of {user} of {user.parent} has ended")
        for flow in user.path():
            flow.running -= 1
        self.lane.end(user, start, self.now)
        self.plain.end(user, start, self.now)
        if self.steady:
            self.enqueue(user, 1)

    def step_change(self):
        if not self.may:
            return
        flow = self.random.choice(self.flows)
        what = self.random.choice(self.may)
        if what == "lock":
            flow = self.random.choice(self.users)
            flow.locked = not flow.locked and self.random.random() < 0.6
        elif what == "purge":
            flow = self.random.choice(self.users)
            flow.ready.clear()
        elif what == "pause":
            flow.paused = not flow.paused and self.random.random() < 0.6
        elif what == "hold":
            self.hold(flow)
            return
        elif what == "limit" and not self.steady:
            flow.limit = self.random.choice((None, 1, 2, 3))
        if what in ("limit", "pause"):
            self.lane.settings_changed()
            self.plain.waits.clear()
        self.say(f"{what}: {flow} {flow.locked or flow.paused or flow.limit}")

    def hold(self, flow):
        """Begins a hold as settings change, or ends it as its time comes."""
        flow.held = not flow.held
        self.say(f"hold: {flow} {flow.held}")
        if flow.held:
            self.lane.settings_changed()
            self.plain.waits.clear()
            return
        if self.lane.rule("back in time"):
            self.lane.come_back(flow)
        self.plain.waits.discard(flow)

    def drain(self):
        """When all calls are over, every ready task must have been served."""
        for flow in self.flows:
            flow.locked = flow.paused = flow.held = False
            flow.limit = None if not self.steady else flow.limit
        self.lane.settings_changed()
        self.plain.waits.clear()
        self.workers = 1 << 30
        steady, self.steady = self.steady, True
        if steady:
            return
        self.steady = False
        while True:
            while self.turns:
                self.step_settle()
            if self.step_take():
                continue
            alive = [task for task in self.tasks if task[3] != "lapsed"]
            if not alive:
                break
            self.now = max(self.now, max(t[1] + t[2] for t in alive))
            for task in alive:
                self.finish(task)
        left = [user for user in self.users if user.has_work()]
        if left:
            raise Fault(f"stranded: {left[0]} of {left[0].parent}")


class Model:
    """A scenario, with some of the rules."""

    def __init__(self, scenario, rules):
        self.scenario, self.rules = scenario, rules
        self.states, self.measured = 0, 0

    def explore(self, most=None):
        """Returns None, or (a fault, what led to it)."""
        for seed in range(SCENARIOS[self.scenario]["histories"]):
            if most is not None and self.states >= most:
                break
            history = History(self.scenario, seed, self.rules)
            try:
                history.run()
            except Fault as fault:
                return str(fault), history.trace
            self.states += len(history.trace)
            self.measured = max(self.measured, history.leads.measured)
        return None


if __name__ == "__main__":
    for name in SCENARIOS:
        model = Model(name, frozenset(RULES))
        print(f"{name:<34} {model.explore() or ''} {model.measured:.3f}")
