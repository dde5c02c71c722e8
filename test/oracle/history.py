"""Random histories: drawn, driven, and made small when they find a fault.

A history is a list of steps, drawn from a random number generator before it
starts, so that the seed says all.  A step names its session and its operation;
which task it completes or releases is a number that picks from those that are
running when it comes to that.  A step that is not possible then is skipped.
So any part of a history is a history, and one that finds a fault is made small
by leaving out steps as long as the same kind of fault is found.

Steps of several sessions are mixed in one thread, with transactions that stay
open in between: no call may wait for another session, so this reaches every
order of calls, commits and rollbacks, and is repeated exactly.

At its end each history is drained: the open transactions are ended, some
running tasks released and the others completed, what is paused is resumed, and
all that is ready is popped, once.
"""

import random
import time

from model import Fault, Model
from server import LEVELS, text


class Driver:
    """Sessions and the model: every call goes to both."""

    def __init__(self, server, sessions, block_length=1048576):
        self.server = server
        self.log = []
        self.model = Model()
        self.sessions = server.open(sessions, self.log, block_length)
        self.names = range(sessions)
        self.levels = {}

    def begin(self, s, level=LEVELS[0]):
        self.levels[s] = level
        self.sessions[s].begin(level)
        self.model.begin(s)

    def commit(self, s):
        self.sessions[s].commit()
        self.model.commit(s)

    def rollback(self, s):
        self.sessions[s].rollback()
        self.model.rollback(s)

    def savepoint(self, s):
        self.sessions[s].savepoint(len(self.model.savepoints[s]))
        self.model.savepoint(s)

    def rollback_to(self, s, depth):
        self.sessions[s].rollback_to(depth)
        self.model.rollback_to(s, depth)

    def release_savepoint(self, s, depth):
        self.sessions[s].release_savepoint(depth)
        self.model.release_savepoint(s, depth)

    def enqueue(self, s, group, priority=0):
        id = self.sessions[s].enqueue(group, priority)
        self.model.enqueued(s, id, group, priority)
        return id

    def batch(self, s, groups, priority=0):
        ids = self.sessions[s].enqueue_batch(groups, priority)
        if len(ids) != len(groups):
            raise Fault("count", f"{len(ids)} ids for {len(groups)} tasks")
        for id, group in zip(ids, groups):
            self.model.enqueued(s, id, group, priority)
        return ids

    def pop(self, s, tasks, per_group=None, take=False):
        claims = self.sessions[s].pop(tasks, per_group, take)
        self.model.popped(s, tasks, claims, per_group, take)
        return claims

    def complete(self, s, id, attempt=None, valid=True):
        done = self.sessions[s].complete(id, attempt)
        if done != valid:
            raise Fault("complete", f"complete({id}) is {done}")
        if valid:
            self.model.finished(s, id)

    def complete_batch(self, s, tasks):
        done = self.sessions[s].complete_batch(
            [task.id for task in tasks], [task.attempt for task in tasks])
        if done != len(tasks):
            raise Fault("complete", f"{done} completed, not {len(tasks)}")
        for task in tasks:
            self.model.finished(s, task.id)

    def release(self, s, id, attempt=None):
        if not self.sessions[s].release(id, attempt):
            raise Fault("release", f"release({id}) is false")
        self.model.released(s, id)

    def purge(self, s, group=None):
        dropped = self.sessions[s].purge(group)
        due = self.model.purge(s, group)
        if dropped != due:
            raise Fault("purge", f"{dropped} dropped, not {due}")

    def set_weight(self, s, group, weight):
        self.sessions[s].set_weight(group, weight)
        self.model.set_weight(group, weight)

    def may_set(self, s):
        """Settings are changed one at a time, and by ordinary SQL."""
        return self.model.may_set(s) and (
            s not in self.model.undo or self.levels[s] == LEVELS[0])

    def set_limit(self, s, group, limit):
        self.sessions[s].set_limit(group, limit)
        self.model.set_limit(s, group, limit)

    def set_max_running(self, s, limit):
        self.sessions[s].set_max_running(limit)
        self.model.set_limits(s, max_running=limit or None)

    def set_paused(self, s, group, paused):
        self.sessions[s].set_paused(group, paused)
        self.model.set_paused(s, group, paused)

    def reset_hints(self, s):
        self.sessions[s].reset_hints()
        self.model.forget()

    def restart(self, crash):
        self.server.restart(crash)
        for s in list(self.model.undo):
            self.model.rollback(s)
        self.model.forget()

    def check_queue(self):
        complaints = self.sessions[0].check_queue()
        if complaints:
            raise Fault("check_queue", "; ".join(complaints))

    def drain(self, rng, release=True):
        """End all, and pop what is left: each task once, and nothing else."""
        for s in list(self.model.undo):
            self.commit(s) if rng.random() < 0.5 else self.rollback(s)
        self.check_queue()
        for task in self.model.held(0):
            if rng.random() < 0.5 and release:
                self.release(0, task.id, task.attempt)
        self._pop_all(rng)
        settings = self.model.settings
        for group in sorted(settings.paused_groups):
            self.set_paused(0, group, False)
        if settings.paused:
            self.set_paused(0, None, False)
        self._pop_all(rng)
        if self.model.tasks:
            raise Fault("lost", f"{len(self.model.tasks)} tasks are left")
        self.check_queue()

    def _pop_all(self, rng):
        s = 0
        while True:
            held = self.model.held(s)
            if held:
                self.complete_batch(s, held)
            s = rng.choice(self.names)
            if not self.pop(s, rng.choice((1, 1, 2, 5, 20))):
                break

    def close(self, clean):
        self.server.close(self.sessions, clean)


class Profile:
    """What a family of histories does, and how often.  "limits" and "most"
    are the chance that groups or the queue are limited from the start."""

    def __init__(self, name, share=1, sessions=(1,), exclusive=False, **rates):
        self.name, self.share = name, share
        self.sessions, self.exclusive, self.rates = sessions, exclusive, rates


SERVE = {"enqueue": 20, "batch": 4, "pop": 14, "complete": 6,
         "complete_batch": 3, "release": 1}
OPEN = {"begin": 6, "commit": 3, "rollback": 2}
SAVEPOINTS = {"savepoint": 6, "rollback_to": 3, "release_savepoint": 2}
ALL = {**SERVE, **OPEN, **SAVEPOINTS, "take": 2, "purge": 1, "stale": 1,
       "priorities": 1, "weights": 1, "levels": 1, "per_group": 1}

LIMITS = {"limits": 1, **SERVE, "complete": 10, "complete_batch": 4}
CHANGES = {"limit": 3, "pause": 1, "resume": 1.5, "max_running": 1}

PROFILES = (
    Profile("one worker", 3, **SERVE),
    Profile("one worker, transactions", 3, take=2, purge=1, stale=1,
            **SERVE, **OPEN),
    Profile("priorities", 2, priorities=1, take=2, **SERVE),
    Profile("weights", 2, weights=1, **SERVE),
    Profile("weights that change, transactions", 2, (1, 2, 3), weights=1,
            weight=2, purge=1, **SERVE, **OPEN),
    Profile("several workers, open transactions", 5, (2, 3, 4), take=2,
            **SERVE, **OPEN),
    Profile("late commits", 4, (2, 3), **{**SERVE, **OPEN, "commit": 0.5,
                                         "rollback": 0.2}),
    Profile("rollbacks", 3, (1, 2, 3), take=2, **{**SERVE, **OPEN,
                                                  "rollback": 6}),
    Profile("savepoints", 3, (1, 2), take=2, purge=1,
            **SERVE, **OPEN, **SAVEPOINTS),
    Profile("purges and releases", 3, (1, 2), purge=3,
            **{**SERVE, **OPEN, "release": 6}),
    Profile("isolation levels", 3, (2, 3, 4), levels=1, take=2, purge=1,
            **SERVE, **OPEN),
    Profile("per_group", 2, (1, 2), per_group=1, **SERVE, **OPEN),
    Profile("everything", 6, (1, 2, 3, 4), **ALL),
    Profile("limits", 2, (1, 2), **LIMITS),
    Profile("limits, transactions", 4, (1, 2, 3), take=2, purge=1,
            **{**LIMITS, **OPEN, **SAVEPOINTS, "rollback": 4, "release": 3}),
    Profile("limits that change", 3, (1, 2, 3), limit=4, purge=1, take=2,
            **{**LIMITS, **OPEN, "limits": 0.5}),
    Profile("pauses", 2, (1, 2, 3), pause=3, resume=4,
            **SERVE, **OPEN),
    Profile("max_running", 2, (1, 2, 3), most=0.7, take=2, max_running=1,
            **{**SERVE, **OPEN, "complete": 10}),
    Profile("limits, everything", 4, (1, 2, 3, 4), limits=0.7, most=0.4,
            **ALL, **CHANGES),
    Profile("limits, hints thrown away", 2, (1, 2, 3), exclusive=True,
            reset=2, limits=0.7, most=0.4,
            **{**ALL, **CHANGES, "per_group": 0}),
    Profile("limits, restarts", 1, (1, 2, 3), exclusive=True, restart=1,
            limits=0.7, most=0.4, **ALL, **CHANGES),
    Profile("hints thrown away", 3, (1, 2, 3), exclusive=True, reset=2,
            **{**ALL, "per_group": 0}),
    Profile("restarts", 1, (1, 2, 3), exclusive=True, restart=1, **ALL),
)


class History:
    """The steps of one history, all drawn here."""

    def __init__(self, profile, seed, number):
        self.profile = profile
        self.seed = f"{seed}/{profile.name}/{number}"
        rng = random.Random(self.seed)
        rates = {name: rate for name, rate in profile.rates.items()
                 if rate and name not in ("priorities", "weights", "levels",
                                          "per_group", "limits", "most")}
        has = profile.rates.get
        self.sessions = rng.choice(profile.sessions)
        self.block_length = rng.choice((64, 1000, 1048576))
        groups = [f"g{number}"
                  for number in range(rng.choice((1, 2, 2, 3, 5, 10, 50)))]
        few = groups[:1 + len(groups) // 8]
        priorities = (rng.sample(range(10), rng.randint(2, 4))
                      if has("priorities") and rng.random() < 0.7 else [0])
        levels = LEVELS if has("levels") else LEVELS[:1]
        largest = rng.choice((1, 3, 20))
        rates["enqueue"] *= rng.choice((0.5, 1, 2))

        def group():
            return rng.choice(groups if rng.random() < 0.6 else few)

        def batch():
            chosen = groups if rng.random() < 0.5 else few
            return [rng.choice(chosen) for _ in range(rng.randint(1, 30))]

        draw = {
            "enqueue": lambda: (group(), rng.choice(priorities)),
            "batch": lambda: (batch(), rng.choice(priorities)),
            "pop": lambda: (rng.randint(1, largest), self._some(
                rng, has("per_group"), 0.5)),
            "take": lambda: (rng.randint(1, largest), self._some(
                rng, has("per_group"), 0.3)),
            "begin": lambda: (rng.choice(levels),),
            "purge": lambda: (group() if rng.random() < 0.9 else None,),
            "weight": lambda: (group(), rng.randint(1, 5)),
            "limit": lambda: (group() if rng.random() < 0.8 else None,
                              rng.randint(0, 3)),
            "max_running": lambda: (rng.randint(0, 8),),
            "pause": lambda: (group() if rng.random() < 0.9 else None,),
            "restart": lambda: (rng.random() < 0.6,),
            "complete_batch": lambda: (rng.randrange(1 << 30),
                                       rng.randint(1, 20)),
        }
        draw_one = (lambda: (rng.randrange(1 << 30),))
        names = list(rates)
        self.steps = []
        if has("weights"):
            for name in groups:
                if rng.random() < 0.6:
                    self.steps.append((0, "weight", name, rng.randint(1, 5)))
        if rng.random() < has("limits", 0):
            if rng.random() < 0.4:
                self.steps.append((0, "limit", None, rng.randint(1, 3)))
            for name in groups:
                if rng.random() < 0.6:
                    self.steps.append((0, "limit", name, rng.randint(1, 3)))
        if rng.random() < has("most", 0):
            self.steps.append((0, "max_running", rng.randint(1, 8)))
        for name in rng.choices(names, [rates[name] for name in names],
                                k=rng.randint(20, 200)):
            self.steps.append((rng.randrange(self.sessions), name,
                               *draw.get(name, draw_one)()))
        restarts = [step for step in self.steps if step[1] == "restart"]
        for step in restarts[2:]:       # they take long
            self.steps.remove(step)

    @staticmethod
    def _some(rng, wanted, chance):
        return rng.randint(1, 4) if wanted and rng.random() < chance else None

    def run(self, server, steps=None, release=True):
        """Run it, or part of it; the fault that it finds, or None."""
        driver = Driver(server, self.sessions, self.block_length)
        fault = None
        try:
            for step in self.steps if steps is None else steps:
                self._step(driver, *step)
            driver.drain(random.Random(self.seed), release)
            driver.close(clean=True)
        except Fault as error:
            fault = error
        except Exception as error:
            fault = Fault("error", f"{type(error).__name__}: {error}")
        if fault:
            driver.close(clean=False)
            fault.log = driver.log
        return fault

    def _step(self, driver, s, name, *rest):
        model = driver.model
        inside = s in model.undo
        depth = len(model.savepoints[s]) if inside else 0
        if name == "enqueue":
            driver.enqueue(s, *rest)
        elif name == "batch":
            driver.batch(s, *rest)
        elif name in ("pop", "take"):
            driver.pop(s, *rest, take=name == "take")
        elif name == "begin" and not inside:
            driver.begin(s, *rest)
        elif name == "commit" and inside:
            driver.commit(s)
        elif name == "rollback" and inside:
            driver.rollback(s)
        elif name == "savepoint" and inside and depth < 5:
            driver.savepoint(s)
        elif name == "rollback_to" and depth:
            driver.rollback_to(s, rest[0] % depth)
        elif name == "release_savepoint" and depth:
            driver.release_savepoint(s, rest[0] % depth)
        elif name == "purge" and rest[0] in {None, *model.groups}:
            driver.purge(s, *rest)      # others may not exist
        elif name == "weight" and not inside and model.may_set(s):
            driver.set_weight(s, *rest)
        elif name in ("limit", "max_running", "pause", "resume"):
            self._set(driver, s, name, *rest)
        elif name == "reset":
            driver.reset_hints(s)
        elif name == "restart":
            driver.restart(*rest)
        elif name in ("complete", "complete_batch", "release", "stale"):
            self._finish(driver, s, name, *rest)

    @staticmethod
    def _set(driver, s, name, *rest):
        if not driver.may_set(s):
            return
        if name == "limit":
            driver.set_limit(s, *rest)
        elif name == "max_running":
            driver.set_max_running(s, *rest)
        elif name == "pause":
            driver.set_paused(s, *rest, True)
        else:
            settings = driver.model.settings_of(s)
            paused = sorted(settings.paused_groups)
            if settings.paused:
                paused.append(None)
            if paused:
                driver.set_paused(s, paused[rest[0] % len(paused)], False)

    @staticmethod
    def _finish(driver, s, name, pick, count=1):
        held = driver.model.held(s)
        if not held:
            return
        pick %= len(held)
        task = held[pick]
        if name == "complete":
            driver.complete(s, task.id, task.attempt if pick % 2 else None)
        elif name == "complete_batch":
            driver.complete_batch(s, held[pick:pick + count])
        elif name == "release":
            driver.release(s, task.id, task.attempt if pick % 2 else None)
        else:
            driver.complete(s, task.id, task.attempt + 1, valid=False)

    def shrink(self, server, fault, seconds=30):
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
            groups, priority = rest
            for end in range(len(groups) - 1, -1, -1):
                fewer = groups[:end] + groups[end + 1:]
                if fewer and smaller(steps[:at] + [
                        (s, name, fewer, priority)] + steps[at + 1:]):
                    groups = fewer
        return fault


def report(history, fault, limit=200):
    """Diagnostics: the fault, the seed, and the steps that lead to it."""
    lines = [str(fault), f"seed {history.seed}, block_length"
             f" {history.block_length}, replay:"]
    steps = text(fault.log)
    if len(steps) > limit:
        lines.append(f"({len(steps) - limit} steps before)")
    return lines + steps[-limit:]
