"""Enqueueing and cancelling, in the caller's transaction.

A connection is one of

- psycopg 3 or 2, or another driver with cursors and %s for parameters;
- Django: django.db.connection;
- SQLAlchemy: a Connection or a Session;
- psycopg's AsyncConnection, or SQLAlchemy's AsyncConnection or AsyncSession, for the
  functions that begin with "a".

These functions do not commit.
"""

from __future__ import annotations

import json
import sys
from datetime import datetime, timedelta
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

Delay = Union[timedelta, float, int]
Statement = Tuple[str, Tuple[Optional[str], ...]]


class NoGroup(str):
    """The empty group, if it is intended."""


NO_GROUP = NoGroup("")
Group = Union[str, int]

# Parameters are sent as text with a cast, so that all drivers behave the same.
CASTS = {"priority": "int", "run_at": "timestamptz", "dedup_key": "text",
         "max_attempts": "int", "cost": "real", "headers": "jsonb",
         "expires_at": "timestamptz", "replace": "boolean", "dedup_until": "text",
         "dedup_keys": "text[]", "costs": "real[]", "priorities": "int[]",
         "run_ats": "timestamptz[]"}
TIMES = "run_at", "run_ats", "expires_at"
# Arguments in seconds.  A delay is added to the server's clock.
INTERVAL = "make_interval(secs => %s::text::float8)"
DURATIONS = {"delay": f"run_at => clock_timestamp() + {INTERVAL}",
             "dedup_for": f"dedup_for => {INTERVAL}"}


def seconds(duration: Delay) -> float:
    return duration.total_seconds() if isinstance(duration, timedelta) else float(duration)


def to_json(value: Any) -> str:
    # Values that JSON does not have, such as NaN, fail here and not on the server.
    return json.dumps(value, allow_nan=False)


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
            # the server would take it for its session's time zone
            raise ValueError(f"{name} must have a time zone: {value!r}")
        return value.isoformat()
    return str(value)


def element(text: Optional[str]) -> str:
    """An element of an array."""
    if text is None:
        return "NULL"
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def group_of(group: Group) -> str:
    """The group as text.  A missing group is most likely a mistake."""
    if group is None or group == "" and not isinstance(group, NoGroup):
        raise ValueError("the group must not be empty: it names whose task this is;"
                         " use fairq.NO_GROUP for an intended empty group")
    return str(group)


def named(options: Mapping[str, Any], parts: List[str], values: List[Optional[str]]) -> None:
    """Adds those arguments of a call that were given."""
    if options.get("delay") is not None and options.get("run_at") is not None:
        raise ValueError("delay and run_at cannot both be given")
    for name, value in options.items():
        if value is None:
            continue
        if name in DURATIONS:
            parts.append(DURATIONS[name])
            values.append(str(seconds(value)))
        else:
            parts.append(f"{name} => %s::text::{CASTS[name]}")
            values.append(as_text(name, value))


def headers_of(task: Optional[str], headers: Optional[Mapping[str, Any]]) -> Optional[str]:
    whole: Dict[str, Any] = dict(headers or {})
    if task is not None:
        whole["task"] = task
    return to_json(whole) if whole else None


def enqueue_statement(queue: str, group: Group, payload: Any, task: Optional[str],
                      headers: Optional[Mapping[str, Any]], options: Mapping[str, Any]) -> Statement:
    parts = ["%s::text", "%s::text", "%s::text::jsonb"]
    values: List[Optional[str]] = [queue, group_of(group), to_json({} if payload is None else payload)]
    named({**options, "headers": headers_of(task, headers)}, parts, values)
    return f"SELECT fairq.enqueue({', '.join(parts)})", tuple(values)


def batch_statement(queue: str, groups: Sequence[Group], payloads: Sequence[Any],
                    task: Optional[str], headers: Optional[Sequence[Optional[Mapping[str, Any]]]],
                    options: Mapping[str, Any]) -> Statement:
    if isinstance(groups, str) or isinstance(payloads, (str, Mapping)):
        raise TypeError("groups and payloads of a batch must be lists")
    parts = ["%s::text", "%s::text::text[]", "%s::text::jsonb[]"]
    payloads = [to_json(payload) for payload in payloads]
    values = [queue, as_text("groups", [group_of(group) for group in groups]),
              as_text("payloads", payloads)]
    named(options, parts, values)
    if task is not None or headers is not None:
        each = headers if headers is not None else [None] * len(payloads)
        parts.append("headers => %s::text::jsonb[]")
        values.append(as_text("headers", [headers_of(task, one) for one in each]))
    return f"SELECT * FROM fairq.enqueue_batch({', '.join(parts)})", tuple(values)


def fetch(connection: Any, statement: Statement) -> List[Any]:
    """The first column of what a statement returns, in the caller's transaction."""
    if callable(getattr(connection, "get_bind", None)):         # an SQLAlchemy Session
        connection = connection.connection()
    if hasattr(connection, "exec_driver_sql"):                  # its Connection
        # not the driver's own SQL, since each driver marks parameters in its own way
        text = sys.modules["sqlalchemy"].text
        sql, values = statement
        parts = sql.split("%s")
        marked = "".join(f"{part}(:p{n})" for n, part in enumerate(parts[:-1])) + parts[-1]
        return [row[0] for row in connection.execute(
            text(marked), {f"p{n}": value for n, value in enumerate(values)})]
    cursor = connection.cursor()
    try:
        cursor.execute(*statement)
        # psycopg makes rows with the connection's row factory
        return [first(row) for row in cursor.fetchall()]
    finally:
        cursor.close()


async def afetch(connection: Any, statement: Statement) -> List[Any]:
    if hasattr(connection, "run_sync"):                         # SQLAlchemy
        found: List[Any] = await connection.run_sync(fetch, statement)
        return found
    async with connection.cursor() as cursor:
        await cursor.execute(*statement)
        return [first(row) for row in await cursor.fetchall()]


def first(row: Any) -> Any:
    if isinstance(row, Mapping):
        return next(iter(row.values()))
    try:
        return row[0]
    except TypeError:           # an object of the caller's own
        return next(iter(vars(row).values()))


def enqueue(connection: Any, queue: str, group: Group, payload: Any = None, *,
            task: Optional[str] = None, delay: Optional[Delay] = None,
            run_at: Optional[datetime] = None, priority: Optional[int] = None,
            dedup_key: Optional[str] = None, max_attempts: Optional[int] = None,
            cost: Optional[float] = None, headers: Optional[Mapping[str, Any]] = None,
            expires_at: Optional[datetime] = None, replace: Optional[bool] = None,
            dedup_until: Optional[str] = None, dedup_for: Optional[Delay] = None) -> int:
    """Adds a task for the group in the connection's transaction, and returns its id.

    task is the name of the handler, and payload has its arguments: a dict of named ones,
    or a list of positional ones.
    """
    options = dict(delay=delay, run_at=run_at, priority=priority, dedup_key=dedup_key,
                   max_attempts=max_attempts, cost=cost, expires_at=expires_at,
                   replace=replace, dedup_until=dedup_until, dedup_for=dedup_for)
    id, = fetch(connection, enqueue_statement(queue, group, payload, task, headers, options))
    return int(id)


async def aenqueue(connection: Any, queue: str, group: Group, payload: Any = None, *,
                   task: Optional[str] = None, delay: Optional[Delay] = None,
                   run_at: Optional[datetime] = None, priority: Optional[int] = None,
                   dedup_key: Optional[str] = None, max_attempts: Optional[int] = None,
                   cost: Optional[float] = None, headers: Optional[Mapping[str, Any]] = None,
                   expires_at: Optional[datetime] = None, replace: Optional[bool] = None,
                   dedup_until: Optional[str] = None,
                   dedup_for: Optional[Delay] = None) -> int:
    """The same on an asynchronous connection."""
    options = dict(delay=delay, run_at=run_at, priority=priority, dedup_key=dedup_key,
                   max_attempts=max_attempts, cost=cost, expires_at=expires_at,
                   replace=replace, dedup_until=dedup_until, dedup_for=dedup_for)
    id, = await afetch(connection, enqueue_statement(
        queue, group, payload, task, headers, options))
    return int(id)


def enqueue_batch(connection: Any, queue: str, groups: Sequence[Group], payloads: Sequence[Any], *,
                  task: Optional[str] = None, delay: Optional[Delay] = None,
                  run_at: Optional[datetime] = None, priority: Optional[int] = None,
                  run_ats: Optional[Sequence[datetime]] = None,
                  priorities: Optional[Sequence[int]] = None,
                  dedup_keys: Optional[Sequence[Optional[str]]] = None,
                  costs: Optional[Sequence[float]] = None,
                  headers: Optional[Sequence[Optional[Mapping[str, Any]]]] = None,
                  expires_at: Optional[datetime] = None) -> List[int]:
    """Adds all tasks or none in one call, and returns their ids in the same order."""
    options = dict(delay=delay, run_at=run_at, priority=priority, run_ats=listed(run_ats),
                   priorities=listed(priorities), dedup_keys=listed(dedup_keys),
                   costs=listed(costs), expires_at=expires_at)
    return fetch(connection, batch_statement(queue, groups, payloads, task, headers, options))


async def aenqueue_batch(connection: Any, queue: str, groups: Sequence[str],
                         payloads: Sequence[Any], *, task: Optional[str] = None,
                         delay: Optional[Delay] = None, run_at: Optional[datetime] = None,
                         priority: Optional[int] = None,
                         run_ats: Optional[Sequence[datetime]] = None,
                         priorities: Optional[Sequence[int]] = None,
                         dedup_keys: Optional[Sequence[Optional[str]]] = None,
                         costs: Optional[Sequence[float]] = None,
                         headers: Optional[Sequence[Optional[Mapping[str, Any]]]] = None,
                         expires_at: Optional[datetime] = None) -> List[int]:
    """The same on an asynchronous connection."""
    options = dict(delay=delay, run_at=run_at, priority=priority, run_ats=listed(run_ats),
                   priorities=listed(priorities), dedup_keys=listed(dedup_keys),
                   costs=listed(costs), expires_at=expires_at)
    return await afetch(connection, batch_statement(queue, groups, payloads, task, headers, options))


def cancel(connection: Any, id: int) -> bool:
    """Cancels a task; a running one is asked to stop.  False: it is finished already."""
    return bool(fetch(connection, ("SELECT fairq.cancel(%s::text::bigint)", (str(int(id)),)))[0])


async def acancel(connection: Any, id: int) -> bool:
    """The same on an asynchronous connection."""
    return bool((await afetch(connection, ("SELECT fairq.cancel(%s::text::bigint)", (str(int(id)),))))[0])


def listed(values: Optional[Sequence[Any]]) -> Optional[List[Any]]:
    return None if values is None else list(values)
