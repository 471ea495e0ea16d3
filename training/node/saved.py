"""Checkpoints as the ranks leave them on the node, and what of them is still to be uploaded."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path

from training.protocol.manifest import MANIFEST_NAME, MAX_MANIFEST_BYTES, Manifest, ManifestFile

_STEP = re.compile(r"^\d{1,12}$")
MAX_FILES = 100_000
KEPT_LOCALLY = 2


class SavedInvalid(Exception):
    """A local folder that cannot become a checkpoint; uploading it again would not help."""


@dataclass(frozen=True, kw_only=True)
class Author:
    """Who a manifest written here is from."""

    fence: int
    world_size: int


def find_saved(folder: Path, *, is_plain_command: bool) -> dict[int, Path]:
    """Finished folders by step. Those of the bundled runtime are finished by their manifest."""
    try:
        found = {int(path.name): path for path in folder.iterdir() if _STEP.match(path.name) and path.is_dir()}
    except FileNotFoundError:
        return {}
    return {step: path for step, path in found.items() if is_plain_command or (path / MANIFEST_NAME).is_file()}


def choose_newest(found: Set[int], handled: Set[int]) -> tuple[int | None, frozenset[int]]:
    """The step to upload next, and the older ones that it makes superfluous."""
    pending = set(found) - set(handled)
    if not pending:
        return None, frozenset()
    newest = max(pending)
    return newest, frozenset(pending - {newest})


def choose_prunable(found: Set[int], handled: Set[int]) -> frozenset[int]:
    """Local folders that may go: none of the newest, and none still to be uploaded."""
    newest = set(sorted(found)[-KEPT_LOCALLY:])
    return frozenset((set(found) & set(handled)) - newest)


def read_saved(folder: Path, step: int, author: Author) -> Manifest:
    """The folder's manifest, written now for a plain command that wrote none. Errors: SavedInvalid, OSError."""
    path = folder / MANIFEST_NAME
    if not path.exists():
        manifest = _describe(folder, step, author)
        temporary = path.with_suffix(".tmp")
        temporary.write_bytes(manifest.to_bytes())
        temporary.rename(path)
        return manifest
    if path.stat().st_size > MAX_MANIFEST_BYTES:
        raise SavedInvalid(f"{MANIFEST_NAME} is too large")
    try:
        manifest = Manifest.model_validate_json(path.read_bytes())
    except ValueError as error:
        raise SavedInvalid(f"{MANIFEST_NAME} is not a manifest") from error
    if (manifest.step, manifest.fence) != (step, author.fence):
        raise SavedInvalid(f"{MANIFEST_NAME} is of step {manifest.step}, fence {manifest.fence}")
    return manifest


def _describe(folder: Path, step: int, author: Author) -> Manifest:
    paths = sorted(path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    paths = [path for path in paths if path.name != f"{Path(MANIFEST_NAME).stem}.tmp"]
    if not paths:
        raise SavedInvalid("the folder is empty")
    if len(paths) > MAX_FILES:
        raise SavedInvalid(f"more than {MAX_FILES} files")
    files = tuple(_describe_file(folder, path) for path in paths)
    return Manifest(step=step, fence=author.fence, world_size=author.world_size, files=files)


def _describe_file(folder: Path, path: Path) -> ManifestFile:
    name = path.relative_to(folder).as_posix()
    if path.is_symlink() or not path.is_file():
        raise SavedInvalid(f"{name}: only regular files can be kept")
    hasher, size_bytes = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(8 * 1024 * 1024):
            hasher.update(chunk)
            size_bytes += len(chunk)
    try:
        return ManifestFile(path=name, size_bytes=size_bytes, sha256=hasher.hexdigest())
    except ValueError as error:
        raise SavedInvalid(f"{name[:200]}: file names hold letters, digits and . _ / = + - alone") from error
