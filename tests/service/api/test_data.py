"""What jobs leave behind: metrics, logs, checkpoints, outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import obstore
import pytest
from fastapi.testclient import TestClient

from service.context import Context
from service.db.models import Checkpoint, LogLineRow, Metric
from tests.service.api.stand import Stand, at


@pytest.fixture
def path(client: TestClient, spec: dict[str, Any]) -> str:
    return f"/v1/jobs/{client.post('/v1/jobs', json=spec).json()['id']}"


def job_of(path: str) -> str:
    return path.rsplit("/", 1)[-1]


def test_metrics_are_thinned_evenly_and_keep_the_last(client: TestClient, path: str, stand: Stand) -> None:
    rows = [
        Metric(
            job_id=job_of(path),
            step=step,
            fence=1,
            at=at(step),
            values={"loss/train": 1 / step} | ({"loss/validation": 2.0} if step % 10 == 0 else {}),
        )
        for step in range(1, 101)
    ]
    stand.add(*rows)
    whole = client.get(f"{path}/metrics").json()
    assert [point["step"] for point in whole["points"]] == list(range(1, 101))
    thin = client.get(f"{path}/metrics", params={"max_points": 10, "names": "loss/train"}).json()
    assert [point["step"] for point in thin["points"]] == list(range(10, 101, 10))
    assert thin["total_points"] == 100
    assert thin["points"][-1]["values"] == {"loss/train": 0.01}
    sparse = client.get(f"{path}/metrics", params={"names": "loss/validation", "from_step": 15, "to_step": 40}).json()
    assert [point["step"] for point in sparse["points"]] == [20, 30, 40]
    assert client.get(path).json()["loss"] == 0.01


def test_logs_are_paged_tailed_and_searched(client: TestClient, path: str, stand: Stand) -> None:
    texts = [f"line {n}" for n in range(7)] + ["100% \x1b[31m<b>_done_</b>"]
    rows = [
        LogLineRow(job_id=job_of(path), fence=1, node_rank=0, rank=n % 2, stream="stdout", at=at(n), text=text)
        for n, text in enumerate(texts)
    ]
    stand.add(*rows)

    def lines(**params: Any) -> list[str]:
        return [line["text"] for line in client.get(f"{path}/logs", params=params).json()["items"]]

    assert lines() == texts
    assert lines(tail=2) == texts[-2:]
    assert lines(rank=1, tail=100) == texts[1::2]
    assert lines(search="LINE 3") == ["line 3"]
    assert lines(search="%") == [texts[-1]]
    assert lines(search="_d") == [texts[-1]]
    first = client.get(f"{path}/logs", params={"limit": 5}).json()
    assert lines(limit=5, cursor=first["next_cursor"]) == texts[5:]
    assert client.get(f"{path}/logs").headers["content-type"] == "application/json"


def test_checkpoints_show_what_is_verified(client: TestClient, path: str, stand: Stand) -> None:
    def row(step: int, **more: Any) -> Checkpoint:
        base = {"job_id": job_of(path), "step": step, "fence": 1, "manifest_sha256": "a" * 64, "size_bytes": 9}
        return Checkpoint(**base, world_size=1, tokens=1, verified_at=at(step), registered_at=at(step), **more)

    stand.add(row(10), row(20, corrupt_at=at(30), corrupt_reason="b"), row(30, deleted_at=at(40)), row(40))
    shown = client.get(f"{path}/checkpoints").json()["items"]
    assert [(one["step"], one["verified"]) for one in shown] == [(10, True), (20, False), (40, True)]
    assert len(client.get(f"{path}/checkpoints", params={"include_deleted": True}).json()["items"]) == 4
    paged = client.get(f"{path}/checkpoints", params={"limit": 2}).json()
    assert len(client.get(f"{path}/checkpoints", params={"cursor": paged["next_cursor"]}).json()["items"]) == 1
    assert client.get(path).json()["checkpoint_count"] == 2


def test_outputs_are_listed_and_downloaded_from_the_newest_attempt(
    client: TestClient, path: str, context: Context
) -> None:
    root = f"jobs/{job_of(path)}/outputs"
    for key, data in (("1/sample.txt", b"old"), ("2/sample.txt", b"new"), ("1/sub/größe.bin", b"\0" * 3_000_000)):
        obstore.put(context.bucket, f"{root}/{key}", data)
    shown = client.get(f"{path}/outputs").json()["items"]
    assert [(one["path"], one["fence"], one["size_bytes"]) for one in shown] == [
        ("sample.txt", 2, 3),
        ("sub/größe.bin", 1, 3_000_000),
    ]
    answer = client.get(f"{path}/outputs/sample.txt")
    assert answer.content == b"new"
    assert answer.headers["content-disposition"].startswith("attachment")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert client.get(f"{path}/outputs/sub/größe.bin").content == b"\0" * 3_000_000


@pytest.mark.parametrize(
    "name", ["..%2f..%2f..%2fsecret.key", "%2e%2e/%2e%2e/secret.key", "%2fetc/passwd", "a%5c..%5cb", "a//b", "a%0ab"]
)
def test_a_path_out_of_the_outputs_is_refused(client: TestClient, path: str, name: str) -> None:
    answer = client.get(f"{path}/outputs/{name}")
    assert (answer.status_code, answer.json()["code"]) in ((422, "invalid"), (404, "not_found"))


def test_a_link_out_of_the_bucket_is_not_followed(
    client: TestClient, path: str, context: Context, tmp_path: Path
) -> None:
    secret = tmp_path / "elsewhere" / "secret"
    secret.parent.mkdir()
    secret.write_text("hunter2")
    obstore.put(context.bucket, f"jobs/{job_of(path)}/outputs/1/real.txt", b"x")
    folder = context.settings.data_dir / "bucket" / "jobs" / job_of(path) / "outputs" / "1"
    (folder / "link.txt").symlink_to(secret)
    (folder / "up").symlink_to(secret.parent, target_is_directory=True)
    for name in ("link.txt", "up/secret"):
        answer = client.get(f"{path}/outputs/{name}")
        assert answer.status_code == 404
        assert "hunter2" not in answer.text
