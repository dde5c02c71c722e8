"""WAL: the bytes that fairq writes for a task from enqueue to completion."""

from contender import key_of
from server import Session, connect, create_database, drop_database, vacuum

GROUPS = 1000
# fairq's promise: the greatest ratio to fifo_lease's bytes.
PROMISE = 0.9
PHASES = ("enqueue", "pop", "complete")


def lsn(session):
    return int(session.run("SELECT pg_current_wal_insert_lsn() - '0/0' AS at")
               [1][0]["at"])


def set_full_page_writes(value):
    with connect("postgres") as connection:
        connection.execute("ALTER SYSTEM " + value)
        connection.execute("SELECT pg_reload_conf()")
        # the reload takes a moment
        connection.execute("SELECT pg_sleep(0.5)")


def life(contender, session, tasks, enqueue_by, by):
    """The bytes per task that each phase writes. If the second phase is a take,
    there is no third phase."""
    spent = dict.fromkeys(PHASES, 0)
    at = lsn(session)

    def add(phase):
        nonlocal at
        now = lsn(session)
        spent[phase] += now - at
        at = now

    if enqueue_by == 1:
        sql = contender.sql("enqueue", group="")
        for i in range(tasks):
            session.run(sql, group=1 + i * 7919 % GROUPS)
    else:
        sql = contender.sql("enqueue_batch", n=enqueue_by, key=key_of(GROUPS))
        for _ in range(tasks // enqueue_by):
            session.run(sql)
    add("enqueue")
    for _ in range(tasks // by):
        if contender.has("pop"):
            pop_sql, complete_sql = contender.pop_sql(by)
            _, rows = session.run(pop_sql)
            add("pop")
            session.run(complete_sql, **rows[0])
            add("complete")
        else:
            session.run(contender.sql("take", n=by))
            add("pop")
    return {phase: spent[phase] / tasks for phase in PHASES}


def wal(bench):
    """Measures single calls, and batches: an enqueue adds 1,000 tasks, a pop
    and its completion have 100.

    Runs without full page writes, because their number depends only on
    checkpoints.
    """
    set_full_page_writes("SET full_page_writes = off")
    names = ["fairq", "fifo_lease"]
    names += bench.having("enqueue", besides=names)
    for title, tasks, enqueue_by, by in (
            ("single calls", bench.sizes["wal_singles"], 1, 1),
            ("batches of 1,000 and 100",
             bench.sizes["wal_batch"], 1000, 100)):
        spent = {}
        for name in names:
            contender = bench.contenders[name]
            create_database("wal")
            with connect("wal") as connection:
                contender.set_up(connection, GROUPS)
                contender.fill(connection, 10000, key_of(GROUPS))
                vacuum(connection)
            with Session("wal") as session:
                # use the queue first, so that groups and indexes are in their
                # usual state
                life(contender, session, 1000, enqueue_by, by)
                spent[name] = life(contender, session, tasks, enqueue_by, by)
            drop_database("wal")
        for other in names[1:]:
            bench.results.table("WAL bytes per task, " + title, "fairq", other)
            for phase in PHASES:
                bench.results.row(phase, [(spent["fairq"][phase],
                                           spent[other][phase])], "")
            bench.results.row(
                "in all", [(sum(spent["fairq"].values()),
                            sum(spent[other].values()))], "",
                at_most=PROMISE if other == "fifo_lease" else None)
        for name in names:
            bench.results.bar("WAL bytes per task, " + title,
                              name, [sum(spent[name].values())])
    set_full_page_writes("RESET full_page_writes")
