"""Validation errors of a spec in the words of the API: field, message, remedy."""

from __future__ import annotations

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from service.client.errors import FieldError

_REMEDIES = {
    "extra_forbidden": "remove it, or correct its spelling",
    "missing": "add it",
    "string_type": "put the value in quotes",
    "string_pattern_mismatch": "use the form that the pattern shows",
    "finite_number": "give a finite number",
    "timezone_aware": "add a time zone, such as 2030-01-31T18:00:00Z",
    "decimal_parsing": 'give an amount of dollars, such as "12.50"',
}
_NAME_REMEDY = "use lower-case letters, digits, '.', '_' and '-' (63 at most)"


def explain(error: ValidationError) -> tuple[FieldError, ...]:
    """One entry a field, never with the value itself: it may be a secret."""
    return tuple(_explain_one(details) for details in error.errors(include_url=False, include_input=False))


def _explain_one(details: ErrorDetails) -> FieldError:
    field = ".".join(str(part) for part in details["loc"] if part != "[key]")
    message = details["msg"].removeprefix("Value error, ")
    remedy = _REMEDIES.get(details["type"])
    if details["type"] == "string_pattern_mismatch" and field.rsplit(".", 1)[-1] == "name":
        remedy = _NAME_REMEDY
    return FieldError(field=field or "spec", message=message, remedy=remedy or "correct the value")
