"""Named scenarios: tasks become due, expire or fail in large numbers or
concurrently.

These scenarios work like those of scenarios.py.  Scenarios with ticks have slow
clocks, since their calls take a long time.
"""

import random
import threading

from clock import Clock, TooSlow
from scenarios import Scenario, need, others, pop_all, work, work_all
from server import LEVELS

SLOWLY = 100000         # microseconds that a call may take


def burst_of_due_tasks(driver):
    """500 tasks of one group become due at one moment, and three groups have a
    backlog. Then 500 tasks of a group that also has other tasks become due.
    """
    driver.clock.margin = SLOWLY
    others(driver, 1000)
    for group in ("due", "a"):
        driver.batch(0, [group] * 500, when=1)
        work(driver, 0, 10)
        driver.tick()
        driver.batch(0, [group] * 10)
        for size in [1] * 60 + [20] * 10:
            work(driver, 0, size)
    work_all(driver)


def burst_of_expired_leases(driver):
    """A worker dies with 300 tasks, mostly of one group. Another worker dies
    with 100 tasks of all groups.
    """
    driver.clock.margin = SLOWLY
    driver.batch(0, ["dead"] * 250)
    others(driver, 500)
    driver.pop(0, 300, lease=(1, False))
    driver.pop(0, 100, lease=(2, False))
    work(driver, 0, 100)
    driver.tick()
    for size in [1] * 60 + [20] * 5:
        work(driver, 0, size)
    driver.tick()
    for size in [1] * 60 + [20] * 5:
        work(driver, 0, size)
    work_all(driver)


def expired_leases_of_limited_groups(driver):
    """100 groups are limited to one, each with a dead worker. All of these
    tasks are served at once, each by its own call, and no other task of these
    groups is served.
    """
    driver.clock.margin = SLOWLY
    names = [f"g{number}" for number in range(100)]
    driver.set_limit(0, None, 1)
    driver.batch(0, names * 3)
    first = driver.pop(0, 300, lease=(1, False))
    need(len(first) == 100, f"{len(first)} run")
    driver.tick()
    again = driver.pop(0, 50) + driver.pop(0, 300)
    need(sorted(c.id for c in again) == sorted(c.id for c in first),
         "others were served")
    need(driver.pop(0, 300) == [], "more tasks run than the limit")
    driver.complete_batch(0, driver.model.held(0))
    work_all(driver)


def expired_leases_in_a_full_queue(driver):
    """As in the previous function, but with max_running, and with limits that
    are lowered afterwards."""
    driver.clock.margin = SLOWLY
    driver.set_max_running(0, 60)
    others(driver, 40)
    driver.pop(0, 100, lease=(1, False))
    driver.tick()
    driver.pop(0, 20)
    driver.set_max_running(0, 30)
    driver.pop(0, 100)
    driver.pop(0, 100)
    driver.complete_batch(0, driver.model.held(0))
    work_all(driver)


def burst_of_redriven_tasks(driver):
    """300 tasks of two groups failed, and are redriven while others have a
    backlog.
    """
    driver.batch(0, ["bad", "worse"] * 150)
    for task in driver.pop(0, 300):
        driver.fail(0, task.id, task.attempt, "no good", dead=True)
    others(driver, 300)
    driver.redrive(0, "bad", 100)
    driver.redrive(0)
    for size in [1] * 100 + [20] * 10:
        work(driver, 0, size)
    work_all(driver)


def soon(driver, count):
    """The time at which this number of calls, or of parts of a large call,
    should have ended.
    """
    return driver.clock.now() + count * driver.clock.margin // 20


def many_groups_due(driver, count):
    """Each of these groups has one scheduled task. All become due at one
    moment, and each is served once.
    """
    session = driver.sessions[0]
    names = [f"g{number}" for number in range(count)]
    due = soon(driver, count)
    for start in range(0, count, 5000):
        session.enqueue_batch(names[start:start + 5000], 0, due)
    early = session.pop(1)
    if driver.clock.now() >= due:
        raise TooSlow("to enqueue all tasks")
    need(early == [], "served too early")
    driver.clock.sleep_until(due + 2000)
    served = pop_all(driver, 1000)
    need(sorted(served) == sorted(names), f"served {len(served)}")


def many_leases_expire(driver, count):
    """Leases of this number of groups expire at about the same time."""
    session = driver.sessions[0]
    names = [f"g{number}" for number in range(count)]
    for start in range(0, count, 5000):
        session.enqueue_batch(names[start:start + 5000], 0)
    due = soon(driver, count)
    claims = []
    for _ in range(4):
        left = max(due - driver.clock.now(), 1)
        claims += session.pop(count // 4, lease=left)
    if driver.clock.now() >= due:
        raise TooSlow("to pop all tasks")
    need(sorted(claim.group for claim in claims) == sorted(names),
         "not all tasks were served")
    driver.clock.sleep_until(max(claim.lease_until for claim in claims) + 2000)
    served = pop_all(driver, 1000)
    need(sorted(served) == sorted(names), f"served {len(served)}")


# ---- several threads

class Lives(threading.Thread):
    """Enqueues, pops with short leases, and ends tasks in all ways. Its
    committed tasks are in ids (enqueued) and done (completed).
    """

    def __init__(self, session, number):
        super().__init__()
        self.session, self.rng = session, random.Random(number)
        self.ids, self.done, self.error = set(), [], None

    def run(self):
        try:
            for _ in range(120):
                self.turn()
        except Exception as error:
            self.error = error

    def turn(self):
        rng, session = self.rng, self.session
        inside, commit = rng.random() < 0.3, rng.random() < 0.7
        if inside:
            # without a key, since two keys in any order could cause a deadlock
            session.begin(rng.choice(LEVELS))
        ids = {session.enqueue(
            rng.choice("abcde"), rng.randrange(2),
            rng.choice((None, None, Clock.now() + rng.randint(0, 20000))),
            None if inside else rng.choice((None, f"k{rng.randrange(5)}")))}
        done = []
        for claim in session.pop(rng.randint(1, 5), lease=rng.choice(
                (1000, 20000, 1000000))):
            self.finish(claim, done)
        if inside:
            session.commit() if commit else session.rollback()
        elif rng.random() < 0.2:
            session.expire(rng.randint(1, 10))
        if commit or not inside:
            self.ids |= ids
            self.done += done

    def finish(self, claim, done):
        session, (id, attempt) = self.session, (claim.id, claim.attempt)
        way = self.rng.randrange(8)
        if way < 3:
            if session.complete(id, attempt):
                done.append(id)
        elif way == 3:
            session.fail(id, attempt, "failed", self.rng.randint(0, 5000))
        elif way == 4:
            session.release(id, attempt, self.rng.choice((0, 2000)))
        elif way == 5:
            session.extend(id, attempt, 1000)
        elif way == 6 and self.rng.random() < 0.3:
            session.cancel(id)


def turmoil_of_lives(driver):
    """Six threads work at once, with leases that expire meanwhile. Each
    committed task has one end, and the archive has it.
    """
    driver.set_retain(0, True)
    threads = [Lives(session, number)
               for number, session in enumerate(driver.sessions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for thread in threads:
        if thread.error:
            raise thread.error
    driver.check_queue()
    session = driver.sessions[0]
    driver.clock.sleep_until(driver.clock.now() + 1100000)
    done = [id for thread in threads for id in thread.done]
    while True:
        claims = session.pop(100)
        if not claims:
            break
        done += [claim.id for claim in claims]
        session.complete_batch([claim.id for claim in claims], None)
    need(len(done) == len(set(done)), "completed twice")
    ended = {}
    for row in session.look().values():
        ended.setdefault(row.status, set()).add(row.id)
    need(set(ended) <= {"completed", "failed", "cancelled"},
         f"there are still {set(ended)}")
    need(ended["completed"] == set(done), "other tasks than the completed ones")
    ids = set().union(*(thread.ids for thread in threads))
    need(set().union(*ended.values()) == ids, "lost or unknown: "
         + str(sorted(set().union(*ended.values()) ^ ids)[:5]))
    driver.check_queue()


LIFE_SCENARIOS = [Scenario(*fields) for fields in (
    ("burst: 500 tasks due at once", burst_of_due_tasks),
    ("burst: 400 leases expire", burst_of_expired_leases),
    ("burst: 300 tasks redriven", burst_of_redriven_tasks),
    ("expired: limited groups", expired_leases_of_limited_groups),
    ("expired: a full queue", expired_leases_in_a_full_queue),
    ("many groups due", many_groups_due, 1, (20000, 2000)),
    ("many groups expired", many_leases_expire, 1, (20000, 2000)),
    ("at once: lives of many tasks", turmoil_of_lives, 6),
)]
