"""Settings: the one reader of the environment. Every name is `GODWIT_<FIELD>`; the defaults are the embedded service."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from service.domain.terms import Terms


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

    data_dir: Path = Path("~/.godwit").expanduser()
    database_url: str | None = Field(default=None, description="SQLAlchemy URL; none: SQLite in the data folder")
    broker_url: str | None = Field(default=None, description="Redis URL; none: the embedded Valkey's socket")
    checkpoint_root: str | None = Field(default=None, description="the bucket: file://, s3://, gs:// or az://")
    secret_key: SecretStr | None = Field(default=None, description="seals secrets and node tokens; none: made once")
    host: str = "127.0.0.1"
    port: int = Field(default=8717, ge=0, le=65_535)
    service_url: str | None = Field(default=None, description="where nodes reach this service")
    provisioner: Literal["local"] = "local"
    market_profile: str = "default"
    market_seed: int = 0
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    grant: Span = Field(default=timedelta(minutes=15), description="a node's prepaid permission to run")
    drain: Span = Field(default=timedelta(minutes=2), description="bound of a drain")
    teardown: Span = Field(default=timedelta(minutes=5), description="bound of a confirmed termination")
    startup: Span = Field(default=timedelta(minutes=10), description="bound from launch to the first step")
    margin: Span = timedelta(seconds=30)
    heartbeat: Span = timedelta(seconds=10)
    silence: Span = Field(default=timedelta(minutes=2), description="heartbeats missing for so long are a loss")
    notice_poll: Span = timedelta(seconds=5)
    poll: Span = Field(default=timedelta(seconds=5), description="how often a job with nodes is looked at")
    sweep: Span = timedelta(seconds=2)
    accrue: Span = timedelta(seconds=30)
    refresh_quotes: Span = timedelta(seconds=60)
    quote_stale: Span = Field(default=timedelta(hours=24), description="older quotes do not count")
    launches_per_minute: int = Field(default=60, ge=1)
    allow_private_webhooks: bool = Field(default=False, description="let webhooks reach private addresses")
    max_body_bytes: int = Field(default=1_048_576, ge=1024)
    max_bundle_bytes: int = Field(default=64 * 1024 * 1024, ge=1024)

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
