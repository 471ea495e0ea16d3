"""Session tokens of IMDSv2: signed and good for one node, so that no table of them need outlive the daemon."""

from __future__ import annotations

import hashlib
import hmac
from datetime import datetime

MAX_TTL_SECONDS = 21_600


def sign_imds_token(key: bytes, node_key: str, now: datetime, ttl_seconds: int) -> str:
    """`node_key` is `cluster/rank`."""
    return _sign(key, node_key, int(now.timestamp()) + ttl_seconds)


def is_imds_token_good(key: bytes, node_key: str, token: str, now: datetime) -> bool:
    """Whether this node was given the token and its time is not over."""
    expires = token.partition(".")[0]
    if len(expires) > 12 or not expires.isascii() or not expires.isdigit() or int(expires) < now.timestamp():
        return False
    return hmac.compare_digest(_sign(key, node_key, int(expires)).encode(), token.encode())


def _sign(key: bytes, node_key: str, expires: int) -> str:
    return f"{expires}.{hmac.new(key, f'imds/{node_key}/{expires}'.encode(), hashlib.sha256).hexdigest()}"
