"""Checks in the log of a run that no stretch of time has more starts than
allowed.

A start happened between two known times: the send of its statement, and the arrival
of its result.  So a stretch from a to b surely contains the starts of each statement
that was sent after a and whose result arrived before b.
"""

from bisect import bisect_left
from collections import Counter, defaultdict, namedtuple

# Starts of one statement: COUNT of them, between two times.
Starts = namedtuple("Starts", "since by count")

# A setting that was in effect between two times: RATE starts in PER seconds, and
# BURST at once.
Epoch = namedtuple("Epoch", "since to rate per burst")

# The result for a stretch: by how much its starts exceed the allowed number.
# The difference is negative if more starts were allowed.
Worst = namedtuple("Worst", "above since by starts")


def worst(starts, epoch):
    """The stretch of an epoch whose starts exceed the allowed number the most.

    A stretch begins with one statement and ends with another.  The tree's leaves are
    the possible beginnings of a stretch, in order.  A node has the number of starts
    recorded in it.  It also has the greatest "starts from here on + time before here *
    rate" of the node's beginnings.
    """
    pace = epoch.rate / epoch.per
    within = sorted((s for s in starts if s.since >= epoch.since
                     and s.by <= epoch.to), key=lambda s: s.by)
    if not within:
        return None
    begins = sorted({s.since for s in within})
    size = 1
    while size < len(begins):
        size *= 2
    count = [0] * (2 * size)
    most = [float("-inf")] * (2 * size)
    found = Worst(float("-inf"), 0, 0, 0)
    for s in within:
        node = size + bisect_left(begins, s.since)
        count[node] += s.count
        most[node] = count[node] + (s.since - begins[0]) * pace
        while node > 1:
            node //= 2
            left, right = 2 * node, 2 * node + 1
            count[node] = count[left] + count[right]
            most[node] = max(most[right], most[left] + count[right])
        above = most[1] - (s.by - begins[0]) * pace - epoch.burst
        if above > found.above:
            since, n = begin_of(most, count, begins, size)
            found = Worst(above, since, s.by, n)
    return found


def begin_of(most, count, begins, size):
    """The beginning of the worst stretch that ends now, and the number of
    starts in it."""
    node, behind = 1, 0
    while node < size:
        left, right = 2 * node, 2 * node + 1
        if most[right] >= most[left] + count[right]:
            node = right
        else:
            behind += count[right]
            node = left
    return begins[node - size], behind + count[node]


class Account:
    """The starts of all calls, for each queue and each group or tenant. The key
    None has the starts of all groups of the queue.
    """

    def __init__(self, calls, committed):
        """
        calls: (name, queue, since, by, keys of groups or None); committed: name of
        a call -> keys of groups.  The server may have committed calls whose results
        the client has not received.
        """
        found = defaultdict(list)
        self.calls = self.unseen = 0
        for name, queue, since, by, keys in calls:
            if keys is None:
                keys = committed.get(name, ())
                self.unseen += bool(keys)
            elif name in committed and sorted(keys) != sorted(committed[name]):
                raise ValueError(f"call {name} of {queue} returned {keys}, and"
                                 f" its table has {committed[name]}")
            self.calls += bool(keys)
            levels = Counter(level for key in keys
                             for level in {None, key, key.split("/")[0]})
            for level, n in levels.items():
                found[queue, level].append(Starts(since, by, n))
        self.starts = found

    def worst(self, queue, key, epochs):
        """The stretch of these epochs whose starts exceed the allowed number
        the most."""
        every = [w for w in (worst(self.starts[queue, key], epoch)
                             for epoch in epochs) if w]
        return max(every, default=None)

    def reached(self, queue, key, epochs):
        """The greatest ratio of an epoch's starts to its allowed starts.

        Returns None if no epoch was so long that the rate allows at least two
        bursts.  On a slow machine a shorter epoch may have no starts beyond
        its burst.
        """
        part = None
        for epoch in epochs:
            n = sum(s.count for s in self.starts[queue, key]
                    if s.since >= epoch.since and s.by <= epoch.to)
            most = (epoch.to - epoch.since) * epoch.rate / epoch.per
            if most < 2 * (epoch.burst + 1):
                continue
            # a full burst at the start is not part of the rate
            reached = (n - epoch.burst) / most if n > epoch.burst + 1 else 0
            part = max(part or 0, reached)
        return part

    def while_held(self, queue, key, holds):
        """The starts that surely happened during one of these holds."""
        return [s for s in self.starts[queue, key] for since, to in holds
                if s.since >= since and s.by <= to]
