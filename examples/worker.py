#!/usr/bin/env python3
"""A worker for a fairq queue: Python, psycopg 3, threads.

    worker.py QUEUE [MODULE]

Runs the queue's tasks with MODULE.handle(task), or with handle() below.
PGHOST, PGDATABASE and so on name the database.  SHARDS names several databases,
if the queue is spread over them.  See README.md.
"""

import importlib
import logging
import os
import sys

# Without an installed package, use the one of this tree.
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../clients/python"))

import fairq

log = logging.getLogger("worker")


def handle(task):
    """Replace this by your work.

    If the handler returns, the task is completed, and the archive keeps the
    value if the queue has retain.  If it raises, the task is retried later.
    Long work calls task.check() now and then, which raises if the work must
    stop.
    """
    log.info("task %s of %s: %s", task.id, task.group_key, task.payload)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    if len(sys.argv) > 2:
        sys.path.insert(0, os.getcwd())
        handle = importlib.import_module(sys.argv[2]).handle
    worker = fairq.Worker(
        sys.argv[1],
        concurrency=int(os.environ.get("CONCURRENCY", 4)),      # tasks at a time
        lease=float(os.environ.get("LEASE", 60)),
        grace=float(os.environ.get("GRACE", 5)),    # seconds for tasks that still run at the end
        timeout=float(os.environ.get("TIMEOUT", 0)) or None,    # seconds per task
        databases=os.environ.get("SHARDS", "").split() or "")   # connection URIs
    worker.handler()(handle)
    worker.main()
