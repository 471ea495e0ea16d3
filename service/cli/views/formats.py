"""Amounts, sizes, times and small drawings as text."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal

_BARS = "▁▂▃▄▅▆▇█"
STATUS_STYLES = {
    "running": "green",
    "succeeded": "bold green",
    "failed": "bold red",
    "cancelled": "dim",
    "paused": "yellow",
    "pausing": "yellow",
    "recovering": "magenta",
    "queued": "cyan",
    "provisioning": "cyan",
    "starting": "cyan",
    "stopping": "cyan",
}


def usd(amount: Decimal | None) -> str:
    """`$1.23`; amounts under a cent show what tells them from zero."""
    if amount is None:
        return "-"
    places = 4 if amount and abs(amount) < Decimal("0.01") else 2
    return f"-${-amount:,.{places}f}" if amount < 0 else f"${amount:,.{places}f}"


def fine_usd(amount: Decimal | None) -> str:
    """`$0.1234`: for amounts that move while one looks."""
    return "-" if amount is None else f"${amount:,.4f}"


def hourly(amount: Decimal | None) -> str:
    return "-" if amount is None else f"{usd(amount)}/h"


def size(num_bytes: int) -> str:
    value = float(num_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def seconds(value: float | None) -> str:
    if value is None:
        return "-"
    if value < 60:
        return f"{value:.1f} s"
    minutes, rest = divmod(int(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} m" if hours else f"{minutes} m {rest:02d} s"


def ago(at: datetime | None, now: datetime) -> str:
    if at is None:
        return "-"
    age = max(0.0, (now - at).total_seconds())
    for length, unit in ((86_400, "d"), (3600, "h"), (60, "m")):
        if age >= length:
            return f"{age / length:.0f}{unit} ago"
    return f"{age:.0f}s ago"


def clock(at: datetime) -> str:
    return at.astimezone().strftime("%H:%M:%S")


def moment(at: datetime | None) -> str:
    return "-" if at is None else at.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def bar(share: float, width: int = 24) -> str:
    filled = round(max(0.0, min(1.0, share)) * width)
    return "█" * filled + "░" * (width - filled)


def sparkline(values: Sequence[float], width: int = 32) -> str:
    """The values from first to last, drawn `width` characters wide at most."""
    if not values:
        return ""
    step = max(1.0, len(values) / width)
    picked = [values[min(len(values) - 1, int(index * step))] for index in range(min(width, len(values)))]
    picked[-1] = values[-1]
    low, high = min(picked), max(picked)
    spread = (high - low) or 1.0
    return "".join(_BARS[int((value - low) / spread * (len(_BARS) - 1))] for value in picked)


def thousands(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"
