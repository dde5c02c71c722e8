"""The group of a message that is published."""

import logging

from .envelope import arguments, own_options

log = logging.getLogger("fairq.celery")

# names of tasks that were published without a group
without_group = set()


def running_task():
    """The task of fairq that calls this function, and Celery's request for it.

    Returns ({}, None) if no task calls this function.
    """
    try:
        from celery import current_task
    except ImportError:
        return {}, None
    request = current_task and current_task.request
    known = request and request.get("fairq")
    return (known, request) if isinstance(known, dict) else ({}, None)


def pick(rule, message):
    """The group that a rule of the option "group" selects; None: no group."""
    if callable(rule):
        args, kwargs = arguments(message)
        return rule(message["headers"].get("task"), args, kwargs, message["headers"])
    kind, _, name = rule.partition(":")
    if kind == "header":
        return message["headers"].get(name)
    if kind == "arg":
        args, kwargs = arguments(message)
        if name.isdigit():
            return args[int(name)] if int(name) < len(args) else None
        return kwargs.get(name)
    raise ValueError(f"the transport option group must be a function, 'header:NAME',"
                     f" 'arg:NAME' or 'arg:POSITION', not {rule!r}")


def group_of(message, options):
    group = chosen(message, options)
    # default_group = "" allows the empty group
    if group == "" and options.get("default_group") != "":
        raise ValueError(f"the group of task {message['headers'].get('task')} is empty: set one,"
                         " or allow it with the transport option default_group = \"\"")
    return group


def chosen(message, options):
    headers = message["headers"]
    own = own_options(headers).get("group")
    if own is not None:
        return str(own)
    known, request = running_task()
    if known and (request.id, request.task) == (headers.get("id"), headers.get("task")):
        return known.get("group")       # the task retries itself
    rules = options.get("group") or ()
    for rule in [rules] if isinstance(rules, str) or callable(rules) else rules:
        group = pick(rule, message)
        if group is not None:
            return str(group)
    for group in known.get("group"), options.get("default_group"):
        if group is not None:
            return str(group)
    name = str(headers.get("task") or "default")
    if name not in without_group:
        without_group.add(name)
        log.warning("task %s has no group, so all of these tasks share one, and tenants do not"
                    " take turns: set the transport option group or default_group", name)
    return name
