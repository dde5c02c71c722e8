"""Sessions and the model. Every call goes to both the sessions and the
model."""

import copy

from life import due_at
from cost import CostModel
from by_time import TimeModel
from tenants import TenantsModel
from model import Model
from state import (CANCELLED, FOREVER, LAPSES_ALONE, READY, RUNNING,
                   SCHEDULED, Fault)
from server import LEVELS, Blocked, Claim

DAY = 24 * 3600 * 1000000       # the queue's lease


class Driver:
    def __init__(self, server, sessions, block_length=1048576, options={}):
        """options: max_attempts, backoff, retain, fair_by, separator, as in the
        settings.
        """
        self.server = server
        self.log = []
        self.clock = server.clock(self.log)
        model = (TimeModel if options.get("fair_by") == "time" else
                 TenantsModel if options.get("separator") else
                 CostModel if options.get("fair_by") == "cost" else Model)
        self.model = model(self.clock, block_length)
        self.model.settings = self.model.settings.changed(**options)
        self.sessions = server.open(sessions, self.log, block_length,
                                    self.model.settings)
        self.names = range(sessions)
        self.levels = {}
        self.forgotten = False      # whether this history has reset hints
        self.restarted = False      # whether it has restarted the server

    def _call(self, s, name, *arguments):
        if name not in ("enqueue", "enqueue_batch", "create_batch", "look"):
            self.model.touches(s)
        with self.clock:
            return getattr(self.sessions[s], name)(*arguments)

    # ---- transactions

    def begin(self, s, level=LEVELS[0]):
        self.levels[s] = level
        self.sessions[s].begin(level)
        self.model.begin(s)

    def commit(self, s):
        self.sessions[s].commit()
        self.model.commit(s)

    def rollback(self, s):
        self.sessions[s].rollback()
        self.model.rollback(s)

    def savepoint(self, s):
        self.sessions[s].savepoint(len(self.model.savepoints[s]))
        self.model.savepoint(s)

    def rollback_to(self, s, depth):
        self.sessions[s].rollback_to(depth)
        self.model.rollback_to(s, depth)

    def release_savepoint(self, s, depth):
        self.sessions[s].release_savepoint(depth)
        self.model.release_savepoint(s, depth)

    def sees_all(self, s):
        """Whether ordinary SQL of the session acts on all committed rows."""
        return s not in self.model.undo or self.levels[s] == LEVELS[0]

    # ---- producers

    def enqueue(self, s, group, priority=0, when=None, key=None,
                max_attempts=None, cost=None, batch=None):
        """when is None, "past", "never", or a number of instants ahead.
        Returns None if another open transaction has the key.
        """
        run_at = self._run_at(when)
        if key is not None and self.model.busy(s, key):
            return self._blocked(s, group, priority, run_at, key)
        id = self._call(s, "enqueue", group, priority, run_at, key,
                        max_attempts, cost, batch)
        self.model.enqueued(s, id, group, priority, run_at, key, max_attempts,
                            cost, batch)
        return id

    # ---- batches

    def create_batch(self, s, group, priority=0, on_success=False, batch=None):
        id = self._call(s, "create_batch", group, priority, on_success, batch)
        self.model.created(s, id, group, priority, on_success, batch)
        return id

    def close_batch(self, s, task):
        closed = self._call(s, "close_batch", task.id)
        if closed != self.model.close_batch(s, task):
            raise Fault("batch", f"close_batch({task.id}) is {closed}")

    def cancel_batch(self, s, task):
        cancelled = self._call(s, "cancel_batch", task.id)
        due = self.model.cancel_batch(s, task)
        if cancelled != due:
            raise Fault("batch", f"{cancelled} cancelled, not {due}")

    def _batch_ends(self, s):
        """The ends of batches during a pop or a wait that has returned."""
        blocked = [task.id for task in self.model.blocked(s)]
        rows = self.sessions[s].batches(blocked) if blocked else {}
        return {id: row for id, row in rows.items() if row.status != "blocked"}

    def _end_batches(self, rng):
        """Closes all batches, and requests a check of each."""
        while True:
            for task in self.model.open_batches(0):
                self.close_batch(0, task)
            over = [task for task in self.model.blocked(0)
                    if self.model.is_over(task)]
            if not over:
                break
            for task in over:
                self.sessions[0].reschedule(task.id)
            self._pop_all(rng)
            for task in over:
                if task.blocked and task.unfinished():
                    raise Fault("batch", f"task {task.id} is still blocked")
        if self.model.blocked(0):
            raise Fault("batch", "a task waits for a task that has ended")

    def batch(self, s, groups, priority=0, when=None, keys=None, costs=None):
        run_at = self._run_at(when)
        if keys and any(self.model.busy(s, key) for key in keys):
            return []
        ids = self._call(s, "enqueue_batch", groups, priority, run_at, keys,
                         costs)
        if len(ids) != len(groups):
            raise Fault("count", f"{len(ids)} ids for {len(groups)} tasks")
        none = [None] * len(groups)
        for id, group, key, cost in zip(ids, groups, keys or none,
                                        costs or none):
            self.model.enqueued(s, id, group, priority, run_at, key, cost=cost)
        return ids

    def _run_at(self, when):
        if when is None:
            return None
        if when == "past":
            return self.clock.now() - DAY
        if when == "never":
            return FOREVER
        run_at = self.clock.planned(when)
        self.clock.expect(due_at(run_at))
        return run_at

    def _blocked(self, s, *arguments):
        """Makes a call that must wait. The call is made only outside a
        transaction, because its timeout would fail the transaction."""
        if s in self.model.undo:
            return None
        try:
            id = self.sessions[s].enqueue_briefly(*arguments)
        except Blocked:
            return None
        raise Fault("key", f"enqueue returned {id}, but the key belongs to another"
                    " open transaction's")

    # ---- workers

    def pop(self, s, tasks, per_group=None, take=False, lease=None):
        """lease has the number of the instant near which the lease ends, from 1
        on, and whether it ends just before that instant.
        """
        lease = self._lease(lease)
        session = self.sessions[s]
        with self.clock:
            foreseen = None if per_group else session.peek(tasks)
            claims = session.pop(tasks, per_group, take,
                                 None if lease == DAY else lease)
        self.model.touches(s)
        ends = self._batch_ends(s)
        claimed = {claim.id for claim in claims}
        doubtful = [task for task in self.model.doubtful(s)
                    if task.id not in claimed]
        found = self._look_at(s, doubtful) if doubtful else {}
        # after a restart peek() does not return expired leases
        if self.restarted and claimed & {task.id for task in
                                         self.model.expired(s)}:
            foreseen = None
        lapsed = bool(self.model.expired(s))
        before = None
        if (foreseen is not None and self.model.settings.fair_by == "time"
                and foreseen != self._served(claims) and not doubtful):
            before = copy.deepcopy(self.model, {id(self.clock): self.clock})
        self.model.popped(s, tasks, claims, per_group, take, lease, found,
                          ends, foreseen=not per_group)
        if foreseen is not None and not ends:
            if self.forgotten and self.model.undo:
                # tasks that open transactions have changed may count as
                # running
                foreseen, before = foreseen[:len(claims)], None
            self._check_foreseen(foreseen, claims, lapsed)
            if before:
                self._judge_foreseen(before, s, tasks, foreseen)
        return claims

    @staticmethod
    def _judge_foreseen(model, s, wanted, foreseen):
        """Checks that a pop that serves these tasks would keep the promises.  The model
        is a copy from before the pop."""
        claims = []
        for number, addr in foreseen:
            task = model.tasks.get(number)
            if task is None:
                raise Fault("peek", f"peek foresaw task {number}, which is gone")
            claims.append(Claim(
                number, task.group, task.attempt + 1, task.lane, addr,
                task.enqueued[0], task.lapses + (task.status == RUNNING), None))
        try:
            model.popped(s, wanted, claims, take=True, foreseen=True)
        except Fault as fault:
            raise Fault("peek", f"peek foresaw {foreseen}: {fault}") from None

    @staticmethod
    def _served(claims):
        return [(claim.id, claim.addr) for claim in claims]

    def _check_foreseen(self, foreseen, claims, lapsed):
        """lapsed is true if leases of tasks had expired."""
        served = self._served(claims)
        if self.model.settings.fair_by == "time":
            # Keys have grown since the peek, at different rates.  So another
            # task can be first.  If a lapsed task is first, it needs no slot,
            # and other tasks may lack a slot.
            if lapsed:
                return
            foreseen, served = len(foreseen), len(served)
        if foreseen != served:
            raise Fault("peek", f"peek foresaw {foreseen}, pop served"
                        f" {served}")

    def _lease(self, lease):
        if lease is None:
            return DAY
        ahead, short = lease
        beside = self.clock.margin * 2 // 3     # no instant of a task is that close
        until = self.clock.planned(ahead) + (-beside if short else beside)
        return max(until - self.clock.now(), 1000)

    def _look_at(self, s, tasks):
        """The state of expired tasks that do not run any more: the status, and
        when they ended or became ready again. The result includes tasks that an
        old snapshot does not see. In histories with such snapshots, queues
        retain ended tasks.
        """
        rows = self._own_rows(s, [task.id for task in tasks])
        found = {}
        for task in tasks:
            row = rows.get(task.id)
            if row is None and self.sees_all(s):
                found[task.id] = (CANCELLED if task.cancelled else "gone",
                                  None)
            elif row is not None and row.status in ("queued", "waiting"):
                found[task.id] = (READY, row.run_at)
            elif row is not None and row.status != RUNNING:
                found[task.id] = (row.status, row.finished_at)
        return found

    def complete(self, s, id, attempt=None, valid=True, result=None,
                 took=None):
        done = self._call(s, "complete", id, attempt, result, took)
        if done != (valid and not self.model.tasks[id].cancelled):
            raise Fault("complete", f"complete({id}) is {done}")
        if valid:
            self.model.took[id] = took
            self.model.finished(s, id, result)

    def complete_batch(self, s, tasks, took=None):
        """took is the time that the worker reports for each task."""
        lost = self._call(s, "complete_batch", [task.id for task in tasks],
                          [task.attempt for task in tasks], took)
        if lost != [task.id for task in tasks if task.cancelled]:
            raise Fault("complete", f"the call returns {lost} as lost")
        for task, time in zip(tasks, took or [None] * len(tasks)):
            self.model.took[task.id] = time
            self.model.finished(s, task.id)

    def fail(self, s, id, attempt=None, error=None, ahead=None, dead=False,
             valid=True, took=None):
        """ahead is the number of instants until the retry. None: backoff."""
        delay = self._delay(ahead)
        done = self._call(s, "fail", id, attempt, error, delay, dead, took)
        if done != (valid and not self.model.tasks[id].cancelled):
            raise Fault("fail", f"fail({id}) is {done}")
        if valid:
            self.model.took[id] = took
            fate = self.model.fate(s, self.model.tasks[id], delay, dead)
            look = fate == SCHEDULED or (fate == READY and self.sees_all(s))
            self.model.failed(s, id, error, delay, fate,
                              self._when(s, id) if look else None)

    def release(self, s, id, attempt=None, ahead=0, valid=True):
        delay = self._delay(ahead)
        done = self._call(s, "release", id, attempt, delay)
        if done != (valid and not self.model.tasks[id].cancelled):
            raise Fault("release", f"release({id}) is {done}")
        if valid:
            task = self.model.tasks[id]
            scheduled = ((delay or task.lapses >= LAPSES_ALONE)
                         and not task.cancelled)
            self.model.released(s, id, delay,
                                scheduled and self._when(s, id))

    def _own_rows(self, s, ids):
        session = self.sessions[s]
        return (session.look(ids) if self.sees_all(s)
                else session.look_at_changed(ids))

    def _delay(self, ahead):
        if not ahead:
            return ahead
        return max(self.clock.planned(ahead) - self.clock.now(), 1000)

    def _when(self, s, id):
        """The time to which a task was postponed."""
        row = self._own_rows(s, [id]).get(id)
        if row is None or row.run_at is None:
            raise Fault("view", f"task {id} is not scheduled, but {row}")
        return row.run_at

    def extend(self, s, id, attempt=None, lease=None, valid=True):
        lease = self._lease(lease)
        until = self._call(s, "extend", id, attempt,
                           None if lease == DAY else lease)
        if valid:
            self.model.extended(s, id, lease, until)
        elif until is not None:
            raise Fault("extend", f"task {id}, attempt {attempt}, was extended"
                        f" to {until}")

    def cancel(self, s, id):
        done = self._call(s, "cancel", id)
        due = self.model.cancel(s, id)
        if done != due:
            raise Fault("cancel", f"cancel({id}) is {done}")

    def expire(self, s, most):
        """Calls expire_leases, and compares it with the view's rows of the
        expired tasks."""
        done = self._call(s, "expire", most)
        expired = self.model.expired(s)
        found = self._look_at(s, expired)
        if not done == len(found) == min(most, len(expired)):
            raise Fault("expire", f"{done} expired, by the view"
                        f" {len(found)}, of {len(expired)}, at most {most}")
        self._lapsed(s, expired, found)

    def _lapsed(self, s, expired, found):
        for task in sorted(expired, key=lambda task: (
                task.lane, task.stands)):
            if task.id in found:
                self.model.lapsed(s, task, *found[task.id])

    # ---- queues

    def purge(self, s, group=None):
        dropped = self._call(s, "purge", group)
        due = self.model.purge(s, group)
        if dropped != due:
            raise Fault("purge", f"{dropped} dropped, not {due}")

    def redrive(self, s, group=None, most=None):
        back = self._call(s, "redrive", group, most)
        due = self.model.redrive(s, group, most)
        if back != due:
            raise Fault("redrive", f"{back} are back, not {due}")

    def maintain(self, s):
        self._call(s, "maintain")
        expired = self.model.expired(s)
        found = self._look_at(s, expired)
        if len(found) != len(expired):
            raise Fault("expire", f"maintain left"
                        f" {len(expired) - len(found)} expired ones")
        self._lapsed(s, expired, found)
        self.model.maintained(s)

    def set_weight(self, s, group, weight):
        self.sessions[s].set_weight(group, weight)
        self.model.set_weight(group, weight)

    def may_set(self, s):
        """Settings are changed one at a time, sometimes by ordinary SQL."""
        return self.model.may_set(s) and self.sees_all(s)

    def set_limit(self, s, group, limit):
        self.sessions[s].set_limit(group, limit)
        self.model.set_limit(s, group, limit)

    def set_max_running(self, s, limit):
        self.sessions[s].set_max_running(limit)
        self.model.set(s, max_running=limit or None)

    def set_shares(self, s, shares):
        self.sessions[s].set_shares(shares)
        self.model.set(s, shares=shares)

    def set_paused(self, s, group, paused):
        self.sessions[s].set_paused(group, paused)
        self.model.set_paused(s, group, paused)

    def set_max_attempts(self, s, most):
        self.sessions[s].set_max_attempts(most)
        self.model.set(s, max_attempts=most)

    def set_retain(self, s, retain):
        self.sessions[s].set_retain(retain)
        self.model.set(s, retain=retain)

    def reset_hints(self, s):
        self.forgotten = True
        self.sessions[s].reset_hints()
        self.model.forget()

    def restart(self, crash):
        self.restarted = True
        self.server.restart(crash)
        for s in list(self.model.undo):
            self.model.rollback(s)
        self.model.restarted()

    # ---- checks

    def wait(self, s):
        """Calls wait() for a moment, and checks the answer with a pop."""
        ready = self._call(s, "wait")
        self.model.looked(s)
        ends = self.model.end_failed_batches(s, self._batch_ends(s))
        self.model.end_batches(s, ends)
        # wait ends the tasks that no pop would return
        expired = self.model.expired(s)
        self._lapsed(s, expired, self._look_at(s, expired))
        if not ready and self.model.available(s):
            raise Fault("wait", f"{self.model.available(s)} tasks are ready")
        if ready and not self.pop(s, 1) and not self.model.ended:
            raise Fault("wait", "wait() returned true, but no task is ready")

    def tick(self):
        return self.clock.tick()

    def look(self, s, id):
        """Whether the task's row in the view is correct."""
        rows = self._call(s, "look", [id])
        task = self.model.tasks.get(id)
        if task is not None:
            self.model.check_row(s, task, rows.get(id))
        elif rows:
            raise Fault("view", f"task {id} was deleted, but {rows[id]}")

    def check_queue(self):
        complaints = self.sessions[0].check_queue()
        if complaints:
            raise Fault("check_queue", "; ".join(complaints))

    def check_archive(self):
        """Checks the view at the end, when no other task is left."""
        rows = self._call(0, "look")
        for task in self.model.tasks.values():
            self.model.check_row(0, task, rows.pop(task.id, None))
        for row in rows.values():
            raise Fault("view", f"{row}, which was deleted")

    def drain(self, rng, release=True):
        """Ends all open transactions, and pops and ends all tasks. Each task is
        popped once, and no other task is popped."""
        for s in list(self.model.undo):
            self.commit(s) if rng.random() < 0.5 else self.rollback(s)
        self.check_queue()
        for task in self.model.held(0):
            if rng.random() < 0.5 and release:
                self.release(0, task.id, task.attempt)
        self._pop_all(rng)
        settings = self.model.settings
        for group in sorted(settings.paused_groups):
            self.set_paused(0, group, False)
        if settings.paused:
            self.set_paused(0, None, False)
        self._pop_all(rng)
        for task in self.model.unfinished():
            if task.status != SCHEDULED:
                raise Fault("lost", f"task {task.id} is left, {task.status}")
            if not task.blocked:
                self.cancel(0, task.id)
        self._end_batches(rng)
        self.check_archive()
        self.check_queue()

    def _pop_all(self, rng):
        s = 0
        while True:
            held = self.model.held(s)
            if held and rng.random() < 0.8:
                self.complete_batch(s, held)
            s = rng.choice(self.names)
            if (not self.pop(s, rng.choice((1, 1, 2, 5, 20)))
                    and not self.model.held(s) and not self.tick()):
                break

    def close(self, clean):
        self.server.close(self.sessions, clean)

    def give_up(self):
        self.server.give_up(self.sessions)
