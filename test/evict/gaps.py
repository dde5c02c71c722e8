"""Holds up a pop in each gap between two of its searches in the cache of
groups: see run.

The cache has room for eight groups of all queues.  All entries except one
belong to groups of the queue "m" that wait for a limit.  These entries are the
last to be evicted.  The other entry belongs to group x of the queue "l", which
a pop visits.  In the gap after each search another group of "m" becomes active
and takes the entry of x.

In another case a pop searches for expired tasks, and then finds that the group
has a new entry.  Later the pop must search again for the expired tasks that it
has left.

A pop is also held up in the middle of a load.  Other sessions begin another
load, and the limit must hold.  A free slot is used once.  If the first load has
become invalid, it must not report that the second load has counted a queue.
"""

import os
import subprocess
import sys
import threading

import psycopg

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from stall import Stall  # noqa: E402

WAIT = 20                       # seconds for short operations


def connect():
    return psycopg.connect(autocommit=True, options="-c statement_timeout=60s")


class Gaps:
    def __init__(self):
        self.db = connect()
        self.data = self.value("SHOW data_directory")
        self.other = connect()
        self.locker = connect()
        self.pid = self.other.info.backend_pid

    def rows(self, sql, *arguments):
        cursor = self.db.execute(sql, arguments)
        return cursor.fetchall() if cursor.description else []

    def value(self, sql, *arguments):
        return self.rows(sql, *arguments)[0][0]

    def prepare(self, how):
        """Makes the state in which the group has its turn."""
        if how == "load":
            self.prepare_load()
            return
        self.rows("SELECT fairq.drop_queue(queue, true) FROM fairq.queues")
        self.rows("SELECT fairq.create_queue('l'), fairq.create_queue('m', concurrency => 1)")
        if how == "expired":
            self.rows("SELECT fairq.enqueue('l', 'x', '\"x0\"')")
            self.rows("SELECT fairq.pop('l', lease => '1 microsecond')")
        if how == "lapsed":
            for i in range(2):
                self.rows("SELECT fairq.enqueue('l', 'x', %s)", f'"x{i}"')
            self.rows("SELECT fairq.pop('l', 2, '1 microsecond')")
        if how == "due":
            for i in range(2):
                self.rows("SELECT fairq.enqueue('l', 'x', %s, run_at =>"
                          " clock_timestamp() + '1 millisecond')", f'"x{i} is due"')
        if how == "park":
            self.rows("SELECT fairq.enqueue('l', 'x')")
            self.rows("SELECT fairq.pop('l')")
            self.rows("SELECT fairq.set_group('l', 'x', concurrency => 1)")
            # the queue's running tasks are counted here, so the pop that is
            # held up does not count them
            self.rows("SELECT count(*) FROM fairq.peek('l')")
        # tasks that do not fit into the hand are read in the index
        for i in range({"read": 20, "lapsed": 0}.get(how, 2)):
            self.rows("SELECT fairq.enqueue('l', 'x', %s)", f'"x{i}"')
        if how == "locked":
            self.locker.execute("BEGIN; SELECT FROM fairq.task WHERE payload = '\"x0\"' FOR UPDATE")
        for _ in range(2):
            for i in range(7):
                self.rows("SELECT fairq.enqueue('m', %s)", f"y{i}")
            self.rows("SELECT count(*) FROM fairq.pop('m', 100)")

    def prepare_load(self):
        """Makes a queue in which two of many tasks run."""
        self.rows("SELECT fairq.drop_queue(queue, true) FROM fairq.queues")
        self.rows("SELECT fairq.create_queue('l', concurrency => 2), fairq.create_queue('m')")
        self.rows("SELECT count(*) FROM fairq.enqueue_batch('l', array_fill('x'::text,"
                  " ARRAY[1200]), array_fill('1'::jsonb, ARRAY[1200]))")
        self.rows("SELECT count(*) FROM fairq.pop('l', 10)")
        self.rows("SELECT fairq.reset_hints()")

    def over_the_limit(self):
        """Other sessions pop, with and without a slot that was freed before."""
        for places in (0, 1, 0):
            if places:
                self.rows("SELECT fairq.complete(min(id)) FROM fairq.tasks"
                          " WHERE queue = 'l' AND status = 'running'")
            popped = self.value("SELECT count(*) FROM fairq.pop('l', 10)")
            if popped != places:
                return f"{popped} were popped, with a place for {places}"
        return None

    def pop(self, tasks, result):
        try:
            result.append(self.other.execute("SELECT id FROM fairq.pop('l', %s)", [tasks]).fetchall())
        except psycopg.Error as error:
            result.append(error)

    def begin_pop(self, kind, n, tasks, result):
        """Begins a pop that is held up at the n-th point of the given kind, if it
        has n points."""
        stall = Stall(self.data, self.pid, kind, n)
        thread = threading.Thread(target=self.pop, args=[tasks, result], daemon=True)
        thread.start()
        stall.wait(WAIT, thread)
        return thread, stall

    def remade(self):
        """One of two expired tasks is served, after its group has got a new
        entry."""
        self.prepare("lapsed")
        result = []
        thread, stall = self.begin_pop("claim", 1, 1, result)
        if not stall.is_reached():
            return "the pop was not held up"
        for k in (1, 2):
            self.rows("SELECT fairq.enqueue('m', 'y7', %s)", f'"y7 no {k}"')
        self.rows("SELECT fairq.enqueue('l', 'x', '\"x2\"')")
        stall.let_go()
        thread.join(WAIT)
        popped = len(result[0])
        popped += self.value("SELECT count(*) FROM fairq.pop('l', 10)")
        if popped != 3:
            return f"{popped} tasks were popped instead of 3"
        return self.drained() or None

    def passed_over(self):
        """Drops a queue during two loads, of which the older one ends last."""
        self.rows("SELECT fairq.drop_queue(queue, true) FROM fairq.queues")
        self.rows("SELECT fairq.create_queue('l', concurrency => 1), fairq.create_queue('m'),"
                  " fairq.create_queue('q', concurrency => 1)")
        for queue in ("l", "q"):
            self.rows("SELECT fairq.enqueue(%s, 'x') FROM generate_series(1, 2)", queue)
            self.rows("SELECT fairq.pop(%s)", queue)
        self.rows("SELECT fairq.reset_hints()")
        result = []
        thread, stall = self.begin_pop("load", 1, 10, result)
        if not stall.is_reached():
            return "the pop was not held up"
        self.locker.execute("BEGIN; SELECT fairq.drop_queue('q', true)")
        self.rows("SELECT fairq.reset_hints()")
        self.rows("SELECT fairq.pop('m')")
        stall.let_go()
        thread.join(WAIT)
        self.locker.execute("ROLLBACK")
        popped = self.value("SELECT count(*) FROM fairq.pop('q', 10)")
        if popped or result != [[]]:
            return f"{popped} were popped, with no place left; {result}"
        return None

    def held_up(self, n, how):
        """Holds up a pop at its n-th search.  Returns whether the pop has n
        searches, and the fault."""
        result = []
        thread, stall = self.begin_pop("load" if how == "load" else "entry", n, 10, result)
        stopped = stall.is_reached()
        fault = None
        if stopped:
            if how == "load":
                fault = self.over_the_limit()
            for k in (1, 2):
                self.rows("SELECT fairq.enqueue('m', 'y7', %s)", f'"y7 no {k}"')
        stall.let_go()
        thread.join(WAIT)
        if thread.is_alive():
            return stopped, "it hangs"
        if isinstance(result[0], psycopg.Error):
            return stopped, str(result[0])
        if how == "load" and not fault and result[0]:
            fault = f"{len(result[0])} were popped, with no place left"
        return stopped, fault or (self.over_the_limit() if how == "load" else None)

    def drained(self):
        """Pops and completes tasks repeatedly.  Returns the tasks that remain,
        and faults."""
        for queue in ("l", "m"):
            for _ in range(30):
                self.rows("SELECT fairq.complete(id, attempt) FROM fairq.pop(%s, 10)", queue)
                self.rows("SELECT fairq.complete(id) FROM fairq.tasks WHERE queue = %s"
                          " AND status = 'running'", queue)
        left = self.rows("SELECT queue, group_key, status, payload::text FROM fairq.tasks")
        faults = [fault for queue in ("l", "m")
                  for fault, in self.rows("SELECT * FROM fairq.check_queue(%s)", queue)]
        return left + faults

    def each(self, how):
        """Tests every gap.  Returns the fault, and the number of gaps."""
        n = 0
        while True:
            n += 1
            self.prepare(how)
            # a session's first call would recover the lanes, but others have
            # done that
            stopped, fault = self.held_up(n, how)
            self.locker.execute("ROLLBACK")
            if how == "load":
                self.rows("SELECT fairq.purge('l')")
            fault = fault or self.drained() or None
            if fault:
                return f"gap {n}: {fault}", n
            if not stopped:
                return None, n - 1


def main():
    failed = False
    gaps = Gaps()
    gaps.other.execute("SELECT fairq.version()")
    # first, since the contents of the cache determine which entry is evicted
    fault = gaps.remade()
    failed |= fault is not None
    print(f"{'ok' if fault is None else 'not ok'} 1 - remade{': ' + str(fault) if fault else ''}",
          flush=True)
    for number, how in enumerate(("take", "read", "park", "due", "expired", "locked",
                                   "load"), 2):
        fault, count = gaps.each(how)
        if fault is None and count < 2:
            fault = f"only {count} gaps were seen"
        failed |= fault is not None
        print(f"{'ok' if fault is None else 'not ok'} {number} - {how}: "
              f"{fault or str(count) + ' gaps'}", flush=True)
        if fault and "hangs" in fault:
            subprocess.run(["pg_ctl", "-D", gaps.data, "-m", "immediate", "stop"], check=False)
            break
    else:
        fault = gaps.passed_over()
        failed |= fault is not None
        print(f"{'ok' if fault is None else 'not ok'} {number + 1} - passed over"
              f"{': ' + fault if fault else ''}", flush=True)
    os._exit(1 if failed else 0)


if __name__ == "__main__":
    main()
