"""A backend for Django's tasks: django.tasks of Django 6, or the package django-tasks.

    TASKS = {"default": {"BACKEND": "fairq.django.Backend", "QUEUES": ["mail"],
                         "OPTIONS": {"group": "shop.tenants.group_of"}}}

A task is enqueued in the transaction of Django's connection.  Its name is the path of the
function, and its payload has the arguments, so workers and producers in other languages
can use it.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import json
from datetime import datetime, timezone
from typing import Any, Awaitable, Callable, Dict, Iterator, List, Optional, Tuple

from asgiref.sync import async_to_sync
from django.db import connections
from django.utils.module_loading import import_string
from psycopg import pq
from psycopg.conninfo import make_conninfo

try:
    import django.tasks as tasks
    from django.tasks import base, exceptions, signals
    from django.tasks.backends.base import BaseTaskBackend
except ImportError:             # before Django 6
    import django_tasks as tasks
    from django_tasks import base, exceptions, signals
    from django_tasks.backends.base import BaseTaskBackend

from . import task as fairq_task
from .handler import is_async
from .producer import NO_GROUP, Group, enqueue, run, to_json
from .worker import Worker

# Django's priorities are from -100 to 100, the highest first; fairq's are from 0 to 9, the
# lowest first.
PRIORITIES = range(-100, 101)

STATUSES = {"running": "RUNNING", "completed": "SUCCESSFUL", "failed": "FAILED",
            "cancelled": "FAILED", "expired": "FAILED"}

COLUMNS = ("id, queue, status, attempt, worker, priority, payload::text, headers::text, result::text,"
           " error, attempt_log::text, enqueued_at, popped_at, finished_at")

chosen: contextvars.ContextVar[Optional[Group]] = contextvars.ContextVar("fairq group", default=None)


@contextlib.contextmanager
def group(group: Group) -> Iterator[None]:
    """Sets the group of the tasks that are enqueued in this context."""
    token = chosen.set(group)
    try:
        yield
    finally:
        chosen.reset(token)


class Backend(BaseTaskBackend):    # type: ignore[misc]
    """OPTIONS are

    group       a function of the task, its args and its kwargs that returns the group, or
                the function's path; without it, tasks need the context fairq.django.group()
    database    the alias of the database that has the extension
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def connection(self) -> Any:
        return connections[self.options.get("database", "default")]

    def group_of(self, task: Any, args: Any, kwargs: Any) -> Group:
        found = chosen.get()
        if found is None and "group" in self.options:
            rule = self.options["group"]
            function: Callable[..., Group] = import_string(rule) if isinstance(rule, str) else rule
            found = function(task, args, kwargs)
        return NO_GROUP if found is NO_GROUP else found or ""

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        self.validate_task(task)
        args, kwargs = json.loads(to_json([list(args), dict(kwargs)]))
        own: Dict[str, Any] = {"backend": self.alias}
        if args and kwargs:
            own["kwargs"] = kwargs
        id = enqueue(self.connection(), task.queue_name, self.group_of(task, args, kwargs),
                     args or kwargs, task=task.module_path, run_at=task.run_after,
                     priority=(PRIORITIES[-1] - task.priority) * 9 // (len(PRIORITIES) - 1),
                     headers={"django": own})
        result = self.made(task, str(id), "READY", args, kwargs, datetime.now(timezone.utc))
        signals.task_enqueued.send(type(self), task_result=result)
        return result

    def made(self, task: Any, id: str, status: str, args: List[Any], kwargs: Dict[str, Any],
             enqueued_at: datetime, started_at: Optional[datetime] = None,
             finished_at: Optional[datetime] = None, errors: Optional[List[Any]] = None,
             workers: Optional[List[str]] = None, kind: Any = base.TaskResult) -> Any:
        return kind(
            task=task, id=id, status=base.TaskResultStatus[status], enqueued_at=enqueued_at,
            started_at=started_at, last_attempted_at=started_at, finished_at=finished_at,
            args=args, kwargs=kwargs, backend=self.alias, errors=errors or [],
            worker_ids=workers or [])

    def get_result(self, result_id: str) -> Any:
        rows = run(self.connection(), (
            f"SELECT {COLUMNS} FROM fairq.tasks WHERE id = %s::text::bigint", (str(result_id),))) \
            if str(result_id).isdigit() else []
        if not rows:
            raise exceptions.TaskResultDoesNotExist(result_id)
        (id, queue, status, attempt, worker, _, payload, headers, value, error, log, enqueued_at,
         popped_at, finished_at) = rows[0]
        headers = fairq_task.decode("headers", headers) or {}
        problems: Dict[str, Exception] = {}
        args: List[Any] = []
        kwargs: Dict[str, Any] = {}
        returned = None
        try:
            args, kwargs = arguments(fairq_task.decode("payload", payload), headers)
        except (fairq_task.Undecodable, TypeError) as problem:
            problems.update(args=problem, kwargs=problem)
        try:
            returned = fairq_task.decode("result", value)
        except fairq_task.Undecodable as problem:
            problems.update(_return_value=problem)
        task = task_of(headers.get("task")).using(queue_name=queue, backend=self.alias)
        errors = [error_of(entry.get("error")) for entry in json.loads(log or "[]")]
        if status == "failed" and not errors:
            errors = [error_of(error)]
        result = self.made(task, str(id), STATUSES.get(status, "READY"), args, kwargs, enqueued_at,
                           popped_at, finished_at, errors, [worker or ""] * attempt,
                           kind=Unread if problems else base.TaskResult)
        object.__setattr__(result, "_return_value", returned)
        if problems:
            vars(result).update(problems)
        return result


class Unread(base.TaskResult):      # type: ignore[misc]
    """A result whose arguments or value cannot be read.  An access to them raises the
    error."""

    def __getattribute__(self, name: str) -> Any:
        problem = object.__getattribute__(self, "__dict__").get(name)
        if isinstance(problem, Exception):
            raise problem
        return super().__getattribute__(name)


def arguments(payload: Any, headers: Any) -> Tuple[List[Any], Dict[str, Any]]:
    own = headers.get("django") if isinstance(headers, dict) else None
    kwargs = own.get("kwargs") if isinstance(own, dict) else None
    if isinstance(payload, list):
        return payload, kwargs or {}
    if isinstance(payload, dict):
        return [], payload
    raise TypeError("the payload of a task of Django must be an object or an array")


def task_of(name: Optional[str]) -> Any:
    """The task of Django at the path.  The worker runs no other functions."""
    try:
        found = import_string(name or "")
    except ImportError as error:
        raise fairq_task.NoHandler(f"no handler for task {name}: {error}") from None
    if not isinstance(found, base.Task):
        raise fairq_task.NoHandler(f"no handler for task {name}: it is not a task of Django")
    return found


def error_of(text: Optional[str]) -> Any:
    """The error for a text that fairq has stored.

    The text begins with the name of the exception's class, without its module.
    """
    import builtins
    name = (text or "").split(":")[0]
    kind = getattr(builtins, name, None)
    if not (isinstance(kind, type) and issubclass(kind, BaseException)):
        name = "Exception"
    return base.TaskError(exception_class_path=f"builtins.{name}", traceback=text or "")


def conninfo_of(settings: Dict[str, Any]) -> str:
    """The connection string of one of Django's DATABASES."""
    known = {option.keyword.decode() for option in pq.Conninfo.get_defaults()}
    named = {"dbname": settings["NAME"], "user": settings["USER"], "password": settings["PASSWORD"],
             "host": settings["HOST"], "port": settings["PORT"]}
    more = {key: value for key, value in settings.get("OPTIONS", {}).items() if key in known}
    return make_conninfo(**{key: value for key, value in {**named, **more}.items() if value})


def worker(alias: str = "default", **settings: Any) -> Worker:
    """A worker for the tasks of a backend.  Settings are those of Worker."""
    backend = tasks.task_backends[alias]
    settings.setdefault("queues", sorted(backend.queues))
    settings.setdefault("databases", conninfo_of(backend.connection().settings_dict))
    made = Worker(**settings)

    @made.handler()
    def run_task(task: fairq_task.Task) -> Any:
        return call(backend, task, made.name)
    return made


def call(backend: Backend, task: fairq_task.Task, name: str) -> Any:
    found = task_of(task.name)
    args, kwargs = arguments(task.payload, task.headers)
    result = backend.made(found.using(queue_name=task.queue, backend=backend.alias), str(task.id),
                          "RUNNING", args, kwargs, task.enqueued_at, datetime.now(timezone.utc),
                          workers=[name] * task.attempt)
    signals.task_started.send(type(backend), task_result=result)
    context = [base.TaskContext(task_result=result)] if found.takes_context else []
    try:
        function = functools.partial(found.func, *context, *args, **kwargs)
        as_sync: Any = async_to_sync    # has no types in old versions
        value = json.loads(to_json(as_sync(wait_for)(task, function)
                                   if is_async(found.func) else function()))
    except Exception as error:
        if isinstance(error, fairq_task.Dead) or not (task.attempts_left or task.handed_back):
            object.__setattr__(result, "errors", [error_of(f"{type(error).__name__}: {error}")])
            finished(backend, result, "FAILED")
        raise
    object.__setattr__(result, "_return_value", value)
    finished(backend, result, "SUCCESSFUL")
    return value


async def wait_for(task: fairq_task.Task, function: Callable[[], Awaitable[Any]]) -> Any:
    """Awaits the function's coroutine, and cancels it when the task has to stop."""
    loop, me = asyncio.get_running_loop(), asyncio.current_task()
    assert me is not None
    cancel = me.cancel

    def stop() -> None:
        with contextlib.suppress(RuntimeError):     # the loop has ended
            loop.call_soon_threadsafe(cancel)
    task.stop_handler = stop
    try:
        task.check()
        return await function()
    except asyncio.CancelledError:
        task.check()
        raise
    finally:
        task.stop_handler = None


def finished(backend: Backend, result: Any, status: str) -> None:
    object.__setattr__(result, "finished_at", datetime.now(timezone.utc))
    object.__setattr__(result, "status", base.TaskResultStatus[status])
    signals.task_finished.send(type(backend), task_result=result)
