"""When a grant is renewed, and what shorter ones are tried."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from service.domain.grants import renewal_steps
from tests.domain.snapshots import NOW, TERMS


def test_nothing_is_renewed_while_more_than_half_is_left() -> None:
    assert renewal_steps(grant_until=NOW + TERMS.grant / 2 + timedelta(seconds=1), now=NOW, terms=TERMS) == ()
    assert renewal_steps(grant_until=NOW + TERMS.grant / 2, now=NOW, terms=TERMS)[0] == NOW + TERMS.grant


@given(st.integers(-3600, 450))
def test_every_step_prolongs_and_the_longest_comes_first(seconds_left: int) -> None:
    grant_until = NOW + timedelta(seconds=seconds_left)
    steps = renewal_steps(grant_until=grant_until, now=NOW, terms=TERMS)
    assert steps
    assert list(steps) == sorted(steps, reverse=True)
    assert all(step > grant_until for step in steps)
    assert all(step - NOW >= TERMS.grant * TERMS.min_grant_share for step in steps)
