"""A client for fairq, the fair task queue in PostgreSQL: see README.md.

    fairq.enqueue(connection, "mail", "bob", {"to": "x@example.com"}, task="send")

    worker = fairq.Worker("mail")

    @worker.task("send")
    def send(to): ...

    worker.main()
"""

from .producer import (aenqueue, aenqueue_batch, cancel, acancel, enqueue,
                       enqueue_batch)
from .task import Dead, Retry, Stopped, Task, current_task
from .worker import Worker, WorkerError

__version__ = "1.0.0"
__all__ = ["Dead", "Retry", "Stopped", "Task", "Worker", "WorkerError", "acancel",
           "aenqueue", "aenqueue_batch", "cancel", "current_task", "enqueue",
           "enqueue_batch"]
