"""The progress of a task, which later attempts of it read."""

import json

from .group import running_task


def set_progress(task, value):
    """Sets the progress, a JSON value, for fairq.tasks and later attempts.

    Keeps the results of steps, which are in its item "fairq".  Returns False if
    the task was cancelled or its lease is lost, so that further work is wasted.
    """
    known = running()
    steps = steps_of(known)
    if steps:
        value = {**items(value), "fairq": {"steps": steps}}
    return save(task, known, value)


def step(task, name, function, *args, **kwargs):
    """Calls the function and saves its result as JSON.

    Returns the result as decoded from that JSON.  If an earlier attempt has
    saved a result of that name, returns that result without a call of the
    function.  If the task was cancelled, or its lease is lost, the task ends
    here.
    """
    known = running()
    steps = steps_of(known)
    if name not in steps:
        progress = items(known.get("progress"))
        steps = {**steps, name: json.loads(json.dumps(function(*args, **kwargs)))}
        if not save(task, known, {**progress, "fairq": {"steps": steps}}):
            from celery.exceptions import Ignore    # only tasks of Celery come here
            raise Ignore("the task was cancelled, or its lease is lost")
    return steps[name]


def running():
    known, _ = running_task()
    if not known:
        raise RuntimeError("no task of fairq is running here")
    return known


def items(progress):
    if progress is not None and not isinstance(progress, dict):
        raise TypeError("the progress of a task with steps must be a dict")
    return progress or {}


def steps_of(known):
    progress = known.get("progress")
    ours = progress.get("fairq") if isinstance(progress, dict) else None
    return ours.get("steps") or {} if isinstance(ours, dict) else {}


def save(task, known, value):
    text = json.dumps(value)
    with task.app.pool.acquire(block=True) as connection:
        held = connection.default_channel.connection.ask(
            "SELECT fairq.set_progress(%s, %s, %s::jsonb)", known["id"], known["attempt"],
            text)[0][0]
    if held:
        known["progress"] = json.loads(text)
    return held
