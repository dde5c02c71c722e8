#!/usr/bin/python3
"""The work of the test tasks: a module for examples/worker.py, and a command for
examples/worker.sh.

A payload may have
    seconds         the duration of the work
    first_seconds   the duration of the first attempt
    fails           the number of attempts that fail before one succeeds
    stubborn        true if the command ignores SIGTERM
Each event is written as a line to the file EXAMPLES_LOG.
"""

import json
import os
import signal
import sys
import time


def record(event, task):
    line = json.dumps({"event": event, "time": time.time(),
                       "worker": os.environ["PGAPPNAME"],
                       "id": int(task.id), "attempt": int(task.attempt),
                       "group": task.group_key, "payload": task.payload})
    with open(os.environ["EXAMPLES_LOG"], "a", encoding="utf-8") as log:
        log.write(line + "\n")


def handle(task):
    record("begin", task)
    payload = task.payload
    seconds = payload.get("seconds", 0)
    if task.attempt == 1:
        seconds = payload.get("first_seconds", seconds)
    end = time.time() + seconds
    while time.time() < end:
        task.check()
        time.sleep(0.02)
    if task.attempt <= payload.get("fails", 0):
        raise ValueError("it broke: \u00fc \"quoted\"\nline 2 of '%s'" % task.group_key)
    record("end", task)
    return {"done": task.group_key}


class Command:
    """The task, from its data in the environment and in the input."""

    def __init__(self):
        self.id = os.environ["FAIRQ_ID"]
        self.attempt = int(os.environ["FAIRQ_ATTEMPT"])
        self.group_key = os.environ["FAIRQ_GROUP"]
        self.payload = json.load(sys.stdin)

    def check(self):
        """The worker kills the command if it ignores SIGTERM."""


if __name__ == "__main__":
    sys.stderr.reconfigure(encoding="utf-8")
    command = Command()
    if command.payload.get("stubborn"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        handle(command)
    except ValueError as error:
        sys.exit(str(error))
