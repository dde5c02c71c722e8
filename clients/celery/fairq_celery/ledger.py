"""The tasks of this process, independent of its connections.

Celery forgets its messages when it loses its connection, while its processes continue the
tasks.  So a ledger per database records the tasks.  A thread with its own connection
renews the tasks' leases and finishes the tasks.  It retries until the server has
answered.
"""

import logging
import math
import os
import threading
import time
import weakref

import psycopg

from .database import LOST, connect
from .registry import Registration

log = logging.getLogger("fairq.celery")

# Another transaction has a lock that the statement needs, or the statement was cancelled.
HELD = psycopg.errors.LockNotAvailable, psycopg.errors.QueryCanceled

# seconds between two tries to end a task whose row is locked
HELD_PAUSE = 0.5

# seconds for which a task that must run alone waits, at most, until the server has
# the ends of others
ALONE = 10

ledgers = {}
opening = threading.Lock()


def ledger_of(conninfo, lease):
    with opening:
        ledger = ledgers.get(conninfo)
        if ledger is None or ledger.pid != os.getpid():
            ledger = ledgers[conninfo] = Ledger(conninfo)
        ledger.lease = lease
        return ledger


class Claim:
    """A task that fairq.pop has returned."""

    # JSON as text, since a task that cannot be decoded must fail alone
    COLUMNS = "id, attempt, group_key, queue, priority, attempts_left, lapses, batch"
    TEXTS = "payload::text, headers::text, progress::text"

    def __init__(self, row, unread=None):
        (self.id, self.attempt, self.group_key, self.queue, self.priority, self.attempts_left,
         self.lapses, self.batch, self.payload, self.headers, self.progress) = row
        self.unread = unread        # why there is no payload
        self.tag = f"{self.id}:{self.attempt}"
        self.ended = math.inf       # by the monotonic clock
        self.held = False           # another transaction had locked its row
        self.channel = None         # the channel that has popped it
        self.delivered = False      # Celery has the task
        self.popped = time.monotonic()
        self.warned = False         # the log has a warning that the task waits to run alone
        self.started = False        # a process has reported that it has begun the task
        self.stopped = False        # the task was lost, or cancelled

    def forget_content(self):
        self.payload = self.headers = self.progress = None

    def __str__(self):
        return f"task {self.id} of queue {self.queue}, group {self.group_key}"


class Ledger:
    def __init__(self, conninfo):
        self.conninfo, self.pid = conninfo, os.getpid()
        self.lease = 60
        self.changed = threading.Condition()
        self.claims = {}            # tasks that run, by tag
        self.ended = []             # (claim, verb, arguments), for the thread
        self.ending = []            # the ends that the thread sends now
        self.held = []              # the ends to retry
        self.again = 0              # when to retry, by the monotonic clock
        self.connection = None
        self.thread = None
        self.registration = Registration()
        self.transports = weakref.WeakSet()     # the transports that pop
        self.apart = None           # a claim that has to run alone
        self.one_by_one = False     # the next claim may also have to run alone
        self.stopping = False       # no more pops
        self.tell = lambda claim: None      # asks the task to stop; the thread calls it
        self.hear = lambda: None            # reads which tasks were started; the transport calls it

    # ---- for the transport

    def add(self, claims):
        with self.changed:
            for claim in claims:
                self.claims[claim.tag] = claim
            self.start()

    def start(self):
        if self.thread is None:
            self.thread = threading.Thread(target=self.run, daemon=True, name="fairq")
            self.thread.start()
        self.changed.notify_all()

    def register(self, pool):
        """Shows the worker in fairq.workers, until unregister()."""
        with self.changed:
            self.registration.begin(pool)
            self.start()

    def unregister(self, seconds):
        with self.changed:
            if self.registration.known:
                self.registration.ends, self.registration.due = True, 0
                self.changed.notify_all()
                self.changed.wait_for(lambda: not self.registration.known, seconds)

    def queues(self):
        """The queues from which this process takes tasks, in their order."""
        return list(dict.fromkeys(queue for transport in list(self.transports)
                                  for channel in list(transport.channels or ())
                                  for queue in channel.queues()))

    # A task whose lease has expired may have killed its worker, and other tasks with it. So
    # it runs with no other task in the whole worker, whose processes share a limit of
    # memory.

    def put_apart(self, claims):
        """The claims, except those of tasks whose leases have expired before.

        Keeps one of the excluded claims until all other tasks have ended.
        Releases the other claims, since their leases would expire if that task
        killed the worker.
        """
        lapsed = [claim for claim in claims if claim.lapses > 0]
        self.one_by_one = bool(lapsed)
        for claim in lapsed[1:]:
            self.finish(claim.tag, "hand_back")
        if lapsed:
            self.apart = lapsed[0]
        return [claim for claim in claims if claim.lapses == 0]

    def has_apart(self):
        """Whether a claim that must run alone is waiting or running."""
        return self.apart is not None and self.apart.tag in self.claims

    def next_apart(self, channel):
        """The waiting claim, once the channel may deliver it; or None."""
        late = time.monotonic() - ALONE
        with self.changed:
            claim = self.apart
            if (self.has_apart() and not claim.delivered and claim.channel is channel
                    and len(self.claims) == 1
                    and all(other.ended < late for other, _, _ in self.untold())):
                return claim
            return None

    def in_hand(self):
        """The number of tasks that run here, as far as the server knows.

        It includes tasks that have ended, until the server confirms their ends.
        After a second it includes only the ended tasks whose rows are locked.
        """
        late = time.monotonic() - 1
        with self.changed:
            telling = sum(claim.held or claim.ended > late for claim, _, _ in self.untold())
            return len(self.claims) + telling

    def untold(self):
        return self.ended + self.ending + self.held

    def finish(self, tag, verb, **arguments):
        """Makes the thread call complete, fail, hand_back or cancel, once per claim."""
        with self.changed:
            claim = self.claims.pop(tag, None)
            if claim is not None:
                claim.ended = time.monotonic()
                self.ended.append((claim, verb, arguments))
                self.changed.notify_all()

    def wake(self):
        """Wakes each transport, since there may be a free slot, or the worker stops."""
        for transport in list(self.transports):
            transport.wake()

    def stop(self):
        """Stops popping, immediately at the signal.  It takes no lock, since a signal
        handler calls it.

        Celery itself stops in the next turn of its loop, which may sleep for
        seconds.  Until then the end of a task would wake the loop, which would
        pop another task.
        """
        self.stopping = True
        self.wake()

    def release(self, condition, seconds):
        """Releases the claims that meet the condition.  Returns whether the server has
        answered."""
        for claim in list(self.claims.values()):
            if condition(claim):
                self.finish(claim.tag, "hand_back")
        return self.flush(seconds)

    def flush(self, seconds):
        with self.changed:
            return self.changed.wait_for(lambda: not self.untold(), seconds)

    # ---- the thread

    def run(self):
        beat = time.monotonic() + self.lease / 3
        while True:
            with self.changed:
                # connects at once, so that an end is sent quickly later
                until = min(beat, self.registration.due, self.again if self.held else beat)
                self.changed.wait_for(lambda: self.ended or self.connection is None
                                      or self.registration.is_due(),
                                      max(0, until - time.monotonic()))
                self.ending, self.ended = self.ended, []
                again = bool(self.held) and time.monotonic() >= self.again
                telling = bool(self.ending) or again
            try:
                if self.connection is None or self.connection.closed:
                    self.connection = connect(self.conninfo)
                self.end_all()
                if time.monotonic() >= beat:
                    self.keep()
                    beat = time.monotonic() + self.lease / 3
                if again:
                    self.end_held()
                self.registration.renew(self.connection, self.queues(), len(self.claims))
            except LOST as error:
                log.warning("%s", str(error).strip())
                self.lost_connection()
            except Exception:
                log.exception("cannot renew the leases of running tasks")
                self.lost_connection()
            with self.changed:
                self.changed.notify_all()
            if telling:
                self.wake()

    def lost_connection(self):
        if self.connection is not None:
            self.connection.close()
        with self.changed:
            self.ended = self.ending + self.ended
            self.ending = []
        time.sleep(1)

    def warn_of_wait(self):
        claim = self.apart
        if (claim is not None and self.has_apart() and not claim.delivered and not claim.warned
                and time.monotonic() - claim.popped > self.lease):
            claim.warned = True
            log.warning("%s: its lease has expired before, so it waits for all other tasks of the worker;"
                        " if one hangs, set a time limit", claim)

    def keep(self):
        self.warn_of_wait()
        with self.changed:
            held = sorted([*self.claims.values(), *(claim for claim, _, _ in self.held)],
                          key=lambda claim: claim.attempt)
        claims = {claim.id: claim for claim in held}
        if not claims:
            return
        (lost,) = self.connection.execute(
            "SELECT fairq.extend_batch(%s::bigint[], %s::int[], make_interval(secs => %s))",
            [list(claims), [claim.attempt for claim in claims.values()], self.lease]).fetchone()
        # also stops an attempt if this worker has a later one of the same task
        for claim in held:
            if (claim.id in lost or claims[claim.id] is not claim) and not claim.stopped:
                claim.stopped = True
                if claim is self.apart and not claim.delivered:
                    self.finish(claim.tag, "hand_back")     # the claim has lost the task
                else:
                    self.tell(claim)

    def end_all(self):
        done = [(claim, arguments.get("took")) for claim, verb, arguments in self.ending
                if verb == "complete" and not claim.held]
        if done:
            try:
                self.complete_all(done)
                self.ending = [end for end in self.ending if end[1] != "complete" or end[0].held]
            except psycopg.Error as error:
                if self.is_lost(error):
                    raise
                # the code below ends them one by one
        while self.ending:
            claim, verb, arguments = self.ending[0]
            try:
                getattr(self, verb)(claim, **arguments)
            except LOST as error:
                if self.is_lost(error):
                    raise
                if not self.held and not claim.held:
                    why = "another transaction has locked the task: " if isinstance(error, HELD) else ""
                    log.warning("task %s, %s: %s%s; retrying", claim.id, verb, why, str(error).strip())
                claim.held = True
                self.held.append(self.ending[0])
                self.again = time.monotonic() + HELD_PAUSE
            except psycopg.Error as error:      # the error is lasting, so the lease expires
                log.error("task %s, %s: %s", claim.id, verb, str(error).strip())
                if verb == "fail" and arguments.get("retry_in") is not None:
                    # the arguments may be invalid
                    self.ending[0] = claim, verb, {"error": str(error).strip()}
                    continue
            self.ending.pop(0)

    def is_lost(self, error):
        """Whether the error concerns the connection, not only its statement."""
        return isinstance(error, LOST) and (
            self.connection.closed or isinstance(error, psycopg.errors.ReadOnlySqlTransaction))

    def end_held(self):
        """Retries one claim whose row is locked, so that others need not wait.  Once it
        succeeds, retries all of them.
        """
        self.again = time.monotonic() + HELD_PAUSE
        while self.held and not self.ended:
            held = len(self.held)
            with self.changed:
                self.ending.append(self.held.pop(0))
            self.end_all()
            if len(self.held) == held:
                break       # the row is still locked

    def briefly(self):
        """The SQL call that limits how long its transaction waits for locks.

        An open transaction may have locked the row of a task, and other tasks
        need this connection too.
        """
        return f"set_config('lock_timeout', '{10 if self.held else 100}ms', true)"

    def complete_all(self, done):
        # The subquery sets the limit before the statement completes the first
        # task.  A wait that exceeds it fails the whole statement.
        refused = self.connection.execute(
            "SELECT t.id, t.attempt"
            " FROM unnest(%s::bigint[], %s::int[], %s::float8[]) t (id, attempt, took)"
            f" WHERE (SELECT {self.briefly()}) IS NOT NULL AND fairq.complete(t.id, t.attempt,"
            " took => make_interval(secs => t.took)) IS NOT TRUE",
            [[claim.id for claim, _ in done], [claim.attempt for claim, _ in done],
             [took for _, took in done]]).fetchall()
        for claim, _ in done:
            if (claim.id, claim.attempt) in refused:
                log.warning("the server refuses to complete %s: it was cancelled, or its lease was"
                            " lost and it may run twice", claim)

    def complete(self, claim, took=None):
        self.complete_all([(claim, took)])

    def fail(self, claim, error, retry_in=None, dead=False, took=None):
        text = error.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")
        (accepted,) = self.connection.execute(
            "SELECT fairq.fail(%s, %s, %s, make_interval(secs => %s), %s,"
            f" took => make_interval(secs => %s)) FROM {self.briefly()}",
            [claim.id, claim.attempt, text, retry_in, dead, took]).fetchone()
        if not accepted and not claim.stopped:
            log.warning("the server refuses the failure of %s: it was cancelled, or its lease was"
                        " lost", claim)

    def cancel(self, claim):
        self.connection.execute(f"SELECT fairq.cancel(%s) FROM {self.briefly()}", [claim.id])
        self.hand_back(claim)

    def hand_back(self, claim):
        self.connection.execute(f"SELECT fairq.release(%s, %s) FROM {self.briefly()}",
                                [claim.id, claim.attempt])
