"""The Celery application: tasks carry an id and call one function. The database is the truth; messages only hurry it.

Redis-style brokers lose or repeat messages around a kill; the sweep finds every due row again, and claims make repeats
harmless. `unacked_restore_*` bring a killed worker's messages back in seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from threading import Lock

from celery import Celery
from celery.schedules import schedule
from celery.signals import setup_logging
from kombu.entity import Exchange, Queue

from service.context import Context, make_context
from service.log_setup import set_up_logs
from service.settings import Settings
from service.wakeup import RECONCILE_TASK, Waker
from service.webhooks.sender import WebhookSender
from worker.billing.accrual import accrue_all
from worker.billing.guard import guard
from worker.delivery.deliver import deliver_due, make_sender
from worker.delivery.relay import relay_events
from worker.pricing.refresh import refresh_quotes
from worker.provision.factory import make_provisioner
from worker.provision.protocol import ProviderUnavailable, Provisioner
from worker.reconcile.tick import reconcile_job
from worker.sweep.drills import act_drills
from worker.sweep.due import sweep_due_jobs
from worker.sweep.orphans import sweep_orphans
from worker.sweep.purge import purge

_VISIBILITY_SECONDS = 1800
_TIME_LIMIT_SECONDS = 1200

QUEUE, DELIVERY_QUEUE = "godwit", "godwit-delivery"
"""Slow receivers hold a slot for up to half a minute: where there are many, give deliveries workers of their own (-Q)."""

settings = Settings()
app = Celery("godwit", broker=settings.broker)
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    task_ignore_result=True,
    task_time_limit=_TIME_LIMIT_SECONDS,
    task_default_queue=QUEUE,
    task_queues=[Queue(name, Exchange(name), routing_key=name) for name in (QUEUE, DELIVERY_QUEUE)],
    task_routes={"godwit.deliver": {"queue": DELIVERY_QUEUE}},
    task_serializer="json",
    accept_content=["json"],
    broker_connection_retry_on_startup=True,
    broker_transport_options={
        "visibility_timeout": _VISIBILITY_SECONDS,
        "unacked_restore_interval": 5,
        "unacked_restore_throttle": 1,
    },
    worker_enable_remote_control=False,
    worker_send_task_events=False,
    timezone="UTC",
    enable_utc=True,
)


@setup_logging.connect
def _set_up_logs(**_: object) -> None:
    set_up_logs(settings.log_level)


@lru_cache(maxsize=1)
def get_context() -> Context:
    """One a process, made on first use: after a fork, never before."""
    return make_context(settings, wake=Waker(settings.broker))


@lru_cache(maxsize=1)
def get_provisioner() -> Provisioner:
    return make_provisioner(settings)


@lru_cache(maxsize=1)
def get_sender() -> WebhookSender:
    return make_sender(settings)


def _periodic(name: str) -> Callable[[Callable[[], object]], Callable[[], None]]:
    """A task that the beat sends: while one runs in this process, another is dropped, for it would find nothing to do."""

    def register(work: Callable[[], object]) -> Callable[[], None]:
        running = Lock()

        def run() -> None:
            if running.acquire(blocking=False):
                try:
                    work()
                finally:
                    running.release()

        app.task(name=name)(run)
        return run

    return register


@app.task(name=RECONCILE_TASK)
def reconcile(job_id: str) -> None:
    reconcile_job(get_context(), get_provisioner(), job_id)


def _send(job_id: str) -> None:
    app.send_task(RECONCILE_TASK, [job_id])


@_periodic("godwit.sweep")
def sweep() -> None:
    sweep_due_jobs(get_context(), _send)
    act_drills(get_context(), get_provisioner())


@_periodic("godwit.accrue")
def accrue() -> None:
    accrue_all(get_context())


@_periodic("godwit.guard")
def guard_money() -> None:
    for job_id in guard(get_context()):
        _send(job_id)


@_periodic("godwit.relay")
def relay() -> None:
    relay_events(get_context())


@_periodic("godwit.deliver")
def deliver() -> None:
    deliver_due(get_context(), get_sender())


@_periodic("godwit.refresh_quotes")
def refresh_prices() -> None:
    with suppress(ProviderUnavailable):  # the quotes grow older until a later refresh; stale ones admit nothing
        refresh_quotes(get_context(), get_provisioner())


@_periodic("godwit.orphans")
def reap_orphans() -> None:
    sweep_orphans(get_context(), get_provisioner())


@_periodic("godwit.purge")
def purge_rows() -> None:
    purge(get_context())


def _every(task: str, seconds: float) -> dict[str, object]:
    """An entry that expires before it is due again, so that a backlog does not pile up behind a slow broker."""
    return {"task": task, "schedule": schedule(seconds), "options": {"expires": max(2 * seconds, 5)}}


_SWEEP_SECONDS = settings.sweep.total_seconds()
app.conf.beat_schedule = {
    "sweep": _every("godwit.sweep", _SWEEP_SECONDS),
    "relay": _every("godwit.relay", _SWEEP_SECONDS),
    "deliver": _every("godwit.deliver", _SWEEP_SECONDS),
    "accrue": _every("godwit.accrue", settings.accrue.total_seconds()),
    "guard": _every("godwit.guard", settings.accrue.total_seconds()),
    "refresh_quotes": _every("godwit.refresh_quotes", settings.refresh_quotes.total_seconds()),
    "orphans": _every("godwit.orphans", 60),
    "purge": _every("godwit.purge", 600),
}
