"""A checkpoint's manifest: the file written last, which alone makes a checkpoint exist."""

from __future__ import annotations

import hashlib
from typing import Annotated

from pydantic import AfterValidator, Field

from training.protocol.base import Sha256, Text, Value

MANIFEST_NAME = "manifest.json"
MAX_MANIFEST_BYTES = 8 * 1024 * 1024


def _inside(path: str) -> str:
    if path.startswith("/") or any(part in ("", ".", "..") for part in path.split("/")):
        raise ValueError("must be a relative path inside the checkpoint")
    return path


class ManifestFile(Value):
    """One file of a checkpoint; `path` is relative to the checkpoint and has no `..`."""

    path: Annotated[Text, Field(pattern=r"^[A-Za-z0-9._/=+-]{1,512}$"), AfterValidator(_inside)]
    size_bytes: int = Field(ge=0)
    sha256: Sha256


class Manifest(Value):
    """What a checkpoint holds. `step` counts finished optimiser steps: a resumed run computes step + 1 next."""

    version: int = 1
    step: int = Field(ge=0)
    fence: int = Field(ge=1)
    world_size: int = Field(ge=1)
    tokens: int = Field(default=0, ge=0)
    val_loss: float | None = None
    files: tuple[ManifestFile, ...] = Field(max_length=100_000)

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    def to_bytes(self) -> bytes:
        """The canonical bytes. The checkpoint's digest is their sha256."""
        return self.model_dump_json(indent=1).encode()


def digest(data: bytes) -> str:
    """Hex sha256."""
    return hashlib.sha256(data).hexdigest()
