"""Settings: the one reader of the environment. Every name is `GODWIT_<FIELD>`; the defaults are the embedded service."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from service.domain.terms import GAP, Terms


def _parse_seconds(value: object) -> object:
    """Plain numbers are seconds; ISO 8601 durations (`PT15M`) are left to pydantic."""
    if isinstance(value, str) and re.fullmatch(r"\d{1,9}(\.\d{1,6})?", value.strip()):
        return float(value)
    return value


Span = Annotated[timedelta, BeforeValidator(_parse_seconds), Field(gt=timedelta(0), le=timedelta(days=30))]
"""A span of time: seconds, or an ISO 8601 duration such as `PT15M`."""


class Settings(BaseSettings):
    """Errors: pydantic's ValidationError, naming the variable."""

    model_config = SettingsConfigDict(env_prefix="GODWIT_", frozen=True, extra="ignore")

    data_dir: Path = Field(
        default=Path("~/.godwit").expanduser(), description="the service's folder: database, broker, bucket, keys, logs"
    )
    database_url: str | None = Field(default=None, description="SQLAlchemy URL; none: SQLite in the data folder")
    broker_url: str | None = Field(default=None, description="Redis URL; none: the embedded Valkey's socket")
    checkpoint_root: str | None = Field(default=None, description="the bucket: file://, s3://, gs:// or az://")
    secret_key: SecretStr | None = Field(default=None, description="seals secrets and node tokens; none: made once")
    host: str = Field(default="127.0.0.1", description="the address to listen at")
    port: int = Field(default=8717, ge=0, le=65_535, description="the port to listen at; 0 picks a free one")
    service_url: str | None = Field(default=None, description="where nodes reach this service; none: host and port")
    provisioner: Literal["local"] = Field(default="local", description="what launches clusters")
    market_profile: str = Field(
        default="default", description="the simulated market: default, demo, stormy, or a JSON file"
    )
    market_seed: int = Field(default=0, description="the same seed gives the same simulated market")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="the least that is logged"
    )

    grant: Span = Field(default=timedelta(minutes=15), description="a node's prepaid permission to run")
    drain: Span = Field(default=timedelta(minutes=2), description="bound of a drain")
    teardown: Span = Field(default=timedelta(minutes=5), description="bound of a confirmed termination")
    startup: Span = Field(default=timedelta(minutes=10), description="bound from launch to the first step")
    margin: Span = Field(
        default=timedelta(seconds=30), description="waited past a grant and its drain before a replacement"
    )
    heartbeat: Span = Field(default=timedelta(seconds=10), description="how often a node reports")
    silence: Span = Field(default=timedelta(minutes=2), description="heartbeats missing for so long are a loss")
    notice_poll: Span = Field(default=timedelta(seconds=5), description="how often a node looks for a notice")
    poll: Span = Field(default=timedelta(seconds=5), description="how often a job with nodes is looked at")
    sweep: Span = Field(default=timedelta(seconds=2), description="how often due work is looked for")
    accrue: Span = Field(default=timedelta(seconds=30), description="how often cost is entered in the ledger")
    refresh_quotes: Span = Field(default=timedelta(seconds=60), description="how often prices are asked for")
    quote_stale: Span = Field(default=timedelta(hours=24), description="older quotes do not count")
    launches_per_minute: int = Field(default=60, ge=1, description="launches of all jobs together")
    allow_private_webhooks: bool = Field(default=False, description="let webhooks reach private addresses")
    max_body_bytes: int = Field(default=1_048_576, ge=1024, description="the largest request body")
    max_bundle_bytes: int = Field(default=64 * 1024 * 1024, ge=1024, description="the largest workdir bundle")

    @model_validator(mode="after")
    def _silence_outlasts_gap(self) -> Self:
        if self.silence <= GAP:
            raise ValueError(
                f"silence must be longer than {GAP.total_seconds():g} s: shorter absences of ours go unseen"
            )
        return self

    @property
    def database(self) -> str:
        return self.database_url or f"sqlite:///{self.data_dir / 'godwit.db'}"

    @property
    def broker(self) -> str:
        return self.broker_url or f"redis+socket://{self.data_dir / 'valkey.sock'}"

    @property
    def bucket(self) -> str:
        return self.checkpoint_root or (self.data_dir / "bucket").as_uri()

    @property
    def url(self) -> str:
        return (self.service_url or f"http://{self.host}:{self.port}").rstrip("/")

    @property
    def terms(self) -> Terms:
        """The times that decisions use."""
        return Terms(
            grant=self.grant,
            drain=self.drain,
            teardown=self.teardown,
            startup=self.startup,
            margin=self.margin,
            silence=self.silence,
            poll=self.poll,
            quote_stale=self.quote_stale,
        )
