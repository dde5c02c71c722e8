"""An attempt to run a task, and the exceptions for its handler."""

from __future__ import annotations

import contextvars
import json
import logging
import math
import threading
import time
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Awaitable, Callable, Dict, Optional, Union

from .producer import Statement, afetch, fetch, seconds, to_json

if TYPE_CHECKING:
    from .worker import Shard

current: contextvars.ContextVar["Task"] = contextvars.ContextVar("fairq task")


log = logging.getLogger("fairq")

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class Stopped(Exception):
    """The task was cancelled, or its lease is lost, so the handler should
    stop."""


class Dead(Exception):
    """The task fails for good."""


class Retry(Exception):
    """The worker retries the task after a delay, or with the queue's
    backoff."""

    def __init__(self, delay: Union[timedelta, float, None] = None, error: Optional[str] = None):
        self.delay = None if delay is None else timedelta(seconds=seconds(delay))
        if error is None:
            error = "retry" if delay is None else f"retry in {seconds(delay):g} s"
        super().__init__(error)

    def __reduce__(self) -> Any:
        return type(self), (self.delay, str(self))


class Crashed(Exception):
    """The process that ran the handler has ended."""


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
                 batch: Optional[int], payload: Optional[str], headers: Optional[str], progress: Optional[str],
                 problem: Optional[Exception] = None):
        self.shard: "Shard" = shard
        self.id, self.attempt = id, attempt
        self.group_key, self.queue, self.priority = group_key, queue, priority
        # psycopg reads times in only one DateStyle
        self.enqueued_at = EPOCH + timedelta(microseconds=int(enqueued_at * 1_000_000))
        self.attempts_left, self.lapses, self.batch = attempts_left, lapses, batch
        self.payload: Any = None
        self.headers: Any = {}
        self.plain: Any = None      # the progress without steps and cursor
        self.steps: Dict[str, Any] = {}         # the results of steps
        self.cursor: Any = None     # the last value of checkpoint() in this or an earlier attempt
        self.unread = problem       # why there is no payload, or no headers
        try:
            self.headers = decode("headers", headers) or {}
            self.payload = decode("payload", payload)
            self.read_progress(decode("progress", progress))
        except Undecodable as error:
            self.unread = error
        self.begins = False         # the handler has been called
        self.stopped = False
        self.handed_back = False                # released, because the worker stops
        self.completed = False                  # in a transaction of its handler
        self.timeout: Optional[float] = None    # seconds
        self.timed_out = False
        # asks the handler to stop; None: the handler has to call check()
        self.stop_handler: Any = None
        self.end_process: Any = None    # ends the handler's process
        self.saving = threading.Lock()
        self.saved_at = -math.inf
        self.saved_cursor = self.cursor
        # start, end and time limit of the work, by the monotonic clock
        self.begun = self.ended = self.deadline = math.inf

    @property
    def name(self) -> Optional[str]:
        """The name of the handler; None: the task has none."""
        name = self.headers.get("task") if isinstance(self.headers, dict) else None
        return name if isinstance(name, str) else None

    def check(self) -> None:
        """Raises Stopped if the task was cancelled or its lease is lost.  Call it
        during long work."""
        if self.stopped:
            raise Stopped(f"task {self.id} was cancelled, or its lease is lost")

    @property
    def progress(self) -> Any:
        """The progress that this or an earlier attempt set last.

        If there are steps or a cursor, it is a dict whose item "fairq" contains
        them.
        """
        return self.whole(self.plain, self.steps)

    def set_progress(self, progress: Any) -> None:
        """Sets the progress, for fairq.tasks and later attempts; raises Stopped like check().

        Keeps the steps and the cursor.
        """
        with self.saving:
            self.save(json.loads(to_json(progress)), self.steps)

    async def aset_progress(self, progress: Any) -> None:
        """Like set_progress(), in an asynchronous handler."""
        await in_thread(self.set_progress, progress)

    def step(self, name: str, function: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """Calls the function and saves its result as JSON.

        Returns the result as decoded from that JSON.  If an earlier attempt has
        saved a result of that name, returns that result without a call of the
        function.  Raises Stopped like check().
        """
        if name not in self.steps:
            self.check()
            items(self.plain)
            self.save_step(name, function(*args, **named))
        return self.steps[name]

    async def astep(self, name: str, function: Callable[..., Awaitable[Any]], *args: Any,
                    **named: Any) -> Any:
        """Like step(), in an asynchronous handler, for an asynchronous function."""
        if name not in self.steps:
            self.check()
            items(self.plain)
            await in_thread(self.save_step, name, await function(*args, **named))
        return self.steps[name]

    def checkpoint(self, cursor: Any) -> None:
        """Records how far the work has got, as the cursor for a later attempt.
        Call it often.

        Saves the cursor once per heartbeat.  If the attempt fails or is released, the
        worker saves the last cursor.  Raises Stopped like check().
        """
        if self.is_due(cursor):
            self.save_cursor()

    async def acheckpoint(self, cursor: Any) -> None:
        """Like checkpoint(), in an asynchronous handler."""
        if self.is_due(cursor):
            await in_thread(self.save_cursor)

    def is_due(self, cursor: Any) -> bool:
        self.check()
        items(self.plain)
        self.cursor = json.loads(to_json(cursor))
        return time.monotonic() - self.saved_at >= self.shard.worker.lease.total_seconds() / 3

    def save_cursor(self) -> None:
        with self.saving:
            if self.cursor is not self.saved_cursor:
                self.save(self.plain, self.steps)

    def save_step(self, name: str, result: Any) -> None:
        with self.saving:
            self.save(self.plain, {**self.steps, name: json.loads(to_json(result))})

    def save(self, plain: Any, steps: Dict[str, Any]) -> None:
        cursor = self.cursor
        if not self.call("set_progress", to_json(self.whole(plain, steps))):
            self.stopped = True
        self.check()
        self.plain, self.steps, self.saved_cursor = plain, steps, cursor
        self.saved_at = time.monotonic()

    def whole(self, plain: Any, steps: Dict[str, Any]) -> Any:
        ours = {"steps": steps, "cursor": self.cursor}
        ours = {key: value for key, value in ours.items() if value not in (None, {})}
        return {**items(plain), "fairq": ours} if ours else plain

    def read_progress(self, progress: Any) -> None:
        self.plain = progress
        ours = progress.get("fairq") if isinstance(progress, dict) else None
        if isinstance(ours, dict):
            self.plain = {key: value for key, value in progress.items() if key != "fairq"} or None
            self.steps, self.cursor = ours.get("steps") or {}, ours.get("cursor")

    def complete(self, connection: Any, result: Any = None) -> None:
        """Completes the task in the handler's transaction, so that its work is
        done exactly once.

        The connection is one that enqueue() takes.  Raises Stopped if the worker has lost
        the task: then roll back.
        """
        self.completes(fetch(connection, self.completion(result))[0])

    async def acomplete(self, connection: Any, result: Any = None) -> None:
        """Like complete(), on an asynchronous connection."""
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
        self.save_rest()
        self.call("release")

    def save_rest(self) -> None:
        """Saves the cursor before the attempt is released or fails."""
        try:
            self.save_cursor()
        except Stopped:
            pass
        except Exception as error:
            log.warning("task %s, attempt %s: its cursor could not be saved: %s", self.id,
                        self.attempt, error)

    def stop(self) -> None:
        """Asks the handler to stop."""
        self.stopped = True
        handler = self.stop_handler     # another thread may remove it
        if handler is not None:
            handler()

    def __repr__(self) -> str:
        return f"<fairq task {self.id}, attempt {self.attempt}, of {self.queue!r}>"


def items(plain: Any) -> Dict[str, Any]:
    if plain is not None and not isinstance(plain, dict):
        raise TypeError("the progress of a task with steps or a cursor must be a dict")
    return plain or {}


async def in_thread(function: Callable[..., None], *args: Any) -> None:
    import asyncio
    from concurrent.futures import ThreadPoolExecutor
    # does not use the loop's executor, since all its threads may wait for
    # locked rows
    executor = ThreadPoolExecutor(1)
    try:
        await asyncio.get_running_loop().run_in_executor(executor, function, *args)
    finally:
        executor.shutdown(wait=False)


def decode(what: str, text: Optional[str]) -> Any:
    try:
        return None if text is None else json.loads(text)
    except (ValueError, RecursionError, MemoryError) as error:
        raise Undecodable(f"the {what} cannot be decoded: {error}") from None


def current_task() -> Task:
    """The task whose handler calls this function; raises LookupError outside of
    handlers."""
    return current.get()
