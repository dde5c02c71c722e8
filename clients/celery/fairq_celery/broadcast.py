"""Messages to all listening processes, by NOTIFY: remote control, its replies,
events.

Nothing stores these messages, so a process that does not listen misses them.
NOTIFY takes up to 7,999 bytes, so a message comes in pieces.
"""

import base64
import json
import uuid

PIECE = 7000
UNFINISHED = 100        # the maximum number of incomplete messages


def channel_of(exchange):
    return f"kombu.{exchange}".encode()[:63].decode(errors="ignore")


def pieces(exchange, routing_key, message):
    body = message["body"]
    if isinstance(body, bytes):
        message = dict(message, body=base64.b64encode(body).decode())
        message["properties"] = dict(message["properties"], body_encoding="base64")
    text = json.dumps([exchange, routing_key, message], default=str)    # ASCII
    parts = [text[at:at + PIECE] for at in range(0, len(text), PIECE)]
    name = uuid.uuid4().hex
    return [f"{name} {i} {len(parts)} {part}" for i, part in enumerate(parts)]


class Pieces:
    """Joins the pieces of messages."""

    def __init__(self):
        self.unfinished = {}

    def add(self, text):
        """Returns (exchange, routing key, message) at the last piece. Returns None
        otherwise, or for a notification from another program.
        """
        try:
            name, i, count, part = text.split(" ", 3)
            parts = self.unfinished.setdefault(name, {})
            parts[int(i)] = part
            if len(parts) < int(count):
                while len(self.unfinished) > UNFINISHED:
                    del self.unfinished[next(iter(self.unfinished))]
                return None
            del self.unfinished[name]
            exchange, routing_key, message = json.loads("".join(
                parts[i] for i in range(len(parts))))
        except (ValueError, KeyError):
            return None
        return exchange, routing_key, message
