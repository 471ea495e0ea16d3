"""Making, finding and revoking API keys."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import select, tuple_
from sqlalchemy.orm import Session

from service.api.auth import Role
from service.api.problems import not_found
from service.db.models import ApiKey, Project
from service.ids import new_id
from service.keys.schemas import KeyView, NewKeyView
from service.seal import hash_secret

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_SECRET_LENGTH = 32
DEFAULT_PROJECT = "default"


def create_key(
    session: Session, *, project_id: str, name: str, role: Role, expires_at: datetime | None, now: datetime
) -> NewKeyView:
    """A key; only its hash is kept."""
    secret = "".join(secrets.choice(_ALPHABET) for _ in range(_SECRET_LENGTH))
    key = ApiKey(
        id=new_id("key"),
        project_id=project_id,
        name=name,
        role=role.label,
        secret_hash=hash_secret(secret),
        created_at=now,
        expires_at=expires_at,
    )
    session.add(key)
    session.flush()
    return NewKeyView(**KeyView.of(key).model_dump(), secret=f"gdw_{key.id}_{secret}")


def create_first_key(session: Session, *, now: datetime) -> str | None:
    """An admin key of the project `default`, both made if no key exists; None when one does."""
    if session.scalar(select(ApiKey.id).limit(1)) is not None:
        return None
    project = session.scalar(select(Project).where(Project.name == DEFAULT_PROJECT))
    if project is None:
        project = Project(id=new_id("prj"), name=DEFAULT_PROJECT, created_at=now)
        session.add(project)
        session.flush()
    return create_key(session, project_id=project.id, name="first", role=Role.ADMIN, expires_at=None, now=now).secret


def list_keys(session: Session, project_id: str, *, after: tuple[datetime, str] | None, limit: int) -> Sequence[ApiKey]:
    """Oldest first."""
    query = select(ApiKey).where(ApiKey.project_id == project_id).order_by(ApiKey.created_at, ApiKey.id)
    if after is not None:
        query = query.where(tuple_(ApiKey.created_at, ApiKey.id) > after)
    return session.scalars(query.limit(limit)).all()


def revoke_key(session: Session, key_id: str, *, project_id: str, now: datetime) -> ApiKey:
    """At once and for good; a repeat changes nothing. Errors: Problem 404."""
    key = session.scalar(select(ApiKey).where(ApiKey.id == key_id, ApiKey.project_id == project_id).with_for_update())
    if key is None:
        raise not_found("key")
    key.revoked_at = key.revoked_at or now
    return key
