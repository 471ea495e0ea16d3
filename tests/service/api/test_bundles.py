"""Bundles: kept under their digest when they are safe to unpack, refused otherwise, in bounded memory (faults 40, 42)."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from typing import Any

import obstore
import pytest
from fastapi.testclient import TestClient

from service.context import Context
from training.protocol.bucket import bundle_key

pytestmark = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
GZIP = {"content-type": "application/gzip"}


def pack(*members: tuple[str, bytes | tarfile.TarInfo]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in members:
            if isinstance(content, tarfile.TarInfo):
                archive.addfile(content)
                continue
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def special(name: str, kind: bytes, target: str = "") -> tuple[str, tarfile.TarInfo]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return name, info


def test_a_bundle_is_kept_once_and_names_a_workdir(client: TestClient, context: Context, spec: dict[str, Any]) -> None:
    data = pack(("train.py", b"print(1)"), special("link.py", tarfile.SYMTYPE, "./train.py"))
    digest = hashlib.sha256(data).hexdigest()
    for _ in range(2):
        answer = client.post("/v1/bundles", content=data, headers=GZIP)
        assert answer.status_code == 201
        assert answer.json() == {"digest": digest, "size_bytes": len(data), "file_count": 2, "unpacked_bytes": 8}
    assert bytes(obstore.get(context.bucket, bundle_key(digest)).bytes()) == data
    assert client.post("/v1/jobs", json={**spec, "workdir": digest}).status_code == 201
    assert list((context.settings.data_dir / "uploads").iterdir()) == []


@pytest.mark.parametrize(
    "member",
    [
        ("../evil.py", b"x"),
        ("/etc/evil", b"x"),
        ("a/../../evil", b"x"),
        ("a\\..\\evil", b"x"),
        ("bell\a", b"x"),
        ("x" * 2000, b"x"),
        special("out", tarfile.SYMTYPE, "../out"),
        special("a/b/out", tarfile.SYMTYPE, "../../../out"),
        special("abs", tarfile.SYMTYPE, "/etc/passwd"),
        special("hard", tarfile.LNKTYPE, "train.py"),
        special("pipe", tarfile.FIFOTYPE),
        special("device", tarfile.CHRTYPE),
    ],
    ids=lambda member: repr(member[0])[:20],
)
def test_a_member_that_leads_out_or_is_special_is_refused(
    client: TestClient, context: Context, member: tuple[str, Any]
) -> None:
    data = pack(("train.py", b"x"), member)
    answer = client.post("/v1/bundles", content=data, headers=GZIP)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_bundle")
    with pytest.raises(FileNotFoundError):
        obstore.head(context.bucket, bundle_key(hashlib.sha256(data).hexdigest()))
    assert list((context.settings.data_dir / "uploads").iterdir()) == []


@pytest.mark.parametrize(
    "data",
    [b"", b"junk", gzip.compress(b"junk" * 500), pack(("a", b"x" * 9999))[:-20]],
    ids=["empty", "junk", "gzip of junk", "cut short"],
)
def test_what_is_no_archive_is_refused(client: TestClient, data: bytes) -> None:
    answer = client.post("/v1/bundles", content=data, headers=GZIP)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_bundle")


def test_other_media_types_are_refused(client: TestClient) -> None:
    assert client.post("/v1/bundles", content=b"{}", headers={"content-type": "application/json"}).status_code == 415
