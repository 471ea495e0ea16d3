"""Money: exact US dollars. Decimal in Python, whole nano-dollars in the databases."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import ROUND_HALF_EVEN, Context, Decimal

NANO = Decimal(1_000_000_000)
_HOUR = timedelta(hours=1)
_EXACT = Context(prec=60)


def to_nano(amount: Decimal) -> int:
    """Dollars to nano-dollars, half to even. Errors: ValueError unless finite."""
    if not amount.is_finite():
        raise ValueError(f"{amount} is not an amount of money")
    return int(_EXACT.multiply(amount, NANO).to_integral_value(ROUND_HALF_EVEN))


def from_nano(nano: int) -> Decimal:
    """Nano-dollars to dollars, exact."""
    return _EXACT.divide(Decimal(nano), NANO)


def accrued_nano(hourly_nano: int, duration: timedelta, num_nodes: int = 1) -> int:
    """Nano-dollars that a window cost, rounded down."""
    return hourly_nano * num_nodes * _microseconds(duration) // _microseconds(_HOUR)


def reserved_nano(hourly_nano: int, duration: timedelta, num_nodes: int = 1) -> int:
    """Nano-dollars to hold for a span, rounded up; none for a span that is over.

    The opposite roundings make a reservation cover its accruals exactly: floor(a) + ceil(b) <= ceil(a + b), so cutting a
    span into windows never moves spent + reserved up.
    """
    return -(-hourly_nano * num_nodes * max(0, _microseconds(duration)) // _microseconds(_HOUR))


def floor_second(instant: datetime) -> datetime:
    """Windows begin and end on whole seconds."""
    return instant.replace(microsecond=0)


def ceil_second(instant: datetime) -> datetime:
    """Providers bill a started second whole."""
    whole = floor_second(instant)
    return whole if whole == instant else whole + timedelta(seconds=1)


def _microseconds(duration: timedelta) -> int:
    return duration // timedelta(microseconds=1)


def format_usd(nano: int, places: int = 2) -> str:
    """`$1,234.56`. Amounts under a cent that are not zero show as much as tells them from zero."""
    amount = from_nano(nano)
    if amount and abs(amount) < Decimal("0.01"):
        places = max(places, 4)
    return f"-${-amount:,.{places}f}" if amount < 0 else f"${amount:,.{places}f}"
