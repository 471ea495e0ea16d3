"""A fixed window of requests a key, kept by each API process for itself; told in the RateLimit headers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from service.api.problems import Problem

REQUESTS = 6000
WINDOW_SECONDS = 60
SCOPE_KEY = "godwit.rate_limit"


class RateLimiter:
    """`check` counts a request. Errors: Problem 429."""

    def __init__(
        self, limit: int = REQUESTS, window_seconds: int = WINDOW_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit, self._window_seconds, self._clock = limit, window_seconds, clock
        self._lock = threading.Lock()
        self._window = -1
        self._counts: dict[str, int] = {}

    def check(self, key_id: str, scope: Any) -> None:
        now = self._clock()
        window = int(now // self._window_seconds)
        with self._lock:
            if window != self._window:
                self._window, self._counts = window, {}
            count = self._counts[key_id] = self._counts.get(key_id, 0) + 1
        seconds_left = max(1, int((window + 1) * self._window_seconds - now))
        headers = self._headers(max(0, self._limit - count), seconds_left)
        scope[SCOPE_KEY] = headers
        if count > self._limit:
            raise Problem(
                429,
                "rate_limited",
                f"More than {self._limit} requests in {self._window_seconds} s.",
                remedy="Wait for the seconds in Retry-After.",
                headers={"Retry-After": str(seconds_left)},
            )

    def _headers(self, remaining: int, seconds_left: int) -> dict[str, str]:
        return {
            "ratelimit-policy": f'"key";q={self._limit};w={self._window_seconds}',
            "ratelimit": f'"key";r={remaining};t={seconds_left}',
        }
