"""A pool of daemon threads."""

from __future__ import annotations

import logging
import math
import queue
import threading
from typing import Any, Callable, Tuple

log = logging.getLogger("fairq")


class Threads:
    """Runs functions concurrently, each in an idle thread or a new one.

    When the pool has its maximum of threads, functions wait.  The threads are daemons,
    since the functions may never end.
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
            del function, args      # so that this thread keeps neither alive
            with self.lock:
                if self.waiting:
                    self.waiting -= 1
                else:
                    self.idle += 1
