"""Shares of priorities: the model knows exactly which priority is next.

The amount of a lane is its services, or in cost-fair queues their costs, divided
by its share.  The lane with the least amount is next. If amounts are equal, the
lane with the lower priority number is next.  A lane that becomes active has at
least the amount that the last served lane had before, rounded up to a part of a
task.  A call with per_group serves one lane.  Only the first service of such a
call counts for "the last served lane".
"""

import struct
from fractions import Fraction

PARTS = 1 << 20                 # parts into which a task is divided


class Shares:
    def __init__(self, shares=None):
        self.share = dict(enumerate(shares or ()))
        self.got = {}
        self.reached = 0

    def start(self, lane):
        """The amount from which the lane continues if it is served now."""
        got = self.got.get(lane, 0)
        if got >= self.reached:
            return got
        parts = self.share[lane] * PARTS
        return Fraction(-(-self.reached * parts // 1), parts)

    def key(self, lane):
        """The sort key of the order in which lanes with tasks are served."""
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
