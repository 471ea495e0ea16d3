"""The pages of the reference and what writes each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from docs.generator.api_page import write_api
from docs.generator.cli_page import write_cli
from docs.generator.events_page import write_events
from docs.generator.job_spec_page import write_job_spec
from docs.generator.settings_page import write_settings

FOLDER = Path(__file__).parents[1] / "reference"
PAGES: Mapping[str, Callable[[], str]] = {
    "api.md": write_api,
    "cli.md": write_cli,
    "events.md": write_events,
    "job-spec.md": write_job_spec,
    "settings.md": write_settings,
}
