"""Bundles are unpacked inside their folder, or refused."""

from __future__ import annotations

import io
import tarfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from training.node.bundle import BundleRefused, unpack_bundle

NOW = datetime(2031, 1, 1, tzinfo=UTC)

# --- grant


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", size: int = 1) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, size if kind == tarfile.REGTYPE else 0
    return info


def write_bundle(path: Path, *members: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz") as bundle:
        for info in members:
            bundle.addfile(info, io.BytesIO(b"x" * info.size))
    return path


@pytest.mark.parametrize(
    "members",
    [
        [member("../up")],
        [member("/absolute")],
        [member("a/../../up")],
        [member("out", tarfile.SYMTYPE, "../../etc")],
        [member("out", tarfile.SYMTYPE, "/etc")],
        [member("hard", tarfile.LNKTYPE, "/etc/hostname")],
        [member("device", tarfile.CHRTYPE)],
        [member("pipe", tarfile.FIFOTYPE)],
        [member("big", size=5000)],
        [member(f"f{number}") for number in range(20)],
        [member("d", tarfile.SYMTYPE, "e"), member("d/f", tarfile.SYMTYPE, "g")],
        [member("x" * 2000)],
    ],
)
def test_bundle_attacks_are_refused(tmp_path: Path, members: list[tarfile.TarInfo]) -> None:
    archive = write_bundle(tmp_path / "bundle.tar.gz", *members)
    target = tmp_path / "work"
    target.mkdir()
    with pytest.raises(BundleRefused):
        unpack_bundle(archive, target, max_bytes=4000, max_members=10)
    assert {path.name for path in tmp_path.iterdir()} == {"bundle.tar.gz", "work"}


def test_a_file_is_never_written_through_a_link_of_the_bundle(tmp_path: Path) -> None:
    target = tmp_path / "work"
    target.mkdir()
    archive = write_bundle(tmp_path / "b.tar.gz", member("d", tarfile.SYMTYPE, "real"), member("d/file"))
    with pytest.raises(BundleRefused):
        unpack_bundle(archive, target)


def test_files_folders_and_inner_links_are_unpacked_with_modest_modes(tmp_path: Path) -> None:
    target = tmp_path / "work"
    target.mkdir()
    script = member("bin/run.sh")
    script.mode = 0o4777
    unpack_bundle(write_bundle(tmp_path / "b.tar.gz", script, member("again", tarfile.SYMTYPE, "bin/run.sh")), target)
    assert (target / "again").read_bytes() == b"x"
    assert (target / "bin/run.sh").stat().st_mode & 0o7777 == 0o744


@pytest.mark.parametrize("content", [b"", b"not a tar", b"\x1f\x8b" + b"\0" * 50])
def test_what_is_no_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    archive = tmp_path / "b.tar.gz"
    archive.write_bytes(content)
    with pytest.raises(BundleRefused):
        unpack_bundle(archive, tmp_path)
