"""The model: what a fair queue must do, without addresses and blocks.

A lane is a priority of a queue; each lane holds one FIFO of ready tasks per
group.  The model is told every call and its result, in the order in which the
calls were made, and raises Fault where a result breaks a promise.  It knows
nothing of how the server chooses.  Calls are made one at a time, but by
several sessions, whose transactions may stay open as long as they like.

Terms.  A task is *visible* to a session if it is ready, and so committed or
made ready by that session's own open transaction.  A *service* is one task in
the result of a pop or take; services are ordered by call, then by their place
in the result, and they count although the pop is rolled back later.  A group
*waits properly* at a service if its first task in FIFO order, of those that
are visible to the popping session or that another open transaction put, puts
back or removes, is a visible one: a group's tasks stand behind its own
uncommitted ones, and those hold up nobody else.

Properties, checked at every service:

count     pop(n) returns min(n, visible) tasks; no task is returned while it is
          somebody's, uncommitted by another, finished, purged or rolled back
          (kinds "lost", "doubled", "uncommitted", "unknown").  With per_group
          it may return fewer, but something while something is visible.
priority  no task is served while a lane of a lower number has a visible one.
claim     group, priority and attempt are right.  The attempt counts up with
          every service, and only a rollback takes it back.
fifo      within lane and group the first visible task is served.  A released
          task takes the last place.  (A group of weight w may have w tasks in
          one turn; among these a released task may stand anywhere.)
turn      while a group h waits properly, and is not served, any other group g
          is served at most w_g tasks, w_g its weight (the greatest it has had
          in this queue, if that was changed).

          Proof: service goes round by round, each group has one seat in each
          round, and a group is served at most its weight there.  Between two
          successive seats of h lies one seat of g; h, waiting properly, is
          served at its seat.

          The wait ends also when the group's tasks go away unserved, all of
          them, by a purge or a rollback.

          It is the wait bound of whoever joins, also late: at most one turn of
          each other group.  For g and h of weight 1 it says that they
          alternate as long as both wait, that is, over every stretch of
          services with both waiting |n_g - n_h| <= 1.  It holds as well for a
          group that comes back after each of its services.

share     over every stretch of services at which g and h both wait properly
          with at least w_g and w_h visible tasks, and are regular (below):
          |n_g / w_g - n_h / w_h| <= 1.

          Proof: a turn of a regular group with at least w tasks is of w tasks,
          so the services of g and h read g^wg h^wh g^wg h^wh ...; a stretch
          cut from this holds k turns of the one and k - 1, k or k + 1 of the
          other, whole but for the two that are cut: the worst is a stretch
          that opens and closes with whole turns of the same group, which
          gives exactly 1.

          A group is regular in a lane as long as each of its tasks there was
          committed as it was enqueued, and none was rolled back, purged or
          released, nor was its weight changed.  (Others may get part of a turn
          only, which costs nobody else anything: "turn" holds for all.)

A reset of the hints, or a restart of the server, ends all stretches: it may
cost one turn per group once, no more, and no task.
"""

from bisect import bisect_left, insort

READY, RUNNING, PURGED, GONE = "ready", "running", "purged", "gone"


class Fault(Exception):
    """A promise that was broken; kind names it, one of those above."""

    def __init__(self, kind, text):
        super().__init__(f"{kind}: {text}")
        self.kind = kind


class Task:
    __slots__ = ("id", "group", "lane", "status", "owner", "place",
                 "attempt", "moved")

    def __init__(self, id, group, lane):
        self.id, self.group, self.lane = id, group, lane
        self.status, self.owner = GONE, None
        self.place, self.attempt, self.moved = 0, 0, False

    def state(self):
        return (self.status, self.owner, self.place, self.attempt, self.moved)


class Fifo:
    """One group's tasks in one lane, in the order of their places."""

    def __init__(self):
        self.committed = []     # places of the ready tasks
        self.own = {}           # session: places of its uncommitted ready ones
        self.leaving = {}       # session: places that its open purge empties
        self.tasks = {}         # place: task
        self.regular = True
        self.since = {}         # group: services while this one waited
        self.stretch = 0        # grows with every end of a stretch ("share")

    def _list(self, task):
        if task.status == READY:
            if task.owner is None:
                return self.committed
            return self.own.setdefault(task.owner, [])
        if task.status == PURGED and task.owner is not None:
            return self.leaving.setdefault(task.owner, [])
        return None

    def put(self, task):
        places = self._list(task)
        if places is not None:
            insort(places, task.place)
            self.tasks[task.place] = task

    def remove(self, task):
        places = self._list(task)
        if places is not None:
            del places[bisect_left(places, task.place)]
            del self.tasks[task.place]

    def nothing_ready(self):
        return not self.committed and not any(self.own.values())

    def visible(self, session):
        return len(self.committed) + len(self.own.get(session, ()))

    def first(self, session):
        own = self.own.get(session)
        if own and (not self.committed or own[0] < self.committed[0]):
            return own[0]
        return self.committed[0] if self.committed else None

    def ahead_of(self, place, session):
        """The visible tasks before a place."""
        for places in (self.committed, self.own.get(session, ())):
            for other in places[:bisect_left(places, place)]:
                yield self.tasks[other]

    def unsettled(self, session):
        """The first place that another open transaction holds."""
        return min((places[0]
                    for held in (self.own, self.leaving)
                    for owner, places in held.items()
                    if owner != session and places), default=None)

    def waits(self, session):
        first = self.first(session)
        if first is None:
            return False
        unsettled = self.unsettled(session)
        return unsettled is None or first < unsettled


class Lane:
    def __init__(self):
        self.groups = {}        # group: Fifo
        self.stretches = {}     # pair of groups: see Model._share

    def visible(self, session):
        return sum(fifo.visible(session) for fifo in self.groups.values())


class Model:
    def __init__(self):
        self.tasks = {}         # id: Task, all that are not gone for good
        self.lanes = {}         # priority: Lane
        self.undo = {}          # session in a transaction: [(task, state)]
        self.savepoints = {}    # session in a transaction: [length of undo]
        self.weights = {}       # group: (now, greatest so far)
        self.groups = set()     # those that had a committed task
        self.places = 0
        self.services = 0

    # ---- transactions

    def begin(self, session):
        self.undo[session] = []
        self.savepoints[session] = []

    def commit(self, session):
        del self.savepoints[session]
        for task, _ in self.undo.pop(session):
            if task.owner != session:
                continue        # settled already, it is there twice
            self._settle(task)

    def rollback(self, session):
        self._undo_to(session, 0)
        del self.undo[session], self.savepoints[session]

    def savepoint(self, session):
        self.savepoints[session].append(len(self.undo[session]))

    def rollback_to(self, session, depth):
        """Back to the savepoint at this depth, which stays."""
        del self.savepoints[session][depth + 1:]
        self._undo_to(session, self.savepoints[session][depth])

    def release_savepoint(self, session, depth):
        del self.savepoints[session][depth:]

    def _undo_to(self, session, length):
        undo = self.undo[session]
        while len(undo) > length:
            task, state = undo.pop()
            fifo = self._fifo(task)
            fifo.remove(task)
            (task.status, task.owner, task.place,
             task.attempt, task.moved) = state
            fifo.put(task)
            fifo.regular = False
            if task.status == GONE and task.owner is None:
                del self.tasks[task.id]
                if task.group not in self.groups:
                    self._unknown(task)
            if fifo.nothing_ready():
                fifo.since.clear()

    def _unknown(self, task):
        """A group whose first task was rolled back may get another seat."""
        for fifo in self.lanes[task.lane].groups.values():
            fifo.since.pop(task.group, None)

    def _change(self, session, task, status, attempt=None, last=False):
        fifo = self._fifo(task)
        if session in self.undo:
            self.undo[session].append((task, task.state()))
            fifo.regular &= status != READY
        fifo.remove(task)
        task.status = status
        if last:
            self.places += 1
            task.place = self.places
        if attempt is not None:
            task.attempt = attempt
        task.owner = session
        fifo.put(task)
        if session not in self.undo:
            self._settle(task)

    def _settle(self, task):
        fifo = self._fifo(task)
        fifo.remove(task)
        task.owner = None
        self.groups.add(task.group)
        if task.status in (GONE, PURGED):
            del self.tasks[task.id]
        fifo.put(task)

    # ---- calls and their results

    def enqueued(self, session, id, group, priority):
        if id in self.tasks:
            raise Fault("unknown", f"id {id} was given twice")
        task = self.tasks[id] = Task(id, group, priority)
        self._change(session, task, READY, last=True)

    def popped(self, session, wanted, claims, per_group=None, take=False):
        visible = sum(lane.visible(session) for lane in self.lanes.values())
        due = min(wanted, visible)
        if len(claims) > wanted:
            raise Fault("count", f"{len(claims)} tasks, wanted {wanted}")
        if per_group is None or not claims:
            if len(claims) < due:
                raise Fault("lost", f"{len(claims)} tasks, wanted {wanted},"
                            f" ready {visible}")
        each = {}
        lane = None
        for claim in claims:
            task = self.tasks.get(claim.id)
            self._check_claim(session, claim, task)
            if self.lanes[task.lane] is not lane:
                self._check_priority(session, task)
                lane = self.lanes[task.lane]
                waiting = self._waiting(session, lane)
            fifo = self._fifo(task)
            self._check_fifo(session, fifo, task)
            self._turn(lane, waiting, task)
            self._share(session, lane, waiting, task)
            self.services += 1
            self._change(session, task, GONE if take else RUNNING,
                         attempt=task.attempt + 1)
            if not fifo.waits(session):
                waiting.discard(task.group)
            each[task.group] = each.get(task.group, 0) + 1
            limit = (per_group or 0) * self._weight(task.group)[1]
            if per_group and each[task.group] > limit:
                raise Fault("per_group", f"{each[task.group]} tasks of"
                            f" {task.group} in one call, at most {limit}")

    def finished(self, session, id):
        self._change(session, self.tasks[id], GONE)

    def released(self, session, id):
        task = self.tasks[id]
        self._fifo(task).regular = False
        self._change(session, task, READY, last=True)
        task.moved = True

    def purge(self, session, group=None):
        """Purge by the model; how many tasks it dropped."""
        dropped = [task for task in self.tasks.values()
                   if group in (None, task.group) and task.status == READY
                   and task.owner in (None, session)]
        for task in dropped:
            fifo = self._fifo(task)
            fifo.regular = False
            self._change(session, task, PURGED)
            if fifo.nothing_ready():
                fifo.since.clear()
        return len(dropped)

    def set_weight(self, group, weight):
        self.weights[group] = (weight, max(weight, self._weight(group)[1]))
        for lane in self.lanes.values():
            if group in lane.groups:
                lane.groups[group].regular = False

    def forget(self):
        """The hints were thrown away: all stretches end."""
        for lane in self.lanes.values():
            lane.stretches.clear()
            for fifo in lane.groups.values():
                fifo.since.clear()

    # ---- what the drivers ask

    def held(self, session):
        """Running tasks that this session may finish without waiting."""
        return [task for task in self.tasks.values()
                if task.status == RUNNING and task.owner in (None, session)]

    def visible(self, session):
        return sum(lane.visible(session) for lane in self.lanes.values())

    # ---- the properties

    def _check_claim(self, session, claim, task):
        if task is None:
            raise Fault("unknown", f"task {claim.id} was served, but it is"
                        " finished, purged or rolled back")
        if task.owner not in (None, session):
            raise Fault("uncommitted", f"task {task.id} was served, but the"
                        f" transaction of session {task.owner} holds it")
        if task.status != READY:
            raise Fault("doubled", f"task {task.id} was served, but it is"
                        f" {task.status}")
        got = (claim.group, claim.priority, claim.attempt)
        want = (task.group, task.lane, task.attempt + 1)
        if got != want:
            raise Fault("claim", f"task {task.id}: group, priority, attempt"
                        f" are {got}, not {want}")

    def _check_priority(self, session, task):
        for priority, lane in self.lanes.items():
            if priority < task.lane and lane.visible(session):
                raise Fault("priority", f"task {task.id} of lane {task.lane}"
                            f" before one of lane {priority}")

    def _check_fifo(self, session, fifo, task):
        if fifo.first(session) == task.place:
            return
        free = self._weight(task.group)[1] > 1
        for other in fifo.ahead_of(task.place, session):
            if not (free and (task.moved or other.moved)):
                raise Fault("fifo", f"task {task.id} of {task.group} before"
                            f" {other.id}")

    def _waiting(self, session, lane):
        """The groups that wait properly; ends the stretches of others."""
        waiting = set()
        for group, fifo in lane.groups.items():
            if fifo.waits(session):
                waiting.add(group)
            else:
                fifo.since.clear()
            if not self._full(session, group, fifo):
                fifo.stretch += 1
        return waiting

    def _turn(self, lane, waiting, task):
        weight = self._weight(task.group)[1]
        for group in waiting:
            if group == task.group:
                continue
            since = lane.groups[group].since
            served = since[task.group] = since.get(task.group, 0) + 1
            if served > weight:
                raise Fault("turn", f"task {task.id} of {task.group} (weight"
                            f" {weight}) is the {served}th of its group while"
                            f" {group} waits")
        lane.groups[task.group].since.clear()

    def _full(self, session, group, fifo):
        return (fifo.regular and fifo.unsettled(session) is None
                and fifo.visible(session) >= self._weight(group)[0])

    def _share(self, session, lane, waiting, task):
        """Per pair: the stretches of both, and n_g * w_h - n_h * w_g with
        the lowest and highest value that this had in the stretch."""
        group, fifo = task.group, self._fifo(task)
        weight = self._weight(group)[0]
        full = self._full(session, group, fifo)
        for other in waiting if full else ():
            weight2 = self._weight(other)[0]
            fifo2 = lane.groups[other]
            if (other == group or weight == weight2 == 1
                    or not self._full(session, other, fifo2)):
                continue
            pair = (min(group, other), max(group, other))
            sign = 1 if group == pair[0] else -1
            stretch = tuple(lane.groups[g].stretch for g in pair)
            known = lane.stretches.get(pair)
            if known is None or known[0] != stretch:
                known = lane.stretches[pair] = [stretch, 0, 0, 0]
            known[1] += sign * weight2
            known[2] = min(known[2], known[1])
            known[3] = max(known[3], known[1])
            if known[3] - known[2] > weight * weight2:
                raise Fault("share", f"task {task.id}: {group} (weight"
                            f" {weight}) and {other} (weight {weight2}) are"
                            " more than a turn apart")
        if fifo.visible(session) - 1 < weight:
            fifo.stretch += 1

    def _fifo(self, task):
        lane = self.lanes.setdefault(task.lane, Lane())
        if task.group not in lane.groups:
            lane.groups[task.group] = Fifo()
        return lane.groups[task.group]

    def _weight(self, group):
        return self.weights.get(group, (1, 1))
