"""Shares of priorities: which of them is to be served, to the task.

What a lane has got is its services divided by its share.  Who has got least is
next, of equal ones the lower priority.  A lane that comes has got at least
what the lane served last had before that, rounded up to a part of a task.
"""

from fractions import Fraction

PARTS = 1 << 20                 # of a task


class Shares:
    def __init__(self, shares=None):
        self.share = dict(enumerate(shares or ()))
        self.got = {}
        self.reached = 0

    def start(self, lane):
        """What it has got, if it is served now."""
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

    def serve(self, lane):
        if lane in self.share:
            self.reached = self.start(lane)
            self.got[lane] = self.reached + Fraction(1, self.share[lane])
