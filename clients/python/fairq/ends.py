"""How attempts end: the call that ends one, its log line, and the text of its error."""

from __future__ import annotations

import logging
import os
import traceback
from typing import Any, Dict, List, NamedTuple, Optional, Set, Tuple

from .task import Crashed, Dead, NoHandler, Retry, Stopped, Task, TimedOut, Undecodable

log = logging.getLogger("fairq")

# exceptions that are reported by their text alone
PLAIN = Crashed, Dead, NoHandler, Retry, Stopped, TimedOut, Undecodable

PACKAGE = os.path.dirname(os.path.abspath(__file__))

# limits of the stack that is kept with an error
MOST_FRAMES, MOST_CHARACTERS = 20, 6000

STOPPED = "stopped: it was cancelled, its lease was lost, or it has run for longer than its queue allows"


class End(NamedTuple):
    """The function of fairq that ends an attempt, its arguments, and the
    reason for the call."""

    function: str
    args: Tuple[Any, ...] = ()
    named: Dict[str, Any] = {}
    error: Optional[BaseException] = None

    def accepted(self, task: Task) -> str:
        """The outcome, after the server has accepted the end."""
        if self.function == "complete":
            return "completed"
        if self.function == "release":
            return "released"
        return "failed" if self.named.get("dead") or not task.attempts_left else "retried"


def failure(error: BaseException) -> End:
    if isinstance(error, Retry):
        return End("fail", (text_of(error),), {"retry_in": error.delay}, error)
    return End("fail", (text_with_stack(error),), {"dead": isinstance(error, Dead)}, error)


def sent_texts(error: BaseException) -> Optional[Tuple[str, str]]:
    """The texts that a process has sent with the error; see rebuilt()."""
    # the attributes of an error may be computed, and return anything
    texts: Optional[Tuple[str, str]] = vars(error).get("fairq_texts")
    return texts


def parts_of(error: BaseException) -> List[BaseException]:
    """The errors of an ExceptionGroup."""
    try:
        return [part for part in getattr(error, "exceptions", ()) if isinstance(part, BaseException)]
    except Exception:       # the attribute is not that of an ExceptionGroup
        return []


LEVELS = {"completed": logging.INFO, "released": logging.INFO, "lost": logging.INFO,
          "retried": logging.WARNING, "failed": logging.ERROR}


def log_end(task: Task, outcome: str, error: Optional[BaseException]) -> None:
    """Logs one line, whose parts are also attributes of the log record."""
    took = task.took().total_seconds()
    extra = {"task_id": task.id, "task_name": task.name, "queue": task.queue,
             "group_key": task.group_key, "attempt": task.attempt, "duration": took,
             "outcome": outcome}
    text = "" if error is None or outcome in ("released", "lost") else f": {text_of(error)}"
    stack = error if text and not isinstance(error, PLAIN) else None
    if stack is not None and sent_texts(stack):
        text, stack = f": {text_with_stack(stack)}", None
    log.log(LEVELS[outcome], "task %s (%s), queue %s, group %s, attempt %s: %s after %.3f s%s",
            task.id, task.name, task.queue, task.group_key, task.attempt, outcome, took, text,
            exc_info=stack, extra=extra)


# ---- texts

def text_of(error: BaseException) -> str:
    """The messages of the error and its causes, without zero bytes."""
    sent = sent_texts(error)
    if sent:
        return sent[0]
    texts: List[str] = []
    seen: Set[int] = set()
    what = ""
    cause: Optional[BaseException] = error
    while cause is not None and id(cause) not in seen and len(seen) < 10:
        seen.add(id(cause))
        texts.append(what + own_text(cause))
        for part in parts_of(cause):
            if id(part) not in seen and len(seen) < 10:
                seen.add(id(part))
                texts[-1] += ", with " + own_text(part)
        what = "caused by "
        if cause.__cause__ is None and not cause.__suppress_context__:
            what, cause = "while handling ", cause.__context__
        else:
            cause = cause.__cause__
    return storable("; ".join(texts))


def storable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def own_text(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception as raised:
        text = f"(str() of this error raised {type(raised).__name__})"
    if isinstance(error, PLAIN):
        return text
    return f"{type(error).__name__}: {text}"


def text_with_stack(error: BaseException) -> str:
    """The messages, and the stack of the handler's code on further lines."""
    sent = sent_texts(error)
    if sent:
        return sent[1]
    text = text_of(error)
    if isinstance(error, PLAIN) or error.__traceback__ is None:
        return text
    try:
        raised = traceback.TracebackException.from_exception(error, limit=-MOST_FRAMES)
        stack = "".join(frames_of(raised))
    except Exception:           # the exception's methods raise, or it is nested too deeply
        return text
    return f"{text}\n{storable(stack[-MOST_CHARACTERS:])}".rstrip() if stack else text


def frames_of(raised: traceback.TracebackException) -> List[str]:
    """The lines of the stacks; those of the first cause come first."""
    earlier = raised.__cause__ or (None if raised.__suppress_context__ else raised.__context__)
    own = [frame for frame in raised.stack if os.path.dirname(frame.filename) != PACKAGE]
    lines = traceback.StackSummary.from_list(own).format()
    if not lines:
        return frames_of(earlier) if earlier else []
    return [*(frames_of(earlier) if earlier else []), f"{raised.exc_type.__name__} in\n", *lines]
