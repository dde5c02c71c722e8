"""The families of random histories."""

OPTIONS = ("priorities", "weights", "levels", "per_group", "limits", "most",
           "attempts", "retain", "backoff", "schedule", "keys", "leases",
           "delay", "cost", "by_shares", "tenants", "of_tenants", "time")


class Profile:
    """The steps of a family of histories, their rates, and its OPTIONS.

    Most options are probabilities. "limits" is the probability of limits for
    groups, "most" of a limit of the queue, and "of_tenants" of a limit of a
    tenant. Other options are the probabilities of a limit of attempts, an
    archive, a short backoff, a scheduled enqueue, a key, a short lease and a
    delayed release. The last options are the probabilities of a cost-fair
    queue, of shares from the start, and of tenants."""

    def __init__(self, name, share=1, sessions=(1,), exclusive=False, **rates):
        self.name, self.share = name, share
        self.sessions, self.exclusive = sessions, exclusive
        self.options = {name: rates.pop(name, 0) for name in OPTIONS}
        self.rates = {name: rate for name, rate in rates.items() if rate}


SERVE = {"enqueue": 20, "batch": 4, "pop": 14, "complete": 6,
         "complete_batch": 3, "release": 1}
OPEN = {"begin": 6, "commit": 3, "rollback": 2}
SAVEPOINTS = {"savepoint": 6, "rollback_to": 3, "release_savepoint": 2}
ALL = {**SERVE, **OPEN, **SAVEPOINTS, "take": 2, "purge": 1, "stale": 1,
       "priorities": 1, "weights": 1, "levels": 1, "per_group": 1}

LIMITS = {"limits": 1, **SERVE, "complete": 10, "complete_batch": 4}
CHANGES = {"limit": 3, "pause": 1, "resume": 1.5, "max_running": 1}

# events that the clock causes
SCHEDULE = {"schedule": 0.4, "tick": 2, "wait": 0.5, "look": 1}
LEASES = {"leases": 0.5, "tick": 2.5, "expire": 0.5, "extend": 1.5, "look": 1}
# the ways in which tasks end
ENDS = {"fail": 4, "cancel": 1.5, "redrive": 1, "stale": 1, "look": 1,
        "attempts": 0.6, "retain": 0.5, "backoff": 0.5, "delay": 0.3}
LIFE = {**SERVE, **SCHEDULE, **LEASES, **ENDS, "schedule": 0.2, "leases": 0.3,
        "keys": 0.2, "tick": 2, "wait": 0.5, "max_attempts": 0.3,
        "retention": 0.3, "maintain": 0.3}

SERVICE = (
    Profile("one worker", 3, **SERVE),
    Profile("one worker, transactions", 3, take=2, purge=1, stale=1,
            **SERVE, **OPEN),
    Profile("priorities", 2, priorities=1, take=2, **SERVE),
    Profile("shares", 3, priorities=1, by_shares=1, shares=0.5, take=2,
            **SERVE),
    Profile("shares, transactions", 3, (1, 2, 3), priorities=1, by_shares=0.8,
            shares=0.5, weights=0.5, per_group=0.5, purge=1, limits=0.3,
            most=0.3, take=2, **{**SERVE, **OPEN, **SAVEPOINTS,
                                 "rollback": 4, "complete": 10}),
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
    Profile("restarts", 1, (1, 2, 3), exclusive=True, restart=1,
            by_shares=0.5, **ALL),
)

LIVES = (
    Profile("scheduled tasks", 3, (1, 2), **SERVE, **SCHEDULE),
    Profile("leases that expire", 3, (1, 2), **SERVE, **LEASES),
    Profile("leases that expire, transactions", 3, (1, 2, 3),
            **{**SERVE, **OPEN, **SAVEPOINTS, **LEASES, "rollback": 4,
               "extend": 3}),
    Profile("ends of tasks", 3, (1, 2), **SERVE, **ENDS),
    Profile("ends of tasks, transactions", 3, (1, 2, 3),
            **{**SERVE, **OPEN, **SAVEPOINTS, **ENDS, "rollback": 4}),
    Profile("isolation levels, ends of tasks", 3, (2, 3, 4), levels=1,
            schedule=0.3, keys=0.3, tick=1, fail=4, cancel=1.5, redrive=1,
            attempts=0.6, purge=1, take=2, extend=1, **SERVE, **OPEN),
    Profile("dedup keys", 3, (1, 2, 3), keys=0.6, cancel=1.5, fail=2,
            redrive=1, attempts=0.6, purge=0.5, take=2, look=1,
            **{**SERVE, **OPEN, **SAVEPOINTS}),
    Profile("life", 3, (1, 2), **LIFE),
    Profile("life, transactions", 4, (1, 2, 3), take=2, purge=1,
            **{**LIFE, **OPEN, **SAVEPOINTS, "rollback": 4}),
    Profile("life, limits", 4, (1, 2), **{**LIMITS, **LIFE, "leases": 0.6}),
    Profile("life, limits that change", 3, (1, 2, 3), limit=3, max_running=1,
            **{**LIMITS, **LIFE, **OPEN, "limits": 0.7, "most": 0.4,
               "leases": 0.6}),
    Profile("life, everything", 5, (1, 2, 3, 4), by_shares=0.3,
            **{**ALL, **CHANGES, **LIFE, "limits": 0.4, "most": 0.3}),
    Profile("life, hints thrown away", 2, (1, 2, 3), exclusive=True, reset=2,
            by_shares=0.3,
            **{**ALL, **CHANGES, **LIFE, "limits": 0.4, "most": 0.3,
               "per_group": 0}),
    Profile("life, restarts", 1, (1, 2, 3), exclusive=True, restart=1,
            **{**ALL, **CHANGES, **LIFE, "limits": 0.4, "most": 0.3}),
)

# Without leases, keys and limits, which do not affect batches. All transactions
# are at READ COMMITTED, because SQL statements check batches.
BATCHES = {**SERVE, "priorities": 1, "create": 4, "join": 20, "close": 3,
           "cancel_batch": 0.4, "fail": 4, "cancel": 1, "redrive": 1,
           "purge": 0.4, "wait": 0.5, "look": 1, "attempts": 0.6,
           "retain": 0.5, "pop": 20, "complete": 8}

FAN_IN = (
    Profile("batches", 3, (1, 2), take=1, **BATCHES),
    Profile("batches, transactions", 5, (2, 3, 4), take=1,
            **{**BATCHES, **OPEN, **SAVEPOINTS, "commit": 5, "rollback": 3}),
    Profile("batches, restarts", 1, (1, 2, 3), exclusive=True, restart=1,
            **{**BATCHES, **OPEN, **SAVEPOINTS}),
)

COSTS = (
    Profile("cost-fair", 3, cost=1, priorities=1, **SERVE),
    Profile("cost-fair, shares", 3, (1, 2), cost=1, priorities=1, by_shares=1,
            shares=0.5, take=2, per_group=0.3, **{**SERVE, **OPEN}),
    Profile("cost-fair, weights", 2, (1, 2), cost=1, weights=1, weight=1,
            take=2, **SERVE),
    Profile("cost-fair, transactions", 4, (1, 2, 3), cost=1, weights=1, take=2,
            purge=1, **{**SERVE, **OPEN, **SAVEPOINTS, "rollback": 5}),
    Profile("cost-fair, late commits", 3, (2, 3), cost=1, **{
        **SERVE, **OPEN, "commit": 0.5, "rollback": 0.2}),
    Profile("cost-fair, per_group", 2, (1, 2), cost=1, per_group=1, weights=1,
            **SERVE, **OPEN),
    Profile("cost-fair, limits that change", 3, (1, 2, 3), cost=1, limit=4,
            pause=1, resume=1.5, purge=1, take=2,
            **{**LIMITS, **OPEN, "limits": 0.7}),
    Profile("cost-fair, max_running", 2, (1, 2, 3), cost=1, most=0.7,
            max_running=1, leases=0.3, tick=1,
            **{**SERVE, **OPEN, "complete": 10}),
    # Without leases. A group with running tasks may count as one with an ended
    # lease, and so become active before it has a ready task. The model cannot
    # predict this case.
    Profile("cost-fair, everything", 5, (1, 2, 3, 4), cost=1,
            **{**ALL, **CHANGES, "limits": 0.4, "most": 0.3}),
    Profile("cost-fair, hints thrown away", 2, (1, 2, 3), exclusive=True,
            cost=1, reset=2, **{**ALL, **CHANGES, "limits": 0.3,
                                "most": 0.2, "per_group": 0}),
    Profile("cost-fair, restarts", 1, (1, 2, 3), exclusive=True, restart=1,
            cost=1, **{**ALL, **CHANGES, "limits": 0.3, "most": 0.2}),
)

    # Without restarts and resets, after which a user that is not found yet waits.
TENANTS = (
    Profile("tenants", 3, tenants=1, priorities=1, **SERVE),
    Profile("tenants, cost-fair", 3, tenants=1, cost=1, priorities=1, **SERVE),
    Profile("tenants, weights", 3, (1, 2), tenants=1, weights=1, weight=1,
            take=2, **SERVE),
    Profile("tenants, cost-fair, weights", 3, (1, 2), tenants=1, cost=1, weights=1,
            take=2, **SERVE),
    Profile("tenants, transactions", 4, (1, 2, 3), tenants=1, weights=1, take=2,
            purge=1, **{**SERVE, **OPEN, **SAVEPOINTS, "rollback": 5}),
    Profile("tenants, cost-fair, late commits", 3, (2, 3), tenants=1, cost=1, **{
        **SERVE, **OPEN, "commit": 0.5, "rollback": 0.2}),
    Profile("tenants, per_group", 3, (1, 2), tenants=1, per_group=1, weights=1,
            **SERVE, **OPEN),
    Profile("tenants, limits that change", 3, (1, 2, 3), tenants=1, limit=4,
            pause=1, resume=1.5, purge=1, take=2,
            **{**LIMITS, **OPEN, "limits": 0.7}),
    Profile("tenants, limits of tenants", 3, (1, 2), tenants=1, of_tenants=0.6,
            weights=1, take=2, **LIMITS, **OPEN),
    Profile("tenants, limits of tenants that change", 4, (1, 2, 3), tenants=1,
            of_tenants=0.6, limit=4, pause=1, resume=1.5, purge=1, take=2,
            **{**LIMITS, **OPEN, **SAVEPOINTS, "limits": 0.4}),
    Profile("tenants, pauses of tenants, leases", 3, (1, 2, 3), tenants=1,
            of_tenants=0.7, pause=3, resume=4, purge=1, leases=0.5, tick=2,
            **{**SERVE, **OPEN, **SAVEPOINTS}),
    Profile("tenants, limits of tenants, leases", 4, (1, 2, 3), tenants=1,
            cost=1, of_tenants=0.7, limit=2, max_running=0.5, leases=0.5,
            tick=2, **{**LIMITS, **OPEN, "limits": 0.3}),
    Profile("tenants, max_running", 2, (1, 2, 3), tenants=1, most=0.7,
            max_running=1, leases=0.3, tick=1,
            **{**SERVE, **OPEN, "complete": 10}),
    Profile("tenants, everything", 4, (1, 2, 3, 4), tenants=1, cost=1,
            **{**ALL, **CHANGES, "limits": 0.4, "most": 0.3}),
)

TIMES = (
    Profile("time-fair", 3, time=1, priorities=1, **SERVE),
    Profile("time-fair, transactions", 3, (1, 2, 3), time=1, take=2, purge=1,
            **{**SERVE, **OPEN, **SAVEPOINTS, "rollback": 4}),
    Profile("time-fair, everything", 4, (1, 2, 3), time=1,
            **{**ALL, **LIFE, **CHANGES, "limits": 0.5, "most": 0.2}),
    Profile("time-fair, tenants", 3, time=1, tenants=1, **SERVE),
    Profile("time-fair, tenants, leases", 4, (1, 2, 3), time=1, tenants=1,
            of_tenants=0.7, limit=2, pause=3, resume=4, max_running=0.5,
            purge=1, leases=0.5, tick=2, fail=3, extend=1, attempts=0.3,
            weights=1, weight=1, **{**SERVE, **OPEN}),
    Profile("time-fair, tenants, max_running", 3, (1, 2, 3), time=1, tenants=1,
            most=0.7, max_running=1, leases=0.5, tick=2, **SERVE, **OPEN),
    Profile("time-fair, tenants, per_group", 3, (1, 2), time=1, tenants=1,
            per_group=1, weights=1, priorities=1, take=2,
            **{**SERVE, "complete": 10}),
)

PROFILES = SERVICE + LIVES + FAN_IN + COSTS + TENANTS + TIMES
