"""Checkpoint folders on disk: written beside, hashed, flushed, and renamed into place; verified before use.

`<root>/<step>` exists only complete: its files first, `manifest.json` last, then the folder's rename.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from training.protocol.manifest import MANIFEST_NAME, MAX_MANIFEST_BYTES, Manifest, ManifestFile

SAVING_PREFIX = ".saving-"
REPLACED_PREFIX = ".replaced-"


class UnusableCheckpointError(Exception):
    """A folder is not a complete, unaltered checkpoint; the message says why."""


def remove_unfinished(root: Path) -> None:
    """Delete what a killed writer left."""
    for folder in root.glob(".*"):
        if folder.name.startswith((SAVING_PREFIX, REPLACED_PREFIX)):
            shutil.rmtree(folder, ignore_errors=True)


def open_building(root: Path, step: int) -> Path:
    """An empty folder to write step `step` into. Raises OSError."""
    building = root / f"{SAVING_PREFIX}{step}"
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir(parents=True)
    return building


def describe_file(path: Path) -> ManifestFile:
    """Size and hash, from the bytes read again, after a flush to disk."""
    with path.open("rb") as stream:
        os.fsync(stream.fileno())
        sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
        return ManifestFile(path=path.name, size_bytes=stream.tell(), sha256=sha256)


def commit(building: Path, root: Path, manifest: Manifest) -> Path:
    """Write the manifest, flush, and rename the folder to its step. An older folder of that step is replaced."""
    path = building / MANIFEST_NAME
    path.write_bytes(manifest.to_bytes())
    sync(path)
    sync(building)
    folder = root / str(manifest.step)
    if folder.exists():
        replaced = root / f"{REPLACED_PREFIX}{manifest.step}"
        shutil.rmtree(replaced, ignore_errors=True)
        folder.rename(replaced)
        building.rename(folder)
        shutil.rmtree(replaced, ignore_errors=True)
    else:
        building.rename(folder)
    sync(root)
    return folder


def sync(path: Path) -> None:
    """Flush a file, or a folder's entries, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def verify(folder: Path) -> Manifest:
    """Read every byte again and compare with the manifest. Raises UnusableCheckpointError."""
    try:
        with (folder / MANIFEST_NAME).open("rb") as stream:
            manifest = Manifest.model_validate_json(stream.read(MAX_MANIFEST_BYTES))
        for file in manifest.files:
            found = describe_file(folder / file.path)
            if (found.size_bytes, found.sha256) != (file.size_bytes, file.sha256):
                raise UnusableCheckpointError(f"{folder.name}/{file.path} is not what the manifest says")
    except FileNotFoundError as error:
        raise UnusableCheckpointError(f"{Path(str(error.filename)).name} is missing in {folder}") from error
    except (OSError, ValueError) as error:
        raise UnusableCheckpointError(f"{folder} cannot be read: {type(error).__name__}") from error
    return manifest


def find_newest_verified(root: Path) -> tuple[Path | None, Mapping[Path, str]]:
    """The newest checkpoint that verifies, and what was wrong with each newer one."""
    faults: dict[Path, str] = {}
    steps = sorted(
        (int(path.name) for path in root.glob("*") if path.name.isdigit() and path.name.isascii()), reverse=True
    )
    for folder in (root / str(step) for step in steps):
        try:
            verify(folder)
        except UnusableCheckpointError as error:
            faults[folder] = str(error)
        else:
            return folder, faults
    return None, faults
