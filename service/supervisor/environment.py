"""The environment of the embedded service: what the user set, and times fit for one machine where nothing was set."""

from __future__ import annotations

from collections.abc import Mapping

from service.supervisor.layout import Layout

LAPTOP_DEFAULTS = {
    "GODWIT_GRANT": "PT60S",
    "GODWIT_DRAIN": "PT20S",
    "GODWIT_TEARDOWN": "PT15S",
    "GODWIT_STARTUP": "PT90S",
    "GODWIT_MARGIN": "PT5S",
    "GODWIT_HEARTBEAT": "PT1S",
    "GODWIT_SILENCE": "PT20S",
    "GODWIT_NOTICE_POLL": "PT1S",
    "GODWIT_POLL": "PT1S",
    "GODWIT_SWEEP": "PT2S",
    "GODWIT_ACCRUE": "PT5S",
    "GODWIT_REFRESH_QUOTES": "PT5S",
    "GODWIT_ALLOW_PRIVATE_WEBHOOKS": "true",
}


def child_environment(base: Mapping[str, str], layout: Layout, *, url: str) -> dict[str, str]:
    """`url` is where this machine reaches the service."""
    return {
        "GODWIT_SERVICE_URL": url,
        "GODWIT_BROKER_URL": f"redis+socket://{layout.broker_socket}",
        **LAPTOP_DEFAULTS,
        **base,
        "GODWIT_DATA_DIR": str(layout.data_dir),
        "PYTHONUNBUFFERED": "1",
    }
