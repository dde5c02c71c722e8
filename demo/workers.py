"""Runs a queue: producers in this process, each worker in its own process."""

import multiprocessing
import signal
import threading
import time
from collections import namedtuple

import psycopg

import documents
import queues
from progress import Progress

# alice enqueues when this share of bob's tasks is done.
ALICE_COMES = 0.05
# A run fails if it makes no progress for this number of seconds.
STALLED = 60

Times = namedtuple("Times", "ids start alice_enqueued end")


class Failure(Exception):
    """A run that could not finish."""


def work(kind, number, most, start, stop, done):
    """One worker process, which takes and runs tasks until its stop event is
    set."""
    # Ctrl-C signals the whole process group, and only the parent handles the
    # signal.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def do(task):
        started = time.time()
        words, sha256 = documents.process(task.path)
        return queues.Result(number, task, started, time.time(), words, sha256)

    with psycopg.connect(autocommit=True) as connection:
        queue = kind(connection)
        start.wait()
        while not stop.is_set():
            count = queue.work(most, number, do)
            with done.get_lock():
                done.value += count
            if count == 0:
                stop.wait(0.01)


def run(queue, paths, page, workers, most):
    """Enqueues bob's tasks, starts the workers, later enqueues alice's task,
    and waits for the end."""
    ids = queue.enqueue("bob", paths)
    total = len(ids) + 1

    # Processes are spawned, not forked, so that they do not inherit the
    # parent's connection.
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(workers + 1)
    stop = context.Event()
    done = context.Value("q", 0)
    processes = [
        context.Process(
            target=work, daemon=True,
            args=(type(queue), number, most, start, stop, done))
        for number in range(workers)]
    for process in processes:
        process.start()
    try:
        try:
            start.wait(STALLED)
        except threading.BrokenBarrierError:
            raise Failure("the workers did not start") from None
        started = time.time()
        alice_enqueued = None
        with Progress(queue.name, total) as progress:
            seen, moved = 0, started
            while seen < total:
                time.sleep(0.005)
                if any(p.exitcode is not None for p in processes):
                    raise Failure("a worker has ended")
                if done.value > seen:
                    seen, moved = done.value, time.time()
                elif time.time() - moved > STALLED:
                    raise Failure("nothing done for %d s; %d of %d tasks"
                                  % (STALLED, seen, total))
                progress.show(seen)
                if alice_enqueued is None and seen >= ALICE_COMES * total:
                    ids += queue.enqueue("alice", [page])
                    alice_enqueued = time.time()
        end = time.time()
        # If a task runs twice, that happens now.
        time.sleep(0.1)
        stop.set()
        for process in processes:
            process.join(STALLED)
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.join()
    return Times(ids, started, alice_enqueued, end)
