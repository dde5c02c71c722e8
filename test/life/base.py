"""The common part of all scenarios: connections, waiting workers, and the report."""

import os
import select
import socket
import time

import psycopg
from psycopg.pq import ExecStatus

now = time.monotonic


class Fault(Exception):
    """Raised when a promise is broken."""


class TooSlow(Fault):
    """Raised when an event happens before the test has finished its
    preparations for the event."""


def connect(name="life"):
    return psycopg.connect(
        autocommit=True, application_name=name,
        options="-c lock_timeout=60s -c statement_timeout=120s"
                " -c client_min_messages=error")


def value(db, sql, *arguments):
    return db.execute(sql, arguments).fetchone()[0]


def rows(db, sql, *arguments):
    return db.execute(sql, arguments).fetchall()


def column(db, sql, *arguments):
    return [row[0] for row in db.execute(sql, arguments)]


def expect(good, text):
    if not good:
        raise Fault(text)


def sound(db, queue):
    """Checks that check_queue() finds nothing."""
    faults = column(db, "SELECT * FROM fairq.check_queue(%s)", queue)
    expect(not faults, f"check_queue('{queue}'): {faults[:5]}")


def drop(db, queue):
    """Drops the queue of an earlier try, or of a scenario that has ended."""
    if value(db, "SELECT count(*) FROM fairq.queues WHERE queue = %s", queue):
        db.execute("SELECT fairq.drop_queue(%s, true)", [queue])


def new_queue(db, queue, **options):
    drop(db, queue)
    names = "".join(f", {name} => %s" for name in options)
    db.execute(f"SELECT fairq.create_queue(%s{names})",
               [queue, *options.values()])
    return queue


def cut(db):
    """Simulates a lost client: closes its end of the connection, whatever the
    server is doing.
    """
    try:
        end = socket.socket(fileno=os.dup(db.pgconn.socket))
        end.shutdown(socket.SHUT_RDWR)
        end.close()
    except (OSError, psycopg.Error):
        pass
    db.close()


class Waiter:
    """A worker's connection on which fairq.wait() is called while this
    program continues.
    """

    def __init__(self, name="waiter"):
        self.db = connect(name)
        self.pid = self.db.info.backend_pid
        self.answer = self.at = None

    def start(self, queue, timeout="60 s"):
        """Call fairq.wait()."""
        self.send(f"CALL fairq.wait('{queue}', '{timeout}')")

    def send(self, sql):
        self.answer = self.at = None
        self.db.pgconn.send_query(sql.encode())

    def fileno(self):
        return self.db.pgconn.socket

    def look(self):
        """Returns whether there is an answer, and stores it in self.answer.
        The answer of fairq.wait() is True or False. The answer of another
        statement is the number of rows, and that of an error is its SQLSTATE.
        """
        if self.answer is not None:
            return True
        pg = self.db.pgconn
        try:
            pg.consume_input()
        except psycopg.OperationalError:
            pass                # data that arrived before the end can be read
        if pg.is_busy():
            return False
        while (result := pg.get_result()) is not None:
            if result.status == ExecStatus.TUPLES_OK:
                first = result.get_value(0, 0) if result.ntuples else None
                self.answer = (first == b"t" if first in (b"t", b"f")
                               else result.ntuples)
            elif (result.status == ExecStatus.FATAL_ERROR
                  and self.answer is None):
                state = result.error_field(ord("C"))
                self.answer = state.decode() if state else "lost"
        if self.answer is None:
            self.answer = "lost"
        self.at = now()
        return True

    def wait(self, seconds=60):
        """Returns the answer, or None if no answer arrives within that time."""
        return self.answer if any_answer([self], seconds) else None

    def close(self):
        self.db.close()


def any_answer(waiters, seconds):
    """Waits until one of the waiters has an answer, or the time is over.
    Returns the waiters that have an answer.
    """
    end = now() + seconds
    while True:
        done = [waiter for waiter in waiters if waiter.look()]
        left = end - now()
        if done or left <= 0:
            return done
        select.select(waiters, [], [], left)


def all_answers(waiters, seconds):
    """Waits until all waiters have an answer, or the time is over. Returns the
    waiters that have an answer."""
    end = now() + seconds
    while True:
        open_ones = [waiter for waiter in waiters if not waiter.look()]
        left = end - now()
        if not open_ones or left <= 0:
            return [waiter for waiter in waiters if waiter.look()]
        select.select(open_ones, [], [], left)


def asleep(db, waiters):
    """The number of waiters that sleep in fairq.wait()."""
    return value(db, "SELECT count(*) FROM pg_stat_activity"
                 " WHERE pid = ANY (%s) AND wait_event_type = 'Extension'",
                 [waiter.pid for waiter in waiters])


def put_to_sleep(db, waiters, queue, timeout="60 s", at_once=False):
    """Makes the waiters call fairq.wait(), and returns when they sleep. They
    call it one after the other, so that the first one is woken first. With
    at_once they call it together, which takes less time.
    """
    for some in [waiters] if at_once else [[waiter] for waiter in waiters]:
        for waiter in some:
            waiter.start(queue, timeout)
        until(lambda: asleep(db, some) == len(some)
              or any(waiter.look() for waiter in some),
              "a waiter does not go to sleep")
        for waiter in some:
            if waiter.answer is not None:
                raise TooSlow(f"fairq.wait() returned {waiter.answer} when"
                              " nothing was ready")


def until(condition, text, seconds=30):
    end = now() + seconds
    while not condition():
        expect(now() < end, f"{text} for {seconds} seconds")
        time.sleep(0.003)


def median(numbers):
    return sorted(numbers)[len(numbers) // 2]


def ms(seconds):
    return f"{seconds * 1000:.1f} ms"
