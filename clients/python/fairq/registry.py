"""Shows a worker in the view fairq.workers, as long as it works."""

from __future__ import annotations

import logging
import socket
import threading
import uuid
from typing import TYPE_CHECKING

import psycopg

from . import __version__
from .database import LOST, explain

if TYPE_CHECKING:
    from .worker import Shard

log = logging.getLogger("fairq")

# seconds between calls that register the worker
EVERY = 10


class Registration:
    """A worker's row in one database.

    Nothing depends on this row, so an error is only logged. The server may be
    older than this package, for example, or may have become a standby.
    """

    def __init__(self, shard: "Shard"):
        self.shard = shard
        self.id = str(uuid.uuid4())
        self.known = False          # the server has the worker's row
        self.over = threading.Event()
        self.lock = threading.Lock()
        self.level = logging.WARNING

    def keep(self) -> None:
        """Registers every ten seconds, until end()."""
        self.register()
        while not self.over.wait(EVERY):
            self.register()

    def register(self) -> None:
        worker = self.shard.worker
        with worker.changed:
            running = sum(task.shard is self.shard for task in worker.working)
        with self.lock:
            if not self.over.is_set() and self.ask(
                    "SELECT fairq.register_worker(%s::uuid, %s, %s::text[], %s, 'python', %s, %s, %s)",
                    self.id, worker.name, worker.queues, socket.gethostname(), __version__,
                    worker.concurrency, running):
                self.known = True

    def end(self) -> None:
        self.over.set()
        with self.lock:
            if self.known and self.shard.keeper.is_connected():
                self.ask("SELECT fairq.unregister_worker(%s::uuid)", self.id)

    def ask(self, sql: str, *args: object) -> bool:
        try:
            self.shard.keeper.query(sql, *args, once=True, brief=True)
        except psycopg.Error as error:
            if not isinstance(error, LOST):     # these errors are logged already
                log.log(self.level, "the worker is not shown in fairq.workers: %s", explain(error))
                self.level = logging.DEBUG
            return False
        return True
