"""The cache of tokenisers and token sets: made once a node, found again by every later launch and rank.

A tokeniser is keyed by the files it saw and the vocabulary's size; a token set by the files and the tokeniser. So a node
that resumes with the checkpoint's tokeniser finds the set made with it. One rank works while the others of the node wait
for its lock; the lock is only thrift, since everything appears by rename.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from training.data.shards import FORMAT_VERSION, TokenSet, open_shard, read_token_set, write_file, write_token_set
from training.data.sources import Document, SourceFile, list_files, read_documents, split_documents
from training.data.tokenizer import END_OF_TEXT_ID, Tokenizer, train_tokenizer
from training.protocol.train_spec import DataSpec


@dataclass(frozen=True, kw_only=True)
class PreparedData:
    """Ids ready to sample, shape (num_tokens,), and their identity."""

    train: np.ndarray
    validation: np.ndarray
    tokenizer: Tokenizer
    digest: str


def prepare_data(spec: DataSpec, *, vocab_size: int, cache_dir: Path, tokenizer: Tokenizer | None) -> PreparedData:
    """Tokenise what the spec names, or find it in the cache. A tokeniser given (from a checkpoint) is used as it is.

    Raises UserError when the source is missing or too small.
    """
    files = list_files(spec)
    listing = _digest_listing(files, spec)
    cache_dir.mkdir(parents=True, exist_ok=True)
    with _lock(cache_dir / ".lock"):
        tokenizer = tokenizer or _find_tokenizer(spec, files, cache_dir / "tokenizers" / f"{listing}-{vocab_size}.json")
        folder = cache_dir / "tokens" / f"{listing}-{tokenizer.digest[:32]}"
        tokens = _find_tokens(spec, files, folder, tokenizer)
    return PreparedData(
        train=open_shard(folder, tokens.train, tokens.dtype),
        validation=open_shard(folder, tokens.validation, tokens.dtype),
        tokenizer=tokenizer,
        digest=tokens.digest,
    )


def _find_tokenizer(spec: DataSpec, files: list[SourceFile], path: Path) -> Tokenizer:
    if path.exists():
        return Tokenizer(path.read_bytes())
    train, _ = split_documents(list(read_documents(files)), spec)
    vocab_size = int(path.stem.rpartition("-")[2])
    tokenizer = train_tokenizer([document.text for document in train], vocab_size)
    path.parent.mkdir(parents=True, exist_ok=True)
    building = path.with_name(f".{path.name}.{os.getpid()}")
    write_file(building, tokenizer.definition)
    building.replace(path)
    return tokenizer


def _find_tokens(spec: DataSpec, files: list[SourceFile], folder: Path, tokenizer: Tokenizer) -> TokenSet:
    if tokens := read_token_set(folder):
        return tokens
    shutil.rmtree(folder, ignore_errors=True)
    train, validation = split_documents(list(read_documents(files)), spec)
    return write_token_set(
        folder,
        train=_encode(train, tokenizer),
        validation=_encode(validation, tokenizer),
        tokenizer=tokenizer.digest,
        vocab_size=tokenizer.vocab_size,
        end_of_text=END_OF_TEXT_ID,
    )


def _encode(documents: list[Document], tokenizer: Tokenizer) -> Iterator[list[int]]:
    return tokenizer.encode_documents(document.text for document in documents)


def _digest_listing(files: list[SourceFile], spec: DataSpec) -> str:
    """What the result depends on, as far as a listing tells: names, sizes, times and the split."""
    listing = [(file.name, str(file.path), file.size_bytes, file.modified_ns) for file in files]
    parts = [FORMAT_VERSION, spec.validation_share, spec.seed, listing]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Hold a lock that the kernel drops with the process. A file system without locks costs only repeated work."""
    with path.open("a") as stream:
        with contextlib.suppress(OSError):
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield
