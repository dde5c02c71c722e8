"""Results of Celery's backend rpc://, which go to the process that has requested them.

Each thread of a producer has a queue of replies, whose name is a UUID.  It lives in the
producer's process and receives messages by NOTIFY.  Celery declares it before it publishes
a task, and may read it much later, on another connection.  So from the first declaration
on, a thread with its own connection listens for the whole process.
"""

import logging
import os
import re
import threading
import time
import weakref
from collections import deque

import psycopg
from kombu.exceptions import ChannelError
from psycopg import sql

from . import broadcast
from .database import LOST, connect, readable

log = logging.getLogger("fairq.celery")

CHANNEL = "kombu.reply."

# most unread replies that a queue keeps; if more arrive, the oldest ones are
# dropped
KEPT = 10000

# seconds after which a queue without a new declaration is dropped: Celery's default of
# result_expires
UNUSED = 86400

# seconds between checks of the server
TO_ASK = 20

UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")

mailboxes = {}
opening = threading.Lock()


def is_address(queue):
    return UUID.match(queue) is not None


def mailbox_of(conninfo, transport):
    with opening:
        mailbox = mailboxes.get(conninfo)
        if mailbox is None or mailbox.pid != os.getpid():
            mailbox = mailboxes[conninfo] = Mailbox(conninfo)
        mailbox.transports.add(transport)
        return mailbox


class Mailbox:
    def __init__(self, conninfo):
        self.conninfo, self.pid = conninfo, os.getpid()
        self.lock = threading.RLock()       # protects the fields below
        self.connection = None
        self.thread = None
        self.queues = {}            # name: messages
        self.declared = {}          # name: time of the last declaration, by the monotonic clock
        self.pieces = broadcast.Pieces()
        self.transports = weakref.WeakSet()     # the transports that may read a queue

    def open(self, queue):
        """The messages of a queue.  Once open() has returned, the server sends
        the queue's messages to this process.
        """
        with self.lock:
            self.declared[queue] = time.monotonic()
            if queue in self.queues:
                return self.queues[queue]
            if self.connection is None or self.connection.closed:
                self.connect()
            self.listen(queue)
            messages = self.queues[queue] = deque(maxlen=KEPT)
            if self.thread is None:
                self.thread = threading.Thread(target=self.run, daemon=True, name="fairq-replies")
                self.thread.start()
            return messages

    def listen(self, queue):
        self.connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(CHANNEL + queue)))

    def connect(self):
        self.connection = connect(self.conninfo)
        if self.connection.pooled:
            self.connection.close()
            raise ChannelError("the results of rpc:// need LISTEN, which no pooler in transaction"
                               " mode has: connect to the server itself, or take another result"
                               " backend", (50, 10), "fairq", 406)
        self.connection.add_notify_handler(self.notified)
        for queue in self.queues:
            self.listen(queue)

    def notified(self, notify):
        whole = self.pieces.add(notify.payload)
        if whole is not None and whole[1] in self.queues:
            self.queues[whole[1]].append(whole[2])
            for transport in list(self.transports):
                transport.wake()

    def run(self):
        asked = time.monotonic()
        while True:
            try:
                heard = readable([self.connection.fileno()], TO_ASK)
                with self.lock:
                    if heard:
                        self.read()
                    if time.monotonic() - asked >= TO_ASK:
                        asked = time.monotonic()
                        self.connection.execute("SELECT 1")
                        self.forget_unused()
            except LOST as error:
                log.warning("results may be lost: %s", str(error).strip())
                self.connect_again()
            except Exception:
                log.exception("cannot receive the results of tasks")
                self.connect_again()

    def read(self):
        pgconn = self.connection.pgconn
        pgconn.consume_input()
        while (notify := pgconn.notifies()) is not None:
            self.notified(psycopg.Notify(notify.relname.decode(), notify.extra.decode(),
                                         notify.be_pid))

    def connect_again(self):
        while True:
            time.sleep(1)
            with self.lock:
                try:
                    if not self.connection.closed:
                        self.connection.close()
                    self.connect()
                    return
                except (psycopg.Error, ChannelError) as error:
                    log.debug("%s", error)

    def forget_unused(self):
        for queue, at in list(self.declared.items()):
            if time.monotonic() - at > UNUSED:
                del self.declared[queue]
                if self.queues.pop(queue, None) is not None:
                    self.connection.execute(
                        sql.SQL("UNLISTEN {}").format(sql.Identifier(CHANNEL + queue)))
