"""/node/v1: what nodes may say. A node token opens these three and nothing else."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends
from fastapi.responses import StreamingResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from service.agents.service import lock_current, receive_heartbeat
from service.api.dependencies import Ctx, Db, Now, ReadDb, wake_after_commit
from service.api.problems import Problem, documented, not_found
from service.api.routing import make_router
from service.checkpoints.service import CheckpointConflict, Fenced, NewCheckpoint, prune, register
from service.db.models import Attempt, Job
from training.protocol.bucket import bundle_key, iter_bytes
from training.protocol.job_spec import JobSpec
from training.protocol.messages import CheckpointReceipt, CheckpointRegistration, Heartbeat, Reply

router = make_router("/node/v1", "nodes", statuses=(401, 403, 422, 503))
_bearer = HTTPBearer(auto_error=False, scheme_name="nodeToken", description="A node token, good for one attempt.")


def get_attempt_id(context: Ctx, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]) -> str:
    """The attempt that the token is good for. Errors: Problem 401."""
    attempt_id = context.sealer.attempt_of(credentials.credentials) if credentials else None
    if attempt_id is None:
        raise Problem(
            401, "unauthorized", "The node token is missing or wrong.", headers={"WWW-Authenticate": "Bearer"}
        )
    return attempt_id


AttemptId = Annotated[str, Depends(get_attempt_id)]


@router.post("/heartbeat", responses=documented(409))
def receive_heartbeat_endpoint(body: Heartbeat, session: Db, context: Ctx, attempt_id: AttemptId, now: Now) -> Reply:
    """What a node reports; answered with commands and with how long it may run on."""
    _check_own(attempt_id, body.attempt_id)
    try:
        reply, job_id = receive_heartbeat(session, attempt_id, body, terms=context.settings.terms, now=now)
    except Fenced as error:
        raise _fenced(error) from error
    if job_id is not None:
        wake_after_commit(session, job_id, now=now)
    return reply


@router.post("/checkpoints", responses=documented(409))
def register_checkpoint(
    body: CheckpointRegistration, session: Db, attempt_id: AttemptId, now: Now
) -> CheckpointReceipt:
    """Enter a verified checkpoint. Repeating it is success; a lower fence is refused."""
    _check_own(attempt_id, body.attempt_id)
    try:
        job, attempt = lock_current(session, attempt_id, fence=body.fence)
        new = NewCheckpoint(
            job_id=job.id,
            step=body.step,
            fence=attempt.fence,
            manifest_sha256=body.manifest_sha256,
            size_bytes=body.size_bytes,
            val_loss=body.val_loss,
            world_size=body.world_size,
            tokens=body.tokens,
            verified_at=body.verified_at,
        )
        is_new = register(session, new, now=now)
    except Fenced as error:
        raise _fenced(error) from error
    except CheckpointConflict as error:
        raise Problem(409, "checkpoint_conflict", str(error)) from error
    delete = prune(session, job.id, JobSpec.model_validate(job.spec).checkpoint, now=now)
    return CheckpointReceipt(step=body.step, fence=body.fence, is_new=is_new, delete=delete)


@router.get("/bundle", responses=documented(404), response_class=StreamingResponse)
def download_bundle(session: ReadDb, context: Ctx, attempt_id: AttemptId) -> StreamingResponse:
    """The workdir bundle of the attempt's job."""
    attempt = session.get(Attempt, attempt_id)
    job = session.get(Job, attempt.job_id) if attempt else None
    workdir = job.spec.get("workdir") if job else None
    if not isinstance(workdir, str):
        raise not_found("bundle")
    try:
        chunks = iter_bytes(context.bucket, bundle_key(workdir))
        first = next(chunks, b"")
    except FileNotFoundError as error:
        raise not_found("bundle") from error

    def stream() -> object:
        yield first
        yield from chunks

    return StreamingResponse(stream(), media_type="application/gzip")  # pyright: ignore[reportArgumentType]


def _check_own(own_id: str, named_id: str) -> None:
    if own_id != named_id:
        raise Problem(403, "forbidden", "The node token is good for another attempt.")


def _fenced(error: Fenced) -> Problem:
    return Problem(409, "fenced", f"{error}.", remedy="Stop: a later attempt has taken over.")
