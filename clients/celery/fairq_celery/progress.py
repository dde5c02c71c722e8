"""The progress of a task."""

import json

from .group import running_task


def set_progress(task, value):
    """Sets the column progress of fairq.tasks to a JSON value.

    False: the task was cancelled, or its lease is lost, and further work is wasted.
    """
    known, _ = running_task()
    if not known:
        raise RuntimeError("no task of fairq is running here")
    with task.app.pool.acquire(block=True) as connection:
        return connection.default_channel.connection.ask(
            "SELECT fairq.set_progress(%s, %s, %s::jsonb)", known["id"], known["attempt"],
            json.dumps(value))[0][0]
