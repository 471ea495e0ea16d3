"""The catalogue of events and the code that emits them agree, and nothing passes the catalogue by."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from service.context import Context
from service.db.outbox import emit
from service.db.session import session_scope
from service.domain.event_types import EVENT_FILTERS, EVENT_TYPES, find_nearest_filter
from service.domain.webhook_schedule import is_subscribed
from tests.docs.emitted import list_emitted_kinds


def test_every_event_that_is_emitted_is_in_the_catalogue_and_no_other() -> None:
    assert list_emitted_kinds() == set(EVENT_TYPES)


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_kind_outside_the_catalogue_is_refused(context: Context) -> None:
    with pytest.raises(ValueError, match="catalogue"), session_scope(context.sessions) as session:
        emit(session, project_id="prj", job_id=None, kind="job.exploded", at=datetime(2026, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize("wanted", EVENT_FILTERS)
def test_every_filter_takes_some_event(wanted: str) -> None:
    assert any(is_subscribed([wanted], event_type) for event_type in EVENT_TYPES)


@pytest.mark.parametrize(
    ("wanted", "nearest"),
    [
        ("job.runing", "job.running"),
        ("jobs.*", "job.*"),
        ("trainings_error", "training_error"),
        ("zzz", None),
    ],
)
def test_a_misspelt_filter_finds_its_neighbour(wanted: str, nearest: str | None) -> None:
    assert find_nearest_filter(wanted) == nearest
