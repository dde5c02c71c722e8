"""One step of a history: makes its call, if that is possible at that point.

A step is (session, name, ...).  The task of a step is a number, which selects
one of the tasks for which the call is possible when the step runs.
"""

from state import FAILED

SECOND = 1000000
# the time that workers report in time-fair queues, or None
TOOK = (None, 10 * SECOND, 10 * SECOND, 20 * SECOND, 60 * SECOND, 300 * SECOND)


def perform(driver, s, name, *rest):
    model = driver.model
    inside = s in model.undo
    depth = len(model.savepoints[s]) if inside else 0
    if name == "enqueue":
        driver.enqueue(s, *rest)
    elif name == "batch":
        driver.batch(s, *rest)
    elif name in ("pop", "take"):
        tasks, per_group, lease = rest
        driver.pop(s, tasks, per_group, name == "take", lease)
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
    elif name in ("create", "join", "close", "cancel_batch"):
        _batch(driver, s, name, *rest)
    elif name == "purge" and rest[0] in {None, *model.groups}:
        if not model.batches_are_busy(s):
            driver.purge(s, *rest)      # other groups may not exist yet
    elif name == "weight" and not inside and model.may_set(s):
        driver.set_weight(s, *rest)
    elif name == "shares" and not inside and model.may_set(s):
        driver.set_shares(s, *rest)
    elif name in ("limit", "max_running", "pause", "resume", "max_attempts",
                  "retention"):
        _set(driver, s, name, *rest)
    elif name == "reset":
        driver.reset_hints(s)
    elif name == "restart":
        driver.restart(*rest)
    elif name == "wait" and not inside:
        driver.wait(s)
    elif name == "tick":
        driver.tick()
    elif name in ("expire", "maintain", "redrive"):
        _tend(driver, s, name, *rest)
    elif name == "cancel":
        _cancel(driver, s, *rest)
    elif name == "look" and driver.sees_all(s):
        _look(driver, s, *rest)
    elif name == "stale":
        _stale(driver, s, *rest)
    elif name in ("complete", "complete_batch", "release", "fail", "extend"):
        _work(driver, s, name, *rest)


def _set(driver, s, name, *rest):
    if not driver.may_set(s):
        return
    if name == "limit":
        driver.set_limit(s, *rest)
    elif name == "max_running":
        driver.set_max_running(s, *rest)
    elif name == "max_attempts":
        driver.set_max_attempts(s, *rest)
    elif name == "retention":
        driver.set_retain(s, *rest)
    elif name == "pause":
        driver.set_paused(s, *rest, True)
    else:
        settings = driver.model.settings_of(s)
        paused = sorted(settings.paused_groups)
        if settings.paused:
            paused.append(None)
        if paused:
            driver.set_paused(s, paused[rest[0] % len(paused)], False)


def _work(driver, s, name, pick, *rest):
    model = driver.model
    held = model.held(s)
    if not held:
        return
    took = None
    if model.settings.fair_by == "time":
        took = TOOK[pick // len(held) % len(TOOK)]
    pick %= len(held)
    task = held[pick]
    attempt = task.attempt if pick % 2 else None
    if name == "complete":
        driver.complete(s, task.id, attempt,
                        result={"of": task.id} if pick % 3 else None,
                        took=took)
    elif name == "complete_batch":
        tasks = held[pick:pick + rest[0]]
        driver.complete_batch(s, tasks, took and [took] * len(tasks))
    elif name == "release":
        driver.release(s, task.id, attempt, *rest)
    elif name == "fail":
        ahead, dead = rest
        driver.fail(s, task.id, attempt, f"error of {task.id}, {pick}", ahead,
                    dead, took=took)
    else:
        driver.extend(s, task.id, attempt, *rest)


def _stale(driver, s, pick):
    """Makes a call on another attempt, or on a finished task, which has no
    effect.  All such calls except complete lock the row, so open transactions
    do not make them.
    """
    model = driver.model
    calls = (lambda *task: driver.complete(s, *task, valid=False),
             lambda *task: driver.fail(s, *task, error="stale", valid=False),
             lambda *task: driver.release(s, *task, valid=False),
             lambda *task: driver.extend(s, *task, valid=False))
    call = calls[0 if s in model.undo else pick % len(calls)]
    held = model.held(s)
    done = [id for id in model.finished_ids() if id not in model.tasks
            or model.tasks[id].owner in (None, s)]
    if held and (pick % 3 or not done):
        task = held[pick % len(held)]
        call(task.id, task.attempt + (1 if pick % 5 else -1))
    elif done:
        call(done[pick % len(done)], None)


def _batch(driver, s, name, pick, *rest):
    """Chooses a batch, mostly one that accepts tasks."""
    model = driver.model
    batches = model.open_batches(s)
    if name in ("close", "cancel_batch"):
        if pick % 3 == 0:
            batches = model.blocked(s)
        batches = [task for task in batches if model.may_change(s, task)]
    batch = batches[pick % len(batches)] if batches else None
    if name == "create":
        group, priority, on_success, nested = rest
        driver.create_batch(s, group, priority, on_success,
                            batch.id if batch and nested else None)
    elif batch is None:
        return
    elif name == "join":
        driver.enqueue(s, *rest, batch=batch.id)
    elif name == "close":
        driver.close_batch(s, batch)
    else:
        driver.cancel_batch(s, batch)


def _cancel(driver, s, pick):
    """Cancels a task in any state, mostly an unfinished task."""
    model = driver.model
    tasks = [task for task in model.tasks.values()
             if model.may_change(s, task)]
    unfinished = [task for task in tasks if task.unfinished()]
    if pick % 8 and unfinished:
        driver.cancel(s, unfinished[pick % len(unfinished)].id)
    elif tasks:
        driver.cancel(s, tasks[pick % len(tasks)].id)


def _look(driver, s, pick):
    model = driver.model
    ids = sorted(id for id in model.ids if id not in model.tasks
                 or model.tasks[id].owner in (None, s))
    if ids:
        driver.look(s, ids[pick % len(ids)])


def _tend(driver, s, name, *rest):
    """A call on many tasks at once."""
    model = driver.model
    if name == "expire":
        driver.expire(s, *rest)
    elif name == "maintain" and not model.undo:
        driver.maintain(s)          # this call may wait for other transactions
    elif name == "redrive":
        failed = [task for task in model.tasks.values()
                  if task.outcome == FAILED]
        known = model.groups | {task.group for task in failed} | {None}
        # a task whose key is not free stays in the archive, and is locked
        if model.batches_are_busy(s):
            return
        if rest[0] in known and (s not in model.undo or not any(
                task.key for task in failed)):
            driver.redrive(s, *rest)
