"""Where text comes from: files under a folder, in sorted order, cut into documents.

`stdlib` names the sources of this machine's own Python, without its tests.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from training.errors import UserError
from training.protocol.train_spec import DataSpec

STDLIB = "stdlib"
STDLIB_EXCLUDED = frozenset({"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"})
BLOCK_BYTES = 64 * 1024
"""A larger file is cut into documents of about this size, at line ends, so that one file too can be split."""


@dataclass(frozen=True, kw_only=True)
class SourceFile:
    """One file to read; `name` is relative to the source, with slashes, the same on every machine."""

    name: str
    path: Path
    size_bytes: int
    modified_ns: int


@dataclass(frozen=True, kw_only=True)
class Document:
    name: str
    text: str


def list_files(spec: DataSpec) -> list[SourceFile]:
    """The files that the spec names, sorted by name, as many as fit in `max_bytes`.

    Raises UserError when there are none.
    """
    root = find_root(spec.source)
    paths = [root] if root.is_file() else sorted(walk(root, is_stdlib=spec.source == STDLIB))
    files, total_bytes = [], 0
    for path in paths:
        name = path.name if root.is_file() else path.relative_to(root).as_posix()
        if path != root and not any(fnmatch.fnmatch(path.name, pattern) for pattern in spec.include):
            continue
        stat = path.stat()
        if spec.max_bytes is not None and total_bytes + stat.st_size > spec.max_bytes:
            break
        total_bytes += stat.st_size
        files.append(SourceFile(name=name, path=path, size_bytes=stat.st_size, modified_ns=stat.st_mtime_ns))
    if total_bytes == 0:
        limit = "" if spec.max_bytes is None else f" within data.max_bytes={spec.max_bytes}"
        raise UserError(f"data.source: no text in {spec.source} matches data.include={list(spec.include)}{limit}")
    return files


def find_root(source: str) -> Path:
    """The folder or file to read. Raises UserError when it is not there."""
    root = Path(sysconfig.get_paths()["stdlib"]) if source == STDLIB else Path(source).expanduser()
    if not root.exists():
        raise UserError(f"data.source: {source} is not there on this node")
    return root


def walk(root: Path, *, is_stdlib: bool) -> Iterator[Path]:
    """Every regular file below a folder; links are not followed."""
    for folder, subfolders, names in os.walk(root):
        subfolders[:] = [name for name in subfolders if not (is_stdlib and name in STDLIB_EXCLUDED)]
        yield from (path for name in names if (path := Path(folder) / name).is_file() and not path.is_symlink())


def read_documents(files: list[SourceFile]) -> Iterator[Document]:
    """Decode the files one by one, cutting large ones; bytes that are not UTF-8 become the replacement character."""
    for file in files:
        with file.path.open("rb") as stream:
            for index, lines in enumerate(iter(lambda stream=stream: stream.readlines(BLOCK_BYTES), [])):
                text = b"".join(lines).decode("utf-8", "replace")
                yield Document(name=f"{file.name}#{index}", text=text)


def split_documents(documents: list[Document], spec: DataSpec) -> tuple[list[Document], list[Document]]:
    """Training and validation parts, by a hash of each document's name: an edit elsewhere moves nothing.

    Raises UserError when one part would be empty.
    """
    if len(documents) < 2:
        raise UserError(f"data.source: {spec.source} holds a single short document; there is nothing to validate on")
    keys = {document.name: _split_key(document.name, spec.seed) for document in documents}
    lowest = min(keys.values())
    chosen = {name for name, key in keys.items() if key < spec.validation_share or key == lowest}
    train = [document for document in documents if document.name not in chosen]
    validation = [document for document in documents if document.name in chosen]
    if not train:
        raise UserError("data.validation_share: leaves no text to train on")
    return train, validation


def _split_key(name: str, seed: int) -> float:
    """A number in [0, 1), the same on every machine."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{name}".encode()).digest()[:8], "big") / 2**64
