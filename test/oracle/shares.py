"""Shares of priorities: the next priority, exact to the task.

What a lane has got is its services, or by cost their costs, divided by its share.
The lane that has got least is next; among equal lanes, the lower priority.  A
lane that comes has got at least what the lane served last had before that,
rounded up to a part of a task.  A call with per_group serves one lane: all but
its first service are not what the lane served last.
"""

import struct
from fractions import Fraction

PARTS = 1 << 20                 # of a task


class Shares:
    def __init__(self, shares=None):
        self.share = dict(enumerate(shares or ()))
        self.got = {}
        self.reached = 0

    def start(self, lane):
        """Its amount, if it is served now."""
        got = self.got.get(lane, 0)
        if got >= self.reached:
            return got
        parts = self.share[lane] * PARTS
        return Fraction(-(-self.reached * parts // 1), parts)

    def key(self, lane):
        """Lanes are served in this order, if they have something."""
        if lane in self.share:
            return 0, self.start(lane), lane
        return 1, 0, lane

    def serve(self, lane, parts=PARTS, in_order=True):
        if lane in self.share:
            start = self.start(lane)
            if in_order:
                self.reached = start
            self.got[lane] = start + Fraction(parts, PARTS * self.share[lane])


def parts_of(cost):
    """The charge of a task with a cost."""
    return max(1, int(struct.unpack("f", struct.pack("f", cost))[0] * PARTS))
