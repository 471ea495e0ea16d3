"""When a grant is renewed, and for how long."""

from __future__ import annotations

from datetime import datetime

from service.domain.money import ceil_second
from service.domain.terms import Terms


def covered_until(grant_until: datetime, terms: Terms) -> datetime:
    """Until when money is held for a grant: its end and the tail, and the second that is then begun, for it is billed whole."""
    return ceil_second(grant_until + terms.tail)


def renewal_steps(*, grant_until: datetime, now: datetime, terms: Terms) -> tuple[datetime, ...]:
    """Ends to try for, the longest first; empty while more than half of a grant is left.

    The shorter ones let a job use up its budget instead of stopping a whole grant early. None is shorter than what is
    in hand already.
    """
    if grant_until - now > terms.grant / 2:
        return ()
    shares = (1.0, 0.5, terms.min_grant_share)
    ends = (now + terms.grant * share for share in shares)
    return tuple(end for end in ends if end > grant_until)
