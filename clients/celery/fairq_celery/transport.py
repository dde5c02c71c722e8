"""The transport of kombu, fairq://.

A queue of kombu is the queue of fairq with the same name.  Each process knows only the
exchanges and bindings that it declares.  Queues that are not durable are those of remote
control and events.  They live in the process that declares them, and receive messages by
NOTIFY: see broadcast.py.

A transport has a connection that pops, publishes and listens.  A second connection calls
fairq.wait while there is a free slot and no task.  Celery's hub watches both sockets and
a pipe, or drain_events() reads them.  Through the pipe, other threads and
acknowledgements wake the transport.  ledger.py renews leases and finishes tasks.
"""

import logging
import os
import re
import socket
import sys
import threading
import time
from collections import deque, namedtuple
from datetime import datetime, timedelta, timezone
from queue import Empty

import psycopg
from amqp.protocol import queue_declare_ok_t
from kombu.exceptions import ChannelError, DecodeError
from kombu.transport import virtual
from psycopg import sql
from psycopg.conninfo import make_conninfo
from psycopg.pq import ExecStatus

from . import broadcast, replies
from .database import LOST, TO_ANSWER, UNPRINTABLE, connect, explained, readable, refusal, unanswered
from .envelope import COMMON, Unfit, own_options, to_message, to_task
from .group import group_of, running_task
from .ledger import Claim, ledger_of
from .publishing import current_publishing, no_publishing

log = logging.getLogger("fairq.celery")

Options = namedtuple("Options", "lease poll create_queues default_task give_up")

# options of the header fairq in addition to the group, as arguments of fairq.enqueue
ENQUEUE_OPTIONS = {
    "dedup_key": "%s::text", "dedup_until": "%s::text", "replace": "%s::boolean",
    "dedup_for": "make_interval(secs => %s::float8)", "max_attempts": "%s::int",
    "cost": "%s::real", "expires_at": "%s::timestamptz", "batch": "%s::bigint",
    "after": "%s::bigint[]", "after_any": "%s::boolean"}

# Celery's eta, and options of publishing.py
OTHER_OPTIONS = {"run_at": "clock_timestamp() + make_interval(secs => %s::float8)",
                 "on_success": "%s::boolean"}


# a time in ISO format without a zone
NAIVE = re.compile(r"\s*\d{4}-\d\d-\d\d([T ]+\d\d(:\d\d(:\d\d([.,]\d+)?)?)?)?\s*$", re.IGNORECASE)

# seconds that a call of fairq.wait sleeps at most, and seconds after which it
# is late
TO_WAIT = 20
WAIT_LIMIT = TO_WAIT + 10

# seconds between checks whether such a call is late
TO_LOOK = 5

# seconds that the server has to accept a short message
TO_BROADCAST = 5

# seconds after which the worker gives up a cancellation
TO_CANCEL = 1


class Message(virtual.Message):
    """A task's message that also records the outcome, in addition to Celery's ack and
    reject."""

    failure = None      # the error's text
    dead = False        # no retry
    retry_in = None     # seconds; None: the queue's backoff
    cancelled = False
    began = None        # by the monotonic clock

    def ack(self, multiple=False):
        # Celery acknowledges a message that it cannot decode
        if isinstance(sys.exc_info()[1], DecodeError):
            self.note_problem()
        super().ack(multiple)

    def reject(self, requeue=False):
        self.note_problem()
        super().reject(requeue)

    def note_problem(self):
        """Stores the exception that the consumer handles, if any, as the reason
        why it rejects the message.
        """
        problem = sys.exc_info()[1]
        if self.failure is None and problem is not None:
            name = self.headers.get("task")
            if isinstance(problem, KeyError) and problem.args == (name,):
                self.failure = f"no handler for task {name}: it is not registered with this worker"
            else:
                self.failure = f"{type(problem).__name__}: {problem}"


class QoS(virtual.QoS):
    restore_at_shutdown = False     # see Channel.close()

    def __init__(self, channel, prefetch_count=0):
        super().__init__(channel, prefetch_count)
        # acknowledgements also arrive after the connection is lost
        self.ledger = channel.connection.ledger
        self.ledger.transports.add(channel.connection)

    def room(self):
        """The number of free slots."""
        if not self.prefetch_count:
            return 1
        return self.prefetch_count - self.ledger.in_hand()

    def can_consume(self):
        return not self.ledger.stopping and self.room() > 0 and not self.ledger.has_apart()

    def ack(self, delivery_tag):
        self.settle(delivery_tag)

    def reject(self, delivery_tag, requeue=False):
        self.settle(delivery_tag, requeue)

    def settle(self, delivery_tag, requeue=None):
        message = self._delivered.pop(delivery_tag, None)
        if message is None:
            return      # the claim was released
        took = None if message.began is None else max(0, time.monotonic() - message.began)
        if message.cancelled:
            end = {"verb": "cancel"}
        elif message.failure is not None:
            end = {"verb": "fail", "error": message.failure, "retry_in": message.retry_in,
                   "dead": message.dead, "took": took}
        elif requeue is None:
            end = {"verb": "complete", "took": took}
        elif requeue:
            end = {"verb": "hand_back"}
        else:
            end = {"verb": "fail", "error": "rejected", "took": took}
        self.ledger.finish(delivery_tag, **end)


class Channel(virtual.Channel):
    Message = Message
    QoS = QoS
    do_restore = False
    supports_fanout = True
    body_encoding = None

    def __init__(self, connection, **kwargs):
        super().__init__(connection, **kwargs)
        self.options = connection.options
        self.no_ack = set()

    @property
    def transient(self):
        return self.connection.transient

    # ---- queues

    def queue_declare(self, queue=None, passive=False, durable=True, exclusive=False,
                      auto_delete=False, **kwargs):
        if exclusive or auto_delete or not durable:
            queue = queue or f"amq.gen-{os.urandom(8).hex()}"
            if replies.is_address(queue):
                self.transient[queue] = self.connection.mailbox.open(queue)
            self.transient.setdefault(queue, deque())
            return queue_declare_ok_t(queue, len(self.transient[queue]), 0)
        if passive and not self._has_queue(queue):
            raise ChannelError(f'queue "{queue}" does not exist', (50, 10), "Channel.queue_declare", 404)
        # A missing queue is reported when it is used, since not all roles that may use a
        # queue may see its settings.
        if self.options.create_queues is not None and not passive:
            self.create_queue(queue)
        return queue_declare_ok_t(queue, self._size(queue) if passive else 0, 0)

    def create_queue(self, queue):
        if self._has_queue(queue):
            return
        named = "".join(f", {name} => %s" for name in self.options.create_queues)
        try:
            self.connection.ask(f"SELECT fairq.create_queue(%s{named})", queue,
                                *self.options.create_queues.values())
        except ChannelError as error:
            # QF002: another process has created it
            if getattr(error.__cause__, "sqlstate", None) != "QF002":
                raise

    def _has_queue(self, queue, **kwargs):
        return queue in self.transient or bool(self.connection.ask(
            "SELECT FROM fairq.queues WHERE queue = %s", queue))

    def _size(self, queue):
        if queue in self.transient:
            return len(self.transient[queue])
        rows = self.connection.ask("SELECT queued FROM fairq.stats WHERE queue = %s", queue)
        return rows[0][0] or 0 if rows else 0

    def _purge(self, queue):
        if queue in self.transient:
            count = len(self.transient[queue])
            self.transient[queue].clear()
            return count
        return self.connection.ask("SELECT fairq.purge(%s)", queue)[0][0]

    def queue_delete(self, queue, if_unused=False, if_empty=False, **kwargs):
        if queue in self.transient:
            for binding in list(self.state.queue_bindings(queue)):
                table = self.get_table(binding.exchange)
                table[:] = [row for row in table if row[2] != queue]
            self.state.queue_bindings_delete(queue)
            del self.transient[queue]
        else:
            self.connection.ask("SELECT fairq.drop_queue(%s)", queue)

    def _queue_bind(self, exchange, routing_key, pattern, queue):
        if queue in self.transient:
            self.connection.listen(broadcast.channel_of(exchange))

    # ---- publishing

    def is_broadcast(self, exchange):
        """Whether the exchange is for transient queues of other processes.  Celery
        sends events without a declaration.
        """
        declared = self.state.exchanges.get(exchange)
        return (declared is None or declared["type"] == "fanout" or not declared["durable"]
                or declared["type"] == "topic" and exchange.startswith("celeryev"))

    def basic_publish(self, message, exchange, routing_key, **kwargs):
        if exchange and self.is_broadcast(exchange):
            self._inplace_augment_message(message, exchange, routing_key)
            self.connection.broadcast(broadcast.channel_of(exchange), exchange, routing_key, message)
            return None
        return super().basic_publish(message, exchange, routing_key, **kwargs)

    def _put(self, queue, message, **kwargs):
        if queue in self.transient:
            self.transient[queue].append(message)
            self.connection.wake()
            return
        if "task" not in message["headers"] and replies.is_address(queue):
            self.connection.notify(replies.CHANNEL + queue, "", queue, message)
            return
        headers = message["headers"]
        _, request = running_task()
        for name in COMMON:
            if request is not None and request.get(name):
                headers.setdefault(name, request.get(name))
        payload, common = to_task(message)
        publishing = current_publishing.get() or no_publishing
        named = {**publishing.named(), **self.named(headers)}
        marks = "".join(f", {name} => {({**ENQUEUE_OPTIONS, **OTHER_OPTIONS})[name]}" for name in named)
        query = (f"SELECT {publishing.function(named)}(%s, %s, %s::jsonb, headers => %s::jsonb,"
                 f" priority => %s{marks})")
        values = [queue, group_of(message, self.connection.client.transport_options), payload,
                  common, self._get_message_priority(message), *named.values()]
        if publishing.connection is not None:
            id = publishing.execute(query, values)
        else:
            id = self.connection.ask(query, *values)[0][0]
        if publishing is not no_publishing:
            publishing.ids.append(id)

    def named(self, headers):
        """The named arguments of fairq.enqueue, from the message's headers."""
        own = own_options(headers)
        known = {"group", *ENQUEUE_OPTIONS}
        unknown = set(own) - known
        if unknown:
            raise ValueError(f"the header fairq may have {', '.join(sorted(known))},"
                             f" not {', '.join(sorted(unknown))}")
        named = {name: own[name] for name in ENQUEUE_OPTIONS if name in own}
        refuse_naive(named.get("expires_at"))
        if isinstance(named.get("dedup_for"), timedelta):
            named["dedup_for"] = named["dedup_for"].total_seconds()
        if headers.get("eta") is not None:
            named["run_at"] = seconds_until(headers["eta"])
        return named

    def _put_fanout(self, exchange, message, routing_key, **kwargs):
        raise AssertionError("basic_publish sends these")

    # ---- consuming

    def basic_consume(self, queue, no_ack, callback, consumer_tag, **kwargs):
        super().basic_consume(queue, no_ack, callback, consumer_tag, **kwargs)
        if no_ack:
            self.no_ack.add(queue)
        self.connection.wake()

    def queues(self):
        return [queue for queue in self._active_queues if queue not in self.transient]

    def pop(self, queues, room):
        """The claims of at most the given number of tasks."""
        of_pop = ("FROM fairq.pop(%s::text[], %s, lease => make_interval(secs => %s), worker => %s)",
                  queues, room, self.options.lease, f"{socket.gethostname()}:{os.getpid()}")
        try:
            claims = [Claim(row) for row in self.ask(f"{Claim.COLUMNS}, {Claim.TEXTS}", *of_pop)]
        except UNPRINTABLE:
            # A few kB of jsonb can expand to more text than the server can print.
            claims = [self.read(row) for row in self.ask(Claim.COLUMNS, *of_pop)]
        for claim in claims:
            claim.channel = self
        self.connection.ledger.add(claims)
        return claims

    def ask(self, columns, what, *values):
        return self.connection.ask(f"SELECT {columns} {what}", *values)

    def read(self, row):
        """A claim, with its texts fetched separately."""
        try:
            texts = self.ask(Claim.TEXTS, "FROM fairq.tasks WHERE id = %s", row[0])
        except UNPRINTABLE as error:
            return Claim((*row, None, None, None), str(error))
        return Claim((*row, *(texts[0] if texts else (None, None, None))))

    def message_of(self, claim):
        """The message to deliver at once; None: there is none, and the claim has been
        finished.
        """
        ledger = self.connection.ledger
        if ledger.stopping:     # the stop began after the pop was sent
            ledger.finish(claim.tag, "hand_back")
            return None
        try:
            message = to_message(claim, self.options.default_task)
        except Exception as error:      # the error fails only this task
            text = str(error) if isinstance(error, Unfit) else f"{type(error).__name__}: {error}"
            log.error("%s: %s", claim, text)
            ledger.finish(claim.tag, "fail", error=text)
            return None
        if claim.queue in self.no_ack:
            ledger.finish(claim.tag, "complete")
        claim.delivered = True
        claim.forget_content()
        return message

    def _get(self, queue, timeout=None):
        if queue in self.transient:
            try:
                return self.transient[queue].popleft()
            except IndexError:
                raise Empty() from None
        for claim in self.pop([queue], 1):
            message = self.message_of(claim)
            if message is not None:
                return message
        raise Empty()

    def close(self):
        """Releases tasks that no process has begun, since Celery has forgotten them or
        will forget them."""
        if not self.closed and self._qos is not None:
            ledger = self._qos.ledger
            ledger.hear()
            ledger.release(lambda claim: claim.channel is self and not claim.started, 0)
        super().close()


def seconds_until(eta):
    """The seconds from now until the eta."""
    refuse_naive(eta)
    at = datetime.fromisoformat(eta.replace("Z", "+00:00")) if isinstance(eta, str) else eta
    return (at - datetime.now(timezone.utc)).total_seconds()


def refuse_naive(at):
    """Refuses a time without a zone, since the server or another host may be in another
    zone."""
    if (at.tzinfo is None if isinstance(at, datetime) else isinstance(at, str) and NAIVE.match(at)):
        raise ValueError(f"the time {str(at)!r} has no time zone: add one, as in"
                         " datetime.now(timezone.utc)")


class Waiter:
    """A connection for calls of fairq.wait that do not block this process."""

    def __init__(self, conninfo, poll):
        self.connection = connect(conninfo)
        self.poll = poll
        if self.connection.pooled and poll is None:
            self.poll = 1
            log.warning("the connection goes through a pooler, so the worker looks for tasks every"
                        " second; the transport option poll sets another interval, and 0 waits")
        self.queues = None      # the queues of the call
        self.late = 0           # when the call is late, by the monotonic clock

    def fileno(self):
        return self.connection.fileno()

    def start(self, queues):
        self.queues = queues
        self.late = time.monotonic() + WAIT_LIMIT
        names = ",".join('"' + queue.replace("\\", "\\\\").replace('"', '\\"') + '"'
                         for queue in queues)
        pgconn = self.connection.pgconn
        pgconn.send_query_params(b"CALL fairq.wait($1::text[], make_interval(secs => $2::float8))",
                                 ["{{{}}}".format(names).encode(), str(TO_WAIT).encode()])
        pgconn.flush()

    def has_ended(self):
        """Reads the socket.  Returns True if the call has returned; may be
        called repeatedly."""
        pgconn = self.connection.pgconn
        pgconn.consume_input()
        if self.queues is None:
            return False
        if pgconn.is_busy():
            if time.monotonic() > self.late:
                self.queues = None      # the call cannot be cancelled
                raise unanswered(WAIT_LIMIT)
            return False
        self.queues = None
        problem = None
        while (result := pgconn.get_result()) is not None:
            if result.status == ExecStatus.FATAL_ERROR:
                problem = psycopg.errors.error_from_result(result)
                if problem.sqlstate is None:        # an error of libpq: the connection is lost
                    problem = psycopg.OperationalError(str(problem))
        if problem is not None and not isinstance(problem, psycopg.errors.QueryCanceled):
            raise refusal(problem) or problem
        return True

    def close(self):
        if self.queues is not None:
            # this connection has no time limit; the call also ends by itself
            ending = threading.Thread(target=self.cancel, daemon=True)
            ending.start()
            ending.join(TO_CANCEL)
        self.connection.close()

    def cancel(self):
        try:
            self.connection.cancel()
        except psycopg.Error:
            pass


class Transport(virtual.Transport):
    Channel = Channel
    driver_type = driver_name = "fairq"
    default_port = None
    can_parse_url = False

    # after an internal error of the server, too, Celery's worker reconnects
    connection_errors = virtual.Transport.connection_errors + LOST + (psycopg.InternalError,)
    channel_errors = virtual.Transport.channel_errors
    recoverable_connection_errors = connection_errors
    recoverable_channel_errors = ()

    serves_worker = False       # True: this process runs Celery's worker

    implements = virtual.Transport.implements.extend(
        asynchronous=True, exchange_type=frozenset(["direct", "topic", "fanout"]))

    def __init__(self, client, **kwargs):
        super().__init__(client, **kwargs)
        given = client.transport_options
        create = given.get("create_queues")
        self.options = Options(
            lease=float(given.get("lease", given.get("visibility_timeout", 60))),
            poll=given.get("poll"), create_queues={} if create is True else create or None,
            default_task=given.get("default_task"), give_up=given.get("give_up", 60))
        self.transient = {}         # queue: deque of messages
        self.pieces = broadcast.Pieces()
        self.database = self.waiter = self.hub = None
        self.polling = False        # a timer of the hub will wake the transport
        self.looking = None         # the hub's timer for TO_LOOK
        self.read_end = self.write_end = None

    def driver_version(self):
        return psycopg.__version__

    @property
    def default_connection_params(self):
        return {}

    @property
    def conninfo(self):
        client = self.client
        parts = {"host": client.hostname, "port": client.port, "user": client.userid,
                 "password": client.password,
                 "dbname": client.virtual_host if client.virtual_host != "/" else None}
        return make_conninfo(client.transport_options.get("conninfo", ""),
                             **{key: value for key, value in parts.items() if value})

    @property
    def mailbox(self):
        return replies.mailbox_of(self.conninfo, self)

    @property
    def ledger(self):
        return ledger_of(self.conninfo, self.options.lease)

    # ---- the connection

    def establish_connection(self):
        self.database = connect(self.conninfo, self.options.give_up)
        with explained():
            self.database.execute("SELECT fairq.version()")
        self.database.add_notify_handler(self.notified)
        self.read_end, self.write_end = os.pipe()
        os.set_blocking(self.read_end, False)
        os.set_blocking(self.write_end, False)
        return super().establish_connection()

    def verify_connection(self, connection):
        return self.database is not None and not self.database.closed

    def close_connection(self, connection):
        if self.database is None:
            return
        for fd in self.sockets():
            if self.hub is not None:
                self.hub.remove(fd)
        if self.looking is not None:
            self.looking.cancel()
            self.looking = None
        super().close_connection(connection)
        self.ledger.transports.discard(self)
        self.ledger.flush(2)
        self.end_waiter()
        self.database.close()
        self.database = None
        for end in "read_end", "write_end":
            os.close(getattr(self, end))
            setattr(self, end, None)

    def ask(self, sql, *values):
        if self.database is None:
            raise psycopg.OperationalError("the connection is closed")
        with explained():
            cursor = self.database.execute(sql, values)
            return cursor.fetchall() if cursor.description is not None else []

    def wake(self):
        """Wakes the loop that reads the sockets.  Any thread may call this."""
        if self.write_end is not None:
            try:
                os.write(self.write_end, b".")
            except (BlockingIOError, TypeError, OSError):
                pass

    # ---- broadcasts

    # A transaction with NOTIFY has an id and writes to disk.  A worker sends a
    # heartbeat every two seconds, usually without a listener.  So each listener
    # holds a shared advisory lock, and a message is not sent while that lock is
    # free.

    def broadcast(self, channel, exchange, routing_key, message):
        """Sends a message.  Delays Celery's loop for at most TO_BROADCAST."""
        if self.database is not None:
            self.database.limit = TO_BROADCAST
        try:
            self.notify(channel, exchange, routing_key, message, if_heard=True)
        finally:
            if self.database is not None:
                self.database.limit = TO_ANSWER

    def notify(self, channel, exchange, routing_key, message, if_heard=False):
        heard = (" WHERE NOT (SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 0)))"
                 if if_heard else "")
        self.ask(f"SELECT pg_notify(%s, piece) FROM unnest(%s::text[]) piece{heard}", channel,
                 broadcast.pieces(exchange, routing_key, message), *([channel] if if_heard else []))

    def listen(self, channel):
        if not self.database.pooled:        # a pooler would keep the lock
            self.ask("SELECT pg_advisory_lock_shared(hashtextextended(%s, 0))", channel)
        self.database.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))

    def notified(self, notify):
        whole = self.pieces.add(notify.payload)
        if whole is None or whole[0] not in self.state.exchanges or not self.channels:
            return
        exchange, routing_key, message = whole
        channel = self.channels[0]
        table = channel.get_table(exchange)
        for queue in channel.typeof(exchange).lookup(table, exchange, routing_key, None):
            if queue in self.transient:
                self.transient[queue].append(message)

    def read_notifications(self):
        pgconn = self.database.pgconn
        pgconn.consume_input()
        while (notify := pgconn.notifies()) is not None:
            self.notified(psycopg.Notify(notify.relname.decode(), notify.extra.decode(),
                                         notify.be_pid))

    # ---- waiting

    def sockets(self):
        fds = [self.database.fileno()] if not self.database.closed else []
        fds.append(self.read_end)
        if self.waiter is not None and not self.waiter.connection.closed:
            fds.append(self.waiter.fileno())
        return fds

    def end_waiter(self):
        if self.waiter is not None:
            waiter, self.waiter = self.waiter, None
            if self.hub is not None and not waiter.connection.closed:
                self.hub.remove(waiter.fileno())
            waiter.close()

    def wait(self, queues):
        """Makes the sockets report when there may be tasks in the queues."""
        waiter = self.waiter
        if waiter is not None and waiter.queues not in (None, queues):
            self.end_waiter()
            waiter = None
        if waiter is None:
            waiter = self.waiter = Waiter(self.conninfo, self.options.poll)
            if self.hub is not None:
                self.hub.add_reader(waiter.fileno(), self.on_readable, self, self.hub)
        if waiter.queues is None and not waiter.poll:
            waiter.start(queues)
        elif waiter.poll and self.hub is not None and not self.polling:
            self.polling = True
            self.hub.call_later(waiter.poll, self.poll_again)

    def poll_again(self):
        self.polling = False
        self.wake()

    def is_waiting(self, queues):
        return self.waiter is not None and self.waiter.queues == queues

    def register_with_event_loop(self, connection, loop):
        self.hub = loop
        for fd in self.sockets():
            loop.add_reader(fd, self.on_readable, self, loop)
        if self.looking is None:
            self.looking = loop.call_repeatedly(TO_LOOK, self.wake)
        self.wake()

    def on_readable(self, connection, loop):
        self.read_sockets()
        self.deliver(every=True)

    def read_sockets(self):
        try:
            while os.read(self.read_end, 4096):
                pass
        except BlockingIOError:
            pass
        self.read_notifications()
        if self.waiter is not None:
            self.waiter.has_ended()

    def deliver(self, every):
        """Hands messages to their consumers: one, or as many as there are free slots.
        Waits for more if a slot is left.  Returns True if there were messages.
        """
        delivered = False
        for channel in list(self.channels):
            for queue in list(channel._active_queues):
                messages = self.transient.get(queue)
                while messages and (every or not delivered):
                    try:
                        message = messages.popleft()
                    except IndexError:      # another thread has taken the message
                        break
                    self._deliver(message, queue)
                    delivered = True
        for channel in list(self.channels):
            while every or not delivered:
                claims = self.next_claims(channel, every)
                if not claims:
                    break
                for claim in claims:
                    delivered = self.deliver_task(channel, claim) or delivered
        return delivered

    def next_claims(self, channel, every):
        """The claims for the channel.  If there are none, starts a call of
        fairq.wait."""
        apart = self.ledger.next_apart(channel)
        if apart is not None:
            return [apart]
        queues = channel.queues()
        if not queues or not channel.qos.can_consume() or self.is_waiting(queues):
            return []
        room = channel.qos.room() if every and not self.ledger.one_by_one else 1
        claims = channel.pop(queues, room)
        if not claims:
            self.wait(queues)
            return []
        # if no task is left, the waiting claim may be next
        return self.ledger.put_apart(claims) or self.next_claims(channel, every)

    def deliver_task(self, channel, claim):
        """Returns True if the message was delivered.

        Celery's worker ends when its consumer raises an exception, for example
        because of one task's invalid headers.  So this method catches the
        exception and fails only that task.
        """
        message = channel.message_of(claim)
        if message is None:
            return False
        try:
            self._deliver(message, claim.queue)
        except self.connection_errors + self.channel_errors:
            raise
        except Exception as error:
            if not self.serves_worker:
                raise
            log.exception("cannot begin %s", claim)
            channel.qos._delivered.pop(claim.tag, None)
            self.ledger.finish(claim.tag, "fail", error=f"{type(error).__name__}: {error}")
        return True

    def drain_events(self, connection, timeout=None):
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            if self.database is None:
                raise psycopg.OperationalError("the connection is closed")
            self.read_sockets()
            if self.deliver(every=False):
                return
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                raise socket.timeout()
            poll = self.waiter.poll if self.waiter is not None else None
            readable(self.sockets(), min(t for t in (left, poll, TO_LOOK) if t))
