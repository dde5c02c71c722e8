"""Time: the instants at which tasks become due and leases expire.

The server uses the clock of this machine, so the times before and after a call
are known.  No instant may be between these times, because the model could then
not know the call's result.  So a call near an instant waits until the instant
has passed.  If a call is so slow that an instant still passes, the model cannot
judge the call, and the history is given up (TooSlow).

Instants are planned ahead, a few milliseconds apart, or further apart on a busy
machine.  A history passes them in its ticks, which are steps.  If the history is
slower than planned, instants pass at an earlier step, which the model takes into
account.
"""

import time
from heapq import heappop, heappush

AFTER = 300             # microseconds that a tick waits beyond its margin


class TooSlow(Exception):
    pass


class Pace:
    """A duration that nearly all calls so far have stayed below."""
    LEAST, MOST = 3000, 48000

    def __init__(self):
        self.margin = self.LEAST

    def too_slow(self):
        self.margin = min(self.margin * 2, self.MOST)

    def fast_enough(self):
        self.margin = max(self.margin * 19 // 20, self.LEAST)


class Clock:
    def __init__(self, log, pace):
        self.log = log          # as in server.py
        self.margin = pace.margin
        self.instants = []      # future instants, as a heap
        self.plan = []
        self.start = self.end = 0

    @staticmethod
    def now():
        return time.time_ns() // 1000

    def sleep_until(self, instant):
        seconds = max(instant - self.now(), 0) / 1000000
        self.log.append(["clock", f"SELECT pg_sleep({seconds})", (), None])
        time.sleep(seconds)

    def expect(self, instant):
        """Records an instant at which a task becomes due or a lease
        expires."""
        heappush(self.instants, instant)

    def __enter__(self):
        """Entered around a call. start and end are the times before and after
        the call."""
        now = self._past()
        while self.instants and self.instants[0] <= now + self.margin:
            self.sleep_until(self.instants[0] + AFTER)
            now = self._past()
        if now < self.end:
            raise TooSlow("the clock was set back")
        self.start = now

    def __exit__(self, kind, error, traceback):
        self.end = self.now() + 1
        if kind is None and self.instants and self.instants[0] <= self.end:
            raise TooSlow(f"a call took {self.end - self.start} microseconds")

    def _past(self):
        """Removes the instants that have passed. Returns the present time."""
        now = self.now()
        while self.instants and self.instants[0] < now:
            heappop(self.instants)
        return now

    def planned(self, ahead):
        """The n-th planned instant in the future, from 1 on."""
        now = self.now()
        self.plan = [instant for instant in self.plan
                     if instant > now + self.margin]
        while len(self.plan) < ahead:
            self.plan.append(self.plan[-1] + 2 * self.margin if self.plan
                             else now + 3 * self.margin)
        return self.plan[ahead - 1]

    def tick(self, most=100000):
        """Waits until the next instant, and those right after it, have passed.
        Returns False if there is no instant within this number of microseconds
        (of an idle machine).
        """
        now = self._past()
        if not self.instants or (
                self.instants[0] > now + most * self.margin // Pace.LEAST):
            return False
        until = self.instants[0]
        while self.instants and self.instants[0] <= until + self.margin:
            heappop(self.instants)
        self.sleep_until(until + self.margin + AFTER)
        return True
