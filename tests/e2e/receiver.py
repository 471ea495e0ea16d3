"""A real receiver of webhooks that believes only what is signed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from standardwebhooks import Webhook

from tests.e2e.processes import wait_until
from tests.e2e.stack import Stack
from tests.worker.delivery.receivers import Receiver, run_receiver


@dataclass(frozen=True)
class SignedReceiver:
    receiver: Receiver
    secret: str

    def verified(self) -> list[dict[str, Any]]:
        """What came, oldest first. Errors: WebhookVerificationError for a wrong signature."""
        return [Webhook(self.secret).verify(one.body.decode(), one.headers) for one in list(self.receiver.received)]

    def wait_for(self, count: int) -> list[dict[str, Any]]:
        return wait_until(lambda: told if len(told := self.verified()) >= count else None, f"{count} webhooks", 40)


@contextmanager
def listen_to(stack: Stack, event_types: Sequence[str]) -> Iterator[SignedReceiver]:
    """An endpoint of the service for these events; taken off its list at the end."""
    with run_receiver() as receiver:
        webhook = stack.api.create_webhook(receiver.url, event_types)
        try:
            yield SignedReceiver(receiver, webhook.secret)
        finally:
            stack.api.delete_webhook(webhook.id)
