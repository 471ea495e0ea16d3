"""Act: what was committed as intended, and nothing else. Each verb is idempotent; each outcome is a value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

import structlog

from service.context import Context
from service.domain.decision import Action, Launch
from service.domain.offers import Offer
from service.domain.snapshot import LaunchFailure
from service.ids import cluster_name
from training.protocol.launch_spec import SECRET_NAMES_ENV, TOKEN_ENV, AgentTerms, Candidate, LaunchSpec
from worker.provision.protocol import (
    LaunchRefused,
    LaunchRequest,
    NoCapacity,
    ProviderUnavailable,
    Provisioner,
    ProvisionError,
)
from worker.reconcile.load import Loaded

log = structlog.get_logger()

_FAILURES = ((NoCapacity, LaunchFailure.NO_CAPACITY), (LaunchRefused, LaunchFailure.REFUSED))


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchOutcome:
    """`began_at` is before the call: a provider bills from no earlier."""

    fence: int
    began_at: datetime
    failure: LaunchFailure | None
    detail: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class TerminateOutcome:
    fence: int
    is_confirmed: bool
    detail: str | None


Outcome = LaunchOutcome | TerminateOutcome


@dataclass(frozen=True, kw_only=True, slots=True)
class Intended:
    """What a launch needs of an attempt that is committed.

    `resume_candidates` are read after the fence was raised: no lower one can register a newer checkpoint from then on.
    """

    attempt_id: str
    fence: int
    offer: Offer
    ceiling_hourly_nano: int
    resume_candidates: tuple[Candidate, ...]


def act(
    action: Action,
    *,
    loaded: Loaded,
    intended: Callable[[int], Intended],
    context: Context,
    provisioner: Provisioner,
) -> Outcome:
    """Do one thing in the world. Errors of the provider become the outcome."""
    if isinstance(action, Launch):
        return _launch(loaded, intended(action.fence), context, provisioner)
    name = cluster_name(loaded.job_id, action.fence)
    try:
        return TerminateOutcome(fence=action.fence, is_confirmed=provisioner.terminate(name), detail=None)
    except ProvisionError as error:
        log.warning("terminate_failed", cluster=name, error=str(error))
        return TerminateOutcome(fence=action.fence, is_confirmed=False, detail=str(error))


def _launch(loaded: Loaded, intended: Intended, context: Context, provisioner: Provisioner) -> LaunchOutcome:
    began_at = context.clock()
    failure, detail = None, None
    try:
        provisioner.launch(_build_request(loaded, intended, context))
    except ProvisionError as error:
        is_unknown = isinstance(error, ProviderUnavailable)
        known = next((name for kind, name in _FAILURES if isinstance(error, kind)), LaunchFailure.UNKNOWN)
        failure, detail = (LaunchFailure.UNKNOWN if is_unknown else known), str(error)[:2000]
        log.warning("launch_failed", job_id=loaded.job_id, fence=intended.fence, failure=failure, error=detail)
    return LaunchOutcome(fence=intended.fence, began_at=began_at, failure=failure, detail=detail)


def _build_request(loaded: Loaded, intended: Intended, context: Context) -> LaunchRequest:
    secrets = context.sealer.unseal(loaded.sealed_secrets)
    return LaunchRequest(
        cluster_name=cluster_name(loaded.job_id, intended.fence),
        job_id=loaded.job_id,
        fence=intended.fence,
        offer=intended.offer,
        ceiling_hourly_nano=intended.ceiling_hourly_nano,
        specs=[_build_spec(loaded, intended, context, rank) for rank in range(loaded.job.num_nodes)],
        environment={
            **secrets,
            SECRET_NAMES_ENV: ",".join(sorted(secrets)),
            TOKEN_ENV: context.sealer.node_token(intended.attempt_id),
        },
    )


def _build_spec(loaded: Loaded, intended: Intended, context: Context, node_rank: int) -> LaunchSpec:
    spec, settings = loaded.spec, context.settings
    return LaunchSpec(
        job_id=loaded.job_id,
        job_name=spec.name,
        attempt_id=intended.attempt_id,
        fence=intended.fence,
        node_rank=node_rank,
        num_nodes=loaded.job.num_nodes,
        ranks_per_node=spec.resources.ranks_per_node,
        rendezvous="node-0:0",
        service_url=settings.url,
        checkpoint_root=settings.bucket,
        candidates=intended.resume_candidates,
        train=spec.train,
        run=spec.run,
        setup=spec.setup,
        workdir=spec.workdir,
        env=spec.env,
        outputs=spec.outputs,
        checkpoint=spec.checkpoint,
        terms=AgentTerms(
            heartbeat=settings.heartbeat,
            drain=settings.drain,
            notice_poll=settings.notice_poll,
            term_grace=settings.drain / 2,
        ),
    )
