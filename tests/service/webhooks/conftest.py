"""The API in process, as the API's own tests have it."""

from __future__ import annotations

from tests.service.api.conftest import app, client, key, woken

__all__ = ["app", "client", "key", "woken"]
