"""Shows a progress bar on a terminal, and otherwise prints a line for every
quarter."""

import sys
import time

WIDTH = 40


class Progress:
    def __init__(self, name, total):
        self.name = name
        self.total = total
        self.tty = sys.stdout.isatty()
        self.drawn = 0.0
        self.quarter = 0
        self.start = time.time()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        if self.tty:
            print()

    def show(self, done):
        if self.tty:
            self.bar(done)
        else:
            self.line(done)

    def bar(self, done):
        # Drawn at most ten times a second, and at the end.
        if time.time() - self.drawn < 0.1 and done < self.total:
            return
        self.drawn = time.time()
        full = WIDTH * done // self.total
        print("\r%-6s [%s%s] %d/%d  %.1f s"
              % (self.name, "#" * full, "." * (WIDTH - full), done,
                 self.total, time.time() - self.start), end="", flush=True)

    def line(self, done):
        quarter = 4 * done // self.total
        if quarter > self.quarter:
            self.quarter = quarter
            print("%s: %d of %d tasks, %.1f s"
                  % (self.name, done, self.total, time.time() - self.start),
                  flush=True)
