"""When a dead child is due again."""

from __future__ import annotations

from service.supervisor.restarts import (
    FIRST_DELAY_SECONDS,
    LONGEST_DELAY_SECONDS,
    STEADY_SECONDS,
    Restarts,
    is_due,
    note_death,
    note_start,
)


def delays_of(num_deaths: int) -> list[float]:
    """Of a child that dies at once, again and again."""
    restarts, now, delays = Restarts(), 100.0, []
    for _ in range(num_deaths):
        restarts = note_death(note_start(restarts, now), now)
        assert restarts.due_at is not None
        delays.append(round(restarts.due_at - now, 6))
        now = restarts.due_at
    return delays


def test_a_crash_loop_slows_down_to_a_bound() -> None:
    delays = delays_of(20)
    assert delays[0] == FIRST_DELAY_SECONDS
    assert delays == sorted(delays)
    assert max(delays) == LONGEST_DELAY_SECONDS


def test_a_child_that_ran_steadily_starts_over_at_once() -> None:
    worn = Restarts(total=9, in_a_row=9, started_at=0)
    after = note_death(worn, STEADY_SECONDS)
    assert after.due_at == STEADY_SECONDS + FIRST_DELAY_SECONDS
    assert (after.total, after.in_a_row) == (10, 1)


def test_what_runs_is_not_due() -> None:
    dead = note_death(Restarts(), 0)
    assert not is_due(dead, 0)
    assert is_due(dead, FIRST_DELAY_SECONDS)
    assert not is_due(note_start(dead, 1), 1e9)
