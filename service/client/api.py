"""The public API, one method a verb. Errors: ApiError and ServiceAway from every one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel, ValidationError

from service.client import models as m
from service.client.errors import ApiError
from service.client.sse import follow
from service.client.transport import Params, Transport

T = TypeVar("T", bound=BaseModel)
PAGE_SIZE = 200


class Godwit:
    """One project of one service, as a key's holder."""

    def __init__(self, transport: Transport) -> None:
        self._http = transport

    @property
    def url(self) -> str:
        return self._http.url

    def me(self) -> m.Me:
        return self._get(m.Me, "/v1/me")

    # jobs
    def submit(self, body: Mapping[str, object]) -> m.Job:
        return _read(m.Job, self._http.post("/v1/jobs", body, is_create=True))

    def dry_run(self, body: Mapping[str, object]) -> m.DryRun:
        return _read(m.DryRun, self._http.post("/v1/jobs", body, params={"dry_run": "true"}, is_create=True))

    def upload_bundle(self, content: bytes) -> m.Uploaded:
        return _read(m.Uploaded, self._http.upload("/v1/bundles", content, content_type="application/gzip"))

    def list_jobs(
        self, *, statuses: Sequence[str] = (), name: str | None = None, label: str | None = None, limit: int = PAGE_SIZE
    ) -> list[m.Job]:
        params = {"name": name, "label": label, "status": list(statuses)}
        return list(self._items(m.Job, "/v1/jobs", params, limit))

    def job(self, job_id: str) -> m.Job:
        return self._get(m.Job, _job(job_id))

    def pause(self, job_id: str) -> m.Job:
        return self._wish(job_id, "pause")

    def resume(self, job_id: str) -> m.Job:
        return self._wish(job_id, "resume")

    def cancel(self, job_id: str, *, now: bool) -> m.Job:
        return self._wish(job_id, "cancel", {"now": now})

    def retry(self, job_id: str, patch: Mapping[str, object]) -> m.Job:
        return self._wish(job_id, "retry", {"spec": patch})

    def checkpoint_now(self, job_id: str) -> m.Job:
        return self._wish(job_id, "checkpoint")

    def start_drill(self, job_id: str, *, notice: bool, node_rank: int = 0) -> m.Drill:
        body = {"notice": notice, "node_rank": node_rank}
        return _read(m.Drill, self._http.post(f"{_job(job_id)}/drills", body, is_create=True))

    def drill(self, job_id: str, drill_id: str) -> m.Drill:
        return self._get(m.Drill, f"{_job(job_id)}/drills/{quote(drill_id, safe='')}")

    # what became of a job
    def attempts(self, job_id: str) -> list[m.Attempt]:
        return list(self._items(m.Attempt, f"{_job(job_id)}/attempts"))

    def preemptions(self, job_id: str) -> list[m.Preemption]:
        return list(self._items(m.Preemption, f"{_job(job_id)}/preemptions"))

    def checkpoints(self, job_id: str, *, with_deleted: bool = False) -> list[m.Checkpoint]:
        params = {"include_deleted": with_deleted, "limit": PAGE_SIZE}
        return list(self._items(m.Checkpoint, f"{_job(job_id)}/checkpoints", params))

    def metrics(self, job_id: str, names: Sequence[str], *, max_points: int = 1000) -> list[m.MetricPoint]:
        params = {"names": list(names), "max_points": max_points}
        return list(self._get(m.Metrics, f"{_job(job_id)}/metrics", params).points)

    def events(self, job_id: str | None = None) -> list[m.Event]:
        """Oldest first."""
        path = f"{_job(job_id)}/events" if job_id else "/v1/events"
        return list(self._items(m.Event, path, {"limit": PAGE_SIZE}))

    def follow_events(
        self, job_id: str | None, *, is_over: Callable[[], bool], after: str | None = None
    ) -> Iterator[m.Event]:
        path = f"{_job(job_id)}/events/stream" if job_id else "/v1/events/stream"
        for event in follow(self._http, path, is_over=is_over, last_id=after):
            yield m.Event.model_validate_json(event.data)

    def logs(self, job_id: str, *, tail: int, rank: int | None = None, search: str | None = None) -> list[m.LogLine]:
        params = {"tail": tail, "rank": rank, "search": search}
        return list(self._get(m.Page[m.LogLine], f"{_job(job_id)}/logs", params).items)

    def follow_logs(
        self,
        job_id: str,
        *,
        is_over: Callable[[], bool],
        tail: int,
        rank: int | None = None,
        search: str | None = None,
    ) -> Iterator[m.LogLine]:
        params = {"tail": tail, "rank": rank, "search": search}
        for event in follow(self._http, f"{_job(job_id)}/logs/stream", is_over=is_over, params=params):
            yield m.LogLine.model_validate_json(event.data)

    def outputs(self, job_id: str) -> list[m.Output]:
        return list(self._items(m.Output, f"{_job(job_id)}/outputs"))

    def output_text(self, job_id: str, path: str) -> str:
        return self._http.get(_output(job_id, path)).text

    def download_output(self, job_id: str, path: str, target: Path) -> None:
        """Appears whole or not at all."""
        draft = target.with_name(f".{target.name}.part")
        with self._http.stream(_output(job_id, path)) as response, draft.open("wb") as file:
            for chunk in response.iter_bytes():
                file.write(chunk)
        draft.replace(target)

    # money
    def budgets(self) -> list[m.Budget]:
        return list(self._items(m.Budget, "/v1/budgets"))

    def budget(self, budget_id: str) -> m.Budget:
        return self._get(m.Budget, _budget(budget_id))

    def job_budget(self, job_id: str) -> m.Budget:
        return self._get(m.Budget, f"{_job(job_id)}/budget")

    def create_budget(self, cap_usd: str) -> m.Budget:
        return _read(m.Budget, self._http.post("/v1/budgets", {"cap_usd": cap_usd}, is_create=True))

    def set_cap(self, budget_id: str, cap_usd: str) -> m.Budget:
        """Of the version read just before: a change meanwhile is refused."""
        etag = self._http.get(_budget(budget_id)).headers.get("ETag")
        return _read(m.Budget, self._http.patch(_budget(budget_id), {"cap_usd": cap_usd}, etag=etag))

    def top_up(self, budget_id: str, amount_usd: str) -> m.Budget:
        body = {"amount_usd": amount_usd}
        return _read(m.Budget, self._http.post(f"{_budget(budget_id)}/top-up", body, is_create=True))

    def offers(self, filters: Params) -> list[m.Offer]:
        return list(self._items(m.Offer, "/v1/offers", dict(filters)))

    # webhooks
    def webhooks(self) -> list[m.Webhook]:
        return list(self._items(m.Webhook, "/v1/webhooks"))

    def create_webhook(self, url: str, event_types: Sequence[str]) -> m.NewWebhook:
        body = {"url": url, "event_types": list(event_types)}
        return _read(m.NewWebhook, self._http.post("/v1/webhooks", body, is_create=True))

    def delete_webhook(self, webhook_id: str) -> None:
        self._http.delete(_webhook(webhook_id))

    def test_webhook(self, webhook_id: str) -> m.Answer:
        return _read(m.Answer, self._http.post(f"{_webhook(webhook_id)}/test"))

    def deliveries(self, webhook_id: str, *, state: str | None = None, limit: int = 50) -> list[m.Delivery]:
        return list(self._items(m.Delivery, f"{_webhook(webhook_id)}/deliveries", {"state": state}, limit))

    def replay(self, webhook_id: str, delivery_id: str) -> m.Delivery:
        path = f"{_webhook(webhook_id)}/deliveries/{quote(delivery_id, safe='')}/replay"
        return _read(m.Delivery, self._http.post(path))

    # keys and projects
    def keys(self) -> list[m.Key]:
        return list(self._items(m.Key, "/v1/keys"))

    def create_key(self, name: str, role: str, expires_at: str | None) -> m.NewKey:
        body = {"name": name, "role": role, "expires_at": expires_at}
        return _read(m.NewKey, self._http.post("/v1/keys", body, is_create=True))

    def revoke_key(self, key_id: str) -> m.Key:
        return _read(m.Key, self._http.delete(f"/v1/keys/{quote(key_id, safe='')}"))

    def projects(self) -> list[m.Project]:
        return list(self._items(m.Project, "/v1/projects"))

    def create_project(self, name: str, *, allows_unbudgeted_jobs: bool) -> m.NewProject:
        body = {"name": name, "allows_unbudgeted_jobs": allows_unbudgeted_jobs}
        return _read(m.NewProject, self._http.post("/v1/projects", body, is_create=True))

    def _get(self, kind: type[T], path: str, params: Params | None = None) -> T:
        return _read(kind, self._http.get(path, params))

    def _wish(self, job_id: str, verb: str, body: object = None) -> m.Job:
        """Wishes are idempotent: a repeat changes nothing."""
        return _read(m.Job, self._http.post(f"{_job(job_id)}/{verb}", body))

    def _items(self, kind: type[T], path: str, params: Params | None = None, limit: int | None = None) -> Iterator[T]:
        """Every item of every page, `limit` at most."""
        given, cursor = dict(params or {}), None
        if limit is not None:
            given["limit"] = max(1, min(limit, PAGE_SIZE))
        count = 0
        while True:
            page = self._get(m.Page[kind], path, given | ({"cursor": cursor} if cursor else {}))
            for item in page.items:
                if limit is not None and count >= limit:
                    return
                yield item
                count += 1
            cursor = page.next_cursor
            if cursor is None:
                return


def _read(kind: type[T], response: httpx.Response) -> T:
    """Errors: ApiError when what answers is not this API."""
    try:
        return kind.model_validate_json(response.content)
    except ValidationError as error:
        raise ApiError.unreadable(response, kind.__name__) from error


def _job(job_id: str) -> str:
    return f"/v1/jobs/{quote(job_id, safe='')}"


def _budget(budget_id: str) -> str:
    return f"/v1/budgets/{quote(budget_id, safe='')}"


def _webhook(webhook_id: str) -> str:
    return f"/v1/webhooks/{quote(webhook_id, safe='')}"


def _output(job_id: str, path: str) -> str:
    return f"{_job(job_id)}/outputs/{quote(path)}"
