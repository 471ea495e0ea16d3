"""The grant: prepaid permission to run, counted from when a heartbeat was *sent*.

The service counts the same grant from when it received that heartbeat, which is later, so the node's count ends first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

MAX_UNANSWERED = 256


@dataclass(frozen=True, kw_only=True)
class Grant:
    """Times are seconds on a suspend-aware monotonic clock. `ends_at` is None until the first accepted reply."""

    sent: tuple[tuple[int, float], ...] = ()
    answered_seq: int = 0
    ends_at: float | None = None

    def note_sent(self, seq: int, at: float) -> Grant:
        """Remember when heartbeat `seq` left."""
        return replace(self, sent=(*self.sent, (seq, at))[-MAX_UNANSWERED:])

    def renew(self, answers_seq: int, grant_seconds: float) -> Grant:
        """Take a reply. The newest answered heartbeat rules, so a late or repeated reply extends nothing."""
        sent_at = dict(self.sent).get(answers_seq)
        if sent_at is None or answers_seq <= self.answered_seq:
            return self
        later = tuple(entry for entry in self.sent if entry[0] > answers_seq)
        return Grant(sent=later, answered_seq=answers_seq, ends_at=sent_at + grant_seconds)

    @property
    def is_held(self) -> bool:
        return self.ends_at is not None

    def is_over(self, now: float) -> bool:
        """True from the grant's end on; False before the first grant, when there is nothing to end."""
        return self.ends_at is not None and now >= self.ends_at
