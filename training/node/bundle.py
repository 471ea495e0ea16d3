"""The job's workdir bundle: fetched, checked against its digest, and unpacked without trusting a byte of it."""

from __future__ import annotations

import posixpath
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

MAX_BUNDLE_BYTES = 512 * 1024 * 1024
MAX_UNPACKED_BYTES = 4 * 1024 * 1024 * 1024
MAX_MEMBERS = 100_000
MAX_PATH_CHARACTERS = 1024


class BundleRefused(Exception):
    """The bundle is not one that may be unpacked; the message names the member."""


def unpack_bundle(
    archive: Path, target: Path, *, max_bytes: int = MAX_UNPACKED_BYTES, max_members: int = MAX_MEMBERS
) -> None:
    """Unpack files, folders and links that stay inside into `target`. Errors: BundleRefused, OSError.

    Links are made last, so that no file is ever written through one.
    """
    links: list[tuple[Path, str]] = []
    try:
        with tarfile.open(archive, "r:gz") as bundle:
            for member in _bounded(bundle, max_bytes, max_members):
                path = target / _inside(member.name)
                if member.issym():
                    links.append((path, _link_inside(member)))
                elif member.isdir():
                    path.mkdir(parents=True, exist_ok=True)
                elif member.isreg():
                    _write_file(bundle, member, path)
                else:
                    raise BundleRefused(f"{member.name}: only files, folders and symbolic links are unpacked")
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise BundleRefused(f"not a gzip-compressed tar archive: {error}") from error
    for path, destination in links:
        _make_link(path, destination)


def _bounded(bundle: tarfile.TarFile, max_bytes: int, max_members: int) -> Iterator[tarfile.TarInfo]:
    size_bytes = 0
    for number, member in enumerate(bundle, start=1):
        size_bytes += max(0, member.size)
        if number > max_members:
            raise BundleRefused(f"more than {max_members} members")
        if size_bytes > max_bytes:
            raise BundleRefused(f"{member.name}: unpacks to more than {max_bytes} bytes")
        yield member


def _inside(name: str) -> str:
    path = posixpath.normpath(name)
    if not name or "\0" in name or len(name) > MAX_PATH_CHARACTERS:
        raise BundleRefused(f"{name[:80]!r}: not a usable path")
    if path.startswith("/") or ".." in name.split("/"):
        raise BundleRefused(f"{name}: outside the bundle")
    return path


def _link_inside(member: tarfile.TarInfo) -> str:
    target = posixpath.normpath(posixpath.join(posixpath.dirname(member.name), member.linkname))
    if member.linkname.startswith("/") or target == ".." or target.startswith("../"):
        raise BundleRefused(f"{member.name}: links to {member.linkname}, outside the bundle")
    return member.linkname


def _write_file(bundle: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    source = bundle.extractfile(member)
    if source is None:
        raise BundleRefused(f"{member.name}: no content")
    path.parent.mkdir(parents=True, exist_ok=True)
    with source, path.open("wb") as file:
        shutil.copyfileobj(source, file)
    # The owner's own bits alone: no set-uid, nothing writable by others.
    path.chmod(0o600 | (member.mode & 0o100) | (0o044 if member.mode & 0o044 else 0))


def _make_link(path: Path, destination: str) -> None:
    if any(parent.is_symlink() for parent in path.parents):
        raise BundleRefused(f"{path.name}: lies behind another link")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.symlink_to(destination)
    except FileExistsError as error:
        raise BundleRefused(f"{path.name}: the name is used twice") from error
