"""Secrets and signatures by the Standard Webhooks specification.

An endpoint's sealed secret holds the current one and, for a day after a rotation, the one before; both sign.
"""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from standardwebhooks import Webhook

ROTATION = timedelta(hours=24)
_SECRET_BYTES = 24


def make_secret() -> str:
    """`whsec_` and 192 random bits in base64."""
    return f"whsec_{base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()}"


def rotate(sealed_values: Mapping[str, str], now: datetime) -> dict[str, str]:
    """New values to seal: a new current secret; the old one still signs until ROTATION is over."""
    until = (now + ROTATION).isoformat()
    return {"current": make_secret(), "previous": sealed_values["current"], "previous_until": until}


def message_id(event_id: int, at: datetime) -> str:
    """The same for every try and replay of an event, so that a receiver can refuse the second; never reused for another."""
    return f"evt_{event_id}_{int(at.timestamp() * 1_000_000):x}"


def make_body(*, event_type: str, at: datetime, project_id: str, job_id: str | None, data: Mapping[str, Any]) -> bytes:
    """What is sent: `type`, `timestamp` (when it happened) and `data`."""
    timestamp = at.astimezone(UTC).isoformat().replace("+00:00", "Z")
    shown = {**data, "project_id": project_id, "job_id": job_id}
    return json.dumps({"type": event_type, "timestamp": timestamp, "data": shown}).encode()


def make_headers(sealed_values: Mapping[str, str], id_: str, now: datetime, body: bytes) -> dict[str, str]:
    """The headers that prove a body and when it was sent."""
    valid = [sealed_values["current"]]
    if "previous" in sealed_values and now < datetime.fromisoformat(sealed_values["previous_until"]):
        valid.append(sealed_values["previous"])
    text = body.decode()
    return {
        "Content-Type": "application/json",
        "User-Agent": "godwit-webhooks/1",
        "webhook-id": id_,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": " ".join(Webhook(secret).sign(id_, now.astimezone(UTC), text) for secret in valid),
    }
