"""Retention: the last K, the best K, and never the newest verified checkpoint."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from service.domain.retention import Kept, list_prunable

checkpoints = st.lists(
    st.builds(
        Kept, step=st.integers(0, 30), fence=st.integers(1, 3), val_loss=st.none() | st.sampled_from([1.0, 2.0, 3.0])
    ),
    unique_by=lambda kept: (kept.step, kept.fence),
    max_size=12,
)


@settings(max_examples=500)
@given(checkpoints, st.integers(0, 5), st.integers(0, 3))
def test_the_newest_and_the_best_stay(all_of_them: list[Kept], keep_last: int, keep_best: int) -> None:
    gone = list_prunable(all_of_them, keep_last=keep_last, keep_best=keep_best)
    kept = [one for one in all_of_them if one not in gone]
    newest_first = sorted(all_of_them, key=lambda one: (one.step, one.fence), reverse=True)
    assert (
        newest_first[: max(keep_last, 1)]
        == sorted(kept, key=lambda k: (k.step, k.fence), reverse=True)[: max(keep_last, 1)]
    )
    scored = [one.val_loss for one in all_of_them if one.val_loss is not None]
    if scored and keep_best:
        assert min(scored) in {one.val_loss for one in kept}
    assert len(kept) <= max(keep_last, 1) + keep_best


def test_what_goes_goes_oldest_first() -> None:
    five = [Kept(step=step, fence=1, val_loss=None) for step in (50, 10, 40, 20, 30)]
    assert [one.step for one in list_prunable(five, keep_last=2, keep_best=1)] == [10, 20, 30]
    assert list_prunable(five[:1], keep_last=1, keep_best=0) == ()
