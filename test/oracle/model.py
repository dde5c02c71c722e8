"""The model: what a fair queue must do, without addresses and blocks.

A lane is a priority of a queue; each lane holds one FIFO of ready tasks per
group, and beside it those that have an instant instead (life.py).  The model
is told every call and its result, in the order in which the calls were made,
and raises Fault where a result breaks a promise.  It knows nothing of how the
server chooses.  Calls are made one at a time, but by several sessions, whose
transactions may stay open as long as they like.

Terms.  A task is *visible* to a session if it is ready, due or expired, and so
committed or made so by that session's own open transaction.  A task *runs*
from its claim until its end is visible to all: until the commit of whoever
completed, failed, released or took it, or the abort of whoever claimed it;
whoever claims an expired one takes over its place.  A group has *room* for a
session if fewer tasks run than its limit says, by the settings that the
session acts by: its own uncommitted ones, else the committed ones.  (Room for
sure: a task that a transaction releases and claims again is two until that
ends, and what another open transaction purges may count, too, since who counts
rows cannot tell what it did with them.)  The queue has room likewise.  Expired
tasks need no room, but that no more run than the limit says.

A *service* is one task in the result of a pop or take; services are ordered by
call, then by their place in the result, and they count although the pop is
rolled back later.  A group *waits properly* at a service if its first task in
FIFO order, of those that are visible to the popping session or that another
open transaction put, puts back or removes, is a visible one (a group's tasks
stand behind its own uncommitted ones, and those hold up nobody else), or if
one of its tasks is due, and the group has room; or if one has expired.  (Of
the leases of its own open transaction, and of those that it has extended, a
session may find out or not that they have expired.)

Properties, checked at every service (and every wait):

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
claim     group, priority, attempt, and when it was enqueued and the lease ends
          are right.  The attempt counts up with every service, and only a
          rollback takes it back.
fifo      within lane and group the first visible task is served.  A released
          task, or one that is ready again for another reason, takes the last
          place.  (A group of weight w may have w tasks in one turn; among
          these such a task may stand anywhere.)  A due or an expired one goes
          before the first of the ready ones if its instant came before that
          one was enqueued, or ready again.  Of these themselves, the due ones
          in the order of their instants, in milliseconds, the expired ones in
          that of their addresses, equal ones in that of their ids; of the
          first ones of both the one whose instant came first.
behind    a task that is popped again after its lease has expired stands
          behind all of its group's that have, so they come before it if it
          expires again.
turn      while a group h waits properly, and is not served, any other group g
          is served at most w_g tasks, w_g its weight (the greatest it has had
          in this queue, if that was changed).  What is served in a full queue
          (expired tasks) counts by itself: only for whom waits for the same,
          and the wait of others, whom only that keeps out, goes on after it.
          It does not count for the share below.

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
          committed as it was enqueued, and none was rolled back, purged,
          scheduled or ready a second time, nor was its weight changed.
          (Others may get part of a turn only, which costs nobody else
          anything: "turn" holds for all.)

wait      fairq.wait() is true if a pop is worth it, and then it is: it serves
          a task, or ends one that has expired.

A reset of the hints, or a restart of the server, ends all stretches: it may
cost one turn per group once, no more, and no task.
"""

from life import Life, came, due_order
from state import GONE, NO_LIMIT, READY, RUNNING, SCHEDULED, Fault


class Model(Life):
    def __init__(self, clock):
        super().__init__(clock)
        self.weights = {}       # group: (now, greatest so far)
        self.services = 0
        self.found = {}         # see popped()
        self.ended = False      # did the last pop find anything?
        self.single = None      # session whose pop is a transaction by itself

    # ---- calls and their results

    def doubtful(self, session):
        """The expired tasks that a pop may have ended, or put back where more
        run than the limit says: for these a look at what it did is needed."""
        return [task for task in self.expired(session)
                if self.ending(session, task)
                or self._too_many(session, task.group)]

    def popped(self, session, wanted, claims, per_group=None, take=False,
               lease=None, found={}):
        """found: what became of doubtful tasks, and when they ended, but for
        those that still run."""
        inside = session in self.undo
        if not inside:
            self.begin(session)     # what was claimed counts to its end
            self.single = session
        self.found = dict(found)
        self.ended = bool(found)
        self._check_claims(session, wanted, claims, per_group, take, lease)
        for task in sorted((self.tasks[id] for id in self.found),
                           key=lambda task: (task.addr, task.id)):
            self._found(session, task)
        if len(claims) < wanted and per_group is None and not inside:
            self._check_ended(session)
        if not inside:
            self.commit(session)
            self.single = None

    def _check_claims(self, session, wanted, claims, per_group, take, lease):
        available = self.available(session)
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
            self._check_claim(session, claim, task, take, lease)
            if self.lanes[task.lane] is not lane:
                self._check_priority(session, task)
                lane = self.lanes[task.lane]
                waiting = self._waiting(session, lane)
            fifo = self._fifo(task)
            self._check_limits(session, task)
            self._check_order(session, fifo, task)
            self._check_behind(session, fifo, task, claim, take)
            in_full = self._served_in_full(session, task)
            if in_full is None:
                self._end_stretches(lane)
            else:
                self._turn(session, lane, waiting, task, in_full)
            if in_full is False:
                self._share(session, lane, waiting, task)
            self.services += 1
            self._serve(session, claim, task, take)
            if not self._waits(session, task.group, fifo):
                waiting.discard(task.group)
            if self._queue_places(session) <= 0:
                waiting = self._waiting(session, lane)
            each[task.group] = each.get(task.group, 0) + 1
            limit = (per_group or 0) * self._weight(task.group)[1]
            if per_group and each[task.group] > limit:
                raise Fault("per_group", f"{each[task.group]} tasks of"
                            f" {task.group} in one call, at most {limit}")
        if len(claims) < wanted:
            for lane in self.lanes.values():
                self._waiting(session, lane)

    def _serve(self, session, claim, task, take):
        values = {"attempt": task.attempt + 1,
                  "lease": int(task.status != RUNNING)}
        if take:
            self._change(session, task, GONE, **values)
        else:
            self._change(session, task, RUNNING, addr=claim.addr,
                         instant=claim.lease_until, **values)

    def set_weight(self, group, weight):
        self.weights[group] = (weight, max(weight, self._weight(group)[1]))
        for lane in self.lanes.values():
            if group in lane.groups:
                lane.groups[group].regular = False

    def forget(self):
        """The hints were thrown away: all stretches end."""
        for lane in self.lanes.values():
            self._end_stretches(lane)

    @staticmethod
    def _end_stretches(lane):
        lane.stretches.clear()
        for fifo in lane.groups.values():
            fifo.since.clear()

    # ---- who may be served

    def _due(self, session, fifo):
        return fifo.late(session, self.clock.start, SCHEDULED)

    def _expired(self, session, fifo):
        """Those that are to be served again.  Of what a transaction leased
        itself it may find out, or not, what has expired."""
        if self._leaves_expired(session, fifo):
            return []
        return [task for task in fifo.late(session, self.clock.start, RUNNING)
                if task.owner is None and not self.ending(session, task)]

    def _leaves_expired(self, session, fifo):
        """A call in a transaction that goes on need not end what is to be
        ended, since others would have to wait for that; then it leaves the
        group's other expired ones, too."""
        return (session in self.undo and session != self.single
                and any(self.ending(session, task) for task in fifo.late(
                    session, self.clock.start, RUNNING)))

    def _places(self, session, group):
        """How many more may be claimed for sure; below 0: too many run."""
        limit = self.settings_of(session).limit(group)
        if limit is None:
            return NO_LIMIT
        return limit - self._counts(group).most(session)

    def _queue_places(self, session):
        most = self.settings_of(session).max_running
        return NO_LIMIT if most is None else most - self.total.most(session)

    def _too_many(self, session, group):
        return (self._places(session, group) < 0
                or self._queue_places(session) < 0)

    def _can_serve(self, session, group, fifo, ready):
        """Something of the group, if ready says whether it has something
        that is not expired."""
        if self._too_many(session, group):
            return False
        if ready and self._has_room(session, group):
            return True
        return bool(self._expired(session, fifo))

    def _has_room(self, session, group):
        return (self._places(session, group) > 0
                and self._queue_places(session) > 0)

    def _visible(self, session, fifo):
        return fifo.visible(session) or self._due(session, fifo)

    def _may_have_room(self, session, group):
        settings = self.settings_of(session)
        limit, most = settings.limit(group), settings.max_running
        return ((limit is None or self._counts(group).running < limit)
                and (most is None or self.total.running < most))

    def _is_ready(self, session, fifo):
        return fifo.in_order(session) or self._due(session, fifo)

    def _waits(self, session, group, fifo):
        return self._can_serve(session, group, fifo,
                               self._is_ready(session, fifo))

    def available(self, session):
        """How many tasks must be served if so many are wanted."""
        visible, expired = {}, 0
        room = self._queue_places(session)
        if room < 0:
            return 0
        for lane in self.lanes.values():
            for group, fifo in lane.groups.items():
                visible[group] = (visible.get(group, 0)
                                  + fifo.visible(session)
                                  + len(self._due(session, fifo)))
                if fifo.timed and self._places(session, group) >= 0:
                    expired += len(self._expired(session, fifo))
        return expired + min(room, sum(
            count and min(count, max(self._places(session, group), 0))
            for group, count in visible.items()))

    # ---- the properties

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

    def _check_claim(self, session, claim, task, take, lease):
        if task is None:
            raise Fault("unknown", f"task {claim.id} was served, but it is"
                        " finished, purged or rolled back")
        if task.owner not in (None, session):
            raise Fault("uncommitted", f"task {task.id} was served, but the"
                        f" transaction of session {task.owner} holds it")
        if task.status == SCHEDULED and not self.is_late(task):
            raise Fault("early", f"task {task.id} was served before its time")
        if not task.unfinished() or (task.status == RUNNING
                                     and not self.is_late(task)):
            raise Fault("doubled", f"task {task.id} was served, but it is"
                        f" {task.outcome or task.status}")
        if task.status == RUNNING and self.ending(session, task):
            raise Fault("cancel" if task.cancelled else "attempts",
                        f"task {task.id} was served again, attempt"
                        f" {claim.attempt}")
        got = (claim.group, claim.priority, claim.attempt)
        want = (task.group, task.lane, task.attempt + 1)
        if got != want:
            raise Fault("claim", f"task {task.id}: group, priority, attempt"
                        f" are {got}, not {want}")
        if not task.enqueued[0] <= claim.enqueued_at <= task.enqueued[1]:
            raise Fault("claim", f"task {task.id} was enqueued at"
                        f" {task.enqueued}, not at {claim.enqueued_at}")
        if not take:
            self.check_lease(lease, claim.lease_until, "claim")
        elif claim.lease_until is not None:
            raise Fault("claim", f"task {task.id} was taken with a lease")

    def _check_priority(self, session, task):
        for priority, lane in self.lanes.items():
            if priority < task.lane and any(
                    self._can_serve(session, group, fifo,
                                    self._visible(session, fifo))
                    for group, fifo in lane.groups.items()):
                raise Fault("priority", f"task {task.id} of lane {task.lane}"
                            f" before one of lane {priority}")

    def _check_order(self, session, fifo, task):
        if (task.status == READY and task.place == fifo.first(session)
                and not fifo.any_late(self.clock.start)):
            return
        firsts = self._firsts(session, fifo, task)
        while task not in firsts:
            ended = [first for first in firsts if first.id in self.found]
            if not ended:
                break
            self._found(session, ended[0])
            firsts = self._firsts(session, fifo, task)
        if task not in firsts:
            raise Fault("fifo", f"task {task.id} of {task.group}"
                        f" ({task.status}) before "
                        + " or ".join(f"{first.id} ({first.status})"
                                      for first in firsts))

    def _check_behind(self, session, fifo, task, claim, take):
        if task.status != RUNNING or take:
            return
        for other in self._expired(session, fifo):
            if other is not task and other.addr >= claim.addr:
                raise Fault("behind", f"task {task.id}, taken over at"
                            f" {claim.addr}, is not behind {other.id}, which"
                            f" has expired at {other.addr}")

    def _firsts(self, session, fifo, task):
        """The group's first; several where it is in doubt."""
        rooms = {self._has_room(session, task.group),
                 self._may_have_room(session, task.group)}
        expired = fifo.late(session, self.clock.start, RUNNING)
        sure = [other for other in expired if other.owner is None]
        views = [sure] + [sure + [other] for other in expired
                          if other.owner is not None]
        if self._leaves_expired(session, fifo):
            views.append([])
            views += [[other for other in view
                       if not self.ending(session, other)] for view in views]
        due = self._due(session, fifo)
        firsts = {self._first(ready, due, some, task, room)
                  for ready in self._first_ready(session, fifo, task)
                  for some in views for room in rooms}
        return firsts - {None}

    def _first_ready(self, session, fifo, task):
        """The first of the ready tasks, or in its stead those that may stand
        before it in the same turn, if it is a long one."""
        ready = fifo.visible_tasks(session)
        first = next(ready, None)
        firsts = [first]
        if first is task or self._weight(task.group)[1] == 1:
            return firsts
        ahead = [first]
        for other in ready:
            if other.moved or all(before.moved for before in ahead):
                firsts.append(other)
            ahead.append(other)
        return firsts

    @staticmethod
    def _first(ready, due, expired, task, room):
        """By the rule; task, if it is as good.  Without room, of those that
        have expired."""
        firsts = []
        if expired:
            firsts.append(min(expired, key=lambda other: (other.addr,
                                                          other.id)))
        if not room:
            return firsts[0] if firsts else None
        if due:
            firsts.append(min(due, key=due_order))
        if firsts:
            late = min(firsts, key=lambda other: (came(other),
                                                  other is not task))
            # an instant may lie in the call that made the other one ready
            before = ready and ready.since[1 if late is task else 0]
            if ready is None or came(late) < before:
                return late
        return ready

    def _found(self, session, task):
        status, ended = self.found.pop(task.id)
        if status == READY and not self._too_many(session, task.group):
            raise Fault("expiry", f"task {task.id}, whose lease expired, is"
                        " ready again, but it was its turn")
        self.lapsed(session, task, status, ended)

    def _check_ended(self, session):
        """Whom a pop came by that had nothing more to serve."""
        settings = self.settings_of(session)
        for task in self.expired(session):
            if (task.owner is None and self.ending(session, task)
                    and settings.limit(task.group) != 0):
                raise Fault("lost", f"task {task.id}, which has expired, is"
                            f" still not {self.ending(session, task)}")

    def _waiting(self, session, lane):
        """The groups that wait properly; ends the stretches of others, but
        of those whom only a full queue keeps out."""
        waiting = set()
        for group, fifo in lane.groups.items():
            if self._waits(session, group, fifo):
                waiting.add(group)
            elif not (self._is_ready(session, fifo)
                      and self._places(session, group) > 0):
                fifo.since.clear()
            if not self._expired(session, fifo):
                self._served_since(fifo, True)
            if not self._full(session, group, fifo):
                fifo.stretch += 1
        return waiting

    @staticmethod
    def _served_since(fifo, in_full):
        """The group was served: others count anew."""
        for key in [key for key in fifo.since if key[1] == in_full]:
            del fifo.since[key]

    def _served_in_full(self, session, task):
        """In a full queue there are no turns.  None: nobody knows."""
        most = self.settings_of(session).max_running
        if task.status != RUNNING or most is None:
            return False
        if self.total.running >= most:
            return True
        return None if self._queue_places(session) <= 0 else False

    def _turn(self, session, lane, waiting, task, in_full):
        weight = self._weight(task.group)[1]
        for group in waiting:
            fifo = lane.groups[group]
            if group == task.group or (
                    in_full and not self._expired(session, fifo)):
                continue
            key = (task.group, in_full)
            served = fifo.since[key] = fifo.since.get(key, 0) + 1
            if served > weight:
                raise Fault("turn", f"task {task.id} of {task.group} (weight"
                            f" {weight}) is the {served}th of its group while"
                            f" {group} waits")
        self._served_since(lane.groups[task.group], in_full)

    def _full(self, session, group, fifo):
        weight = self._weight(group)[0]
        return (fifo.regular and fifo.unsettled(session) is None
                and fifo.visible(session) >= weight
                and self._places(session, group) >= weight)

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
                or self._places(session, group) - 1 < weight):
            fifo.stretch += 1

    def _weight(self, group):
        return self.weights.get(group, (1, 1))
