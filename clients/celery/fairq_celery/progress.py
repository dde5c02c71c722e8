"""What a task may tell fairq while it runs."""

import json

from .group import running_task


def set_progress(task, value):
    """Shows a JSON value as progress in fairq.tasks.

    False: the task was cancelled, or its lease is lost, and what it does is in vain.
    """
    known, _ = running_task()
    if not known:
        raise RuntimeError("no task of fairq is running here")
    with task.app.pool.acquire(block=True) as connection:
        return connection.default_channel.connection.ask(
            "SELECT fairq.set_progress(%s, %s, %s::jsonb)", known["id"], known["attempt"],
            json.dumps(value))[0][0]
