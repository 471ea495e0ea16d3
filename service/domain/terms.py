"""The times that decisions use: bounds promised to users and periods of looking."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

GAP = timedelta(seconds=10)
"""The API and the sweep say every few seconds that they are there; one that did not for so long was away."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Terms:
    """See `service.settings.Settings` for what each means."""

    grant: timedelta = timedelta(minutes=15)
    drain: timedelta = timedelta(minutes=2)
    teardown: timedelta = timedelta(minutes=5)
    startup: timedelta = timedelta(minutes=10)
    margin: timedelta = timedelta(seconds=30)
    silence: timedelta = timedelta(minutes=2)
    poll: timedelta = timedelta(seconds=5)
    quote_stale: timedelta = timedelta(hours=24)
    min_grant_share: float = 0.25
    """The smallest grant worth giving, as a share of a full one. Less money than that is a refusal."""
    settle: timedelta = timedelta(seconds=3)
    """How long a gang's failed rank is held against the provider's word on its peers before it is judged."""
    visibility: timedelta = timedelta(minutes=1)
    """How late a provider may show a cluster that it has begun to make."""
    backoff: timedelta = timedelta(seconds=5)
    backoff_limit: timedelta = timedelta(minutes=10)
    unavailable: timedelta = timedelta(minutes=2)
    """How long an offer that had no capacity is passed over."""

    @property
    def tail(self) -> timedelta:
        """What an attempt may still run, and so holds money for, after its grant ends."""
        return self.drain + self.teardown

    @property
    def fence_off(self) -> timedelta:
        """After a grant's end, when a node that nobody can reach has surely powered off."""
        return self.drain + self.margin
