"""Traces and metrics for OpenTelemetry, from hooks.

    fairq.opentelemetry.instrument_producer()
    fairq.opentelemetry.instrument_worker(worker)

Names and attributes are those of OpenTelemetry's conventions for messaging.
"""

from __future__ import annotations

import time
from typing import Any, Dict, List, Optional, Tuple

from opentelemetry import context, metrics, trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from . import __version__
from .producer import before_enqueue
from .task import Task
from .worker import Worker

PROPAGATOR = TraceContextTextMapPropagator()


def attributes(operation: str, kind: str, queue: str, task: Optional[str]) -> Dict[str, Any]:
    named = {} if task is None else {"fairq.task": task}
    return {"messaging.system": "fairq", "messaging.operation.name": operation,
            "messaging.operation.type": kind, "messaging.destination.name": queue, **named}


def instrument_producer(*, tracer_provider: Any = None, meter_provider: Any = None) -> None:
    """Creates a span for each call that enqueues tasks, and adds the span's traceparent to
    the tasks' headers.

    Keeps a traceparent that the caller gives.  Call this function once per
    process.
    """
    tracer = trace.get_tracer("fairq", __version__, tracer_provider)
    sent = metrics.get_meter("fairq", __version__, meter_provider).create_counter(
        "messaging.client.sent.messages", "{message}", "Tasks that were enqueued")

    @before_enqueue
    def send(queue: str, task: Optional[str], headers: List[Dict[str, Any]]) -> None:
        about = attributes("enqueue", "send", queue, task)
        with tracer.start_as_current_span(
                f"enqueue {queue}", kind=trace.SpanKind.PRODUCER,
                attributes={**about, "messaging.batch.message_count": len(headers)}):
            for one in headers:
                if "traceparent" not in one:
                    PROPAGATOR.inject(one)
        sent.add(len(headers), about)


def instrument_worker(worker: Worker, *, tracer_provider: Any = None,
                      meter_provider: Any = None) -> None:
    """Creates a span for each attempt, with a link to the span of the producer."""
    Instrument(worker, tracer_provider, meter_provider)


class Instrument:
    def __init__(self, worker: Worker, tracer_provider: Any, meter_provider: Any):
        self.tracer = trace.get_tracer("fairq", __version__, tracer_provider)
        meter = metrics.get_meter("fairq", __version__, meter_provider)
        self.duration = meter.create_histogram(
            "messaging.process.duration", "s", "Durations of attempts")
        self.consumed = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Attempts that have ended")
        self.spans: Dict[Task, Tuple[trace.Span, Any]] = {}
        worker.before(self.begin)
        worker.after(self.complete)
        worker.on_error(self.fail)
        worker.on_lost(self.lose)

    def begin(self, task: Task) -> None:
        # the headers may contain anything
        carrier = {key: value for key, value in task.headers.items() if isinstance(value, str)} \
            if isinstance(task.headers, dict) else {}
        sender = trace.get_current_span(PROPAGATOR.extract(carrier)).get_span_context()
        span = self.tracer.start_span(
            f"process {task.queue}", context=context.Context(), kind=trace.SpanKind.CONSUMER,
            links=[trace.Link(sender)] if sender.is_valid else [],
            attributes={**attributes("process", "process", task.queue, task.name),
                        "messaging.message.id": str(task.id), "fairq.group": task.group_key,
                        "fairq.attempt": task.attempt})
        self.spans[task] = span, context.attach(trace.set_span_in_context(span))

    def complete(self, task: Task) -> None:
        self.end(task, None)

    def fail(self, task: Task, error: BaseException) -> None:
        if task not in self.spans:      # there is no handler
            self.begin(task)
        span, _ = self.spans[task]
        span.record_exception(error)
        span.set_status(trace.Status(trace.StatusCode.ERROR, str(error)))
        self.end(task, type(error).__name__)

    def lose(self, task: Task) -> None:
        if task in self.spans:          # otherwise the span has ended before
            self.end(task, "lost")

    def end(self, task: Task, error: Optional[str]) -> None:
        span, token = self.spans.pop(task)
        about = attributes("process", "process", task.queue, task.name)
        if error is not None:
            about["error.type"] = error
            span.set_attribute("error.type", error)
        context.detach(token)
        span.end()
        self.duration.record(max(0, time.monotonic() - task.begun), about)
        self.consumed.add(1, about)
