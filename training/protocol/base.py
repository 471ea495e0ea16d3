"""The base of every protocol value: frozen, closed to unknown fields, bounded."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


class Value(BaseModel):
    """An immutable value. Unknown fields are an error, so that a typo is told and not ignored."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, ser_json_timedelta="float")


def _printable(text: str) -> str:
    if any(ord(character) < 32 and character not in "\n\t" for character in text):
        raise ValueError("control characters are not allowed")
    return text


Text = Annotated[str, AfterValidator(_printable)]
Name = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$", max_length=63)]
"""Lower-case letters, digits, dots, underscores and hyphens; never a path."""

Seconds = Annotated[timedelta, Field(ge=timedelta(0), le=timedelta(days=365))]
Usd = Annotated[Decimal, Field(gt=0, le=Decimal(10_000_000), decimal_places=9)]
"""A positive, finite amount of US dollars, to the nano-dollar."""

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
