"""What a node's agent is started with: everything it needs, and no credentials but its own token and the job's secrets.

The launch spec is a file that only the node's user can read; the token and the secrets travel in the environment.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from training.protocol.base import Name, Seconds, Sha256, Text, Value
from training.protocol.job_spec import CheckpointPolicy, EnvName, EnvValue, OutputGlob
from training.protocol.messages import Identifier
from training.protocol.train_spec import TrainSpec

TOKEN_ENV = "GODWIT_NODE_TOKEN"  # noqa: S105 - the variable's name
SECRET_NAMES_ENV = "GODWIT_SECRET_NAMES"  # noqa: S105 - the variable's name; names, comma-separated, to pass on to ranks
METADATA_URL_ENV = "AWS_EC2_METADATA_SERVICE_ENDPOINT"
"""The AWS SDKs' own variable for the instance metadata service's address."""


class Candidate(Value):
    """A checkpoint to resume from. The digest is of its manifest and comes from the service's register."""

    step: int = Field(ge=0)
    fence: int = Field(ge=1)
    manifest_sha256: Sha256


class AgentTerms(Value):
    """Times that the service decides and the agent keeps."""

    heartbeat: Seconds
    drain: Seconds = Field(description="the bound from a drain's start to the power-off")
    notice_poll: Seconds
    term_grace: Seconds = Field(description="from SIGTERM to SIGKILL for ranks when there is nothing to save")


class LaunchSpec(Value):
    """One node's part of one attempt."""

    job_id: Identifier
    job_name: Name
    attempt_id: Identifier
    fence: int = Field(ge=1)
    node_rank: int = Field(ge=0)
    num_nodes: int = Field(ge=1)
    ranks_per_node: int = Field(ge=1)
    rendezvous: Annotated[Text, Field(max_length=255)] = Field(description="host:port of node 0, for MASTER_ADDR/PORT")
    service_url: Annotated[Text, Field(max_length=1024)]
    checkpoint_root: Annotated[Text, Field(max_length=1024)] = Field(description="file://, s3://, gs:// or az:// URL")
    candidates: tuple[Candidate, ...] = Field(default=(), max_length=64, description="newest first")
    train: TrainSpec | None = None
    run: Annotated[Text, Field(max_length=65_536)] | None = None
    setup: Annotated[Text, Field(max_length=65_536)] | None = None
    workdir: Sha256 | None = None
    env: dict[EnvName, EnvValue] = Field(default_factory=dict)
    outputs: tuple[OutputGlob, ...] = ()
    checkpoint: CheckpointPolicy
    terms: AgentTerms
    power_off: tuple[str, ...] = Field(
        default=(), description="argv that powers the node off; none: the agent's exit does"
    )
