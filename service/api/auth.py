"""Who asks: `Authorization: Bearer gdw_<id>_<secret>`, one project, one role a key."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import IntEnum
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from sqlalchemy import select, update
from sqlalchemy.exc import DBAPIError

from service.api.dependencies import Ctx
from service.api.problems import Problem
from service.context import Context
from service.db.models import ApiKey
from service.db.session import session_scope
from service.seal import hash_secret

_USE_RESOLUTION = timedelta(minutes=10)
_bearer = HTTPBearer(auto_error=False, scheme_name="apiKey", description="An API key, `gdw_<id>_<secret>`.")


class Role(IntEnum):
    """Each may do what the ones before it may."""

    VIEWER = 1
    OPERATOR = 2
    ADMIN = 3

    @property
    def label(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, kw_only=True, slots=True)
class Principal:
    """A checked key. Single sign-on would make one of these from its token."""

    key_id: str
    project_id: str
    role: Role


def get_principal(
    request: Request, context: Ctx, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
) -> Principal:
    """Errors: Problem 401, the same for every kind of bad key; 429 past the key's rate."""
    if credentials is None:
        raise _unauthorised("No API key was given.")
    now = context.clock()
    key = _find_key(context, credentials.credentials, now)
    if key is None:
        raise _unauthorised("The API key is wrong, expired or revoked.")
    _note_use(context, key, now)
    request.app.state.rate_limiter.check(key.id, request.scope)
    return Principal(key_id=key.id, project_id=key.project_id, role=Role[key.role.upper()])


def _find_key(context: Context, token: str, now: datetime) -> ApiKey | None:
    kind, _, rest = token.partition("_")
    key_id, _, secret = rest.partition("_")
    if kind != "gdw" or not secret or len(token) > 256 or not token.isascii():
        return None
    with session_scope(context.sessions, is_reader=True) as session:
        key = session.scalar(select(ApiKey).where(ApiKey.id == key_id))
    stored = key.secret_hash if key else hash_secret("")
    is_right = hmac.compare_digest(stored, hash_secret(secret))
    is_live = key is not None and key.revoked_at is None and (key.expires_at is None or key.expires_at > now)
    return key if is_right and is_live else None


def _note_use(context: Context, key: ApiKey, now: datetime) -> None:
    """Now and then; a database that cannot write now is the request's own matter, not this one's."""
    if key.last_used_at is not None and now - key.last_used_at < _USE_RESOLUTION:
        return
    try:
        with session_scope(context.sessions) as session:
            session.execute(update(ApiKey).where(ApiKey.id == key.id).values(last_used_at=now))
    except DBAPIError:
        return


def _unauthorised(detail: str) -> Problem:
    return Problem(
        401,
        "unauthorized",
        detail,
        remedy="Send 'Authorization: Bearer gdw_…' with a key of this service.",
        headers={"WWW-Authenticate": "Bearer"},
    )


def _require(role: Role) -> Callable[[Principal], Principal]:
    def check(principal: Annotated[Principal, Depends(get_principal)]) -> Principal:
        if principal.role < role:
            raise Problem(
                403,
                "forbidden",
                f"This needs the role {role.label}; the key has {principal.role.label}.",
                remedy=f"Use a key with the role {role.label}.",
            )
        return principal

    return check


Viewer = Annotated[Principal, Depends(_require(Role.VIEWER))]
Operator = Annotated[Principal, Depends(_require(Role.OPERATOR))]
Admin = Annotated[Principal, Depends(_require(Role.ADMIN))]
