"""For tests: runs the ready tasks that the test's transaction sees, in this
transaction.

    ran = fairq.testing.run_tasks(connection, worker)

No worker sees the tasks that the transaction has enqueued, since nothing is
committed.  A rollback at the end of the test removes them.
"""

from __future__ import annotations

import asyncio
import functools
import time
from typing import Any, List, NamedTuple, Optional

from .database import WorkerError
from .ends import failure
from .handler import arguments_of, is_async
from .producer import run, to_json
from .task import Dead, Retry, Task, current
from .worker import CLAIM, TEXTS, Worker


class Ran(NamedTuple):
    """A task that has run, with its handler's return value, or its Dead or
    Retry."""

    task: Task
    result: Any
    error: Optional[Exception]


class OneConnection:
    """A connection that replaces a worker's two connections."""

    def __init__(self, worker: Worker, connection: Any):
        self.worker, self.connection = worker, connection
        self.keeper = self

    def query(self, sql: str, *args: Any, brief: bool = False) -> List[List[Any]]:
        return run(self.connection, (sql, args))


def run_tasks(connection: Any, worker: Worker, *, most: int = 1000) -> List[Ran]:
    """Runs ready tasks of the worker's queues one by one, including tasks that they
    enqueue.

    The connection is one that enqueue() takes, in a transaction.  Exceptions of a handler are
    raised here, except Dead and Retry.  Raises WorkerError if there are more than "most"
    tasks.
    """
    place: Any = OneConnection(worker, connection)
    ran: List[Ran] = []
    while True:
        rows = place.query(f"SELECT {CLAIM}, {TEXTS} FROM fairq.pop(%s::text[], 1, worker => %s)",
                           worker.queues, worker.name)
        if not rows:
            return ran
        if len(ran) == most:
            raise WorkerError(f"the limit of {most} tasks is reached, and another one is ready,"
                              f" of queue {rows[0][4]}")
        ran.append(run_task(Task(place, *rows[0])))


def run_task(task: Task) -> Ran:
    token = current.set(task)
    task.begun = time.monotonic()
    try:
        handler, named = task.shard.worker.find_work(task)
        args, keywords = arguments_of(task, named)
        call = functools.partial(handler, *args, **keywords)
        result = asyncio.run(awaited(call)) if is_async(handler) else call()
    except (Dead, Retry) as error:
        end = failure(error)
        task.ended = time.monotonic()
        task.call(end.function, *end.args, **end.named)
        return Ran(task, None, error)
    finally:
        current.reset(token)
    task.ended = time.monotonic()
    if not task.completed:
        task.call("complete", None if result is None else to_json(result), took=task.took())
    return Ran(task, result, None)


async def awaited(call: Any) -> Any:
    return await call()
