"""Connections, and their errors in kombu's terms.

A lost connection stays an error of psycopg. It is one of the transport's
connection_errors, so kombu and Celery reconnect after it.  An error that a new
connection cannot fix becomes a ChannelError, which they do not retry.
"""

import contextlib
import os
import re
import select
import time

import psycopg
from kombu.exceptions import ChannelError
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.waiting import Ready, Wait

# Read-only: the server was the primary, or the database is being moved.
LOST = psycopg.OperationalError, psycopg.errors.ReadOnlySqlTransaction

# The server cannot print a text, because of its limits or its memory.
UNPRINTABLE = (psycopg.errors.ProgramLimitExceeded, psycopg.errors.StatementTooComplex, psycopg.errors.OutOfMemory)

# seconds that the server has to answer a statement
TO_ANSWER = 20

# seconds after which the kernel gives up on unacknowledged data; until then it
# sends no keepalives
UNACKNOWLEDGED = 30

# messages of a server or pooler that refuses connections temporarily
FOR_NOW = re.compile("too many|slots are reserved|no more connections|server.login|query_wait_timeout"
                     "|starting up|shutting down|recovery", re.IGNORECASE)

# hosts: time of the first refused connection, by the monotonic clock
refused_since = {}


class Connection(psycopg.Connection):
    """A connection that closes when the server does not answer a statement in time.

    If a server or network vanishes, the socket may not report it for hours.
    """

    limit = TO_ANSWER       # seconds

    def wait(self, gen, *args, **kwargs):
        end = time.monotonic() + self.limit
        try:
            wanted = next(gen)
            poll = select.poll()
            while True:
                poll.register(self.pgconn.socket, select.POLLIN * bool(wanted & Wait.R)
                              | select.POLLOUT * bool(wanted & Wait.W))
                found = poll.poll(max(0, end - time.monotonic()) * 1000)
                if not found:
                    raise unanswered(self.limit)
                event = found[0][1]
                ready = (Ready.R * bool(event & ~select.POLLOUT)
                         | Ready.W * bool(event & ~select.POLLIN)) & wanted
                wanted = gen.send(Ready(ready))
        except StopIteration as done:
            return done.value
        except BaseException:
            if self.pgconn.transaction_status == pq.TransactionStatus.ACTIVE:
                self.close()        # nothing reads the answer
            raise


def readable(sockets, seconds):
    """Whether one of the sockets is readable within that time.

    Unlike select(), it has no limit for the number of sockets.
    """
    poll = select.poll()
    for fd in sockets:
        poll.register(fd, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def unanswered(limit):
    return psycopg.OperationalError(
        f"the server has not answered for {limit} seconds, so the connection is given up")


def parameters(conninfo):
    """The parameters of each host in turn, with our defaults.

    psycopg before 3.1.13 tries libpq's own list of hosts with one limit for all of them.
    A silent host would then use up the time for the others.
    """
    given = conninfo_to_dict(conninfo)
    defaults = {"connect_timeout": os.environ.get("PGCONNECT_TIMEOUT", 10),
                "fallback_application_name": "fairq-celery", "keepalives_idle": 30,
                "keepalives_interval": 10, "keepalives_count": 3,
                "tcp_user_timeout": UNACKNOWLEDGED * 1000}
    given = {**defaults, **given, "client_encoding": "utf8"}
    lists = {key: str(given.get(key) or os.environ.get(variable, "")).split(",")
             for key, variable in (("host", "PGHOST"), ("hostaddr", "PGHOSTADDR"), ("port", "PGPORT"))}
    count = max(len(lists["host"]), len(lists["hostaddr"]))
    attributes = given.get("target_session_attrs") or os.environ.get("PGTARGETSESSIONATTRS")
    if (count == 1 or attributes == "prefer-standby" or given.get("load_balance_hosts")
            or any(len(values) not in (1, count) for values in lists.values())):
        return [given]
    return [{**given, **{key: values[i % len(values)] for key, values in lists.items()
                         if values[i % len(values)]}} for i in range(count)]


def connect(conninfo, give_up=None):
    """A connection.  Raises ChannelError if the server has refused connections for give_up
    seconds."""
    problems = []
    attempts = parameters(conninfo)
    for attempt in attempts:
        try:
            connection = Connection.connect(autocommit=True, **attempt)
        except psycopg.OperationalError as error:
            problems.append(error)
            continue
        refused_since.pop(conninfo, None)
        # A pooler sends its clients an invented process ID.  The next statement
        # may use another server connection, without the prepared statements.
        (pid,) = connection.execute("SELECT pg_backend_pid()").fetchone()
        connection.pooled = pid != connection.info.backend_pid
        if connection.pooled:
            connection.prepare_threshold = None
        return connection
    text = "; ".join(" ".join(str(problem).split()) for problem in problems)
    if give_up is not None:
        if not all(map(refuses, attempts, problems)):
            refused_since.pop(conninfo, None)
        elif time.monotonic() - refused_since.setdefault(conninfo, time.monotonic()) >= give_up:
            raise ChannelError(f"the server has refused for {give_up:g} seconds: {text}",
                               (50, 10), "fairq", 403) from problems[-1]
    raise psycopg.OperationalError(text) from problems[-1]


def refuses(attempt, problem):
    """Whether a server answers at that address, and refuses the database, the
    role or the password.

    libpq has no SQLSTATE for a failed connection, so this function pings the
    server and tries again.
    """
    if FOR_NOW.search(str(problem)):
        return False
    if pq.PGconn.ping(make_conninfo(**attempt).encode()) != pq.Ping.OK:
        return False
    try:        # the server may be a standby that becomes the primary
        Connection.connect(**{**attempt, "target_session_attrs": "any"}).close()
    except psycopg.OperationalError:
        return True
    return False


def refusal(error):
    """The error as a ChannelError if only a change of the database fixes it, or
    None."""
    state = getattr(error, "sqlstate", None) or ""
    said = error.diag.message_primary or str(error)
    if state == "3F000":
        text = f"the database has no fairq ({said}): run CREATE EXTENSION fairq"
    elif state == "42883":
        text = f"the database's fairq is of another version ({said})"
    elif state == "QF001":
        text = (f"{said}: create it with fairq.create_queue, or set create_queues in"
                " broker_transport_options")
    elif state == "42501" or state.startswith("QF"):
        text = said
    else:
        return None
    codes = {"42501": 403, "QF001": 404}
    return ChannelError(text, (50, 10), "fairq", codes.get(state, 406))


@contextlib.contextmanager
def explained():
    """Raises refusals as ChannelError, and other errors unchanged."""
    try:
        yield
    except psycopg.Error as error:
        refused = refusal(error)
        if refused is None:
            raise
        raise refused from error
