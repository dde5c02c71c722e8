"""A worker: takes tasks of queues, and runs their handlers.

A worker has two connections and two threads per database.  One pops and sleeps in
fairq.wait, the other renews leases.  Functions run in a pool with one thread per slot,
async handlers in an event loop.  Other threads complete tasks, since that may wait for
locks, and one watches time limits.  All of them wait for the condition "changed".

A queue may be spread over several databases, its shards.  Shard.take_slots() divides
the free slots among them.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import inspect
import logging
import math
import os
import random
import select
import signal
import socket
import sys
import threading
import time
from contextlib import contextmanager
from datetime import timedelta
from typing import (Any, Awaitable, Callable, Dict, Iterator, List, NoReturn, Optional, Sequence,
                    Set, Tuple, TypeVar, Union)

import psycopg

from .database import LOST, TOO_LARGE, WAIT, Database, WorkerError as WorkerError, explain
from .producer import Delay, seconds, to_json
from .task import Dead, NoHandler, Retry, Stopped, Task, TimedOut, Undecodable, current
from .threads import Threads

Handler = Callable[..., Any]
Entry = Tuple[Handler, Optional[float]]     # with its timeout
H = TypeVar("H", bound=Handler)

log = logging.getLogger("fairq")

# seconds for the server's answers after the grace
TO_ANSWER = 4

# seconds after which the other shards do not wait for a server
SILENCE = 1

# seconds in which a handler has to end after its timeout
TO_STOP = 1

# seconds for exit handlers, if handlers of tasks have been left behind
TO_EXIT = 10

# seconds until the main thread notices a signal that another thread received
TO_NOTICE = 0.5

# bounds of a statement's time limit, in seconds, without the time of fairq.wait
LIMIT_LEAST, LIMIT_MOST = 5, 10

# Payloads are read as text, so that each is decoded, and fails, by itself.
CLAIM = ("id, attempt, group_key, queue, priority, extract(epoch FROM enqueued_at),"
         " attempts_left, lapses")
TEXTS = "payload::text, headers::text"
POP = "fairq.pop(%s::text[], %s, lease => %s, worker => %s)"

# in this process: the previous handlers of the signals that a worker handles
before_us: Dict[int, Any] = {}


def leave_signals() -> None:
    """Restores the signal handlers in a forked process, which must not end the worker."""
    for number, handler in before_us.items():
        signal.signal(number, handler)
    before_us.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=leave_signals)


@contextmanager
def signals_to(wake: Callable[[], object], asked: bool) -> Iterator[None]:
    """Makes SIGTERM and SIGINT call wake(), if asked and in the main thread."""
    ours = {}
    if asked and threading.current_thread() is threading.main_thread():
        for number in signal.SIGTERM, signal.SIGINT:
            before_us[number] = signal.getsignal(number)
            ours[number] = lambda *_: wake()
            signal.signal(number, ours[number])
    try:
        yield
    finally:
        for number, handler in ours.items():
            before = before_us.pop(number, None)
            # unless the program has set another handler since
            if signal.getsignal(number) is handler and before is not None:
                signal.signal(number, before)


class Shard:
    """A database with the queues, or with some of their groups."""

    def __init__(self, worker: "Worker", uri: str):
        self.worker = worker
        self.popper = Database(uri, worker.name, worker.stopping, WAIT + LIMIT_MOST, worker.give_up)
        # It works until the end, to complete tasks.  Its time limit is short enough for a
        # new connection to renew the leases in time.
        limit = max(LIMIT_LEAST, min(LIMIT_MOST, worker.lease.total_seconds() / 4))
        self.keeper: Database = Database(uri, worker.name, worker.ended, limit)
        self.groups = 1             # number of active groups
        self.counted = -math.inf    # time of that count, by the monotonic clock
        self.service = 0.0          # tasks taken, per group
        self.slots = 0              # slots of the current pop
        self.taking = -math.inf     # last time with tasks and free slots

    def tasks(self) -> List[Task]:
        return [task for task in self.worker.running if task.shard is self]

    def others(self) -> List["Shard"]:
        return [shard for shard in self.worker.shards if shard is not self]

    def answers(self) -> bool:
        """Whether it has tasks, and has answered within a second."""
        return self.taking > time.monotonic() - SILENCE

    def is_stuck(self, late: float) -> bool:
        """Whether the server does not accept the ends of tasks.

        A shard that answers may have tasks whose rows are locked.
        """
        untold = sum(task.ended <= late for task in self.tasks())
        return untold >= (self.worker.concurrency if self.keeper.answered > late else 1)

    def count_groups(self) -> None:
        worker = self.worker
        if len(worker.shards) > 1 and time.monotonic() - self.counted > 1:
            [(groups,)] = self.popper.query(
                "SELECT sum(groups_active)::bigint FROM fairq.stats WHERE queue = ANY (%s)",
                worker.queues)
            groups = groups or 1
            with worker.changed:
                # its lead is a number of tasks, now divided by another number of groups
                least = min((s.service for s in worker.shards if s.answers()),
                            default=self.service)
                self.service = least + (self.service - least) * self.groups / groups
                self.groups = groups
            self.counted = time.monotonic()

    def take_slots(self) -> int:
        """The number of free slots for this shard; waits for one.

        A free slot goes to the shard with tasks that has had the fewest tasks per group.
        So groups of all shards get the same.  The others do not wait for a shard that
        does not answer within a second.  A stuck shard gets no more slots.
        """
        worker = self.worker
        with worker.changed:
            while not worker.stopping.is_set():
                late = time.monotonic() - SILENCE
                if worker.alone is None and not self.is_stuck(late):
                    others = [s.service for s in self.others() if s.answers()]
                    if others and not self.answers():
                        # it saves up no service; and workers must not all choose it at once
                        self.service = max(self.service,
                                           min(others) + random.random() / self.groups)
                    self.taking = time.monotonic()
                    free = worker.free_slots(late)
                    while self.slots < free and self.is_next():
                        self.count(1)
                    if self.slots > 0:
                        break
                worker.changed.wait(0.5)
            return self.slots

    def is_next(self) -> bool:
        return all(self.service <= s.service for s in self.worker.shards if s.answers())

    def count(self, slots: int) -> None:
        self.slots += slots
        self.service += slots / self.groups

    def got(self, tasks: Sequence[Task]) -> None:
        """Adds the tasks of a pop; the other slots are free again."""
        with self.worker.changed:
            self.count(len(tasks) - self.slots)
            self.slots = 0
            if not tasks:
                self.taking = -math.inf
            self.worker.running.update(tasks)
            self.worker.changed.notify_all()


class Worker:
    """Runs the tasks of queues, strictly in the given order of queues.

    concurrency     number of tasks at a time
    lease           seconds after which another worker may run the tasks of a worker that
                    died; the worker renews its leases every third of that
    grace           seconds that running tasks have to end when the worker stops
    timeout         seconds that a task may take; a handler may have its own
    poll            seconds between two looks for tasks.
                    None: sleep in fairq.wait; through a pooler, 1.
                    0: sleep in fairq.wait, also through a pooler
    databases       a connection string, or one for each shard; '': PGHOST and so on
    name            the worker's name in fairq.tasks
    give_up         seconds after which the worker ends if the server refuses its
                    connections; None: it waits
    """

    def __init__(self, queues: Union[str, Sequence[str]], *, concurrency: int = 4,
                 lease: Delay = 60, grace: Delay = 5, timeout: Optional[Delay] = None,
                 poll: Optional[Delay] = None, databases: Union[str, Sequence[str]] = "",
                 name: Optional[str] = None, give_up: Optional[Delay] = 60):
        self.queues = [queues] if isinstance(queues, str) else list(queues)
        if not self.queues:
            raise ValueError("a worker needs a queue")
        if concurrency < 1:
            raise ValueError(f"concurrency must be at least 1, and not {concurrency}")
        self.concurrency = concurrency
        self.lease = timedelta(seconds=seconds(lease))
        self.grace = seconds(grace)
        self.timeout = None if timeout is None else seconds(timeout)
        self.give_up = None if give_up is None else seconds(give_up)
        self.poll = None if poll is None else seconds(poll)
        self.databases = [databases] if isinstance(databases, str) else list(databases)
        self.name = name or f"{socket.gethostname()}:{os.getpid()}"
        self.tasks: Dict[str, Entry] = {}
        self.handlers: Dict[Optional[str], Entry] = {}      # of a queue; None: of all others

        self.stopping = threading.Event()
        self.changed = threading.Condition()            # protects all below, and shards
        self.running: Set[Task] = set()
        self.working: Set[Task] = set()     # whose handlers have begun, and not ended
        self.left: Set[Task] = set()        # of working, those that failed by their timeouts
        self.alone: Optional[Task] = None   # runs, or is to run, without other tasks
        self.shards: List[Shard] = []
        self.room = threading.Semaphore(concurrency)    # for the work of running tasks
        self.problem: Optional[BaseException] = None    # why the worker ends
        self.loop: Optional[asyncio.AbstractEventLoop] = None
        self.popping: List[threading.Thread] = []
        self.wake: Callable[[], object] = lambda: None    # wakes run() or serve()
        self.told_of_pooler = False
        self.workers = Threads("fairq handler", concurrency)
        self.helpers = Threads("fairq helper")
        self.coroutines: Set["asyncio.Task[None]"] = set()
        self.ended = threading.Event()

    # ---- handlers

    def task(self, name: str, *, timeout: Optional[Delay] = None) -> Callable[[H], H]:
        """Decorates the handler of tasks with that name."""
        def register(handler: H) -> H:
            if name in self.tasks:
                raise ValueError(f"task {name!r} has a handler already")
            self.tasks[name] = handler, self.timeout if timeout is None else seconds(timeout)
            return handler
        return register

    def handler(self, queue: Optional[str] = None, *,
                timeout: Optional[Delay] = None) -> Callable[[H], H]:
        """Decorates the handler of all other tasks of the queue, or of all queues.

        The worker calls it with the Task, whose payload may be anything.
        """
        def register(handler: H) -> H:
            if queue in self.handlers:
                raise ValueError("the queue has a handler already")
            self.handlers[queue] = handler, self.timeout if timeout is None else seconds(timeout)
            return handler
        return register

    def find_work(self, task: Task) -> Tuple[Handler, Callable[[], Any]]:
        """The handler of the task, and the call of it."""
        if task.unread is not None:
            raise task.unread
        entry = self.tasks.get(task.name) if task.name is not None else None
        if entry is not None:
            payload, (found, task.timeout) = task.payload, entry
            if isinstance(payload, dict):
                return found, lambda: found(**payload)
            if isinstance(payload, list):
                return found, lambda: found(*payload)
            raise TypeError(f"the payload of task {task.name} must be an object or an array")
        entry = self.handlers.get(task.queue) or self.handlers.get(None)
        if entry is None:
            if task.name is None:
                raise NoHandler(f"no handler for tasks of queue {task.queue}")
            raise NoHandler(f"no handler for task {task.name}")
        handler, task.timeout = entry
        return handler, lambda: handler(task)

    # ---- taking tasks

    def free_slots(self, late: float) -> int:
        # slots of a shard that has not answered since "late" are free for others
        popping = sum(shard.slots for shard in self.shards if shard.answers())
        return (self.concurrency - len(self.left) - popping
                - sum(task.ended > late for task in self.running))

    def pop_tasks(self, shard: Shard) -> None:
        try:
            while not self.stopping.is_set():
                self.pop_once(shard)
        except BaseException as error:
            self.end_by(error)
        finally:
            self.wake()

    def pop_once(self, shard: Shard) -> None:
        tasks: List[Task] = []
        try:
            shard.count_groups()
            if shard.take_slots() == 0:
                return
            tasks = self.pop(shard)
        except psycopg.errors.QueryCanceled:
            pass        # by end_shard(), or a statement_timeout
        except LOST:
            shard.got([])
            shard.counted = -math.inf   # count_groups() reconnects, without slots
            self.stopping.wait(1)
            return
        shard.got(tasks)
        for task in self.admit(tasks):
            self.begin(task)
        if not tasks:
            self.sleep(shard)

    def pop(self, shard: Shard) -> List[Task]:
        args = self.queues, shard.slots, self.lease, self.name
        try:
            return [Task(shard, *row) for row in shard.popper.query(
                f"SELECT {CLAIM}, {TEXTS} FROM {POP}", *args, once=True)]
        except TOO_LARGE:
            # A few kB of jsonb may be a GB of text, for example numbers like 1e100000.
            return [Task(shard, *row, *self.read(shard, row[0])) for row in shard.popper.query(
                f"SELECT {CLAIM} FROM {POP}", *args, once=True)]

    def read(self, shard: Shard, id: int) -> Tuple[Any, ...]:
        try:
            rows = shard.popper.query(f"SELECT {TEXTS} FROM fairq.tasks WHERE id = %s", id)
        except TOO_LARGE as error:
            return None, None, Undecodable(f"payload or headers cannot be read: {explain(error)}")
        return rows[0] if rows else (None, None, Stopped("the task does not exist any more"))

    def admit(self, tasks: Sequence[Task]) -> List[Task]:
        """Returns the tasks to begin, and releases the others.

        A task whose lease has expired may have killed its process.  It runs without other
        tasks, which would lose their leases with it.  One such task runs at a time.
        """
        with self.changed:
            admitted = [task for task in tasks if not task.lapses and self.alone is None]
            lapsed = [task for task in tasks if task.lapses]
            if lapsed and self.alone is None:
                self.alone = lapsed[0]
                admitted.append(self.alone)
            back = [task for task in tasks if task not in admitted]
            for task in back:
                task.begun = task.ended = time.monotonic()
        for task in back:
            self.helpers.run(self.finish, task, "release", (), {})
        return admitted

    def sleep(self, shard: Shard) -> None:
        poll = self.poll
        if poll is None and shard.popper.pooled:
            poll = 1
            if not self.told_of_pooler:
                self.told_of_pooler = True
                log.warning("the connection goes through a pooler, so the worker looks for tasks"
                            " every second; poll sets another interval, and poll=0 waits")
        if poll:
            self.stopping.wait(poll)
            return
        try:
            shard.popper.query("CALL fairq.wait(%s::text[], %s)", self.queues,
                               timedelta(seconds=WAIT), once=True)
        except LOST:
            pass    # cancelled, or lost at the end

    # ---- running tasks

    def begin(self, task: Task) -> None:
        if task is self.alone:
            self.helpers.run(self.begin_alone, task)
        else:
            self.begin_now(task)

    def begin_alone(self, task: Task) -> None:
        with self.changed:
            # after SILENCE, do not wait for tasks whose end the server does not accept
            while not self.stopping.is_set() and any(
                    other.ended > time.monotonic() - SILENCE
                    for other in self.running if other is not task):
                self.changed.wait(0.5)
        self.begin_now(task)

    def begin_now(self, task: Task) -> None:
        try:
            handler, call = self.find_work(task)
        except Exception as error:
            task.begun = task.ended = time.monotonic()
            self.helpers.run(self.finish, task, *self.outcome(task, error))
            return
        if not is_async(handler):
            self.workers.run(self.work, task, call)
        elif self.room.acquire(blocking=False):
            self.begin_async(task, call)
        else:               # a shard has answered late
            def wait() -> None:
                self.room.acquire()
                self.begin_async(task, call)
            self.helpers.run(wait)

    def work(self, task: Task, call: Callable[[], Any]) -> None:
        result: Any = None
        error: Optional[BaseException] = None
        token = current.set(task)
        with self.room:
            close_old_connections()
            try:
                self.may_begin(task)
                result = call()
            except BaseException as raised:
                error = raised
            self.has_ended(task, error, result)
            close_old_connections()
        current.reset(token)

    def may_begin(self, task: Task) -> None:
        task.begun = time.monotonic()
        if self.stopping.is_set():
            raise Stopped
        task.check()
        with self.changed:
            self.working.add(task)
            if task.timeout is not None:
                task.deadline = task.begun + task.timeout

    def has_ended(self, task: Task, error: Optional[BaseException], result: Any) -> None:
        """Records the end of the work, and finishes the task unless leave() has."""
        with self.changed:
            self.working.discard(task)
            if task in self.left:
                self.left.discard(task)
                log.warning("the handler of task %s, attempt %s, which was timed out, has ended",
                            task.id, task.attempt)
                self.changed.notify_all()
                return
            task.ended = time.monotonic()
        self.helpers.run(self.finish, task, *self.outcome(task, error, result))

    def begin_async(self, task: Task, call: Callable[[], Awaitable[Any]]) -> None:
        loop = self.event_loop()

        def create() -> None:
            coroutine = loop.create_task(self.work_async(task, call))
            self.coroutines.add(coroutine)
            coroutine.add_done_callback(done)

        def done(coroutine: "asyncio.Task[None]") -> None:
            self.coroutines.discard(coroutine)
            self.room.release()
        loop.call_soon_threadsafe(create)

    async def work_async(self, task: Task, call: Callable[[], Awaitable[Any]]) -> None:
        loop = asyncio.get_running_loop()
        me = asyncio.current_task()
        assert me is not None
        task.stop_coroutine = lambda: loop.call_soon_threadsafe(me.cancel)
        current.set(task)       # in a context of its own
        result: Any = None
        error: Optional[BaseException] = None
        try:
            self.may_begin(task)
            result = await call()
        except asyncio.CancelledError as raised:
            error = Stopped() if task.stopped else raised
        except BaseException as raised:
            error = raised
        task.stop_coroutine = None
        self.has_ended(task, error, result)
        self.close_async(loop)

    def close_async(self, loop: asyncio.AbstractEventLoop) -> None:
        """close_old_connections() in Django's thread for coroutines."""
        asgiref = sys.modules.get("asgiref.sync")
        if asgiref is not None and "django.db" in sys.modules:
            closing = loop.create_task(asgiref.sync_to_async(close_old_connections)())
            self.coroutines.add(closing)
            closing.add_done_callback(self.coroutines.discard)

    def event_loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of serve(), or one in a thread."""
        with self.changed:
            if self.loop is None:
                self.loop = asyncio.new_event_loop()
                self.helpers.run(self.loop.run_forever)
            return self.loop

    def outcome(self, task: Task, error: Optional[BaseException],
                result: Any = None) -> Tuple[str, Tuple[Any, ...], Dict[str, Any]]:
        """The function that finishes the task, and its arguments."""
        if error is None:
            try:
                return "complete", (None if result is None else to_json(result),), {}
            except Exception as raised:     # also what its objects raise, and RecursionError
                error = raised
        if task.timed_out:
            error = timed_out(task, error)
        elif isinstance(error, Stopped) and task.stopped and not self.stopping.is_set():
            # The attempt counts, since the queue's max_run_time may be over.  This call also
            # ends a cancelled task, and has no effect if another worker has the task.
            return "fail", ("stopped: it was cancelled, its lease was lost, or it has run for"
                            " longer than its queue allows",), {}
        elif isinstance(error, Stopped):
            return "release", (), {}
        text = text_of(error)
        if isinstance(error, Retry):
            log.info("task %s, attempt %s: %s", task.id, task.attempt, text)
            return "fail", (text,), {"retry_in": error.delay}
        if isinstance(error, (Dead, NoHandler, TimedOut, Undecodable)):
            log.error("task %s, attempt %s: %s", task.id, task.attempt, text)
        else:
            log.error("task %s, attempt %s", task.id, task.attempt, exc_info=error)
        return "fail", (text,), {"dead": isinstance(error, Dead)}

    def finish(self, task: Task, function: str, args: Tuple[Any, ...],
               named: Dict[str, Any]) -> None:
        if function != "release":
            named["took"] = task.took()
        losses = task.shard.keeper.losses
        try:
            if not task.handed_back and not (task.completed and function == "complete"):
                mine = task.call(function, *args, **named)
                if not mine and function == "complete":
                    self.warn_of_refusal(task, losses)
        except psycopg.Error as error:
            if isinstance(error, LOST) and not isinstance(error, TOO_LARGE):
                log.error("task %s, attempt %s, could not be finished; its lease will expire: %s",
                          task.id, task.attempt, error)
                return
            # a result that PostgreSQL cannot keep
            log.error("task %s, attempt %s: %s", task.id, task.attempt, error)
            task.call("fail", text_of(error), took=task.took())
        finally:
            with self.changed:
                self.running.discard(task)
                if self.alone is task:
                    self.alone = None
                self.changed.notify_all()

    def warn_of_refusal(self, task: Task, losses: int) -> None:
        if task.shard.keeper.losses != losses:
            log.info("task %s, attempt %s: the server's answer was lost; most likely it has"
                     " completed the task", task.id, task.attempt)
            return
        log.warning("the server refuses to complete task %s, attempt %s, of queue %s and group %s:"
                    " it was cancelled, or its lease was lost",
                    task.id, task.attempt, task.queue, task.group_key)

    def heartbeat(self, shard: Shard) -> None:
        while not self.ended.wait(self.lease.total_seconds() / 3):
            with self.changed:
                held = sorted((task for task in shard.tasks() if not task.completed),
                              key=lambda task: task.attempt)
            tasks = {task.id: task for task in held}
            for task in held:
                if tasks[task.id] is not task:      # this worker has a later attempt
                    task.stop()
            if not tasks:
                continue
            try:
                [(lost,)] = shard.keeper.query(
                    "SELECT fairq.extend_batch(%s::bigint[], %s::int[], %s)", list(tasks),
                    [task.attempt for task in tasks.values()], self.lease)
            except psycopg.Error as error:
                log.error("heartbeat: %s", error)
            else:
                for id in lost:
                    tasks[id].stop()

    # ---- time limits

    def watch(self) -> None:
        """Ends connections without an answer, and tasks past their timeouts."""
        limited = any(timeout is not None for _, timeout in
                      [*self.tasks.values(), *self.handlers.values()])
        while not self.ended.wait(0.2 if limited else 1):
            for shard in self.shards:
                shard.popper.check()
                shard.keeper.check()
            now = time.monotonic()
            with self.changed:
                late = [task for task in self.working - self.left if task.deadline <= now]
            for task in late:
                if task.timed_out:
                    self.leave(task)
                else:
                    task.timed_out = True
                    task.deadline = now + TO_STOP
                    task.stop()

    def leave(self, task: Task) -> None:
        """Fails a task whose handler does not end after its timeout."""
        with self.changed:
            if task not in self.working:
                return          # the handler has just ended
            self.left.add(task)
            task.ended = time.monotonic()
            slots = self.concurrency - len(self.left)
        self.helpers.run(self.finish, task, *self.outcome(task, Stopped()))
        log.error("the handler of task %s, attempt %s, of queue %s does not end after its timeout;"
                  " until then %s of %s slots are left", task.id, task.attempt,
                  task.queue, slots, self.concurrency)
        if slots == 0:
            self.end_by(WorkerError("all slots are taken by handlers that do not end after"
                                    " their timeouts"))

    def end_by(self, error: BaseException) -> None:
        self.problem = self.problem or error
        self.wake()

    # ---- from start to end

    def start(self) -> None:
        if self.shards:
            raise RuntimeError("a worker can be started only once")
        self.shards = [Shard(self, uri) for uri in self.databases]
        self.popping = [threading.Thread(target=self.pop_tasks, args=(shard,), daemon=True)
                        for shard in self.shards]
        for thread in self.popping:
            thread.start()
        for shard in self.shards:
            self.helpers.run(self.heartbeat, shard)
        self.helpers.run(self.watch)

    def end_shard(self, shard: Shard, popping: threading.Thread) -> None:
        """Waits for its tasks to end, and releases the others."""
        mute = time.monotonic() + TO_ANSWER / 2
        while popping.is_alive():
            if time.monotonic() < mute:
                # most likely it is in fairq.wait; to cancel may take some time
                self.helpers.run(shard.popper.cancel)
            else:
                shard.popper.cut()
            popping.join(0.1)
        with self.changed:
            self.changed.wait_for(lambda: not shard.tasks(), self.grace)
            left = [task for task in shard.tasks() if task.ended == math.inf]
        # concurrently, since the row of one may be locked
        releasing = [threading.Thread(target=self.hand_back, args=(task,), daemon=True)
                     for task in left]
        for thread in releasing:
            thread.start()
        for thread in releasing:
            thread.join()
        with self.changed:      # the server may not have answered yet
            self.changed.wait_for(lambda: all(task.handed_back for task in shard.tasks()),
                                  TO_ANSWER)
        shard.popper.close()
        shard.keeper.close()

    def hand_back(self, task: Task) -> None:
        task.handed_back = True
        try:
            task.release()
        except psycopg.Error as error:
            log.error("release: %s", error)
        task.stop()

    def end(self) -> None:
        with self.changed:
            self.stopping.set()
            self.changed.notify_all()
        limit = time.monotonic() + self.grace + TO_ANSWER       # a shard may not answer
        ending = [threading.Thread(target=self.end_shard, args=args, daemon=True)
                  for args in zip(self.shards, self.popping)]
        for thread in ending:
            thread.start()
        for thread in ending:
            thread.join(max(0, limit - time.monotonic()))
        self.ended.set()

    async def end_coroutines(self) -> None:
        """Waits for the end of handlers that were cancelled."""
        if self.coroutines:
            await asyncio.wait(self.coroutines, timeout=1)

    def stop(self) -> None:
        """Ends run() or serve().  For any thread."""
        self.stopping.set()
        self.wake()

    def raise_problem(self) -> None:
        if self.problem is not None:
            raise WorkerError(explain(self.problem)) from self.problem

    def run(self, *, signals: bool = False) -> None:
        """Works until stop().  With signals, in the main thread, also until SIGTERM or SIGINT.

        Raises WorkerError if it cannot work.
        """
        reading, writing = socket.socketpair()
        writing.setblocking(False)

        def wake() -> None:
            try:
                writing.send(b"\0")
            except OSError:
                pass            # it is awake, or has ended
        self.wake = wake
        try:
            with signals_to(wake, signals):
                self.start()
                # If this is the main thread, it handles signals, also those that another
                # thread receives, which do not interrupt a call of this one.
                while not select.select([reading], [], [], TO_NOTICE)[0]:
                    pass
                self.end()
                if self.loop is not None:
                    try:
                        asyncio.run_coroutine_threadsafe(self.end_coroutines(), self.loop).result(2)
                    except concurrent.futures.TimeoutError:
                        pass        # one of them blocks the loop
                    self.loop.call_soon_threadsafe(self.loop.stop)
        finally:
            reading.close()
            writing.close()
        self.raise_problem()

    async def serve(self, *, signals: bool = False) -> None:
        """The same in a running event loop, which also runs async handlers."""
        loop = self.loop = asyncio.get_running_loop()
        awake = asyncio.Event()
        self.wake = lambda: loop.call_soon_threadsafe(awake.set)
        with signals_to(self.wake, signals):
            try:
                self.start()
                waiting = loop.create_task(awake.wait())
                while not waiting.done():       # see run()
                    await asyncio.wait([waiting], timeout=TO_NOTICE)
            finally:
                # also if this is cancelled; with an executor that handlers do not use
                executor = concurrent.futures.ThreadPoolExecutor(1)
                await asyncio.shield(loop.run_in_executor(executor, self.end))
                executor.shutdown(wait=False)
                await self.end_coroutines()
        self.raise_problem()

    def main(self) -> NoReturn:
        """run() with signals.  Ends the program with status 0, or 1 and a line on stderr."""
        status = 0
        try:
            self.run(signals=True)
        except WorkerError as error:
            print(f"worker: {error}", file=sys.stderr)
            status = 1
        if self.working:
            exit_besides(status)
        sys.exit(status)


def exit_besides(status: int) -> NoReturn:
    """Runs exit handlers and ends the program, although handlers still run.

    The normal end of Python would wait for threads that the handlers have started, and
    fails if one of them writes meanwhile.
    """
    limit = threading.Timer(TO_EXIT, os._exit, (status,))
    limit.daemon = True
    limit.start()
    for name in "thread", "process":        # before Python 3.9 these wait for threads, too
        waits = getattr(sys.modules.get(f"concurrent.futures.{name}"), "_python_exit", None)
        if waits is not None:
            atexit.unregister(waits)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def close_old_connections() -> None:
    """Does what Django does around each request: connections belong to a thread."""
    conf, db = sys.modules.get("django.conf"), sys.modules.get("django.db")
    if conf is None or db is None or not conf.settings.configured:
        return
    try:
        db.close_old_connections()
    except Exception:
        log.exception("close_old_connections()")


def is_async(handler: Handler) -> bool:
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(handler, "__call__", None))


def timed_out(task: Task, error: BaseException) -> TimedOut:
    text = f"timed out after {task.timeout:g} s"
    new = TimedOut(text)
    if not isinstance(error, (Stopped, asyncio.CancelledError)):
        new.__cause__ = error
    return new


def text_of(error: BaseException) -> str:
    """The texts of the error and its causes, without zero bytes."""
    texts: List[str] = []
    seen: Set[int] = set()
    what = ""
    cause: Optional[BaseException] = error
    while cause is not None and id(cause) not in seen and len(seen) < 10:
        seen.add(id(cause))
        texts.append(what + own_text(cause))
        for part in getattr(cause, "exceptions", ()):       # of an ExceptionGroup
            if isinstance(part, BaseException) and id(part) not in seen and len(seen) < 10:
                seen.add(id(part))
                texts.append("with " + own_text(part))
        what = "caused by "
        if cause.__cause__ is None and not cause.__suppress_context__:
            what, cause = "while handling ", cause.__context__
        else:
            cause = cause.__cause__
    return ", ".join(texts).encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def own_text(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception as raised:
        text = f"(its text could not be made: {type(raised).__name__})"
    if isinstance(error, (Dead, NoHandler, Retry, TimedOut, Undecodable)):
        return text
    return f"{type(error).__name__}: {text}"
