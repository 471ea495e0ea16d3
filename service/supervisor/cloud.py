"""The local cloud daemon, as far as stopping the service needs it: which clusters live, and their end.

Its answers are read here by the two fields that matter, since the service's packages do not import the workers'.
"""

from __future__ import annotations

import time
from pathlib import Path

import httpx
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

_POLL_SECONDS = 0.2


class CloudAway(Exception):
    """The daemon does not answer."""


class LiveCluster(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    cluster_name: str
    job_id: str
    num_nodes: int


class _Endpoint(BaseModel):
    model_config = ConfigDict(extra="ignore")

    url: str
    token: str = Field(repr=False)


_CLUSTERS = TypeAdapter(list[LiveCluster])


def list_live_clusters(cloud_dir: Path) -> list[LiveCluster]:
    """Errors: CloudAway. No daemon was ever started: none."""
    if not (cloud_dir / "endpoint.json").exists():
        return []
    with _connect(cloud_dir) as http:
        return _list(http)


def terminate_all(cloud_dir: Path, timeout_seconds: float) -> list[LiveCluster]:
    """Asks until none is left or the time is up; returns what is left. Errors: CloudAway."""
    deadline = time.monotonic() + timeout_seconds
    with _connect(cloud_dir) as http:
        while clusters := _list(http):
            for cluster in clusters:
                _request(http, "DELETE", f"/v1/clusters/{cluster.cluster_name}")
            if time.monotonic() >= deadline:
                break
            time.sleep(_POLL_SECONDS)
    return clusters


def _connect(cloud_dir: Path) -> httpx.Client:
    try:
        endpoint = _Endpoint.model_validate_json((cloud_dir / "endpoint.json").read_bytes())
    except (OSError, ValidationError) as error:
        raise CloudAway(str(error)) from error
    headers = {"Authorization": f"Bearer {endpoint.token}"}
    return httpx.Client(base_url=endpoint.url, headers=headers, timeout=5, trust_env=False)


def _list(http: httpx.Client) -> list[LiveCluster]:
    try:
        return _CLUSTERS.validate_json(_request(http, "GET", "/v1/clusters").content)
    except ValidationError as error:
        raise CloudAway("its answer is not a list of clusters") from error


def _request(http: httpx.Client, method: str, path: str) -> httpx.Response:
    try:
        response = http.request(method, path)
        response.raise_for_status()
    except httpx.HTTPError as error:
        raise CloudAway(str(error)) from error
    return response
