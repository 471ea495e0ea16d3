"""Money in JSON: a string with two to nine decimals, such as "12.50"."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from service.domain.money import from_nano

UsdText = Annotated[str, Field(pattern=r"^-?\d+\.\d{2,9}$", examples=["12.50"])]


def to_usd(nano: int) -> str:
    whole, _, decimals = f"{from_nano(nano):.9f}".partition(".")
    return f"{whole}.{decimals.rstrip('0'):0<2}"


def to_usd_or_none(nano: int | None) -> str | None:
    return None if nano is None else to_usd(nano)
