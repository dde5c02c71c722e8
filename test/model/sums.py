"""The queue's counter: the sum of its groups' (src/counter.c, rule 8).

Two groups of a queue with max_running, each with a counter that a census has
made known, and that may be doubtful.  Claims and leaves change the group's
counter and the queue's, one after the other, each under its own mutex.  A sum
reads the groups' counters one after the other, and counts by rows those that
are doubtful.  Promised is

too little      a counter says no less than the truth.
not exact       when all is quiet, a counter that is not doubtful says the
                truth; and if the queue's is doubtful, a sum makes it exact.

A step is what happens at once for everybody else.  A worker is a plan, that is
a list of steps, and what he has noted.
"""

from states import Explorer, Fault

__all__ = ["Model", "RULES", "SCENARIOS"]

RULES = {
    "queue_entered_first": "who enters enters the queue before the group",
    "queue_left_last": "who leaves leaves the queue after its group",
    "holds": "no group is counted while a row is being written",
    "held": "who holds the queue's counter as a sum begins is added to it",
    "entered": "so is who enters the queue until it is over",
    "changed": "what changes until then makes it doubtful",
    "doubt": "a sum is doubtful if one of its parts is",
    "recount": "a doubtful group is counted by its rows before it is added",
    "mismatch": "who leaves by another count's number changes nothing",
    "mismatch_doubtful": "but makes the counter doubtful",
}

QUEUE = 2                           # its counter, behind those of groups 0, 1
READY, RUNNING, GONE = "ready", "running", "gone"

# Rows as (group, status); by how much each group says too much; the workers.
SCENARIOS = {
    "two claims": (
        [(0, READY), (1, READY)], (0, 0), ["pop 0", "pop 1", "sum"]),
    "a claim and a complete": (
        [(0, READY), (1, RUNNING)], (0, 0), ["pop 0", "complete 1", "sum"]),
    "two completes": (
        [(0, RUNNING), (0, RUNNING)], (0, 0),
        ["complete 0", "complete 1", "sum"]),
    "a claim that comes to nothing": (
        [(0, READY), (1, RUNNING)], (0, 0), ["give_up 0", "complete 1", "sum"]),
    "two sums": (
        [(0, READY), (1, RUNNING)], (0, 0), ["pop 0", "sum", "sum"]),
    "a doubtful group": (
        [(0, RUNNING), (1, READY)], (1, 0), ["complete 0", "pop 1", "sum"]),
    "a row locked by SQL": (
        [(0, READY), (1, RUNNING)], (1, 0), ["lock 0", "complete 1", "sum"]),
    "two doubtful groups": (
        [(0, READY), (1, RUNNING)], (1, 2), ["pop 0", "sum", "sum"]),
}


def plan(rules, rows, text):
    kind, _, row = text.partition(" ")
    if kind == "sum":
        return [("note", QUEUE), *parts(rules), ("counted", QUEUE)]
    row = int(row)
    if kind == "lock":
        return [("lock", row), ("end", row)]
    group = rows[row][0]
    enter = [("enter", QUEUE), ("enter", group)]
    leave = [("leave", group), ("leave", QUEUE)]
    if kind == "complete":
        enter = [("hold", group), ("hold", QUEUE)]
    if "queue_entered_first" not in rules:
        enter.reverse()
    if "queue_left_last" not in rules:
        leave.reverse()
    if kind == "give_up":
        return [*enter, leave[0], ("let_go", leave[0][1]), leave[1],
                ("let_go", leave[1][1])]
    return [*enter, ("write", row), ("let_go", group), ("let_go", QUEUE),
            ("end", row), *leave]


def parts(rules):
    steps = []
    for group in (0, 1):
        if "recount" in rules:
            steps += [("note", group), ("rows", group), ("counted", group)]
        steps.append(("add", group))
    return steps


def is_running(row):
    """The truth: from the claim until the end is visible."""
    _, committed, to = row
    return RUNNING in (committed, to)


class Model(Explorer):
    """A scenario, with some of the rules.  A state is (rows, counters,
    workers).  A row is (group, what is committed, what an open transaction has
    made of it); a counter and what a worker has noted are sorted items."""

    def __init__(self, scenario, rules):
        rows, too_many, texts = SCENARIOS[scenario]
        self.rules = rules
        self.texts = texts
        self.plans = [plan(rules, rows, text) for text in texts]
        truth = [rows.count((group, RUNNING)) for group in (0, 1)]
        counters = [self.counter(truth[group] + more, more > 0)
                    for group, more in enumerate(too_many)]
        counters.append(self.counter(sum(truth), True))
        self.start = (tuple((*row, None) for row in rows),
                      tuple(counters), tuple((0, ()) for _ in texts))

    @staticmethod
    def counter(running, doubtful):
        return frozen({"running": running, "doubtful": doubtful, "holds": 0,
                       "changes": 0, "enters": 0, "count_no": 0})

    def steps(self, state):
        rows, counters, workers = state
        for number, (at, noted) in enumerate(workers):
            if at == len(self.plans[number]):
                continue
            name, of = self.plans[number][at]
            for fate in ("commit", "abort") if name == "end" else ("",):
                r, n = list(rows), dict(noted)
                c = [dict(counter) for counter in counters]
                n["fate"] = fate or n.get("fate", "")
                n["kind"] = self.texts[number].split()[0]
                go_on = getattr(self, name)(r, c, n, of)
                after = list(workers)
                # who cannot go on has to begin again, or gives up
                after[number] = ((at + 1, frozen(n)) if go_on else
                                 (len(self.plans[number]), ()))
                yield (f"{number + 1} {fate or name} {of}",
                       (tuple(r), tuple(map(frozen, c)), tuple(after)))

    # claims and leaves

    def enter(self, r, c, n, of):
        c[of]["running"] += 1
        c[of]["enters"] += 1
        return self.hold(r, c, n, of)

    def hold(self, r, c, n, of):
        c[of]["holds"] += 1
        c[of]["changes"] += 1
        n[of] = c[of]["count_no"]
        return True

    def write(self, r, c, n, of):
        group, committed, _ = r[of]
        r[of] = group, committed, RUNNING if n["kind"] == "pop" else GONE
        return True

    def lock(self, r, c, n, of):
        """As SQL does it, which tells nobody."""
        group, committed, _ = r[of]
        r[of] = group, committed, committed
        return True

    def let_go(self, r, c, n, of):
        c[of]["holds"] -= 1
        return True

    def end(self, r, c, n, of):
        group, committed, to = r[of]
        r[of] = group, to if n["fate"] == "commit" else committed, None
        return (n["kind"], n["fate"]) in (("pop", "abort"),
                                          ("complete", "commit"))

    def leave(self, r, c, n, of):
        if n[of] == c[of]["count_no"] or "mismatch" not in self.rules:
            c[of]["running"] -= 1
        elif "mismatch_doubtful" in self.rules:
            c[of]["doubtful"] = True
        c[of]["changes"] += 1
        return True

    # sums

    def note(self, r, c, n, of):
        if of != QUEUE and not c[of]["doubtful"]:
            n["noted", of] = None
            return True
        n["noted", of] = c[of]["changes"]
        n["total", of], n["doubt", of] = 0, False
        if of == QUEUE:
            n["held"] = c[of]["holds"] if "held" in self.rules else 0
            n["entered"] = c[of]["enters"]
            return True
        return c[of]["holds"] == 0 or "holds" not in self.rules

    def rows(self, r, c, n, of):
        if n["noted", of] is not None:
            mine = [row for row in r if row[0] == of]
            n["total", of] = sum(is_running(row) or row[2] is not None
                                 for row in mine)
            n["doubt", of] = any(row[2] is not None for row in mine)
        return True

    def add(self, r, c, n, of):
        n["total", QUEUE] += c[of]["running"]
        n["doubt", QUEUE] |= c[of]["doubtful"] and "doubt" in self.rules
        return True

    def counted(self, r, c, n, of):
        if n["noted", of] is None:
            return True
        if of == QUEUE:
            missed = n["held"]
            if "entered" in self.rules:
                missed += c[of]["enters"] - n["entered"]
            n["total", of] += missed
            n["doubt", of] |= missed > 0 or (
                c[of]["changes"] != n["noted", of] and "changed" in self.rules)
        elif (c[of]["holds"] and "holds" in self.rules
                or c[of]["changes"] != n["noted", of]):
            return False
        c[of].update(running=n["total", of], doubtful=n["doubt", of],
                     count_no=c[of]["count_no"] + 1,
                     changes=c[of]["changes"] + 1)
        return True

    # what is promised

    def check(self, state):
        rows, counters, workers = state
        counters = [dict(counter) for counter in counters]
        truth = [sum(is_running(row) for row in rows if of in (row[0], QUEUE))
                 for of in (0, 1, QUEUE)]
        for of, counter in enumerate(counters):
            if counter["running"] < truth[of]:
                raise Fault(f"too little: {counter['running']} of {of}, "
                            f"not {truth[of]}")
        if any(at < len(self.plans[number])
               for number, (at, _) in enumerate(workers)):
            return
        noted = {"kind": "sum"}
        if counters[QUEUE]["doubtful"]:
            for name, of in plan(self.rules, rows, "sum"):
                if not getattr(self, name)(rows, counters, noted, of):
                    raise Fault(f"not exact: nothing comes of {name} {of}")
        for of, counter in enumerate(counters):
            if not counter["doubtful"] and counter["running"] != truth[of]:
                raise Fault(f"not exact: {counter['running']} of {of}, "
                            f"not {truth[of]}")
        if counters[QUEUE]["doubtful"]:
            raise Fault("not exact: the queue is doubtful when all is quiet")


def frozen(items):
    return tuple(sorted(items.items(), key=str))
