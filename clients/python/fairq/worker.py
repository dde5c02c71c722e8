"""A worker: takes the tasks of queues, and has handlers do them.

Per database two connections and two threads, one that pops and sleeps in fairq.wait and
one that keeps the leases; and a thread for each task whose handler is a function, or a
coroutine in an event loop if it is an async one.  What each of them waits for is the
condition "changed".

A queue may be spread over several databases, its shards.  Then free slots go to them
by what they have had per group, see Shard.take_slots().
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import logging
import math
import os
import random
import signal
import socket
import sys
import threading
import time
from datetime import timedelta
from typing import (Any, Awaitable, Callable, Dict, List, NoReturn, Optional, Sequence, Set,
                    Tuple, TypeVar, Union)

import psycopg
from psycopg.conninfo import conninfo_to_dict

from .producer import Delay, seconds, to_json
from .task import Dead, NoHandler, Retry, Stopped, Task, current

# What a new connection may mend; read-only is a server that was the primary, or a
# shard that is being moved.
LOST = psycopg.OperationalError, psycopg.errors.ReadOnlySqlTransaction

Handler = Callable[..., Any]
H = TypeVar("H", bound=Handler)

log = logging.getLogger("fairq")

# seconds that the server has, after the grace, to hear what has ended
TO_ANSWER = 4

# seconds after which a server that has not answered is not waited for
SILENCE = 1

# Another transaction holds what a statement needs; or it was cancelled, by a
# statement_timeout or somebody.
HELD = psycopg.errors.LockNotAvailable, psycopg.errors.QueryCanceled

# seconds until that is tried again, and for which others are likely to be held, too
HELD_PAUSE, HELD_LATELY = 0.5, 2


# what handled the signals that a worker handles, in this process
before_us: Dict[int, Any] = {}


def leave_signals() -> None:
    """In a process that a handler has forked: to end that is not to end this worker."""
    if before_us:
        signal.set_wakeup_fd(-1)
        for number, handler in before_us.items():
            signal.signal(number, handler)
        before_us.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=leave_signals)


class WorkerError(Exception):
    """The worker cannot do its work: there is no such queue, for one."""


def connect(uri: str) -> psycopg.Connection[Tuple[Any, ...]]:
    at: Dict[str, Any] = {"connect_timeout": os.environ.get("PGCONNECT_TIMEOUT", 10),
                          **conninfo_to_dict(uri), "client_encoding": "utf8"}
    hosts = str(at.get("host") or os.environ.get("PGHOST", "")).split(",")
    ports = str(at.get("port") or os.environ.get("PGPORT", "")).split(",")
    if len(hosts) == 1:
        return psycopg.connect(**at, autocommit=True)
    # each by itself, as one that is mute would use up the time of all
    for i, host in enumerate(hosts):
        at.update(host=host, port=ports[i % len(ports)])
        try:
            return psycopg.connect(**at, autocommit=True)
        except psycopg.OperationalError as error:
            problem = error
    raise problem


class Database:
    """A connection for several threads; made anew when it is lost."""

    def __init__(self, uri: str, stopping: threading.Event):
        self.uri, self.stopping = uri, stopping
        self.lock = threading.Lock()
        self.holding = threading.Lock()     # for who tries again what is held
        self.connection: Optional[psycopg.Connection[Tuple[Any, ...]]] = None
        self.pooled = False         # known once there is a connection
        self.answered = -math.inf   # when it last has, by the monotonic clock
        self.held = -math.inf       # when something last was
        self.warned = ""            # of what, while that lasts

    def connect(self) -> psycopg.Connection[Tuple[Any, ...]]:
        connection = connect(self.uri)
        # A pooler invents the process that its clients see.  The server connection
        # of the next statement may be another, which knows no prepared ones.
        [(pid,)] = connection.execute("SELECT pg_backend_pid()").fetchall()
        self.pooled = pid != connection.info.backend_pid
        if self.pooled:
            connection.prepare_threshold = None
        return connection

    def query(self, sql: str, *args: Any, once: bool = False,
              brief: bool = False) -> List[Tuple[Any, ...]]:
        """The rows of a statement; without once it is tried until the server has answered.

        With brief, which is for SELECTs without FROM, it waits for no lock for long: the
        row of a task may be locked for as long as another transaction is open, and the
        connection is there for the other tasks, too.
        """
        try:
            return self.persist(sql, args, once, brief)
        except HELD:
            if once:
                raise
        # One at a time, and seldom: so they keep no others from the connection.  When the
        # one is in the way no more they follow each other at once.
        self.stopping.wait(HELD_PAUSE)
        while True:
            with self.holding:
                try:
                    return self.persist(sql, args, once, brief)
                except HELD:
                    if self.stopping.wait(HELD_PAUSE):
                        raise
            time.sleep(0.05)        # it is another's turn

    def persist(self, sql: str, args: Sequence[Any], once: bool,
                brief: bool) -> List[Tuple[Any, ...]]:
        # If only the answer was lost, the attempt sees to it that a second
        # complete does no harm; what a lost pop took comes back by its lease.
        failures = 0
        while True:
            with self.lock:
                lately = time.monotonic() - self.held < HELD_LATELY
                try:
                    if self.connection is None or self.connection.closed:
                        self.connection = self.connect()
                    limit = f" FROM set_config('lock_timeout', '{10 if lately else 100}ms', true)"
                    rows = self.connection.execute(sql + limit if brief else sql, args).fetchall()
                    self.answered, self.warned = time.monotonic(), ""
                    return rows
                except HELD as error:
                    if not once and not lately:
                        log.warning("another transaction is in the way: %s; trying again",
                                    explain(error))
                    self.held = self.answered = time.monotonic()
                    raise
                except LOST as error:
                    if str(error) != self.warned:
                        log.warning("%s; trying again", error)
                    self.warned = str(error)
                    failures += 1
                    if self.connection is not None:
                        self.connection.close()
                    if once or self.stopping.is_set() and failures > 1:
                        raise
            self.stopping.wait(1)

    def cancel(self) -> None:
        try:
            if self.connection is not None:
                self.connection.cancel()
        except psycopg.Error:
            pass        # it is being lost anyway

    def close(self) -> None:
        # Not waiting for a thread that is in a call of a server that is mute.
        if self.lock.acquire(timeout=1):
            try:
                if self.connection is not None:
                    self.connection.close()
            finally:
                self.lock.release()


class Shard:
    """A database that has the queues, or a part of their groups."""

    def __init__(self, worker: "Worker", uri: str):
        self.worker = worker
        # fairq.wait takes its time
        self.popper = Database(uri, worker.stopping)
        # it goes on until the end, to tell what has ended
        self.keeper: Database = Database(uri, worker.ended)
        self.groups = 1             # that have something to do
        self.counted = -math.inf    # when they were, by the monotonic clock
        self.service = 0.0          # tasks taken, per group
        self.slots = 0              # that its pop, which has not returned, is to fill
        self.taking = -math.inf     # when it last had tasks, and room for them

    def tasks(self) -> List[Task]:
        return [task for task in self.worker.running if task.shard is self]

    def others(self) -> List["Shard"]:
        return [shard for shard in self.worker.shards if shard is not self]

    def answers(self) -> bool:
        """Does it have tasks, and has it said something within a second?"""
        return self.taking > time.monotonic() - SILENCE

    def is_stuck(self, late: float) -> bool:
        """Can it not be told what has become of its tasks?

        One that answers may have some of which other transactions hold the rows.
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
                # what it is ahead by is tasks: of each group it is another part now
                least = min((s.service for s in worker.shards if s.answers()),
                            default=self.service)
                self.service = least + (self.service - least) * self.groups / groups
                self.groups = groups
            self.counted = time.monotonic()

    def take_slots(self) -> int:
        """Those of the free slots that are this shard's; waits for one.

        Each goes to the shard that has had the fewest tasks per group, of those that
        have some: so groups of all shards get the same.  A shard that does not answer
        within a second is not waited for, and if it cannot be told what has ended it
        gets no more.
        """
        worker = self.worker
        with worker.changed:
            while not worker.stopping.is_set():
                late = time.monotonic() - SILENCE
                if not self.is_stuck(late):
                    others = [s.service for s in self.others() if s.answers()]
                    if others and not self.answers():
                        # it has saved up none; and not all workers come to it at once
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
        """What its pop has brought; the other slots are free again."""
        with self.worker.changed:
            self.count(len(tasks) - self.slots)
            self.slots = 0
            if not tasks:
                self.taking = -math.inf
            self.worker.running.update(tasks)
            self.worker.changed.notify_all()


class Worker:
    """Does the tasks of queues, strictly in the order in which these are given.

    concurrency     tasks at a time
    lease           seconds after which others may do the tasks of a worker that is
                    dead; one that lives prolongs the lease every third of that
    grace           seconds that tasks have to finish in when the worker is to stop
    poll            None: sleep in fairq.wait until there is something to do, or
                    through a pooler, of which that would occupy a connection, look
                    every second.  Other than 0: look each so many seconds.
                    0: sleep in fairq.wait, also through a pooler
    databases       a connection string, or those of all shards; '': PGHOST and so on
    name            what fairq.tasks shows as the worker
    """

    def __init__(self, queues: Union[str, Sequence[str]], *, concurrency: int = 4,
                 lease: Delay = 60, grace: Delay = 5, poll: Optional[Delay] = None,
                 databases: Union[str, Sequence[str]] = "", name: Optional[str] = None):
        self.queues = [queues] if isinstance(queues, str) else list(queues)
        if not self.queues:
            raise ValueError("a worker needs a queue")
        if concurrency < 1:
            raise ValueError(f"concurrency must be at least 1, and not {concurrency}")
        self.concurrency = concurrency
        self.lease = timedelta(seconds=seconds(lease))
        self.grace = seconds(grace)
        self.poll = None if poll is None else seconds(poll)
        self.databases = [databases] if isinstance(databases, str) else list(databases)
        self.name = name or f"{socket.gethostname()}:{os.getpid()}"
        self.tasks: Dict[str, Handler] = {}
        self.handlers: Dict[Optional[str], Handler] = {}    # of a queue; None: of all others

        self.stopping = threading.Event()
        self.changed = threading.Condition()            # of all below, and of shards
        self.running: Set[Task] = set()
        self.shards: List[Shard] = []
        self.room = threading.Semaphore(concurrency)    # for the work of running tasks
        self.problem: Optional[BaseException] = None    # for which it ends
        self.loop: Optional[asyncio.AbstractEventLoop] = None
        self.popping: List[threading.Thread] = []
        self.wake: Callable[[], object] = lambda: None    # whoever waits for the end
        self.told_of_pooler = False
        self.coroutines: Set["asyncio.Task[None]"] = set()
        self.ended = threading.Event()

    # ---- handlers

    def task(self, name: str) -> Callable[[H], H]:
        """Decorates the handler of the tasks of that name, for their arguments."""
        def register(handler: H) -> H:
            if name in self.tasks:
                raise ValueError(f"task {name!r} has a handler already")
            self.tasks[name] = handler
            return handler
        return register

    def handler(self, queue: Optional[str] = None) -> Callable[[H], H]:
        """Decorates the handler of all other tasks of the queue, or of all queues.

        It is given the Task, whose payload may be anything.
        """
        def register(handler: H) -> H:
            if queue in self.handlers:
                raise ValueError("the queue has a handler already")
            self.handlers[queue] = handler
            return handler
        return register

    def find_work(self, task: Task) -> Tuple[Handler, Callable[[], Any]]:
        """The handler of the task, and the call of it."""
        handler = self.tasks.get(task.name) if task.name is not None else None
        if handler is not None:
            payload, found = task.payload, handler
            if isinstance(payload, dict):
                return found, lambda: found(**payload)
            if isinstance(payload, list):
                return found, lambda: found(*payload)
            raise TypeError(f"the payload of task {task.name} must be an object or an array")
        handler = self.handlers.get(task.queue) or self.handlers.get(None)
        if handler is None:
            if task.name is None:
                raise NoHandler(f"no handler for tasks of queue {task.queue}")
            raise NoHandler(f"no handler for task {task.name}")
        found = handler
        return found, lambda: found(task)

    # ---- taking tasks

    def free_slots(self, late: float) -> int:
        # what a shard has not answered since then keeps no others from running
        popping = sum(shard.slots for shard in self.shards if shard.answers())
        return self.concurrency - popping - sum(task.ended > late for task in self.running)

    def pop_tasks(self, shard: Shard) -> None:
        try:
            while not self.stopping.is_set():
                self.pop_once(shard)
        except BaseException as error:
            self.problem = self.problem or error
        finally:
            self.wake()

    def pop_once(self, shard: Shard) -> None:
        tasks: List[Task] = []
        try:
            shard.count_groups()
            if shard.take_slots() == 0:
                return
            claims = shard.popper.query(
                "SELECT id, attempt, group_key, payload, queue, headers, priority,"
                " extract(epoch FROM enqueued_at), attempts_left"
                " FROM fairq.pop(%s::text[], %s, lease => %s, worker => %s)",
                self.queues, shard.slots, self.lease, self.name, once=True)
            tasks = [Task(shard, *claim) for claim in claims]
        except psycopg.errors.QueryCanceled:
            pass        # by end_shard(), or by a statement_timeout
        except LOST:
            shard.got([])
            shard.counted = -math.inf   # it connects again by that, without slots
            self.stopping.wait(1)
            return
        shard.got(tasks)
        for task in tasks:
            self.begin(task)
        if not tasks:
            self.sleep(shard)

    def sleep(self, shard: Shard) -> None:
        poll = self.poll
        if poll is None and shard.popper.pooled:
            poll = 1
            if not self.told_of_pooler:
                self.told_of_pooler = True
                log.warning("the connection goes through a pooler, of which fairq.wait would"
                            " occupy a connection, so this worker looks for tasks every"
                            " second; say poll to have another interval, or 0 to wait")
        if poll:
            self.stopping.wait(poll)
            return
        try:
            shard.popper.query("CALL fairq.wait(%s::text[])", self.queues, once=True)
        except LOST:
            pass    # cancelled; or lost, at the end

    # ---- doing them

    def begin(self, task: Task) -> None:
        try:
            handler, call = self.find_work(task)
        except Exception as error:
            task.begun = task.ended = time.monotonic()
            self.in_thread(self.finish, task, *self.outcome(task, error))
            return
        if not is_async(handler):
            self.in_thread(self.work, task, call)
        elif self.room.acquire(blocking=False):
            self.begin_async(task, call)
        else:               # a shard has answered late
            def wait() -> None:
                self.room.acquire()
                self.begin_async(task, call)
            self.in_thread(wait)

    def in_thread(self, function: Callable[..., None], *args: Any) -> None:
        threading.Thread(target=function, args=args, daemon=True).start()

    def work(self, task: Task, call: Callable[[], Any]) -> None:
        token = current.set(task)
        try:
            with self.room:
                self.may_begin(task)
                try:
                    result, error = call(), None
                finally:
                    task.ended = time.monotonic()
        except BaseException as raised:
            result, error = None, raised
        current.reset(token)
        self.finish(task, *self.outcome(task, error, result))

    def may_begin(self, task: Task) -> None:
        task.begun = time.monotonic()
        if self.stopping.is_set():
            task.ended = task.begun
            raise Stopped
        task.check()

    def begin_async(self, task: Task, call: Callable[[], Awaitable[Any]]) -> None:
        loop = self.event_loop()

        def create() -> None:
            coroutine = loop.create_task(self.work_async(task, call))
            self.coroutines.add(coroutine)
            coroutine.add_done_callback(done)

        def done(coroutine: "asyncio.Task[None]") -> None:
            self.coroutines.remove(coroutine)
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
        task.ended = time.monotonic()
        self.in_thread(self.finish, task, *self.outcome(task, error, result))

    def event_loop(self) -> asyncio.AbstractEventLoop:
        """That of serve(), or one in a thread."""
        with self.changed:
            if self.loop is None:
                self.loop = asyncio.new_event_loop()
                self.in_thread(self.loop.run_forever)
            return self.loop

    def outcome(self, task: Task, error: Optional[BaseException],
                result: Any = None) -> Tuple[str, Tuple[Any, ...], Dict[str, Any]]:
        """The call by which the task is finished."""
        if error is None:
            try:
                return "complete", (None if result is None else to_json(result),), {}
            except Exception as raised:     # also what its objects raise, and RecursionError
                error = raised
        if isinstance(error, Stopped):
            return "release", (), {}
        text = text_of(error)
        if isinstance(error, Retry):
            log.info("task %s, attempt %s: %s", task.id, task.attempt, text)
            return "fail", (text,), {"retry_in": error.delay}
        if isinstance(error, (Dead, NoHandler)):
            log.error("task %s, attempt %s: %s", task.id, task.attempt, text)
        else:
            log.error("task %s, attempt %s", task.id, task.attempt, exc_info=error)
        return "fail", (text,), {"dead": isinstance(error, Dead)}

    def finish(self, task: Task, function: str, args: Tuple[Any, ...],
               named: Dict[str, Any]) -> None:
        if function != "release":
            named["took"] = task.took()
        try:
            if not task.handed_back:
                task.call(function, *args, **named)
        except LOST as error:
            log.error("task %s, attempt %s, is left to its lease: %s", task.id, task.attempt, error)
        except psycopg.Error as error:
            # a result that PostgreSQL cannot keep
            log.error("task %s, attempt %s: %s", task.id, task.attempt, error)
            task.call("fail", text_of(error), took=task.took())
        finally:
            with self.changed:
                self.running.remove(task)
                self.changed.notify_all()

    def heartbeat(self, shard: Shard) -> None:
        while not self.ended.wait(self.lease.total_seconds() / 3):
            with self.changed:
                held = sorted(shard.tasks(), key=lambda task: task.attempt)
            tasks = {task.id: task for task in held}
            for task in held:
                if tasks[task.id] is not task:      # it was lost to a later attempt here
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

    # ---- from start to end

    def start(self) -> None:
        if self.shards:
            raise RuntimeError("a worker can be started once only")
        self.shards = [Shard(self, uri) for uri in self.databases]
        self.popping = [threading.Thread(target=self.pop_tasks, args=(shard,), daemon=True)
                        for shard in self.shards]
        for thread in self.popping:
            thread.start()
        for shard in self.shards:
            self.in_thread(self.heartbeat, shard)

    def end_shard(self, shard: Shard, popping: threading.Thread) -> None:
        """Lets its tasks end, and hands back what does not."""
        while popping.is_alive():
            shard.popper.cancel()       # most likely it is in fairq.wait
            popping.join(0.1)
        with self.changed:
            self.changed.wait_for(lambda: not shard.tasks(), self.grace)
            left = [task for task in shard.tasks() if task.ended == math.inf]
        # side by side, as the row of one may be held
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
        limit = time.monotonic() + self.grace + TO_ANSWER       # a shard may be down, or mute
        ending = [threading.Thread(target=self.end_shard, args=args, daemon=True)
                  for args in zip(self.shards, self.popping)]
        for thread in ending:
            thread.start()
        for thread in ending:
            thread.join(max(0, limit - time.monotonic()))
        self.ended.set()

    async def end_coroutines(self) -> None:
        """Lets handlers that were cancelled come to their end."""
        if self.coroutines:
            await asyncio.wait(self.coroutines, timeout=1)

    def stop(self) -> None:
        """Has run() or serve() end: from any thread."""
        self.stopping.set()
        self.wake()

    def raise_problem(self) -> None:
        if self.problem is not None:
            raise WorkerError(explain(self.problem)) from self.problem

    def run(self) -> None:
        """Works until stop(), and in the main thread until SIGTERM or SIGINT.

        Raises WorkerError if it cannot.
        """
        reading, writing = socket.socketpair()
        writing.setblocking(False)

        def wake() -> None:
            try:
                writing.send(b"\0")
            except OSError:
                pass            # it is awake, or has ended
        self.wake = wake
        before = {}
        if threading.current_thread() is threading.main_thread():
            # Any thread may be the one that is interrupted by a signal, and then this
            # one is not; but the number of the signal is written here whichever it is.
            wakeup = signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
            before = {number: signal.signal(number, lambda *_: None)
                      for number in (signal.SIGTERM, signal.SIGINT)}
            before_us.update({int(number): handler for number, handler in before.items()})
        try:
            self.start()
            while reading.recv(1)[0] not in (0, *before):
                pass            # a signal that is the application's
            self.end()
            if self.loop is not None:
                try:
                    asyncio.run_coroutine_threadsafe(self.end_coroutines(), self.loop).result(2)
                except concurrent.futures.TimeoutError:
                    pass        # one of them keeps the loop from all others
                self.loop.call_soon_threadsafe(self.loop.stop)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            if before:
                signal.set_wakeup_fd(wakeup)
                before_us.clear()
            reading.close()
            writing.close()
        self.raise_problem()

    async def serve(self) -> None:
        """The same in a running event loop, in which async handlers are run."""
        loop = self.loop = asyncio.get_running_loop()
        awake = asyncio.Event()
        self.wake = lambda: loop.call_soon_threadsafe(awake.set)
        signals = []
        if threading.current_thread() is threading.main_thread():
            signals = [signal.SIGTERM, signal.SIGINT]
        try:
            for number in signals:
                before_us[number] = signal.getsignal(number)
                loop.add_signal_handler(number, awake.set)
            self.start()
            await awake.wait()
        finally:
            # also if this is cancelled; and in no executor that handlers use up
            executor = concurrent.futures.ThreadPoolExecutor(1)
            await asyncio.shield(loop.run_in_executor(executor, self.end))
            executor.shutdown(wait=False)
            await self.end_coroutines()
            for number in signals:
                loop.remove_signal_handler(number)
                before_us.pop(number, None)
        self.raise_problem()

    def main(self) -> NoReturn:
        """run(), and the end of the process: status 0, or 1 and a line on stderr."""
        status = 0
        try:
            self.run()
        except WorkerError as error:
            print(f"worker: {error}", file=sys.stderr)
            status = 1
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)    # now, as the threads of what was released live on


def is_async(handler: Handler) -> bool:
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(handler, "__call__", None))


def text_of(error: BaseException) -> str:
    """What the server is to keep of it, which must have no zero bytes."""
    try:
        text = str(error)
    except Exception as raised:
        text = f"(its text could not be made: {type(raised).__name__})"
    if not isinstance(error, (Dead, NoHandler, Retry)):
        text = f"{type(error).__name__}: {text}"
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def explain(error: BaseException) -> str:
    """What is wrong, in one line."""
    if isinstance(error, psycopg.Error):
        text = error.diag.message_primary or str(error)
        if isinstance(error, psycopg.errors.InvalidSchemaName):
            text = "the database does not have the extension fairq"
        elif isinstance(error, (psycopg.errors.UndefinedFunction, psycopg.errors.UndefinedTable)):
            text += ": the extension fairq is older than this package"
        return " ".join(text.split())
    return f"{type(error).__name__}: {error}"
