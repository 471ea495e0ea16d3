"""A folder as a bundle: one tar.gz whose bytes depend on the files' names, contents and executable bits alone."""

from __future__ import annotations

import fnmatch
import gzip
import hashlib
import io
import os
import stat
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from service.cli.errors import BadInput

MAX_BUNDLE_BYTES = 64 * 1024 * 1024
MAX_UNPACKED_BYTES = 512 * 1024 * 1024
MAX_FILES = 20_000
IGNORE_FILE = ".godwitignore"
ALWAYS_IGNORED = (".git", ".hg", ".svn", ".venv", "venv", "node_modules", "__pycache__", "*.pyc", ".DS_Store")


@dataclass(frozen=True, kw_only=True, slots=True)
class Bundle:
    """The bytes, and the digest that names them."""

    content: bytes
    sha256: str
    num_files: int


@dataclass(frozen=True, kw_only=True, slots=True)
class _Entry:
    path: Path
    name: str
    size_bytes: int
    is_executable: bool


def build_bundle(folder: Path, *, max_bytes: int = MAX_BUNDLE_BYTES) -> Bundle:
    """Errors: BadInput for a missing folder, links that lead out, special files, or too much."""
    if not folder.is_dir():
        raise BadInput(f"workdir: {folder} is not a folder", remedy="name a folder, relative to the spec file")
    entries = sorted(_iter_files(folder, read_patterns(folder)), key=lambda entry: entry.name)
    _check_size(folder, entries)
    content = _pack(folder, entries, max_bytes)
    return Bundle(content=content, sha256=hashlib.sha256(content).hexdigest(), num_files=len(entries))


def _pack(folder: Path, entries: list[_Entry], max_bytes: int) -> bytes:
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=buffer, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for entry in entries:
            _add(tar, entry)
            if buffer.tell() > max_bytes:
                raise _too_large(folder, entries, f"packed, it is more than {max_bytes / 2**20:.0f} MiB")
    return buffer.getvalue()


def read_patterns(folder: Path) -> tuple[str, ...]:
    """What to leave out: always the same few, and the lines of `.godwitignore` (`#` comments; no negation)."""
    try:
        text = (folder / IGNORE_FILE).read_text("utf-8")
    except FileNotFoundError:
        return ALWAYS_IGNORED
    except (OSError, ValueError) as error:
        raise BadInput(f"{IGNORE_FILE} cannot be read: {error}", remedy="save it as UTF-8 text") from error
    lines = (line.strip() for line in text.splitlines())
    return ALWAYS_IGNORED + tuple(line for line in lines if line and not line.startswith(("#", "!")))


def is_ignored(name: str, *, is_folder: bool, patterns: tuple[str, ...]) -> bool:
    """`name` is relative, with slashes. A pattern with a slash matches from the top, any other at every level."""
    for pattern in patterns:
        if pattern.endswith("/") and not is_folder:
            continue
        bare = pattern.strip("/")
        subject = name if "/" in pattern.rstrip("/") else name.rsplit("/", 1)[-1]
        if fnmatch.fnmatchcase(subject, bare):
            return True
    return False


def _iter_files(folder: Path, patterns: tuple[str, ...]) -> Iterator[_Entry]:
    root = folder.resolve()
    for parent, folders, files in os.walk(root):
        prefix = Path(parent).relative_to(root)
        folders[:] = [d for d in folders if not is_ignored((prefix / d).as_posix(), is_folder=True, patterns=patterns)]
        for name in [*files, *(d for d in folders if (Path(parent) / d).is_symlink())]:
            relative = (prefix / name).as_posix()
            if not is_ignored(relative, is_folder=False, patterns=patterns):
                yield _inspect(root, Path(parent) / name, relative)


def _inspect(root: Path, path: Path, name: str) -> _Entry:
    leave_out = f"remove it or add it to {IGNORE_FILE}"
    try:
        name.encode("utf-8")
        target = path.resolve(strict=True)
        status = target.stat()
    except UnicodeEncodeError as error:
        raise BadInput(f"workdir: the name {name!r} is not UTF-8", remedy=leave_out) from error
    except (OSError, RuntimeError) as error:
        raise BadInput(f"workdir: {name} cannot be read (a broken link?)", remedy=leave_out) from error
    if path.is_symlink() and not target.is_relative_to(root):
        raise BadInput(f"workdir: {name} is a link that leads out of the folder", remedy=leave_out)
    if not stat.S_ISREG(status.st_mode):
        raise BadInput(f"workdir: {name} is not a regular file", remedy=leave_out)
    return _Entry(path=target, name=name, size_bytes=status.st_size, is_executable=bool(status.st_mode & 0o100))


def _add(tar: tarfile.TarFile, entry: _Entry) -> None:
    """Owner, times and the rest of the mode say nothing about the work, so they do not travel."""
    try:
        data = entry.path.read_bytes()
    except OSError as error:
        raise BadInput(f"workdir: {entry.name}: {error.strerror}", remedy=f"add it to {IGNORE_FILE}") from error
    info = tarfile.TarInfo(entry.name)
    info.size = len(data)
    info.mode = 0o755 if entry.is_executable else 0o644
    tar.addfile(info, io.BytesIO(data))


def _check_size(folder: Path, entries: list[_Entry]) -> None:
    total = sum(entry.size_bytes for entry in entries)
    if not entries:
        raise BadInput(f"workdir: {folder} has no files", remedy="name the folder that holds your code")
    if len(entries) > MAX_FILES:
        raise BadInput(
            f"workdir: {len(entries):,} files, the limit is {MAX_FILES:,}", remedy=f"leave some out by {IGNORE_FILE}"
        )
    if total > MAX_UNPACKED_BYTES:
        raise _too_large(folder, entries, f"{total / 2**20:.0f} MiB, the limit is {MAX_UNPACKED_BYTES / 2**20:.0f}")


def _too_large(folder: Path, entries: list[_Entry], why: str) -> BadInput:
    largest = sorted(entries, key=lambda entry: -entry.size_bytes)[:5]
    names = ", ".join(f"{entry.name} ({entry.size_bytes / 2**20:.1f} MiB)" for entry in largest)
    return BadInput(
        f"workdir: {folder} is too large: {why}. The largest files: {names}",
        remedy=f"leave out data and results by {IGNORE_FILE}; data belongs in the bucket",
    )
