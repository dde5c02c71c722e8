"""Stalls backends (src/base/tools.h), for tests that do something during the
stall."""

import os
import time


class Stall:
    """Stops a backend, given by data directory and process, at the n-th point of a kind."""

    def __init__(self, data, pid, kind, n=1):
        self.asked = f"{data}/fairq_stall.{pid}"
        self.done = f"{data}/fairq_stalled.{pid}"
        # written under another name, since the backend may read the file at any
        # time
        with open(self.asked + ".new", "w") as file:
            file.write(f"{kind} {n}")
        os.rename(self.asked + ".new", self.asked)

    def is_reached(self):
        return os.path.exists(self.done)

    def wait(self, seconds, thread=None):
        """Waits until the backend has stopped, or its call's thread has ended.
        Returns whether it has stopped."""
        limit = time.monotonic() + seconds
        while not self.is_reached() and time.monotonic() < limit and (
                thread is None or thread.is_alive()):
            time.sleep(0.001)
        return self.is_reached()

    def let_go(self):
        """Makes the backend continue. If it has not reached the point, it will
        not stop there."""
        for path in (self.asked, self.done):
            if os.path.exists(path):
                os.unlink(path)
