"""/v1/budgets: caps, what is spent and reserved, top-ups."""

from __future__ import annotations

from datetime import datetime

from fastapi import Response
from fastapi.responses import JSONResponse
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from service.api.auth import Operator, Viewer
from service.api.dependencies import Db, Now, ReadDb, wake_after_commit
from service.api.etag import IfMatch, require_match
from service.api.idempotency import OnceDep
from service.api.money import to_usd
from service.api.pagination import Cursor, Limit, Page, decode_time_cursor, encode_cursor
from service.api.problems import Problem, documented
from service.api.routing import make_router
from service.budgets.queries import find_budget, find_job_budget, list_budgets, show_budgets, version_tag
from service.budgets.schemas import BudgetCreate, BudgetUpdate, BudgetView, TopUpRequest
from service.budgets.service import top_up
from service.db.models import Budget, Job
from service.db.outbox import emit
from service.domain.money import to_nano
from service.ids import new_id
from service.jobs.queries import find_job

MAX_CAP_NANO = 2**62
router = make_router("/v1", "budgets")


@router.post("/budgets", status_code=201, response_model=BudgetView, responses=documented(409))
def create_budget(body: BudgetCreate, session: Db, who: Operator, once: OnceDep, now: Now) -> JSONResponse:
    """Give the project its budget. A job's own budget comes with its spec."""

    def create() -> BudgetView:
        budget = Budget(id=new_id("bud"), project_id=who.project_id, cap_nano=to_nano(body.cap_usd), created_at=now)
        try:
            with session.begin_nested():
                session.add(budget)
        except IntegrityError as error:
            remedy = "Change its cap instead: PATCH /v1/budgets/{id}."
            raise Problem(409, "budget_exists", "The project has a budget already.", remedy=remedy) from error
        data = {"budget_id": budget.id, "cap_usd": to_usd(budget.cap_nano)}
        emit(session, project_id=who.project_id, job_id=None, kind="budget.created", at=now, **data)
        session.refresh(budget)
        return show_budgets(session, [budget])[0]

    return once.answer(session, who, create)


@router.get("/budgets")
def list_budgets_endpoint(session: ReadDb, who: Viewer, limit: Limit = 50, cursor: Cursor = None) -> Page[BudgetView]:
    """The project's budget and its jobs', newest first."""
    budgets = list_budgets(session, who.project_id, after=decode_time_cursor(cursor), limit=limit + 1)
    last = budgets[limit - 1] if len(budgets) > limit else None
    return Page(
        items=show_budgets(session, budgets[:limit]),
        next_cursor=encode_cursor(last.created_at.isoformat(), last.id) if last else None,
    )


@router.get("/budgets/{budget_id}")
def show_budget(budget_id: str, session: ReadDb, who: Viewer, response: Response) -> BudgetView:
    """Cap, spent, reserved and the thresholds crossed, with an ETag for a change."""
    return _show(session, find_budget(session, budget_id, who.project_id), response)


@router.get("/jobs/{job_id}/budget")
def show_job_budget(job_id: str, session: ReadDb, who: Viewer, response: Response) -> BudgetView:
    """The job's own budget."""
    job = find_job(session, job_id, who.project_id)
    return _show(session, find_job_budget(session, job.id), response)


@router.patch("/budgets/{budget_id}", responses=documented(409, 412, 428))
def change_budget(
    budget_id: str,
    body: BudgetUpdate,
    session: Db,
    who: Operator,
    now: Now,
    response: Response,
    if_match: IfMatch = None,
) -> BudgetView:
    """Set the cap of the version that If-Match names. It cannot go below what is spent and reserved."""
    budget = find_budget(session, budget_id, who.project_id, is_locked=True)
    require_match(if_match, version_tag(budget))
    change_nano = to_nano(body.cap_usd) - budget.cap_nano
    return _show(session, _change_cap(session, budget, change_nano, now) if change_nano else budget, response)


@router.post("/budgets/{budget_id}/top-up", response_model=BudgetView, responses=documented(409))
def top_up_budget(
    budget_id: str, body: TopUpRequest, session: Db, who: Operator, once: OnceDep, now: Now
) -> JSONResponse:
    """Add to the cap. Jobs that waited for money go on from their checkpoints."""

    def create() -> BudgetView:
        budget = find_budget(session, budget_id, who.project_id, is_locked=True)
        changed = _change_cap(session, budget, to_nano(body.amount_usd), now)
        return show_budgets(session, [changed])[0]

    return once.answer(session, who, create, status_code=200)


def _change_cap(session: Session, budget: Budget, change_nano: int, now: datetime) -> Budget:
    if budget.cap_nano + change_nano > MAX_CAP_NANO:
        raise Problem(422, "invalid", "The cap would be too large.", remedy="Give less.")
    held = _list_held_jobs(session, budget)
    try:
        changed = top_up(session, budget.id, change_nano, now=now)
    except ValueError as error:
        remedy = "Give a cap of at least spent_usd + reserved_usd, or pause jobs first."
        raise Problem(
            409, "cap_below_committed", "The cap is below what is spent and reserved.", remedy=remedy
        ) from error
    assert changed is not None, "the row is locked"
    session.flush()
    for job_id in held if change_nano > 0 else ():
        wake_after_commit(session, job_id, now=now)
    session.refresh(changed)
    return changed


def _list_held_jobs(session: Session, budget: Budget) -> list[str]:
    held = select(Job.id).where(Job.project_id == budget.project_id, Job.has_budget_hold)
    return list(session.scalars(held.where(Job.id == budget.job_id) if budget.job_id else held))


def _show(session: Session, budget: Budget, response: Response) -> BudgetView:
    response.headers["ETag"] = version_tag(budget)
    return show_budgets(session, [budget])[0]
