"""Metrics of a worker for Prometheus, from hooks.

    fairq.prometheus.serve(worker, 9100)

Metrics of queues come from the database: see deploy/monitoring.
"""

from __future__ import annotations

import time
from typing import Any

import prometheus_client

from .task import Task
from .worker import Worker


def instrument(worker: Worker, registry: Any = prometheus_client.REGISTRY) -> None:
    """Adds the worker's metrics to a registry.  Each worker needs its own registry."""
    labels = "queue", "task", "outcome"
    attempts = prometheus_client.Counter(
        "fairq_worker_attempts_total", "Attempts that have ended: completed, failed, lost", labels,
        registry=registry)
    seconds = prometheus_client.Histogram(
        "fairq_worker_attempt_seconds", "Their durations", labels, registry=registry)
    running = prometheus_client.Gauge(
        "fairq_worker_running", "Tasks that run", registry=registry)
    running.set_function(lambda: worker.status()["running"])
    slots = prometheus_client.Gauge(
        "fairq_worker_concurrency", "Tasks that may run at a time", registry=registry)
    slots.set(worker.concurrency)

    def count(task: Task, outcome: str) -> None:
        values = task.queue, task.name or "", outcome
        attempts.labels(*values).inc()
        seconds.labels(*values).observe(max(0, time.monotonic() - task.begun))

    worker.after(lambda task: count(task, "completed"))
    worker.on_error(lambda task, error: count(task, "failed"))
    worker.on_lost(lambda task: count(task, "lost"))


def serve(worker: Worker, port: int, address: str = "0.0.0.0") -> None:
    """Serves the worker's metrics, and those of the process, at /metrics of the port."""
    instrument(worker)
    prometheus_client.start_http_server(port, address)
