"""fairq's functions for producers, in the caller's transaction.

A connection is one of

- psycopg 3 or 2, or another driver with cursors and %s for parameters;
- Django: django.db.connection;
- SQLAlchemy: a Connection or a Session;
- psycopg's AsyncConnection, or SQLAlchemy's AsyncConnection or AsyncSession, for the
  functions that begin with "a".

These functions do not commit.  The blocking and the asynchronous form of a call
are made from one function, which returns the SQL statement.
"""

from __future__ import annotations

import inspect
import json
import sys
from datetime import datetime, timedelta
from typing import (TYPE_CHECKING, Any, Awaitable, Callable, Dict, Iterable, List, Mapping, Optional,
                    Sequence, Tuple, TypeVar, Union)

if TYPE_CHECKING:
    from typing_extensions import Concatenate, ParamSpec
    P = ParamSpec("P")

R = TypeVar("R")
Delay = Union[timedelta, float, int]
After = Union[int, Sequence[int]]
Statement = Tuple[str, Tuple[Optional[str], ...]]


class NoGroup(str):
    """The empty group, for callers that intend it."""


NO_GROUP = NoGroup("")
Group = Union[str, int]

# Parameters are sent as text with a cast, so that all drivers behave the same.
CASTS = {"priority": "int", "run_at": "timestamptz", "dedup_key": "text",
         "max_attempts": "int", "cost": "real", "headers": "jsonb",
         "expires_at": "timestamptz", "replace": "boolean", "dedup_until": "text",
         "dedup_keys": "text[]", "costs": "real[]", "priorities": "int[]",
         "run_ats": "timestamptz[]", "batch": "bigint", "after": "bigint[]", "after_any": "boolean",
         "on_success": "boolean",
         "group_key": "text", "max_tasks": "int", "to_queue": "text", "to_priority": "int",
         "to_group": "text",
         # of queues
         "concurrency": "int", "max_running": "int", "lease": "interval", "backoff": "interval",
         "retain": "interval", "notify": "boolean", "block_length": "bigint", "fair_by": "text",
         "rate": "int", "per": "interval", "burst": "int", "max_rate": "int", "shares": "int[]",
         "in_order": "boolean", "retain_failed": "interval", "max_run_time": "interval",
         "backoff_max": "interval", "separator": "text", "if_not_exists": "boolean"}
TIMES = "run_at", "run_ats", "expires_at"
# arguments in seconds
DURATIONS = "delay", "dedup_for"
INTERVAL = "make_interval(secs => %s::text::float8)"


def seconds(duration: Delay) -> float:
    return duration.total_seconds() if isinstance(duration, timedelta) else float(duration)


# converts values that JSON does not have
json_default: Optional[Callable[[Any], Any]] = None


def set_json_default(default: Optional[Callable[[Any], Any]]) -> None:
    """Sets the function that converts values which JSON does not have, as `default` of json.dumps does.

    It applies to payloads, headers, results and progress in this process.
    """
    global json_default
    json_default = default


def to_json(value: Any) -> str:
    # NaN and infinite values fail here, before they reach the server.
    return json.dumps(value, allow_nan=False, default=json_default)


BeforeEnqueue = Callable[[str, Optional[str], List[Dict[str, Any]]], object]
before_enqueues: List[BeforeEnqueue] = []


def before_enqueue(hook: BeforeEnqueue) -> BeforeEnqueue:
    """Decorates a function that is called before each call that enqueues.

    The function's arguments are the queue, the name of the tasks, and their headers,
    which it may change.
    """
    before_enqueues.append(hook)
    return hook


def as_text(name: str, value: Any) -> Optional[str]:
    """A value as text for PostgreSQL; a list as an array."""
    if value is None:
        return None
    if isinstance(value, (list, tuple)):
        return "{" + ",".join(element(as_text(name, each)) for each in value) + "}"
    if name in TIMES:
        if not isinstance(value, datetime):
            raise TypeError(f"{name} must be a datetime, and not {value!r}")
        if value.utcoffset() is None:
            # the server would interpret it in its session's time zone
            raise ValueError(f"{name} must have a time zone: {value!r}")
        return value.isoformat()
    if isinstance(value, timedelta):
        return f"{value.total_seconds()} s"
    return str(value)


def element(text: Optional[str]) -> str:
    """An element of an array."""
    if text is None:
        return "NULL"
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def group_of(group: Group) -> str:
    """The group as text.  Refuses a missing group, which is most likely a mistake."""
    if group is None or group == "" and not isinstance(group, NoGroup):
        raise ValueError("the group must not be empty: it names whose task this is;"
                         " use fairq.NO_GROUP for an intended empty group")
    return str(group)


def named(options: Mapping[str, Any], parts: List[str], values: List[Optional[str]]) -> None:
    """Adds the arguments of a call that have values."""
    if options.get("delay") is not None and options.get("run_at") is not None:
        raise ValueError("delay and run_at cannot both be given")
    for name, value in options.items():
        if value is None:
            continue
        if name in DURATIONS:
            parts.append(f"{name} => {INTERVAL}")
            values.append(str(seconds(value)))
        else:
            parts.append(f"{name} => %s::text::{CASTS[name]}")
            values.append(as_text(name, value))


def headers_of(queue: str, task: Optional[str],
               headers: Sequence[Optional[Mapping[str, Any]]]) -> List[Optional[str]]:
    whole = [{**(one or {}), **({} if task is None else {"task": task})} for one in headers]
    for hook in before_enqueues:
        hook(queue, task, whole)
    return [to_json(one) if one else None for one in whole]


def listed(values: Optional[Sequence[Any]]) -> Optional[List[Any]]:
    return None if values is None else list(values)


def ids(after: Optional[After]) -> Optional[List[int]]:
    return [after] if isinstance(after, int) else listed(after)


def call(function: str, parts: Sequence[str], values: Sequence[Optional[str]],
         options: Mapping[str, Any]) -> Statement:
    parts, values = list(parts), list(values)
    named(options, parts, values)
    # no FROM where it is not necessary: see Database.query()
    columns = "* FROM " if function == "enqueue_or_find" else ""
    return f"SELECT {columns}fairq.{function}({', '.join(parts)})", tuple(values)


def call_by_id(function: str, id: int, options: Mapping[str, Any]) -> Statement:
    return call(function, ["%s::text::bigint"], [str(int(id))], options)


def call_with_payload(function: str, queue: str, group: Group, payload: Any, task: Optional[str],
                      headers: Optional[Mapping[str, Any]], options: Mapping[str, Any]) -> Statement:
    return call(function, ["%s::text", "%s::text", "%s::text::jsonb"],
                [queue, group_of(group), to_json({} if payload is None else payload)],
                {**options, "headers": headers_of(queue, task, [headers])[0]})


# ---- statements

def enqueue_statement(queue: str, group: Group, payload: Any = None, *,
                      task: Optional[str] = None, delay: Optional[Delay] = None,
                      run_at: Optional[datetime] = None, priority: Optional[int] = None,
                      dedup_key: Optional[str] = None, max_attempts: Optional[int] = None,
                      cost: Optional[float] = None, headers: Optional[Mapping[str, Any]] = None,
                      expires_at: Optional[datetime] = None, replace: Optional[bool] = None,
                      dedup_until: Optional[str] = None, dedup_for: Optional[Delay] = None,
                      batch: Optional[int] = None, after: Optional[After] = None,
                      after_any: Optional[bool] = None) -> Statement:
    """Adds a task for the group, and returns its id.

    task is the name of the handler, and payload has its arguments: a dict of named ones,
    or a list of positional ones.  after has the ids of tasks that must succeed
    first, or with after_any must end first.
    """
    options = dict(delay=delay, run_at=run_at, priority=priority, dedup_key=dedup_key,
                   max_attempts=max_attempts, cost=cost, expires_at=expires_at,
                   replace=replace, dedup_until=dedup_until, dedup_for=dedup_for, batch=batch,
                   after=ids(after), after_any=after_any)
    return call_with_payload("enqueue", queue, group, payload, task, headers, options)


def enqueue_or_find_statement(queue: str, group: Group, payload: Any = None, *,
                              dedup_key: str, task: Optional[str] = None,
                              delay: Optional[Delay] = None, run_at: Optional[datetime] = None,
                              priority: Optional[int] = None, max_attempts: Optional[int] = None,
                              cost: Optional[float] = None,
                              headers: Optional[Mapping[str, Any]] = None,
                              expires_at: Optional[datetime] = None,
                              replace: Optional[bool] = None, dedup_until: Optional[str] = None,
                              dedup_for: Optional[Delay] = None,
                              batch: Optional[int] = None, after: Optional[After] = None,
                              after_any: Optional[bool] = None) -> Statement:
    """Like enqueue_statement(), but also returns whether the task is new."""
    options = dict(delay=delay, run_at=run_at, priority=priority, dedup_key=dedup_key,
                   max_attempts=max_attempts, cost=cost, expires_at=expires_at,
                   replace=replace, dedup_until=dedup_until, dedup_for=dedup_for, batch=batch,
                   after=ids(after), after_any=after_any)
    return call_with_payload("enqueue_or_find", queue, group, payload, task, headers, options)


def enqueue_batch_statement(queue: str, groups: Sequence[Group], payloads: Sequence[Any], *,
                            task: Optional[str] = None, delay: Optional[Delay] = None,
                            run_at: Optional[datetime] = None, priority: Optional[int] = None,
                            run_ats: Optional[Sequence[datetime]] = None,
                            priorities: Optional[Sequence[int]] = None,
                            dedup_keys: Optional[Sequence[Optional[str]]] = None,
                            costs: Optional[Sequence[float]] = None,
                            headers: Optional[Sequence[Optional[Mapping[str, Any]]]] = None,
                            expires_at: Optional[datetime] = None,
                            batch: Optional[int] = None, after: Optional[After] = None,
                            after_any: Optional[bool] = None) -> Statement:
    """Adds all tasks or none in one call, and returns their ids in the same order."""
    if isinstance(groups, str) or isinstance(payloads, (str, Mapping)):
        raise TypeError("groups and payloads of a batch must be lists")
    whole = headers_of(queue, task, [None] * len(payloads) if headers is None else headers)
    options = dict(delay=delay, run_at=run_at, priority=priority, run_ats=listed(run_ats),
                   priorities=listed(priorities), dedup_keys=listed(dedup_keys),
                   costs=listed(costs), expires_at=expires_at, batch=batch, after=ids(after),
                   after_any=after_any)
    parts = ["%s::text", "%s::text::text[]", "%s::text::jsonb[]"]
    values = [queue, as_text("groups", [group_of(group) for group in groups]),
              as_text("payloads", [to_json(payload) for payload in payloads])]
    if any(whole) or headers is not None:
        parts.append("headers => %s::text::jsonb[]")
        values.append(as_text("headers", whole))
    return call("enqueue_batch", parts, values, options)


def create_batch_statement(queue: str, group: Group, payload: Any = None, *,
                           task: Optional[str] = None, on_success: Optional[bool] = None,
                           priority: Optional[int] = None, max_attempts: Optional[int] = None,
                           headers: Optional[Mapping[str, Any]] = None,
                           batch: Optional[int] = None) -> Statement:
    """Adds a task that runs once all tasks of a new batch have ended.

    Returns the id, which is the same for the task and the batch: enqueue()
    takes it as batch.  With on_success, the task fails if a task of the batch
    does not succeed.
    """
    options = dict(on_success=on_success, priority=priority, max_attempts=max_attempts, batch=batch)
    return call_with_payload("create_batch", queue, group, payload, task, headers, options)


def close_batch_statement(batch: int) -> Statement:
    """Closes the batch to further tasks.  Returns False if it is closed or unknown."""
    return call_by_id("close_batch", batch, {})


def cancel_batch_statement(batch: int) -> Statement:
    """Closes the batch, and cancels its tasks that are not running.  Returns how many it
    cancelled."""
    return call_by_id("cancel_batch", batch, {})


def cancel_statement(id: int) -> Statement:
    """Cancels a task, or asks a running one to stop.  Returns False if it is finished."""
    return call_by_id("cancel", id, {})


def find_statement(queue: str, dedup_key: str) -> Statement:
    """The id of the unfinished task with the key, or None."""
    return call("find", ["%s::text", "%s::text"], [queue, dedup_key], {})


def reschedule_statement(id: int, *, run_at: Optional[datetime] = None,
                         delay: Optional[Delay] = None) -> Statement:
    """Moves a task that is not running to another time, by default to now.

    Returns False if the task is running, finished or unknown.
    """
    if delay is None:
        return call_by_id("reschedule", id, dict(run_at=run_at))
    if run_at is not None:
        raise ValueError("delay and run_at cannot both be given")
    return call("reschedule", ["%s::text::bigint", f"clock_timestamp() + {INTERVAL}"],
                [str(int(id)), str(seconds(delay))], {})


def redrive_statement(queue: str, group: Optional[Group] = None, *,
                      max_tasks: Optional[int] = None, to_queue: Optional[str] = None,
                      to_priority: Optional[int] = None,
                      to_group: Optional[Group] = None) -> Statement:
    """Enqueues failed tasks again: those of the queue, or of a group.  Returns
    their number."""
    return call("redrive", ["%s::text"], [queue], dict(
        group_key=group, max_tasks=max_tasks, to_queue=to_queue, to_priority=to_priority,
        to_group=to_group))


def redrive_task_statement(id: int, *, to_queue: Optional[str] = None,
                           to_priority: Optional[int] = None,
                           to_group: Optional[Group] = None) -> Statement:
    """Enqueues a failed task again.  Returns False if it has not failed, or its key is taken."""
    return call_by_id("redrive", id, dict(to_queue=to_queue, to_priority=to_priority,
                                          to_group=to_group))


def queue_statements(queues: Mapping[str, Mapping[str, Any]]) -> List[Statement]:
    statements = []
    for queue, settings in queues.items():
        unknown = [name for name in settings if name not in CASTS]
        if unknown:
            raise TypeError(f"queue {queue} has unknown settings: {', '.join(unknown)}")
        changes = {name: value for name, value in settings.items() if name != "separator"}
        statements.append(call("create_queue", ["%s::text"], [queue],
                               {**settings, "if_not_exists": True}))
        if changes:
            statements.append(call("alter_queue", ["%s::text"], [queue], changes))
    return statements


def separators_of(queues: Mapping[str, Mapping[str, Any]]) -> Dict[str, str]:
    """The separators that the settings name."""
    return {queue: settings["separator"] for queue, settings in queues.items()
            if settings.get("separator") is not None}


def separators_statement(queues: Iterable[str]) -> Statement:
    return ("SELECT queue, separator FROM fairq.queues WHERE queue = ANY (%s::text::text[])",
            (as_text("queues", list(queues)),))


def check_separators(wanted: Mapping[str, str], rows: List[List[Any]]) -> None:
    """The separator of an existing queue must be the same, since it cannot be changed."""
    for queue, separator in rows:
        if separator != wanted[queue]:
            raise ValueError(
                f"the queue {queue} has the separator {separator}, which cannot be changed")


# ---- calls

def run(connection: Any, statement: Statement) -> List[List[Any]]:
    """The rows that a statement returns, in the caller's transaction."""
    if callable(getattr(connection, "get_bind", None)):         # an SQLAlchemy Session
        connection = connection.connection()
    if hasattr(connection, "exec_driver_sql"):                  # its Connection
        # not the driver's own SQL, since each driver marks parameters in its own way
        text = sys.modules["sqlalchemy"].text
        sql, values = statement
        parts = sql.split("%s")
        marked = "".join(f"{part}(:p{n})" for n, part in enumerate(parts[:-1])) + parts[-1]
        return [list(row) for row in connection.execute(
            text(marked), {f"p{n}": value for n, value in enumerate(values)})]
    cursor = connection.cursor()
    try:
        cursor.execute(*statement)
        # psycopg makes rows with the connection's row factory
        return [columns(row) for row in cursor.fetchall()]
    finally:
        cursor.close()


async def arun(connection: Any, statement: Statement) -> List[List[Any]]:
    if hasattr(connection, "run_sync"):                         # SQLAlchemy
        found: List[List[Any]] = await connection.run_sync(run, statement)
        return found
    async with connection.cursor() as cursor:
        await cursor.execute(*statement)
        return [columns(row) for row in await cursor.fetchall()]


def columns(row: Any) -> List[Any]:
    if isinstance(row, Mapping):
        return list(row.values())
    try:
        return list(row)
    except TypeError:           # an object of the caller's own class
        return list(vars(row).values())


def fetch(connection: Any, statement: Statement) -> List[Any]:
    """The first column of a statement's rows."""
    return [row[0] for row in run(connection, statement)]


async def afetch(connection: Any, statement: Statement) -> List[Any]:
    return [row[0] for row in await arun(connection, statement)]


def describe(function: Callable[..., Any], statement: Callable[..., Statement],
             result: Callable[..., Any], prefix: str, note: str) -> None:
    """Gives a call the name, the arguments and the description of its statement."""
    arguments = inspect.signature(statement)
    returns = inspect.signature(result).return_annotation
    connection = inspect.Parameter("connection", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    function.__signature__ = arguments.replace(     # type: ignore[attr-defined]
        parameters=[connection, *arguments.parameters.values()], return_annotation=returns)
    name = statement.__name__[:-len("_statement")]
    function.__name__ = function.__qualname__ = prefix + name
    function.__doc__ = f"{inspect.getdoc(statement)}\n\n{note}"


def blocking(statement: Callable[P, Statement], result: Callable[[List[List[Any]]], R],
             ) -> Callable[Concatenate[Any, P], R]:
    def function(connection: Any, *args: P.args, **named: P.kwargs) -> R:
        return result(run(connection, statement(*args, **named)))
    describe(function, statement, result, "", "Runs in the connection's transaction.")
    return function     # type: ignore[return-value]    # the connection may be named


def asynchronous(statement: Callable[P, Statement], result: Callable[[List[List[Any]]], R],
                 ) -> Callable[Concatenate[Any, P], Awaitable[R]]:
    async def function(connection: Any, *args: P.args, **named: P.kwargs) -> R:
        return result(await arun(connection, statement(*args, **named)))
    describe(function, statement, result, "a", "Runs in an asynchronous connection's transaction.")
    return function     # type: ignore[return-value]


def one_int(rows: List[List[Any]]) -> int:
    return int(rows[0][0])


def one_bool(rows: List[List[Any]]) -> bool:
    return bool(rows[0][0])


def int_or_none(rows: List[List[Any]]) -> Optional[int]:
    return None if rows[0][0] is None else int(rows[0][0])


def all_ints(rows: List[List[Any]]) -> List[int]:
    return [int(row[0]) for row in rows]


def int_and_bool(rows: List[List[Any]]) -> Tuple[int, bool]:
    return int(rows[0][0]), bool(rows[0][1])


enqueue = blocking(enqueue_statement, one_int)
aenqueue = asynchronous(enqueue_statement, one_int)
enqueue_batch = blocking(enqueue_batch_statement, all_ints)
aenqueue_batch = asynchronous(enqueue_batch_statement, all_ints)
enqueue_or_find = blocking(enqueue_or_find_statement, int_and_bool)
aenqueue_or_find = asynchronous(enqueue_or_find_statement, int_and_bool)
find = blocking(find_statement, int_or_none)
afind = asynchronous(find_statement, int_or_none)
reschedule = blocking(reschedule_statement, one_bool)
areschedule = asynchronous(reschedule_statement, one_bool)
cancel = blocking(cancel_statement, one_bool)
acancel = asynchronous(cancel_statement, one_bool)
create_batch = blocking(create_batch_statement, one_int)
acreate_batch = asynchronous(create_batch_statement, one_int)
close_batch = blocking(close_batch_statement, one_bool)
aclose_batch = asynchronous(close_batch_statement, one_bool)
cancel_batch = blocking(cancel_batch_statement, one_int)
acancel_batch = asynchronous(cancel_batch_statement, one_int)
redrive = blocking(redrive_statement, one_int)
aredrive = asynchronous(redrive_statement, one_int)
redrive_task = blocking(redrive_task_statement, one_bool)
aredrive_task = asynchronous(redrive_task_statement, one_bool)


def ensure_queues(connection: Any, queues: Mapping[str, Mapping[str, Any]]) -> None:
    """Creates missing queues and changes the given settings of existing queues.

    In the connection's transaction.  ValueError: an existing queue has another separator.
    """
    for statement in queue_statements(queues):
        run(connection, statement)
    wanted = separators_of(queues)
    if wanted:
        check_separators(wanted, run(connection, separators_statement(wanted)))


async def aensure_queues(connection: Any, queues: Mapping[str, Mapping[str, Any]]) -> None:
    """Like ensure_queues(), on an asynchronous connection."""
    for statement in queue_statements(queues):
        await arun(connection, statement)
    wanted = separators_of(queues)
    if wanted:
        check_separators(wanted, await arun(connection, separators_statement(wanted)))
