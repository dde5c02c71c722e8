"""Random histories: they are drawn, run, and reduced when they find a fault.

A history is a list of steps.  A random number generator draws all of them
before the start, so the seed determines the history.  A step names its session
and its operation.  The task of a step is a number, which selects one of the
running tasks when the step runs.  An impossible step is skipped.  So the
remaining steps of a history are also a history.  A history that finds a fault is
reduced. Steps are left out as long as the rest finds the same kind of fault.

One thread runs the steps of several sessions, with transactions that stay open in
between.  No call may wait for another session.  So histories reach every order of
calls, commits and rollbacks, and can be repeated exactly.  Only the step at which
a task becomes due depends on the machine's speed (clock.py).

At its end each history is drained.  The open transactions end, some running tasks
are released, the others are completed, and paused groups are resumed.  Then all
ready tasks are popped, once.
"""

import random
import time

from clock import TooSlow
from driver import Driver
from server import LEVELS, text
from state import Fault
from steps import perform


# the costs; None if they are not given
COSTS = ((None, 1), (1, 2, 3), (None, 0.5, 5), (0.1, 0.7, 7.25),
         (1e-12, 1, 1000000))


class History:
    """The steps of one history, all drawn here."""

    def __init__(self, profile, seed, number):
        self.profile = profile
        self.seed = f"{seed}/{profile.name}/{number}"
        self.given_up = False
        rng = self.rng = random.Random(self.seed)
        has = self.has = profile.options.get
        self.sessions = rng.choice(profile.sessions)
        self.block_length = rng.choice((64, 1000, 1048576))
        self.options = self._options()
        self.groups = [f"g{number}" for number in
                       range(rng.choice((1, 2, 2, 3, 5, 10, 50)))]
        if has("tenants"):
            tenants = rng.choice((1, 2, 2, 3, 8))
            self.groups = [f"t{rng.randrange(tenants)}/{group}"
                           for group in self.groups]
        self.tenants = sorted({name.split("/")[0] for name in self.groups
                               if has("tenants")})
        self.few = self.groups[:1 + len(self.groups) // 8]
        self.priorities = (rng.sample(range(10), rng.randint(2, 4))
                           if has("priorities") and rng.random() < 0.7
                           else [0])
        self.keys = [f"k{number}" for number in range(rng.choice((1, 3, 10)))]
        self.largest = rng.choice((1, 3, 20))
        if has("cost"):
            self.costs = rng.choice(COSTS)
        rates = dict(profile.rates)
        if has("levels"):
            rates.pop("retention", None)    # see _options
        rates["enqueue"] *= rng.choice((0.5, 1, 2))
        self.steps = self._settings()
        names = list(rates)
        draws = self._draws()
        draw_one = (lambda: (rng.randrange(1 << 30),))
        for name in rng.choices(names, [rates[name] for name in names],
                                k=rng.randint(20, 200)):
            self.steps.append((rng.randrange(self.sessions), name,
                               *draws.get(name, draw_one)()))
        restarts = [step for step in self.steps if step[1] == "restart"]
        for step in restarts[2:]:       # such histories take long
            self.steps.remove(step)

    def _chance(self, option):
        chance = self.has(option)
        return chance and self.rng.random() < chance

    def _options(self):
        """The options of the queue.  In a transaction with an old snapshot
        only a retained task shows that it was cancelled.
        """
        options = {}
        if self._chance("attempts"):
            options["max_attempts"] = self.rng.choice((1, 2, 3))
        if self._chance("backoff"):
            options["backoff"] = self.rng.choice((0, 1000, 8000))
        if self._chance("retain") or self.has("levels"):
            options["retain"] = True
        if self.has("cost"):
            options["fair_by"] = "cost"
        if self.has("time"):
            options["fair_by"] = "time"
        if self.has("tenants"):
            options["separator"] = "/"
        if self._chance("by_shares"):
            options["shares"] = self._shares()
        return options

    def _shares(self):
        most = self.rng.choice((3, 10, 1000000))
        return tuple(self.rng.randint(1, most)
                     for _ in range(self.rng.randint(1, 10)))

    def _needs_looks(self):
        """Whether the results of calls leave something unknown."""
        return self.has("leases") or self.has("backoff") or self.has("delay")

    def _settings(self):
        """The steps that come first: weights and limits."""
        rng, steps = self.rng, []
        if self.has("weights"):
            for name in [*self.groups, *self.tenants]:
                if rng.random() < 0.6:
                    steps.append((0, "weight", name, rng.randint(1, 5)))
        if self._chance("limits"):
            if rng.random() < 0.4:
                steps.append((0, "limit", None, rng.randint(1, 3)))
            for name in self.groups:
                if rng.random() < 0.6:
                    steps.append((0, "limit", name, rng.randint(1, 3)))
        for name in self.tenants:
            if self._chance("of_tenants"):
                steps.append((0, "limit", name, rng.randint(1, 4)))
        if self._chance("most"):
            steps.append((0, "max_running", rng.randint(1, 8)))
        return steps

    def _draws(self):
        """For each kind of step with arguments, the function that draws them."""
        rng = self.rng
        # a step that reads the view also reads rows that other sessions write
        levels = LEVELS[:1] if not self.has("levels") else (
            LEVELS[:2] if self._needs_looks() else LEVELS)

        def group():
            return rng.choice(self.groups if rng.random() < 0.6 else self.few)

        def groups():
            chosen = self.groups if rng.random() < 0.5 else self.few
            return [rng.choice(chosen) for _ in range(rng.randint(1, 30))]

        def some_group(chance):
            return group() if rng.random() < chance else None

        def pick():
            return rng.randrange(1 << 30)

        def when():
            return (rng.choice((1, 1, 1, 2, 2, 3, "past", "never"))
                    if self._chance("schedule") else None)

        def key():
            return rng.choice(self.keys) if self._chance("keys") else None

        def batch():
            chosen = groups()
            keys = [key() for _ in chosen]
            return (chosen, rng.choice(self.priorities), when(),
                    keys if any(keys) else None,
                    [float(cost() or 1) for _ in chosen] if self.has("cost")
                    else None)

        def cost():
            return rng.choice(self.costs) if self.has("cost") else None

        def lease():
            return ((rng.choice((1, 1, 2, 3)), rng.random() < 0.5)
                    if self._chance("leases") else None)

        def pop(chance):
            per_group = (rng.randint(1, 4) if self.has("per_group")
                         and rng.random() < chance else None)
            return rng.randint(1, self.largest), per_group

        return {
            "enqueue": lambda: (group(), rng.choice(self.priorities), when(),
                                key(), rng.randint(1, 2)
                                if self._chance("attempts")
                                and rng.random() < 0.3 else None, cost()),
            "batch": batch,
            "create": lambda: (pick(), group(), rng.choice(self.priorities),
                               rng.random() < 0.3, rng.random() < 0.3),
            "join": lambda: (pick(), group(), rng.choice(self.priorities)),
            "pop": lambda: (*pop(0.5), lease()),
            "take": lambda: (*pop(0.3), None),
            "begin": lambda: (rng.choice(levels),),
            "purge": lambda: (some_group(0.9),),
            "weight": lambda: (group(), rng.randint(1, 5)),
            "limit": lambda: (
                rng.choice(self.tenants) if self._chance("of_tenants")
                else some_group(0.8), rng.randint(0, 3)),
            "max_running": lambda: (rng.randint(0, 8),),
            "shares": lambda: (self._shares()
                               if rng.random() < 0.8 else (),),
            "max_attempts": lambda: (rng.choice((1, 2, 3, 20)),),
            "retention": lambda: (rng.random() < 0.5,),
            "pause": lambda: (
                rng.choice(self.tenants) if self._chance("of_tenants")
                else some_group(0.9),),
            "restart": lambda: (rng.random() < 0.6,),
            "complete_batch": lambda: (pick(), rng.randint(1, 20)),
            "fail": lambda: (pick(), rng.choice((None, None, 0, 1, 2))
                             if self._needs_looks() else 0,
                             rng.random() < 0.2),
            "release": lambda: (pick(), rng.randint(1, 2)
                                if self._chance("delay") else 0),
            "extend": lambda: (pick(), lease()),
            "redrive": lambda: (some_group(0.4),
                                rng.choice((None, None, 1, 2))),
            "expire": lambda: (rng.choice((1, 2, 1000)),),
        }

    def run(self, server, steps=None, release=True):
        """Runs the history, or a part of it. Returns the fault that it finds,
        or None. A history that was too slow for its plan runs once more, and
        is then given up.
        """
        for _ in range(3):
            try:
                return self._run(server, steps, release)
            except TooSlow:
                pass
        self.given_up = True
        return None

    def _run(self, server, steps, release):
        driver = Driver(server, self.sessions, self.block_length, self.options)
        fault = None
        done = 0
        try:
            for step in self.steps if steps is None else steps:
                done += 1
                perform(driver, *step)
            driver.drain(random.Random(self.seed), release)
            driver.close(clean=True)
        except TooSlow:
            driver.give_up()
            raise
        except Fault as error:
            fault = error
        except Exception as error:
            fault = Fault("error", f"{type(error).__name__}: {error}")
        if fault:
            driver.close(clean=False)
            fault.log, fault.done = driver.log, done
        return fault

    def shrink(self, server, fault, seconds=60):
        """A smaller part that finds the same kind of fault."""
        until = time.monotonic() + seconds
        steps = self.steps
        release = True

        def smaller(part):
            nonlocal steps, fault
            if time.monotonic() > until:
                return False
            found = self.run(server, part, release)
            if found is None or found.kind != fault.kind:
                return False
            steps, fault = part, found
            return True

        smaller(steps[:fault.done])
        release = False
        release = not smaller(steps)
        size = len(steps) // 2
        while size:
            start, again = 0, False
            while start < len(steps):
                if smaller(steps[:start] + steps[start + size:]):
                    again = True
                else:
                    start += size
            size = 1 if again and size == 1 else size // 2
        for at in range(len(steps)):
            s, name, *rest = steps[at]
            if name != "batch":
                continue
            groups, priority, when, keys, costs = rest
            for end in range(len(groups) - 1, -1, -1):
                fewer = groups[:end] + groups[end + 1:]
                fewer_keys = keys and keys[:end] + keys[end + 1:]
                fewer_costs = costs and costs[:end] + costs[end + 1:]
                if fewer and smaller(steps[:at] + [
                        (s, name, fewer, priority, when, fewer_keys,
                         fewer_costs)] + steps[at + 1:]):
                    groups, keys, costs = fewer, fewer_keys, fewer_costs
        return fault


def report(history, fault, limit=200):
    """Diagnostics: the fault, the seed, and the steps that lead to it."""
    lines = [str(fault), f"seed {history.seed}, block_length"
             f" {history.block_length}, replay:"]
    steps = text(fault.log)
    if len(steps) > limit:
        lines.append(f"({len(steps) - limit} steps before)")
    return lines + steps[-limit:]
