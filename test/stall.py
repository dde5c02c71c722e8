"""Backends that are held up: src/base/stall.h, for tests that do something in a gap."""

import os
import time


class Stall:
    """A backend, by its data directory and process, is to stop at the n-th point of a kind."""

    def __init__(self, data, pid, kind, n=1):
        self.asked = f"{data}/fairq_stall.{pid}"
        self.done = f"{data}/fairq_stalled.{pid}"
        # at once: the backend may come by at any time
        with open(self.asked + ".new", "w") as file:
            file.write(f"{kind} {n}")
        os.rename(self.asked + ".new", self.asked)

    def is_reached(self):
        return os.path.exists(self.done)

    def wait(self, seconds, thread=None):
        """For the backend to stop, or for the thread of its call to end.  True: it has stopped."""
        limit = time.monotonic() + seconds
        while not self.is_reached() and time.monotonic() < limit and (
                thread is None or thread.is_alive()):
            time.sleep(0.001)
        return self.is_reached()

    def let_go(self):
        """The backend goes on; or, if it has not stopped, will not."""
        for path in (self.asked, self.done):
            if os.path.exists(path):
                os.unlink(path)
