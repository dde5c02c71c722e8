"""Chaos: workers die at every point of a task's life, and records show that no
task is lost or run twice.

4 producers and 10 workers use four queues with and without limits.  The
producers make single and batch enqueues, some with a dedup_key, a run_at, an
expires_at or a priority.  Some tasks are in a batch for which another task
waits, and some enqueues are rolled back.  Workers pop with leases of 100 to 500
ms, take, wait, extend, complete, fail and release.  Workers die all the time:
their server process is terminated, or their end of the connection is closed.
Workers die before and after the commits of pop and of complete, while they work
or wait, and between a COMMIT and its answer.  In a shorter part the whole
server dies.  Other workers are only slow, and return long after their lease has
ended.  Meanwhile tasks are cancelled, limits are changed, groups are paused,
and failed tasks are redriven.

fairq.maintain(), expire_leases() and reset_hints() run at times.  These calls
could hide that a pop does not find a task on its own, or finds the task too
late.  So in the first half of the test these calls affect only one queue.

The records are tables, written in the transactions that they describe.  "The
work" of a task is its row in life_done, in the transaction of complete.  So the
records are correct whatever happens to sessions.  In the end they show these
promises:

    once        exactly the tasks whose enqueue has committed have ended.  Each was
                completed once or cancelled, has failed permanently, or expired
                before it started
    attempts    the attempts of each task are 1, 2, 3 ...  No attempt begins during
                the lease of another, before run_at, or after max_attempts. The
                first one does not begin after expires_at.  The counters of
                fairq.queues equal the sums of the records
    batches     a task that waits for others begins after they have ended, and
                its batch has the right number of tasks for each kind of end
    limits      in each of many snapshots, limits are not exceeded, and no
                dedup_key belongs to two tasks
    starved     no group that has work waits for 5 seconds
    sound       fairq.check_queue() finds no fault, during the run and at the end
"""

import os
import random
import signal
import threading
import time
from collections import Counter

import psycopg

from base import (Fault, column, connect, drop, expect, new_queue, now, rows,
                  value)
from sessions import (Admin, Checker, KINDS, Observer, Producer, REDRIVEN,
                      SLICE, Worker)

BOOKS = """
    sent (id bigint PRIMARY KEY, queue text, grp text, priority int,
          dedup_key text, max_attempts int, run_at timestamptz,
          expires_at timestamptz, batch bigint)
    answers (id bigint, queue text, dedup_key text)
    pops (id bigint, attempt int, lease_until timestamptz,
          begun timestamptz, at timestamptz DEFAULT clock_timestamp())
    extends (id bigint, attempt int, lease_until timestamptz,
             at timestamptz DEFAULT clock_timestamp())
    done (id bigint, attempt int, how text)
    fails (id bigint, attempt int, error text, dead boolean)
    releases (id bigint, attempt int)
    untold (id bigint, attempt int)
    cancels (id bigint, at timestamptz DEFAULT clock_timestamp())
    redrives (queue text, tasks bigint)
    again (id bigint)
"""


class Chaos:
    """crashes: the number of crashes of the whole server."""

    def __init__(self, run, seconds, seed, crashes=0):
        self.main, self.seconds, self.seed = run, seconds, seed
        self.crashes = crashes
        self.random = random.Random(f"{seed} chaos")
        self.calm = False               # whether no session dies any more
        self.over = threading.Event()
        self.backlog = Counter()
        self.unfinished = []
        self.deaths = Counter()
        self.lost = self.slow = self.late = self.put_back = 0
        self.checked = self.passing = self.maintained = 0
        self.faults = []
        self.killer = connect("killer")
        self.killing = threading.Lock()

    @property
    def db(self):
        return self.main.db

    def fail(self, text):
        self.faults.append(text)

    def unaided(self):
        return now() - self.start < self.seconds / 2

    def end(self, pid):
        with self.killing:
            self.killer.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE pid = %s AND application_name ~ '^life [pw]'", [pid])

    def look_for_faults(self):
        if self.faults:
            raise Fault(self.faults[0])

    # ---- the run

    def prepare(self):
        for line in " ".join(BOOKS.split()).replace(") ", ")\n").split("\n"):
            name = line.split()[0]
            self.db.execute(f"DROP TABLE IF EXISTS life_{name}")
            self.db.execute(f"CREATE TABLE life_{line}")
        for kind in KINDS:
            new_queue(self.db, kind.name, **kind.options)
            for group, most in kind.own.items():
                self.db.execute("SELECT fairq.set_group(%s, %s,"
                                " concurrency => %s)",
                                [kind.name, group, most])

    def run(self):
        """Runs the load.  Returns the load's settings.  The results are in the
        records."""
        self.prepare()
        self.observer = Observer(self, "observer", self.seed)
        workers = [Worker(self, f"w{n}", self.seed) for n in range(10)]
        sessions = [Producer(self, f"p{n}", self.seed) for n in range(4)]
        victims = workers + sessions
        admin = Admin(self, "admin", self.seed)
        sessions += workers + [admin, Checker(self, "checker", self.seed),
                               self.observer]
        self.start = now()
        try:
            for session in sessions:
                session.start()
            crashed = 0
            while now() - self.start < self.seconds:
                self.look_for_faults()
                time.sleep(self.random.random() * 0.2)
                part = self.seconds / (self.crashes + 1)
                if (crashed < self.crashes
                        and now() - self.start > part * (crashed + 1)):
                    crashed += 1
                    self.crash()
                self.deaths["at any time"] += 1
                self.end(self.random.choice(victims).pid)
            self.calm = True
            admin.join()
            # the session that has paused groups may have lost its connection
            self.db.execute("SELECT fairq.resume(queue, group_key)"
                            " FROM fairq.groups WHERE paused")
            self.db.execute("SELECT fairq.close_batch(id)"
                            " FROM fairq.batches WHERE status = 'open'")
            self.drain()
            # failed tasks are redriven
            self.db.execute("INSERT INTO life_again SELECT id"
                            " FROM fairq.archive WHERE status = 2")
            for kind in KINDS:
                self.db.execute("INSERT INTO life_redrives SELECT %s,"
                                " fairq.redrive(%s)", [kind.name, kind.name])
            self.drain()
        finally:
            self.calm = True
            self.over.set()
            for session in sessions:
                if session.ident:
                    session.join(130)
            self.killer.close()
        self.look_for_faults()
        for book in ("done", "pops", "fails", "releases", "extends",
                     "cancels"):
            self.db.execute(f"CREATE INDEX ON life_{book} (id)")
            self.db.execute(f"ANALYZE life_{book}")
        self.db.execute("ANALYZE life_sent")
        sent, pops = self.db.execute(
            "SELECT (SELECT count(*) FROM life_sent),"
            " (SELECT count(*) FROM life_pops)").fetchone()
        expect(sent > 20 * self.seconds, f"only {sent} tasks were enqueued")
        for where in ("before the commit of a pop", "after a pop",
                      "while it works", "before the commit of a complete",
                      "after the commit of a complete"):
            expect(self.deaths[where] or self.seconds < 10,
                   f"nobody died {where}")
        deaths = ", ".join(f"{count} {where}" for where, count
                           in sorted(self.deaths.items()))
        return (f"{sent} tasks, {pops} pops, {self.slow} times slow,"
                f" {self.late} times too late to complete,"
                f" {self.put_back} put back after take,"
                f" {self.lost} connections lost; deaths: {deaths}")

    def crash(self):
        """Kills a server process, so that all server processes end."""
        with self.killing:
            pid = value(self.db, "SELECT pid FROM pg_stat_activity WHERE"
                        " application_name ~ '^life [pw]' LIMIT 1")
            os.kill(pid, signal.SIGKILL)
            self.deaths["with the whole server"] += 1
            end = now() + 60
            # the old postmaster continues for a moment
            try:
                while now() < end:
                    self.killer.execute("SELECT pg_sleep(0.001)")
            except psycopg.OperationalError:
                pass
            while True:
                try:
                    self.killer.close()
                    self.killer = connect("killer")
                    self.main.db.close()
                    self.main.db = connect("life test")
                    break
                except psycopg.OperationalError:
                    expect(now() < end, "the server does not come back")
                    time.sleep(0.05)

    def drain(self):
        """Checks that all tasks are finished within a minute, once no session
        dies any more."""
        end = now() + 60
        while value(self.db, "SELECT count(*) FROM fairq.task"):
            self.look_for_faults()
            expect(now() < end, "after a minute there still are "
                   + str(rows(self.db, "SELECT queue, group_key, status,"
                              " count(*) FROM fairq.tasks WHERE finished_at"
                              " IS NULL GROUP BY 1, 2, 3 LIMIT 10")))
            time.sleep(0.05)

    # ---- the records

    def none(self, text, sql, *arguments):
        found = rows(self.db, sql + " LIMIT 5", *arguments)
        expect(not found, f"{text}: {found}")

    def once(self):
        self.none("completed more than once",
                  "SELECT id, count(*) FROM life_done GROUP BY 1"
                  " HAVING count(*) > 1")
        self.none("completed without a committed enqueue",
                  "SELECT id FROM life_done EXCEPT SELECT id FROM life_sent")
        self.none("popped without a committed enqueue",
                  "SELECT id FROM life_pops EXCEPT SELECT id FROM life_sent")
        self.db.execute(
            "CREATE TEMP TABLE gone AS SELECT * FROM life_sent WHERE id NOT IN"
            " (SELECT id FROM life_done UNION ALL SELECT id FROM"
            " life_cancels UNION ALL SELECT id FROM fairq.archive"
            " WHERE status = 2)")
        self.none("neither completed nor cancelled nor failed, nor expired",
                  "SELECT * FROM gone WHERE expires_at IS NULL"
                  " OR expires_at > clock_timestamp()")
        self.none("expired after an attempt started",
                  "SELECT g.*, p.attempt FROM gone g JOIN life_pops p USING (id)"
                  " WHERE NOT EXISTS (SELECT FROM life_releases r"
                  " WHERE r.id = p.id AND r.attempt = p.attempt)")
        self.none("expired in the archive, but not expired",
                  "SELECT id FROM fairq.archive WHERE status = 4"
                  " EXCEPT SELECT id FROM gone")
        self.none("completed, but failed or cancelled in the archive",
                  "SELECT id, status FROM life_done JOIN fairq.archive"
                  " USING (id) WHERE status <> 1")
        self.none("the archive lacks these retained tasks",
                  "SELECT id, status, how FROM life_sent"
                  " LEFT JOIN life_done USING (id) LEFT JOIN fairq.archive"
                  " USING (id) WHERE queue IN ('life_kept', 'life_tight')"
                  " AND status IS DISTINCT FROM CASE WHEN how IS NULL THEN"
                  " coalesce(status, 3) WHEN how <> 'take' THEN 1 END")
        self.none("cancelled in the archive, without a call of cancel",
                  "SELECT id FROM fairq.archive WHERE status = 3"
                  " EXCEPT SELECT id FROM life_cancels")
        self.none("a result other than the one passed to complete()",
                  "SELECT id, d.attempt, result FROM fairq.archive JOIN"
                  " life_done d USING (id) WHERE how = 'complete'"
                  " AND result IS DISTINCT FROM to_jsonb(d.attempt)")
        self.none("an enqueue was answered with the id of another key",
                  "SELECT a.*, s.* FROM life_answers a JOIN life_sent s"
                  " USING (id) WHERE a.queue <> s.queue OR a.dedup_key"
                  " IS DISTINCT FROM s.dedup_key")
        done, cancelled, expired, failed, redriven = self.db.execute(
            "SELECT (SELECT count(*) FROM life_done), (SELECT count(DISTINCT"
            " id) FROM life_cancels WHERE id NOT IN (SELECT id FROM"
            " life_done)), (SELECT count(*) FROM gone),"
            " (SELECT count(*) FROM fairq.archive"
            " WHERE status = 2), (SELECT sum(tasks) FROM life_redrives)"
            ).fetchone()
        expect(expired > self.seconds, f"only {expired} tasks have expired")
        return (f"{done} completed, {cancelled} cancelled, {expired} expired,"
                f" {failed} failed for good, {redriven} failed tasks were redriven")

    def batches(self):
        self.none("a batch is not finished",
                  "SELECT id, status FROM fairq.batches"
                  " WHERE status IN ('open', 'closed')")
        self.none("started before all of its batch had ended",
                  "SELECT t.id, w.at, m.id, p.at FROM life_sent t"
                  " JOIN life_pops w ON w.id = t.id AND w.attempt = 1"
                  " JOIN life_sent m ON m.batch = t.id"
                  " JOIN life_pops p ON p.id = m.id AND p.at > w.at"
                  # redriven tasks start again after the batch's end
                  " WHERE %s NOT IN (t.queue, m.queue) AND NOT EXISTS"
                  " (SELECT FROM life_again WHERE id IN (t.id, m.id))",
                  REDRIVEN)
        self.none("a batch has a wrong number of tasks",
                  "SELECT * FROM fairq.batches b WHERE status = 'finished'"
                  " AND completed + failed + cancelled + expired"
                  " <> (SELECT count(*) FROM life_sent WHERE batch = b.id)")
        found = rows(self.db, "SELECT status, count(*) FROM fairq.batches"
                     " GROUP BY 1 ORDER BY 1")
        expect(dict(found).get("finished") or self.seconds < 10,
               f"batches: {found}")
        return ", ".join(f"{count} {status}" for status, count in found)

    def attempts(self):
        self.none("attempts are not 1, 2, 3 ...",
                  "SELECT id, array_agg(attempt ORDER BY attempt) FROM"
                  " life_pops GROUP BY 1"
                  " HAVING count(*) <> max(attempt) OR min(attempt) <> 1"
                  " OR count(DISTINCT attempt) <> count(*)")
        self.none("completed by an attempt that was not the last",
                  "SELECT d.id, d.attempt, max(p.attempt) FROM life_done d"
                  " JOIN life_pops p USING (id) GROUP BY 1, 2"
                  " HAVING d.attempt <> max(p.attempt)")
        self.none("the archive has a wrong attempt",
                  "SELECT a.id, a.attempt, count(p.id) FROM fairq.archive a"
                  " JOIN life_sent USING (id) LEFT JOIN life_pops p ON"
                  " p.id = a.id GROUP BY 1, 2 HAVING a.attempt <> count(p.id)")
        self.none("popped before the time",
                  "SELECT id, run_at, at FROM life_sent JOIN life_pops"
                  " USING (id) WHERE attempt = 1 AND at < run_at")
        self.none("started after it expired",
                  "SELECT p.id, p.attempt, expires_at, begun FROM life_sent"
                  " JOIN life_pops p USING (id) WHERE begun >= expires_at"
                  " AND attempt = 1 + (SELECT count(*) FROM life_releases r"
                  " WHERE r.id = p.id AND r.attempt < p.attempt)")
        self.none("popped during another lease",
                  "SELECT p.id, p.attempt, l.until, n.at FROM life_pops p"
                  " JOIN life_pops n ON n.id = p.id"
                  " AND n.attempt = p.attempt + 1 CROSS JOIN LATERAL ("
                  "SELECT coalesce((SELECT lease_until FROM life_extends e"
                  " WHERE e.id = p.id AND e.attempt = p.attempt"
                  " ORDER BY e.at DESC LIMIT 1), p.lease_until) AS until) l"
                  " WHERE n.at < l.until AND NOT EXISTS (SELECT FROM"
                  " life_fails f WHERE f.id = p.id AND f.attempt = p.attempt)"
                  " AND NOT EXISTS (SELECT FROM life_releases f"
                  " WHERE f.id = p.id AND f.attempt = p.attempt)")
        self.none("popped after its last attempt",
                  "SELECT p.id, p.attempt, count(r.id) FROM life_sent s"
                  " JOIN fairq.queue q ON q.name = s.queue"
                  " JOIN life_pops p USING (id) LEFT JOIN life_releases r"
                  " ON r.id = p.id AND r.attempt < p.attempt"
                  " WHERE s.queue <> %s AND p.id NOT IN (TABLE life_again)"
                  " GROUP BY 1, 2, s.max_attempts, q.max_attempts"
                  " HAVING p.attempt - count(r.id)"
                  " > coalesce(s.max_attempts, q.max_attempts)", REDRIVEN)
        for book, what in ("pops", "popped"), ("extends", "extended"):
            self.none(f"{what} after it was cancelled",
                      "SELECT b.id, b.attempt, b.at, c.at"
                      f" FROM life_{book} b JOIN life_cancels c USING (id)"
                      " WHERE b.at > c.at")
        # the server forgets its counters when it crashes
        return self.sums() if not self.crashes else None

    def read_counters(self):
        names = ("popped", "completed", "released", "retried", "failed",
                 "cancelled", "lapsed", "enqueued", "expired")
        return {row[0]: Counter(dict(zip(names, row[1:]))) for row in
                rows(self.db, f"SELECT queue, {', '.join(names)}"
                     " FROM fairq.queues")}

    def sums(self):
        """Checks that the counters are the sums of the records."""
        counters = self.read_counters()
        lapsed = 0
        for kind in KINDS:
            def count(book, condition="true"):
                return value(self.db, "SELECT count(*) FROM"
                             f" life_{book} b JOIN life_sent USING (id)"
                             " WHERE life_sent.queue = %s AND " + condition,
                             kind.name)
            is_ = counters[kind.name]
            redriven = value(self.db, "SELECT coalesce(sum(tasks), 0)::int"
                             " FROM life_redrives WHERE queue = %s", kind.name)
            failed = value(self.db, "SELECT count(*) FROM fairq.archive"
                           " JOIN fairq.queue USING (queue_id)"
                           " WHERE name = %s AND archive.status = 2",
                           kind.name)
            taken = count("done", "how = 'take'")
            fails = count("fails")
            should = {
                "popped": count("pops"),
                "completed": count("done") - taken,
                "released": count("releases"),
                "failed": failed + redriven,
                "enqueued": count("sent") + redriven,
                "expired": value(self.db, "SELECT count(*) FROM gone"
                                  " WHERE queue = %s", kind.name),
            }
            found = {name: is_[name] for name in should}
            expect(found == should, f"counters of {kind.name}: {found}, and"
                   f" the records say {should}")
            ended = (is_["completed"] + taken + is_["released"] + fails
                     + is_["lapsed"])
            # if fail() and release() end a cancelled task, they return false. Only the
            # archive of retained tasks shows these ends
            most = ended + count("untold" if "retain" in kind.options else "cancels")
            least = most if "retain" in kind.options else ended
            expect(least <= is_["popped"] <= most,
                   f"{kind.name}: {is_['popped']} attempts have begun, and"
                   f" {ended} have ended: {dict(is_)}, {taken} taken, {fails}"
                   f" failed, {most} at most")
            lapsed += is_["lapsed"]
        expect(lapsed > self.seconds, f"only {lapsed} leases expired")
        return f"{lapsed} leases expired"

    def limits(self):
        expect(self.observer.full > self.seconds,
               "limits were hardly ever reached")
        return (f"{self.observer.looks} looks, {self.observer.full} times at"
                " a limit")

    def starved(self):
        parts = sorted(self.observer.least)[1:-1]
        judged, least = 0, None
        for part in parts:
            served = dict(((queue, group), count) for queue, group, count in
                          rows(self.db, "SELECT queue, grp, count(*)"
                               " FROM life_pops JOIN life_sent USING (id)"
                               " WHERE priority = 0 AND at >= to_timestamp(%s)"
                               " AND at < to_timestamp(%s) GROUP BY 1, 2",
                               part * SLICE, (part + 1) * SLICE))
            for queue, group in self.observer.least[part]:
                count = served.get((queue, group), 0)
                expect(count, f"group {group} of {queue} had tasks for"
                       f" {SLICE} seconds, and none of them was popped, but"
                       f" {served}")
                least = count if least is None else min(least, count)
                judged += 1
        # on a slow machine there is less load
        expect(judged or self.seconds < 20,
               "no group had work all the time")
        return (f"{judged} times a group had work for {SLICE} s; the least"
                f" were {least} pops")

    def sound(self):
        for kind in KINDS:
            found = column(self.db, "SELECT * FROM fairq.check_queue(%s)",
                           kind.name)
            expect(not found, f"check_queue('{kind.name}'): {found[:5]}")
            left = rows(self.db, "SELECT ready, limited, scheduled, running"
                        " FROM fairq.queues WHERE queue = %s", kind.name)
            expect(left == [(0, 0, 0, 0)], f"{kind.name} is not empty: {left}")
            drop(self.db, kind.name)
        return (f"{self.checked} checks, {self.passing} found something for a"
                f" moment; {self.maintained} times maintained")
