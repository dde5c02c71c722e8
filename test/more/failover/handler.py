"""The handler of worker.py in this test.

A task takes 50 ms, and writes a line at its beginning and at its end.
"""

import os
import time

log = os.open(os.environ["FAILOVER_LOG"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def note(what, task):
    os.write(log, f"{what} {task.id} {task.attempt} {task.group_key} {time.monotonic()}\n".encode())


def handle(task):
    note("begin", task)
    time.sleep(0.05)
    note("end", task)
    return "done"
