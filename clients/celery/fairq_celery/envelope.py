"""Converts a Celery message to a task of fairq, and back.

The task's name is headers.task.  The payload has its arguments: named ones as an object,
others as an array.  If a call has both, headers.celery.kwargs has the named ones.
headers.celery has the rest of the message.
"""

import base64
import json

from kombu.serialization import loads
from kombu.utils.json import dumps

# The id that a worker generates for a task without one.
MADE_UP_ID = "fairq-{}"
# The keys of the data about a task in the header "fairq" of a message.  Celery 5.3
# or later publishes a retry with this header.
KNOWN = ("id", "attempt", "group", "queue", "attempts_left", "priority", "progress",
         "batch")
# These keys at the top of the headers belong to fairq, not to Celery.
COMMON = ("traceparent", "tracestate")
MESSAGE = ("content-type", "content-encoding")


class Unfit(Exception):
    """The task is not a call of a Celery task."""


def own_options(headers):
    """The options for fairq.enqueue in the header "fairq" of a publisher."""
    own = headers.get("fairq")
    if not isinstance(own, dict):
        return {}
    if all(name in own for name in KNOWN):
        return {name: value for name, value in own.items() if name not in KNOWN}
    return own


def json_body(message):
    """The (args, kwargs, embed) of a message; None: jsonb cannot hold them."""
    body = message["body"]
    if (message.get("content-type") != "application/json" or not isinstance(body, str)
            or "compression" in message["headers"] or "task" not in message["headers"]):
        return None
    try:
        args, kwargs, embed = json.loads(body, parse_constant=refuse)
        # jsonb has neither zero characters nor lone surrogates
        if "\\u0000" in body:
            return None
        json.dumps([args, kwargs, embed], ensure_ascii=False).encode()
    except (ValueError, TypeError, RecursionError):
        return None
    if isinstance(args, list) and isinstance(kwargs, dict) and isinstance(embed, dict):
        return args, kwargs, embed
    return None


def refuse(constant):
    raise ValueError(constant)


def arguments(message):
    """The args and kwargs of any message from this transport, to choose its
    group."""
    body = json_body(message)
    if body is None:
        try:
            body = loads(message["body"], message.get("content-type"),
                         message.get("content-encoding"),
                         accept=[message.get("content-type")])
        except Exception:       # compressed, or not a task
            return [], {}
    if isinstance(body, dict):      # protocol 1
        return body.get("args") or [], body.get("kwargs") or {}
    try:
        return body[0], body[1]
    except (TypeError, LookupError):
        return [], {}


def to_task(message):
    """The payload and the headers of a message, as JSON texts."""
    ours = {key: value for key, value in message["headers"].items()
            if value is not None and key not in ("eta", "fairq")}
    headers = {key: ours.pop(key) for key in COMMON if key in ours}
    name = ours.pop("task", None)
    if name is not None:
        headers["task"] = name
    properties = {key: value for key, value in message["properties"].items()
                  if key not in ("delivery_info", "delivery_tag", "priority", "body_encoding")
                  and value not in (None, "")}
    celery = {"headers": ours, "properties": properties}
    body = json_body(message)
    if body is not None:
        args, kwargs, embed = body
        payload = args or kwargs
        if args and kwargs:
            celery["kwargs"] = kwargs
        embed = {key: value for key, value in embed.items() if value is not None}
        if embed:
            celery["embed"] = embed
        # the worker generates them again
        ours.pop("argsrepr", None)
        ours.pop("kwargsrepr", None)
    else:
        payload = {}
        raw = message["body"]
        for key in ("argsrepr", "kwargsrepr"):
            if isinstance(ours.get(key), str):
                ours[key] = ours[key].replace("\0", "\\x00").encode(
                    errors="backslashreplace").decode()
        celery["body"] = base64.b64encode(
            raw.encode() if isinstance(raw, str) else raw).decode()
        celery.update({key: message[key] for key in MESSAGE if message.get(key)})
    headers["celery"] = celery
    return dumps(payload or {}), dumps(headers)


def decoded(text, what):
    """Reads a JSON text of the server, which accepts numbers and depths that Python refuses."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Unfit(f"the {what} cannot be decoded: {type(error).__name__}: {error}") from error


def to_message(claim, default_task=None):
    """The message of a claim; raises Unfit if the claim is not a message."""
    if claim.unread is not None:
        raise Unfit(f"the payload or the headers cannot be read: {claim.unread}")
    headers = decoded(claim.headers, "headers") if claim.headers is not None else {}
    if not isinstance(headers, dict):
        raise Unfit("the headers are not an object")
    progress = decoded(claim.progress, "progress") if claim.progress is not None else None
    celery = headers.get("celery")
    if not isinstance(celery, dict):
        celery = {}
    name = headers.get("task") or default_task
    if name is not None and not isinstance(name, str):
        raise Unfit("the header \"task\" is not text")
    own = celery.get("headers")
    own = dict(own) if isinstance(own, dict) else {}
    properties = celery.get("properties")
    properties = dict(properties) if isinstance(properties, dict) else {}
    message = {"content-type": "application/json", "content-encoding": "utf-8"}
    if "body" in celery:
        try:
            message["body"] = base64.b64decode(celery["body"], validate=True)
        except (TypeError, ValueError):
            raise Unfit("headers.celery.body is not base64") from None
        message.update({key: celery[key] for key in MESSAGE if key in celery})
    else:
        message["body"] = made_body(claim, celery, name)
    if name is not None:
        own["task"] = name
    made_up = MADE_UP_ID.format(claim.id)
    own.setdefault("id", properties.get("correlation_id") or made_up)
    own.setdefault("root_id", own["id"])
    own.setdefault("lang", "py")
    for key in ("parent_id", "group", "expires", "shadow"):
        own.setdefault(key, None)
    own.setdefault("retries", 0)
    own.setdefault("timelimit", [None, None])
    if "body" not in celery:
        args, kwargs, _ = json.loads(message["body"])
        own.setdefault("argsrepr", repr(args)[:1024])
        own.setdefault("kwargsrepr", repr(kwargs)[:1024])
    for key, value in headers.items():
        if key not in ("task", "celery"):
            own.setdefault(key, value)
    own["eta"] = None           # the eta has passed, since fairq has waited for it
    own["fairq"] = dict(zip(KNOWN, (claim.id, claim.attempt, claim.group_key, claim.queue,
                                    claim.attempts_left, claim.priority, progress,
                                    claim.batch)))
    properties.setdefault("correlation_id", own["id"])
    properties.setdefault("reply_to", "")
    properties.update(
        delivery_tag=claim.tag, priority=claim.priority, body_encoding=None,
        delivery_info={"exchange": "", "routing_key": claim.queue,
                       "priority": claim.priority, "redelivered": claim.attempt > 1})
    return {**message, "headers": own, "properties": properties}


def made_body(claim, celery, name):
    if name is None:
        raise Unfit("the task has no name: neither its header \"task\" nor the transport"
                    " option default_task says which Celery task is to do it")
    payload, kwargs = decoded(claim.payload, "payload"), celery.get("kwargs")
    kwargs = kwargs if isinstance(kwargs, dict) else {}
    embed = celery.get("embed")
    embed = embed if isinstance(embed, dict) else {}
    if isinstance(payload, list):
        args = payload
    elif isinstance(payload, dict):
        args, kwargs = [], {**payload, **kwargs}
    else:
        raise Unfit(f"the payload of task {name} must be an object, of named arguments,"
                    " or an array, of positional ones")
    return json.dumps([args, kwargs, {"callbacks": None, "errbacks": None, "chain": None,
                                      "chord": None, **embed}])
