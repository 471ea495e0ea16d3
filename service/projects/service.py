"""Making and finding projects."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from service.api.problems import Problem, not_found
from service.db.models import Project
from service.ids import new_id


def create_project(session: Session, *, name: str, allows_unbudgeted_jobs: bool, now: datetime) -> Project:
    """Errors: Problem 409 when the name is taken."""
    project = Project(id=new_id("prj"), name=name, allows_unbudgeted_jobs=allows_unbudgeted_jobs, created_at=now)
    try:
        with session.begin_nested():
            session.add(project)
    except IntegrityError as error:
        raise Problem(409, "name_taken", f"A project is named {name} already.", remedy="Choose another.") from error
    return project


def find_project(session: Session, project_id: str, *, own_id: str) -> Project:
    """Errors: Problem 404 for any but the key's own project."""
    project = session.scalar(select(Project).where(Project.id == project_id)) if project_id == own_id else None
    if project is None:
        raise not_found("project")
    return project
