"""A task that a worker has, and the exceptions for its handler."""

from __future__ import annotations

import contextvars
import json
import math
import time
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Dict, Optional, Union

from .producer import Statement, afetch, fetch, seconds, to_json

if TYPE_CHECKING:
    from .worker import Shard

current: contextvars.ContextVar["Task"] = contextvars.ContextVar("fairq task")


EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class Stopped(Exception):
    """The task was cancelled, or its lease is lost: stop working."""


class Dead(Exception):
    """The task has failed for good: no retry."""


class Retry(Exception):
    """The task is to be retried after a delay, or with the queue's backoff."""

    def __init__(self, delay: Union[timedelta, float, None] = None, error: Optional[str] = None):
        self.delay = None if delay is None else timedelta(seconds=seconds(delay))
        if error is None:
            error = "retry" if delay is None else f"retry in {seconds(delay):g} s"
        super().__init__(error)


class NoHandler(Exception):
    """The worker has no handler for the task."""


class TimedOut(Exception):
    """The handler has taken longer than its timeout."""


class Undecodable(Exception):
    """JSON that Python cannot read, or PostgreSQL cannot print."""


class Task:
    """One attempt of a task."""

    def __init__(self, shard: "Shard", id: int, attempt: int, group_key: str, queue: str,
                 priority: int, enqueued_at: Decimal, attempts_left: int, lapses: int,
                 payload: Optional[str], headers: Optional[str],
                 problem: Optional[Exception] = None):
        self.shard: "Shard" = shard
        self.id, self.attempt = id, attempt
        self.group_key, self.queue, self.priority = group_key, queue, priority
        # psycopg reads times in a single DateStyle only
        self.enqueued_at = EPOCH + timedelta(microseconds=int(enqueued_at * 1_000_000))
        self.attempts_left, self.lapses = attempts_left, lapses
        self.payload: Any = None
        self.headers: Any = {}
        self.unread = problem       # why there is no payload, or no headers
        try:
            self.headers = decode("headers", headers) or {}
            self.payload = decode("payload", payload)
        except Undecodable as error:
            self.unread = error
        self.stopped = False
        self.handed_back = False                # released, since the worker stops
        self.completed = False                  # in a transaction of its handler
        self.timeout: Optional[float] = None    # seconds
        self.timed_out = False
        self.stop_coroutine: Any = None         # cancels an asynchronous handler
        # start, end and time limit of the work, by the monotonic clock
        self.begun = self.ended = self.deadline = math.inf

    @property
    def name(self) -> Optional[str]:
        """The name of the handler; None: the task has none."""
        name = self.headers.get("task") if isinstance(self.headers, dict) else None
        return name if isinstance(name, str) else None

    def check(self) -> None:
        """Raises Stopped if the task was cancelled or its lease is lost, for long work."""
        if self.stopped:
            raise Stopped(f"task {self.id} was cancelled, or its lease is lost")

    def set_progress(self, progress: Any) -> None:
        """Sets the column progress of fairq.tasks; raises Stopped like check()."""
        if not self.call("set_progress", to_json(progress)):
            self.stopped = True
        self.check()

    async def aset_progress(self, progress: Any) -> None:
        """The same in an asynchronous handler."""
        import asyncio
        from concurrent.futures import ThreadPoolExecutor
        # not the loop's executor, since all its threads may wait for locked rows
        executor = ThreadPoolExecutor(1)
        try:
            await asyncio.get_running_loop().run_in_executor(executor, self.set_progress, progress)
        finally:
            executor.shutdown(wait=False)

    def complete(self, connection: Any, result: Any = None) -> None:
        """Completes the task in the handler's transaction, so that it is done exactly once.

        The connection is one that enqueue() takes.  Raises Stopped if the worker has lost
        the task: then roll back.
        """
        self.completes(fetch(connection, self.completion(result))[0])

    async def acomplete(self, connection: Any, result: Any = None) -> None:
        """The same on an asynchronous connection."""
        self.completes((await afetch(connection, self.completion(result)))[0])

    def completion(self, result: Any) -> Statement:
        self.check()
        took = time.monotonic() - self.begun
        return ("SELECT fairq.complete(%s::text::bigint, %s::text::int, %s::text::jsonb,"
                " make_interval(secs => %s::text::float8))",
                (str(self.id), str(self.attempt), None if result is None else to_json(result),
                 str(took)))

    def completes(self, mine: bool) -> None:
        if not mine:
            self.stopped = True
            self.check()
        self.completed = True

    def call(self, function: str, *args: Any, **named: Any) -> Any:
        """Calls a function of fairq for this attempt of the task."""
        marks = ", %s" * len(args) + "".join(f", {name} => %s" for name in named)
        [(value,)] = self.shard.keeper.query(
            f"SELECT fairq.{function}(%s, %s{marks})",
            self.id, self.attempt, *args, *named.values(), brief=True)
        return value

    def took(self) -> timedelta:        # for time-fair queues
        return timedelta(seconds=self.ended - self.begun)

    def release(self) -> None:
        """Releases the task, or ends it if it is cancelled."""
        self.call("release")

    def stop(self) -> None:
        """Asks the handler to stop."""
        self.stopped = True
        if self.stop_coroutine is not None:
            self.stop_coroutine()

    def __repr__(self) -> str:
        return f"<fairq task {self.id}, attempt {self.attempt}, of {self.queue!r}>"


def decode(what: str, text: Optional[str]) -> Any:
    try:
        return None if text is None else json.loads(text)
    except (ValueError, RecursionError, MemoryError) as error:
        raise Undecodable(f"the {what} cannot be decoded: {error}") from None


def current_task() -> Task:
    """The task whose handler calls this; LookupError outside of handlers."""
    return current.get()
