"""A job until it ends: redrawn in place on a terminal, a line at each change elsewhere."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from service.cli.output import stdout
from service.cli.views.events import event_line
from service.cli.views.formats import clock, hourly, usd
from service.cli.views.job_view import render_job, step_text
from service.client.api import Godwit
from service.client.errors import ServiceAway
from service.client.models import Event, Job

POLL_SECONDS = 1.0
LINE_EVERY_SECONDS = 5.0
SHOWN_EVENTS = 8
LOSS = "loss/train"
_MAX_AWAY_SECONDS = 120.0


class JobFeed:
    """What the API knows of one job, polled; a service that is away for a while is waited for."""

    def __init__(self, client: Godwit, job_id: str) -> None:
        self._client, self._job_id = client, job_id
        self._seen = 0
        self._away_since: float | None = None
        self.job = client.job(job_id)
        self.events: list[Event] = []
        self.losses: list[float] = []

    def poll(self) -> list[Event]:
        """The events that are new. Errors: ServiceAway once it was away for two minutes."""
        try:
            self.job = self._client.job(self._job_id)
            self.events = self._client.events(self._job_id)
            points = self._client.metrics(self._job_id, [LOSS], max_points=200)
        except ServiceAway:
            self._away_since = self._away_since or time.monotonic()
            if time.monotonic() - self._away_since > _MAX_AWAY_SECONDS:
                raise
            return []
        self._away_since = None
        self.losses = [value for point in points if (value := point.values.get(LOSS)) is not None]
        new = self.events[self._seen :]
        self._seen = len(self.events)
        return new

    def refresh_job(self) -> None:
        self.job = self._client.job(self._job_id)

    @property
    def is_away(self) -> bool:
        return self._away_since is not None


def watch_job(client: Godwit, job_id: str) -> Job:
    """Returns the job when it has ended."""
    feed = JobFeed(client, job_id)
    console = stdout()
    return _watch_live(feed, console) if console.is_terminal else _watch_plain(feed, console)


def render_feed(feed: JobFeed, now: datetime) -> Group:
    parts = [render_job(feed.job, now, losses=feed.losses), Text()]
    parts += [event_line(event) for event in feed.events[-SHOWN_EVENTS:]]
    if feed.is_away:
        parts.append(Text("the service does not answer; waiting for it …", style="yellow"))
    return Group(*parts)


def progress_line(job: Job) -> Text:
    """One line for logs."""
    loss = f" loss {job.loss:.4f}" if job.loss is not None else ""
    speed = f" {job.tokens_per_second:,.0f} tokens/s" if job.tokens_per_second else ""
    place = f" on {job.attempt.offer_id} at {hourly(job.attempt.hourly_usd)}" if job.attempt else ""
    cap = f" of {usd(job.budget_usd)}" if job.budget_usd else ""
    money = f" spent {usd(job.spent_usd)}{cap}"
    return Text(f"{clock(datetime.now(UTC))} {job.status} step {step_text(job)}{loss}{speed}{place}{money}")


def _watch_live(feed: JobFeed, console: Console) -> Job:
    with Live(console=console, refresh_per_second=4, transient=False) as live:
        while True:
            feed.poll()
            live.update(render_feed(feed, datetime.now(UTC)))
            if feed.job.is_over:
                return feed.job
            time.sleep(POLL_SECONDS)


def _watch_plain(feed: JobFeed, console: Console) -> Job:
    said_at = 0.0
    while True:
        for event in feed.poll():
            console.print(event_line(event))
        if feed.job.is_over or time.monotonic() - said_at >= LINE_EVERY_SECONDS:
            console.print(progress_line(feed.job))
            said_at = time.monotonic()
        if feed.job.is_over:
            return feed.job
        time.sleep(POLL_SECONDS)
