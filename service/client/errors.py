"""What a call can fail with: the service's own refusal, or no service at all."""

from __future__ import annotations

from typing import Any

import httpx
from pydantic import BaseModel, ConfigDict, ValidationError


class FieldError(BaseModel):
    """One wrong field of a request: where, what, and what to do."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    field: str = ""
    message: str = ""
    remedy: str | None = None


class _Problem(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    code: str = "unknown"
    title: str = ""
    detail: str | None = None
    remedy: str | None = None
    errors: tuple[FieldError, ...] = ()
    instance: str | None = None


class ClientError(Exception):
    """The base of both."""


class ServiceAway(ClientError):
    """Nobody answers at the URL, or what answers cannot serve now."""

    def __init__(self, url: str, cause: str) -> None:
        super().__init__(f"cannot reach {url}: {cause}")
        self.url = url
        self.cause = cause


class StreamSilent(ClientError):
    """An open stream said nothing for the time that was asked."""


class ApiError(ClientError):
    """A problem document (RFC 9457) as an exception. `code` is stable, such as `not_found`."""

    def __init__(self, status: int, problem: _Problem) -> None:
        super().__init__(problem.detail or problem.title or f"HTTP {status}")
        self.status = status
        self.code = problem.code
        self.title = problem.title
        self.detail = problem.detail
        self.remedy = problem.remedy
        self.errors = problem.errors
        self.instance = problem.instance

    @classmethod
    def from_response(cls, response: httpx.Response) -> ApiError:
        """Anything but a problem document becomes one that says only the status."""
        try:
            problem = _Problem.model_validate(response.json())
        except (ValueError, ValidationError):
            problem = _Problem(title=f"HTTP {response.status_code}", detail=_excerpt(response))
        return cls(response.status_code, problem)

    @classmethod
    def unreadable(cls, response: httpx.Response, wanted: str) -> ApiError:
        detail = f"the answer is not a {wanted}: is {response.url.host} a Godwit service of this version?"
        return cls(response.status_code, _Problem(title="Unreadable answer", code="unreadable", detail=detail))

    def to_json(self) -> dict[str, Any]:
        return {
            "status": self.status,
            "code": self.code,
            "title": self.title,
            "detail": self.detail,
            "remedy": self.remedy,
            "instance": self.instance,
            "errors": [error.model_dump(exclude_none=True) for error in self.errors],
        }


def _excerpt(response: httpx.Response) -> str:
    text = "".join(c if c.isprintable() else " " for c in response.text[:200]).strip()
    return f"the answer is not a problem document: {text}" if text else "the answer is empty"
