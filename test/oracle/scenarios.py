"""Named scenarios: cases that a random history seldom reaches, with many tasks.

Each scenario uses its queue through driver.Driver, so all properties of the
model are checked at every service.  The docstring of a scenario describes its
own checks.
"""

import random
import threading
from collections import namedtuple
from contextlib import contextmanager

from clock import TooSlow
from driver import Driver
from server import LEVELS
from state import Fault


class Scenario(namedtuple("Scenario",
                          "name function sessions size exclusive",
                          defaults=(1, None, False))):
    """exclusive: whether the scenario affects all queues. size is passed to the
    function, whose docstring mentions it. Size and sessions may be pairs of the
    full value and the value with --small. Some values with --small are small
    enough for a test of a minute, and still find their faults.
    """

    def at_size(self, small):
        return self._replace(**{
            name: value[small] for name, value in self._asdict().items()
            if isinstance(value, tuple)})


def need(condition, text):
    if not condition:
        raise Fault("scenario", text)


def groups_of(claims):
    return [claim.group for claim in claims]


def work(driver, s, tasks):
    """Pop and complete."""
    claims = driver.pop(s, tasks)
    driver.complete_batch(s, [driver.model.tasks[claim.id]
                              for claim in claims])
    return claims


def work_all(driver, sizes=(100,)):
    """Pops and completes until no task is ready. Returns the groups in the
    order of service."""
    served = []
    turn = 0
    while True:
        claims = work(driver, 0, sizes[turn % len(sizes)])
        if not claims:
            return served
        served += groups_of(claims)
        turn += 1


# ---- one task at a time

def pop_one_after_a_backlog(driver):
    """After 10,000 tasks of bob alice enqueues one, and is served second at the
    latest."""
    driver.batch(0, ["bob"] * 10000)
    driver.enqueue(0, "alice")
    first = groups_of(work(driver, 0, 1) + work(driver, 0, 1))
    need("alice" in first, f"served {first}")
    driver.purge(0)


def pop_one_and_come_back(driver, rounds):
    """Alice has one task at a time, and enqueues the next one after each completion.
    In this number of rounds neither she nor bob has two turns in a row.
    """
    driver.batch(0, ["bob"] * (rounds + 100))
    driver.enqueue(0, "alice")
    served = []
    while len(served) < 2 * rounds:
        claims = work(driver, 0, 1)
        served += groups_of(claims)
        if claims[0].group == "alice":
            driver.enqueue(0, "alice")
    for one, next in zip(served, served[1:]):
        need(one != next, f"two turns in a row for {one}")
    driver.purge(0)


def pop_one_many_come_back(driver, pops):
    """Each of 20 clients enqueues after it has completed a task, before or
    after the next pop.  Two groups have a backlog.  All groups take turns.
    """
    rng = random.Random(1)
    driver.batch(0, ["bob", "carol"] * (pops // 10))
    for number in range(20):
        driver.enqueue(0, f"client {number}")
    back = []
    for _ in range(pops):
        claims = work(driver, 0, 1)
        for group in back:
            driver.enqueue(0, group)
        back = [group for group in groups_of(claims)
                if group.startswith("client")]
        if rng.random() < 0.5:
            for group in back:
                driver.enqueue(0, group)
            back = []
    driver.purge(0)


# ---- bursts

def others(driver, rounds):
    """Enqueues a backlog of three groups that lasts for a number of rounds."""
    for start in range(0, rounds, 1000):
        driver.batch(0, ["a", "b", "c"] * min(1000, rounds - start))


def burst_of_a_late_commit(driver, rounds):
    """A group has two tasks for each of these rounds. Their transaction was
    open during the rounds.
    """
    others(driver, rounds * 13 // 10)
    driver.begin(1)
    for _ in range(10):
        driver.batch(1, ["late"] * (rounds // 5))
    for _ in range(3 * rounds // 100):
        work(driver, 0, 100)
    driver.commit(1)
    for _ in range(rounds // 5):
        work(driver, 0, 1)
    for size in (2, 3, 5, 7, 11, 100, 1000):
        work(driver, 0, size)
    work_all(driver, (500,))


def burst_of_late_commits(driver, count):
    """Transactions, each with 16 tasks of one group, commit together. First the
    tasks are those of 16 groups, and then those of a single group.
    """
    for groups in ([f"late {number}" for number in range(16)], ["late"]):
        others(driver, 20 * count)
        for s in range(1, count + 1):
            driver.begin(s)
            driver.batch(s, [groups[s % len(groups)]] * 16)
            work(driver, 0, 7)
        for s in range(1, count + 1):
            driver.commit(s)
        for size in [1] * (2 * count) + [10] * (count // 5):
            work(driver, 0, size)
        work_all(driver)


def burst_of_a_rollback(driver, tasks):
    """A large pop, mostly of one group, is rolled back after other groups were
    served for many rounds. This sequence happens twice.
    """
    driver.batch(0, ["back"] * (tasks * 9 // 10))
    others(driver, 2 * tasks)
    sizes = [1] * (tasks // 10) + [30] * (tasks // 100)
    for _ in range(2):
        driver.begin(1)
        driver.pop(1, tasks)
        for size in sizes:
            work(driver, 0, size)
        driver.rollback(1)
        for size in sizes:
            work(driver, 0, size)
    work_all(driver)


def burst_behind_a_purge(driver):
    """1,000 tasks are purged before one that stays. That task does not wait for
    a thousand rounds, and no other group waits when the group fills these
    addresses.
    """
    others(driver, 500)
    driver.batch(0, ["hole"] * 1000)
    driver.begin(1)
    driver.enqueue(1, "hole")
    driver.purge(0, "hole")
    driver.commit(1)
    served = groups_of(work(driver, 0, 4))
    need("hole" in served, f"served {served}")
    driver.batch(0, ["hole"] * 200)
    for _ in range(300):
        work(driver, 0, 1)
    work_all(driver)


def burst_behind_a_rollback(driver):
    """As in burst_behind_a_purge(), but the transaction that enqueued the 1,000
    tasks is rolled back.
    """
    others(driver, 500)
    driver.begin(1)
    driver.batch(1, ["hole"] * 1000)
    driver.batch(0, ["hole"] * 3)
    driver.rollback(1)
    served = groups_of(work(driver, 0, 4))
    need("hole" in served, f"served {served}")
    driver.batch(0, ["hole"] * 200)
    for _ in range(300):
        work(driver, 0, 1)
    work_all(driver)


def burst_of_a_savepoint(driver, times):
    """Transactions roll back to a savepoint this many times, between tasks that
    stay and tasks that commit late.
    """
    others(driver, 5 * times)
    driver.begin(1)
    for _ in range(times):
        driver.savepoint(1)
        driver.batch(1, ["torn"] * 5)
        driver.rollback_to(1, 0)
        driver.release_savepoint(1, 0)
        driver.enqueue(1, "torn")
        work(driver, 0, 2)
    driver.commit(1)
    for _ in range(times * 3 // 2):
        work(driver, 0, 1)
    work_all(driver)


def burst_of_all_kinds(driver):
    """Late commit, rollback and purge at once, in three groups."""
    others(driver, 1500)
    driver.batch(0, ["back"] * 300 + ["hole"] * 300)
    driver.begin(1)
    driver.batch(1, ["late"] * 300)
    driver.begin(2)
    driver.pop(2, 900)
    driver.begin(3)
    driver.batch(3, ["hole"] * 20)
    for _ in range(50):
        work(driver, 0, 5)
    driver.purge(0, "hole")
    driver.rollback(2)
    driver.commit(3)
    driver.commit(1)
    for size in [1] * 300 + [20] * 30:
        work(driver, 0, size)
    work_all(driver)


# ---- more groups than shared memory has entries for

def pop_all(driver, size):
    served = []
    while True:
        claims = driver.sessions[0].pop(size, take=True)
        if not claims:
            return served
        served += groups_of(claims)


def many_groups(driver, count):
    """Each group has one task, and then each hundredth group gets another one.
    That gives two rounds, in which no group is served twice.
    """
    names = [f"g{number}" for number in range(count)]
    for start in range(0, count, 10000):
        driver.sessions[0].enqueue_batch(names[start:start + 10000], 0)
    driver.sessions[0].enqueue_batch(names[::100], 0)
    served = pop_all(driver, 10000)
    need(len(served) == count + len(names[::100]), f"served {len(served)}")
    need(set(served[:count]) == set(names), "a group was served twice")
    need(set(served[count:]) == set(names[::100]), "the second round did not serve each hundredth group once")


def many_late_groups(driver, count):
    """Groups of two tasks each commit late, all at once. Three groups with a backlog
    are served once in each of the rounds.
    """
    names = [f"late {number}" for number in range(count)]
    driver.sessions[0].enqueue_batch(["a", "b", "c"] * 200, 0)
    driver.sessions[1].begin()
    for _ in range(2):
        for start in range(0, count, 10000):
            driver.sessions[1].enqueue_batch(names[start:start + 10000], 0)
    before = groups_of(driver.sessions[0].pop(300, take=True))
    need(before == ["a", "b", "c"] * 100, f"served {before}")
    driver.sessions[1].commit()
    served = pop_all(driver, 10000)
    need(len(served) == 2 * count + 300, f"served {len(served)}")
    round = count + 3
    for turn in served[:round], served[round:2 * round]:
        need(len(set(turn)) == round, "a group missed a turn")


# ---- the order of service

def layers(driver):
    """If the tasks of groups were enqueued group by group, each round still
    serves one task of each group."""
    for group in ("a", "b", "c"):
        driver.batch(0, [group] * 5)
    served = work_all(driver, (4, 1, 2))
    need(served == ["a", "b", "c"] * 5, f"served {served}")


def unequal_groups(driver):
    driver.batch(0, ["g1"] * 5 + ["g2"] * 2)
    served = work_all(driver, (3, 2))
    need(served == "g1 g2 g1 g2 g1 g1 g1".split(), f"served {served}")


def first_in_first_out(driver):
    ids = {group: [] for group in ("a", "b", "c")}
    rng = random.Random(2)
    for _ in range(100):
        group = rng.choice(list(ids))
        ids[group].append(driver.enqueue(0, group))
    served = {group: [] for group in ids}
    for claim in driver.pop(0, 37) + driver.pop(0, 100):
        served[claim.group].append(claim.id)
    need(served == ids, f"enqueued {ids}, served {served}")
    driver.drain(rng)


def invisible_until_commit(driver):
    for level in LEVELS:
        driver.begin(1, level)
        id = driver.enqueue(1, "a")
        need(driver.pop(0, 5) == [], "popped before the commit")
        driver.commit(1)
        need([c.id for c in driver.pop(0, 5)] == [id], "not popped after it")
    driver.drain(random.Random(3))


def rollback_restores(driver):
    """A rollback restores the tasks to their places, in the same order."""
    driver.batch(0, ["a", "b", "a", "b"])
    for take in (False, True):
        driver.begin(0)
        before = driver.pop(0, 3, take=take)
        driver.rollback(0)
        driver.begin(0)
        after = driver.pop(0, 4, take=take)
        need({c.id for c in before} <= {c.id for c in after}, "not restored")
        driver.rollback(0)
    driver.drain(random.Random(4))


def who_comes_is_next(driver):
    """With 40 busy groups: a group without a turn in the block is served at once, even
    if its seat was passed. After that it is served as often as the others.
    """
    names = [f"busy {number}" for number in range(40)]
    driver.enqueue(0, "early")
    driver.batch(0, names)
    for _ in range(6):
        driver.batch(0, names)
    driver.enqueue(0, "late")
    served = groups_of(work(driver, 0, 42))
    need(served == ["early"] + names + ["late"], f"served {served}")
    work(driver, 0, 20)
    driver.batch(0, ["late", "early", "early"])
    served = groups_of(work(driver, 0, 1))
    need(served == ["early"], f"served {served}")
    served = groups_of(work(driver, 0, 22))
    need(served == names[20:] + ["late", "early"], f"served {served}")
    work_all(driver)


def begun_first(driver):
    """A failed task and a task with an expired lease precede the other tasks of
    their group. A released task follows them.
    """
    ids = driver.batch(0, ["a"] * 6)
    first, second, third = driver.pop(0, 3)
    driver.release(0, first.id)
    driver.fail(0, second.id, error="no good", ahead=0)
    driver.fail(0, third.id, error="no good", ahead=0)
    served = [claim.id for claim in driver.pop(0, 10)]
    due = [ids[1], ids[2], ids[3], ids[4], ids[5], ids[0]]
    need(served == due, f"served {served}, not {due}")
    driver.complete_batch(0, driver.model.held(0))


def window_of_one_call(driver):
    """per_group: of 40 groups, all but the last have had their turn in the
    block. The next call returns one task of each group.
    """
    names = [f"g{number}" for number in range(40)]
    for _ in range(3):
        driver.batch(0, names)
    work(driver, 0, 39)
    served = groups_of(driver.pop(0, 100, per_group=1))
    need(served == names[39:] + names[:39], f"served {served}")
    served = groups_of(driver.pop(0, 20, per_group=1))
    need(served == names[39:] + names[:19], f"served {served}")
    driver.drain(random.Random(7))


def blocks_of_one_call(driver):
    """per_group: a call has this number of turns of each group, from the call's
    first turn on."""
    driver.batch(0, ["a"] * 10 + ["b"] * 3 + ["c"])
    for due in ("a b c a b", "a b a", "a a", "a a", "a a", ""):
        served = " ".join(groups_of(driver.pop(0, 100, per_group=2)))
        need(served == due, f"served {served}, not {due}")
    driver.drain(random.Random(5))


def weights_share_exactly(driver):
    """Weights of 3 and 1 apply in each block of a backlog. After that, weights
    of 5, 2 and 1 apply."""
    driver.set_weight(0, "heavy", 3)
    for _ in range(300):
        driver.enqueue(0, "heavy")
    driver.batch(0, ["light"] * 100)
    served = work_all(driver, (1, 2, 3, 20))
    need(served == ["heavy"] * 3 + ["light"]
         + (["heavy"] * 3 + ["light"]) * 99, f"served {served}")
    weights = {"five": 5, "two": 2, "one": 1}
    for group, weight in weights.items():
        driver.set_weight(0, group, weight)
        driver.batch(0, [group] * (weight * 50))
    served = work_all(driver, (1, 7, 13))
    for start in range(0, 400, 8):
        turn = served[start:start + 8]
        need(all(turn.count(group) == weight
                 for group, weight in weights.items()), f"round of {turn}")


# ---- while the running tasks are not known

LARGE = 8200            # pages from which on no call itself reads the table


@contextmanager
def large_table(driver):
    """Another queue has a page for each of its tasks."""
    session = driver.sessions[-1]
    session.call("SELECT fairq.create_queue('large')")
    session.call("SELECT count(*) FROM fairq.enqueue_batch('large',"
                 " array_fill('a'::text, ARRAY[%s::int]),"
                 " array_fill(to_jsonb(repeat('x', 1700)), ARRAY[%s::int]))",
                 LARGE, LARGE)
    pages = session.value("SELECT pg_relation_size('fairq.task') / 8192")
    try:
        need(pages >= LARGE, f"{pages} pages")
        yield
    finally:
        session.call("SELECT fairq.drop_queue('large', true)")
        session.call("VACUUM fairq.task")


def blind_calls(driver, begin):
    """Calls skip two limited groups, which lose turns. A call that would find no task
    waits. A group without a limit is served, and so is its task of a later
    priority.
    """
    for group in "abc":
        driver.batch(0, [group] * 4)
    driver.batch(0, ["c"] * 4, priority=1)
    driver.pop(0, 2)
    begin(driver)
    for _ in range(6):
        driver.pop(0, 1, per_group=3)
    driver.pop(0, 20)
    driver.drain(random.Random(8))


def limit_two(driver):
    for group in "ab":
        driver.set_limit(0, group, 3)


def blind_at_the_first_limit(driver):
    with large_table(driver):
        blind_calls(driver, limit_two)


def blind_and_all_limited(driver):
    """A call that skips all groups begins another block."""
    with large_table(driver):
        driver.batch(0, ["a", "b", "c"])
        driver.pop(0, 1)
        driver.set_limit(0, None, 1)
        driver.pop(0, 1, per_group=3)
        driver.drain(random.Random(9))


def blind_after_a_restart(driver):
    limit_two(driver)
    with large_table(driver):
        blind_calls(driver, lambda driver: driver.restart(crash=True))


# ---- several threads

def workers_at_once(driver):
    """Four threads pop and complete, and two enqueue. At each of 20 barriers the
    tasks served so far are counted. Two groups that had ready work all the time
    then differ by at most 1 + 4. The 4 is for tasks that another worker holds at
    that moment, at most one per call in flight. The 1 follows from the order of
    rounds.
    """
    names = [f"g{number}" for number in range(8)]
    served = dict.fromkeys(names, 0)
    seen, faults = set(), []
    lock = threading.Lock()
    barrier = threading.Barrier(5)
    for _ in range(6):
        driver.sessions[0].enqueue_batch(names * 250, 0)

    def worker(session, rng):
        try:
            for _ in range(20):
                for _ in range(10):
                    claims = session.pop(rng.randint(1, 10))
                    session.complete_batch([c.id for c in claims],
                                           [c.attempt for c in claims])
                    with lock:
                        for claim in claims:
                            if claim.id in seen:
                                raise Fault("doubled", f"task {claim.id}")
                            seen.add(claim.id)
                            if claim.group in served:
                                served[claim.group] += 1
                barrier.wait(60)
                barrier.wait(60)
        except Exception as error:
            faults.append(error)
            barrier.abort()

    def producer(session, number, stop):
        try:
            while not stop.is_set():
                session.enqueue(f"other {number}", 0)
                session.enqueue_batch(names, 0)
        except Exception as error:
            faults.append(error)

    stop = threading.Event()
    threads = [threading.Thread(target=worker,
                                args=(driver.sessions[n], random.Random(n)))
               for n in range(4)]
    threads += [threading.Thread(target=producer,
                                 args=(driver.sessions[n], n, stop))
                for n in (4, 5)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            barrier.wait(60)
            low, high = min(served.values()), max(served.values())
            if high - low > 1 + 4:
                faults.append(Fault("turn", f"served {served}"))
            barrier.wait(60)
    except threading.BrokenBarrierError:
        pass
    stop.set()
    for thread in threads:
        thread.join()
    if faults:
        raise next((fault for fault in faults if not isinstance(
            fault, threading.BrokenBarrierError)), faults[0])
    driver.check_queue()
    driver.sessions[0].purge()


def turmoil(driver):
    """Six threads make all calls at once for a few seconds, with transactions,
    rollbacks and all isolation levels. At the end each committed task is ready, or exactly
    one committed transaction has completed it.
    """
    names = [f"g{number}" for number in range(5)]
    lock = threading.Lock()
    enqueued, completed, faults = set(), [], []

    def worker(session, rng):
        try:
            for _ in range(150):
                inside = rng.random() < 0.6
                commit = not inside or rng.random() < 0.7
                if inside:
                    session.begin(rng.choice(LEVELS))
                ids = session.enqueue_batch(
                    [rng.choice(names) for _ in range(rng.randint(1, 10))],
                    rng.randrange(2))
                if inside and rng.random() < 0.3:
                    session.savepoint(0)
                    session.pop(rng.randint(1, 5))
                    session.enqueue(rng.choice(names), 0)
                    session.rollback_to(0)
                take = rng.random() < 0.2
                claims = session.pop(rng.randint(1, 12), take=take)
                done = [c.id for c in claims]
                if not take and done and rng.random() < 0.4:
                    id = done.pop()
                    if not session.release(id):
                        raise Fault("release", f"release({id}) is false")
                if not take and session.complete_batch(done, None) != []:
                    raise Fault("complete", "not all tasks were completed")
                if inside:
                    session.commit() if commit else session.rollback()
                if commit:
                    with lock:
                        enqueued.update(ids)
                        completed.extend(done)
        except Exception as error:
            faults.append(error)

    threads = [threading.Thread(target=worker,
                                args=(session, random.Random(number)))
               for number, session in enumerate(driver.sessions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if faults:
        raise faults[0]
    driver.check_queue()
    session = driver.sessions[0]
    while True:
        claims = session.pop(100)
        if not claims:
            break
        completed.extend(claim.id for claim in claims)
        session.complete_batch([claim.id for claim in claims], None)
    need(len(completed) == len(set(completed)), "served twice: "
         + str([id for id in set(completed) if completed.count(id) > 1][:5]))
    need(set(completed) == enqueued, "lost or unknown: "
         + str(sorted(set(completed) ^ enqueued)[:5]))
    driver.check_queue()


SCENARIOS = [Scenario(*fields) for fields in (
    ("pop(1): one task after a backlog of 10,000", pop_one_after_a_backlog),
    ("pop(1): a client that enqueues after each completion", pop_one_and_come_back, 1,
     (1000, 100)),
    ("pop(1): many such clients", pop_one_many_come_back, 1,
     (4000, 400)),
    ("burst: many tasks committed late", burst_of_a_late_commit, 2,
     (5000, 500)),
    ("burst: many transactions committed late", burst_of_late_commits,
     (101, 21), (100, 20)),
    ("burst: the rollback of a large pop", burst_of_a_rollback, 2, (1000, 100)),
    ("burst: behind 1,000 purged tasks", burst_behind_a_purge, 2),
    ("burst: behind 1,000 rolled back tasks", burst_behind_a_rollback, 2),
    ("burst: between savepoints", burst_of_a_savepoint, 2, (200, 20)),
    ("burst: all kinds at once", burst_of_all_kinds, 4),
    # shared memory has entries for 28,000 groups
    ("many groups", many_groups, 1, (150000, 30000)),
    ("many late groups", many_late_groups, 2, (50000, 30000)),
    ("service: layers", layers),
    ("service: unequal groups", unequal_groups),
    ("service: first in, first out in a group", first_in_first_out),
    ("service: invisible until commit", invisible_until_commit, 2),
    ("service: rollback restores", rollback_restores),
    ("service: a newly active group is next", who_comes_is_next),
    ("service: started tasks come first", begun_first),
    ("service: per_group", blocks_of_one_call),
    ("service: per_group, in the middle of a block", window_of_one_call),
    ("service: weights share exactly", weights_share_exactly),
    ("blind: at the first limit", blind_at_the_first_limit, 2, None, True),
    ("blind: at the first limit, which all groups get", blind_and_all_limited, 2,
     None, True),
    ("blind: after a restart", blind_after_a_restart, 2, None, True),
    # --small does not reduce these two
    ("at once: workers and producers", workers_at_once, 6),
    ("at once: turmoil", turmoil, 6),
)]


def run_scenario(server, scenario):
    """Returns the fault that the scenario finds, with its log, or None. A
    scenario that was too slow runs again, with more time.
    """
    for _ in range(6):
        driver = Driver(server, scenario.sessions)
        try:
            scenario.function(driver, *filter(None, [scenario.size]))
            driver.check_queue()
            need(not driver.model.unfinished(), "the scenario left tasks")
            driver.close(clean=True)
            return None
        except TooSlow as error:
            driver.give_up()
            fault = error
        except Exception as error:
            driver.close(clean=False)
            fault = error
            break
    if not isinstance(fault, Fault):
        fault = Fault("error", f"{type(fault).__name__}: {fault}")
    fault.log = driver.log
    return fault
