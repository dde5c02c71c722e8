"""Threads that live on."""

from __future__ import annotations

import logging
import math
import queue
import threading
from typing import Any, Callable, Tuple

log = logging.getLogger("fairq")


class Threads:
    """Runs functions side by side, each in a thread that is idle, or in a new one.

    There are at most so many threads; what is beyond that waits.  They are daemons, as
    what they run may never end.
    """

    def __init__(self, name: str, most: float = math.inf):
        self.name, self.most = name, most
        self.lock = threading.Lock()
        self.todo: "queue.SimpleQueue[Tuple[Callable[..., object], Tuple[Any, ...]]]" = queue.SimpleQueue()
        self.count = self.idle = self.waiting = 0

    def run(self, function: Callable[..., object], *args: Any) -> None:
        with self.lock:
            new = self.idle == 0 and self.count < self.most
            if new:
                self.count += 1
            elif self.idle:
                self.idle -= 1
            else:
                self.waiting += 1
            name = f"{self.name} {self.count}"
            self.todo.put((function, args))
        if new:
            threading.Thread(target=self.live, name=name, daemon=True).start()

    def live(self) -> None:
        while True:
            function, args = self.todo.get()
            try:
                function(*args)
            except BaseException:
                log.exception("in thread %s", threading.current_thread().name)
            del function, args      # what they hold is not to live as long as this
            with self.lock:
                if self.waiting:
                    self.waiting -= 1
                else:
                    self.idle += 1
