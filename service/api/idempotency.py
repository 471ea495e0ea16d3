"""Creates that may be repeated: the same Idempotency-Key answers with the first answer, and creates nothing more.

The key's row is written first, in the create's own transaction. A concurrent repeat waits there for the first to commit, then
runs again and finds the answer.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated

from fastapi import Depends, Header, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from sqlalchemy import delete, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from service.api.auth import Principal
from service.api.dependencies import Ctx
from service.api.problems import Problem
from service.api.routing import RunAgain
from service.context import Context
from service.db.models import IdempotentRequest

KEEP = timedelta(days=3)
REPLAYED = {"Idempotency-Replayed": "true"}


@dataclass(frozen=True, kw_only=True)
class Once:
    """One create, under its key if it has one."""

    context: Context
    key: str | None
    fingerprint: str

    def answer(
        self,
        session: Session,
        who: Principal,
        create: Callable[[], BaseModel],
        *,
        status_code: int = 201,
        headers: Callable[[BaseModel], dict[str, str]] | None = None,
    ) -> JSONResponse:
        """What `create` returns, or what it returned the first time. Errors: Problem 422 for another body."""
        if self.key is None:
            body = create()
            return JSONResponse(body.model_dump(mode="json"), status_code, headers(body) if headers else None)
        first = session.get(IdempotentRequest, (who.project_id, self.key))
        if first is not None:
            return self._replay(first)
        row = self._take_key(session, who.project_id, status_code)
        body = create()
        shown = body.model_dump(mode="json")
        row.body = {"sealed": self.context.sealer.seal({"body": json.dumps(shown)}).decode()}
        session.flush()
        return JSONResponse(shown, status_code, headers(body) if headers else None)

    def _take_key(self, session: Session, project_id: str, status_code: int) -> IdempotentRequest:
        row = IdempotentRequest(
            project_id=project_id,
            key=self.key,
            fingerprint=self.fingerprint,
            status_code=status_code,
            body={},
            created_at=self.context.clock(),
        )
        session.add(row)
        try:
            session.flush()
        except IntegrityError as error:
            raise RunAgain from error
        return row

    def _replay(self, first: IdempotentRequest) -> JSONResponse:
        if first.fingerprint != self.fingerprint:
            raise Problem(
                422,
                "idempotency_key_reused",
                "This Idempotency-Key was used with another request.",
                remedy="Use a new key for a new request.",
            )
        # Sealed: an answer may show a secret once, and the row outlives the showing.
        shown = self.context.sealer.unseal(first.body["sealed"].encode())["body"]
        return JSONResponse(json.loads(shown), first.status_code, REPLAYED)


async def get_once(
    request: Request,
    context: Ctx,
    idempotency_key: Annotated[
        str | None,
        Header(
            min_length=1, max_length=255, pattern=r"^[\x21-\x7e]+$", description="repeats with this key create once"
        ),
    ] = None,
) -> Once:
    fingerprint = hashlib.sha256(f"{request.method} {request.url.path}?{request.url.query}\n".encode())
    fingerprint.update(await request.body())
    return Once(context=context, key=idempotency_key, fingerprint=fingerprint.hexdigest())


OnceDep = Annotated[Once, Depends(get_once)]


def forget_old_requests(session: Session, now: datetime, limit: int = 1000) -> int:
    """Delete answers that are kept no longer; how many."""
    old = select(IdempotentRequest.project_id, IdempotentRequest.key).where(IdempotentRequest.created_at < now - KEEP)
    rows = session.execute(old.limit(limit)).all()
    for project_id, key in rows:
        session.execute(
            delete(IdempotentRequest).where(IdempotentRequest.project_id == project_id, IdempotentRequest.key == key)
        )
    return len(rows)
