"""One group has very many tasks that become ready at once, and another group
has one task.
"""

import random
import threading
import time
from collections import Counter

from base import (Fault, connect, drop, expect, ms, new_queue, now, rows,
                  sound, value)
from wakes import as_timestamp

TASKS = 100000

# Pops find the last task within this number of calls, since each call reads
# about ten thousand tasks.
WITHIN = 8


def fill(db, queue, group, count, **options):
    names = "".join(f", {name} => %s" for name in options)
    db.execute(f"SELECT count(*) FROM fairq.enqueue_batch(%s,"
               f" array_fill(%s::text, ARRAY[%s::int]),"
               f" array_fill('{{}}'::jsonb, ARRAY[%s::int]){names})",
               [queue, group, count, count, *options.values()])


def pop(db, queue, max_tasks, lease="1 day"):
    """[(id, group, attempt)] of the popped tasks."""
    return rows(db, "SELECT id, group_key, attempt FROM"
                " fairq.pop(%s, %s, lease => %s)", queue, max_tasks, lease)


def pops_until(db, queue, group, most, lease="1 day"):
    """Pops one task at a time until the group is served. Returns the number of
    pops, the tasks, and the time of the longest pop.
    """
    served, longest = [], 0
    for count in range(1, most + 1):
        start = now()
        task, = pop(db, queue, 1, lease)
        longest = max(longest, now() - start)
        served.append(task)
        if task[1] == group:
            return count, served, longest
    raise Fault(f"{group} was not served within {most} pops, but"
                f" {Counter(task[1] for task in served)}")


def attempts_of_bob(db, queue):
    return dict(rows(db, "SELECT id, attempt FROM fairq.tasks"
                     " WHERE queue = %s AND group_key = 'bob'", queue))


def rest_once(db, queue, served, before):
    """Serves the remaining tasks. Checks that each of bob's tasks is served
    once, and then has one attempt more than before.
    """
    served = list(served)
    while tasks := pop(db, queue, 1000):
        served += tasks
    after = {id: attempt for id, group, attempt in served if group == "bob"}
    expect(len(served) == len({id for id, _, _ in served}),
           "some tasks were served twice")
    missing = before.keys() - after.keys()
    expect(len(before) == TASKS and not missing, f"{len(missing)} of"
           f" {len(before)} were not served, such as {sorted(missing)[:5]}")
    wrong = [(id, before.get(id), attempt) for id, attempt in after.items()
             if attempt - 1 != before.get(id)]
    expect(not wrong, f"id, attempt before, and served: {wrong[:5]}")


def wait_for_leases(db, queue):
    """Waits until all leases have expired."""
    left = value(db, "SELECT extract(epoch FROM max(lease_until)"
                 " - clock_timestamp()) FROM fairq.task"
                 " JOIN fairq.queue USING (queue_id) WHERE name = %s", queue)
    time.sleep(max(float(left or 0), 0) + 0.01)


class Outage:
    """All workers are lost while they have very many tasks of bob."""

    queue = "life_outage"

    def fresh(self, run):
        """Repeatedly, a new task of alice waits for at most one of bob's
        tasks."""
        db, queue = run.db, new_queue(run.db, self.queue)
        fill(db, queue, "bob", TASKS)
        start = now()
        expect(len(pop(db, queue, TASKS, "1 ms")) == TASKS, "not all popped")
        self.took = now() - start
        time.sleep(0.01)
        counts, longest = [], 0
        for _ in range(10):
            id = value(db, "SELECT fairq.enqueue(%s, 'alice')", queue)
            count, _, slow = pops_until(db, queue, "alice", 2, "1 ms")
            expect(value(db, "SELECT fairq.complete(%s)", id),
                   "the popped task is not the new one")
            counts.append(count)
            longest = max(longest, slow)
        sound(db, queue)
        return (f"pops no. {counts}, the longest took {ms(longest)};"
                f" {TASKS} were popped in {self.took:.1f} s")

    def expired(self, run):
        """Alice's lease expires first, and then all of bob's leases."""
        db, lease = run.db, 3 * self.took + 0.5
        for _ in range(3):
            # new tasks, because a task whose lease has expired twice is served
            # alone
            queue = new_queue(db, self.queue)
            fill(db, queue, "bob", TASKS)
            expect(len(pop(db, queue, TASKS, f"{lease} s")) == TASKS,
                   "not all popped")
            db.execute("SELECT fairq.enqueue(%s, 'alice')", [queue])
            (_, group, _), = pop(db, queue, 1, "1 ms")
            expect(group == "alice", "alice was not next")
            if value(db, "SELECT min(lease_until) > clock_timestamp()"
                     " FROM fairq.tasks WHERE queue = %s"
                     " AND group_key = 'bob'", queue):
                break
            # some of bob's leases expired before alice's lease
            lease *= 3
        wait_for_leases(db, queue)
        self.before = attempts_of_bob(db, queue)
        count, self.served, longest = pops_until(db, queue, "alice", WITHIN)
        return f"pop no. {count}, the longest took {ms(longest)}"

    def once(self, run):
        """Each of bob's tasks is served once more."""
        start = now()
        rest_once(run.db, self.queue, self.served, self.before)
        took = now() - start
        sound(run.db, self.queue)
        drop(run.db, self.queue)
        return f"in {took:.1f} s"


class Due:
    """Very many tasks of bob become due at once, and a task of alice right
    after them."""

    queue = "life_due"

    def last(self, run):
        db, margin = run.db, 1.5
        for _ in range(3):
            queue = new_queue(db, self.queue)
            at = now() + margin
            fill(db, queue, "bob", TASKS, run_at=as_timestamp(at))
            if now() + 0.2 < at:
                break
            margin *= 4
        db.execute("SELECT fairq.enqueue(%s, 'alice', run_at => %s)",
                   [queue, as_timestamp(at + 0.001)])
        expect(now() < at, "the machine is too slow for this test")
        expect(not pop(db, queue, 1), "served before its time")
        self.before = attempts_of_bob(db, queue)
        time.sleep(max(at - now(), 0) + 0.01)
        count, self.served, longest = pops_until(db, queue, "alice", WITHIN)
        sound(db, queue)
        return f"pop no. {count}, the longest took {ms(longest)}"

    def once(self, run):
        start = now()
        rest_once(run.db, self.queue, self.served, self.before)
        took = now() - start
        drop(run.db, self.queue)
        return f"in {took:.1f} s"


class Storm:
    """All of bob's tasks fail and are retried in some milliseconds,
    repeatedly. carol has work all the time.
    """

    queue = "life_storm"
    window = 100

    def __init__(self, seed, small):
        self.random = random.Random(f"{seed} storm")
        self.seconds = 1.5 if small else 4

    def begin(self, db):
        queue = new_queue(db, self.queue, max_attempts=1000000,
                          backoff="2 ms")
        fill(db, queue, "bob", 2000)
        fill(db, queue, "carol", 100)

    def work(self, db, max_tasks):
        """Pops tasks and ends them. Returns their groups.
        """
        tasks = pop(db, self.queue, max_tasks)
        mine = [(id, of) for id, group, of in tasks if group == "carol"]
        failed = [(id, of) for id, group, of in tasks if group == "bob"]
        if mine:
            lost = value(db, "SELECT fairq.complete_batch(%s::bigint[],"
                         " %s::int[])", [id for id, _ in mine],
                         [of for _, of in mine])
            expect(lost == [], "a lease was lost")
            fill(db, self.queue, "carol", len(mine))
        if failed:
            # tasks with few attempts have the queue's backoff, which grows
            expect(all(value(
                db, "SELECT bool_and(fairq.fail(id, of, 'oh', CASE WHEN of > 4"
                " THEN random() * interval '10 ms' END))"
                " FROM unnest(%s::bigint[], %s::int[]) AS t (id, of)",
                [id for id, _ in failed], [of for _, of in failed])
                for _ in "x"), "a lease was lost")
        return [group for _, group, _ in tasks]

    def one_worker(self, run):
        """Each group gets half of any hundred services."""
        db = run.db
        self.begin(db)
        served, enough = [], 10 * self.window
        end = now() + self.seconds
        # on a slow machine the test takes longer
        while now() < end or len(served) <= enough and now() < end + 60:
            served += self.work(db, self.random.choice((1, 1, 2, 3, 5, 8)))
        sound(db, self.queue)
        half = self.window // 2
        carols = [group == "carol" for group in served]
        least = most = total = sum(carols[:self.window])
        for n in range(self.window, len(carols)):
            total += carols[n] - carols[n - self.window]
            least, most = min(least, total), max(most, total)
        retried = value(db, "SELECT retried FROM fairq.queues"
                        " WHERE queue = %s", self.queue)
        drop(db, self.queue)
        expect(len(served) > enough, "hardly any task was served")
        expect(least >= half - 1, f"carol had {least} of {self.window}")
        # bob's failures do not delay bob's other tasks either
        expect(most <= half + 1, f"bob had {self.window - most}"
               f" of {self.window}")
        return (f"carol had {least} to {most} of any {self.window},"
                f" {len(served)} in all, {retried} retries")

    def many_workers(self, run):
        """With many workers, each group gets half of the services on
        average."""
        self.begin(run.db)
        served, faults, end = [], [], now() + self.seconds

        def worker(seed):
            draw = random.Random(seed)
            try:
                with connect("worker") as db:
                    while now() < end:
                        served.extend(self.work(db, draw.choice((1, 2, 4))))
            except Exception as fault:
                faults.append(fault)

        threads = [threading.Thread(target=worker,
                                    args=(self.random.random(),))
                   for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if faults:
            raise faults[0]
        sound(run.db, self.queue)
        drop(run.db, self.queue)
        share = served.count("carol") / len(served)
        expect(share > 0.47, f"carol had {share:.0%} of {len(served)}")
        return f"carol had {share:.1%} of {len(served)}"
