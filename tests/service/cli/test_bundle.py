"""A workdir as a bundle: the same bytes for the same files, and nothing from outside the folder."""

from __future__ import annotations

import io
import os
import tarfile
import time
from pathlib import Path

import pytest

from service.cli.errors import BadInput
from service.cli.spec.bundle import build_bundle


def write_tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def names_in(folder: Path) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(build_bundle(folder).content)) as tar:
        return tar.getnames()


def test_the_same_files_give_the_same_bytes(tmp_path: Path) -> None:
    files = {"train.py": "print(1)", "lib/a.py": "a", "lib/b.py": "b"}
    one = write_tree(tmp_path / "one", files)
    two = write_tree(tmp_path / "two", dict(reversed(files.items())))
    for path in two.rglob("*.py"):
        os.utime(path, (1, 1))
    first, second = build_bundle(one), build_bundle(two)
    assert first == second
    (two / "train.py").write_text("print(2)")
    assert build_bundle(two).sha256 != first.sha256


def test_the_time_of_packing_does_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_tree(tmp_path, {"a.py": "a"})
    before = build_bundle(folder).sha256
    monkeypatch.setattr(time, "time", lambda: 4_000_000_000.0)
    assert build_bundle(folder).sha256 == before


def test_what_nobody_wants_stays_behind(tmp_path: Path) -> None:
    write_tree(
        tmp_path,
        {
            ".git/config": "",
            ".venv/x": "",
            "pkg/__pycache__/m.pyc": "",
            "pkg/m.py": "",
            "data/big.bin": "",
            "notes.txt": "",
            "sub/notes.txt": "",
            "runs/1/log": "",
            ".godwitignore": "# results\n/data\nnotes.txt\nruns/\n",
        },
    )
    assert names_in(tmp_path) == [".godwitignore", "pkg/m.py"]


def test_executables_stay_executable(tmp_path: Path) -> None:
    script = write_tree(tmp_path, {"run.sh": "#!/bin/sh"}) / "run.sh"
    script.chmod(0o700)
    with tarfile.open(fileobj=io.BytesIO(build_bundle(tmp_path).content)) as tar:
        assert tar.getmember("run.sh").mode == 0o755


def test_links_that_lead_out_are_refused(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s")
    folder = write_tree(tmp_path / "work", {"a.py": "a"})
    (folder / "link").symlink_to(secret)
    with pytest.raises(BadInput, match="link is a link that leads out"):
        build_bundle(folder)


def test_linked_folders_and_broken_links_are_refused(tmp_path: Path) -> None:
    folder = write_tree(tmp_path / "work", {"a.py": "a"})
    (folder / "up").symlink_to(tmp_path, target_is_directory=True)
    with pytest.raises(BadInput, match="up is a link"):
        build_bundle(folder)
    (folder / "up").unlink()
    (folder / "gone").symlink_to(folder / "nowhere")
    with pytest.raises(BadInput, match="gone cannot be read"):
        build_bundle(folder)


def test_links_inside_travel_as_files(tmp_path: Path) -> None:
    folder = write_tree(tmp_path, {"a.py": "content"})
    (folder / "b.py").symlink_to("a.py")
    with tarfile.open(fileobj=io.BytesIO(build_bundle(folder).content)) as tar:
        member = tar.extractfile("b.py")
        assert member is not None
        assert member.read() == b"content"


def test_special_files_are_refused(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a.py": "a"})
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadInput, match="pipe is not a regular file"):
        build_bundle(tmp_path)


def test_too_large_names_the_largest_files(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a.py": "a"})
    (tmp_path / "model.bin").write_bytes(os.urandom(200_000))
    with pytest.raises(BadInput, match=r"model\.bin \(0\.2 MiB\)"):
        build_bundle(tmp_path, max_bytes=100_000)


def test_no_folder_and_an_empty_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="not a folder"):
        build_bundle(tmp_path / "none")
    with pytest.raises(BadInput, match="no files"):
        build_bundle(tmp_path)
