"""The model: the required behaviour of a fair queue.

A lane is a priority of a queue.  Each lane has one FIFO of ready tasks per group,
and also the tasks that have an instant instead (life.py).  The driver passes each
call and its result to the model, in the order in which the calls were made.  The
model raises Fault if a result breaks a promise.  The model knows neither how the
server chooses tasks, nor where the server stores a task.  Calls are made one at a
time, but by several sessions, whose transactions may stay open for any length of
time.

Terms.  An *expired* task is one whose lease has expired.  A task is *visible*
to a session if it is ready, due or expired.  A commit or the session's own open
transaction makes a task visible.  A task *runs* from its claim until its end is
visible to all.  Its end is the commit of the transaction that completed,
failed, released or took it, or the abort of the transaction that claimed it.  A
claim of an expired task takes over the task's slot.  A group has a *slot* for a
session if fewer of its tasks run than its limit allows.  The settings are the
session's own uncommitted settings, or else the committed settings.  A queue has
a slot under the same condition.  Expired tasks need no slot, but they are
served only while no more tasks run than the limit allows.

The model knows whether a group has a slot, with these exceptions.  A task that
a transaction releases and claims again counts twice until the transaction ends.
A task that another open transaction purges may count, too, since a load does
not know whether it still runs.  A limited group may lack a slot while calls may
be *blind*, or during a transaction that changed tasks before the queue's first
limit.

A call may be blind after the queue's first limit, a restart and a reset.  Such a
call does not know the running tasks until the server has read the table.  It skips
limited groups and expired tasks, and those groups may lose their turns.  A call
that would return too few tasks waits for the read, and so does peek(), so neither
is blind.

A *service* is one task in the result of a pop or take.  Services are ordered by
call, then by their place in the result, and they count also if the pop is rolled
back later.  A group with a slot *waits properly* at a service if one of its
tasks is due, or its first in FIFO order is visible.  The FIFO order includes the
tasks that the session sees, and those that another open transaction adds,
returns or removes.  (A group's tasks come behind its own uncommitted ones, which
delay no other group.)  A group with an expired task also waits properly.  (A
session may or may not find out that leases of its own open transaction, or those
that it has extended, have expired.)

Properties, checked at every service (and every wait):

count     pop(n) returns min(n, visible) tasks.  Only tasks with a slot in their
          group and in the queue count.  The result has no task that another
          session has claimed, or has added without a commit.  The result has no
          task that is finished, purged or rolled back (kinds "lost", "doubled",
          "uncommitted", "unknown").
per_group a call with per_group c serves turns of one lane in a window of
          addresses.  The window begins at the call's first turn, the lowest,
          and has a length of c * block_length.  So no group has more than c
          turns.  The call serves all turns of groups that wait properly in
          this window, up to the requested number (else "lost").  The call
          serves at least one task if a task is visible and has a slot.
limit     a claim exceeds neither the limit of the group nor max_running of the
          queue, and no task of a paused group is claimed.
priority  no task is served while a lane of a lower number has a visible task of a
          group with a slot.  In a queue with shares, the shares decide which lane
          is first (shares.py, kind "shares").  A call with per_group serves one
          lane.
claim     group, priority, attempt, lapses, the time of the enqueue and the end of
          the lease are correct.  The attempt increases with every service, and
          only a rollback undoes that.  The lapses increase when an expired lease
          is taken over or ended.
alone     a task with two lapses or more, including the one that this claim takes
          over, is the only one of its call.  A call ends with such a task, or
          stops before such a task that could be served, and then need not return
          more.  The next call continues in the lane in which the call has
          stopped, whatever the priority of the lane.
fifo      within lane and group an expired task is first.  Next is a due task that
          failed, or that was returned when its lease had expired.  Such tasks are
          in the order of their instants, in milliseconds, and of their ids.  Then
          come the first ready task and the other due tasks, in the order in which
          they were enqueued, or became ready again or due.  A released or
          redriven task takes the last place of the ready ones.  (A group of
          weight w may have w tasks in one turn.  Among these a released or
          redriven task may be anywhere.)
behind    the expired tasks of a group are served in cycles.  Tasks that were
          ready are in the order of their places.  Behind them come those that had
          failed, then those that were scheduled, by their instants.  The next
          task is the first one behind the task that was served last, or else the
          first.  So a task that expires repeatedly delays none of the others.
          (In a group with a weight a released task may be anywhere in its turn,
          also here.  Any task may follow a task from before a restart, or a task
          whose enqueue was rolled back, as places may begin again.)

The address of a service names a turn: a block, and the group's seat in it.
Services at one address are one turn.  (Expired tasks that are served in a full
queue have no turns.  They are counted separately.)

twice     a turn has at most w tasks, w being the group's weight (the highest so far,
          if it was changed).  The tasks of a turn follow each other in the
          lane, and no group has two turns in a block.
back      the blocks of a lane's turns never decrease.  (Calls are made one at a
          time here.)
turn      of the groups that wait properly, the one with the lowest next turn is
          served.  That turn is at its seat in the present block, or in the next
          block if the group has had its present turn.  So

          a  while h waits and has had no turn in the block, no group with a
             higher seat is served in it.
          b  if h has waited since a block and has had no turn in it, no group
             has a turn in a later block.
          c  while h waits and is not served, any other group g has at most w_g
             services.  It may have 2 * w_g if g did not wait when h's last
             turn began.  In a full queue g has at most w_g, and only groups with
             expired tasks are compared.  The wait of other groups continues
             after such a service.

          Proof of c: h's next turn is in the present block or in the next one.
          g has one turn in each block, so two at most.  Both precede the turn of h only
          if g has a lower seat, and h has had its turn in this block before g.
          If g had waited when h's turn began, g's turn would have been the lower
          one.

          The wait also ends if a purge or a rollback removes all of the group's
          tasks.  It ends if a pop visits the group while it has no slot.  A group
          that gets a slot again, or becomes active, has its turn in the present block, if it
          has had none there.  Then this group is next, together with other
          groups in the same state.  (But while transactions are open, a pop
          that cannot serve the group may use its turn, since it may not know
          about slots and tasks.  And a new group may have the seat of a rolled
          back group, whose turn was used.)  For g and h of weight 1 it follows that
          |n_g - n_h| <= 2 over every stretch of services with both waiting.
          From the point where both have had a turn in the stretch, the bound is 1.

share     consider a stretch of services at which g and h both wait properly with at
          least w_g and w_h visible tasks and slots.  Both groups are regular
          (below).  From the point where both have had a turn in the stretch,
          |n_g / w_g - n_h / w_h| <= 1.

          Proof: both have one turn in each block from then on, in the order of
          their seats.  A turn of a regular group with at least w tasks has w tasks.
          So the services of g and h are g^wg h^wh g^wg h^wh ...  A stretch of services
          holds k turns of one group and k - 1, k or k + 1 of the other.  Only the
          first and the last turn may be cut.  The worst case begins and ends with
          whole turns of the same group, which gives exactly 1.

          A group is regular in a lane as long as each of its tasks was
          committed in the order of the enqueues.  None was rolled back, purged,
          scheduled or ready a second time, and its weight did not change.
          (Other groups may get only part of a turn, which costs no group
          anything: "turn" holds for all.)

wait      fairq.wait() is true if and only if a pop would serve a task, or end
          one that has expired.

A reset of the hints, or a restart of the server, ends all waits and stretches,
and loses no task.  A restart begins a block: no group has had a turn in it.
After a reset, past turns are unknown.  A reset may cost a group a turn, or give it an
additional one, because an empty lane begins with its first block.
"""

from batches import Batches
from life import due_at, due_order
from shares import PARTS, Shares
from state import (ANYWHERE, COMPLETED, GONE, NO_LIMIT, READY, RUNNING,
                   SCHEDULED, UNKNOWN, Fault)


class Model(Batches):
    def __init__(self, clock, block_length):
        super().__init__(clock)
        self.block_length = block_length
        self.weights = {}       # group: (its weight now, its greatest weight)
        self.services = 0
        self.found = {}         # see popped()
        self.ended = False      # whether the last pop found a task
        self.stopped = False    # whether it may have stopped at a task
        self.left = set()       # lanes where calls may have stopped
        self.single = None      # session whose pop is a transaction by itself
        self.shares = Shares()
        self.shares_of = None   # the shares for which self.shares holds
        self.blind = False      # whether calls may not know the running tasks
        self.oldest = 0         # the last place that was given before a restart

    # ---- calls and their results

    def doubtful(self, session):
        """The expired tasks that a pop may have ended, or has returned to the
        queue because more tasks run than the limit allows. The driver must read
        these tasks after the pop.
        """
        return [task for task in self.expired(session)
                if self.ending(session, task)
                or self._too_many(session, task.group)]

    def popped(self, session, wanted, claims, per_group=None, take=False,
               lease=None, found={}, ends={}, foreseen=False):
        """found has the new states of doubtful tasks that do not run any more,
        and when these tasks ended. ends: the rows of waiting tasks whose
        batches have ended. foreseen: whether peek() was called before.
        """
        inside = session in self.undo
        if not inside:
            self.begin(session)     # claimed tasks count until the commit
            self.single = session
        self.found = dict(found)
        self.ended = bool(found)
        self._see_limits(session)
        if foreseen:
            self._sees()
        self.ends = self.end_failed_batches(session, ends)
        self._check_claims(session, wanted, claims, per_group, take, lease)
        self.end_batches(session, self.ends)
        for task in sorted((self.tasks[id] for id in self.found),
                           key=lambda task: task.stands):
            self._found(session, task)
        if (len(claims) < wanted and per_group is None and not inside
                and not self.stopped):
            self._check_ended(session)
        if not self.settings_of(session).paused and (
                not claims or not (per_group or self.stopped)
                and len(claims) < wanted):
            self._sees()
        if not inside:
            self.commit(session)
            self.single = None

    def _see_limits(self, session):
        if not self.limited and self.settings_of(session).are_limits():
            self.limited = self.blind = True
            self.uncounted = {s for s, undo in self.undo.items() if undo}

    def _sees(self):
        """Records that a call has waited until it knew the running tasks."""
        self.blind = bool(self.uncounted)

    def looked(self, session):
        """Applies the effects of a wait, which are the same as those of a
        pop."""
        self._see_limits(session)
        for lane in self.lanes.values() if self.blind else ():
            self._waiting(session, lane)

    def _check_claims(self, session, wanted, claims, per_group, take, lease):
        available = self.available(session)
        due = min(wanted, available)
        self._see_stop(session, claims)
        if len(claims) > wanted:
            raise Fault("count", f"{len(claims)} tasks, wanted {wanted}")
        if per_group is None or not claims:
            if len(claims) < due and not self.stopped:
                raise Fault("lost", f"{len(claims)} tasks, wanted {wanted},"
                            f" ready {available}")
        short = len(claims) < wanted and not self.stopped
        each = {}
        lane = None
        self._have_shares(session)
        turns = []
        for claim in claims:
            task = self.tasks.get(claim.id)
            if claim.id in self.ends:
                self.end_batch(session, self.ends.pop(claim.id))
            self._check_claim(session, claim, task, take, lease)
            if self.shares.share and not (per_group and lane):
                self._check_priority(session, task)
            elif per_group and lane and self.lanes[task.lane] is not lane:
                raise Fault("per_group", f"task {task.id} is of lane"
                            f" {task.lane}, and others of another one")
            # groups that would be next, if they had a task to serve: their waits end
            for priority in self.lanes:
                if self.shares.key(priority) < self.shares.key(task.lane):
                    self._waiting(session, self.lanes[priority])
            if self.lanes[task.lane] is not lane:
                self._check_priority(session, task)
                lane = self.lanes[task.lane]
                waiting = self._waiting(session, lane)
            fifo = self._fifo(task)
            self._check_limits(session, task)
            self._check_order(session, fifo, task)
            in_full = self._served_in_full(session, task)
            self._in_order(session, lane, waiting, task, claim.addr, in_full)
            if in_full is False:
                turns.append(claim.addr)
            self.services += 1
            self.shares.serve(task.lane, self._parts_of(task),
                              not per_group or not each)
            self._serve(session, claim, task, take)
            if not self._waits(session, task.group, fifo):
                waiting.discard(task.group)
                fifo.waits_since = None
            if self._keeps_out(session, task):
                waiting = self._waiting(session, lane)
            each[task.group] = each.get(task.group, 0) + 1
            limit = (per_group or 0) * self._weight(task.group)[1]
            if per_group and each[task.group] > limit:
                raise Fault("per_group", f"{each[task.group]} tasks of"
                            f" {task.group} in one call, at most {limit}")
        if per_group and len(turns) == len(claims) > 0:
            self._window(session, lane, turns, per_group, short)
        if len(claims) < wanted:
            for lane in self.lanes.values():
                self._waiting(session, lane)

    def _see_stop(self, session, claims):
        """Records whether the call ends with a task that is served alone, or
        may have stopped before one.
        """
        served = [self.tasks.get(claim.id) for claim in claims]
        alone = [task for task in served if task and task.is_alone()]
        if alone and len(claims) > 1:
            raise Fault("alone", f"task {alone[0].id}, whose lease has expired"
                        f" {alone[0].lapses} times before, is one of"
                        f" {len(claims)}")
        left = {task.lane for task in self.tasks.values()
                if task.unfinished() and task.is_alone()
                and (task.status == READY or self.is_late(task))
                and task not in served}
        self.stopped = bool(alone or claims and left)
        self.left |= left if claims and not alone else set()

    def _parts_of(self, task):
        """The charge to its lane's share."""
        return PARTS

    def _window(self, session, lane, turns, per_group, short):
        """Checks the turns of a call with per_group: no turn is outside of the
        window.  If the call returned less than requested, no turn may be left
        in the window.
        """
        end = min(turns) + per_group * self.block_length
        if max(turns) >= end:
            raise Fault("per_group", f"a turn at {max(turns)}, the first one"
                        f" at {min(turns)}")
        if not short or self.ended or lane.block is None:
            return
        # if the queue is full after the call, the other groups have no turns
        if self._queue_places(session) <= 0:
            return
        for group in self._waiting(session, lane):
            turn = lane.groups[group].turn
            if group not in self.seats or turn == UNKNOWN:
                continue
            had = turn is not None and turn // self.block_length == lane.block
            next_turn = (self.seats[group]
                         + (lane.block + had) * self.block_length)
            if next_turn < end:
                raise Fault("lost", f"the turn of {group} at {next_turn},"
                            f" before {end}")

    def _serve(self, session, claim, task, take):
        values = {"attempt": task.attempt + 1,
                  "lease": int(task.status != RUNNING)}
        if task.status == RUNNING:
            self._fifo(task).cycles = {self._cycle_at(task)}
            values["lapses"] = task.lapses + 1
        else:
            values["stands"] = self._stands(task)
        if take:
            self._change(session, task, GONE, how=COMPLETED, **values)
        else:
            self._change(session, task, RUNNING, instant=claim.lease_until,
                         **values)

    @staticmethod
    def _stands(task):
        """The key that sorts tasks by their places, whether they wait or
        run."""
        if task.status == READY:
            return 0, task.place, 0, task.id
        return 1 if task.begun else 2, *due_order(task), task.id

    def _cycle_at(self, task):
        """Where a cycle continues after the task. After a restart, places begin
        again if no earlier place has a task.
        """
        waits, place, *_ = task.stands
        return ANYWHERE if not waits and place <= self.oldest else task.stands

    def _have_shares(self, session):
        """A call uses the shares that it finds. If these differ from the shares
        of the last call that found shares, all lanes are equal.
        """
        settings = self.settings_of(session)
        if settings.paused:
            return
        if not settings.shares:
            self.shares = Shares()
        elif self.shares_of != settings.shares:
            self.shares_of = settings.shares
            self.kept_shares = self.shares = Shares(settings.shares)
        else:
            self.shares = self.kept_shares

    def set_weight(self, group, weight):
        self.weights[group] = (weight, max(weight, self._weight(group)[1]))
        for lane in self.lanes.values():
            if group in lane.groups:
                lane.groups[group].regular = False

    def forget(self):
        """Ends all stretches, because the hints were reset."""
        self.blind = True
        for lane in self.lanes.values():
            lane.forget_turns()
            for fifo in lane.groups.values():
                fifo.cycles = {None}

    def restarted(self):
        self.forget()
        self.oldest = self.places
        for lane in self.lanes.values():
            for fifo in lane.groups.values():
                fifo.turn = None
        self.shares_of = None
        self.limited = False

    # ---- tasks that may be served

    def _due(self, session, fifo):
        return fifo.late(session, self.clock.start, SCHEDULED)

    def _expired(self, session, fifo, blind=None):
        """Tasks that must be served again. A transaction may or may not find out
        that its own leases have expired.
        """
        if self._is_blind(blind) or self._leaves_expired(session, fifo):
            return []
        return [task for task in fifo.late(session, self.clock.start, RUNNING)
                if task.owner is None and not self.ending(session, task)]

    def _leaves_expired(self, session, fifo):
        """A call in a transaction block need not end tasks, since other calls
        would have to wait for its commit. If it does not, it also leaves the
        group's other expired tasks.
        """
        return (session in self.undo and session != self.single
                and any(self.ending(session, task) for task in fifo.late(
                    session, self.clock.start, RUNNING)))

    def _is_blind(self, blind):
        return self.blind if blind is None else blind

    def _places(self, session, group, blind=None):
        """How many more tasks can certainly be claimed.  The number is negative
        if too many run.  blind is None if the call may be blind.
        """
        limit = self.settings_of(session).limit(group)
        if limit is None:
            return NO_LIMIT
        if self.uncounted or self._is_blind(blind):
            return -1
        return limit - self._counts(group).most(session)

    def _queue_places(self, session, blind=None):
        most = self.settings_of(session).max_running
        if most is None:
            return NO_LIMIT
        if self.uncounted or self._is_blind(blind):
            return -1
        return most - self.total.most(session)

    def _too_many(self, session, group):
        return (self._places(session, group) < 0
                or self._queue_places(session) < 0)

    def _can_serve(self, session, group, fifo, ready):
        """Whether a task of the group can be served.  ready: whether the group
        has a task that is not expired.
        """
        if self._too_many(session, group):
            return False
        if ready and self._has_room(session, group):
            return True
        return bool(self._expired(session, fifo))

    def _keeps_out(self, session, task):
        """Whether the task may have used the last slots, so that other groups
        had none."""
        return self._queue_places(session) <= 0

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
        """How many tasks a call must serve if it requests this number. A call
        with a smaller result is not blind.
        """
        visible, expired = {}, 0
        room = self._queue_places(session, False)
        if room < 0:
            return 0
        for lane in self.lanes.values():
            for group, fifo in lane.groups.items():
                visible[group] = (visible.get(group, 0)
                                  + fifo.visible(session)
                                  + len(self._due(session, fifo)))
                if fifo.timed and self._places(session, group, False) >= 0:
                    expired += len(self._expired(session, fifo, False))
        return expired + min(room, self._at_most(session, visible))

    def _at_most(self, session, visible):
        """How many of these tasks may be served, if the queue has room."""
        return sum(
            count and min(count, max(self._places(session, group, False), 0))
            for group, count in visible.items())

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
        got = (claim.group, claim.priority, claim.attempt, claim.lapses)
        want = (task.group, task.lane, task.attempt + 1,
                task.lapses + (task.status == RUNNING))
        if got != want:
            raise Fault("claim", f"task {task.id}: group, priority, attempt,"
                        f" lapses are {got}, not {want}")
        if not task.enqueued[0] <= claim.enqueued_at <= task.enqueued[1]:
            raise Fault("claim", f"task {task.id} was enqueued at"
                        f" {task.enqueued}, not at {claim.enqueued_at}")
        if not take:
            self.check_lease(lease, claim.lease_until, "claim")
        elif claim.lease_until is not None:
            raise Fault("claim", f"task {task.id} was taken with a lease")

    def _check_priority(self, session, task):
        if task.lane in self.left and task.is_alone():
            return
        own = self.shares.key(task.lane)
        for priority, lane in self.lanes.items():
            if self.shares.key(priority) < own and any(
                    self._can_serve(session, group, fifo,
                                    self._visible(session, fifo))
                    for group, fifo in lane.groups.items()):
                raise Fault("shares" if self.shares.share else "priority",
                            f"task {task.id} of lane {task.lane}"
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
            expired = {first.status for first in firsts | {task}} == {RUNNING}
            raise Fault("behind" if expired else "fifo",
                        f"task {task.id} of {task.group}"
                        f" ({task.status}) before "
                        + " or ".join(f"{first.id} ({first.status})"
                                      for first in firsts))

    def _firsts(self, session, fifo, task):
        """The group's first task, or each task that may be the first."""
        rooms = {self._has_room(session, task.group),
                 self._may_have_room(session, task.group)}
        expired = fifo.late(session, self.clock.start, RUNNING)
        sure = [other for other in expired if other.owner is None]
        views = [sure] + [sure + [other] for other in expired
                          if other.owner is not None]
        if self.blind:
            views.append([])
        if self._leaves_expired(session, fifo):
            views.append([])
            views += [[other for other in view
                       if not self.ending(session, other)] for view in views]
        firsts = set()
        for some in views:
            if some:
                firsts |= self._next_in_cycle(fifo, some, task)
            elif True in rooms:
                firsts |= self._firsts_of_rest(session, fifo, task)
        return firsts - {None}

    def _next_in_cycle(self, fifo, expired, task):
        """The next task in each possible cycle.  The given task is possible,
        too, if a turn of its group may have several tasks and some of these
        have moved to other places.  The order within such a turn is not known.
        """
        firsts = set()
        for last in fifo.cycles:
            if last is ANYWHERE:
                return set(expired)
            behind = [other for other in expired
                      if last is not None and other.stands > last]
            first = min(behind or expired, key=lambda other: other.stands)
            firsts.add(first)
            if (self._weight(task.group)[1] > 1 and task in expired
                    and task.stands[0] == 0
                    and (task.moved or first.moved
                         or last and self._was_moved(last[-1]))):
                firsts.add(task)
        return firsts

    def _was_moved(self, id):
        return id not in self.tasks or self.tasks[id].moved

    def _firsts_of_rest(self, session, fifo, task):
        """The group's first task if none has expired, or each task that may be
        the first."""
        due = self._due(session, fifo)
        begun = [other for other in due if other.begun]
        if begun:
            return self._earliest(begun)
        return {self._by_time(ready, due, task)
                for ready in self._first_ready(session, fifo, task)}

    @staticmethod
    def _earliest(begun):
        """The first retried task, or each one that may be the first."""
        def since(task, last):
            return due_at(task.retry[last] if task.retry else task.run_at)

        if all(since(task, 0) == since(task, 1) for task in begun):
            return {min(begun, key=due_order)}
        first = min(since(task, 1) for task in begun)
        return {task for task in begun if since(task, 0) <= first}

    def _first_ready(self, session, fifo, task):
        """The first ready task.  If a turn of the group may have several tasks,
        also those that may precede it in the same turn.
        """
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
    def _by_time(ready, due, task):
        """The first of the ready and the due tasks.  Returns the given task,
        if that may be the first.
        """
        if not due:
            return ready
        late = min(due, key=due_order)
        # the task may have become due within the call that made the other task
        # ready
        before = ready and ready.since[1 if late is task else 0]
        if ready is None or late.run_at < before:
            return late
        return ready

    def _found(self, session, task):
        status, when = self.found.pop(task.id)
        if status == READY and not self._too_many(session, task.group):
            raise Fault("expiry", f"task {task.id}, whose lease expired, is"
                        " ready again, but it was its turn")
        self._fifo(task).cycles |= {self._cycle_at(task)}
        self.lapsed(session, task, status, when)

    def _check_ended(self, session):
        """Checks that the pop has ended all expired tasks that cannot be served
        again."""
        settings = self.settings_of(session)
        for task in self.expired(session):
            if (task.owner is None and self.ending(session, task)
                    and settings.limit(task.group) != 0):
                raise Fault("lost", f"task {task.id}, which has expired, is"
                            f" still not {self.ending(session, task)}")

    def _waiting(self, session, lane):
        """The groups that wait properly. Ends the stretches of other groups,
        except for those that only a full queue delays.
        """
        waiting = set()
        for group, fifo in lane.groups.items():
            if self._waits(session, group, fifo):
                waiting.add(group)
                if fifo.waits_since is None:
                    fifo.waits_since = self.services
            elif self._is_ready(session, fifo) and self._places(
                    session, group) > 0:
                fifo.waits_since = None
            else:
                fifo.end_wait()
                if self.blind or self.undo.keys() - {self.single}:
                    fifo.turn = UNKNOWN
                if self.blind:
                    fifo.served_at = None
            if not self._expired(session, fifo):
                self._served_since(fifo, True)
            if not self._full(session, group, fifo):
                fifo.end_stretch()
        return waiting

    @staticmethod
    def _served_since(fifo, in_full):
        """Records that the group was served, so the counts of other groups
        begin at zero."""
        for key in [key for key in fifo.since if key[1] == in_full]:
            del fifo.since[key]

    def _served_in_full(self, session, task):
        """Whether a full queue served the task without a turn, or None if that
        is not known."""
        most = self.settings_of(session).max_running
        if task.status != RUNNING or most is None:
            return False
        if self.total.running >= most:
            return True
        return None if self._queue_places(session) <= 0 else False

    def _in_order(self, session, lane, waiting, task, addr, in_full):
        """Checks that it was the group's turn."""
        if in_full is None:
            lane.forget_turns()
        else:
            self._turn(session, lane, waiting, task, in_full)
        if in_full is False:
            self._address(lane, waiting, task, addr)
            self._share(session, lane, waiting, task, addr)
            lane.served_at = self.services

    def _turn(self, session, lane, waiting, task, in_full):
        weight = self._weight(task.group)[1]
        for group in waiting:
            fifo = lane.groups[group]
            if group == task.group or (
                    in_full and not self._expired(session, fifo)):
                continue
            key = (task.group, in_full)
            served = fifo.since[key] = fifo.since.get(key, 0) + 1
            twice = not in_full and self._came_since(lane, task.group, fifo)
            if served > (2 * weight if twice else weight):
                raise Fault("turn", f"task {task.id} of {task.group} (weight"
                            f" {weight}) is the {served}th of its group while"
                            f" {group} waits")
        self._served_since(lane.groups[task.group], in_full)

    @staticmethod
    def _came_since(lane, group, fifo):
        """Whether the group began to wait after the last service of fifo's
        group."""
        if fifo.served_at is None:
            return fifo.turn is not None
        came = lane.groups[group].waits_since
        return came is None or came > fifo.served_at

    def _address(self, lane, waiting, task, addr):
        """Checks the address of a turn against other turns and waiting groups.
        """
        fifo = lane.groups[task.group]
        block, seat = divmod(addr, self.block_length)
        name = f"the turn of {task.group} at {addr} (task {task.id})"
        if lane.block is not None and block < lane.block:
            raise Fault("back", f"{name} is of a block before {lane.turn}")
        if addr == lane.turn:
            lane.in_turn += 1
            if lane.in_turn > self._weight(task.group)[1]:
                raise Fault("twice", f"{name} is of {lane.in_turn} tasks")
        else:
            if fifo.turn not in (None, UNKNOWN) and not (
                    fifo.turn // self.block_length < block):
                raise Fault("twice", f"{name} is in the block of {fifo.turn}")
            for group in waiting - {task.group}:
                self._check_next(lane, group, block, seat, name)
            lane.block, lane.turn, lane.in_turn = block, addr, 1
            fifo.served_at = self.services
        fifo.turn = addr
        if task.group in self.groups:
            self.seats[task.group] = seat

    def _check_next(self, lane, group, block, seat, name):
        """Checks that a waiting group has its turn after this one."""
        fifo = lane.groups[group]
        if fifo.turn == UNKNOWN:
            return
        last = -1 if fifo.turn is None else fifo.turn // self.block_length
        if last < block and self.seats.get(group, seat) < seat:
            raise Fault("turn", f"{name} was taken before the turn of"
                        f" {group}, which has a lower seat"
                        f" ({self.seats[group]}) and has had no turn in this"
                        f" block")
        if (lane.block is not None and lane.block < block and last < block - 1
                and fifo.waits_since is not None
                and fifo.waits_since <= lane.served_at):
            raise Fault("turn", f"{name}: {group} has had none in block"
                        f" {block - 1}")

    def _full(self, session, group, fifo):
        weight = self._weight(group)[0]
        return (fifo.regular and fifo.unsettled(session) is None
                and fifo.visible(session) >= weight
                and self._places(session, group) >= weight)

    def _share(self, session, lane, waiting, task, addr):
        """Per pair: the stretches of both, and n_g * w_h - n_h * w_g with its lowest and
        highest value since both have had a turn.
        """
        group, fifo = task.group, self._fifo(task)
        weight = self._weight(group)[0]
        full = self._full(session, group, fifo)
        if fifo.first_turn is None:
            fifo.first_turn = addr
        full = full and fifo.first_turn != addr
        for other in waiting if full else ():
            weight2 = self._weight(other)[0]
            fifo2 = lane.groups[other]
            if (other == group or weight == weight2 == 1
                    or fifo2.first_turn is None
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
            fifo.end_stretch()

    def _weight(self, group):
        return self.weights.get(group, (1, 1))
