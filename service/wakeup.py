"""Wakes the workers for a job: one message after the commit, which may be lost at no cost but latency."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import structlog
from celery import Celery

RECONCILE_TASK = "godwit.reconcile"
TIMEOUT_SECONDS = 0.25
PAUSE_SECONDS = 5.0
_log = structlog.get_logger("godwit.wakeup")


def make_producer(broker_url: str) -> Celery:
    """A Celery application that only sends, without retries, and gives up soon."""
    producer = Celery("godwit", broker=broker_url, set_as_current=False)
    producer.conf.update(
        broker_connection_retry=False,
        broker_connection_max_retries=0,
        broker_connection_timeout=TIMEOUT_SECONDS,
        broker_transport_options={
            "socket_timeout": TIMEOUT_SECONDS,
            "socket_connect_timeout": TIMEOUT_SECONDS,
            "retry_on_timeout": False,
            "max_retries": 0,
        },
        task_publish_retry=False,
        task_ignore_result=True,
    )
    return producer


class Waker:
    """Callable with a job's id; never raises. After a failure it stays quiet a while: a dead broker slows one request."""

    def __init__(self, broker_url: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._broker_url, self._clock = broker_url, clock
        self._lock = threading.Lock()
        self._producer: Celery | None = None
        self._quiet_until = 0.0

    def __call__(self, job_id: str) -> None:
        with self._lock:
            if self._clock() < self._quiet_until:
                return
            producer = self._producer = self._producer or make_producer(self._broker_url)
        try:
            producer.send_task(RECONCILE_TASK, [job_id], retry=False, ignore_result=True)
        except Exception as error:
            with self._lock:
                self._quiet_until = self._clock() + PAUSE_SECONDS
            _log.warning("wake_up_lost", error_type=type(error).__name__)
