"""The view of each session: transactions, savepoints, and their effects.

A change belongs to the session that made it until its transaction ends.  All
changes are recorded in their order, with the previous state, and are undone in
the reverse order.
"""

from state import (ANYWHERE, GONE, PURGED, READY, RUNNING, SCHEDULED, Counts,
                   Fifo, Lane, Settings)


class Transactions:
    def __init__(self, clock):
        self.clock = clock
        self.tasks = {}         # id: Task, for all tasks that still exist
        self.ids = set()        # the ids of all tasks so far
        self.keys = {}          # dedup key: the existing tasks with it
        self.lanes = {}         # priority: Lane
        self.undo = {}          # session in a transaction: [(task, state)]
        self.savepoints = {}    # session in a transaction: [length of undo]
        self.settings = Settings()
        self.pending = {}       # session: settings that it has not committed
        self.counts = {}        # group: Counts of its running tasks
        self.limited = False    # whether a call has seen a limit
        self.uncounted = set()  # sessions that began before a call saw a limit
        self.total = Counts()   # Counts of the queue's running tasks
        self.groups = set()     # groups that have had a committed task
        self.seats = {}         # group: its seat, as seen in its turns
        self.seats_are_new = True   # whether no group has a seat of another one
        self.places = 0
        self.took = {}          # task: the last time that its worker reported, or None

    # ---- ends of transactions

    def begin(self, session):
        self.undo[session] = []
        self.savepoints[session] = []

    def commit(self, session):
        del self.savepoints[session]
        self.uncounted.discard(session)
        self.settings = self.pending.pop(session, self.settings)
        for task, _ in self.undo.pop(session):
            if task is None or task.owner != session:
                continue        # the task is settled already, because it occurs twice in the list
            self._settle(task)

    def rollback(self, session):
        self._undo_to(session, 0)
        del self.undo[session], self.savepoints[session]
        self.uncounted.discard(session)

    def savepoint(self, session):
        self.savepoints[session].append(len(self.undo[session]))

    def rollback_to(self, session, depth):
        """Rolls back to the savepoint at this depth, which stays."""
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
            if task.status == GONE and task.owner is None and not task.outcome:
                self._forget(task)
                self.ids.discard(task.id)   # after a crash the id may be used again
                if any(last and last[-1] == task.id for last in fifo.cycles):
                    fifo.cycles.add(ANYWHERE)   # another task gets the address of this one
                if task.group not in self.groups:
                    self._unknown(task.group)
            self._changed(fifo)

    def _unknown(self, group):
        """Forgets the group's seat: a group that has no tasks may get another
        one."""
        self.seats.pop(group, None)
        self.seats_are_new = False
        for lane in self.lanes.values():
            if group in lane.groups:
                lane.groups[group].forget_turns()
            for fifo in lane.groups.values():
                fifo.since.pop((group, False), None)
                fifo.since.pop((group, True), None)

    # ---- changes

    def _learn(self, task):
        self.tasks[task.id] = task
        self.ids.add(task.id)
        if task.key is not None:
            self.keys.setdefault(task.key, []).append(task)

    def _forget(self, task):
        del self.tasks[task.id]
        if task.key is not None:
            self.keys[task.key].remove(task)

    def _remove(self, task):
        self._fifo(task).remove(task)
        self._counts(task.group).add(task, -1)
        self.total.add(task, -1)

    def _put(self, task):
        self._fifo(task).put(task)
        self._counts(task.group).add(task, 1)
        self.total.add(task, 1)

    def _change(self, session, task, status, last=False, lease=0, **values):
        """Sets the status and the given fields. With last, the task gets the
        last place. lease is the number of additional leases. A task that
        neither runs nor is scheduled has no instant.
        """
        fifo = self._fifo(task)
        if session in self.undo:
            self.undo[session].append((task, task.state()))
            fifo.regular &= status != READY
        fifo.regular &= status != SCHEDULED
        self._remove(task)
        task.status, task.owner = status, session
        task.leases += lease
        if status not in (SCHEDULED, RUNNING):
            task.instant = None
        if status == SCHEDULED:
            task.place = 0
        if last:
            self.places += 1
            task.place = self.places
        for name, value in values.items():
            setattr(task, name, value)
        self._put(task)
        if session not in self.undo:
            self._settle(task)
        self._changed(fifo)

    def _settle(self, task):
        self._remove(task)
        task.owner = task.born = None
        task.leases = int(task.status == RUNNING)
        self.groups.add(task.group)
        if task.status in (GONE, PURGED) and not task.outcome:
            self._forget(task)
        self._put(task)

    def _changed(self, fifo):
        """Ends the wait of the group if it has no task."""
        if fifo.nothing_ready() and not self._late_in(fifo):
            fifo.end_wait()

    def _fifo(self, task):
        lane = self.lanes.setdefault(task.lane, Lane())
        if task.group not in lane.groups:
            lane.groups[task.group] = Fifo(self.seats_are_new)
        return lane.groups[task.group]

    def _counts(self, group):
        counts = self.counts.get(group)
        if counts is None:
            counts = self.counts[group] = Counts()
        return counts

    # ---- settings

    def _pend(self, session, settings):
        if settings is None:
            del self.pending[session]
        else:
            self.pending[session] = settings

    def set(self, session, **values):
        """Changes settings. The new settings apply only to the session until it
        commits."""
        settings = self.settings_of(session).changed(**values)
        if session in self.undo:
            self.undo[session].append((None, self.pending.get(session)))
            self.pending[session] = settings
        else:
            self.settings = settings

    def set_limit(self, session, group, limit):
        """Sets the limit of a group, or of the queue's groups if group is
        None. 0: no limit."""
        if group is None:
            self.set(session, concurrency=limit or None)
            return
        limits = dict(self.settings_of(session).concurrency_of)
        limits[group] = limit or None
        self.set(session, concurrency_of=limits)

    def set_paused(self, session, group, paused):
        if group is None:
            self.set(session, paused=paused)
            return
        groups = self.settings_of(session).paused_groups
        groups = groups | {group} if paused else groups - {group}
        self.set(session, paused_groups=groups)

    def settings_of(self, session):
        """The settings that the session's calls use."""
        return self.pending.get(session, self.settings)

    def may_set(self, session):
        """Whether the session can change settings without waiting for another
        one.
        """
        return not self.pending.keys() - {session}
