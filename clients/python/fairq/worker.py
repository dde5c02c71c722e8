"""A worker, which takes tasks from queues and runs their handlers.

A worker has two connections and three threads per database.  One thread pops and sleeps in
fairq.wait, one renews leases, and one shows the worker in fairq.workers.  Functions run in
a pool that has one thread or one process per slot.  Async handlers run in an event loop.
Other threads complete tasks, since that may wait for locks, and one thread watches time
limits.  All threads wait for the condition "changed".

A queue may be spread over several databases, its shards.  Shard.take_slots() divides
the free slots among them.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import functools
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
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta, tzinfo
from typing import (TYPE_CHECKING, Any, AsyncIterator, Awaitable, Callable, Dict, Iterator, List, NoReturn, Optional, Sequence,
                    Set, Tuple, TypeVar, Union)

import psycopg

from . import __version__, schedule
from .database import HELD, LOST, PASSING, TOO_LARGE, UNPRINTABLE, WAIT, Database, WorkerError as WorkerError, explain
from .ends import STOPPED, End, failure, log_end
from .handler import Handler, arguments_of, close_old_connections, is_async
from .processes import Processes, place_of
from .producer import Delay, Group, seconds, to_json
from .registry import Registration
from .task import Crashed, NoHandler, Stopped, Task, TimedOut, Undecodable, current
from .threads import Threads

if TYPE_CHECKING:
    from typing_extensions import ParamSpec
    P = ParamSpec("P")

R = TypeVar("R")
Function = Callable[..., Any]
Entry = Tuple[Function, Optional[float]]        # a function with its timeout
F = TypeVar("F", bound=Function)
H = TypeVar("H", bound="Handler[..., Any]")

log = logging.getLogger("fairq")

# seconds for the server's answers after the grace period
TO_ANSWER = 4

# seconds after which the other shards stop waiting for a shard
SILENCE = 1

# seconds for which a task that must run alone waits, at most, until the server has
# recorded the ends of other tasks
ALONE = 10

# seconds that a handler has to end after its timeout
TO_STOP = 1

# seconds for exit handlers, if handlers of tasks still run
TO_EXIT = 10

# seconds until the main thread notices a signal that another thread received
TO_NOTICE = 0.5

# bounds of a statement's time limit, in seconds, without the time of fairq.wait
LIMIT_LEAST, LIMIT_MOST = 5, 10

# The worker reads payloads as text and decodes each separately, so that a bad one fails only
# its own task.
CLAIM = ("id, attempt, group_key, queue, priority, extract(epoch FROM enqueued_at),"
         " attempts_left, lapses, batch")
TEXTS = "payload::text, headers::text, progress::text"
POP = "fairq.pop(%s::text[], %s, lease => %s, worker => %s)"

# this process's previous handlers of the signals that a worker handles
before_us: Dict[int, Any] = {}


def leave_signals() -> None:
    """Restores the previous signal handlers in a forked process.

    Otherwise a signal to that process would end the worker.
    """
    for number, handler in before_us.items():
        signal.signal(number, handler)
    before_us.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=leave_signals)


@contextmanager
def signals_to(wake: Callable[[], object], asked: bool) -> Iterator[None]:
    """Makes SIGTERM and SIGINT call wake(), if asked to, and only in the main
    thread."""
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
    """A database that has the queues, or some of their groups."""

    def __init__(self, worker: "Worker", uri: str):
        self.worker = worker
        self.popper = Database(uri, worker.name, worker.stopping, WAIT + LIMIT_MOST, worker.give_up)
        # This connection works until the end, to complete tasks.  Its time limit is short
        # enough for a new connection to renew the leases in time.
        limit = max(LIMIT_LEAST, min(LIMIT_MOST, worker.lease.total_seconds() / 4))
        self.keeper: Database = Database(uri, worker.name, worker.ended, limit)
        self.registration = Registration(self)
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
        """Whether the shard has tasks, and has answered within a second."""
        return self.taking > time.monotonic() - SILENCE

    def is_stuck(self, late: float) -> bool:
        """Whether ends of tasks have waited for the server since before "late".

        If the shard answers, the rows of these tasks may be locked.  Then the
        shard is stuck only if there are as many such tasks as the worker has
        slots.
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
                # the shard's lead is in tasks per group, so it changes with
                # the number of groups
                least = min((s.service for s in worker.shards if s.answers()),
                            default=self.service)
                self.service = least + (self.service - least) * self.groups / groups
                self.groups = groups
            self.counted = time.monotonic()

    def take_slots(self) -> int:
        """Waits for a free slot.  Returns the number of slots for this shard.

        A free slot goes to the shard that has tasks and has had the fewest
        tasks per group.  So the groups of all shards get equal shares.  The
        other shards do not wait for a shard that does not answer within a
        second.  A stuck shard gets no more slots.
        """
        worker = self.worker
        with worker.changed:
            while not worker.stopping.is_set():
                late = time.monotonic() - SILENCE
                if worker.alone is None and not self.is_stuck(late):
                    others = [s.service for s in self.others() if s.answers()]
                    if others and not self.answers():
                        # A shard gets nothing extra for the time when it was
                        # idle.  The random part prevents all workers from
                        # choosing this shard at once.
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
        """Adds the tasks of a pop, and frees the other slots."""
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
                    died; the worker renews its leases after each third of that
                    time
    grace           seconds for which running tasks may continue when the worker stops
    timeout         seconds that a task may take; a handler may have its own
    poll            seconds between polls for tasks.
                    None: sleep in fairq.wait; through a pooler, 1.
                    0: sleep in fairq.wait, also through a pooler
    databases       a connection string, or one for each shard; '': PGHOST and so on
    name            the worker's name in fairq.tasks
    give_up         seconds after which the worker ends if the server refuses its
                    connections; None: the worker waits without a limit
    alive           a file that the worker touches every second while it works
    processes       run functions in a pool of processes instead of threads
    """

    def __init__(self, queues: Union[str, Sequence[str]], *, concurrency: int = 4,
                 lease: Delay = 60, grace: Delay = 5, timeout: Optional[Delay] = None,
                 poll: Optional[Delay] = None, databases: Union[str, Sequence[str]] = "",
                 name: Optional[str] = None, give_up: Optional[Delay] = 60,
                 alive: Optional[str] = None, processes: bool = False):
        self.queues = [queues] if isinstance(queues, str) else list(queues)
        if not self.queues:
            raise ValueError("a worker needs a queue")
        self.concurrency = self.checked(concurrency)
        self.lease = timedelta(seconds=seconds(lease))
        self.grace = seconds(grace)
        self.timeout = None if timeout is None else seconds(timeout)
        self.give_up = None if give_up is None else seconds(give_up)
        self.poll = None if poll is None else seconds(poll)
        self.databases = [databases] if isinstance(databases, str) else list(databases)
        self.name = name or f"{socket.gethostname()}:{os.getpid()}"
        self.alive, self.in_processes = alive, processes
        self.schedules: List[schedule.Schedule] = []
        self.tasks: Dict[str, "Handler[..., Any]"] = {}
        self.handlers: Dict[Optional[str], Entry] = {}      # by queue; None: for all other queues
        self.hooks: Dict[str, List[Function]] = {"before": [], "after": [], "error": [], "lost": []}

        self.stopping = threading.Event()
        self.changed = threading.Condition()            # protects shards and all fields below
        self.running: Set[Task] = set()
        self.working: Set[Task] = set()     # tasks whose handlers have begun and not ended
        # tasks of "working" that have failed at their timeout
        self.left: Set[Task] = set()
        self.alone: Optional[Task] = None   # the task that runs, or has to run, without other tasks
        self.shards: List[Shard] = []
        # one for each handler that may run
        self.room = threading.Semaphore(concurrency)
        self.problem: Optional[BaseException] = None    # why the worker ends
        self.loop: Optional[asyncio.AbstractEventLoop] = None
        self.popping: List[threading.Thread] = []
        self.wake: Callable[[], object] = lambda: None    # wakes run() or serve()
        self.told_of_pooler = False
        self.workers = Threads("fairq handler", concurrency)
        self.processes: Optional[Processes] = None
        self.helpers = Threads("fairq helper")
        self.coroutines: Set["asyncio.Task[None]"] = set()
        self.ended = threading.Event()

    def checked(self, concurrency: int) -> int:
        if concurrency < 1:
            raise ValueError(f"concurrency must be at least 1, and not {concurrency}")
        return concurrency

    def configure(self, *, queues: Optional[Sequence[str]] = None,
                  concurrency: Optional[int] = None, alive: Optional[str] = None,
                  processes: bool = False) -> None:
        """Overrides arguments of a worker that has not been started, for command lines."""
        if queues:
            self.queues = list(queues)
        if concurrency is not None:
            self.concurrency = self.checked(concurrency)
            self.room = threading.Semaphore(concurrency)
            self.workers = Threads("fairq handler", concurrency)
        if alive is not None:
            self.alive = alive
        self.in_processes = self.in_processes or processes

    def status(self) -> Dict[str, Any]:
        """Returns the present state of the worker.  Any thread may call it."""
        with self.changed:
            running = [{"id": task.id, "attempt": task.attempt, "queue": task.queue,
                        "group": task.group_key, "task": task.name,
                        "seconds": time.monotonic() - task.begun} for task in self.working]
        return {"name": self.name, "queues": self.queues, "concurrency": self.concurrency,
                "running": len(running), "tasks": running,
                "started": bool(self.shards), "stopping": self.stopping.is_set(),
                "connected": [shard.popper.is_connected() for shard in self.shards]}

    # ---- handlers

    def task(self, name: str, *, queue: Optional[str] = None,
             timeout: Optional[Delay] = None) -> "Callable[[Callable[P, R]], Handler[P, R]]":
        """Decorates the handler of tasks with that name.

        The handler's enqueue() adds tasks to the queue, by default to the worker's
        first one.
        """
        def register(function: "Callable[P, R]") -> "Handler[P, R]":
            if name in self.tasks:
                raise ValueError(f"task {name!r} has a handler already")
            handler = Handler(function, name, queue or self.queues[0],
                              self.timeout if timeout is None else seconds(timeout))
            self.tasks[name] = handler
            return handler
        return register

    def handler(self, queue: Optional[str] = None, *,
                timeout: Optional[Delay] = None) -> Callable[[F], F]:
        """Decorates the handler of all other tasks of the queue, or of all queues.

        The worker calls the handler with the Task, whose payload may be anything.
        """
        def register(handler: F) -> F:
            if queue in self.handlers:
                raise ValueError("the queue has a handler already")
            self.handlers[queue] = handler, self.timeout if timeout is None else seconds(timeout)
            return handler
        return register

    # ---- schedules

    def every(self, interval: Union[str, Delay], *, group: Group = "schedule", payload: Any = None,
              name: Optional[str] = None, catch_up: Delay = 3600) -> Callable[[H], H]:
        """Decorates a handler and enqueues a task for it in each interval, such as "5 min".

        The times are multiples of the interval since 1970, by the server's clock.
        """
        return self.scheduled(schedule.every(schedule.interval_of(interval)), group, payload, name,
                              catch_up)

    def cron(self, line: str, *, zone: Union[str, tzinfo] = "UTC", group: Group = "schedule",
             payload: Any = None, name: Optional[str] = None,
             catch_up: Delay = 3600) -> Callable[[H], H]:
        """Decorates a handler and enqueues a task for it at the times of a cron
        line."""
        return self.scheduled(schedule.cron(line, zone), group, payload, name, catch_up)

    def scheduled(self, times: schedule.Times, group: Group, payload: Any, name: Optional[str],
                  catch_up: Delay) -> Callable[[H], H]:
        def register(handler: H) -> H:
            new = schedule.Schedule(name or handler.name, handler.name, handler.queue, group,
                                    payload, times, catch_up)
            if any(new.name == old.name for old in self.schedules):
                raise ValueError(f"there is a schedule {new.name!r} already: give this one a name")
            self.schedules.append(new)
            return handler
        return register

    def keep_schedules(self, shard: Shard) -> None:
        while not self.stopping.wait(schedule.tick(self.schedules, shard.keeper)):
            pass

    # ---- hooks

    def before(self, hook: F) -> F:
        """Decorates a function that is called with each task before its handler."""
        return self.add_hook("before", hook)

    def after(self, hook: F) -> F:
        """Decorates a function that is called with each task whose handler has returned."""
        return self.add_hook("after", hook)

    def on_error(self, hook: F) -> F:
        """Decorates a function that is called with each task that fails and
        with its error."""
        return self.add_hook("error", hook)

    def on_lost(self, hook: F) -> F:
        """Decorates a function that is called with each lost task.  The task was cancelled,
        its lease was lost, or the worker has released it.
        """
        return self.add_hook("lost", hook)

    def add_hook(self, kind: str, hook: F) -> F:
        if is_async(hook):
            raise TypeError("a hook must be a function, and no coroutine function")
        self.hooks[kind].append(hook)
        return hook

    def call_hooks(self, kind: str, task: Task, *args: Any) -> None:
        for hook in self.hooks[kind]:
            try:
                hook(task, *args)
            except BaseException:       # SystemExit would otherwise keep the slot
                log.exception("a hook of task %s, attempt %s", task.id, task.attempt)

    def call_last_hooks(self, task: Task, error: Optional[BaseException]) -> None:
        """Runs the hooks for the end of a handler.

        The caller is the thread or the coroutine that has called the handler.
        """
        if error is None:
            self.call_hooks("after", task)
        elif task.timed_out:
            self.call_hooks("error", task, timed_out(task, error))
        elif isinstance(error, Stopped):
            self.call_hooks("lost", task)
        else:
            self.call_hooks("error", task, error)

    def find_work(self, task: Task) -> Tuple[Function, bool]:
        """The handler of the task, and whether it is specific to tasks of that
        name."""
        if task.unread is not None:
            raise task.unread
        named = self.tasks.get(task.name) if task.name is not None else None
        if named is not None:
            task.timeout = named.timeout
            return named.function, True
        entry = self.handlers.get(task.queue) or self.handlers.get(None)
        if entry is None:
            if task.name is None:
                raise NoHandler(f"no handler for tasks of queue {task.queue}")
            raise NoHandler(f"no handler for task {task.name}")
        handler, task.timeout = entry
        return handler, False

    # ---- taking tasks

    def free_slots(self, late: float) -> int:
        # other shards may use the slots of a shard that has not answered since "late"
        popping = sum(shard.slots for shard in self.shards if shard.answers())
        return (self.concurrency - len(self.left) - popping
                - sum(task.ended > late for task in self.running))

    def pop_tasks(self, shard: Shard) -> None:
        try:
            self.log_start(shard)
            self.helpers.run(shard.registration.keep)
            while not self.stopping.is_set():
                self.pop_once(shard)
        except LOST:
            pass            # raised here only while the worker stops
        except BaseException as error:
            self.end_by(error)
        finally:
            self.wake()

    def log_start(self, shard: Shard) -> None:
        [(extension, server)] = shard.popper.query(
            "SELECT fairq.version(), current_setting('server_version')")
        extra = {"queues": self.queues, "concurrency": self.concurrency,
                 "client_version": __version__, "extension_version": extension,
                 "server_version": server}
        log.info("worker %s begins: queues %s, concurrency %s, package fairq %s, extension fairq %s,"
                 " PostgreSQL %s", self.name, ", ".join(self.queues), self.concurrency,
                 __version__, extension, server, extra=extra)

    def pop_once(self, shard: Shard) -> None:
        tasks: List[Task] = []
        try:
            shard.count_groups()
            if shard.take_slots() == 0:
                return
            tasks = self.pop(shard)
        except psycopg.errors.QueryCanceled:
            pass        # cancelled by end_shard(), or by a statement_timeout
        except PASSING as error:
            if not isinstance(error, LOST):     # the other errors are logged already
                log.warning("%s; retrying", explain(error))
            shard.got([])
            # so count_groups() reconnects, while this shard has no slots
            shard.counted = -math.inf
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
        except UNPRINTABLE:
            # A few kB of jsonb may be a GB of text, for example numbers like 1e100000.
            return [Task(shard, *row, *self.read(shard, row[0])) for row in shard.popper.query(
                f"SELECT {CLAIM} FROM {POP}", *args, once=True)]

    def read(self, shard: Shard, id: int) -> Tuple[Any, ...]:
        try:
            rows = shard.popper.query(f"SELECT {TEXTS} FROM fairq.tasks WHERE id = %s", id, once=True)
        except UNPRINTABLE as error:
            return None, None, None, Undecodable(f"payload or headers cannot be read: {explain(error)}")
        return rows[0] if rows else (None, None, None, Stopped("the task does not exist any more"))

    def admit(self, tasks: Sequence[Task]) -> List[Task]:
        """Returns the tasks to begin and releases the others.

        A task whose lease has expired may have killed its process, and may do
        so again.  It runs alone, so that no other task loses its lease.
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
            self.helpers.run(self.finish, task, End("release"))
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
        except HELD:
            pass    # the call was cancelled
        except PASSING:
            self.stopping.wait(1)       # even if the next pop succeeds, the next wait may fail

    # ---- running tasks

    def begin(self, task: Task) -> None:
        if task is self.alone:
            self.helpers.run(self.begin_alone, task)
        else:
            self.begin_now(task)

    def begin_alone(self, task: Task) -> None:
        late = time.monotonic() + self.lease.total_seconds()
        with self.changed:
            # If this task kills the process before the server has the end of
            # another task, that other task runs again.  The row of the other
            # task may be locked, so the wait has a limit.
            while not self.stopping.is_set() and any(
                    other.ended > time.monotonic() - ALONE
                    for other in self.running if other is not task):
                self.changed.wait(0.5)
                if time.monotonic() > late:
                    late = math.inf
                    log.warning("task %s (%s), queue %s, group %s, attempt %s: it waits for all other tasks of"
                                " the worker, since its lease has expired before. If one hangs, set a timeout",
                                task.id, task.name, task.queue, task.group_key, task.attempt)
        self.begin_now(task)

    def begin_now(self, task: Task) -> None:
        try:
            handler, named = self.find_work(task)
            args, keywords = arguments_of(task, named)
        except Exception as error:
            task.begun = task.ended = time.monotonic()
            if not isinstance(error, Stopped):
                self.call_hooks("error", task, error)
            self.helpers.run(self.finish, task, self.end_of(task, error))
            return
        call = functools.partial(handler, *args, **keywords)
        if not is_async(handler):
            if self.processes is None:
                self.workers.run(self.work, task, call)
            else:
                self.workers.run(self.work_in_process, self.processes, task, handler, named)
        elif self.room.acquire(blocking=False):
            self.begin_async(task, call)
        else:               # no slot is free, since a shard has answered late
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
            if task.begins:
                self.call_last_hooks(task, error)
            self.has_ended(task, error, result)
            close_old_connections()
        current.reset(token)

    def work_in_process(self, processes: Processes, task: Task, handler: Function,
                        named: bool) -> None:
        try:
            process = processes.take()
        except Exception as error:
            if not isinstance(error, Stopped):
                self.end_by(error)
            task.begun = task.ended = time.monotonic()
            self.finish(task, End("release"))
            return
        self.work(task, lambda: process.run(task, place_of(handler), named))
        processes.give(process)

    def may_begin(self, task: Task) -> None:
        task.begun = time.monotonic()
        if self.stopping.is_set():
            raise Stopped
        task.check()
        with self.changed:
            self.working.add(task)
            if task.timeout is not None:
                task.deadline = task.begun + task.timeout
        task.begins = True
        log.debug("task %s (%s), queue %s, group %s, attempt %s: begins", task.id, task.name,
                  task.queue, task.group_key, task.attempt)
        self.call_hooks("before", task)

    def has_ended(self, task: Task, error: Optional[BaseException], result: Any) -> None:
        """Records the end of the work, and finishes the task unless leave() has done so."""
        with self.changed:
            self.working.discard(task)
            if task in self.left:
                self.left.discard(task)
                log.warning("the handler of task %s, attempt %s, which was timed out, has ended",
                            task.id, task.attempt)
                self.changed.notify_all()
                return
            task.ended = time.monotonic()
        self.helpers.run(self.finish, task, self.end_of(task, error, result))

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
        task.stop_handler = lambda: loop.call_soon_threadsafe(me.cancel)
        current.set(task)       # this coroutine has a context of its own
        result: Any = None
        error: Optional[BaseException] = None
        try:
            self.may_begin(task)
            result = await call()
        except asyncio.CancelledError as raised:
            error = Stopped() if task.stopped else raised
        except BaseException as raised:
            error = raised
        task.stop_handler = None
        if task.begins:
            self.call_last_hooks(task, error)
        self.has_ended(task, error, result)
        self.close_async(loop)

    def close_async(self, loop: asyncio.AbstractEventLoop) -> None:
        """Calls close_old_connections() in Django's thread for coroutines."""
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
                self.helpers.run(run_loop, self.loop)
            return self.loop

    def end_of(self, task: Task, error: Optional[BaseException], result: Any = None) -> End:
        if error is None:
            try:
                return End("complete", (None if result is None else to_json(result),))
            except Exception as raised:
                # objects in the result may raise any exception
                error = raised
        if task.timed_out:
            return failure(timed_out(task, error))
        if isinstance(error, Stopped) and task.stopped and not self.stopping.is_set():
            # The attempt counts, since the queue's max_run_time may be over.  This call also
            # ends a cancelled task, and has no effect if another worker has the task.
            return End("fail", (STOPPED,), {}, Stopped(STOPPED))
        if isinstance(error, Stopped):
            return End("release")
        return failure(error)

    def finish(self, task: Task, end: End) -> None:
        try:
            if task.handed_back:
                log_end(task, "released", None)
            elif task.completed and end.function == "complete":
                log_end(task, "completed", None)
            else:
                self.call_end(task, end)
        except psycopg.Error as error:
            if isinstance(error, LOST) and not isinstance(error, TOO_LARGE):
                log.error("task %s, attempt %s, could not be finished; its lease will expire: %s",
                          task.id, task.attempt, error, exc_info=end.error)
                return
            # a result that PostgreSQL cannot keep
            self.call_end(task, failure(error))
        finally:
            with self.changed:
                self.running.discard(task)
                if self.alone is task:
                    self.alone = None
                self.changed.notify_all()

    def call_end(self, task: Task, end: End) -> None:
        losses = task.shard.keeper.losses
        if end.function != "complete":
            task.save_rest()
        took = {} if end.function == "release" else {"took": task.took()}
        if task.call(end.function, *end.args, **end.named, **took):
            log_end(task, end.accepted(task), end.error)
        elif end.function == "complete":
            self.warn_of_refusal(task, losses)
        else:
            log_end(task, "lost", end.error)

    def warn_of_refusal(self, task: Task, losses: int) -> None:
        if task.shard.keeper.losses != losses:
            log.info("task %s, attempt %s: the server's answer was lost; most likely it has"
                     " completed the task", task.id, task.attempt)
            return
        log.warning("the server refuses to complete task %s, attempt %s, of queue %s and group %s:"
                    " it was cancelled, or its lease was lost",
                    task.id, task.attempt, task.queue, task.group_key)
        self.call_hooks("lost", task)

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
        """Ends connections that wait too long for an answer, and tasks past their
        timeouts."""
        limits = [*(handler.timeout for handler in self.tasks.values()),
                  *(timeout for _, timeout in self.handlers.values())]
        limited = any(limit is not None for limit in limits)
        while not self.ended.wait(0.2 if limited else 1):
            self.show_life()
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

    def show_life(self) -> None:
        if self.alive is None or not all(thread.is_alive() for thread in self.popping):
            return
        try:
            with open(self.alive, "w", encoding="utf-8") as file:
                file.write(f"{self.name}\n")
        except OSError as error:
            log.error("%s: %s", self.alive, error)
            self.alive = None

    def leave(self, task: Task) -> None:
        """Ends the process of a handler that does not end after its timeout.  If the handler has
        no process, fails the task.
        """
        with self.changed:
            if task not in self.working:
                return          # the handler has just ended
            if task.end_process is not None:
                task.end_process()
                return
            self.left.add(task)
            task.ended = time.monotonic()
            slots = self.concurrency - len(self.left)
        self.helpers.run(self.finish, task, self.end_of(task, Stopped()))
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
        if self.in_processes:
            for function in [*(handler.function for handler in self.tasks.values()),
                             *(function for function, _ in self.handlers.values())]:
                if not is_async(function):
                    place_of(function)
            self.processes = Processes(self.lease.total_seconds())
        self.shards = [Shard(self, uri) for uri in self.databases]
        self.popping = [threading.Thread(target=self.pop_tasks, args=(shard,), daemon=True)
                        for shard in self.shards]
        for thread in self.popping:
            thread.start()
        for shard in self.shards:
            self.helpers.run(self.heartbeat, shard)
        self.helpers.run(self.watch)
        if self.schedules:
            self.helpers.run(self.keep_schedules, self.shards[0])

    def end_shard(self, shard: Shard, popping: threading.Thread) -> None:
        """Waits for the shard's tasks to end, and releases those that do not."""
        mute = time.monotonic() + TO_ANSWER / 2
        while popping.is_alive():
            if time.monotonic() < mute:
                # the thread is most likely in fairq.wait; the cancellation may
                # take some time
                self.helpers.run(shard.popper.cancel)
            else:
                shard.popper.cut()
            popping.join(0.1)
        with self.changed:
            self.changed.wait_for(lambda: not shard.tasks(), self.grace)
            left = [task for task in shard.tasks() if task.ended == math.inf]
        # each in a thread, since one of the rows may be locked
        releasing = [threading.Thread(target=self.hand_back, args=(task,), daemon=True)
                     for task in left]
        for thread in releasing:
            thread.start()
        for thread in releasing:
            thread.join()
        with self.changed:      # the server may not have answered yet
            self.changed.wait_for(lambda: all(task.handed_back for task in shard.tasks()),
                                  TO_ANSWER)
        shard.registration.end()
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
        if self.processes is not None:
            self.processes.end()

    async def end_coroutines(self) -> None:
        """Waits for the end of handlers that were cancelled."""
        if self.coroutines:
            await asyncio.wait(self.coroutines, timeout=1)

    def stop(self) -> None:
        """Ends run() or serve().  Any thread may call it."""
        self.stopping.set()
        self.wake()

    def raise_problem(self) -> None:
        if self.problem is not None:
            raise WorkerError(explain(self.problem)) from self.problem

    def run(self, *, signals: bool = False) -> None:
        """Works until stop(), and raises WorkerError if it cannot work.

        With signals, SIGTERM and SIGINT also end run(), if it is called in the
        main thread.
        """
        reading, writing = socket.socketpair()
        writing.setblocking(False)

        def wake() -> None:
            try:
                writing.send(b"\0")
            except OSError:
                pass            # the worker is awake, or has ended
        self.wake = wake
        try:
            with signals_to(wake, signals):
                self.start()
                # The main thread handles all signals.  Signals that another
                # thread receives do not interrupt select(), so select() has a
                # time limit.
                while not select.select([reading], [], [], TO_NOTICE)[0]:
                    pass
                self.end()
                if self.loop is not None:
                    try:
                        asyncio.run_coroutine_threadsafe(self.end_coroutines(), self.loop).result(2)
                    except concurrent.futures.TimeoutError:
                        pass        # a coroutine blocks the loop
                    self.loop.call_soon_threadsafe(self.loop.stop)
        finally:
            reading.close()
            writing.close()
        self.raise_problem()

    async def serve(self, *, signals: bool = False) -> None:
        """Like run(), in a running event loop, which also runs async handlers."""
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
                # ends the worker even after a cancellation, in an executor that
                # handlers do not use
                executor = concurrent.futures.ThreadPoolExecutor(1)
                await asyncio.shield(loop.run_in_executor(executor, self.end))
                executor.shutdown(wait=False)
                await self.end_coroutines()
        self.raise_problem()

    @asynccontextmanager
    async def lifespan(self, app: Any = None) -> AsyncIterator[None]:
        """Works during the lifespan of a web application.

        An example is FastAPI(lifespan=worker.lifespan).  Raises WorkerError at
        the end if the worker could not work.
        """
        serving = asyncio.ensure_future(self.serve())
        serving.add_done_callback(log_problem)
        await asyncio.sleep(0)      # so that the worker has begun
        try:
            yield
        finally:
            self.stop()
            await serving

    def main(self) -> NoReturn:
        """Calls run() with signals and ends the program.

        The status is 0, or 1 with a line on stderr.
        """
        status = 0
        try:
            self.run(signals=True)
        except WorkerError as error:
            print(f"worker: {error}", file=sys.stderr)
            status = 1
        if self.working:
            exit_besides(status)
        sys.exit(status)


def run_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Runs the loop until stop().  A SystemExit in a task that a handler has created ends
    the run of the loop, but must not end other handlers.
    """
    while True:
        try:
            loop.run_forever()
            return
        except BaseException:
            log.exception("in the event loop")


def exit_besides(status: int) -> NoReturn:
    """Runs exit handlers and ends the program, although handlers still run.

    The normal end of Python would wait for threads that the handlers have started, and
    would fail if one of them writes meanwhile.
    """
    limit = threading.Timer(TO_EXIT, os._exit, (status,))
    limit.daemon = True
    limit.start()
    # before Python 3.9 the exit handlers of concurrent.futures wait for threads, too
    for name in "thread", "process":
        waits = getattr(sys.modules.get(f"concurrent.futures.{name}"), "_python_exit", None)
        if waits is not None:
            atexit.unregister(waits)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def log_problem(serving: "asyncio.Future[None]") -> None:
    """Logs the error at once, since the application may run for long."""
    if not serving.cancelled() and serving.exception() is not None:
        log.error("worker: %s", serving.exception())


def timed_out(task: Task, error: BaseException) -> TimedOut:
    text = f"timed out after {task.timeout:g} s"
    new = TimedOut(text)
    if not isinstance(error, (Crashed, Stopped, asyncio.CancelledError)):
        new.__cause__ = error
    return new
