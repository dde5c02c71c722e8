"""Connections that reconnect, and statements with a time limit."""

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

# Errors that a new connection may fix.  A server is read-only if it was the primary, or
# if its shard is being moved.
LOST = psycopg.OperationalError, psycopg.errors.ReadOnlySqlTransaction

# Errors of pop and fairq.wait after which a later call may succeed.
PASSING = (*LOST, psycopg.InternalError)

# Another transaction has a lock that the statement needs, or the statement was cancelled.
HELD = psycopg.errors.LockNotAvailable, psycopg.errors.QueryCanceled

# The statement exceeds a limit of PostgreSQL, so no retry helps.
TOO_LARGE = (psycopg.errors.ProgramLimitExceeded, psycopg.errors.StatementTooComplex)

# The server cannot print a text.
UNPRINTABLE = (*TOO_LARGE, psycopg.errors.OutOfMemory)

# seconds until a retry after HELD, and seconds after such an error during which
# threads retry one at a time
HELD_PAUSE, HELD_LATELY = 0.5, 2

# seconds for which fairq.wait sleeps
WAIT = 30

# If a host vanishes silently, the kernel detects that when it sends data or
# keepalives.  Behind a proxy, only the time limit of a statement detects it.
NETWORK: Dict[str, Any] = {"keepalives_idle": 10, "keepalives_interval": 5,
                           "keepalives_count": 3, "tcp_user_timeout": 25000}

# Texts of errors that do not occur while a server is down or starts.  libpq has no
# error codes for failed connections, only the server's text.
NEVER = re.compile(r'(database|role|user) ".*" does not exist|no such (database|user)'
                   r'|authentication failed|no password supplied|no pg_hba\.conf entry'
                   r'|is not permitted to log in|permission denied for database')


class WorkerError(Exception):
    """The worker cannot work, for example because a queue does not exist."""


class TextLoader(Loader):
    """Reads text, also from a database without an encoding (SQL_ASCII)."""

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
    # each host has a time limit of its own, since a host that does not answer would
    # use up a common limit
    for i, host in enumerate(hosts):
        at.update(host=host, port=ports[i % len(ports)])
        try:
            return psycopg.connect(**at, autocommit=True)
        except psycopg.OperationalError as error:
            problem = error
    raise problem


class Database:
    """A connection that several threads share.  It reconnects after a loss.

    limit is the time limit of a statement in seconds: check() ends the connection of a
    statement that takes longer.  If the server refuses connections for give_up seconds,
    query() raises WorkerError.  If give_up is None, it never does.
    """

    def __init__(self, uri: str, name: str, stopping: threading.Event, limit: float,
                 give_up: Optional[float] = None):
        self.uri, self.name, self.stopping = uri, name, stopping
        self.limit, self.give_up = limit, give_up
        self.lock = threading.Lock()
        self.holding = threading.Lock()     # held by the thread that retries after HELD
        self.connection: Optional[psycopg.Connection[Tuple[Any, ...]]] = None
        self.socket: Optional[socket.socket] = None     # a copy of the connection's socket
        self.pooled = False         # known once there is a connection
        self.begun = math.inf       # start of the current statement, by the monotonic clock
        self.answered = -math.inf   # time of the last answer
        self.held = -math.inf       # time of the last HELD
        self.hopeless = math.inf    # time of the first refused connection
        self.losses = 0             # of connections
        self.warned = ""            # the last error that was logged, until an answer

    def connect(self) -> psycopg.Connection[Tuple[Any, ...]]:
        if self.socket is not None:
            self.socket.close()
        connection = connect(self.uri, self.name)
        try:
            self.socket = socket.fromfd(connection.fileno(), socket.AF_INET, socket.SOCK_STREAM)
        except OSError as error:        # for example, too many files are open
            connection.close()
            raise psycopg.OperationalError(str(error)) from error
        self.begun = time.monotonic()
        connection.adapters.register_loader("text", TextLoader)
        if connection.info.parameter_status("server_encoding") == "SQL_ASCII":
            # otherwise one invalid byte makes the whole result fail
            connection.execute("SET client_encoding = 'SQL_ASCII'")
        # A pooler sends its clients an invented process ID.  The next statement
        # may use another server connection, without the prepared statements.
        [(pid,)] = connection.execute("SELECT pg_backend_pid()").fetchall()
        self.pooled = pid != connection.info.backend_pid
        if self.pooled:
            connection.prepare_threshold = None
        return connection

    def query(self, sql: str, *args: Any, once: bool = False,
              brief: bool = False) -> List[Tuple[Any, ...]]:
        """The rows of a statement.  Unless "once" is set, retries until the server
        answers.

        With "brief", which is for SELECTs without FROM, the statement waits for a lock
        only briefly.  An open transaction may have locked the row of a task, and other
        tasks need this connection too.
        """
        try:
            return self.persist(sql, args, once, brief)
        except HELD:
            if once:
                raise
        # One thread retries at a time, with pauses, so others can use the connection.
        # Once it succeeds, the others follow at once.
        self.stopping.wait(HELD_PAUSE)
        while True:
            with self.holding:
                try:
                    return self.persist(sql, args, once, brief)
                except HELD:
                    if self.stopping.wait(HELD_PAUSE):
                        raise
            time.sleep(0.05)        # so that another thread can retry

    def persist(self, sql: str, args: Sequence[Any], once: bool,
                brief: bool) -> List[Tuple[Any, ...]]:
        # If only the answer was lost, a second complete of the same attempt is
        # harmless.  If the answer of a pop was lost, its tasks are ready again
        # when their leases expire.
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
                        log.warning("another transaction has locked the task: %s; retrying",
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
        """Closes the connection after an error."""
        self.losses += 1
        if str(error) != self.warned:
            log.warning("%s; retrying", error)
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
        """Ends the connection if its statement has exceeded the time limit.
        Any thread may call it."""
        if time.monotonic() - self.begun > self.limit:
            log.warning("no answer for %g s", self.limit)
            self.cut()

    def is_connected(self) -> bool:
        return self.connection is not None and not self.connection.closed

    def cut(self) -> None:
        connected = self.socket
        self.begun = math.inf
        try:
            if connected is not None:
                connected.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass        # the connection is being lost anyway

    def cancel(self) -> None:
        try:
            if self.connection is not None:
                self.connection.cancel()
        except psycopg.Error:
            pass        # the connection is being lost anyway

    def close(self) -> None:
        # close() does not wait for a thread whose server does not answer
        if self.lock.acquire(timeout=1):
            try:
                if self.connection is not None:
                    self.connection.close()
                if self.socket is not None:
                    self.socket.close()
            finally:
                self.lock.release()


def explain(error: BaseException) -> str:
    """The error as one line."""
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
