"""The instance metadata services of three clouds, for each node: what a node agent polls for interruption notices.

AWS: IMDSv2 `spot/instance-action` and the rebalance recommendation. GCE: `instance/preempted`. Azure: Scheduled Events.
Answers, headers and refusals have the shapes that the clouds document. The profile says which cloud's service answers;
the other two, and those of a node that is gone, are 404.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Annotated

from fastapi import APIRouter, Depends, FastAPI, Header, HTTPException, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response

from service.domain.offers import Market as MarketKind
from worker.provision.local.cloud import Cloud
from worker.provision.local.imds_token import MAX_TTL_SECONDS, is_imds_token_good, sign_imds_token
from worker.provision.local.records import Doom, NodeRecord


@dataclass(frozen=True, kw_only=True)
class _Machine:
    """The node that a request is about. `key` is `cluster/rank`."""

    key: str
    node: NodeRecord


@dataclass(frozen=True, kw_only=True)
class _Services:
    cloud: Cloud
    token_key: bytes
    clock: Callable[[], datetime]


def add_metadata_services(app: FastAPI, cloud: Cloud, token_key: bytes, clock: Callable[[], datetime]) -> None:
    """Serve the metadata of the cloud that the profile names. `token_key` signs the session tokens of IMDSv2."""
    app.state.metadata = _Services(cloud=cloud, token_key=token_key, clock=clock)
    routers = {"aws": (_aws_tokens, _aws), "gce": (_gce,), "azure": (_azure,)}
    for router in routers[cloud.market.profile.metadata]:
        app.include_router(router, prefix="/nodes/{cluster_name}/{node_rank}")


def _services(request: Request) -> _Services:
    return request.app.state.metadata


async def _find_machine(request: Request, cluster_name: str, node_rank: int) -> _Machine:
    node = _services(request).cloud.find_node(cluster_name, node_rank)
    if node is None:
        raise HTTPException(404)
    return _Machine(key=f"{cluster_name}/{node_rank}", node=node)


_AnyMachine = Annotated[_Machine, Depends(_find_machine)]


async def _check_imds_token(
    request: Request, machine: _AnyMachine, x_aws_ec2_metadata_token: Annotated[str, Header(max_length=256)] = ""
) -> None:
    services = _services(request)
    if not is_imds_token_good(services.token_key, machine.key, x_aws_ec2_metadata_token, services.clock()):
        raise HTTPException(401)


_aws_tokens = APIRouter()
_aws = APIRouter(prefix="/latest/meta-data", dependencies=[Depends(_check_imds_token)])
_gce = APIRouter(prefix="/computeMetadata/v1")
_azure = APIRouter(prefix="/metadata")


@_aws_tokens.put("/latest/api/token")
async def put_imds_token(
    request: Request, machine: _AnyMachine, x_aws_ec2_metadata_token_ttl_seconds: Annotated[int, Header()] = 0
) -> PlainTextResponse:
    ttl = x_aws_ec2_metadata_token_ttl_seconds
    if not 1 <= ttl <= MAX_TTL_SECONDS:
        raise HTTPException(400)
    services = _services(request)
    token = sign_imds_token(services.token_key, machine.key, services.clock(), ttl)
    return PlainTextResponse(token, headers={"X-Aws-Ec2-Metadata-Token-Ttl-Seconds": str(ttl)})


@_aws.get("/spot/instance-action")
async def get_instance_action(machine: _AnyMachine) -> JSONResponse:
    return JSONResponse({"action": "terminate", "time": _to_iso(_require_notice(machine).terminate_at)})


@_aws.get("/events/recommendations/rebalance")
async def get_rebalance(machine: _AnyMachine) -> JSONResponse:
    """Told together with the notice, as the clouds do at the latest."""
    return JSONResponse({"noticeTime": _to_iso(_require_notice(machine).noticed_at)})


@_aws.get("/{item:path}")
async def get_item(request: Request, machine: _AnyMachine, item: str) -> PlainTextResponse:
    items = _describe_machine(_services(request).cloud, machine)
    if item not in items:
        raise HTTPException(404)
    return PlainTextResponse(items[item])


@_gce.get("/instance/preempted")
async def get_preempted(machine: _AnyMachine, metadata_flavor: Annotated[str, Header()] = "") -> Response:
    if metadata_flavor != "Google":
        raise HTTPException(403)
    is_preempted = _find_notice(machine) is not None
    return PlainTextResponse("TRUE" if is_preempted else "FALSE", headers={"Metadata-Flavor": "Google"})


@_azure.get("/scheduledevents")
async def get_scheduled_events(
    request: Request, machine: _AnyMachine, metadata: Annotated[str, Header()] = ""
) -> JSONResponse:
    if metadata.lower() != "true" or "api-version" not in request.query_params:
        raise HTTPException(400)
    notice = _find_notice(machine)
    events = [] if notice is None else [_make_scheduled_event(machine.key, notice)]
    return JSONResponse({"DocumentIncarnation": 1 + len(events), "Events": events})


def _find_notice(machine: _Machine) -> Doom | None:
    doom = machine.node.doom
    return doom if doom is not None and doom.has_notice else None


def _require_notice(machine: _Machine) -> Doom:
    notice = _find_notice(machine)
    if notice is None:
        raise HTTPException(404)
    return notice


def _describe_machine(cloud: Cloud, machine: _Machine) -> dict[str, str]:
    cluster_name, _, rank = machine.key.rpartition("/")
    offer = cloud.find_offer(cluster_name)
    known = {"instance-id": f"{cluster_name}-{rank}"}
    if offer is not None:
        known["instance-type"] = offer.instance_type
        known["placement/availability-zone"] = offer.zone
        known["placement/region"] = offer.region
        known["instance-life-cycle"] = "spot" if offer.market is MarketKind.SPOT else "on-demand"
    return known


def _make_scheduled_event(node_key: str, notice: Doom) -> dict[str, object]:
    return {
        "EventId": hashlib.sha256(f"{node_key}/{_to_iso(notice.noticed_at)}".encode()).hexdigest()[:32].upper(),
        "EventStatus": "Scheduled",
        "EventType": "Preempt",
        "ResourceType": "VirtualMachine",
        "Resources": [node_key.replace("/", "-")],
        "NotBefore": format_datetime(notice.terminate_at.astimezone(UTC), usegmt=True),
        "Description": "",
        "EventSource": "Platform",
        "DurationInSeconds": -1,
    }


def _to_iso(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
