#!/usr/bin/env python3
"""A worker for a fairq queue: Python, psycopg 3, threads.

    worker.py QUEUE [MODULE]

Does the queue's tasks with MODULE.handle(task), or with handle() below.
The database is that of PGHOST, PGDATABASE and so on, or those of SHARDS are, if
the queue is spread over several.  See README.md.
"""

import importlib
import logging
import os
import sys

# The package is beside this, if it is not installed.
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../clients/python"))

import fairq

log = logging.getLogger("worker")


def handle(task):
    """The work, to be replaced by yours.

    To return is to have done it; what is returned is kept as the result if
    the queue retains.  To raise is to have failed: it is tried again later.
    Long work calls task.check() now and then, which raises if it is in vain.
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
        grace=float(os.environ.get("GRACE", 5)),    # seconds for what runs at the end
        timeout=float(os.environ.get("TIMEOUT", 0)) or None,    # seconds per task
        databases=os.environ.get("SHARDS", "").split() or "")   # connection URIs
    worker.handler()(handle)
    worker.main()
