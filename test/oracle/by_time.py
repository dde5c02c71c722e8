"""The model of a time-fair queue: it finds the next tenant and the next user.

accounts.py has the rule.  This file keeps the accounts of the groups of a lane or,
if there are tenants, of the tenants and of each tenant's users.  A service is a
fault (kind "order") if another flow that waits properly surely precedes the flow
that is served.  This promise ("order") replaces the same promises as "order" in
cost.py.

Workers report seconds to minutes for some tasks, while a history lasts a
second.  A pop's time is known from the leases that it grants, so each key is
known at that time.  In the following cases the model knows only bounds, and
accepts each possible order.

- If the worker reported no time, or the task was taken, the time of a call is
  used.
- A flow without a task, or a flow that could not be served, may have left its
  order. Then it may get the least got of the other flows when it returns.
- When a lease has ended, even if its task had ended before, each flow of the
  lane may have level 0. From then on the model does not check the order of the
  lane.
- If a transaction ended tasks of several groups, the order of these ends is not
  known.
- The seat of a group that was never served is not known. The same applies to
  the order in which tenants arrive at one call.
- With weights, keys that differ by less than the history has lasted are not
  compared.

No history resets or restarts a time-fair queue.
"""

from accounts import Flows, Ledger
from cost import TIMES
from model import Model
from state import READY, RUNNING, Fault
from tenants import TenantsModel, tenant_of


class TimeLane:
    def __init__(self):
        self.ledger = Ledger()
        self.orders = {}        # tenant, or None for the lane: Flows
        self.leases = []        # instants at which all groups may have lapsed
        self.lapsed = False     # whether some of these instants have passed

    def order(self, tenant=None):
        if tenant not in self.orders:
            self.orders[tenant] = Flows(self.ledger)
        return self.orders[tenant]


class TimeModel(TenantsModel):
    def __init__(self, clock, block_length):
        super().__init__(clock, block_length)
        self.of_time = {}       # priority: TimeLane
        # session: [(length of undo before, what, lane, group, attempt, took, lapsed)]
        self.work = {}
        self.pops = 0
        self.recovered = None   # pops so far when all seats were known
        self.reached = set()    # lanes in which the pop has searched
        self.began = None

    # ---- accounts

    def _time_lane(self, priority):
        return self.of_time.setdefault(priority, TimeLane())

    def _flow(self, order, name):
        most = 0
        if not self.seats_are_new and name not in order.of:
            most = self._most(order)
        return order.have(name, most, self.seats_are_new)

    def _most(self, order):
        now = (self.clock.start, self.clock.end)
        return max([flow.got(now)[1] for flow in order.of.values()] + [0])

    def _path(self, priority, group):
        """(order, flow) of the group, and of its tenant if it has one."""
        lane = self._time_lane(priority)
        if self.settings.separator is None:
            return [(lane.order(), self._flow(lane.order(), group))]
        tenant = tenant_of(group)
        return [(lane.order(tenant), self._flow(lane.order(tenant), group)),
                (lane.order(), self._flow(lane.order(), tenant))]

    def _levels(self, task):
        lane = self._time_lane(task.lane)
        others = [group for group in self.still
                  if group != task.group and not self._passed(group)]
        if self.settings.separator is None:
            return [(lane.order(), task.group, others)]
        tenant = tenant_of(task.group)
        tenants = {tenant_of(group) for group in others} - {tenant}
        return [(lane.order(), tenant, sorted(tenants)),
                (lane.order(tenant), task.group,
                 [group for group in others if tenant_of(group) == tenant])]

    def _account(self, priority, group):
        return self._path(priority, group)[0][1]

    # ---- pops

    def _check_claims(self, session, wanted, claims, per_group, take, lease):
        now = self.clock.start, self.clock.end
        first = self.tasks.get(claims[0].id) if claims else None
        if claims and not take:
            now = (claims[0].lease_until - lease,) * 2
        if self.began is None:
            self.began = now[0]
        for priority in () if take else self.lanes:
            # the server records the end of the lease before it claims a task
            self._time_lane(priority).leases += [self.clock.start + lease,
                                                 self.clock.end + lease]
        self.pops += 1
        self.now, self.reached = now, set()
        settings = self.settings_of(session)
        self.comes_to = lambda priority: not settings.paused and (
            first is not None and priority == first.lane
            or per_group is None and not self.stopped)
        self.room = self._queue_places(session) > 0
        super()._check_claims(session, wanted, claims, per_group, take, lease)
        if len(claims) < wanted or self.stopped or per_group:
            self._visited_all(session)
        if (len(claims) < wanted and per_group is None and not self.stopped
                and not settings.paused):
            if self.recovered is None and settings.max_running is None:
                self.recovered = self.pops
            if self._queue_places(session) > 0 and not self.blind:
                self._see_who_is_out(bool(claims))

    def _waiting(self, session, lane):
        steady = {group for group, fifo in lane.groups.items()
                  if fifo.waits_since is not None}
        waiting = super()._waiting(session, lane)
        priority = next(p for p, other in self.lanes.items() if other is lane)
        if priority not in self.reached:
            self.reached.add(priority)
            self._arrive(priority, steady & waiting, waiting)
        return waiting

    def looked(self, session):
        self.now, self.reached = (self.clock.start, self.clock.end), set()
        self.comes_to, self.room = lambda priority: False, False
        self.pops += 1
        super().looked(session)
        for lane in self.lanes.values():
            self._waiting(session, lane)
        self._visited_all(session)

    def _arrive(self, priority, steady, waiting):
        """Records that the pop visits a lane, and takes up the groups that
        have become active."""
        lane = self._time_lane(priority)
        sure = self.room and self.comes_to(priority)
        for group in self.lanes[priority].groups:
            flow = self._account(priority, group)
            if group not in steady:
                flow.leaves()
        if self.settings.separator is not None:
            for name, flow in lane.order().of.items():
                if not self._is_among(name, steady):
                    flow.leaves()
        if any(instant <= self.clock.end for instant in lane.leases):
            self._lapse(lane, sure)
        # the least got among the lane's flows, before any of them arrives
        of_lane = lane.order().least(self.now)
        for tenant in sorted(lane.orders, key=lambda name: (name is None, name)):
            order = lane.order(tenant)
            least = of_lane if tenant is None else order.least(self.now)
            for name, flow in order.of.items():
                is_tenant = tenant is None and self.settings.separator is not None
                self._flow_arrives(priority, order, flow, least, is_tenant,
                                   sure, self._is_among(name, waiting))

    def _flow_arrives(self, priority, order, flow, least, is_tenant, sure,
                      waits):
        there = flow.there
        if there is False and not waits and (
                self._is_away(flow.name, priority) if is_tenant else
                self._has_nothing(flow.name,
                                  self.lanes[priority].groups[flow.name])):
            return
        order.arrives(flow, least, self.now, self.pops, sure, waits)
        if is_tenant and there and self._time_lane(priority).ledger.longest[1]:
            order.forgive(flow, least, self.now, False)

    def _visited_all(self, session):
        """Records that the last turns may have yielded no task."""
        for priority in self.reached:
            for order in self._time_lane(priority).orders.values():
                gots = [flow.got(self.now) for flow in order.of.values()
                        if flow.there is not False]
                order.start = (min([order.start[0]] + [low for low, _ in gots]),
                               max([order.start[1]] + [high for _, high in gots]))
                if self.per_group:
                    for flow in order.of.values():
                        flow.leaves()

    def _see_who_is_out(self, searched):
        """Call this when a pop has found all tasks. Flows without tasks have
        then left their orders. A pop that found no task may not have searched
        the orders."""
        for priority, lane in self.lanes.items():
            time_lane = self._time_lane(priority)
            for group, fifo in lane.groups.items():
                if not self._has_nothing(group, fifo):
                    continue
                self._is_out(self._account(priority, group), searched)
            if self.settings.separator is not None:
                for name, flow in time_lane.order().of.items():
                    if self._is_away(name, priority):
                        self._is_out(flow, searched)

    def _is_out(self, flow, searched):
        if searched:
            flow.is_out()
            flow.lapsed = False
        else:
            flow.leaves()

    def _lapse(self, lane, sure):
        """The server notes the end of a lease for 64 groups at once."""
        lane.lapsed = True
        for order in lane.orders.values():
            for flow in order.of.values():
                flow.lapsed = True
                flow.there = flow.there or None
        if sure:
            lane.leases = [instant for instant in lane.leases
                           if instant > self.clock.start]

    # ---- services

    def _check_first(self, order, name, others, task):
        served = self._flow(order, name)
        if self._time_lane(task.lane).lapsed:
            return
        doubt = 0
        if any(flow.weight > 1 or flow.lapsed for flow in order.of.values()):
            running = max(len(flow.running) for flow in order.of.values())
            doubt = (self.now[1] - self.began) * (running + 1)
        other = order.before([self._flow(order, other) for other in others],
                             served, self.now, doubt, self._is_first)
        if other:
            raise Fault("order", f"task {task.id} of {name},"
                        f" {self._stand(order, served)}, before {other.name},"
                        f" {self._stand(order, other)}")

    def _stand(self, order, flow):
        low, high = flow.got(self.now)
        return (f"got {low} to {high}, running {len(flow.running)}, weight"
                f" {flow.weight}, level {flow.levels()}, tie {flow.tie}, E"
                f" {order.ledger.longest}")

    def _is_first(self, one, other):
        """Whether one of two flows that arrived certainly precedes the other."""
        seats = self.seats.get(one.name), self.seats.get(other.name)
        by_seat = None not in seats and seats[0] < seats[1]
        calls = one.tie[1], other.tie[1]
        if calls[0] == calls[1]:
            return by_seat
        return calls[0] < calls[1] and (by_seat or (
            self.recovered is not None and calls[1] > self.recovered))

    def _charge(self, order, name, others, task, in_full):
        flow = self._flow(order, name)
        attempt = task.id, task.attempt + 1
        if in_full:
            flow.running[attempt] = self.now
        else:
            start = order.start
            order.serve(flow, attempt, self.now, self._weight(name)[0],
                        self.services if in_full is False else None)
            if in_full is None:
                order.start = (min(start[0], order.start[0]),
                               max(start[1], order.start[1]))
        if name == task.group:
            order.ledger.running += 1

    def _see_waiting(self, order, waiting):
        for name, flow in order.of.items():
            if not self._is_among(name, waiting):
                flow.leaves()

    def _serve(self, session, claim, task, take):
        for what in ("began", "taken") if take else ("began",):
            self._note(session, what, task, attempt=task.attempt + 1)
        was_ready = task.status != RUNNING
        super()._serve(session, claim, task, take)
        fifo = self.lanes[task.lane].groups[task.group]
        path = self._path(task.lane, task.group)
        waits = self._waits(session, task.group, fifo)
        path[0][1].there = waits or None
        for _, flow in path[1:]:
            flow.there = any(
                self._waits(session, group, fifo)
                for group, fifo in self._users(task.lane, flow.name)) or None
        if was_ready and not self._may_have_lapsed(task, fifo):
            # the group's turn has found no task with an ended lease
            path[0][1].lapsed = False
            for _, flow in path[1:]:
                flow.lapsed = any(
                    self._account(task.lane, group).lapsed
                    for group, _ in self._users(task.lane, flow.name))

    def _may_have_lapsed(self, task, fifo):
        """Whether a lease of the group may have ended.  True if other
        transactions may hold the group's tasks."""
        return any(instant <= self.clock.end and other.status == RUNNING
                   for instant, _, other in fifo.timed) or any(
            other is not None and other.group == task.group
            for session, undo in self.undo.items()
            if session != self.single for other, _ in undo)

    # ---- work, whose end is that of a transaction

    def _put(self, task):
        Model._put(self, task)
        if task.status == RUNNING:
            self._time_lane(task.lane).leases.append(task.instant)

    def _note(self, session, what, task, attempt=None, took=None, lapsed=False):
        entry = (len(self.undo.get(session, ())), what, task.lane, task.group,
                 (task.id, attempt or task.attempt), took, lapsed)
        if session in self.undo:
            self.work.setdefault(session, []).append(entry)
        else:
            self._apply([entry], (self.clock.start, self.clock.end))

    def _change(self, session, task, status, last=False, lease=0, **values):
        if task.status == RUNNING:
            if status != RUNNING or "attempt" in values:
                self._attempt_ends(session, task, "lapses" in values)
        elif status not in (READY, RUNNING):
            # the group may have arrived with this task, although no pop served it
            for _, flow in self._path(task.lane, task.group):
                flow.there = flow.there or None
        super()._change(session, task, status, last, lease, **values)

    def _attempt_ends(self, session, task, lapsed):
        flow = self._account(task.lane, task.group)
        began = flow.running[task.id, task.attempt]
        took = None if lapsed else self.took.pop(task.id, None)
        if took is None:
            ended = (task.instant,) * 2 if lapsed else (self.clock.start,
                                                       self.clock.end)
            times = max(ended[0] - began[1], 0), max(ended[1] - began[0], 0)
        else:
            times = took, took
        self._note(session, "ended", task, None, times, lapsed)

    def commit(self, session):
        work = self.work.pop(session, [])
        super().commit(session)
        self._apply(work, (self.clock.start, self.clock.now() + 1))

    def rollback(self, session):
        super().rollback(session)
        self.work.pop(session, None)

    def _undo_to(self, session, length):
        super()._undo_to(session, length)
        work = self.work.get(session, [])
        while work and work[-1][0] >= length:
            _, what, lane, group, attempt, *_ = work.pop()
            if what == "began":
                self._ends(lane, group, attempt)

    def _ends(self, priority, group, attempt):
        self._time_lane(priority).ledger.over(self._path(priority, group),
                                              attempt)

    def _apply(self, work, now):
        """The work of a committed transaction."""
        ends = {}               # lane: {group: tasks}
        for _, what, lane, group, attempt, took, lapsed in work:
            if what == "began":
                continue
            if what == "taken":
                began = self._account(lane, group).running[attempt]
                took = max(now[0] - began[1], 0), max(now[1] - began[0], 0)
            ends.setdefault(lane, {}).setdefault(group, []).append(
                (attempt, *took, lapsed))
        for lane, groups in ends.items():
            self._time_lane(lane).ledger.end(
                [(self._path(lane, group), tasks)
                 for group, tasks in groups.items()], now)

    def _unknown(self, group):
        super()._unknown(group)
        for lane in self.of_time.values():
            for order in lane.orders.values():
                for name in {group, tenant_of(group)} & order.of.keys():
                    flow = order.of[name]
                    now = self.clock.start, self.clock.end
                    flow.lower_to(now, 0, float("inf"))
                    flow.raise_to(now, 0, self._most(order))
                    flow.there = flow.floor = flow.tie = None
                    flow.new = False
