"""The model: what a fair queue must do, without addresses and blocks.

A lane is a priority of a queue; each lane holds one FIFO of ready tasks per
group.  The model is told every call and its result, in the order in which the
calls were made, and raises Fault where a result breaks a promise.  It knows
nothing of how the server chooses.  Calls are made one at a time, but by
several sessions, whose transactions may stay open as long as they like.

Terms.  A task is *visible* to a session if it is ready, and so committed or
made ready by that session's own open transaction.  A task *runs* from its
claim until its end is visible to all: until the commit of whoever completed,
released or took it, or the abort of whoever claimed it.  A group has *room*
for a session if fewer tasks run than its limit says, by the settings that the
session acts by: its own uncommitted ones, else the committed ones.  (Room for
sure: a task that a transaction releases and claims again is two until that
ends, and what another open transaction purges may count, too, since who counts
rows cannot tell what it did with them.)  The queue has room likewise.

A *service* is one task in the result of a pop or take; services are ordered by
call, then by their place in the result, and they count although the pop is
rolled back later.  A group *waits properly* at a service if its first task in
FIFO order, of those that are visible to the popping session or that another
open transaction put, puts back or removes, is a visible one (a group's tasks
stand behind its own uncommitted ones, and those hold up nobody else), and the
group has room.

Properties, checked at every service:

count     pop(n) returns min(n, visible) tasks, counting of each group no more
          than it has room for, and in all no more than the queue has room for;
          no task is returned while it is somebody's, uncommitted by another,
          finished, purged or rolled back (kinds "lost", "doubled",
          "uncommitted", "unknown").  With per_group it may return fewer, but
          something while something is visible that there is room for.
limit     no more tasks of a group run than its limit says at the moment of the
          claim, none of what is paused, and of the queue no more than
          max_running.
priority  no task is served while a lane of a lower number has a visible one of
          a group that has room.
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
          them, by a purge or a rollback, and when a pop comes by and it has no
          room.  Who gets room again has his next turn at his next seat, as
          whoever joins: what he missed is not made up for.

          It is the wait bound of whoever joins, also late: at most one turn of
          each other group.  For g and h of weight 1 it says that they
          alternate as long as both wait, that is, over every stretch of
          services with both waiting |n_g - n_h| <= 1.  It holds as well for a
          group that comes back after each of its services.

share     over every stretch of services at which g and h both wait properly
          with at least w_g and w_h visible tasks and as much room, and are
          regular (below):
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
NO_LIMIT = 1 << 60


class Fault(Exception):
    """A promise that was broken; kind names it, one of those above."""

    def __init__(self, kind, text):
        super().__init__(f"{kind}: {text}")
        self.kind = kind


class Task:
    __slots__ = ("id", "group", "lane", "status", "owner", "place",
                 "attempt", "moved", "leases")

    def __init__(self, id, group, lane):
        self.id, self.group, self.lane = id, group, lane
        self.status, self.owner = GONE, None
        self.place, self.attempt, self.moved = 0, 0, False
        self.leases = 0

    def state(self):
        return (self.status, self.owner, self.place, self.attempt, self.moved,
                self.leases)

    def restore(self, state):
        (self.status, self.owner, self.place, self.attempt, self.moved,
         self.leases) = state


class Settings:
    """Limits and pauses; not changed, but replaced by a changed one."""

    def __init__(self):
        self.concurrency = None     # of the queue's groups; None: no limit
        self.max_running = None
        self.paused = False         # the queue
        self.concurrency_of = {}    # groups with a limit of their own
        self.paused_groups = frozenset()

    def changed(self, **values):
        other = Settings()
        vars(other).update(vars(self), **values)
        return other

    def limit(self, group):
        if self.paused or group in self.paused_groups:
            return 0
        own = self.concurrency_of.get(group)
        return self.concurrency if own is None else own


class Counts:
    """What counts as running, of a group or of the queue."""

    def __init__(self):
        self.running = 0        # tasks
        self.leases = 0         # a task may have several, see Terms
        self.purged = {}        # session: tasks that its open purge drops

    def add(self, task, sign):
        self.running += sign * (task.leases > 0)
        self.leases += sign * task.leases
        if task.status == PURGED and task.owner is not None:
            self.purged[task.owner] = self.purged.get(task.owner, 0) + sign

    def most(self, session):
        return self.leases + sum(count for owner, count in self.purged.items()
                                 if owner != session)


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
        self.settings = Settings()
        self.pending = {}       # session: settings that it has not committed
        self.counts = {}        # group: what counts as running
        self.total = Counts()   # the same of the queue
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
        self.settings = self.pending.pop(session, self.settings)
        for task, _ in self.undo.pop(session):
            if task is None or task.owner != session:
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
            if task is None:
                self._pend(session, state)
                continue
            fifo = self._fifo(task)
            self._remove(task)
            task.restore(state)
            self._put(task)
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

    def _remove(self, task):
        self._fifo(task).remove(task)
        self._counts(task.group).add(task, -1)
        self.total.add(task, -1)

    def _put(self, task):
        self._fifo(task).put(task)
        self._counts(task.group).add(task, 1)
        self.total.add(task, 1)

    def _change(self, session, task, status, attempt=None, last=False,
                lease=0):
        fifo = self._fifo(task)
        if session in self.undo:
            self.undo[session].append((task, task.state()))
            fifo.regular &= status != READY
        self._remove(task)
        task.status = status
        task.leases += lease
        if last:
            self.places += 1
            task.place = self.places
        if attempt is not None:
            task.attempt = attempt
        task.owner = session
        self._put(task)
        if session not in self.undo:
            self._settle(task)

    def _settle(self, task):
        self._remove(task)
        task.owner = None
        task.leases = int(task.status == RUNNING)
        self.groups.add(task.group)
        if task.status in (GONE, PURGED):
            del self.tasks[task.id]
        self._put(task)

    def _pend(self, session, settings):
        if settings is None:
            del self.pending[session]
        else:
            self.pending[session] = settings

    # ---- calls and their results

    def enqueued(self, session, id, group, priority):
        if id in self.tasks:
            raise Fault("unknown", f"id {id} was given twice")
        task = self.tasks[id] = Task(id, group, priority)
        self._change(session, task, READY, last=True)

    def popped(self, session, wanted, claims, per_group=None, take=False):
        inside = session in self.undo
        if not inside:
            self.begin(session)     # what was claimed counts to its end
        self._check_claims(session, wanted, claims, per_group, take)
        if not inside:
            self.commit(session)

    def _check_claims(self, session, wanted, claims, per_group, take):
        available = self._available(session)
        due = min(wanted, available)
        if len(claims) > wanted:
            raise Fault("count", f"{len(claims)} tasks, wanted {wanted}")
        if per_group is None or not claims:
            if len(claims) < due:
                raise Fault("lost", f"{len(claims)} tasks, wanted {wanted},"
                            f" ready {available}")
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
            self._check_limits(session, task)
            self._check_fifo(session, fifo, task)
            self._turn(lane, waiting, task)
            self._share(session, lane, waiting, task)
            self.services += 1
            self._change(session, task, GONE if take else RUNNING,
                         attempt=task.attempt + 1, lease=1)
            if not self._waits(session, task.group, fifo):
                waiting.discard(task.group)
            each[task.group] = each.get(task.group, 0) + 1
            limit = (per_group or 0) * self._weight(task.group)[1]
            if per_group and each[task.group] > limit:
                raise Fault("per_group", f"{each[task.group]} tasks of"
                            f" {task.group} in one call, at most {limit}")
        if len(claims) < wanted:
            for lane in self.lanes.values():
                self._waiting(session, lane)

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

    def set_limits(self, session, **values):
        """Change settings: the session's own until it commits."""
        settings = self.settings_of(session).changed(**values)
        if session in self.undo:
            self.undo[session].append((None, self.pending.get(session)))
            self.pending[session] = settings
        else:
            self.settings = settings

    def set_limit(self, session, group, limit):
        """0: none; of a group, or None: of the queue's groups."""
        if group is None:
            self.set_limits(session, concurrency=limit or None)
            return
        limits = dict(self.settings_of(session).concurrency_of)
        limits[group] = limit or None
        self.set_limits(session, concurrency_of=limits)

    def set_paused(self, session, group, paused):
        if group is None:
            self.set_limits(session, paused=paused)
            return
        groups = self.settings_of(session).paused_groups
        groups = groups | {group} if paused else groups - {group}
        self.set_limits(session, paused_groups=groups)

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

    def settings_of(self, session):
        """Those that its calls act by."""
        return self.pending.get(session, self.settings)

    def may_set(self, session):
        """Can it change settings, without waiting for another session?"""
        return not self.pending.keys() - {session}

    # ---- the properties

    def _counts(self, group):
        counts = self.counts.get(group)
        if counts is None:
            counts = self.counts[group] = Counts()
        return counts

    def _room(self, session, group):
        """How many more may be claimed for sure."""
        limit = self.settings_of(session).limit(group)
        if limit is None:
            return NO_LIMIT
        return max(limit - self._counts(group).most(session), 0)

    def _waits(self, session, group, fifo):
        return fifo.waits(session) and self._room(session, group) > 0

    def _available(self, session):
        """How many tasks must be served if so many are wanted."""
        visible = {}
        for lane in self.lanes.values():
            for group, fifo in lane.groups.items():
                visible[group] = visible.get(group, 0) + fifo.visible(session)
        most = self.settings_of(session).max_running
        room = NO_LIMIT if most is None else max(
            most - self.total.most(session), 0)
        return min(room, sum(count and min(count, self._room(session, group))
                             for group, count in visible.items()))

    def _check_limits(self, session, task):
        settings = self.settings_of(session)
        for of, counts, most in (
                (task.group, self._counts(task.group),
                 settings.limit(task.group)),
                ("the queue", self.total, settings.max_running)):
            running = counts.running + (task.leases == 0)
            if most is not None and running > most:
                raise Fault("limit", f"task {task.id} is number {running}"
                            f" that runs of {of}, at most {most}")

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
            if priority < task.lane and any(
                    fifo.visible(session) and self._room(session, group)
                    for group, fifo in lane.groups.items()):
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
            if self._waits(session, group, fifo):
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
        weight = self._weight(group)[0]
        return (fifo.regular and fifo.unsettled(session) is None
                and fifo.visible(session) >= weight
                and self._room(session, group) >= weight)

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
        if (fifo.visible(session) - 1 < weight
                or self._room(session, group) - 1 < weight):
            fifo.stretch += 1

    def _fifo(self, task):
        lane = self.lanes.setdefault(task.lane, Lane())
        if task.group not in lane.groups:
            lane.groups[task.group] = Fifo()
        return lane.groups[task.group]

    def _weight(self, group):
        return self.weights.get(group, (1, 1))
