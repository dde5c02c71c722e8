"""The server: databases, sessions, pgbench, and the machine's properties."""

import contextlib
import glob
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

import psycopg
from psycopg.pq import ExecStatus


def fail(message):
    sys.exit("measure: " + message)


# ---------------------------------------------------------------- databases

def connect(database):
    return psycopg.connect(dbname=database, autocommit=True)


@contextlib.contextmanager
def at(host):
    """Inside this context, connections go to this server."""
    before = os.environ["PGHOST"]
    os.environ["PGHOST"] = host
    try:
        yield
    finally:
        os.environ["PGHOST"] = before


def create_database(name):
    with connect("postgres") as connection:
        connection.execute("CREATE DATABASE %s" % name)


def drop_database(name):
    with connect("postgres") as connection:
        connection.execute("DROP DATABASE %s WITH (FORCE)" % name)


def checkpoint():
    """Makes a checkpoint.  Called between measurements, so that none happens
    during a measurement."""
    with connect("postgres") as connection:
        connection.execute("CHECKPOINT")


def restart():
    """Restarts the server in mode fast.  Its files stay in the page cache."""
    cluster = os.environ.get("FAIRQ_CLUSTER") or fail(
        "only a server of test/cluster can be restarted")
    subprocess.run(["pg_ctl", "-D", cluster + "/data", "-l", cluster + "/log",
                    "-m", "fast", "-w", "restart"], check=True,
                   stdout=subprocess.DEVNULL)


def vacuum(connection):
    tables = connection.execute(
        "SELECT string_agg(relid::regclass::text, ', ')"
        " FROM pg_stat_user_tables").fetchone()[0]
    connection.execute("VACUUM (ANALYZE) " + tables)


class Cancelled(Exception):
    """Raised when a call took longer than allowed."""


class Session:
    """One connection, with statements prepared as pgbench does it.

    This class calls libpq itself, so the measured time is the server's, without
    psycopg's own work.
    """

    def __init__(self, database, wait_for_commit=False, limit=None):
        self.limit = limit
        self.connection = connect(database)
        self.connection.execute("SET synchronous_commit = "
                                + ("on" if wait_for_commit else "off"))
        if limit:
            self.connection.execute("SET statement_timeout = '%ds'" % limit)
        self.pgconn = self.connection.pgconn
        self.prepared = {}

    def run(self, sql, **variables):
        """Runs a statement with variables like pgbench's.

        Returns its milliseconds, and its rows as dictionaries of text.
        """
        if sql not in self.prepared:
            self.prepared[sql] = self.prepare(sql)
        name, names = self.prepared[sql]
        values = [str(variables[n]).encode() for n in names]
        start = time.perf_counter()
        result = self.pgconn.exec_prepared(name, values)
        took = (time.perf_counter() - start) * 1000
        self.check(result)
        columns = [result.fname(i).decode() for i in range(result.nfields)]
        return took, [{column: (result.get_value(row, i) or b"").decode()
                       for i, column in enumerate(columns)}
                      for row in range(result.ntuples)]

    def prepare(self, sql):
        names = []

        def parameter(match):
            if match.group(1) not in names:
                names.append(match.group(1))
            return "$%d" % (names.index(match.group(1)) + 1)

        text = re.sub(r"(?<!:):([a-z]\w*)", parameter, sql)
        name = b"s%d" % len(self.prepared)
        self.check(self.pgconn.prepare(name, text.encode()))
        return name, names

    def check(self, result):
        if result.status in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK):
            return
        message = result.error_message.decode()
        if "statement timeout" in message:
            raise Cancelled("a call > %d s" % self.limit)
        fail(message)

    def close(self):
        self.connection.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


@contextlib.contextmanager
def one_core(*connections):
    """Keeps this process and the servers of these connections on one core.

    Otherwise the time includes waking another core.  That waking takes as long
    as a short call, and differs from session to session.
    """
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    cores = os.sched_getaffinity(0)
    servers = [connection.info.backend_pid for connection in connections]
    for process in [0] + servers:
        os.sched_setaffinity(process, {max(cores)})
    try:
        yield
    finally:
        for process in [0] + servers:
            os.sched_setaffinity(process, cores)


# ------------------------------------------------------------------ pgbench

class Run:
    """A run of pgbench with a script, for some seconds or a number of script
    runs."""

    def __init__(self, database, script, clients, seconds=None, times=None,
                 wait_for_commit=True, log=False, variables=()):
        self.directory = tempfile.TemporaryDirectory(prefix="pgbench.")
        path = os.path.join(self.directory.name, "script.sql")
        with open(path, "w", encoding="utf-8") as file:
            file.write(script)
        command = ["pgbench", "-n", "-M", "prepared", "-f", path,
                   "-c", str(clients), "-j", str(min(clients, 2))]
        for variable in variables:
            command += ["-D", variable]
        command += (["-T", str(seconds)] if seconds is not None
                    else ["-t", str(max(1, times // clients))])
        if log:
            command += ["-l", "--log-prefix",
                        os.path.join(self.directory.name, "log")]
        options = "-c synchronous_commit=" + ("on" if wait_for_commit
                                              else "off")
        self.process = subprocess.Popen(
            command + [database], env=dict(os.environ, PGOPTIONS=options),
            text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def wait(self):
        """Waits until pgbench ends.  Returns the script runs per second."""
        output, errors = self.process.communicate()
        if (self.process.returncode != 0
                or "number of failed transactions: 0 " not in output):
            fail("pgbench failed:\n" + output + errors)
        self.count = int(re.search(r"actually processed: (\d+)",
                                   output).group(1))
        return float(re.search(r"tps = ([\d.]+)", output).group(1))

    def latencies(self):
        """The milliseconds of the script runs, in a list for each client."""
        clients = {}
        for path in glob.glob(os.path.join(self.directory.name, "log*")):
            with open(path, encoding="ascii") as file:
                for line in file:
                    client, _, took = line.split(None, 3)[:3]
                    clients.setdefault(client, []).append(int(took) / 1000)
        return list(clients.values())


def pgbench(*args, **options):
    return Run(*args, **options).wait()


def percentile(times, percent):
    times = sorted(times)
    return times[min(len(times) - 1, int(len(times) * percent / 100))]


# -------------------------------------------------------------- the machine

def fdatasync_time():
    """The microseconds of an fdatasync of 8 kB on the cluster's disk."""
    times = []
    with tempfile.NamedTemporaryFile(dir=os.environ.get("FAIRQ_CLUSTER")) as f:
        for _ in range(200):
            os.pwrite(f.fileno(), b"x" * 8192, 0)
            start = time.perf_counter()
            os.fdatasync(f.fileno())
            times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6


def machine():
    with connect("postgres") as connection:
        version, assertions, buffers = connection.execute(
            "SELECT version(), current_setting('debug_assertions'),"
            " current_setting('shared_buffers')").fetchone()
    cflags = subprocess.run([os.environ.get("PG_CONFIG", "pg_config"),
                             "--cflags"], text=True, check=True,
                            stdout=subprocess.PIPE).stdout
    flags = [f for f in cflags.split() if re.match(r"-O|-fno-omit|-fsanit", f)]
    return {"version": " ".join(version.split(",")[0].split()[:2]),
            "flags": " ".join(flags),
            "assertions": assertions == "on",
            "cores": os.cpu_count(),
            "shared_buffers": buffers,
            "fdatasync_us": round(fdatasync_time())}
