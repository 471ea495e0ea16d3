"""/v1/keys and /v1/me."""

from __future__ import annotations

from fastapi.responses import JSONResponse

from service.api.auth import Admin, Role, Viewer
from service.api.dependencies import Db, Now, ReadDb
from service.api.idempotency import OnceDep
from service.api.pagination import Cursor, Limit, Page, decode_time_cursor, encode_cursor
from service.api.problems import invalid
from service.api.routing import make_router
from service.keys.schemas import KeyCreate, KeyView, MeView, NewKeyView
from service.keys.service import create_key, list_keys, revoke_key
from service.projects.service import find_project

router = make_router("/v1", "keys")


@router.get("/me")
def show_me(session: ReadDb, who: Viewer) -> MeView:
    """The key's project and role."""
    project = find_project(session, who.project_id, own_id=who.project_id)
    role = who.role.label
    return MeView.model_validate(
        {"key_id": who.key_id, "project_id": project.id, "project_name": project.name, "role": role}
    )


@router.post("/keys", status_code=201, response_model=NewKeyView)
def create_key_endpoint(body: KeyCreate, session: Db, who: Admin, once: OnceDep, now: Now) -> JSONResponse:
    """Make a key of this project. Its secret is shown only here."""
    if body.expires_at is not None and body.expires_at <= now:
        raise invalid("expires_at", "is in the past", "Give a time to come, or leave it out.")

    def create() -> NewKeyView:
        return create_key(
            session,
            project_id=who.project_id,
            name=body.name,
            role=Role[body.role.upper()],
            expires_at=body.expires_at,
            now=now,
        )

    return once.answer(session, who, create)


@router.get("/keys")
def list_keys_endpoint(session: ReadDb, who: Admin, limit: Limit = 50, cursor: Cursor = None) -> Page[KeyView]:
    """The project's keys, oldest first, without their secrets."""
    keys = list_keys(session, who.project_id, after=decode_time_cursor(cursor), limit=limit + 1)
    last = keys[limit - 1] if len(keys) > limit else None
    return Page(
        items=[KeyView.of(key) for key in keys[:limit]],
        next_cursor=encode_cursor(last.created_at.isoformat(), last.id) if last else None,
    )


@router.delete("/keys/{key_id}")
def revoke_key_endpoint(key_id: str, session: Db, who: Admin, now: Now) -> KeyView:
    """Revoke a key at once and for good."""
    return KeyView.of(revoke_key(session, key_id, project_id=who.project_id, now=now))
