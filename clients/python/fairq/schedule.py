"""Schedules: all workers together add one task for each of the regular times.

Each worker that has a schedule enqueues a task at each of its times, by the server's clock.
The dedup_key contains the schedule's name and the time, so fairq adds only one
of these tasks. dedup_for keeps the key until no worker enqueues that time any
more.
"""

from __future__ import annotations

import logging
import math
import re
from datetime import datetime, timedelta, timezone, tzinfo
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Union

import psycopg

from .producer import Delay, Group, enqueue_statement, seconds

if TYPE_CHECKING:
    from .database import Database

log = logging.getLogger("fairq")

UNITS = {"s": 1, "sec": 1, "second": 1, "min": 60, "minute": 60, "h": 3600, "hour": 3600,
         "d": 86400, "day": 86400, "week": 604800}

# longest time in seconds between reads of the server's clock
TO_LOOK = 60

# seconds until a retry after an error
PROBLEM = 5

# the time for which a key stays taken in addition to catch_up
MARGIN = timedelta(minutes=5)

Times = Callable[[datetime, datetime], List[datetime]]


def interval_of(text: Union[str, Delay]) -> float:
    """The seconds of a text such as "5 min", a number or a timedelta."""
    if not isinstance(text, str):
        interval = seconds(text)
    else:
        match = re.fullmatch(r"\s*([0-9.]+)\s*([a-z]+?)s?\s*", text)
        if match is None or (match.group(2) or "s") not in UNITS:
            raise ValueError(f"no interval: {text!r}; examples are '30 s', '5 min', '1 hour', '1 day'")
        interval = float(match.group(1)) * UNITS[match.group(2)]
    if not interval >= 1:
        raise ValueError(f"an interval must be at least a second, and not {interval:g} s")
    return interval


def every(interval: float) -> Times:
    """The multiples of an interval since 1970."""
    def times(after: datetime, until: datetime) -> List[datetime]:
        first = math.floor(after.timestamp() / interval) + 1
        last = math.floor(until.timestamp() / interval)
        return [datetime.fromtimestamp(n * interval, timezone.utc) for n in range(first, last + 1)]
    return times


def zone_of(name: str) -> tzinfo:
    from zoneinfo import ZoneInfo       # zoneinfo exists in Python 3.9 or later
    return ZoneInfo(name)


def cron(line: str, zone: Union[str, tzinfo]) -> Times:
    """The times of a cron line in a time zone."""
    from cronsim import CronSim     # an optional dependency
    place = zone_of(zone) if isinstance(zone, str) else zone
    CronSim(line, datetime.now(place))      # raises an error if the line is wrong

    def times(after: datetime, until: datetime) -> List[datetime]:
        found = []
        for at in CronSim(line, after.astimezone(place)):
            if at > until:
                break
            found.append(at.astimezone(timezone.utc))
        return found
    return times


class Schedule:
    def __init__(self, name: str, task: str, queue: str, group: Group, payload: Any,
                 times: Times, catch_up: Delay):
        self.name, self.task, self.queue, self.group = name, task, queue, group
        self.payload, self.times = payload, times
        self.catch_up = timedelta(seconds=seconds(catch_up))
        self.seen: Optional[datetime] = None    # the times up to this one have their tasks

    def due(self, now: datetime) -> List[datetime]:
        """The times until now whose tasks have not been enqueued.  The first
        call returns only the last of these times."""
        after = now - self.catch_up
        if self.seen is None:
            return self.times(after, now)[-1:]
        return self.times(max(after, self.seen), now)

    def next_in(self, now: datetime) -> float:
        """The seconds until its next time, at most TO_LOOK."""
        soon = self.times(now, now + timedelta(seconds=TO_LOOK))
        return (soon[0] - now).total_seconds() if soon else TO_LOOK

    def enqueue(self, database: "Database", at: datetime) -> None:
        text = at.strftime("%Y-%m-%dT%H:%M:%SZ") if at.microsecond == 0 else at.isoformat()
        headers: Dict[str, Any] = {"schedule": self.name, "scheduled_at": text}
        sql, values = enqueue_statement(
            self.queue, self.group, self.payload, task=self.task, headers=headers,
            dedup_key=f"schedule {self.name} {text}", dedup_for=self.catch_up + MARGIN)
        # brief, since another transaction may hold the key, and the connection
        # also renews leases
        database.query(sql, *values, brief=True)


def tick(schedules: List[Schedule], database: "Database") -> float:
    """Enqueues the tasks that are due.  Returns the seconds until the next
    call."""
    try:
        [(epoch,)] = database.query("SELECT extract(epoch FROM clock_timestamp())::float8")
    except psycopg.Error as error:
        log.error("schedules: %s", error)
        return PROBLEM
    now = datetime.fromtimestamp(epoch, timezone.utc)
    return max(0.01, min(enqueue_due(schedule, database, now) for schedule in schedules))


def enqueue_due(schedule: Schedule, database: "Database", now: datetime) -> float:
    """Enqueues the due tasks of one schedule.  An error delays no other
    schedule."""
    try:
        for at in schedule.due(now):
            schedule.enqueue(database, at)
        schedule.seen = now
        return schedule.next_in(now)
    except Exception as error:      # this includes errors of the application's time zone
        log.error("schedule %s: %s", schedule.name, error)
        return PROBLEM
