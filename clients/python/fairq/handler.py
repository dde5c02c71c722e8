"""Handlers.  The enqueue() of a handler takes the handler's arguments."""

from __future__ import annotations

import functools
import inspect
import logging
import sys
from typing import TYPE_CHECKING, Any, Callable, Dict, Generic, Optional, Sequence, Tuple, TypeVar

from .producer import Group, acreate_batch, aenqueue, create_batch, enqueue
from .task import Task

if TYPE_CHECKING:
    from typing_extensions import ParamSpec
    P = ParamSpec("P")
    R_co = TypeVar("R_co", covariant=True)

    class OfArguments(Generic[P]):
        pass

    class OfFunction(Generic[P, R_co]):
        pass
else:
    # typing has no ParamSpec before Python 3.10
    class Subscriptable:
        def __class_getitem__(cls, parameters):
            return cls

    P = R_co = None
    OfArguments = OfFunction = Subscriptable


log = logging.getLogger("fairq")


class Enqueuing(OfArguments[P]):
    """Enqueues tasks for a handler, with options of fairq.enqueue().

    Arguments that the handler does not take raise TypeError.
    """

    def __init__(self, function: Callable[P, Any], name: str, queue: str,
                 options: Dict[str, Any]):
        self.signature = inspect.signature(function)
        self.name, self.queue, self.more = name, queue, options

    def payload(self, args: Any, named: Dict[str, Any]) -> Any:
        self.signature.bind(*args, **named)
        if not args:
            return named
        if not named:
            return list(args)
        parameters = list(self.signature.parameters.values())[:len(args)]
        if any(parameter.kind != parameter.POSITIONAL_OR_KEYWORD for parameter in parameters):
            raise TypeError(f"arguments of task {self.name} that have no names, together with others"
                            " that have")
        return {**dict(zip((parameter.name for parameter in parameters), args)), **named}

    def enqueue(self, connection: Any, group: Group, /, *args: P.args, **named: P.kwargs) -> int:
        """Adds a task for the group in the connection's transaction, and returns its id."""
        return enqueue(connection, self.queue, group, self.payload(args, named), task=self.name,
                       **self.more)

    async def aenqueue(self, connection: Any, group: Group, /, *args: P.args,
                       **named: P.kwargs) -> int:
        """Like enqueue(), on an asynchronous connection."""
        return await aenqueue(connection, self.queue, group, self.payload(args, named),
                              task=self.name, **self.more)

    def create_batch(self, connection: Any, group: Group, /, *args: P.args,
                     **named: P.kwargs) -> int:
        """Adds a task that waits for the tasks of a new batch, and returns the batch's id."""
        return create_batch(connection, self.queue, group, self.payload(args, named),
                            task=self.name, **self.more)

    async def acreate_batch(self, connection: Any, group: Group, /, *args: P.args,
                            **named: P.kwargs) -> int:
        """Like create_batch(), on an asynchronous connection."""
        return await acreate_batch(connection, self.queue, group, self.payload(args, named),
                                   task=self.name, **self.more)


class Handler(OfFunction[P, R_co]):
    """A function that runs the tasks of one name.  Code can also call the function
    directly."""

    def __init__(self, function: Callable[P, R_co], name: str, queue: str,
                 timeout: Optional[float]):
        self.function, self.name, self.queue, self.timeout = function, name, queue, timeout
        plain = self.options()
        self.enqueue, self.aenqueue = plain.enqueue, plain.aenqueue
        self.create_batch, self.acreate_batch = plain.create_batch, plain.acreate_batch
        functools.update_wrapper(self, function)

    def __call__(self, *args: P.args, **named: P.kwargs) -> R_co:
        return self.function(*args, **named)

    def options(self, *, queue: Optional[str] = None, **options: Any) -> Enqueuing[P]:
        """Returns the calls that enqueue tasks for the handler, with this queue and
        these options.

        Options are arguments of fairq.enqueue() or fairq.create_batch().
        """
        return Enqueuing(self.function, self.name, queue or self.queue, options)


def arguments_of(task: Task, named: bool) -> Tuple[Sequence[Any], Dict[str, Any]]:
    """The arguments for a handler of the task's name, or for the handler of all other
    tasks."""
    if not named:
        return (task,), {}
    if isinstance(task.payload, dict):
        return (), task.payload
    if isinstance(task.payload, list):
        return task.payload, {}
    raise TypeError(f"the payload of task {task.name} must be an object or an array")


def is_async(handler: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(handler, "__call__", None))


def close_old_connections() -> None:
    """Closes Django's old connections of this thread, as Django does around
    each request.
    """
    conf, db = sys.modules.get("django.conf"), sys.modules.get("django.db")
    if conf is None or db is None or not conf.settings.configured:
        return
    try:
        db.close_old_connections()
    except Exception:
        log.exception("close_old_connections()")
