"""Budgets: shown, changed, topped up."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import update

from service.context import Context
from service.db.models import Budget, BudgetAlert
from service.db.session import session_scope
from tests.service.api.stand import NANO, Stand, at


@pytest.fixture
def budget(client: TestClient, spec: dict[str, Any]) -> dict[str, Any]:
    job = client.post("/v1/jobs", json=spec).json()
    return client.get(f"/v1/jobs/{job['id']}/budget").json()


def spend(context: Context, budget_id: str, *, spent: float, reserved: float) -> None:
    values = {"spent_nano": int(spent * NANO), "reserved_nano": int(reserved * NANO)}
    with session_scope(context.sessions) as session:
        session.execute(update(Budget).where(Budget.id == budget_id).values(**values))


def test_a_budget_shows_exact_money(client: TestClient, budget: dict[str, Any], context: Context) -> None:
    with session_scope(context.sessions) as session:
        values = {"spent_nano": 5_000_000_001, "reserved_nano": 250_000_000}
        session.execute(update(Budget).where(Budget.id == budget["id"]).values(**values))
        session.add(BudgetAlert(budget_id=budget["id"], generation=1, threshold_percent=50, crossed_at=at(0)))
    shown = client.get(f"/v1/budgets/{budget['id']}").json()
    assert (shown["cap_usd"], shown["spent_usd"], shown["reserved_usd"]) == ("10.00", "5.000000001", "0.25")
    assert (shown["remaining_usd"], shown["thresholds_crossed"]) == ("4.749999999", [50])


def test_a_project_has_one_budget(client: TestClient) -> None:
    assert client.post("/v1/budgets", json={"cap_usd": 12.5}).json()["cap_usd"] == "12.50"
    again = client.post("/v1/budgets", json={"cap_usd": "1"})
    assert (again.status_code, again.json()["code"]) == (409, "budget_exists")
    assert len(client.get("/v1/budgets").json()["items"]) == 1


def test_a_cap_changes_only_in_the_version_that_was_read(
    client: TestClient, budget: dict[str, Any], context: Context
) -> None:
    path = f"/v1/budgets/{budget['id']}"
    tag = client.get(path).headers["etag"]
    assert client.patch(path, json={"cap_usd": "20"}).status_code == 428
    changed = client.patch(path, json={"cap_usd": "20"}, headers={"If-Match": tag})
    assert (changed.status_code, changed.json()["cap_usd"]) == (200, "20.00")
    assert client.patch(path, json={"cap_usd": "30"}, headers={"If-Match": tag}).status_code == 412
    spend(context, budget["id"], spent=5, reserved=3)
    low = client.patch(path, json={"cap_usd": "7.99"}, headers={"If-Match": changed.headers["etag"]})
    assert (low.status_code, low.json()["code"]) == (409, "cap_below_committed")
    fits = client.patch(path, json={"cap_usd": "8"}, headers={"If-Match": changed.headers["etag"]})
    assert fits.json()["remaining_usd"] == "0.00"


def test_a_top_up_releases_and_wakes_jobs_that_waited_for_money(
    client: TestClient, budget: dict[str, Any], stand: Stand, woken: list[str]
) -> None:
    stand.change_job(budget["job_id"], status="paused", has_budget_hold=True, has_user_hold=True)
    woken.clear()
    path = f"/v1/budgets/{budget['id']}/top-up"
    key = {"Idempotency-Key": "once"}
    for _ in range(2):
        assert client.post(path, json={"amount_usd": "2.5"}, headers=key).json()["cap_usd"] == "12.50"
    assert woken == [budget["job_id"]]
    assert client.get(f"/v1/jobs/{budget['job_id']}").json()["holds"] == ["user"]


@pytest.mark.parametrize("amount", ["-1", "0", "NaN", "1e30", "x", None, True])
def test_a_bad_amount_is_refused(client: TestClient, budget: dict[str, Any], amount: object) -> None:
    answer = client.post(f"/v1/budgets/{budget['id']}/top-up", json={"amount_usd": amount})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "amount_usd"
    assert client.get(f"/v1/budgets/{budget['id']}").json() == budget
