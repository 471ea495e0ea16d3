"""The process's own figures for Prometheus; each application has its own registry."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Gauge, Histogram

from service.domain.states import JobStatus

_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15)


class Figures:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.latency = Histogram(
            "godwit_http_request_seconds",
            "Time to answer a request.",
            ("method", "route", "status"),
            registry=self.registry,
            buckets=_BUCKETS,
        )
        self._jobs = Gauge("godwit_jobs", "Jobs by status.", ("status",), registry=self.registry)

    def set_job_counts(self, counts: dict[str, int]) -> None:
        for status in JobStatus:
            self._jobs.labels(status=status.value).set(counts.get(status.value, 0))
