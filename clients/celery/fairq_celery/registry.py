"""Shows Celery's worker in the view fairq.workers.

A ledger's thread calls renew() with its connection.  Nothing depends on the view, so an
error is only logged.
"""

import logging
import math
import os
import socket
import time
import uuid

import psycopg

from . import __version__
from .database import LOST

log = logging.getLogger("fairq.celery")

# seconds between calls that register the worker
EVERY = 10


class Registration:
    def __init__(self):
        self.id = str(uuid.uuid4())
        self.due = math.inf         # time of the next call, by the monotonic clock
        self.pool = None            # Celery's
        self.known = False          # the server has the worker's row
        self.ends = False           # the worker ends
        self.level = logging.WARNING

    def begin(self, pool):
        self.pool, self.due = pool, 0

    def is_due(self):
        return time.monotonic() >= self.due

    def renew(self, connection, queues, running):
        if not self.is_due():
            return
        self.due = math.inf if self.ends else time.monotonic() + EVERY
        if self.ends:
            self.ask(connection, "SELECT fairq.unregister_worker(%s::uuid)", self.id)
            self.known = False
        elif queues:        # there are none while Celery reconnects
            self.known = self.ask(
                connection, "SELECT fairq.register_worker(%s::uuid, %s, %s::text[], %s, 'celery', %s, %s, %s)",
                self.id, f"{socket.gethostname()}:{os.getpid()}", queues, socket.gethostname(),
                __version__, self.pool.num_processes, running)

    def ask(self, connection, sql, *values):
        try:
            connection.execute(sql, values)
        except LOST:
            raise
        except psycopg.Error as error:
            log.log(self.level, "the worker is not shown in fairq.workers: %s", str(error).strip())
            self.level = logging.DEBUG
            return False
        return True
