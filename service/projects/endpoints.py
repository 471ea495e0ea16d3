"""/v1/projects: a key sees its own project; an admin may make more."""

from __future__ import annotations

from fastapi import Response
from fastapi.responses import JSONResponse

from service.api.auth import Admin, Role, Viewer
from service.api.dependencies import Db, Now, ReadDb
from service.api.etag import IfMatch, etag_of, require_match
from service.api.idempotency import OnceDep
from service.api.pagination import Page
from service.api.problems import documented
from service.api.routing import make_router
from service.keys.service import create_key
from service.projects.schemas import NewProjectView, ProjectCreate, ProjectUpdate, ProjectView
from service.projects.service import create_project, find_project

router = make_router("/v1/projects", "projects")


@router.post("", status_code=201, response_model=NewProjectView, responses=documented(409))
def create_project_endpoint(body: ProjectCreate, session: Db, who: Admin, once: OnceDep, now: Now) -> JSONResponse:
    """Make a project and its first admin key, whose secret is shown only here."""

    def create() -> NewProjectView:
        project = create_project(session, name=body.name, allows_unbudgeted_jobs=body.allows_unbudgeted_jobs, now=now)
        key = create_key(session, project_id=project.id, name="first", role=Role.ADMIN, expires_at=None, now=now)
        return NewProjectView(**ProjectView.of(project).model_dump(), key=key)

    return once.answer(session, who, create)


@router.get("")
def list_projects(session: ReadDb, who: Viewer) -> Page[ProjectView]:
    """The key's project."""
    return Page(items=[ProjectView.of(find_project(session, who.project_id, own_id=who.project_id))])


@router.get("/{project_id}")
def show_project(project_id: str, session: ReadDb, who: Viewer, response: Response) -> ProjectView:
    """The key's own project, with an ETag for a change."""
    view = ProjectView.of(find_project(session, project_id, own_id=who.project_id))
    response.headers["ETag"] = etag_of(view)
    return view


@router.patch("/{project_id}", responses=documented(412, 428))
def change_project(
    project_id: str, body: ProjectUpdate, session: Db, who: Admin, response: Response, if_match: IfMatch = None
) -> ProjectView:
    """Change the version that If-Match names."""
    project = find_project(session, project_id, own_id=who.project_id)
    require_match(if_match, etag_of(ProjectView.of(project)))
    project.allows_unbudgeted_jobs = body.allows_unbudgeted_jobs
    view = ProjectView.of(project)
    response.headers["ETag"] = etag_of(view)
    return view
