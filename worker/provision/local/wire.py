"""What travels between the provisioner and the daemon. Answers are the domain's own values, as JSON."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field, TypeAdapter

from service.domain.observations import ClusterSummary, Observation
from service.domain.offers import Offer, Quote
from training.protocol.base import Name, Value
from training.protocol.job_spec import EnvName, EnvValue
from training.protocol.launch_spec import LaunchSpec
from training.protocol.messages import Identifier

MAX_BODY_BYTES = 16 * 2**20
NO_CAPACITY = "no_capacity"
LAUNCH_REFUSED = "launch_refused"
NOT_FOUND = "not_found"


class LaunchBody(Value):
    """A LaunchRequest. The environment holds secrets: it is in no repr, no file and no error."""

    cluster_name: Name
    job_id: Identifier
    fence: int = Field(ge=1)
    offer_id: Annotated[str, Field(max_length=255)]
    ceiling_hourly_nano: int = Field(ge=0)
    specs: tuple[LaunchSpec, ...] = Field(min_length=1, max_length=1000)
    environment: dict[EnvName, EnvValue] = Field(max_length=1000, repr=False)


class InterruptBody(Value):
    has_notice: bool


class TerminateAnswer(Value):
    is_gone: bool


class Problem(Value):
    """An error's `type` (one of this module's words) and what to say of it."""

    type: str
    detail: str


class Endpoint(Value):
    """Where the daemon is and what opens it: the content of `DIR/endpoint.json`, which only its owner can read."""

    url: str
    token: str = Field(repr=False)
    pid: int
    started_at: datetime


ENDPOINT_FILE = "endpoint.json"
OBSERVATION = TypeAdapter(Observation)
SUMMARIES = TypeAdapter(list[ClusterSummary])
OFFERS = TypeAdapter(list[Offer])
QUOTES = TypeAdapter(list[Quote])
