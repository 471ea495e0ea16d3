"""Errors as RFC 9457 problems: each knows its status, and one set of handlers renders all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException
from starlette.responses import Response

from service.db.session import is_away

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_SECONDS = 5
_MAX_ERRORS = 50
_log = structlog.get_logger("godwit.api")


class FieldError(BaseModel):
    """What is wrong with one field, and what to do."""

    field: str = Field(description="dotted path, such as `resources.num_nodes`")
    message: str
    remedy: str | None = None


class ProblemBody(BaseModel):
    """RFC 9457."""

    type: str = Field(description="`urn:godwit:problem:<code>`")
    title: str
    status: int
    code: str = Field(description="stable, for programs")
    detail: str
    remedy: str | None = None
    instance: str | None = Field(default=None, description="the request's id")
    errors: list[FieldError] | None = None


class Problem(HTTPException):
    """A refusal. `detail` and `remedy` are shown to the caller: no secret may be in them."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        remedy: str | None = None,
        errors: Sequence[FieldError] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, detail, dict(headers or {}))
        self.code = code
        self.remedy = remedy
        self.errors = list(errors)


def not_found(what: str) -> Problem:
    """Absent, or another project's: the two look the same."""
    return Problem(404, "not_found", f"There is no such {what}.", remedy="Check the id and the key's project.")


def invalid(field: str, message: str, remedy: str | None = None) -> Problem:
    """One bad field."""
    error = FieldError(field=field, message=message, remedy=remedy)
    return Problem(422, "invalid", f"{field}: {message}", remedy=remedy, errors=[error])


def to_response(problem: Problem, request_id: str | None = None) -> Response:
    body = ProblemBody(
        type=f"urn:godwit:problem:{problem.code}",
        title=HTTPStatus(problem.status_code).phrase,
        status=problem.status_code,
        code=problem.code,
        detail=str(problem.detail),
        remedy=problem.remedy,
        instance=request_id and f"urn:godwit:request:{request_id}",
        errors=problem.errors or None,
    )
    content = body.model_dump(exclude_none=True)
    return JSONResponse(content, problem.status_code, problem.headers, media_type=MEDIA_TYPE)


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """OpenAPI's `responses` for problems of these statuses."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemBody"}}}
    return {status: {"description": HTTPStatus(status).phrase, "content": content} for status in statuses}


def install_handlers(app: FastAPI) -> None:
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(RequestValidationError, _on_validation_error)
    app.add_exception_handler(DBAPIError, _on_database_error)
    app.add_exception_handler(PoolTimeout, _on_database_error)
    app.add_exception_handler(Exception, _on_defect)


def from_validation(errors: Sequence[Any]) -> Problem:
    """Pydantic's errors, one entry a field; a value that was refused is never echoed."""
    fields = [_field_error(error) for error in errors[:_MAX_ERRORS]]
    detail = "; ".join(f"{field.field}: {field.message}" for field in fields[:3])
    return Problem(422, "invalid", detail or "The request is not valid.", errors=fields)


_REMEDIES = {
    "extra_forbidden": "Remove it, or check the spelling.",
    "missing": "Add it.",
    "finite_number": "Give a finite number.",
    "json_invalid": "Send valid JSON as application/json.",
}


def _field_error(error: Any) -> FieldError:
    place = [str(part) for part in error["loc"]]
    if place and place[0] in ("body", "query", "path", "header"):
        place = place[1:] or place
    message = str(error["msg"]).removeprefix("Value error, ")
    return FieldError(field=".".join(place)[:512], message=message[:512], remedy=_REMEDIES.get(error["type"]))


def _request_id(request: Request) -> str | None:
    return request.scope.get("godwit.request_id")


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if not isinstance(error, Problem):
        phrase = HTTPStatus(error.status_code).phrase
        code = phrase.lower().replace(" ", "_")
        error = Problem(error.status_code, code, f"{phrase}.", headers=error.headers)
    return to_response(error, _request_id(request))


async def _on_validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return to_response(from_validation(error.errors()), _request_id(request))


async def _on_database_error(request: Request, error: Exception) -> Response:
    if isinstance(error, DBAPIError) and not is_away(error):
        return await _on_defect(request, error)
    _log.warning("database_away", error_type=type(error).__name__, request_id=_request_id(request))
    return to_response(database_away(), _request_id(request))


def database_away() -> Problem:
    return Problem(
        503,
        "database_unavailable",
        "The database cannot serve this request now. Nothing was written.",
        remedy="Try again later, with the same Idempotency-Key for a create.",
        headers={"Retry-After": str(RETRY_AFTER_SECONDS)},
    )


async def _on_defect(request: Request, error: Exception) -> Response:
    """A defect of ours. Its text stays in the log: it may quote the request."""
    _log.error("defect", request_id=_request_id(request), exc_info=error)
    problem = Problem(500, "internal_error", "The service failed to answer. The defect is logged.")
    return to_response(problem, _request_id(request))
