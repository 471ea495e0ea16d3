"""An old attempt's word is refused over the wire, whoever carries its token."""

from __future__ import annotations

import httpx
import pytest

from service.clock import system_clock
from service.seal import Sealer, load_key
from tests.e2e.runs import check_promises, submit
from tests.e2e.stack import Stack
from training.protocol.messages import (
    CHECKPOINTS_PATH,
    HEARTBEAT_PATH,
    CheckpointRegistration,
    Heartbeat,
    Phase,
)


@pytest.mark.parametrize("is_same_attempt", [True, False])
def test_heartbeats_and_commits_of_an_old_fence_are_refused(stack: Stack, is_same_attempt: bool) -> None:
    """409 `fenced` for the old attempt's own token; 403 for a token used for another attempt."""
    run = submit(stack, steps=60)
    run.follow(lambda job: job.checkpoint_step is not None, "a checkpoint")
    run.take_node(has_notice=False)
    run.follow(lambda job: (job.model_extra or {})["fence"] == 2, "the relaunch")
    old, new = ((attempt.model_extra or {})["id"] for attempt in stack.api.attempts(run.id))
    token = Sealer(load_key(stack.settings.data_dir / "secret.key")).node_token(old)
    named = old if is_same_attempt else new

    heartbeat = Heartbeat(attempt_id=named, fence=1, node_rank=0, seq=10_000, phase=Phase.RUNNING, step=59)
    registration = CheckpointRegistration(
        attempt_id=named,
        fence=1,
        step=59,
        manifest_sha256="0" * 64,
        size_bytes=1,
        world_size=1,
        verified_at=system_clock(),
    )
    with httpx.Client(base_url=stack.settings.url, headers={"Authorization": f"Bearer {token}"}) as node:
        answers = [
            node.post(path, content=body.model_dump_json(), headers={"Content-Type": "application/json"})
            for path, body in ((HEARTBEAT_PATH, heartbeat), (CHECKPOINTS_PATH, registration))
        ]
    status, code = (409, "fenced") if is_same_attempt else (403, "forbidden")
    assert [(answer.status_code, answer.json()["code"]) for answer in answers] == [(status, code)] * 2
    run.succeed(60)
    assert 59 not in [one.step for one in stack.api.checkpoints(run.id, with_deleted=True)]
    check_promises(stack)
