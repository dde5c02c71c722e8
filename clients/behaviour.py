#!/usr/bin/python3
"""Runs the clients in the situations of README.md.

    clients/behaviour.py [--client NAME...] [--only N...] [--jobs N] [--through HOST:PORT]
    clients/behaviour.py --client NAME (--command COMMAND | --python PYTHON) [--only N...] [--jobs N]
    clients/behaviour.py --pairs [--client NAME...]

Needs the environment of test/cluster: a server with the extension created,
whose superuser is PGUSER, and PostgreSQL's programs in PATH.  Situations that
restart the server, or shift its clock, have servers of their own.

NAME is a folder next to this file that has an executable "behaviour"; the
default is all of these folders.  COMMAND, which is split into words, replaces
that executable, for example to use another version of its language.  PYTHON
runs the executable of a client in Python.  With --pairs, a worker of each
client runs a task of each client's producer.  With --through, clients connect
to the pooler at that address, and situations with servers of their own are left
out.

Prints a line per client and situation, "ok - CLIENT: N SITUATION" or
"not ok - ...", in the order in which situations end.  --jobs is the number of
situations that run concurrently.
"""

import argparse
import calendar
import concurrent.futures
import glob
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback

import psycopg
from psycopg.rows import namedtuple_row
from psycopg.types.json import Jsonb

HERE = os.path.dirname(os.path.abspath(__file__))
TIME_LIMIT = 60             # seconds that a wait may take
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
AHEAD = 3600                # seconds by which a server's clock is wrong
CLIENTS = {"activejob", "celery", "go", "java", "node", "python"}
FAKETIME = glob.glob("/usr/lib/*/faketime/libfaketime.so.1")


class Broken(Exception):
    """A deviation from the expected behaviour."""


class Busy(Exception):
    """The machine is too slow for this situation."""


def expect(truth, text, *values):
    if not truth:
        raise Broken(text + "".join(f" {value!r}" for value in values))


def wait_until(what, condition, limit=TIME_LIMIT):
    end = time.monotonic() + limit
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise Broken(f"not within {limit:g} s: {what}")
        time.sleep(0.05)


# ---- servers

class Server:
    """A server that has the extension in the database fairq."""

    def __init__(self, host, port):
        self.host, self.port = host, port

    def connect(self):
        return psycopg.connect(host=self.host, port=self.port, user=os.environ["PGUSER"],
                               dbname=os.environ["PGDATABASE"], autocommit=True,
                               row_factory=namedtuple_row)


class OwnServer(Server):
    """A server for some situations. end_servers() ends it."""

    made = []
    making = threading.Lock()
    directory = None

    def __init__(self, clock=0):
        with self.making:
            number = len(self.made)
            self.made.append(self)
            if self.directory is None:
                # A socket's path has at most 107 bytes.
                OwnServer.directory = tempfile.mkdtemp(
                    prefix="behaviour.", dir=os.environ.get("FAIRQ_CLUSTER", "/tmp"))
                self.make_template()
        self.place = f"{self.directory}/{number}"
        os.mkdir(self.place)
        super().__init__(self.place, os.environ["PGPORT"])
        self.environment = dict(os.environ)
        if clock:
            self.environment.update(LD_PRELOAD=FAKETIME[0], FAKETIME=f"{clock:+d}s",
                                    FAKETIME_DONT_FAKE_MONOTONIC="1")
        self.run("cp", "-a", f"{self.directory}/template", f"{self.place}/data")
        with open(f"{self.place}/data/postgresql.conf", "a", encoding="utf-8") as file:
            file.write(f"listen_addresses = ''\nunix_socket_directories = '{self.place}'\n"
                       f"port = {self.port}\nfsync = off\nshared_buffers = 16MB\n")
        self.control("start")

    def make_template(self):
        data, place = f"{self.directory}/template", self.directory
        self.run("initdb", "-D", data, "-U", os.environ["PGUSER"], "-A", "trust", "-N",
                 "--no-locale", "-E", "UTF8")
        options = f"-c listen_addresses='' -k {place} -p {os.environ['PGPORT']} -c fsync=off"
        self.run("pg_ctl", "-D", data, "-l", f"{place}/log", "-w", "-o", options, "start")
        at = ["-h", place, "-p", os.environ["PGPORT"], "-U", os.environ["PGUSER"]]
        self.run("createdb", *at, os.environ["PGDATABASE"])
        self.run("psql", "-Xq", *at, "-d", os.environ["PGDATABASE"], "-c", "CREATE EXTENSION fairq")
        self.run("pg_ctl", "-D", data, "-m", "fast", "-w", "stop")

    def run(self, *command, env=None):
        done = subprocess.run(command, text=True, env=env, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode != 0:
            raise RuntimeError(f"{command}: {done.stdout}")

    def control(self, *what):
        # The output goes to a file, since the server would keep a pipe open.
        with open(f"{self.place}/control", "a", encoding="utf-8") as file:
            subprocess.run(["pg_ctl", "-D", f"{self.place}/data", "-l", f"{self.place}/log",
                            "-w", *what], check=True, env=self.environment,
                           stdin=subprocess.DEVNULL, stdout=file, stderr=file)

    @classmethod
    def end_servers(cls):
        for server in cls.made:
            try:
                server.control("-m", "immediate", "stop")
            except (OSError, subprocess.SubprocessError):
                pass            # the server was never started
        if cls.directory:
            shutil.rmtree(cls.directory, ignore_errors=True)


class Forwarder:
    """A proxy of a server, which can fall silent like a network that loses its
    state.

    From mute() on, no data passes: old connections stay open, the proxy accepts
    new ones, but sends nothing on any connection.  After unmute(), new
    connections work; the old ones stay silent.  Between hold() and release()
    data is delayed, but not lost.
    """

    def __init__(self, server):
        self.target = f"{server.host}/.s.PGSQL.{server.port}"
        self.passing = threading.Event()        # shared by connections that are made from now on
        self.passing.set()
        self.released = threading.Event()
        self.released.set()
        self.sockets = []
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.host, self.port = self.listener.getsockname()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return          # the listener was closed
            passing = self.passing
            self.sockets.append(client)
            if not passing.is_set():
                continue
            server = socket.socket(socket.AF_UNIX)
            self.sockets.append(server)
            try:
                server.connect(self.target)
            except OSError:
                client.close()  # the server is down
                continue
            for ends in (client, server), (server, client):
                threading.Thread(target=self.pump, args=(*ends, passing), daemon=True).start()

    def pump(self, source, sink, passing):
        try:
            while True:
                data = source.recv(65536)
                self.released.wait()
                if not passing.is_set():
                    return      # neither side gets the data
                if not data:
                    break
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def hold(self):
        self.released.clear()

    def release(self):
        self.released.set()

    def mute(self):
        self.passing.clear()

    def unmute(self):
        self.passing = threading.Event()
        self.passing.set()

    def close(self):
        self.mute()
        self.release()
        self.listener.close()
        for each in self.sockets:
            each.close()


class Clocks:
    """The servers with wrong clocks, which all clients share."""

    def __init__(self):
        self.lock = threading.Lock()
        self.servers = {}

    def server(self, clock):
        with self.lock:
            if clock not in self.servers:
                self.servers[clock] = OwnServer(clock)
            return self.servers[clock]


# ---- clients

class Client:
    def __init__(self, name, builds, command=None, python=None):
        self.name = name
        self.command = shlex.split(command or "") or [os.path.join(HERE, name, "behaviour")]
        if python:
            self.command.insert(0, python)
        self.builds = os.path.join(builds, name)
        os.mkdir(self.builds)
        self.skips = {}     # why the client skips situations, by their numbers; "*": all situations

    def ask_skips(self):
        """Asks the client which situations it skips.

        This call comes before all others, so the client can build its programs in it.
        """
        done = subprocess.run([*self.command, "skips"], text=True, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=300,
                              env=dict(os.environ, BEHAVIOUR_BUILDS=self.builds))
        if done.returncode != 0:
            raise Broken(f"{self.command} skips: {done.stderr}")
        for line in done.stdout.splitlines():
            number, reason = line.split(None, 1)
            self.skips[number] = reason

    def skips_because(self, number):
        return self.skips.get(str(number))


class Worker:
    """A process of a client's worker, and all processes that it starts."""

    def __init__(self, case, number, queues, settings, environment):
        self.label = f"worker {number}"
        self.errors = tempfile.TemporaryFile("a+", encoding="utf-8")
        self.lines = []         # (time, words) of each line
        self.process = subprocess.Popen(
            [*case.client.command, "work", *queues], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=self.errors, text=True, encoding="utf-8",
            start_new_session=True,
            env=dict(environment, **{key: str(value) for key, value in settings.items()}))
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            if line.strip():
                self.lines.append((time.monotonic(), line.split()))

    def said(self):
        self.errors.seek(0)
        return self.errors.read()

    def count(self, *words):
        return sum(line[:len(words)] == list(map(str, words)) for _, line in list(self.lines))

    def when(self, *words):
        """The time of the first line that begins with these words, or None."""
        for at, line in list(self.lines):
            if line[:len(words)] == list(map(str, words)):
                return at
        return None

    def is_alive(self):
        return self.process.poll() is None

    def signal(self, number):
        self.process.send_signal(number)

    def signal_all(self, number):
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            pass

    def kill(self):
        self.signal_all(signal.SIGKILL)
        self.process.wait()

    def wait(self, limit=TIME_LIMIT):
        """Waits until the process has ended by itself.  Returns its status."""
        try:
            status = self.process.wait(limit)
        except subprocess.TimeoutExpired:
            raise Broken(f"{self.label} has not ended after {limit:g} s") from None
        self.reader.join(5)
        return status

    def stop(self, limit=TIME_LIMIT):
        self.signal(signal.SIGTERM)
        status = self.wait(limit)
        expect(status == 0, f"{self.label} was stopped, and its status is", status)


class Case:
    """A client in a situation: its queues, processes and output."""

    def __init__(self, client, number, driver, server=None):
        self.client, self.number, self.driver = client, number, driver
        self.server = server or driver.server
        self.name = f"{client.name}_{number}"
        self.workers = []
        self.queues = []
        self.role = None
        self.connection = None

    # the server's side

    def ask(self, sql, *values):
        """The result of a query: a value, or a row if it has several."""
        if self.connection is None or self.connection.closed:
            self.connection = self.server.connect()
        cursor = self.connection.execute(sql, values or None)
        row = cursor.fetchone() if cursor.description else None
        return row[0] if row is not None and len(row) == 1 else row

    def queue(self, part="", **settings):
        """Creates a queue that the clients may use."""
        if self.role is None:
            # The clients' role is not a superuser, so privileges on queues apply to it.
            self.role = f"behaviour_{self.name}"
            self.ask(f'DROP ROLE IF EXISTS "{self.role}"')
            self.ask(f'CREATE ROLE "{self.role}" LOGIN')
        queue = f"{self.name}{part}"
        settings = {"retain": "1 hour", **settings}
        named = "".join(f", {name} => %s" for name in settings)
        self.ask(f"SELECT fairq.create_queue(%s{named})", queue, *settings.values())
        self.queues.append(queue)
        for privilege in ("work", "enqueue"):
            self.ask("SELECT fairq.grant_queue(%s, %s, %s)", queue, f'"{self.role}"', privilege)
        return queue

    def enqueue(self, action, group="bob", queue=None, task="behaviour", **named):
        """Enqueues a task like any client's producer."""
        marks = "".join(f", {name} => %s" for name in named)
        return self.ask(f"SELECT fairq.enqueue(%s, %s, %s, headers => %s{marks})",
                        queue or self.queues[0], group, Jsonb(action), Jsonb({"task": task}),
                        *named.values())

    def enqueue_text(self, payload, group="bob", headers='{"task": "behaviour"}', **named):
        """Enqueues a task with any payload and headers, as texts, which Python does not decode."""
        marks = "".join(f", {name} => %s" for name in named)
        return self.ask("SELECT fairq.enqueue(%s, %s, %s::text::jsonb,"
                        f" headers => %s::text::jsonb{marks})",
                        self.queues[0], group, payload, headers, *named.values())

    def end_of(self, id):
        """Status, attempt and error of a task, whose payload may be one that Python's json
        does not decode; None: it has not ended."""
        row = self.ask("SELECT status, attempt, error FROM fairq.tasks WHERE id = %s", id)
        return row if row.status in ("completed", "failed") else None

    def cancel(self, id):
        return self.ask("SELECT fairq.cancel(%s)", id)

    def task(self, id):
        return self.ask("SELECT * FROM fairq.tasks WHERE id = %s", id)

    def waits(self):
        """The number of connections that sleep in fairq.wait."""
        return self.ask("SELECT count(*) FROM pg_stat_activity WHERE usename = %s"
                        " AND state = 'active' AND query ~* 'fairq.wait'", self.role)

    def wait_for_status(self, id, status, limit=TIME_LIMIT):
        def seen():
            task = self.task(id)
            return task if task and task.status == status else None
        try:
            return wait_until(f"task {id} is {status}", seen, limit)
        except Broken as broken:
            task = self.task(id)
            raise Broken(f"{broken}; it is {task and task._asdict()}") from None

    # the clients' side

    def environment(self, **changes):
        host, port = self.driver.through or (self.server.host, self.server.port)
        environment = {**os.environ, "PGHOST": host, "PGPORT": str(port),
                       "PGUSER": self.role or os.environ["PGUSER"],
                       "BEHAVIOUR_BUILDS": self.client.builds, **changes}
        return environment

    def work(self, *queues, environment=None, **settings):
        worker = Worker(self, len(self.workers) + 1, queues or self.queues, settings,
                        environment or self.environment())
        self.workers.append(worker)
        return worker

    def produce(self, action, group="bob", options=None, queue=None, status=0):
        """Runs the client's producer.  Returns the id that it prints, or its
        errors if it must fail."""
        if not isinstance(action, str):
            action = json.dumps(action)
        done = subprocess.run(
            [*self.client.command, "enqueue", queue or self.queues[0], group, action]
            + ([json.dumps(options)] if options else []), text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60, env=self.environment())
        expect(done.returncode == status, "enqueue ended with status", done.returncode,
               done.stdout, done.stderr)
        if status != 0:
            return done.stderr
        expect(done.stdout.strip().isdigit(), "enqueue printed", done.stdout, done.stderr)
        return int(done.stdout)

    def wait_for_line(self, *words, worker=None, limit=TIME_LIMIT):
        """Waits until the worker, or any worker, has printed a line that begins
        with these words.  Returns the time of the first such line.
        """
        workers = [worker] if worker else self.workers

        def seen():
            times = [at for at in (w.when(*words) for w in workers) if at is not None]
            return min(times) if times else None
        return wait_until("the line " + " ".join(map(str, words)), seen, limit)

    def count(self, *words):
        return sum(worker.count(*words) for worker in self.workers)

    def lines(self):
        return sorted((line for worker in self.workers for line in list(worker.lines)),
                      key=lambda line: line[0])

    def starts(self, id):
        return [line[2] for _, line in self.lines() if line[:2] == ["start", str(id)]]

    def most_at_once(self, group=None):
        running, most = set(), 0
        for _, line in self.lines():
            if line[0] == "start" and group in (None, line[3]):
                running.add(line[1])
                most = max(most, len(running))
            elif line[0] == "end":
                running.discard(line[1])
        return most

    def is_idle(self, worker=None):
        """Waits until the worker, or any worker, has done a task and asks for the
        next."""
        id = self.enqueue({"do": "ok"}, "idle")
        self.wait_for_line("end", id, worker=worker)
        self.wait_for_status(id, "completed")

    def was_done_once(self, id, attempt=1, limit=TIME_LIMIT):
        task = self.wait_for_status(id, "completed", limit)
        expect(task.attempt == attempt, "it was done by attempt", task.attempt)
        self.wait_for_line("end", id, attempt)
        expect(self.count("end", id) == 1, "it was done more than once:", self.lines())
        expect(self.starts(id) == [str(n) for n in range(1, attempt + 1)],
               "attempts that began:", self.starts(id))
        return task

    def goes_on(self):
        """Checks that a running worker can run another task."""
        self.was_done_once(self.enqueue({"do": "ok"}, "afterwards"))

    # the end

    def report(self):
        for worker in self.workers:
            yield f"{worker.label}, status {worker.process.poll()}, printed:"
            for at, line in worker.lines[-15:]:
                yield f"  {at:.2f} {' '.join(line)}"
            yield "and said:"
            yield from ("  " + line for line in worker.said().splitlines()[-25:])

    def end(self):
        for worker in self.workers:
            worker.kill()
        if self.queues:
            self.ask("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                     " WHERE usename = %s", self.role)
            for queue in self.queues:
                self.ask("SELECT fairq.drop_queue(%s, true)", queue)
            self.ask(f'DROP OWNED BY "{self.role}"')
            self.ask(f'DROP ROLE "{self.role}"')
        if self.connection is not None:
            self.connection.close()


# ---- the situations

SITUATIONS = {}


def situation(number, text, own_server=False, seconds=5):
    """Registers a situation that takes about that many seconds; the longest
    situations run first."""
    def register(function):
        SITUATIONS[number] = function
        function.text, function.own_server, function.seconds = text, own_server, seconds
        return function
    return register


@situation(1, "hello: done once, archived as completed")
def hello(case):
    queue = case.queue()
    worker = case.work()
    id = case.produce({"do": "ok"}, "alice", {"priority": 3})
    task = case.was_done_once(id)
    expect(case.count("start", id, 1, "alice", queue) == 1, "it printed", case.lines())
    expect(task.priority == 3, "its priority is", task.priority)
    expect(task.headers and task.headers.get("task") == "behaviour", "headers:", task.headers)
    expect(task.payload == {"do": "ok"}, "payload:", task.payload)
    id = case.enqueue({"do": "progress", "value": {"pages": [1, 2]}})
    case.was_done_once(id)
    expect(case.task(id).progress == {"pages": [1, 2]}, "progress:", case.task(id).progress)
    if case.driver.through:
        wait_until("it reports the pooler", lambda: "pooler" in worker.said())
        waits = case.waits()
        expect(waits == 0, "it occupies connections of the pooler in fairq.wait:", waits)
        said = [line for line in worker.said().splitlines() if "pooler" in line]
        expect(len(said) == 1, "the worker's lines about the pooler:", said)
    worker.stop()


@situation(2, "crash: after the lease another worker does it", seconds=11)
def crash(case):
    case.queue()
    first = case.work(LEASE=2)
    case.is_idle(first)
    id = case.enqueue({"do": "sleep", "seconds": 5})
    case.wait_for_line("start", id)
    popped = case.task(id).popped_at
    second = case.work(LEASE=30)
    first.kill()
    task = case.was_done_once(id, attempt=2)
    case.wait_for_line("start", id, 2, worker=second)
    took = (task.popped_at - popped).total_seconds()
    expect(took > 1.9, "it was begun again before its lease was over, after", took)


@situation(3, "lost lease: the first worker does not end the second's attempt", seconds=9)
def lost_lease(case):
    case.queue()
    first = case.work(LEASE=2)
    id = case.enqueue({"do": "sleep", "seconds": 4})
    case.wait_for_line("start", id, 1)
    first.signal_all(signal.SIGSTOP)
    second = case.work(LEASE=30)
    case.wait_for_line("start", id, 2, worker=second)
    first.signal_all(signal.SIGCONT)
    task = case.wait_for_status(id, "completed")
    expect(task.attempt == 2, "the attempt that counts is", task.attempt)
    took = (task.finished_at - task.popped_at).total_seconds()
    expect(took > 3.9, "the second worker's attempt takes 4 s, but it ended after", took)
    case.wait_for_line("end", id, 2, worker=second)
    expect(case.count("end", id, 2) == 1, "the second printed", second.lines)
    second.stop()
    expect(first.is_alive(), "the first has ended")
    case.goes_on()
    first.stop()


@situation(4, "cancel of a running task: the handler is asked to stop", seconds=6)
def cancel(case):
    case.queue()
    worker = case.work(LEASE=6)
    id = case.enqueue({"do": "sleep", "seconds": 90})
    case.wait_for_line("start", id)
    expect(case.cancel(id), "cancel() was false")
    case.wait_for_line("cancelled", id, 1)
    case.wait_for_status(id, "cancelled")
    case.goes_on()
    worker.stop()
    expect(case.count("end", id) == 0, "it was done")


@situation(5, "the server restarts under busy and idle workers: done once", own_server=True, seconds=10)
def restart(case):
    case.queue()
    busy, idle = case.work(), case.work()
    case.is_idle()
    id = case.enqueue({"do": "sleep", "seconds": 3})
    case.wait_for_line("start", id)
    case.server.control("-m", "fast", "restart")
    case.connection.close()
    case.was_done_once(id)
    for worker in busy, idle:
        expect(worker.is_alive(), f"{worker.label} has ended")
    for id in [case.enqueue({"do": "sleep", "seconds": 0.2}) for _ in range(4)]:
        case.was_done_once(id)
    busy.stop()
    case.goes_on()
    idle.stop()


@situation(6, "connections die in the middle of work: done once", seconds=6)
def disconnect(case):
    case.queue()
    worker = case.work(LEASE=6)
    id = case.enqueue({"do": "sleep", "seconds": 5})
    case.wait_for_line("start", id)
    # so that the worker has renewed the lease once, on either connection
    time.sleep(2.5)
    killed = case.ask("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
                      " WHERE usename = %s", case.role)
    expect(killed > 0, "it has no connections")
    case.was_done_once(id)
    case.goes_on()
    worker.stop()


@situation(7, "a task kills its workers: it fails after 3 attempts, others succeed", seconds=12)
def poison(case):
    case.queue(max_attempts=3, backoff="0.1 s")
    id = case.enqueue({"do": "exit_always"}, "mallory")
    others = [case.enqueue({"do": what}, "alice") for what in ("exit", "ok", "ok", "ok")]
    worker = case.work(LEASE=3)
    status = {}

    def ended():
        nonlocal worker
        if not worker.is_alive():
            worker = case.work(LEASE=3)
        status.update((each, case.task(each).status) for each in [id, *others])
        return (status[id] == "failed" and
                all(status[other] == "completed" for other in others))
    try:
        wait_until("all have ended", ended, 2 * TIME_LIMIT)
    except Broken:
        raise Broken(f"not all have ended: {status}") from None
    expect(case.starts(id) == ["1", "2", "3"], "attempts that began:", case.starts(id))
    for other in others:
        case.wait_for_line("end", other)
        expect(case.count("end", other) == 1, "another task was not done exactly once:", case.lines())


@situation(8, "an error: retried, the error is stored, done at last")
def retried(case):
    case.queue(backoff="0.3 s")
    message = "it broke: \u00fc \"quoted\" 'too'"
    fails = case.enqueue({"do": "raise", "message": message}, "alice", max_attempts=2)
    id = case.enqueue({"do": "raise_until", "attempt": 3})
    worker = case.work()
    case.wait_for_line("start", id, 2)
    expect(case.task(id).error, "the error was not stored")
    case.was_done_once(id, attempt=3)
    task = case.wait_for_status(fails, "failed")
    expect(task.attempt == 2 and message in (task.error or ""), "error:", task.error)
    worker.stop()


@situation(9, "no retry: failed at once, the error is stored")
def dead(case):
    case.queue()
    worker = case.work()
    id = case.enqueue({"do": "dead", "message": "no such address"})
    task = case.wait_for_status(id, "failed")
    expect(task.attempt == 1 and "no such address" in (task.error or ""), "error:", task.error)
    case.wait_for_line("start", id)
    expect(case.count("start", id) == 1, "it was begun more than once")
    case.goes_on()
    worker.stop()


@situation(10, "retry in 2 s: not before", seconds=6)
def retry_in(case):
    case.queue(backoff="0.1 s")
    worker = case.work()
    case.is_idle(worker)        # an idle worker pops a task at once
    id = case.enqueue({"do": "retry", "seconds": 2})
    task = case.was_done_once(id, attempt=2)
    took = (task.popped_at - task.enqueued_at).total_seconds()
    expect(took > 1.9, "it was retried after", took)
    worker.stop()


@situation(11, "graceful stop: running tasks end, no task begins", seconds=6)
def graceful(case):
    case.queue()
    id = case.enqueue({"do": "sleep", "seconds": 4})
    later = case.enqueue({"do": "ok"})
    worker = case.work(GRACE=90)
    case.wait_for_line("start", id)
    expect(case.task(later).status == "queued", "it has taken a task without a free slot")
    worker.stop()           # the worker ends with its task's end, before the grace is over
    case.was_done_once(id)
    expect(case.task(later).status == "queued" and not case.starts(later),
           "another was begun:", case.task(later))


@situation(12, "stop after the grace: released, the attempt does not count", seconds=5)
def past_grace(case):
    case.queue()
    first = case.work(GRACE=0.3)
    # a single attempt, so if it counted, it would be the last
    id = case.enqueue({"do": "sleep", "seconds": 90}, max_attempts=1)
    case.wait_for_line("start", id, worker=first)
    second = case.work(GRACE=0.3)
    case.is_idle(second)
    first.stop()
    # the task starts before the worker's next poll and before the end of the
    # lease
    case.wait_for_line("start", id, worker=second, limit=25)


@situation(13, "a task of 3 times the lease is done once", seconds=17)
def heartbeat(case):
    case.queue()
    # a lease that is long enough for a machine that stalls for some seconds
    workers = [case.work(LEASE=6), case.work(LEASE=6)]
    id = case.enqueue({"do": "sleep", "seconds": 18})
    case.was_done_once(id)
    for worker in workers:
        worker.stop()


@situation(14, "two queues: in the given order", seconds=7)
def two_queues(case):
    low, high = case.queue("_low"), case.queue("_high")
    first_low = case.enqueue({"do": "sleep", "seconds": 4}, queue=low)
    others = [case.enqueue({"do": "ok"}, queue=low) for _ in range(2)]
    for _ in range(3):
        case.enqueue({"do": "ok"}, queue=high)
    worker = case.work(high, low)
    case.wait_for_line("start", first_low)
    case.enqueue({"do": "ok"}, queue=high)
    for id in others:
        case.was_done_once(id)
    order = [line[4] for _, line in case.lines() if line[0] == "start"]
    expect(order == [high] * 3 + [low, high, low, low], "queues, in their order:", order)
    worker.stop()


@situation(15, "100 tasks with concurrency 10: several at a time, and at most 10", seconds=7)
def concurrency(case):
    case.queue()
    ids = [case.enqueue({"do": "sleep", "seconds": 0.2}, f"group{i % 10}") for i in range(100)]
    worker = case.work(CONCURRENCY=10)
    taken = [0]

    def ended():
        taken.append(case.ask("SELECT count(*) FROM fairq.live_tasks"
                              " WHERE queue = %s AND status = 'running'", case.queues[0]))
        return case.count("end") >= 100
    wait_until("all are done", ended)
    # some tasks may have ended without a line
    expect(max(taken) <= 25, "for 10 at a time it has taken", max(taken))
    for id in ids:
        case.was_done_once(id)
    expect(2 <= case.most_at_once() <= 10, "most at a time:", case.most_at_once())
    worker.stop()


@situation(16, "a group's limit of 2 with concurrency 10: at most 2 at a time", seconds=6)
def limit(case):
    case.queue(concurrency=2)
    ids = [case.enqueue({"do": "sleep", "seconds": 0.8}, group)
           for group in ["bob"] * 6 + ["alice"] * 4]
    worker = case.work(CONCURRENCY=10)
    for id in ids:
        case.was_done_once(id)
    most = [case.most_at_once(group) for group in ("bob", "alice")]
    expect(max(most) == 2, "most at a time:", most)
    expect(case.most_at_once() > 2, "the groups did not run concurrently")
    worker.stop()


@situation(17, "fair: workers take at most one of Bob's 200 tasks before Alice's", seconds=5)
def fair(case):
    case.queue()
    case.ask("SELECT count(fairq.enqueue(%s, 'bob', %s, headers => %s)) FROM generate_series(1, 200)",
             case.queues[0], Jsonb({"do": "sleep", "seconds": 1}), Jsonb({"task": "behaviour"}))
    worker = case.work(CONCURRENCY=2)
    wait_until("Bob's tasks are running", lambda: case.count("start") >= 4)
    id = case.enqueue({"do": "ok"}, "alice")
    committed = case.ask("SELECT clock_timestamp()")
    begun = case.count("start")
    case.was_done_once(id)
    before = case.ask("SELECT count(*) FROM fairq.tasks b, fairq.tasks a WHERE a.id = %s AND"
                      " b.queue = a.queue AND b.group_key = 'bob' AND"
                      " b.popped_at > %s AND b.popped_at < a.popped_at", id, committed)
    expect(before <= 1 + 2, "tasks of Bob popped before Alice's:", before)
    order = [line[1] for _, line in case.lines() if line[0] == "start"]
    before = order.index(str(id)) - begun
    expect(before <= 1 + 2 + 1, "tasks of Bob begun before Alice's:", before)
    worker.stop()


@situation(18, "the server's clock an hour ahead, and behind", own_server=True, seconds=22)
def clocks(case):
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda clock: with_clock(case, clock), (AHEAD, -AHEAD)))


def with_clock(whole, clock):
    case = Case(whole.client, whole.number, whole.driver, whole.driver.clocks.server(clock))
    try:
        seen = case.ask("SELECT extract(epoch FROM clock_timestamp())::float8") - time.time()
        expect(abs(seen - clock) < 60, "the clock is wrong by", seen)
        case.queue(backoff="0.1 s")
        workers = [case.work(LEASE=6, CONCURRENCY=4) for _ in range(2)]
        case.is_idle()          # an idle worker pops a task at once
        long = case.enqueue({"do": "sleep", "seconds": 10})
        retried = case.enqueue({"do": "retry", "seconds": 2})
        delayed = case.produce({"do": "ok"}, options={"delay": 3})
        task = case.was_done_once(delayed)
        took = (task.popped_at - task.enqueued_at).total_seconds()
        # Celery's delay begins before the enqueue
        expect(took > 1.5, "a delay of 3 s took", took)
        task = case.was_done_once(retried, attempt=2)
        took = (task.popped_at - task.enqueued_at).total_seconds()
        expect(took > 1.9, "it was retried after", took)
        case.was_done_once(long)
        crashes = case.enqueue({"do": "sleep", "seconds": 5})
        case.wait_for_line("start", crashes)
        popped = case.task(crashes).popped_at
        for worker in workers:
            if worker.count("start", crashes):
                worker.kill()
        task = case.was_done_once(crashes, attempt=2)
        took = (task.popped_at - popped).total_seconds()
        expect(took > 5.9, "the task of a killed worker was begun again after", took)
    except Broken as broken:
        raise Broken("\n".join([f"by {clock} s: {broken}", *case.report()])) from None
    finally:
        case.end()


@situation(19, "unknown task, and wrong arguments: the error is stored")
def unfit(case):
    case.queue(max_attempts=2, backoff="0.1 s")
    worker = case.work()
    unknown = case.enqueue({"do": "ok"}, task="nobody_knows")
    unfits = [case.enqueue(payload, max_attempts=1) for payload in ([1, 2, 3], 5, {"what": 1})]
    task = case.wait_for_status(unknown, "failed")
    expect("nobody_knows" in (task.error or ""), "error of the unknown task:", task.error)
    expect(task.attempt == 2, "attempts of the unknown task:", task.attempt)
    for id in unfits:
        task = case.wait_for_status(id, "failed")
        expect(task.error, "no error of", task)
    case.goes_on()
    worker.stop()


def says(worker, *words):
    status = worker.wait()
    expect(status == 1, "its status is", status)
    lines = worker.said().splitlines()
    expect(any(all(word in line for word in words) for line in lines),
           "no line on stderr has", words)
    for mark in "Traceback", "\tfrom ", "    at ", "goroutine ":
        expect(mark not in worker.said(), "it shows a stack")


@situation(20, "no queue, no extension, rollback, commit, traceparent", seconds=8)
def edges(case):
    queue = case.queue()
    worker = case.work()
    case.is_idle(worker)
    count = case.ask("SELECT enqueued FROM fairq.queues WHERE queue = %s", queue)
    unknown = case.work("nowhere")
    case.ask("SELECT fairq.create_queue(%s)", f"{queue}_private")
    private = case.work(f"{queue}_private")
    none = case.work(queue, environment=case.environment(PGDATABASE="postgres"))
    said = case.produce("{nope", status=1)
    expect(len(said.splitlines()) == 1, "a bad action was reported by", said)
    case.produce({"do": "ok"}, options={"rollback": True})
    says(unknown, "nowhere")
    says(private, f"{queue}_private")
    says(none, "fairq")
    case.ask("SELECT fairq.drop_queue(%s)", f"{queue}_private")
    expect(case.ask("SELECT count(*) FROM fairq.tasks WHERE queue = %s", queue) == 1,
           "a producer that failed or rolled back has left a task; before it there were", count)
    if not case.driver.through:
        wait_until("it sleeps in fairq.wait", case.waits)
    id = case.produce({"do": "headers"}, options={"headers": {"traceparent": TRACE}})
    task = case.was_done_once(id)
    seconds = (task.popped_at - task.enqueued_at).total_seconds()
    expect(seconds < 25, "a waiting worker has popped the task after", seconds)
    expect(task.headers.get("traceparent") == TRACE, "its headers are", task.headers)
    seen = [line for _, line in case.lines() if line[:2] == ["headers", str(id)]]
    expect(len(seen) == 1 and json.loads(" ".join(seen[0][2:])).get("traceparent") == TRACE,
           "the handler has seen", seen)
    worker.stop()


@situation(21, "another transaction locks tasks' rows: other tasks end", seconds=19)
def held(case):
    case.queue()
    worker = case.work(LEASE=6, CONCURRENCY=18)
    holder = case.server.connect()
    ids = [case.enqueue({"do": "sleep", "seconds": 8}) for _ in range(15)]
    long = case.enqueue({"do": "sleep", "seconds": 17}, "alice")
    for id in [long, *ids]:
        case.wait_for_line("start", id)
    with holder, holder.transaction():
        # this lock prevents the ends of tasks, but not renewals of their leases
        locked = holder.execute("SELECT id FROM fairq.task WHERE id = ANY (%s) FOR KEY SHARE", [ids])
        expect(len(locked.fetchall()) == len(ids), "some tasks ended before the lock of their rows")
        for id in ids:
            case.wait_for_line("end", id)
        for _ in range(2):
            case.was_done_once(case.enqueue({"do": "ok"}, "carol"))
        case.was_done_once(long)
        for id in ids:
            expect(case.task(id).status == "running", "a locked task is", case.task(id).status)
    for id in ids:
        case.was_done_once(id)
    worker.stop()


@situation(22, "stop with many running tasks: those that end in time succeed", seconds=9)
def many_at_the_end(case):
    case.queue()
    worker = case.work(CONCURRENCY=10, GRACE=8)
    long = [case.enqueue({"do": "sleep", "seconds": 90}, "alice", max_attempts=1)
            for _ in range(2)]
    ids = [case.enqueue({"do": "sleep", "seconds": 3}) for _ in range(2)]
    for id in long + ids:
        case.wait_for_line("start", id)
    worker.stop()
    for id in ids:
        expect(case.count("end", id) == 1, "it has not ended in time")
        case.was_done_once(id)
    for id in long:
        expect(case.task(id).status == "queued", "a long task is", case.task(id).status)


DIGITS = "9" * 5000         # Python's json accepts at most 4,300 digits
NESTED = "[" * 12000 + "]" * 12000


@situation(23, "payloads, headers and progress that cannot be decoded: each task ends separately",
           seconds=6)
def undecodable(case):
    queue = case.queue(max_attempts=2, backoff="0.1 s")
    again = {case.enqueue({"do": "ok"}, "progress"): value for value in (DIGITS, NESTED)}
    case.ask("SELECT count(*) FROM fairq.pop(%s, 2)", queue)
    for id, value in again.items():
        left = case.ask("SELECT fairq.set_progress(%s, 1, %s::text::jsonb),"
                        " fairq.fail(%s, 1, 'odd', retry_in => '0')", id, value, id)
        expect(all(left), "an attempt has not left its progress")
    odd = []
    for i, value in enumerate((DIGITS, NESTED)):
        odd.append(case.enqueue_text(f'{{"do": "ok", "value": {value}}}', f"payload{i}"))
        odd.append(case.enqueue_text('{"do": "ok"}', f"headers{i}",
                                     f'{{"task": "behaviour", "odd": {value}}}'))
    good = [case.enqueue({"do": "ok"}, f"good{i}") for i in range(4)]
    worker = case.work(CONCURRENCY=8)
    for id in good:
        case.was_done_once(id)
    for id in [*again, *odd]:
        end = wait_until(f"task {id} has ended", lambda: case.end_of(id))
        expect(end.status == "completed" and end.attempt == 1 + (id in again) or
               end.status == "failed" and end.attempt == 2 and end.error, "it ended as", end)
    expect(worker.is_alive(), "the worker has ended")
    case.goes_on()
    worker.stop()


@situation(24, "a task that kills its process: its neighbours succeed", seconds=20)
def neighbours(case):
    case.queue(max_attempts=3, backoff="0.1 s")
    groups = ["alice", "mallory", "bob", "carol"]
    ids = {group: case.enqueue({"do": "exit_always"} if group == "mallory" else
                               {"do": "sleep", "seconds": 2}, group) for group in groups}
    worker = case.work(LEASE=4, CONCURRENCY=4)
    ends = {}

    def ended():
        nonlocal worker
        if not worker.is_alive():
            worker = case.work(LEASE=4, CONCURRENCY=4)
        ends.update((group, case.end_of(id)) for group, id in ids.items())
        return all(ends.values())
    try:
        wait_until("all have ended", ended, 4 * TIME_LIMIT)
    except Broken:
        raise Broken(f"not all have ended: {ends}") from None
    expect({group: end.status for group, end in ends.items()} ==
           {group: "failed" if group == "mallory" else "completed" for group in groups},
           "they ended as", ends)
    # an attempt that was released before it began has a number, but does not
    # count
    expect(len(case.starts(ids["mallory"])) == 3, "attempts of the task that kills:",
           case.starts(ids["mallory"]))


@situation(25, "a timeout: the task fails, even if its handler is deaf", seconds=10)
def timeout(case):
    case.queue(backoff="0.1 s")
    worker = case.work(CONCURRENCY=4, TIMEOUT=4)
    long = case.enqueue({"do": "sleep", "seconds": 90}, max_attempts=2)
    deaf = case.enqueue({"do": "sleep", "seconds": 90, "deaf": True}, "alice", max_attempts=1)
    short = case.enqueue({"do": "sleep", "seconds": 0.5}, "carol")
    case.was_done_once(short)
    for id, attempts in (long, 2), (deaf, 1):
        task = case.wait_for_status(id, "failed")
        expect("timed out" in (task.error or ""), "its error is", task.error)
        expect(case.starts(id) == [str(n) for n in range(1, attempts + 1)],
               "attempts that began:", case.starts(id))
        expect(case.count("end", id) == 0, "its handler continued to its end")
    case.goes_on()
    worker.stop()


@situation(26, "max_run_time of a queue: the task is asked to stop, and retried", seconds=8)
def max_run_time(case):
    case.queue(max_run_time="3 s", max_attempts=2, backoff="0.1 s")
    worker = case.work(LEASE=3)
    id = case.enqueue({"do": "sleep", "seconds": 90})
    for attempt in 1, 2:
        case.wait_for_line("start", id, attempt)
        case.wait_for_line("cancelled", id, attempt)
    case.wait_for_status(id, "failed")
    expect(case.count("end", id) == 0, "it was done")
    case.goes_on()
    worker.stop()


@situation(27, "connections fall silent under a busy and an idle worker: back within a minute",
           own_server=True, seconds=70)
def silence(case):
    case.queue()
    way = Forwarder(case.server)
    try:
        environment = case.environment(PGHOST=way.host, PGPORT=str(way.port))
        busy = case.work(environment=environment, LEASE=45, CONCURRENCY=2)
        long = case.enqueue({"do": "sleep", "seconds": 60})
        short = case.enqueue({"do": "sleep", "seconds": 12}, "alice")
        for id in long, short:
            case.wait_for_line("start", id, worker=busy)
        idle = case.work(environment=environment, LEASE=45)
        case.is_idle(idle)
        way.mute()
        case.wait_for_line("end", short)    # while the server cannot be reached
        way.unmute()
        # a minute, and some time for a slow machine
        case.was_done_once(case.enqueue({"do": "ok"}, "carol"), limit=60 + TIME_LIMIT)
        case.was_done_once(short, limit=60)
        # the worker renewed the task's lease of 45 s on a new connection
        case.was_done_once(long, limit=60 + TIME_LIMIT)
        for worker in busy, idle:
            expect(worker.is_alive(), f"{worker.label} has ended")
            worker.stop()
    finally:
        way.close()


@situation(28, "the server refuses the end of a task: a warning names the task", seconds=10)
def refused(case):
    queue = case.queue()
    worker = case.work()
    id = case.enqueue({"do": "sleep", "seconds": 3}, "group28")
    case.wait_for_line("start", id)
    expect(case.ask("SELECT fairq.release(%s, 1)", id), "release() was false")
    case.wait_for_line("end", id, 1)
    case.wait_for_line("start", id, 2)
    case.wait_for_status(id, "completed")
    cancelled = case.enqueue({"do": "sleep", "seconds": 2}, "locked28")
    case.wait_for_line("start", cancelled)
    holder = case.server.connect()
    with holder, holder.transaction():
        holder.execute("SELECT fairq.cancel(%s)", [cancelled])
        case.wait_for_line("end", cancelled, 1)
        time.sleep(1.5)
    case.wait_for_status(cancelled, "cancelled")
    worker.stop()
    for id, group in (id, "group28"), (cancelled, "locked28"):
        told = [line for line in worker.said().splitlines() if group in line]
        expect(len(told) == 1 and str(id) in told[0] and queue in told[0], "it warns:", told)


@situation(29, "the client's producer refuses an empty group", seconds=1)
def no_group(case):
    queue = case.queue()
    said = case.produce({"do": "ok"}, "", status=1)
    expect(len(said.splitlines()) == 1 and "group" in said, "it says", said)
    count = case.ask("SELECT count(*) FROM fairq.tasks WHERE queue = %s", queue)
    expect(count == 0, "tasks that the producer has left:", count)


@situation(30, "no such database or role: it ends after GIVE_UP; no server: it waits",
           own_server=True, seconds=20)
def never(case):
    case.queue()
    nowhere, nobody = "behaviour_nowhere", "behaviour_nobody"
    begun = time.monotonic()
    ending = {name: case.work(environment=case.environment(**{variable: name}), GIVE_UP=6)
              for variable, name in (("PGDATABASE", nowhere), ("PGUSER", nobody))}
    lives = case.work(GIVE_UP=6)
    case.is_idle(lives)
    for name, worker in ending.items():
        says(worker, name)
    took = time.monotonic() - begun
    expect(took >= 6, "the workers have given up after", took)
    case.server.control("-m", "fast", "stop")
    case.connection.close()
    time.sleep(10)
    expect(lives.is_alive(), "the worker has ended although the server is only down")
    case.server.control("start")
    case.goes_on()
    lives.stop()


@situation(31, "an error with a cause: both are stored", seconds=2)
def cause(case):
    case.queue()
    worker = case.work()
    id = case.enqueue({"do": "raise_from", "message": "no invoice", "cause": "disk is full"},
                      max_attempts=1)
    task = case.wait_for_status(id, "failed")
    expect(all(part in (task.error or "") for part in ("no invoice", "disk is full")),
           "its error is", task.error)
    worker.stop()


# Each attempt to print the payload takes seconds of processor time.
one_at_a_time = threading.Lock()


@situation(32, "a payload that is too large as text: only its task fails", seconds=15)
def too_large(case):
    with one_at_a_time:
        queue = case.queue(max_attempts=1)
        # about 10 kB as jsonb, but as text more than PostgreSQL can print
        large = case.ask("SELECT fairq.enqueue(%s, 'large', jsonb_build_object('do', 'ok', 'value',"
                         " (SELECT jsonb_agg(1e131071::numeric) FROM generate_series(1, 9000))),"
                         " headers => %s)", queue, Jsonb({"task": "behaviour"}))
        good = [case.enqueue({"do": "ok"}, f"good{i}") for i in range(3)]

        def is_quick():
            begun = time.monotonic()
            try:
                case.ask("SELECT payload::text FROM fairq.task WHERE id = %s", large)
            except psycopg.Error:
                return time.monotonic() - begun < 8
            raise Broken("the server can print the payload")

        # a worker waits 15 to 30 s for an answer
        for _ in range(5):
            if is_quick():
                break
            time.sleep(10)
        else:
            raise Busy("the machine is too busy to print 1 GB within 8 s")
        limit = 5 * TIME_LIMIT      # the worker may have to retry
        worker = case.work(CONCURRENCY=4)
        for id in good:
            case.was_done_once(id, limit=limit)
        end = wait_until(f"task {large} has ended", lambda: case.end_of(large), limit)
        expect(end.status == "failed" and end.error, "it ended as", end)
        expect(worker.is_alive(), "the worker has ended")
        worker.stop()


def broken_off(case, action, lease):
    """Runs the task in two attempts: the first one fails, or kills its process."""
    case.queue(backoff="0.1 s")
    for how in "raise", "exit":
        worker = case.work(LEASE=lease)
        id = case.enqueue({"do": action, "how": how})

        def ended():
            nonlocal worker
            if not worker.is_alive():
                worker = case.work(LEASE=lease)
            return case.task(id).status == "completed"
        wait_until(f"task {id} is completed", ended)
        case.was_done_once(id, attempt=2)
        yield how, id
        worker.stop()


@situation(33, "steps: a later attempt has the results of finished steps", seconds=10)
def steps(case):
    for _, id in broken_off(case, "steps", lease=4):
        seen = [line[2:] for _, line in case.lines() if line[:2] == ["step", str(id)]]
        expect(seen == [["1", "first"], ["1", "second"], ["2", "second"]], "steps:", seen)
        saved = {"fairq": {"steps": {"first": {"attempt": 1}, "second": 1}}}
        expect(case.task(id).progress == saved, "progress:", case.task(id).progress)


@situation(34, "a cursor: a later attempt continues there", seconds=12)
def cursor(case):
    for how, id in broken_off(case, "cursor", lease=3):
        begun = [line[3] for _, line in case.lines() if line[:3] == ["at", str(id), "2"]][0]
        # before its death a worker has saved a cursor at least once
        expect(begun == "10" if how == "raise" else 2 <= int(begun) <= 10,
               "after", how, "it begins at", begun)


@situation(35, "a batch: its last task runs once, after the others, and has their counts", seconds=3)
def batch(case):
    case.queue()
    id = case.produce({"do": "headers"}, options={
        "batch_of": [{"do": "batch"}, {"do": "dead", "message": "no such address"}]})
    worker = case.work(CONCURRENCY=4)
    task = case.was_done_once(id)
    ends = (task.headers or {}).get("batch") or {}
    expect((ends.get("completed"), ends.get("failed")) == (1, 1), "its headers have", ends)
    members = case.ask("SELECT array_agg(id ORDER BY id) FROM fairq.tasks WHERE batch = %s", id)
    expect(len(members or ()) == 2, "tasks of the batch:", members)
    for member in members:
        expect(case.wait_for_line("start", member) < case.wait_for_line("start", id),
               "it began before", member)
    expect(case.count("batch", members[0], id) == 1, "a task has not seen its batch", case.lines())
    worker.stop()


@situation(36, "logs: a line at the start, and one for each attempt", seconds=3)
def logs(case):
    queue = case.queue(max_attempts=2, backoff="0.1 s")
    worker = case.work(LOG="info", CONCURRENCY=7)
    good = case.enqueue({"do": "ok"}, "group36")
    bad = case.enqueue({"do": "raise", "message": "no such address"}, "group36")
    case.was_done_once(good)
    case.wait_for_status(bad, "failed")
    version = case.ask("SELECT fairq.version()")

    def lines(*words):
        return [line for line in worker.said().splitlines() if all(word in line for word in words)]
    wait_until("the line of the start", lambda: lines("fairq", queue, "7", version))
    for id, attempt, outcome, level in ((good, 1, "completed", ""), (bad, 1, "retried", "warn"),
                                        (bad, 2, "failed", "error")):
        words = str(id), "behaviour", queue, "group36", str(attempt), outcome
        found = wait_until(f"a line of task {id} with {outcome}", lambda: lines(*words))
        expect(len(found) == 1 and level in found[0].lower(), "its lines are", found)
    worker.stop()


@situation(37, "hooks: before and after each attempt, on errors and lost tasks", seconds=5)
def hooks(case):
    case.queue(max_attempts=1)
    worker = case.work(HOOKS=1, LEASE=6, CONCURRENCY=4)
    good, bad = case.enqueue({"do": "ok"}), case.enqueue({"do": "raise", "message": "no"})
    long = case.enqueue({"do": "sleep", "seconds": 90})
    case.wait_for_line("start", long)
    case.cancel(long)
    for id, kind in (good, "after"), (bad, "error"), (long, "lost"):
        begun, at = case.wait_for_line("hook", "before", id, 1), case.wait_for_line("hook", kind, id, 1)
        expect(begun <= case.wait_for_line("start", id) <= at, "the order of task", id, case.lines())
    case.wait_for_status(long, "cancelled")
    case.was_done_once(good)
    seen = sorted(line[1:] for _, line in case.lines() if line[0] == "hook")
    expect(seen == sorted([kind, str(id), "1"] for id, last in
                          ((good, "after"), (bad, "error"), (long, "lost")) for kind in ("before", last)),
           "hooks:", seen)
    worker.stop()


@situation(38, "a schedule: two workers enqueue one task for each time", seconds=6)
def schedule(case):
    queue = case.queue()
    workers = [case.work(SCHEDULE="tidy:1", CONCURRENCY=2, LOG="info") for _ in range(2)]
    version = case.ask("SELECT fairq.version()")
    wait_until("some tasks have ended", lambda: case.ask(
        "SELECT count(*) >= 4 FROM fairq.tasks WHERE queue = %s AND status = 'completed'", queue))
    # a worker that is still starting cannot stop gracefully
    wait_until("both workers log their start", lambda: all(version in w.said() for w in workers))
    for worker in workers:
        worker.stop()
    whole = case.ask("SELECT array_agg(headers->>'scheduled_at' ORDER BY headers->>'scheduled_at'),"
                     " min(group_key) AS a, max(group_key) AS b, min(headers->>'schedule') AS c,"
                     " min(payload->>'do') AS d FROM fairq.tasks WHERE queue = %s", queue)
    times, *rest = whole
    expect(rest == ["schedule", "schedule", "tidy", "ok"], "its tasks have", rest)
    at = [time.strptime(text, "%Y-%m-%dT%H:%M:%SZ") for text in times]
    steps = {calendar.timegm(two) - calendar.timegm(one) for one, two in zip(at, at[1:])}
    # on a machine that stalls, the workers may miss times
    expect(min(steps) >= 1, "the times of its tasks:", times)
    keys = case.ask("SELECT count(*) FROM fairq.dedup JOIN fairq.queue USING (queue_id)"
                    " WHERE name = %s AND dedup_key = ANY (%s)",
                    queue, [f"schedule tidy {text}" for text in times])
    expect(keys == len(times), "the number of their keys is", keys, times)


@situation(39, "a task that runs alone begins after the server has the ends of the others",
           seconds=14)
def ends_before_alone(case):
    queue = case.queue()
    lapsed = [case.enqueue({"do": "ok"}, f"alone{i}") for i in range(3)]
    case.ask("SELECT count(*) FROM fairq.pop(%s, 3, lease => '0.01 s')", queue)
    time.sleep(0.1)
    case.ask("SELECT fairq.expire_leases(%s)", queue)
    for id in lapsed:
        case.ask("SELECT fairq.reschedule(%s, now() + interval '1 hour')", id)
    way = Forwarder(case.server)
    try:
        worker = case.work(environment=case.environment(PGHOST=way.host, PGPORT=str(way.port)),
                           CONCURRENCY=3)
        case.is_idle(worker)
        for seconds, alone in zip((3, 12, 48), lapsed):
            other = case.enqueue({"do": "sleep", "seconds": seconds})
            case.wait_for_line("start", other)
            case.ask("SELECT fairq.reschedule(%s, now())", alone)
            wait_until("it is leased", lambda: case.task(alone).status != "queued")
            way.hold()
            if case.count("end", other) == 0:
                break
            # the machine is slow, so the loop tries again with a longer task
            way.release()
        case.wait_for_line("end", other, limit=seconds + TIME_LIMIT)
        time.sleep(2.5)
        expect(case.count("start", alone) == 0, "it has begun before the other task's end was stored")
        way.release()
        case.was_done_once(other)
        case.wait_for_status(alone, "completed")
        worker.stop()
    finally:
        way.close()


@situation(40, "the view of workers: one that is idle, at work, ended, and killed", seconds=16)
def registry(case):
    queue = case.queue()
    # an earlier run with another version of the client may have left workers
    # of this queue
    begun = case.ask("SELECT clock_timestamp()")

    def shown(columns="host, client, concurrency, running"):
        return case.ask("SELECT array_agg((" + columns + ")::text ORDER BY started_at) FROM fairq.workers"
                        " WHERE queues = %s AND started_at >= %s", [queue], begun) or []

    def row(running):
        return f"({socket.gethostname()},{case.client.name},2,{running})"

    worker = case.work(CONCURRENCY=2)
    wait_until("the worker is shown", lambda: shown() == [row(0)])
    case.enqueue({"do": "sleep", "seconds": 60})
    wait_until("it is shown at work", lambda: shown() == [row(1)])
    worker.kill()
    other = case.work(CONCURRENCY=2)
    wait_until("another one is shown", lambda: len(shown()) == 2)
    other.stop()
    expect(shown() == [row(1)], "after the other one has ended:", shown())


@situation(41, "payloads that exceed the server's limits or memory: only their tasks fail",
           own_server=True, seconds=6)
def unprintable(case):
    case.queue(max_attempts=2, backoff="0.1 s")
    case.ask("CREATE FUNCTION text_of(jsonb) RETURNS text LANGUAGE plpgsql AS $$ BEGIN"
             " IF $1 ->> 'value' ~ '^5....$' THEN"
             " RAISE 'it cannot be printed' USING ERRCODE = $1 ->> 'value'; END IF;"
             " RETURN textin(jsonb_out($1)); END $$")
    case.ask("CREATE CAST (jsonb AS text) WITH FUNCTION text_of(jsonb)")
    bad = [case.enqueue({"do": "ok", "value": state}, state) for state in ("54000", "54001", "53200")]
    good = [case.enqueue({"do": "ok"}, f"good{i}") for i in range(3)]
    worker = case.work(CONCURRENCY=8)
    for id in good:
        case.was_done_once(id)
    for id in bad:
        task = case.wait_for_status(id, "failed")
        expect(task.attempt == 2 and "printed" in (task.error or ""), "it ended as", task)
    expect(worker.is_alive(), "the worker has ended")
    case.goes_on()
    worker.stop()


@situation(42, "a task that runs alone waits for another one that takes long: a warning", seconds=15)
def waits_alone(case):
    queue = case.queue()
    lapsed = case.enqueue({"do": "ok"}, "alone")
    case.ask("SELECT count(*) FROM fairq.pop(%s, lease => '0.01 s')", queue)
    time.sleep(0.1)
    case.ask("SELECT fairq.expire_leases(%s)", queue)
    case.ask("SELECT fairq.reschedule(%s, now() + interval '1 hour')", lapsed)
    worker = case.work(LEASE=4, CONCURRENCY=2)
    long = case.enqueue({"do": "sleep", "seconds": 12})
    case.wait_for_line("start", long)
    case.ask("SELECT fairq.reschedule(%s, now())", lapsed)

    def warnings():
        return [line for line in worker.said().splitlines() if str(lapsed) in line and "waits for all other" in line]
    wait_until("a warning names the task that waits", warnings)
    expect(case.count("start", lapsed) == 0 and case.count("end", long) == 0, "the warning is late:", case.lines())
    case.was_done_once(long)
    case.wait_for_status(lapsed, "completed")
    expect(len(warnings()) == 1, "it warns:", warnings())
    worker.stop()


@situation(43, "the server cannot store some ends for a while: other tasks end meanwhile", own_server=True, seconds=10)
def unstored(case):
    case.queue()
    case.ask("ALTER FUNCTION fairq.complete RENAME TO complete_for_test")
    case.ask("CREATE TABLE refused (task bigint, state text)")
    case.ask("GRANT SELECT ON refused TO PUBLIC")
    case.ask("CREATE FUNCTION fairq.complete(id bigint, attempt int DEFAULT NULL, result jsonb DEFAULT NULL,"
             " took interval DEFAULT NULL) RETURNS boolean LANGUAGE plpgsql AS $$ DECLARE state text; BEGIN"
             " SELECT r.state INTO state FROM public.refused r WHERE task = $1;"
             " IF FOUND THEN RAISE 'it cannot be stored' USING ERRCODE = state; END IF;"
             " RETURN fairq.complete_for_test($1, $2, $3, $4); END $$")
    worker = case.work(CONCURRENCY=6)
    bad = {case.enqueue({"do": "sleep", "seconds": 2}, state): state for state in ("53200", "40001", "58030")}
    for id, state in bad.items():
        case.ask("INSERT INTO refused VALUES (%s, %s)", id, state)
    for id in bad:
        case.wait_for_line("end", id, 1)
    for _ in range(3):
        case.was_done_once(case.enqueue({"do": "ok"}, "good"))
    for id in bad:
        expect(case.task(id).status == "running", "a task whose end is not stored is", case.task(id))
    case.ask("DELETE FROM refused")
    for id in bad:
        case.was_done_once(id)
    worker.stop()


@situation(44, "pop and fairq.wait fail for a while: the worker continues, without a busy loop",
           own_server=True, seconds=14)
def failing(case):
    case.queue()
    case.ask("CREATE SEQUENCE calls")
    case.ask("GRANT USAGE ON SEQUENCE calls TO PUBLIC")
    worker = case.work()
    case.is_idle(worker)

    def fails(kind, name, types, arguments, state):
        # in one transaction, since a worker ends if there is no such function
        case.ask(f"ALTER {kind} fairq.{name}({types}) RENAME TO {name}_for_test;"
                 f" CREATE {kind} fairq.{name}({arguments} LANGUAGE plpgsql AS $$ BEGIN"
                 f" PERFORM nextval('public.calls'); RAISE 'it is broken' USING ERRCODE = '{state}'; END $$")
        begun = case.ask("SELECT nextval('calls')")
        id = case.enqueue({"do": "ok"})
        time.sleep(5)
        calls = case.ask("SELECT nextval('calls')") - begun - 1
        expect(1 <= calls <= 50, f"calls of {name} in 5 s:", calls)
        expect(worker.is_alive(), "the worker has ended")
        if name == "wait":
            case.was_done_once(id)
        case.ask(f"DROP {kind} fairq.{name}({types});"
                 f" ALTER {kind} fairq.{name}_for_test RENAME TO {name}")
        case.was_done_once(id)
        case.goes_on()

    fails("FUNCTION", "pop", "text[], int, interval, text",
          "queues text[], max_tasks int DEFAULT 1, lease interval DEFAULT NULL, worker text DEFAULT NULL)"
          " RETURNS SETOF fairq.claim", "XX000")
    fails("PROCEDURE", "wait", "text[], interval, boolean",
          "queues text[], timeout interval DEFAULT '30 s', INOUT ready boolean DEFAULT NULL)", "53200")
    worker.stop()


# ---- the driver

class Driver:
    def __init__(self, options):
        self.options = options
        self.server = Server(os.environ["PGHOST"], os.environ["PGPORT"])
        self.through = tuple(options.through.rsplit(":", 1)) if options.through else None
        self.clocks = Clocks()
        self.printing = threading.Lock()
        self.failed = 0

    def result(self, name, complaints=(), skip=None):
        with self.printing:
            self.failed += bool(complaints)
            print(f"{'not ok' if complaints else 'ok'} - {name}" + (f" # SKIP {skip}" if skip else ""))
            for line in complaints:
                print("#   " + line)
            sys.stdout.flush()

    def run(self, client, number):
        function = SITUATIONS[number]
        name = f"{client.name}: {number} {function.text}"
        reason = client.skips_because(number)
        if number == 18 and not FAKETIME:
            reason = "libfaketime is not installed"
        if reason:
            return self.result(name, skip=reason)
        complaints, skip = [], None
        case = None
        try:
            # with_clock() has its own servers
            own = number in (5, 30, 41, 43, 44)
            case = Case(client, number, self, OwnServer() if own else None)
            function(case)
            for queue in case.queues:
                wrong = case.ask("SELECT string_agg(line, '; ') FROM fairq.check_queue(%s) line", queue)
                expect(wrong is None, "check_queue():", wrong)
        except Broken as broken:
            complaints = str(broken).splitlines()
        except Busy as busy:
            skip = busy
        except Exception:
            complaints = traceback.format_exc().splitlines()
        if case:
            if complaints:
                complaints += case.report()
            try:
                case.end()
            except Exception:
                complaints += traceback.format_exc().splitlines()
        self.result(name, complaints, skip)

    def pair_worker(self, clients, client):
        """A worker of this client runs a task of each client's producer."""
        case = Case(client, "pairs", self)
        try:
            queue = case.queue()
            case.work(CONCURRENCY=4)
            for producer in clients:
                name = f"{producer.name} to {client.name}"
                complaints = []
                try:
                    case.client = producer
                    id = case.produce({"do": "ok"}, producer.name)
                    case.was_done_once(id)
                    expect(case.count("start", id, 1, producer.name, queue) == 1,
                           "it printed", case.lines())
                except Broken as broken:
                    complaints = [*str(broken).splitlines(), *case.report()]
                self.result(name, complaints)
        finally:
            case.client = client
            case.end()

    def main(self):
        names = self.options.client or sorted(CLIENTS)
        with tempfile.TemporaryDirectory(prefix="builds.") as builds:
            clients = [Client(name, builds, self.options.command, self.options.python) for name in names]
            for client in list(clients):
                try:
                    client.ask_skips()
                except (Broken, OSError, subprocess.SubprocessError, ValueError) as error:
                    self.result(client.name, [f"behaviour skips: {line}"
                                              for line in str(error).splitlines()])
                    clients.remove(client)
                if client.skips_because("*"):
                    self.result(client.name, skip=client.skips_because("*"))
                    clients.remove(client)
            with concurrent.futures.ThreadPoolExecutor(self.options.jobs) as pool:
                if self.options.pairs:
                    jobs = [pool.submit(self.pair_worker, clients, client) for client in clients]
                else:
                    numbers = [number for number in self.options.only or SITUATIONS
                               if not (self.through and SITUATIONS[number].own_server)]
                    numbers.sort(key=lambda number: -SITUATIONS[number].seconds)
                    jobs = [pool.submit(self.run, client, number)
                            for number in numbers for client in clients]
                for job in jobs:
                    job.result()
        return 1 if self.failed else 0


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].strip())
    parser.add_argument("--client", nargs="+")
    parser.add_argument("--only", nargs="+", type=int, choices=SITUATIONS)
    parser.add_argument("--jobs", type=int, default=6)
    parser.add_argument("--pairs", action="store_true")
    parser.add_argument("--through")
    command = parser.add_mutually_exclusive_group()
    command.add_argument("--command")
    command.add_argument("--python")
    options = parser.parse_args()
    if (options.command or options.python) and len(options.client or ()) != 1:
        parser.error("--command and --python need one --client")
    try:
        return Driver(options).main()
    finally:
        OwnServer.end_servers()


if __name__ == "__main__":
    sys.exit(main())
