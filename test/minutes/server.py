"""What fairq.fairness and group_shares() say of the last full minute.

For a server whose minutes are of two seconds: see test/minutes/run.

That it can fail was seen with a charge that stayed for a turn that came to nothing
(fairq_account_uncharge()), with costs that were not corrected once they were known
(fairq_account_correct()), with work that was rolled back and stayed
(fairq_account_apply()), with weights left out of service (copy_served() in lane_served.c), with what a group is given as it
comes counted as served (fairq_account_comes()), and with minutes that begin with the
next change only (fairq_minute_advance() left out of fairq_lane_fairness()).
"""

import sys
import time

import psycopg

MINUTE = 2.0
NEAR = 0.1

faults = []


def connect():
    return psycopg.connect(autocommit=True, options="-c client_min_messages=error")


db = connect()


def sql(text, *args):
    cursor = db.execute(text, args)
    return cursor.fetchall() if cursor.description else None


def add(queue, group, n=1, cost=None):
    for _ in range(n):
        sql("SELECT fairq.enqueue(%s, %s, cost => %s)", queue, group, cost)


def pop(queue, n=1):
    return [group for group, in
            sql("SELECT group_key FROM fairq.pop(%s, %s)", queue, n)]


def done(queue, group, took):
    sql("SELECT fairq.complete(id, took => %s::interval) FROM fairq.live_tasks"
        " WHERE queue = %s AND group_key = %s AND status = 'running'",
        took, queue, group)


def services(queue):
    return dict(sql("SELECT group_key, service FROM fairq.group_shares(%s)", queue))


def jain(queue):
    return sql("SELECT jain FROM fairq.fairness WHERE queue = %s AND priority = 0",
               queue)[0][0]


class Clock:
    """The minutes of a queue's lane, the first of which is nearly over."""

    def __init__(self, queue):
        while any(x is None for x in services(queue).values()):
            time.sleep(0.002)
        self.begin = time.monotonic()

    def wait(self, minute, at):
        """Wait for that part of a minute after the one in which we are."""
        left = self.begin + minute * MINUTE + at * MINUTE - time.monotonic()
        if left < -0.3 * MINUTE:
            print("ok - minutes of a server # skip too slow for minutes of two seconds")
            sys.exit(0)
        time.sleep(max(left, 0))


def expect(what, found, expected, near=1e-6):
    def same(a, b):
        return a == b or (a is not None and b is not None and abs(a - b) <= near)

    if isinstance(expected, dict):
        right = all(same(found.get(k), v) for k, v in expected.items())
    else:
        right = same(found, expected)
    if not right:
        faults.append(what)
        print(f"{what}: {found}, and should be {expected}")


def index(xs):
    return sum(xs) ** 2 / (len(xs) * sum(x * x for x in xs))


def by_cost():
    sql("SELECT fairq.create_queue('cost', fair_by => 'cost')")
    sql("SELECT fairq.set_group('cost', 'heavy', weight => 2)")
    add("cost", "gone", 1, 1000)
    add("cost", "rich", 2, 1000)
    pop("cost", 2)                  # both; rich is far ahead, and has one more
    add("cost", "a", 9, 2)
    add("cost", "heavy", 9, 3)
    pop("cost", 2)
    expect("no minute yet: service", services("cost"),
           {"a": None, "heavy": None, "rich": None})
    expect("no minute yet: index", jain("cost"), None)
    clock = Clock("cost")
    expect("the first minute", services("cost"),
           {"gone": 1000, "rich": 1000, "a": 2, "heavy": 3})
    clock.wait(1, 0.1)
    expect("nothing was served: index", jain("cost"), None)
    # one that is paused is charged nothing; one whose costs change is, what they are
    sql("SELECT fairq.pause('cost', 'heavy')")
    add("cost", "new", 1, 7)
    popped = pop("cost", 3)
    sql("SELECT fairq.resume('cost', 'heavy')")
    popped += pop("cost", 3)
    clock.wait(2, 0.1)
    expected = {group: cost * popped.count(group)
                for group, cost in (("a", 2), ("heavy", 3), ("new", 7))}
    expected["rich"] = 0
    expect("a minute", services("cost"), expected)
    expected["heavy"] /= 2
    known = jain("cost")
    expect("its index", known, index(list(expected.values())), near=1e-9)
    expect("shares", sum(x for x, in sql("SELECT share FROM fairq.group_shares('cost')")), 1)
    # one that is parked before the minute begins does not count; rich does, which is
    # there for nothing
    sql("SELECT fairq.pause('cost', 'heavy')")
    pop("cost", 3)
    clock.wait(3, 0.1)
    popped = pop("cost", 2)
    clock.wait(4, 0.1)
    expect("without one that is parked", jain("cost"),
           index([2 * popped.count("a"), 0]), near=1e-9)


def by_time():
    sql("SELECT fairq.create_queue('time', fair_by => 'time')")
    sql("SELECT fairq.set_group('time', 'heavy', weight => 2)")
    for group in ("a", "b", "heavy"):
        add("time", group, 9)
    pop("time", 6)                  # a 2, b 1, heavy 3, in some order
    runs = dict(sql("SELECT group_key, running FROM fairq.group_shares('time')"))
    clock = Clock("time")
    clock.wait(1, 0.1)
    expect("what runs works on", services("time"),
           {group: MINUTE * n for group, n in runs.items()})
    rates = [runs["a"], runs["b"], runs["heavy"] / 2]
    expect("its index", jain("time"), index(rates), near=1e-9)
    # minutes in which nothing happens at all
    clock.wait(3, 0.1)
    expect("later as well", services("time"),
           {group: MINUTE * n for group, n in runs.items()})
    expect("its index later", jain("time"), index(rates), near=1e-9)
    # one that took longer than for what it ran counts in this minute
    begun = sql("SELECT extract(epoch FROM clock_timestamp() - popped_at)::float8"
                " FROM fairq.live_tasks WHERE queue = 'time' AND group_key = 'b'"
                " AND status = 'running'")
    done("time", "b", "20 s")
    into = time.monotonic() - clock.begin - 3 * MINUTE
    # and what is rolled back does not
    with db.transaction(force_rollback=True):
        pop("time", 2)
        time.sleep(0.3)
    clock.wait(4, 0.1)
    expected = {group: MINUTE * runs[group] for group in ("a", "heavy")}
    expected["b"] = sum(20 - (at - into) for at, in begun)
    expect("took", services("time"), expected, near=NEAR)
    clock.wait(5, 0.1)
    expected["b"] = 0
    expect("and after that", services("time"), expected)
    # who comes is given what the others have got, and was served nothing of it
    add("time", "new", 1)
    sql("SELECT fairq.release(id) FROM fairq.pop('time')")
    clock.wait(6, 0.1)
    expect("who comes", services("time"), {"new": 0}, near=NEAR)


by_cost()
by_time()
print(f"{'not ' if faults else ''}ok - minutes of a server, {len(faults)} faults")
sys.exit(bool(faults))
