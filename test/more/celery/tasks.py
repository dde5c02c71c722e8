"""The application of the tests.  What its tasks do is told in lines of the file EVENTS."""

import os
import signal
import time

import celery
from celery import exceptions

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


@app.task(bind=True)
def note(self, word, tenant=None, seconds=0):
    say("note", word, self.request.fairq["group"], self.request.fairq["attempt"])
    time.sleep(seconds)
    say("end", word)


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
    """For another worker than this process."""
    flag = os.environ["EVENTS"] + ".elsewhere"
    say("elsewhere", self.request.fairq["attempt"])
    if not os.path.exists(flag):
        open(flag, "w").close()
        raise exceptions.Reject("elsewhere", requeue=True)


@app.task
def die():
    os.kill(os.getpid(), signal.SIGKILL)
