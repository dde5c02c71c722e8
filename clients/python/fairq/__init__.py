"""A client for fairq, the fair task queue in PostgreSQL: see README.md.

    fairq.enqueue(connection, "mail", "bob", {"to": "x@example.com"}, task="send")

    worker = fairq.Worker("mail")

    @worker.task("send")
    def send(to): ...

    worker.main()
"""

from typing import TYPE_CHECKING, Any

from .producer import (NO_GROUP, acancel, acancel_batch, aclose_batch, acreate_batch, aenqueue,
                       aenqueue_batch, aenqueue_or_find, aensure_queues, afind, aredrive,
                       aredrive_task, areschedule, before_enqueue, cancel, cancel_batch, close_batch, create_batch,
                       enqueue, enqueue_batch, enqueue_or_find, ensure_queues, find, redrive,
                       redrive_task, reschedule, set_json_default)
from .task import Crashed, Dead, NoHandler, Retry, Stopped, Task, TimedOut, Undecodable, current_task

if TYPE_CHECKING:
    from .worker import Worker, WorkerError

__version__ = "1.0.0"
__all__ = ["NO_GROUP", "Crashed", "Dead", "NoHandler", "Retry", "Stopped", "Task", "TimedOut", "Undecodable",
           "Worker", "WorkerError", "acancel", "acancel_batch", "aclose_batch", "acreate_batch",
           "aenqueue", "aenqueue_batch", "aenqueue_or_find", "aensure_queues", "afind", "aredrive",
           "aredrive_task", "areschedule", "before_enqueue", "cancel", "cancel_batch", "close_batch", "create_batch",
           "current_task", "enqueue", "enqueue_batch", "enqueue_or_find", "ensure_queues", "find",
           "redrive", "redrive_task", "reschedule", "set_json_default"]


def __getattr__(name: str) -> Any:
    # Workers need psycopg 3, which a producer may not have.
    if name in ("Worker", "WorkerError"):
        from . import worker
        return getattr(worker, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
