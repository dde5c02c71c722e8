"""The count from outside: the client's own number of running tasks, and the
limit.

This code does not use the server's counts.  A claim is registered after its statement
has returned, and deregistered before the statement that ends it is sent.  So the task
of each registered claim is running, and other tasks may run, too.

Limits change during claims.  Consider the claims of a group that are registered at
some instant.  One of them was made last, and at that moment the tasks of all the
others were running.  So their number is at most the limit that was in effect at
that moment.  The moment is between the sending of the last claim's statement and
its return.  The test does not know which claim was the last.  But a claim that
returned before another one was sent was not the last.  This gives the bound:

    number of claims <= the greatest limit in effect between sending and return
                        of any of them that may have been the last

A change of a limit is in effect at the earliest when its statement is sent, and
at the latest when the statement has returned.
"""

import math
import threading
import time
from collections import defaultdict

now = time.monotonic


def tenant_of(group):
    """The tenant of a group, or None if it has none."""
    return group.split("/")[0] if "/" in group else None


class Fault(Exception):
    """Raised when a promise is broken."""


class Limit:
    """The possible limits of a group, or of the queue, at each time."""

    def __init__(self, value):
        self.steps = [(0.0, math.inf, value)]   # (since, until, limit)
        self.ever = value != math.inf

    @property
    def value(self):
        return self.steps[-1][2]

    def change(self, value):
        """Call this before a new limit is sent. The old limit may apply until
        settled()."""
        self.steps.append((now(), math.inf, value))
        self.ever |= value != math.inf

    def settled(self):
        at = now()
        for i in range(len(self.steps) - 1):
            start, end, value = self.steps[i]
            self.steps[i] = (start, min(end, at), value)

    def greatest(self, sent, returned):
        most = 0
        for start, end, value in reversed(self.steps):
            if end < sent:
                break
            if start <= returned:
                most = max(most, value)
        return most


class Claim:
    """A claimed task. Two claims are equal if they are the same attempt."""
    __slots__ = ("id", "group", "attempt", "sent", "returned", "taken")

    def __init__(self, id, group, attempt, sent, returned, taken=False):
        self.id, self.group, self.attempt = id, group, attempt
        self.sent, self.returned, self.taken = sent, returned, taken

    @property
    def key(self):
        return (self.id, self.attempt)

    def __repr__(self):
        return (f"{self.group}:{self.id}/{self.attempt}"
                f"[{self.sent:.4f}..{self.returned:.4f}]")


def exceeds(claims, limit):
    """Returns (the number of claims, the bound) if there are more claims than
    the bound allows, or else None."""
    if not limit.ever or not claims:
        return None
    count = len({claim.id for claim in claims})
    last_sent = max(claim.sent for claim in claims)
    bound = max(limit.greatest(claim.sent, claim.returned)
                for claim in claims if claim.returned >= last_sent)
    return (count, bound) if count > bound else None


class Outside:
    """The registered claims of one queue, and its limits."""

    def __init__(self, groups, concurrency=None, max_running=None):
        """groups also has the tenants of groups. A tenant's key has no "/"."""
        self.tenants = {tenant_of(group) for group in groups} - {None}
        self.lock = threading.RLock()
        self.running = defaultdict(dict)        # group -> key -> claim
        self.settings = {group: [None, False] for group in groups}
        self.concurrency, self.paused = concurrency, False
        self.max_running = max_running
        self.limits = {group: Limit(self._of_group(group)) for group in groups}
        self.queue = Limit(self._of_queue())
        self.checks = self.at_limit = self.at_queue_limit = 0
        self.at_tenant_limit = 0
        self.fault = None

    # ---- limits.  One session changes the limits, one change at a time.

    def _of_group(self, group):
        concurrency, paused = self.settings[group]
        if paused:
            return 0
        of_queue = None if group in self.tenants else self.concurrency
        return concurrency or of_queue or math.inf

    def _of_queue(self):
        return 0 if self.paused else self.max_running or math.inf

    def is_paused(self, group):
        return any(self.settings[name][1] for name in (group, tenant_of(group))
                   if name is not None)

    def _each(self):
        yield self.queue, self._of_queue()
        for group, limit in self.limits.items():
            yield limit, self._of_group(group)

    def changing(self):
        """Call this when the fields are set, before the values are sent."""
        with self.lock:
            for limit, value in self._each():
                if limit.value != value:
                    limit.change(value)

    def changed(self):
        """Call this when the statement with the change has returned."""
        with self.lock:
            for limit, _ in self._each():
                limit.settled()

    # ---- claims

    def _check(self, what, claims, limit, count=True):
        found = exceeds(claims, limit)
        if count:
            self.checks += 1
        if found and self.fault is None:
            claims = sorted(claims, key=lambda claim: claim.sent)
            self.fault = (f"{what}: {found[0]} running at {now():.4f}, limit"
                          f" {found[1]}: {claims}; limits {limit.steps[-4:]}")

    def register(self, claims):
        with self.lock:
            for claim in claims:
                self.running[claim.group][claim.key] = claim
            for group in {claim.group for claim in claims}:
                here = self.running[group].values()
                self._check(f"group {group}", here, self.limits[group])
                self.at_limit += len(here) == self.limits[group].value
            for tenant in {tenant_of(claim.group) for claim in claims} - {None}:
                here = [claim for group, of_group in self.running.items()
                        if tenant_of(group) == tenant
                        for claim in of_group.values()]
                self._check(f"tenant {tenant}", here, self.limits[tenant])
                self.at_tenant_limit += len(here) == self.limits[tenant].value
            if claims and self.queue.ever:
                here = [claim for of_group in self.running.values()
                        for claim in of_group.values()]
                self._check("queue", here, self.queue)
                self.at_queue_limit += len(here) == self.queue.value

    def deregister(self, claims):
        with self.lock:
            for claim in claims:
                self.running[claim.group].pop(claim.key, None)

    def observed(self, claims):
        """The running tasks in the table, in one snapshot."""
        with self.lock:
            groups = defaultdict(list)
            for claim in claims:
                groups[claim.group].append(claim)
                if tenant_of(claim.group):
                    groups[tenant_of(claim.group)].append(claim)
            for group, here in groups.items():
                self._check(f"fairq.tasks, group {group}", here,
                            self.limits[group], count=False)
            self._check("fairq.tasks, queue", claims, self.queue, count=False)

    def registered(self):
        with self.lock:
            return {claim.key for of_group in self.running.values()
                    for claim in of_group.values()}
