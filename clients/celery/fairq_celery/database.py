"""Connections, and what their errors are in kombu's terms.

A lost connection stays an error of psycopg, which the transport has among its
connection_errors: kombu and Celery connect again by that.  What no new connection
mends becomes a ChannelError, which they do not try again.
"""

import contextlib
import os

import psycopg
from kombu.exceptions import ChannelError

# Read-only is a server that was the primary, or a database that is being moved.
LOST = psycopg.OperationalError, psycopg.errors.ReadOnlySqlTransaction


def connect(conninfo):
    options = {"connect_timeout": os.environ.get("PGCONNECT_TIMEOUT", 10),
               "fallback_application_name": "fairq-celery", "keepalives_idle": 30,
               "keepalives_interval": 10, "keepalives_count": 3}
    connection = psycopg.connect(conninfo, autocommit=True, **{
        key: value for key, value in options.items() if f"{key}=" not in conninfo},
        client_encoding="utf8")
    # A pooler invents the process that its clients see.  The server connection
    # of the next statement may be another, which knows no prepared ones.
    (pid,) = connection.execute("SELECT pg_backend_pid()").fetchone()
    connection.pooled = pid != connection.info.backend_pid
    if connection.pooled:
        connection.prepare_threshold = None
    return connection


def refusal(error):
    """The error as a ChannelError, if nothing but a change of the database mends it."""
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
    """Raises refusals as such, and all else as it is."""
    try:
        yield
    except psycopg.Error as error:
        refused = refusal(error)
        if refused is None:
            raise
        raise refused from error
