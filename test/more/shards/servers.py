"""Two servers with four shards, and a proxy, for the tests of shards."""

import os
import subprocess
import time

import psycopg

TREE = os.path.abspath(os.path.join(os.path.dirname(__file__), "../../.."))
DEPLOY = os.path.join(TREE, "deploy/shards")
SHARDS = 4
SECOND = os.path.join(os.environ["FAIRQ_CLUSTER"], "second")


def connect(conninfo):
    return psycopg.connect(conninfo, autocommit=True)


def first(database):
    return f"host={os.environ['PGHOST']} port={os.environ['PGPORT']} dbname={database}"


def second(database):
    return f"host={SECOND}/socket port={os.environ['PGPORT']} dbname={database}"


def uri(conninfo):
    """The same address as a URI, for workers."""
    at = dict(pair.split("=") for pair in conninfo.split())
    return f"postgresql://postgres@/{at['dbname']}?host={at['host']}&port={at['port']}"


# shards 1 and 2 are on the existing server, and 3 and 4 on the second one
PLACES = [first("fairq_1"), first("fairq_2"), second("fairq_3"), second("fairq_4")]
PROXY = first("proxy")


def run(*command, check=True, **env):
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, env=dict(os.environ, **env))
    if check and done.returncode != 0:
        raise RuntimeError(f"{command}: {done.stdout}")
    return done


def start_second():
    run("pg_ctl", "-D", f"{SECOND}/data", "-l", f"{SECOND}/log", "-w", "start")


def stop_second():
    run("pg_ctl", "-D", f"{SECOND}/data", "-m", "immediate", "-w", "stop")


def make_second():
    os.makedirs(f"{SECOND}/socket")
    run("initdb", "-U", "postgres", "-A", "trust", "-N", "-D", f"{SECOND}/data")
    with open(f"{SECOND}/data/postgresql.conf", "a", encoding="utf-8") as file:
        file.write(f"listen_addresses = ''\nunix_socket_directories = '{SECOND}/socket'\n"
                   f"port = {os.environ['PGPORT']}\nfsync = off\n")
    start_second()


def create_database(place):
    maintenance = place.rsplit("dbname=", 1)[0] + "dbname=postgres"
    with connect(maintenance) as connection:
        connection.execute(f"CREATE DATABASE {place.rsplit('=', 1)[1]}")


def make_shard(number, place):
    create_database(place)
    with connect(place) as connection:
        connection.execute("CREATE EXTENSION fairq")
        connection.execute("SELECT fairq.set_shard(%s)", (number,))


def make_server(connection, places):
    options = ", ".join(f"p{p} '{place}'" for p, place in enumerate(places))
    connection.execute(f"CREATE SERVER fairq FOREIGN DATA WRAPPER plproxy OPTIONS ({options})")
    connection.execute("CREATE USER MAPPING FOR PUBLIC SERVER fairq OPTIONS (user 'postgres')")


def load_proxy(conninfo, check=True):
    return run("psql", "-XqAt", "-v", "ON_ERROR_STOP=1", "-1", "-d", conninfo,
               "-f", f"{DEPLOY}/proxy.sql", check=check)


def make_proxy(place, places):
    create_database(place)
    with connect(place) as connection:
        connection.execute("CREATE EXTENSION plproxy")
        make_server(connection, places)


def wait_until(condition, seconds=30):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    raise TimeoutError(f"not within {seconds} s")
