"""The checkpoint register as the API shows it."""

from __future__ import annotations

from datetime import datetime
from typing import Self

from pydantic import BaseModel, Field

from service.db.models import Checkpoint


class CheckpointView(BaseModel):
    step: int
    fence: int
    manifest_sha256: str
    size_bytes: int
    val_loss: float | None
    world_size: int
    tokens: int
    verified: bool = Field(description="its bytes were read again and hashed, and it was not found corrupt since")
    verified_at: datetime
    registered_at: datetime
    corrupt_at: datetime | None
    corrupt_reason: str | None
    deleted_at: datetime | None = Field(description="let go by the retention policy")

    @classmethod
    def of(cls, row: Checkpoint) -> Self:
        shown = {name: getattr(row, name) for name in cls.model_fields if hasattr(row, name)}
        return cls.model_validate({**shown, "verified": row.corrupt_at is None})
