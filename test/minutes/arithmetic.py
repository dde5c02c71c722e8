"""src/minute.c with random histories.

    arithmetic.py [--seed N]

Groups stand in the set and leave it, are served amounts at once, and work at a
pace, at random times, some of them minutes apart.  The reference keeps each
group's history, and adds it up.  After each event what the groups were served
in the last full minute is compared, and Jain's index.

That it can fail was seen with a last minute taken from the present sums when a whole
one was left out (fairq_minute_advance()), with no work_pace in sums_at(), with a
group that does not count any more when it leaves (served->counts = stands in
fairq_minute_close()), with the work of a minute going on into the next one
(fairq_minute_open()), and with minutes as old as any in fairq_minute_served().
"""

import argparse
import ctypes
import os
import random
import subprocess
import sys
import tempfile

MINUTE = 60000000


class Served(ctypes.Structure):
    _fields_ = [("work", ctypes.c_double), ("last", ctypes.c_float),
                ("minute", ctypes.c_uint32, 31), ("counts", ctypes.c_uint32, 1)]


class Sums(ctypes.Structure):
    _fields_ = [("n", ctypes.c_int32)] + [(name, ctypes.c_double) for name in (
        "work", "work_work", "pace", "pace_pace", "work_pace")]


class Minute(ctypes.Structure):
    _fields_ = [("number", ctypes.c_int64), ("present", Sums), ("last", Sums),
                ("standing", Sums)]


def library():
    with tempfile.TemporaryDirectory() as place:
        out = os.path.join(place, "minute.so")
        include = subprocess.run(
            [os.environ.get("PG_CONFIG", "pg_config"), "--includedir-server"],
            check=True, text=True, stdout=subprocess.PIPE).stdout.strip()
        subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-I", include, "-Isrc",
                        "-o", out, "src/minute.c"], check=True)
        lib = ctypes.CDLL(out)
    for name in ("served", "served_so_far", "jain"):
        getattr(lib, f"fairq_minute_{name}").restype = ctypes.c_double
    return lib


class Group:
    """A group, and its history."""

    def __init__(self):
        self.served = Served()
        self.pace = 0.0
        self.stands = False
        self.pieces = []        # (from, upto, pace); amounts have from = upto
        self.stood = []         # (from, upto)
        self.since = 0

    def pass_time(self, now):
        self.pieces.append((self.since, now, self.pace))
        if self.stands:
            self.stood.append((self.since, now))
        self.since = now

    def amount_in(self, number):
        begin, end = number * MINUTE, (number + 1) * MINUTE
        total = 0.0
        for first, last, x in self.pieces:
            if first is None:
                total += x if begin <= last < end else 0
            else:
                total += x * max(min(last, end) - max(first, begin), 0) / 1e6
        return total

    def counted_in(self, number):
        begin, end = number * MINUTE, (number + 1) * MINUTE
        return any(first < end and last >= begin for first, last in self.stood)


def jain_of(xs):
    square = sum(x * x for x in xs)
    return sum(xs) ** 2 / (len(xs) * square) if square > 0 else -1.0


def is_near(a, b):
    return abs(a - b) <= 1e-5 * max(1.0, abs(a), abs(b))


def history(lib, random_, log):
    minute = Minute()
    groups = [Group() for _ in range(random_.randint(1, 6))]
    now = 0
    for _ in range(random_.randint(1, 60)):
        now += int(random_.choice([0, 1e5, 2e7, 5e7, 7e7, 3e8]) * random_.random())
        group = random_.choice(groups)
        for g in groups:
            g.pass_time(now)
        lib.fairq_minute_open(
            ctypes.byref(minute), ctypes.byref(group.served),
            ctypes.c_double(group.pace), group.stands, ctypes.c_int64(now))
        amount = random_.choice([0, 0, 1, random_.random() * 50])
        group.served.work += amount
        group.pieces.append((None, now, amount))
        group.pace = random_.choice([0, 1, 2, 1.5, group.pace])
        group.stands = random_.choice([True, False, group.stands])
        lib.fairq_minute_close(
            ctypes.byref(minute), ctypes.byref(group.served),
            ctypes.c_double(group.pace), group.stands, ctypes.c_int64(now))
        if group.stands:
            group.stood.append((now, now))
        log.append((now, groups.index(group), amount, group.pace, group.stands))
        seen = Minute.from_buffer_copy(minute)
        later = now + int(random_.choice([0, 3e7, 6e7, 2e8]) * random_.random())
        lib.fairq_minute_advance(ctypes.byref(seen), ctypes.c_int64(later))
        for g in groups:
            g.pass_time(now)
        look(lib, groups, seen, now, later)


def look(lib, groups, seen, now, later):
    """Compare what is known at a later time."""
    def upto_later(g):
        copy = Group()
        copy.pieces = g.pieces + [(now, later, g.pace)]
        copy.stood = g.stood + ([(now, later)] if g.stands else [])
        return copy

    number = seen.number
    assert number == later // MINUTE, "number"
    copies = [upto_later(g) for g in groups]
    for i, g in enumerate(groups):
        so_far = lib.fairq_minute_served_so_far(
            ctypes.byref(seen), ctypes.byref(g.served), ctypes.c_double(g.pace),
            ctypes.c_int64(later))
        assert is_near(so_far, copies[i].amount_in(number)), ("so far", i, so_far)
        if number > 0:
            x = lib.fairq_minute_served(ctypes.byref(seen), ctypes.byref(g.served),
                                        ctypes.c_double(g.pace))
            assert is_near(x, copies[i].amount_in(number - 1)), ("last", i, x)
    jain = lib.fairq_minute_jain(ctypes.byref(seen))
    expected = jain_of([c.amount_in(number - 1) for c in copies
                        if c.counted_in(number - 1)]) if number > 0 else -1.0
    assert is_near(jain, expected), ("jain", jain, expected)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=random.randrange(10 ** 6))
    parser.add_argument("--histories", type=int, default=1000)
    args = parser.parse_args()
    lib = library()
    for i in range(args.histories):
        log = []
        try:
            history(lib, random.Random(f"{args.seed} {i}"), log)
        except AssertionError as e:
            print(f"not ok - minutes by themselves: seed {args.seed}, history {i}: {e}")
            for line in log:
                print("   ", line)
            sys.exit(1)
    print(f"ok - minutes by themselves, {args.histories} histories, seed {args.seed}")


main()
