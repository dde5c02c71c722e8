"""Checks whether a run was sound, and reports how long alice waited."""

import xml.etree.ElementTree
from collections import Counter, namedtuple

Served = namedtuple("Served",
                    "id turn group worker path sha256 started finished")


class Outcome:
    """A run's results, with times in seconds since its start."""

    def __init__(self, queue, times):
        self.name = queue.name
        rows = [Served(*row) for row in queue.results()]
        self.served = [
            row._replace(started=row.started - times.start,
                         finished=row.finished - times.start)
            for row in rows]
        self.seconds = times.end - times.start
        self.hashes = Counter((row.path, row.sha256) for row in rows)

        counts = Counter(row.id for row in rows)
        self.tasks = len(times.ids)
        self.lost = len(set(times.ids) - set(counts))
        self.twice = sum(1 for count in counts.values() if count > 1)
        self.unknown = len(set(counts) - set(times.ids))
        self.left = queue.left()
        self.sound = (len(set(times.ids)) == self.tasks == len(rows)
                      and not self.lost and not self.twice
                      and not self.unknown and not self.left)

        self.enqueued = times.alice_enqueued - times.start
        self.alice = next((row for row in self.served
                           if row.group == "alice"), None)
        if self.alice:
            self.wait_seconds = max(0.0, self.alice.started - self.enqueued)
            # The tasks that started after alice's enqueue and before her task.
            waited = [row for row in self.served
                      if self.enqueued < row.started < self.alice.started]
            self.wait_tasks = len(waited)
            # The number of these tasks that had an earlier turn.  Tasks that
            # start while a worker already holds her task have later turns.
            self.wait_turns = sum(
                1 for row in waited
                if self.alice.turn is None or row.turn < self.alice.turn)
        else:
            self.wait_seconds = float("inf")
            self.wait_tasks = self.wait_turns = float("inf")


def print_table(outcomes):
    print()
    print("%-8s %8s %9s %6s %12s   %s"
          % ("", "tasks", "seconds", "lost", "done twice", "alice waited"))
    for o in outcomes:
        print("%-8s %8d %9.1f %6d %12d   %s tasks, %.3f s"
              % (o.name, o.tasks, o.seconds, o.lost, o.twice, o.wait_tasks,
                 o.wait_seconds))
    print()


def print_verdicts(outcomes, svg, in_flight):
    """Prints "ok" or "not ok" for each claim.  Returns whether all hold.

    in_flight is the number of tasks that all workers together hold at a time.
    These tasks may be in flight when alice enqueues.  After them, her group
    waits for one task of each other group, here one of bob's.
    """
    fairq, fifo = outcomes
    verdicts = [
        ("%s: each of %d tasks done exactly once" % (o.name, o.tasks), o.sound)
        for o in outcomes]
    verdicts += [
        ("both did the same work", fairq.hashes == fifo.hashes),
        ("alice waits behind %s tasks of bob with fairq: at most what was in"
         " flight when she came, and one" % fairq.wait_turns,
         fairq.wait_turns <= in_flight + 1),
        ("and behind all %s that were before her in the FIFO"
         % fifo.wait_tasks,
         fifo.wait_tasks > fifo.tasks // 2)]
    try:
        xml.etree.ElementTree.parse(svg)
        well_formed = True
    except xml.etree.ElementTree.ParseError:
        well_formed = False
    verdicts.append(("the timeline is well-formed", well_formed))
    return print_claims(verdicts)


def print_claims(verdicts):
    """Prints a line for each (claim, whether it holds).  Returns whether all
    hold."""
    for claim, holds in verdicts:
        print("%s - %s" % ("ok" if holds else "not ok", claim))
    return all(holds for _, holds in verdicts)
