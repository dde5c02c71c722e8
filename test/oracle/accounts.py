"""The accounts of a time-fair lane, as bounds.  The accounts decide which flow
is next.

Flows are the groups of a lane, or its tenants, or the users of a tenant.  The
next flow has the lowest key among the flows with a task to serve:

    got + 2 * E * level     got: the times of its ended tasks and of its running
                            tasks so far, per weight.  level: running tasks per
                            weight, rounded down.  E: the longest recent task

Before any task has ended, the level decides, and got decides between equal
levels.  When a flow becomes active, its got is raised to the least got of the
active flows.  If got was raised, or if the flow is new, the flow precedes all
others with the same key, except those that arrived before.  Flows that arrive
at the same call are in the order of their seats.  All other flows are in the
order of their last services.  A flow that owes more than 16 E, and 2 E for each
running task, is forgiven the rest.

A quantity that is not known has two bounds.  Times are in microseconds.  A moment is
a pair of the earliest and the latest possible time.
"""

MOST_OWED = 16
MOST_LEVELS = 8                 # levels that the server compares
EARLY, LATE = 0, 1              # kinds of ties
WEIGHED = 1                     # greatest error of a division by a weight


class Flow:
    def __init__(self, name, most=0, new=True):
        self.name = name
        self.low, self.high = 0, most   # time of ended tasks, per weight
        self.weight = 1         # the weight at its last service
        self.running = {}       # task: the moment at which the task began
        # whether it is in its order; None: not known
        self.there = False if new else None
        # lower bound of its got, if the flow has left its order and arrived
        # again since
        self.floor = None
        self.new = new          # whether the flow never arrived
        self.tie = None         # (kind, services or calls), or None
        self.lapsed = False     # whether lapsed leases may make its level 0

    def so_far(self, now):
        began = self.running.values()
        return (sum(max(now[0] - at[1], 0) for at in began) / self.weight,
                sum(max(now[1] - at[0], 0) for at in began) / self.weight)

    def got(self, now):
        low, high = self.so_far(now)
        return self.low + low, self.high + high

    def mean_age(self, now):
        n = max(len(self.running), 1)
        return [time * self.weight / n for time in self.so_far(now)]

    def levels(self):
        level = len(self.running) // self.weight
        return 0 if self.lapsed else level, level

    def raise_to(self, now, low, high):
        """Raises the bounds of the flow's got to at least low and high."""
        was = self.got(now)
        self.low += max(low - was[0], 0)
        self.high += max(high - was[1], 0)

    def lower_to(self, now, low, high):
        was = self.got(now)
        self.low -= max(was[0] - low, 0)
        self.high -= max(was[1] - high, 0)

    def leaves(self):
        """Records that the flow may have left its order."""
        if self.there:
            self.there = None
            self.floor = None

    def is_out(self):
        self.there, self.floor = False, None


class Ledger:
    """The common data of the accounts of a lane."""

    def __init__(self):
        self.longest = 0, 0     # bounds of E
        self.running = 0

    def over(self, path, task):
        """Records that a task no longer runs.  path has (order, flow) of the
        task's group, and of its tenant if the queue has tenants."""
        self.running -= task in path[0][1].running
        for _, flow in path:
            flow.running.pop(task, None)

    def end(self, ends, now):
        """Records that a transaction has ended tasks.  ends has, for each
        group, its path, and (task, least time, most time, whether its lease had
        ended) of each task."""
        ran, was = self.running, self.longest
        before = [(order, flow, flow.got(now), order.least(now, flow))
                  for path, _ in ends for order, flow in path]
        works = []
        for path, tasks in ends:
            for task, *_ in tasks:
                self.over(path, task)
            for _, flow in path:
                flow.low += sum(low for _, low, _, _ in tasks) / flow.weight
                flow.high += sum(high for _, _, high, _ in tasks) / flow.weight
            own = [(low, high) for _, low, high, lapsed in tasks if not lapsed]
            if own:
                works.append((own, path[0][1].mean_age(now)))
        if works:
            self._note(works)
        if self.longest[1] == 0:
            return
        longest = self.longest
        if len(ends) > 1:
            lowered = sum(high for own, _ in works for _, high in own) / 128
            longest = (max(min(was[0] - lowered, longest[0]), 0),
                       max(was[1], longest[1]))
        for order, flow, got, least in before:
            after = order.least(now, flow)
            least = min(least[0], after[0]), max(least[1], after[1])
            if flow.got(now)[1] > got[0]:
                order.forgive(flow, least, now, flow.got(now)[0] > got[1],
                              (self.running, ran), longest)

    def _note(self, works):
        """works has (times, mean age of the other running tasks) of each group.
        The model does not know in which order the server adds the groups."""
        low = high = 0
        total = [sum(times[i] for own, _ in works for times in own)
                 for i in (0, 1)]
        for own, age in works:
            others = total[1] - sum(most for _, most in own)
            low = max(low, max(age[0], *(least for least, _ in own))
                      - others / 128)
            high = max(high, age[1], *(most for _, most in own))
        self.longest = (max(self.longest[0] - total[1] / 128, low, 1),
                        max(self.longest[1] - total[0] / 128, high, 1))


class Flows:
    """The flows of one order."""

    def __init__(self, ledger):
        self.ledger = ledger
        self.of = {}
        self.start = 0, 0       # got of the flow that was served last

    def have(self, name, most=0, new=True):
        if name not in self.of:
            self.of[name] = Flow(name, most, new)
        return self.of[name]

    def least(self, now, but=None):
        """The least got of the flows in the order.  If the order has no flow,
        the result is the got of the flow that was served last."""
        there = [(flow, flow.got(now)) for flow in self.of.values()
                 if flow is not but and flow.there is not False]
        sure = [got for flow, got in there if flow.there]
        if sure:
            return (min(low for _, (low, _) in there),
                    min(high for _, high in sure))
        return (min([low for _, (low, _) in there] + [self.start[0]]),
                max([high for _, (_, high) in there] + [self.start[1]]))

    def arrives(self, flow, least, now, call, sure, waits=True):
        """Adds a flow to the order when the flow has become active. sure is
        true if the call surely visited this order.  waits is true if the flow
        surely has a task to serve."""
        if flow.there and not flow.lapsed:
            return
        got = flow.got(now)
        came = sure and waits and flow.there is False
        if flow.there is False:
            flow.floor = least[0]
        elif flow.floor is not None:
            flow.floor = min(flow.floor, least[0])
        if sure and waits and flow.floor is not None:
            flow.raise_to(now, flow.floor, least[1])
        elif not flow.there:
            flow.raise_to(now, got[0], least[1])
        if came and (flow.new or least[0] > got[1]):
            flow.tie = EARLY, call
        elif flow.new or least[1] > got[0]:
            flow.tie = None
        if self.ledger.longest[1] > 0:
            self.forgive(flow, least, now, came)
        if sure and waits:
            flow.there, flow.floor, flow.new = True, None, False
        elif not flow.there:
            flow.there = None

    def forgive(self, flow, least, now, sure, running=None, longest=None):
        """running and longest: the ledger's values at that time, if they have
        changed."""
        running = running or (self.ledger.running,) * 2
        most = [(MOST_OWED + 2 * n) * e
                for n, e in zip(running, longest or self.ledger.longest)]
        flow.lower_to(now, least[0] + most[0],
                      least[1] + most[1] if sure else float("inf"))

    def serve(self, flow, task, now, weight, tie):
        self.start = flow.got(now)
        flow.weight = weight
        flow.running[task] = now
        flow.tie = tie if tie is None else (LATE, tie)
        flow.new = False
        flow.floor = None

    def before(self, others, served, now, doubt, is_first=None):
        """Returns one of the other flows that surely precedes the served flow,
        or None.  doubt: keys that differ by less do not decide which flow is
        first.  is_first: whether, of two flows that arrived in given calls, the
        first certainly precedes the second."""
        flows = [served, *others]
        if len({level for flow in flows for level in flow.levels()}) > MOST_LEVELS:
            return None
        if any(flow.weight > 1 for flow in self.of.values()):
            doubt = max(doubt, WEIGHED)
        return next((flow for flow in others if self._precedes(
            flow, served, now, doubt, is_first)), None)

    def _precedes(self, one, other, now, doubt, is_first):
        level, least_level = one.levels()[1], other.levels()[0]
        got, least = one.got(now)[1], other.got(now)[0]
        if self.ledger.longest[1] == 0:
            if level != least_level:
                return level < least_level
            lead = least - got
        else:
            lead = least - got + min(2 * longest * (least_level - level)
                                     for longest in self.ledger.longest)
        if lead != 0 or doubt:
            return lead > doubt
        if None in (one.tie, other.tie):
            return False
        if one.tie[0] == other.tie[0] == EARLY:
            return is_first is not None and is_first(one, other)
        return one.tie < other.tie
