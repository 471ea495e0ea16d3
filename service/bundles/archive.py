"""Looks into an uploaded archive without unpacking it, in bounded memory and time."""

from __future__ import annotations

import gzip
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

MAX_FILES = 20_000
MAX_UNPACKED_BYTES = 1024 * 1024 * 1024
MAX_PATH_CHARACTERS = 1024
_MAX_READ_BYTES = 1024 * 1024
"""No header needs more; an archive that says so wants the reader's memory."""
_SKIP_BYTES = 256 * 1024
_PLAIN_TYPES = frozenset({tarfile.REGTYPE, tarfile.AREGTYPE})


class BundleRefused(Exception):
    """Not a bundle that a node may unpack; says why, naming the member."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ArchiveFacts:
    file_count: int
    unpacked_bytes: int


def inspect_archive(
    path: Path, *, max_unpacked_bytes: int = MAX_UNPACKED_BYTES, max_files: int = MAX_FILES
) -> ArchiveFacts:
    """Errors: BundleRefused."""
    try:
        with path.open("rb") as file, gzip.GzipFile(fileobj=file) as unzipped:
            return _inspect(_Bounded(unzipped, max_unpacked_bytes), max_files)
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError, UnicodeError, ValueError) as error:
        raise BundleRefused("not a tar.gz archive, or a damaged one") from error


def _inspect(stream: _Bounded, max_files: int) -> ArchiveFacts:
    count = total = 0
    with tarfile.open(fileobj=stream, mode="r:") as archive:  # type: ignore[call-overload]
        while (member := archive.next()) is not None:
            count += 1
            total += member.size
            archive.members.clear()  # tarfile remembers every member; nothing here looks back
            if count > max_files:
                raise BundleRefused(f"more than {max_files} files")
            _check_member(member)
            stream.check_total(total)
    stream.drain()
    return ArchiveFacts(file_count=count, unpacked_bytes=total)


def _check_member(member: tarfile.TarInfo) -> None:
    name = repr(member.name)[:120]
    if not _is_inside(member.name):
        raise BundleRefused(f"{name}: the path leads out of the archive, or is not plain")
    if member.sparse is not None or not (member.type in _PLAIN_TYPES or member.isdir() or member.issym()):
        raise BundleRefused(f"{name}: neither a file, a folder nor a symbolic link")
    if member.issym() and not _is_link_inside(member):
        raise BundleRefused(f"{name}: the link leads out of the archive")


def _is_inside(name: str) -> bool:
    is_plain = name.isprintable() and "\\" not in name and 0 < len(name) <= MAX_PATH_CHARACTERS
    return is_plain and not name.startswith("/") and ".." not in PurePosixPath(name).parts


def _is_link_inside(member: tarfile.TarInfo) -> bool:
    target = member.linkname
    if not target.isprintable() or target.startswith("/") or "\\" in target:
        return False
    depth = len([part for part in PurePosixPath(member.name).parent.parts if part != "."])
    for part in PurePosixPath(target).parts:
        depth += -1 if part == ".." else 0 if part == "." else 1
        if depth < 0:
            return False
    return True


class _Bounded:
    """What tarfile needs of a file, refusing to unpack more than the bound or to hold much at once."""

    def __init__(self, file: BinaryIO | gzip.GzipFile, max_bytes: int) -> None:
        self._file, self._max_bytes = file, max_bytes

    def read(self, size: int = -1) -> bytes:
        if size < 0 or size > _MAX_READ_BYTES:
            raise BundleRefused("a header in the archive is too large")
        self.check_total(self._file.tell() + size - tarfile.RECORDSIZE)
        return self._file.read(size)

    def seek(self, position: int) -> int:
        self.check_total(position)
        return self._file.seek(position)

    def tell(self) -> int:
        return self._file.tell()

    def drain(self) -> None:
        """To the end: what follows the archive counts too, and the checksum must be right."""
        while self._file.read(_SKIP_BYTES):
            self.check_total(self._file.tell() - tarfile.RECORDSIZE)

    def check_total(self, num_bytes: int) -> None:
        if num_bytes > self._max_bytes:
            raise BundleRefused(f"unpacks to more than {self._max_bytes} bytes")
