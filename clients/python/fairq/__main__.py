"""The command: fairq work MODULE:WORKER, or python3 -m fairq.

Exit status: 0 after SIGTERM or SIGINT.  1: the worker cannot work.  2: there is no such
worker or option.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import sys
from typing import List, NoReturn, Optional

from .worker import Worker


def find(parser: argparse.ArgumentParser, place: str) -> Worker:
    module, _, name = place.partition(":")
    sys.path.insert(0, os.getcwd())
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not (module + ".").startswith(error.name + "."):
            raise               # an import in the module has failed
        parser.error(f"there is no module {module}")
    worker = getattr(found, name or "worker", None)
    if not isinstance(worker, Worker):
        parser.error(f"{module} has no fairq.Worker that is named {name or 'worker'}")
    return worker


def main(arguments: Optional[List[str]] = None) -> NoReturn:
    parser = argparse.ArgumentParser(prog="fairq")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    work = commands.add_parser("work", help="run a worker", description=__doc__)
    work.add_argument("worker", metavar="MODULE:WORKER",
                      help="a module of the current directory, and its worker; :worker by default")
    work.add_argument("--concurrency", type=int, help="number of tasks at a time")
    work.add_argument("--processes", action="store_true", help="run functions in processes")
    work.add_argument("--queue", action="append",
                      help="a queue to serve instead of the worker's; may be repeated")
    work.add_argument("--log-level", default="INFO", help="level of the lines on stderr, INFO by default")
    work.add_argument("--alive", metavar="FILE", help="a file to touch every second while the worker works")
    work.add_argument("--metrics", type=int, metavar="PORT", help="serve metrics for Prometheus at the port")
    given = parser.parse_args(arguments)
    level = getattr(logging, given.log_level.upper(), None)
    if not isinstance(level, int):
        parser.error(f"there is no log level {given.log_level}")
    if given.concurrency is not None and given.concurrency < 1:
        parser.error("--concurrency must be at least 1")
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    worker = find(parser, given.worker)
    worker.configure(queues=given.queue, concurrency=given.concurrency, alive=given.alive,
                     processes=given.processes)
    if given.metrics is not None:
        from . import prometheus
        prometheus.serve(worker, given.metrics)
    worker.main()


if __name__ == "__main__":
    main()
