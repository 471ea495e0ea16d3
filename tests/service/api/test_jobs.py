"""Jobs: submitted, listed, shown and wished for."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from service.context import Context
from service.db.models import Drill, Job
from service.db.session import session_scope
from tests.service.api.stand import OFFER, Stand, at


@pytest.fixture
def job(client: TestClient, spec: dict[str, Any]) -> dict[str, Any]:
    answer = client.post("/v1/jobs", json=spec)
    assert answer.status_code == 201
    return answer.json()


def events_of(client: TestClient, job_id: str) -> list[str]:
    return [event["type"] for event in client.get(f"/v1/jobs/{job_id}/events").json()["items"]]


def test_a_submitted_job_is_queued_due_and_announced(
    client: TestClient, job: dict[str, Any], woken: list[str], context: Context
) -> None:
    assert (job["status"], job["holds"], job["step"], job["budget_usd"]) == ("queued", [], 0, "10.00")
    assert job["spec"]["run"] == "python train.py"
    assert woken == [job["id"]]
    with session_scope(context.sessions) as session:
        row = session.get_one(Job, job["id"])
        assert row.due_at is not None
        assert row.wakes == 1
    assert events_of(client, job["id"]) == ["job.queued"]
    shown = client.get(f"/v1/jobs/{job['id']}")
    assert shown.json() == job
    assert shown.headers["etag"]


def test_secrets_are_sealed_and_shown_nowhere(client: TestClient, context: Context, spec: dict[str, Any]) -> None:
    job = client.post("/v1/jobs", json={**spec, "secrets": {"TOKEN": "hunter2-hunter2"}}).json()
    assert job["secret_names"] == ["TOKEN"]
    texts = [client.get(f"/v1/jobs/{job['id']}{rest}").text for rest in ("", "/events")] + [client.get("/v1/jobs").text]
    assert "hunter2" not in "".join(texts) + str(job)
    with session_scope(context.sessions) as session:
        row = session.get_one(Job, job["id"])
        assert "hunter2" not in str(row.spec)
        assert b"hunter2" not in (row.sealed_secrets or b"")
        assert context.sealer.unseal(row.sealed_secrets) == {"TOKEN": "hunter2-hunter2"}


def test_a_job_that_no_budget_covers_is_refused_with_the_remedy(client: TestClient, spec: dict[str, Any]) -> None:
    del spec["budget"]
    refused = client.post("/v1/jobs", json=spec)
    assert (refused.status_code, refused.json()["code"]) == (422, "budget_required")
    assert refused.json()["errors"][0]["field"] == "budget"
    assert "cap_usd" in refused.json()["remedy"]
    assert client.get("/v1/jobs").json()["items"] == []
    assert client.post("/v1/budgets", json={"cap_usd": "100"}).status_code == 201
    assert client.post("/v1/jobs", json=spec).status_code == 201


def test_a_project_may_allow_jobs_without_a_budget(client: TestClient, spec: dict[str, Any]) -> None:
    del spec["budget"]
    project_id = client.get("/v1/me").json()["project_id"]
    path = f"/v1/projects/{project_id}"
    assert client.patch(path, json={"allows_unbudgeted_jobs": True}).status_code == 428
    stale = client.patch(path, json={"allows_unbudgeted_jobs": True}, headers={"If-Match": '"x"'})
    assert stale.status_code == 412
    tag = {"If-Match": client.get(path).headers["etag"]}
    assert client.patch(path, json={"allows_unbudgeted_jobs": True}, headers=tag).status_code == 200
    assert client.post("/v1/jobs", json=spec).status_code == 201


def test_lists_are_filtered_and_paged_newest_first(client: TestClient, spec: dict[str, Any], stand: Stand) -> None:
    ids = [
        client.post("/v1/jobs", json={**spec, "name": f"job-{n}", "labels": {"team": "ab"[n % 2]}}).json()["id"]
        for n in range(5)
    ]
    stand.change_job(ids[0], status="running")
    pages, cursor = [], None
    while True:
        page = client.get("/v1/jobs", params={"limit": 2, **({"cursor": cursor} if cursor else {})}).json()
        pages.append([item["id"] for item in page["items"]])
        if (cursor := page["next_cursor"]) is None:
            break
    assert pages == [ids[:2:-1], [ids[2], ids[1]], [ids[0]]]

    def found(**params: Any) -> list[str]:
        return [item["id"] for item in client.get("/v1/jobs", params=params).json()["items"]]

    assert found(status="running") == [ids[0]]
    assert found(status=["running", "queued"]) == ids[::-1]
    assert found(name="job-3") == [ids[3]]
    assert found(label="team=b") == [ids[3], ids[1]]
    assert found(label="team") == ids[::-1]
    assert found(label="none") == []


@pytest.mark.parametrize("cursor", ["x", "WzFd", "e30", "WyJub3QgYSB0aW1lIiwgImpvYi0xIl0", "[]", "ü"])
def test_a_foreign_cursor_is_refused(client: TestClient, cursor: str) -> None:
    answer = client.get("/v1/jobs", params={"cursor": cursor})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_cursor")


def test_pause_and_resume_are_wishes_and_may_be_repeated(
    client: TestClient, job: dict[str, Any], woken: list[str]
) -> None:
    path = f"/v1/jobs/{job['id']}"
    paused = client.post(f"{path}/pause")
    assert (paused.status_code, paused.json()["holds"], paused.json()["status"]) == (200, ["user"], "queued")
    assert client.post(f"{path}/pause").json() == paused.json()
    assert client.post(f"{path}/resume").json()["holds"] == []
    assert client.post(f"{path}/resume").status_code == 200
    assert events_of(client, job["id"]) == ["job.queued", "job.pause_requested", "job.resume_requested"]
    assert woken == [job["id"]] * 3


def test_resume_does_not_replace_money(client: TestClient, job: dict[str, Any], stand: Stand) -> None:
    stand.change_job(job["id"], status="paused", has_budget_hold=True)
    answer = client.post(f"/v1/jobs/{job['id']}/resume")
    assert (answer.status_code, answer.json()["code"]) == (409, "budget_exhausted")
    assert "top-up" in answer.json()["remedy"]


@pytest.mark.parametrize("status", ["succeeded", "failed", "cancelled"])
def test_an_ended_job_stays_as_it_ended(client: TestClient, job: dict[str, Any], stand: Stand, status: str) -> None:
    stand.change_job(job["id"], status=status, end_reason="completed")
    path = f"/v1/jobs/{job['id']}"
    for verb in ("pause", "resume"):
        answer = client.post(f"{path}/{verb}")
        assert (answer.status_code, answer.json()["code"]) == (409, "job_ended")
        assert answer.json()["remedy"]
    before = client.get(path).json()
    assert client.post(f"{path}/cancel").json() == before
    assert client.post(f"{path}/cancel", json={"now": True}).json() == before


def test_cancel_may_be_hastened_and_not_undone(client: TestClient, job: dict[str, Any], context: Context) -> None:
    path = f"/v1/jobs/{job['id']}"
    for body, is_now in (({}, False), ({"now": True}, True), ({"now": False}, True)):
        assert client.post(f"{path}/cancel", json=body).json()["stop_requested"] == "cancelled"
        with session_scope(context.sessions) as session:
            assert session.get_one(Job, job["id"]).is_stop_now is is_now
    assert client.post(f"{path}/pause").json()["code"] == "job_stopping"
    assert client.post(f"{path}/resume").status_code == 409


def test_a_cancel_does_not_replace_another_stop(
    client: TestClient, job: dict[str, Any], stand: Stand, context: Context
) -> None:
    stand.change_job(job["id"], status="stopping", stop_reason="completed")
    assert client.post(f"/v1/jobs/{job['id']}/cancel", json={"now": True}).json()["stop_requested"] == "completed"
    with session_scope(context.sessions) as session:
        assert session.get_one(Job, job["id"]).is_stop_now is False


def test_retry_changes_the_spec_by_a_merge_patch(client: TestClient, spec: dict[str, Any], stand: Stand) -> None:
    spec |= {"secrets": {"A": "one", "B": "two"}, "env": {"X": "1", "Y": "2"}}
    job = client.post("/v1/jobs", json=spec).json()
    path = f"/v1/jobs/{job['id']}/retry"
    refused = client.post(path)
    assert (refused.status_code, refused.json()["code"]) == (409, "not_failed")
    stand.change_job(job["id"], status="failed", end_reason="user_error")
    patch = {"env": {"X": None, "Z": "3"}, "resources": {"num_nodes": 2}, "secrets": {"A": None}}
    retried = client.post(path, json={"spec": patch})
    assert retried.status_code == 200
    shown = retried.json()
    assert (shown["spec"]["env"], shown["secret_names"], shown["num_nodes"]) == ({"Y": "2", "Z": "3"}, ["B"], 2)
    assert shown["status"] == "failed", "the reconciler alone writes it"
    assert client.post(path).status_code == 200
    assert client.post(path, json={"spec": patch}).status_code == 409


@pytest.mark.parametrize(
    ("patch", "field"),
    [
        ({"budget": {"cap_usd": "99"}}, "spec.budget"),
        ({"name": "other"}, "spec.name"),
        ({"resources": {"num_nodes": 0}}, "spec.resources.num_nodes"),
        ({"rnu": "x"}, "spec.rnu"),
        ({"deadline": "2020-01-01T00:00:00Z"}, "deadline"),
    ],
)
def test_a_bad_change_in_a_retry_names_the_field(
    client: TestClient, job: dict[str, Any], stand: Stand, patch: dict[str, Any], field: str
) -> None:
    stand.change_job(job["id"], status="failed", end_reason="user_error")
    answer = client.post(f"/v1/jobs/{job['id']}/retry", json={"spec": patch})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == field
    assert client.get(f"/v1/jobs/{job['id']}").json()["spec"] == job["spec"]


def test_a_checkpoint_is_asked_of_the_live_attempt(
    client: TestClient, job: dict[str, Any], stand: Stand, woken: list[str]
) -> None:
    path = f"/v1/jobs/{job['id']}/checkpoint"
    assert client.post(path).json()["code"] == "not_up"
    stand.add_attempt(job["id"], 1)
    woken.clear()
    assert client.post(path).status_code == 202
    assert woken == [job["id"]]
    assert client.post(path).status_code == 202
    assert events_of(client, job["id"]).count("job.checkpoint_requested") == 1


def test_a_drill_needs_a_live_node_and_reports_what_it_took(
    client: TestClient, job: dict[str, Any], stand: Stand, context: Context
) -> None:
    path = f"/v1/jobs/{job['id']}/drills"
    assert client.post(path, json={}).json()["code"] == "not_up"
    stand.add_attempt(job["id"], 1, up_at=at(5), resumed_from_step=0, first_step_at=at(6))
    assert client.post(path, json={"node_rank": 1}).json()["errors"][0]["field"] == "node_rank"
    answer = client.post(path, json={"notice": False})
    assert answer.status_code == 202
    drill = answer.json()
    assert (drill["state"], drill["fence"], drill["first_step_seconds"]) == ("requested", 1, None)
    with session_scope(context.sessions) as session:
        session.get_one(Drill, drill["id"]).acted_at = at(100)
        attempt = stand_attempt(session, job["id"], 1)
        attempt.lost_at, attempt.last_step, attempt.state, attempt.cause = at(102), 57, "gone", "preempted"
    assert client.get(f"{path}/{drill['id']}").json()["state"] == "acted"
    stand.add_attempt(job["id"], 2, resumed_from_step=None, state="gone", cause="no_capacity")
    stand.add_attempt(job["id"], 3, up_at=at(105), first_step_at=at(108), resumed_from_step=50)
    report = client.get(f"{path}/{drill['id']}").json()
    wanted = {"state": "recovered", "detection_seconds": 2.0, "relaunch_seconds": 3.0, "first_step_seconds": 8.0}
    wanted |= {"at_step": 57, "resumed_from_step": 50, "steps_lost": 7}
    assert {name: report[name] for name in wanted} == wanted
    assert client.get(f"{path}/drl-nothing").status_code == 404
    losses = client.get(f"/v1/jobs/{job['id']}/preemptions").json()["items"]
    assert [(loss["fence"], loss["notice"], loss["steps_lost"]) for loss in losses] == [(1, False, 7)]
    assert losses[0]["seconds_to_first_step"] == 6.0
    assert [a["fence"] for a in client.get(f"/v1/jobs/{job['id']}/attempts").json()["items"]] == [1, 2, 3]


def stand_attempt(session: Any, job_id: str, fence: int) -> Any:
    from sqlalchemy import select

    from service.db.models import Attempt

    return session.scalars(select(Attempt).where(Attempt.job_id == job_id, Attempt.fence == fence)).one()


def test_a_dry_run_says_what_it_would_meet_and_writes_nothing(
    client: TestClient, spec: dict[str, Any], stand: Stand
) -> None:
    assert client.post("/v1/jobs?dry_run=true", json=spec).json()["reasons"] == ["No offer matches 'resources'."]
    stand.add_offer()
    stand.add_offer("local/local-b-1/sim.gpu1/on-demand", 3_000_000_000)
    answer = client.post("/v1/jobs?dry_run=true", json=spec)
    assert answer.status_code == 200
    view = answer.json()
    assert (view["is_admissible"], view["cheapest_hourly_usd"], view["available_usd"]) == (True, "1.00", "10.00")
    assert [(offer["id"], offer["is_available"]) for offer in view["offers"]] == [(OFFER, True)]
    # 10 min start-up, 15 to a checkpoint, 2 + 5 tail, at 3 USD an hour, to whole seconds
    assert view["admission_usd"] in ("1.60", "1.600833334")
    small = client.post("/v1/jobs?dry_run=true", json={**spec, "budget": {"cap_usd": "0.01"}}).json()
    assert small["is_admissible"] is False
    assert "0.01" in small["reasons"][0]
    assert client.get("/v1/jobs").json()["items"] == []
    assert client.get("/v1/events").json()["items"] == []
