"""The provisioner that speaks to the local cloud's daemon, found by the file that it writes in its folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import httpx
from pydantic import ValidationError

from service.domain.observations import ClusterSummary, Observation
from service.domain.offers import Offer, Quote
from worker.provision.local.wire import (
    ENDPOINT_FILE,
    NO_CAPACITY,
    OBSERVATION,
    OFFERS,
    QUOTES,
    SUMMARIES,
    Endpoint,
    InterruptBody,
    LaunchBody,
    Problem,
    TerminateAnswer,
)
from worker.provision.protocol import LaunchRefused, LaunchRequest, NoCapacity, ProviderUnavailable, ProvisionError

_TIMEOUT = httpx.Timeout(10, connect=2)
_AWAY = "the local cloud does not answer"


class LocalProvisioner:
    """Provisioner and Interruptible over loopback. `data` is the daemon's folder. Safe to share between threads."""

    def __init__(self, data: Path) -> None:
        self._endpoint_path = data / ENDPOINT_FILE
        self._client = httpx.Client(timeout=_TIMEOUT, trust_env=False, follow_redirects=False)

    def close(self) -> None:
        self._client.close()

    def launch(self, request: LaunchRequest) -> None:
        try:
            body = LaunchBody(
                cluster_name=request.cluster_name,
                job_id=request.job_id,
                fence=request.fence,
                offer_id=request.offer.id,
                ceiling_hourly_nano=request.ceiling_hourly_nano,
                specs=tuple(request.specs),
                environment=dict(request.environment),
            )
        except ValidationError as error:
            fields = sorted({str(item["loc"][0]) for item in error.errors(include_input=False) if item["loc"]})
            raise LaunchRefused(f"the launch request is malformed: {', '.join(fields)}") from None
        self._call("POST", "/v1/clusters", body.model_dump_json())

    def observe(self, cluster_name: str, *, is_forced: bool = False) -> Observation:
        answer = self._call("GET", f"/v1/clusters/{cluster_name}?is_forced={is_forced}".lower())
        return OBSERVATION.validate_json(answer.content)

    def terminate(self, cluster_name: str) -> bool:
        answer = self._call("DELETE", f"/v1/clusters/{cluster_name}")
        return TerminateAnswer.model_validate_json(answer.content).is_gone

    def list_clusters(self) -> Sequence[ClusterSummary]:
        return SUMMARIES.validate_json(self._call("GET", "/v1/clusters").content)

    def list_offers(self) -> Sequence[Offer]:
        return OFFERS.validate_json(self._call("GET", "/v1/offers").content)

    def list_quotes(self) -> Sequence[Quote]:
        return QUOTES.validate_json(self._call("GET", "/v1/quotes").content)

    def interrupt(self, cluster_name: str, node_rank: int, *, has_notice: bool) -> None:
        body = InterruptBody(has_notice=has_notice).model_dump_json()
        self._call("POST", f"/v1/clusters/{cluster_name}/nodes/{node_rank}/interrupt", body)

    def _call(self, method: str, path: str, body: str | None = None) -> httpx.Response:
        """The daemon's answer. Its file is read anew each time: a restarted daemon may be elsewhere."""
        endpoint = self._find_daemon()
        headers = {"Authorization": f"Bearer {endpoint.token}", "Content-Type": "application/json"}
        try:
            answer = self._client.request(method, f"{endpoint.url}{path}", content=body, headers=headers)
        except httpx.HTTPError as error:
            raise ProviderUnavailable(f"{_AWAY}: {type(error).__name__}") from error
        if not answer.is_success:
            _raise_refusal(answer)
        return answer

    def _find_daemon(self) -> Endpoint:
        try:
            return Endpoint.model_validate_json(self._endpoint_path.read_bytes())
        except (OSError, ValueError) as error:
            raise ProviderUnavailable(f"{_AWAY}: it left no address") from error


def _raise_refusal(answer: httpx.Response) -> NoReturn:
    """The protocol's error for an answer that is no success; what is not a problem document proves nothing."""
    try:
        problem = Problem.model_validate_json(answer.content)
    except ValueError:
        raise ProviderUnavailable(f"the local cloud answered {answer.status_code}") from None
    if answer.status_code == 409 and problem.type == NO_CAPACITY:
        raise NoCapacity(problem.detail)
    if answer.status_code == 404:
        raise ProvisionError(problem.detail)
    if answer.status_code in (413, 422):
        raise LaunchRefused(problem.detail)
    raise ProviderUnavailable(f"the local cloud answered {answer.status_code}: {problem.detail}")
