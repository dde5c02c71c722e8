"""A pool of processes for handlers: a crash ends one of them, with one task.

The standard library's pools do not fit: if a process dies, ProcessPoolExecutor fails all
of its calls, and multiprocessing.Pool loses the call.  So each slot has a process of
multiprocessing, and a pipe to it.

A process imports the application's modules (start method "spawn") and finds the handler
there by name.  It uses no connection of the worker.  The slot's thread in the worker
waits for the handler's end, and meanwhile saves the task's progress.  A thread of the
process reads the pipe.  So the process learns that the task has to stop, or that the
worker has ended.
"""

from __future__ import annotations

import atexit
import importlib
import json
import logging
import multiprocessing
import os
import pickle
import queue
import signal
import sys
import threading
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from .database import WorkerError
from .ends import own_text, text_of, text_with_stack
from .handler import arguments_of, close_old_connections
from .producer import to_json
from .task import Crashed, Dead, Retry, Stopped, Task, current

Place = Tuple[str, str]         # the module and the name of a handler

# seconds that an idle process has to run its exit handlers
TO_EXIT = 1

# the signals that end a worker
ENDING = signal.SIGTERM, signal.SIGINT

# attributes of a task that its process does not get, in addition to its shard
KEPT = "saving", "stop_handler", "end_process"

# multiprocessing keeps a list of processes without a lock
starting = threading.Lock()


def place_of(function: Callable[..., Any]) -> Place:
    """Where a process finds the handler.

    Raises WorkerError if a process cannot find it.
    """
    place = function.__module__, getattr(function, "__qualname__", "")
    try:
        found = at(place)
    except (ImportError, AttributeError):
        found = None
    if getattr(found, "function", found) is not function:
        raise WorkerError(f"processes cannot import the handler {place[1] or function!r} of module"
                          f" {place[0]}: it must be a function at the top of the module")
    return place


def at(place: Place) -> Any:
    found: Any = importlib.import_module(place[0])
    for part in place[1].split("."):
        found = getattr(found, part)
    return found


# ---- in the worker

@contextmanager
def deaf() -> Iterator[None]:
    """Blocks signals in this thread, and in a process that the thread starts.

    The process unblocks them in live().
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Process:
    """A process for the handlers of one slot."""

    def __init__(self, lease: float):
        self.sending = threading.Lock()
        self.killed = False
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=live, args=(theirs, lease, logging.getLogger().level),
                                       name="fairq handler")
        with starting, deaf():
            self.process.start()
        theirs.close()

    def wait_until_ready(self) -> None:
        try:
            self.connection.recv()
        except (EOFError, OSError):
            raise WorkerError(f"a process for handlers did not start: {self.fate()}") from None

    def run(self, task: Task, place: Place, named: bool) -> Any:
        """Runs the task's handler.  Returns its result, or raises its error."""
        state = {key: value for key, value in vars(task).items()
                 if key not in KEPT and value is not task.shard}
        task.stop_handler, task.end_process = lambda: self.stop(task), self.kill
        try:
            self.send("run", place, named, state)
            what, *args = self.listen(task)
        except (EOFError, OSError):
            raise Crashed(f"the process of the handler has ended: {self.fate()}") from None
        if what == "raised":
            raise rebuilt(*args)
        return json.loads(args[0])

    def listen(self, task: Task) -> Any:
        """Reads what the process sends, until the handler's end."""
        while True:
            what, *args = message = self.connection.recv()
            if what == "call":
                self.send("answer", *self.answer(task, *args))
            elif what == "note":
                vars(task).update(args[0])
            else:
                return message

    def answer(self, task: Task, function: str, args: Any, named: Any) -> Tuple[Any, Optional[str]]:
        try:
            return task.call(function, *args, **named), None
        except Exception as error:
            return None, own_text(error)

    def send(self, *message: Any) -> None:
        with self.sending:
            self.connection.send(message)

    def stop(self, task: Task) -> None:
        try:
            self.send("stop", task.id, task.attempt)
        except OSError:
            pass            # the process has ended

    def kill(self) -> None:
        self.killed = True
        self.process.kill()

    def fate(self) -> str:
        with starting:
            self.process.join(TO_EXIT)
        status = self.process.exitcode
        if status is None or status >= 0:
            return f"status {status}"
        try:
            return signal.Signals(-status).name
        except ValueError:
            return f"signal {-status}"

    def is_usable(self) -> bool:
        with starting:
            return not self.killed and self.process.is_alive()

    def close(self, idle: bool) -> None:
        """Ends the process.  An idle process runs its exit handlers."""
        if idle:
            self.connection.close()
            with starting:
                self.process.join(TO_EXIT)
        self.process.kill()
        with starting:
            self.process.join(TO_EXIT)


class Processes:
    """The processes of a worker.  A task gets an idle or a new process."""

    def __init__(self, lease: float):
        self.lease = lease
        self.lock = threading.Lock()
        self.idle: List[Process] = []
        self.all: List[Process] = []
        self.over = False
        atexit.register(self.end)       # runs before multiprocessing waits for the processes

    def take(self) -> Process:
        with self.lock:
            while self.idle:
                process = self.idle.pop()
                if process.is_usable():
                    return process
                self.all.remove(process)
            if self.over:
                raise Stopped
            process = Process(self.lease)
            self.all.append(process)
        process.wait_until_ready()
        return process

    def give(self, process: Process) -> None:
        with self.lock:
            if process.is_usable():
                self.idle.append(process)
            elif process in self.all:
                self.all.remove(process)

    def end(self) -> None:
        atexit.unregister(self.end)
        with self.lock:
            self.over = True
            ending, self.all = self.all, []
            idle, self.idle = self.idle, []
        for process in ending:
            process.close(process in idle)


def rebuilt(error: BaseException, text: str, whole: str) -> BaseException:
    """Returns an error that a process has sent, with the texts that the error
    had in that process."""
    error.fairq_texts = text, whole     # type: ignore[attr-defined]
    return error


# ---- in the process

def live(connection: Connection, lease: float, level: int) -> None:
    # The worker gets these signals, too, and gives handlers time to end.  The signal
    # handler is a function, because programs that a task starts would inherit SIG_IGN.
    for number in ENDING:
        signal.signal(number, lambda *_: None)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    if not logging.getLogger().handlers:
        logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    # The worker waits for the end of the pipe.  Processes that a handler starts may
    # outlive this process, so they must not inherit the pipe.
    if hasattr(os, "register_at_fork"):
        os.set_inheritable(connection.fileno(), False)
        os.register_at_fork(after_in_child=connection.close)
    Here(connection, lease).serve()


class Here:
    """Takes the place of a worker and its shard for a task in this process."""

    def __init__(self, connection: Connection, lease: float):
        self.connection, self.lease = connection, timedelta(seconds=lease)
        self.worker = self
        self.sending, self.calling = threading.Lock(), threading.Lock()
        self.todo: "queue.SimpleQueue[Any]" = queue.SimpleQueue()
        self.answers: "queue.SimpleQueue[Any]" = queue.SimpleQueue()
        self.task: Optional[Task] = None

    def serve(self) -> None:
        threading.Thread(target=self.read, daemon=True).start()
        self.send("ready")
        while True:
            todo = self.todo.get()
            if todo is None:
                return
            self.run(*todo)

    def read(self) -> None:
        try:
            while True:
                what, *args = self.connection.recv()
                task = self.task
                if what == "run":
                    place, named, state = args
                    self.task = TaskHere(self, state)
                    self.todo.put((place, named, self.task))
                elif what == "answer":
                    self.answers.put(args)
                elif task is not None and [task.id, task.attempt] == args:
                    task.stop()
        except (EOFError, OSError):
            self.todo.put(None)
            if self.task is not None:
                os._exit(1)         # the worker has ended, and another one runs the task

    def run(self, place: Place, named: bool, task: Task) -> None:
        token = current.set(task)
        close_old_connections()
        try:
            args, keywords = arguments_of(task, named)
            end: Tuple[Any, ...] = "returned", to_json(at(place)(*args, **keywords))
        except BaseException as error:
            end = "raised", portable(error), text_of(error), text_with_stack(error)
        close_old_connections()
        current.reset(token)
        self.task = None
        for stream in sys.stdout, sys.stderr:
            stream.flush()
        self.send(*end)

    def send(self, *message: Any) -> None:
        with self.sending:
            self.connection.send(message)

    def call(self, *message: Any) -> Any:
        with self.calling:
            self.send("call", *message)
            value, problem = self.answers.get()
        if problem is not None:
            raise RuntimeError(problem)
        return value


class TaskHere(Task):
    """The task of a handler in this process.

    The worker's Task has the same progress, and saves it if the attempt ends
    before the handler returns.
    """

    def __init__(self, here: Here, state: Dict[str, Any]):
        vars(self).update(state)
        self.shard: Any = here
        self.saving = threading.Lock()
        self.stop_handler = self.end_process = None

    def call(self, function: str, *args: Any, **named: Any) -> Any:
        return self.shard.call(function, args, named)

    def is_due(self, cursor: Any) -> bool:
        due = super().is_due(cursor)
        self.shard.send("note", {"cursor": self.cursor})
        return due

    def save(self, plain: Any, steps: Dict[str, Any]) -> None:
        super().save(plain, steps)
        # The message has the cursor twice, as one object, so that both
        # attributes in the worker are one object too.
        cursor = self.saved_cursor
        self.shard.send("note", {"plain": plain, "steps": steps, "cursor": cursor, "saved_cursor": cursor})

    def completes(self, mine: bool) -> None:
        super().completes(mine)
        self.shard.send("note", {"completed": True})


def portable(error: BaseException) -> BaseException:
    """The error, or one with the same effect if the error cannot be sent."""
    try:
        pickle.loads(pickle.dumps(error))
        return error
    except Exception:
        text = own_text(error)
    if isinstance(error, Retry):
        return Retry(error.delay, text)
    for kind in Dead, Stopped:
        if isinstance(error, kind):
            return kind(text)
    return RuntimeError(text)
