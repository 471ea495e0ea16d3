"""Packed binary shards: token ids one after another, little-endian, uint16 where the vocabulary allows, else uint32.

A token set is a folder: `train.bin`, `validation.bin`, `tokens.json` (the sidecar, with sizes and hashes). It appears by
one rename, complete, so a reader never meets half of one and two writers may race.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from pydantic import Field

from training.protocol.base import Sha256, Value

SIDECAR_NAME = "tokens.json"
FORMAT_VERSION = 1


class Shard(Value):
    """One file of ids; the sha256 is of its bytes."""

    name: str = Field(pattern=r"^[a-z0-9-]{1,64}\.bin$")
    num_tokens: int = Field(ge=0)
    sha256: Sha256


class TokenSet(Value):
    """The sidecar. `dtype` is numpy's name."""

    version: int = FORMAT_VERSION
    dtype: str = Field(pattern="^<u[24]$")
    tokenizer: Sha256
    train: Shard
    validation: Shard

    @property
    def digest(self) -> str:
        """The identity of the data: every id and the tokeniser."""
        return hashlib.sha256(f"{self.tokenizer}:{self.train.sha256}:{self.validation.sha256}".encode()).hexdigest()


def dtype_for(vocab_size: int) -> str:
    return "<u2" if vocab_size <= 2**16 else "<u4"


def write_shard(path: Path, documents: Iterable[list[int]], *, dtype: str, end_of_text: int) -> Shard:
    """Write documents, each followed by `end_of_text`, and flush to disk."""
    hasher, num_tokens = hashlib.sha256(), 0
    with path.open("wb") as stream:
        for ids in documents:
            packed = np.array([*ids, end_of_text], dtype=dtype)
            hasher.update(packed.data)
            stream.write(packed.data)
            num_tokens += packed.size
        stream.flush()
        os.fsync(stream.fileno())
    return Shard(name=path.name, num_tokens=num_tokens, sha256=hasher.hexdigest())


def write_token_set(
    folder: Path,
    *,
    train: Iterable[list[int]],
    validation: Iterable[list[int]],
    tokenizer: str,
    vocab_size: int,
    end_of_text: int,
) -> TokenSet:
    """Write a token set beside `folder` and rename it there. A concurrent writer's equal result is kept instead."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    dtype = dtype_for(vocab_size)
    building = Path(tempfile.mkdtemp(prefix=".building-", dir=folder.parent))
    try:
        train_shard = write_shard(building / "train.bin", train, dtype=dtype, end_of_text=end_of_text)
        validation_shard = write_shard(building / "validation.bin", validation, dtype=dtype, end_of_text=end_of_text)
        tokens = TokenSet(dtype=dtype, tokenizer=tokenizer, train=train_shard, validation=validation_shard)
        write_file(building / SIDECAR_NAME, tokens.model_dump_json(indent=1).encode())
        try:
            building.rename(folder)
        except OSError:
            if not (folder / SIDECAR_NAME).exists():
                raise
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return tokens


def write_file(path: Path, content: bytes) -> None:
    """Write and flush to disk."""
    with path.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def read_token_set(folder: Path) -> TokenSet | None:
    """The sidecar of a complete and unaltered token set; None when it is absent or its bytes are not what was written."""
    try:
        tokens = TokenSet.model_validate_json((folder / SIDECAR_NAME).read_bytes())
        for shard in (tokens.train, tokens.validation):
            with (folder / shard.name).open("rb") as stream:
                if hashlib.file_digest(stream, "sha256").hexdigest() != shard.sha256:
                    return None
    except (OSError, ValueError):
        return None
    return tokens


def open_shard(folder: Path, shard: Shard, dtype: str) -> np.ndarray:
    """The ids, mapped and not read: shape (num_tokens,)."""
    return np.memmap(folder / shard.name, dtype=dtype, mode="r", shape=(shard.num_tokens,))
