"""A client of the AWS metadata service, as an SDK asks it."""

from __future__ import annotations

from typing import Any

import httpx


def fetch_imds(node_url: str, item: str) -> httpx.Response:
    with httpx.Client(trust_env=False) as client:
        ttl = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
        token = client.put(f"{node_url}/latest/api/token", headers=ttl).raise_for_status().text
        return client.get(f"{node_url}/latest/meta-data/{item}", headers={"X-aws-ec2-metadata-token": token})


def read_instance_action(node_url: str) -> dict[str, Any] | None:
    """The interruption notice, or None."""
    answer = fetch_imds(node_url, "spot/instance-action")
    return None if answer.status_code == 404 else answer.raise_for_status().json()
