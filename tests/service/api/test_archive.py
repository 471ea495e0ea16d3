"""Archives are looked into in bounded memory and time (faults 40, 42)."""

from __future__ import annotations

import gzip
import tarfile
import tracemalloc
from pathlib import Path

import pytest

from service.bundles.archive import BundleRefused, inspect_archive
from tests.service.api.test_bundles import pack


def bomb(path: Path, header_size: int, kind: bytes) -> Path:
    """A small archive whose first member says that it is huge, followed by as many zeros."""
    info = tarfile.TarInfo("bomb")
    info.type, info.size = kind, header_size
    with gzip.open(path, "wb", compresslevel=9) as file:
        file.write(info.tobuf(tarfile.GNU_FORMAT))
        for _ in range(header_size >> 20):
            file.write(bytes(1 << 20))
    return path


@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_zip_bomb_is_refused_in_little_memory(tmp_path: Path, kind: bytes) -> None:
    path = bomb(tmp_path / "bomb.tar.gz", 128 << 20, kind)
    assert path.stat().st_size < 1 << 20
    tracemalloc.start()
    with pytest.raises(BundleRefused):
        inspect_archive(path, max_unpacked_bytes=64 << 20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20


def test_zeros_behind_the_archive_count_too(tmp_path: Path) -> None:
    path = tmp_path / "padded.tar.gz"
    path.write_bytes(pack(("a", b"x")) + gzip.compress(bytes(80 << 20)))
    with pytest.raises(BundleRefused, match="unpacks to more"):
        inspect_archive(path, max_unpacked_bytes=64 << 20)


def test_too_many_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "many.tar.gz"
    path.write_bytes(pack(*((f"f{n}", b"") for n in range(11))))
    with pytest.raises(BundleRefused, match="more than 10 files"):
        inspect_archive(path, max_files=10)
