"""The handler of the workers in this test.

A task takes 5 ms, 8 s or a minute.  The handler logs a line if more tasks run
than CONCURRENCY allows.
"""

import os
import time

running = []


def handle(task):
    running.append(task)
    if len(running) > int(os.environ["CONCURRENCY"]):
        print("too many tasks at a time", flush=True)
    time.sleep({"slow": 8, "long": 60}.get(str(task.payload), 0.005))
    running.remove(task)
