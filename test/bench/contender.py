"""The contenders: folders of SQL scripts.  fairq is one of them.

  setup.sql, groups.sql    make the contender's tables; create the groups g1 ..
                           g$groups, if needed
  empty.sql                remove all tasks
  enqueue.sql              add one task of group 'g' || :group
  enqueue_batch.sql        add $n tasks, whose groups the SQL expression $key
                           gives
  enqueue_batch_lanes.sql  add $n such tasks with the priority $lane
  take.sql                 remove $n tasks and return them
  pop.sql, complete.sql    lease $n tasks, as one row with their number "popped"
                           and with arrays; finish the tasks of the arrays,
                           which are then variables of pgbench
  pop_one.sql, complete_one.sql
                           lease and finish a single task without arrays, if
                           that is faster
  block.sql                block the group "blocked": its tasks must wait
  pop_unblocked.sql, take_unblocked.sql
                           replace pop.sql or take.sql while the group is
                           blocked, if these are not enough

All scripts except setup.sql and fairq's pops are optional.  Each measurement
leaves out the contenders that lack its scripts.  $payload is the same for all
contenders.
"""

import os
import re
import string
import time

HERE = os.path.dirname(os.path.abspath(__file__))

PAYLOAD = ('{"url": "https://example.org/invoices/2024/000001.pdf",'
           ' "locale": "en_GB", "format": "A4", "retry": 0}')


def key_of(groups):
    """An expression for the key of one of `groups` groups."""
    if groups == 1:
        return "'g1'"
    return "'g' || (1 + floor(random() * %d))::int" % groups


class Contender:
    def __init__(self, name):
        self.name = name
        self.folder = os.path.join(HERE, name)

    def has(self, script):
        return os.path.exists(os.path.join(self.folder, script + ".sql"))

    def sql(self, script, **values):
        with open(os.path.join(self.folder, script + ".sql"),
                  encoding="utf-8") as file:
            text = file.read()
        text = re.sub(r"^--.*\n", "", text, flags=re.M).strip()
        if not values:
            return text
        return string.Template(text).substitute(dict(values, payload=PAYLOAD))

    def run(self, connection, script, **values):
        """Runs a script's statements, each a transaction."""
        for statement in re.split(r";\s*\n|;$", self.sql(script, **values)):
            if statement.strip():
                connection.execute(statement)

    def set_up(self, connection, groups):
        self.run(connection, "setup")
        if self.has("groups"):
            self.run(connection, "groups", groups=groups)
            # otherwise batches would be planned for tables of unknown size
            connection.execute("ANALYZE")

    def fill(self, connection, tasks, key, chunk=10000, until=None, lanes=1):
        """Adds tasks from within the server, `chunk` tasks per statement.

        Returns False if that took too long.  With lanes, a contender that has
        priorities gets tasks of this number of priorities.
        """
        script = "enqueue_batch"
        if lanes > 1 and self.has("enqueue_batch_lanes"):
            script = "enqueue_batch_lanes"
        while tasks > 0:
            if until and time.monotonic() > until:
                return False
            n = min(tasks, chunk)
            connection.execute(self.sql(script, n=n, key=key, lane="%d"
                                        % (tasks // chunk % lanes)))
            tasks -= n
        return True

    # ------------------------------------------------- scripts for pgbench

    def enqueue_script(self, group):
        return "\\set group %s\n%s;\n" % (
            group, self.sql("enqueue", group=group))

    def batch_script(self, n, key):
        return self.sql("enqueue_batch", n=n, key=key) + ";\n"

    def take_script(self, n):
        return self.sql("take", n=n) + ";\n"

    def pop_sql(self, n):
        one = "_one" if n == 1 and self.has("pop_one") else ""
        return (self.sql("pop" + one, n=n), self.sql("complete" + one))

    def work_script(self, n):
        """A worker's turn: a pop and a completion, in two transactions."""
        return "%s \\gset\n%s;\n" % self.pop_sql(n)

    def steps_script(self, n):
        """A worker's turn in three runs of the script.  The third run sleeps.

        So pgbench's log has the time of each of the three.  The log does not
        say which time belongs to which run.  But the sleep is longer than an
        empty run and longer than a completion, and each turn has only one of
        those two.
        """
        return ("\\set step (:step + 1) % 3\n"
                "\\if :step = 1\n"
                + self.sql("pop", n=n) + " \\gset\n"
                "\\elif :step = 2 and :popped > 0\n"
                + self.sql("complete") + ";\n"
                "\\elif :step = 0 and :popped = 0\n"
                "\\sleep 1 ms\n"
                "\\endif\n")


def contenders():
    """All contenders by name; fairq is the first."""
    names = [name for name in os.listdir(HERE)
             if os.path.exists(os.path.join(HERE, name, "setup.sql"))]
    return {name: Contender(name)
            for name in sorted(names, key=lambda n: (n != "fairq", n))}
