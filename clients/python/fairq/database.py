"""Connections that are made anew, and statements that end whatever becomes of the server."""

from __future__ import annotations

import logging
import math
import os
import re
import socket
import threading
import time
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

import psycopg
from psycopg.adapt import Loader
from psycopg.conninfo import conninfo_to_dict

log = logging.getLogger("fairq")

# What a new connection may mend; read-only is a server that was the primary, or a
# shard that is being moved.
LOST = psycopg.OperationalError, psycopg.errors.ReadOnlySqlTransaction

# Another transaction holds what a statement needs; or it was cancelled, by a
# statement_timeout or somebody.
HELD = psycopg.errors.LockNotAvailable, psycopg.errors.QueryCanceled

# It exceeds a limit of PostgreSQL, which is as it is however often it is tried.
TOO_LARGE = (psycopg.errors.ProgramLimitExceeded, psycopg.errors.StatementTooComplex)

# seconds until that is tried again, and for which others are likely to be held, too
HELD_PAUSE, HELD_LATELY = 0.5, 2

# seconds for which fairq.wait sleeps
WAIT = 30

# A host may vanish without a word.  The kernel finds out while something was sent, or
# by keepalives; behind a proxy only the limit of a statement does.
NETWORK: Dict[str, Any] = {"keepalives_idle": 10, "keepalives_interval": 5,
                           "keepalives_count": 3, "tcp_user_timeout": 25000}

# What no server will say that is only away, or starts.  libpq has no error codes for
# connections that fail, only the server's text.
NEVER = re.compile(r'(database|role|user) ".*" does not exist|no such (database|user)'
                   r'|authentication failed|no password supplied|no pg_hba\.conf entry'
                   r'|is not permitted to log in|permission denied for database')


class WorkerError(Exception):
    """The worker cannot do its work: there is no such queue, for one."""


class TextLoader(Loader):
    """Text as a server without an encoding may have it, too."""

    def load(self, data: Any) -> str:
        return bytes(data).decode("utf-8", "backslashreplace")


def connect(uri: str, name: str) -> psycopg.Connection[Tuple[Any, ...]]:
    at: Dict[str, Any] = {"connect_timeout": os.environ.get("PGCONNECT_TIMEOUT", 10),
                          "fallback_application_name": f"fairq {name}", **NETWORK,
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
    """A connection for several threads; made anew when it is lost.

    limit is how many seconds a statement may take: check() ends the connection of one
    that takes longer.  give_up is after how many seconds WorkerError is raised if the
    server can never answer; None: not at all.
    """

    def __init__(self, uri: str, name: str, stopping: threading.Event, limit: float,
                 give_up: Optional[float] = None):
        self.uri, self.name, self.stopping = uri, name, stopping
        self.limit, self.give_up = limit, give_up
        self.lock = threading.Lock()
        self.holding = threading.Lock()     # for who tries again what is held
        self.connection: Optional[psycopg.Connection[Tuple[Any, ...]]] = None
        self.socket: Optional[socket.socket] = None     # a copy of the connection's
        self.pooled = False         # known once there is a connection
        self.begun = math.inf       # the statement under way, by the monotonic clock
        self.answered = -math.inf   # when it last has
        self.held = -math.inf       # when something last was
        self.hopeless = math.inf    # since when it can never answer
        self.losses = 0             # of connections
        self.warned = ""            # of what, while that lasts

    def connect(self) -> psycopg.Connection[Tuple[Any, ...]]:
        if self.socket is not None:
            self.socket.close()
        connection = connect(self.uri, self.name)
        self.socket = socket.fromfd(connection.fileno(), socket.AF_INET, socket.SOCK_STREAM)
        self.begun = time.monotonic()
        connection.adapters.register_loader("text", TextLoader)
        if connection.info.parameter_status("server_encoding") == "SQL_ASCII":
            # else all that a statement returns is refused for a byte in one of its rows
            connection.execute("SET client_encoding = 'SQL_ASCII'")
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
                    if brief:
                        wait = f"{10 if lately else 100}ms"
                        rows = self.execute(f"{sql} FROM set_config('lock_timeout', '{wait}', true)", args)
                    else:
                        rows = self.execute(sql, args)
                    self.answered, self.warned = time.monotonic(), ""
                    self.hopeless = math.inf
                    return rows
                except HELD as error:
                    if not once and not lately:
                        log.warning("another transaction is in the way: %s; trying again",
                                    explain(error))
                    self.held = self.answered = time.monotonic()
                    raise
                except TOO_LARGE:
                    raise
                except LOST as error:
                    failures += 1
                    self.lose(error)
                    if once or self.stopping.is_set() and failures > 1:
                        raise
            self.stopping.wait(1)

    def execute(self, sql: str, args: Sequence[Any]) -> List[Tuple[Any, ...]]:
        try:
            if self.connection is None or self.connection.closed:
                self.connection = self.connect()
            self.begun = time.monotonic()
            return self.connection.execute(sql, args).fetchall()
        finally:
            self.begun = math.inf

    def lose(self, error: psycopg.Error) -> None:
        """Closes the connection, which that has happened to."""
        self.losses += 1
        if str(error) != self.warned:
            log.warning("%s; trying again", error)
        self.warned = str(error)
        if self.connection is not None:
            self.connection.close()
        if not NEVER.search(str(error)):
            self.hopeless = math.inf
            return
        self.hopeless = min(self.hopeless, time.monotonic())
        if self.give_up is not None and time.monotonic() - self.hopeless >= self.give_up:
            raise WorkerError(explain(error)) from error

    def check(self) -> None:
        """Ends the connection of a statement that has taken too long: from any thread."""
        if time.monotonic() - self.begun > self.limit:
            log.warning("no answer for %g s", self.limit)
            self.cut()

    def cut(self) -> None:
        connected = self.socket
        self.begun = math.inf
        try:
            if connected is not None:
                connected.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass        # it is being lost anyway

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
                if self.socket is not None:
                    self.socket.close()
            finally:
                self.lock.release()


def explain(error: BaseException) -> str:
    """What is wrong, in one line."""
    if isinstance(error, psycopg.Error):
        text = error.diag.message_primary or str(error)
        if isinstance(error, psycopg.errors.InvalidSchemaName):
            text = "the database does not have the extension fairq"
        elif isinstance(error, (psycopg.errors.UndefinedFunction, psycopg.errors.UndefinedTable,
                                psycopg.errors.UndefinedColumn)):
            text += ": the extension fairq is older than this package"
        return " ".join(text.split())
    if isinstance(error, WorkerError):
        return str(error)
    return f"{type(error).__name__}: {error}"
