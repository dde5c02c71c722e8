"""Additions to Celery's worker when fairq is its broker.

Celery acknowledges both failed and successful tasks, so Request records the outcome in the
message.  The worker asks tasks that were cancelled or lost to stop.
"""

import atexit
import logging
import os
import select
import signal
import sys
import threading
import time

import celery
from billiard import einfo as billiard_einfo
from billiard.exceptions import Terminated, WorkerLostError
from celery import exceptions, signals
from celery.concurrency.asynpool import AsynPool
from celery.worker import request, state

from .ledger import ledgers
from .transport import Transport

log = logging.getLogger("fairq.celery")

# the class in which billiard 4 wraps an error of a process
WRAPPED = getattr(billiard_einfo, "ExceptionWithTraceback", ())

# seconds that a process has to report the start of its task
TO_BEGIN = 0.5

# greatest number of an error's causes that fairq stores
MOST_CAUSES = 10

# seconds for exit handlers, when tasks do not stop
TO_EXIT = 5

# seconds between checks for ended processes
TO_LOOK = 0.1

ready = {}      # "consumer": the consumer of this process's worker
exiting = {}    # "thread": the thread that runs the exit handlers


class Retry(exceptions.Retry):
    """A task raises this so that fairq retries the task.

    "when" is the delay in seconds, or None for the queue's backoff.  After
    max_attempts attempts the task fails.
    """

    def __init__(self, when=None, message="to be retried", exc=None, **kwargs):
        if isinstance(exc, BaseException):
            note_causes(exc)
        super().__init__(message=message, exc=exc, when=when, **kwargs)

    def __reduce__(self):
        return type(self), (self.when, self.message, self.exc)


def text_of(error):
    """The error and its causes."""
    text = brief(error)
    if isinstance(error, BaseException):
        causes = getattr(error, "fairq_causes", None) or causes_of(error)
        text = "; caused by ".join([text, *causes])
    return text


def brief(error):
    try:
        text = str(error)
    except Exception as raised:
        text = f"(str() of this error raised {type(raised).__name__})"
    if not isinstance(error, BaseException):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def causes_of(error):
    causes, seen = [], {id(error)}
    while len(causes) < MOST_CAUSES:
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        # an error that a process has sent has the text of its traceback as the cause
        if error is None or id(error) in seen or type(error).__name__ == "RemoteTraceback":
            break
        seen.add(id(error))
        causes.append(brief(error))
    return causes


def note_causes(error):
    """Stores the causes in an attribute, since an exception from a process
    arrives without its causes, but with its attributes."""
    causes = causes_of(error)
    if causes:
        try:
            error.fairq_causes = causes
        except AttributeError:
            pass


@signals.task_failure.connect
def keep_causes(exception=None, einfo=None, **kwargs):
    if isinstance(exception, BaseException):
        note_causes(exception)
        # the replacement for an exception that cannot be pickled
        sent = getattr(einfo, "exception", None)
        sent = getattr(sent, "exc", sent)
        if isinstance(sent, BaseException) and hasattr(exception, "fairq_causes"):
            sent.fairq_causes = exception.fairq_causes


class Request(request.Request):
    soft_limit = None       # in seconds; None until the task reaches it

    def on_accepted(self, pid, time_accepted):
        self._message.began = time.monotonic()
        for ledger in list(ledgers.values()):
            claim = ledger.claims.get(self._message.delivery_tag)
            if claim is not None:
                claim.started = True
        super().on_accepted(pid, time_accepted)

    def __init_subclass__(cls, **kwargs):
        """Celery's own subclass treats any value as a result.  In a thread whose task
        has raised SystemExit, for example, the value is an error.
        """
        super().__init_subclass__(**kwargs)
        succeeded = cls.on_success

        def on_success(self, ended, **kwargs):
            if isinstance(ended, billiard_einfo.ExceptionInfo):
                return self.on_failure(ended)
            return succeeded(self, ended, **kwargs)

        cls.on_success = on_success

    def on_failure(self, exc_info, send_failed_event=True, return_ok=False):
        message, error = self._message, exc_info.exception
        if isinstance(error, WRAPPED):
            error = error.exc
        if isinstance(error, WorkerLostError) and state.should_terminate not in (None, False):
            return self.hand_back()     # a cold shutdown has killed the process
        if isinstance(error, MemoryError):
            # Celery would raise the exception again, which ends the worker with all
            # of its tasks
            exc_info.exception = error = RuntimeError(brief(error))
        if isinstance(error, Retry):
            message.failure, message.retry_in = text_of(error.exc or error.message), error.when
        elif isinstance(error, exceptions.Reject):
            if not error.requeue:
                message.failure, message.dead = text_of(error.reason or error), True
        elif isinstance(error, exceptions.TimeLimitExceeded):
            self.note_timeout(self.time_limits[0])
        elif not isinstance(error, (exceptions.Retry, exceptions.Ignore, Terminated)):
            message.failure = text_of(error)
            if self.soft_limit is not None and isinstance(error, exceptions.SoftTimeLimitExceeded):
                message.failure = (f"timed out at the soft time limit of {self.soft_limit} seconds:"
                                   f" {message.failure}")
            message.dead = self.acknowledges("failure") and not (
                self.task.reject_on_worker_lost and isinstance(error, WorkerLostError))
        return super().on_failure(exc_info, send_failed_event=send_failed_event,
                                  return_ok=return_ok)

    def acknowledges(self, what):
        """Whether the task's failure or timeout (what) is final.  Celery 5.7
        has one setting for failures and one for timeouts.
        """
        own = getattr(self.task, f"acks_on_{what}", None)
        return self.task.acks_on_failure_or_timeout if own is None else own

    def note_timeout(self, timeout):
        self._message.failure = f"timed out at the hard time limit of {timeout} seconds"
        self._message.dead = self.acknowledges("timeout")

    def on_timeout(self, soft, timeout):
        if soft:
            self.soft_limit = timeout
        else:
            self.note_timeout(timeout)
        super().on_timeout(soft, timeout)
        if not soft and self.task.acks_late:
            # without an acknowledgement, Celery does not reject the task either
            self.reject(requeue=False)

    # Celery's loop calls the message's ack and reject, and ends when the worker
    # stops.  Later calls would have to wait until all processes have ended,
    # perhaps after the end of the grace period.

    def acknowledge(self):
        if self.is_stopping() and not self.acknowledged:
            self._message.ack_log_error(log, self._connection_errors)
            self.acknowledged = True
        super().acknowledge()
        self.wake()

    def reject(self, requeue=False):
        if self.is_stopping() and not self.acknowledged:
            self._message.reject_log_error(log, self._connection_errors, requeue)
            self.acknowledged = True
            self.send_event("task-rejected", requeue=requeue)
        super().reject(requeue)
        self.wake()

    def is_stopping(self):
        return any(ledger.stopping for ledger in list(ledgers.values()))

    def wake(self):
        """Wakes the hub, which may sleep while threads run tasks."""
        for ledger in list(ledgers.values()):
            ledger.wake()

    def _announce_cancelled(self, *args, **kwargs):
        """Celery has ended the process, since the connection is lost or the worker ends at
        once. Celery leaves the retry to the broker.
        """
        super()._announce_cancelled(*args, **kwargs)
        self.hand_back()

    def hand_back(self):
        # not reject(), which would store the exception that is being handled
        self._message.channel.qos.settle(self._message.delivery_tag, requeue=True)
        self.acknowledged = True

    def _announce_revoked(self, reason, terminated, signum, expired):
        self._message.cancelled = True
        super()._announce_revoked(reason, terminated, signum, expired)


def is_fairq(app):
    with app.connection_for_read() as connection:
        return connection.transport.driver_type == "fairq"


@signals.worker_init.connect
def prepare(sender, **kwargs):
    """Called before the worker creates its parts."""
    app = sender.app
    if not is_fairq(app):
        return
    Transport.serves_worker = True
    atexit.register(hand_back)
    if app.Task.Request == "celery.worker.request:Request":
        app.Task.Request = "fairq_celery.worker:Request"
    if not app.conf.task_acks_late:
        log.warning("task_acks_late is off: Celery acknowledges a task when it begins, so the tasks"
                    " of a worker that dies are lost; set task_acks_late = True")
    multiplier = sender.prefetch_multiplier
    if multiplier != 1:
        log.warning("worker_prefetch_multiplier is %s: prefetched tasks run before those of groups"
                    " whose turn it is; set worker_prefetch_multiplier = 1", multiplier)


def hand_back():
    """Releases tasks after a cold shutdown, since their processes have ended.

    Otherwise their leases would expire, as if the tasks had killed the worker.
    """
    for ledger in list(ledgers.values()):
        if ledger.pid == os.getpid() and ledger.release(lambda claim: True, 4):
            ledger.unregister(4)


def hear_of_begun(pool):
    """Waits, for TO_BEGIN at most, until the pool's processes have reported the start of
    each task that they have.

    When Celery stops, or loses its connection, it forgets tasks for which it has no
    such report.  Such a task would be released while a process runs it, and so it
    would run twice.  The process would also take half a minute to end, since Celery
    would not read its result.
    """
    if not isinstance(pool, AsynPool):
        return      # the other pools report each task when they begin it
    handler = pool._result_handler
    pipes = set(pool._fileno_to_outq)
    end = time.monotonic() + TO_BEGIN
    while any(job._write_to and not job._accepted for job in list(pool._cache.values())):
        heard, _, _ = select.select(pipes, [], [], max(0, end - time.monotonic()))
        if not heard:
            break
        for fd in heard:
            # the loop does not use the hub, which may have ended and which
            # reads in pieces
            handler._flush_outqueue(fd, pipes.discard, pool._fileno_to_outq,
                                    handler.on_state_change)


def read_results_at_once(pool):
    """Reads results without delay while Celery stops.

    Celery asks one process after the other, and sleeps for half a second after
    each one that has no result.  With many processes that would exceed the
    grace.
    """
    if not isinstance(pool, AsynPool):
        return
    handler = pool._result_handler
    flush = handler._flush_outqueue

    def flush_if_any(fd, remove, process_index, on_state_change):
        try:
            heard, _, _ = select.select(list(process_index), [], [], TO_LOOK)
        except (OSError, ValueError):       # a pipe has just been closed
            heard = [fd]
        if fd in heard or fd not in process_index:
            flush(fd, remove, process_index, on_state_change)

    handler._flush_outqueue = flush_if_any


@signals.worker_ready.connect
def listen_to_ledgers(sender, **kwargs):
    """Makes the ledgers ask lost and cancelled tasks to stop, by a signal.  They also learn
    which tasks have begun, before Celery forgets the others.
    """
    consumer = ready["consumer"] = sender
    name = consumer.app.conf.broker_transport_options.get("cancel_signal", "USR1")
    number = getattr(signal, f"SIG{name}")

    def tell(claim):
        for running in list(state.active_requests):
            if running._message.delivery_tag == claim.tag:
                log.warning("task %s was cancelled, or its lease is lost: stopping %s",
                            claim.id, running.humaninfo())
                # Celery's revoke would acknowledge the task while it still runs
                try:
                    consumer.pool.terminate_job(running.worker_pid, number)
                except NotImplementedError:
                    log.warning("this pool cannot stop a task, so %s runs to its end", claim)

    def hear():
        hear_of_begun(getattr(consumer.pool, "_pool", None))

    conf = consumer.app.conf
    if (conf.task_time_limit or conf.task_soft_time_limit) and not isinstance(
            getattr(consumer.pool, "_pool", None), AsynPool):
        log.warning("tasks have no time limits in this pool: Celery has them in prefork only")
    for ledger in list(ledgers.values()):
        ledger.tell, ledger.hear = tell, hear
        ledger.register(consumer.pool)
    read_results_at_once(getattr(consumer.pool, "_pool", None))
    flush = consumer.pool.flush
    if flush is not None:

        def hear_and_flush():
            hear()
            # Celery 5.3 to 5.5 also forgets jobs that run, so that nobody would read their
            # results
            cache = getattr(getattr(consumer.pool, "_pool", None), "_cache", {})
            running = {number: job for number, job in list(cache.items()) if job._accepted}
            flush()
            for number, job in running.items():
                if not job.ready():
                    cache.setdefault(number, job)

        consumer.pool.flush = hear_and_flush


@signals.worker_shutdown.connect
def end_with_its_status(sender=None, **kwargs):
    """The command of Celery before 5.3 ends with status 0 in all cases."""
    if Transport.serves_worker and sender.exitcode and celery.VERSION < (5, 3):
        raise SystemExit(sender.exitcode)


@signals.worker_shutting_down.connect
def shut_down(how=None, **kwargs):
    """Stops popping.  With the transport option grace, tasks that still run after
    that time are released.
    """
    for ledger in list(ledgers.values()):
        ledger.stop()
    consumer = ready.get("consumer")
    if consumer is None or how != "Warm":
        return
    grace = consumer.app.conf.broker_transport_options.get("grace")
    if grace is None:
        return
    atexit.register(exit_once)      # registered last, so it runs first
    timer = threading.Timer(float(grace), end_now, [consumer])
    timer.daemon = True
    timer.start()


def end_now(consumer):
    log.warning("releasing tasks that still run")
    for ledger in list(ledgers.values()):
        if not ledger.release(lambda claim: True, 4):
            log.error("the server has not answered, so their leases have to expire first")
    for process in getattr(getattr(consumer.pool, "_pool", None), "_pool", None) or ():
        try:
            os.kill(process.pid, signal.SIGKILL)
        except (OSError, AttributeError):
            pass
    # Celery would wait for its processes, and Python for threads, so this function
    # ends the program
    ending = threading.Thread(target=run_exit_handlers, args=[consumer], daemon=True)
    ending.start()
    ending.join(TO_EXIT)
    os._exit(0)


def exit_once():
    """Blocks every thread except the first one that calls it, which runs the exit
    handlers.

    Once the worker's processes are killed, the main thread can also end and then
    run the exit handlers.
    """
    if exiting.setdefault("thread", threading.get_ident()) != threading.get_ident():
        threading.Event().wait()    # the other thread ends the process


def run_exit_handlers(consumer):
    """Runs the exit handlers of the application, of logging and of other
    modules."""
    signals.worker_shutdown.send(sender=consumer.controller)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
