"""The application of the tests.  Its tasks write lines into the file EVENTS."""

import atexit
import json
import os
import signal
import time

import celery
from celery import exceptions, signals

import fairq_celery

app = celery.Celery("tasks", broker=os.environ.get("BROKER", "fairq://"))
app.conf.update(
    task_default_queue="jobs", task_acks_late=True, worker_prefetch_multiplier=1,
    worker_cancel_long_running_tasks_on_connection_loss=False,
    broker_transport_options={"group": ["header:tenant", "arg:tenant"],
                              "lease": float(os.environ.get("LEASE", 30))})
app.conf.update(eval(os.environ.get("SETTINGS", "{}")))


def say(*words):
    with open(os.environ["EVENTS"], "ab", buffering=0) as file:
        file.write((" ".join(map(str, words)) + "\n").encode())


@signals.worker_init.connect
def prepare(**kwargs):
    atexit.register(say, "at_exit")


@app.task(bind=True)
def note(self, word, tenant=None, seconds=0):
    say("note", word, self.request.fairq["group"], self.request.fairq["attempt"])
    time.sleep(seconds)
    say("end", word)


@app.task(bind=True)
def ends(self, word):
    say("ends", word, json.dumps({"batch": self.request.fairq["batch"], "ends": self.request.batch}))


@app.task
def add(x, y=1):
    say("add", x, y)
    return x + y


@app.task(bind=True, max_retries=3)
def flaky(self, word):
    say("flaky", word, self.request.retries, self.request.fairq["group"],
        self.request.get("traceparent"))
    if self.request.retries < 2:
        raise self.retry(countdown=0.2)


@app.task(bind=True)
def patient(self):
    say("patient", self.request.fairq["attempt"])
    if self.request.fairq["attempt"] == 1:
        raise fairq_celery.Retry(0.3, "the API is down")


@app.task
def broken():
    raise RuntimeError("it is broken")


class Mute(Exception):
    def __str__(self):
        raise KeyError("no text")


@app.task
def mute():
    raise Mute


@app.task
def early():
    raise fairq_celery.Retry(-5, "too early")


@app.task
def refused():
    raise exceptions.Reject("not this one", requeue=False)


@app.task(bind=True)
def elsewhere(self):
    """Rejects its first attempt with requeue, so the next attempt can run in
    another process."""
    flag = os.environ["EVENTS"] + ".elsewhere"
    say("elsewhere", self.request.fairq["attempt"])
    if not os.path.exists(flag):
        open(flag, "w").close()
        raise exceptions.Reject("elsewhere", requeue=True)


@app.task
def die():
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(time_limit=1)
def deaf():
    say("deaf")
    time.sleep(600)


@app.task(soft_time_limit=1)
def long():
    say("long")
    time.sleep(600)


@app.task
def chained():
    try:
        try:
            open("/nowhere/at/all")
        except OSError as error:
            raise LookupError("no invoice") from error
    except LookupError:
        raise RuntimeError("not sent")


@app.task
def chained_retry():
    try:
        raise LookupError("no invoice") from OSError("disk is full")
    except LookupError as error:
        raise fairq_celery.Retry(0.1, exc=error)


@app.task
def greedy():
    raise MemoryError("too large")


@app.task
def quits(error):
    raise SystemExit(3) if error == "SystemExit" else KeyboardInterrupt


@app.task
def large(size):
    return "x" * size


@app.task
def slow_one(seconds):
    time.sleep(seconds)
    return 1


@app.task
def total(numbers):
    say("total", sum(numbers))


@app.task(bind=True)
def end_worker(self):
    """Kills the worker, like the kernel when a container has used up its memory."""
    say("end_worker", self.request.fairq["attempt"])
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(600)
