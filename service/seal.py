"""Secrets at rest and node tokens, both from one key.

Secrets are sealed with Fernet. A node token is derived and never stored: `gdn_<attempt id>_<HMAC-SHA256>`; whoever holds the
key can check it, and a token names the one attempt that it is good for.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from cryptography.fernet import Fernet


class Sealer:
    """Holds the key. `repr` shows none of it."""

    def __init__(self, key: bytes) -> None:
        self._token_key = hmac.digest(key, b"godwit node tokens", "sha256")
        self._fernet = Fernet(base64.urlsafe_b64encode(hmac.digest(key, b"godwit secrets", "sha256")))

    def seal(self, secrets: Mapping[str, str]) -> bytes:
        return self._fernet.encrypt(json.dumps(dict(secrets)).encode())

    def unseal(self, sealed: bytes | None) -> dict[str, str]:
        """Errors: cryptography.fernet.InvalidToken when the key has changed."""
        return json.loads(self._fernet.decrypt(sealed)) if sealed else {}

    def node_token(self, attempt_id: str) -> str:
        mac = hmac.digest(self._token_key, attempt_id.encode(), "sha256")
        return f"gdn_{attempt_id}_{mac.hex()}"

    def attempt_of(self, token: str) -> str | None:
        """The attempt that a token is good for, or None for a forgery."""
        kind, _, rest = token.partition("_")
        attempt_id, _, _ = rest.partition("_")
        is_ours = kind == "gdn" and hmac.compare_digest(token.encode(), self.node_token(attempt_id).encode())
        return attempt_id if is_ours else None


def load_key(path: Path) -> bytes:
    """The key in a file that only its owner can read, made on first use; two makers agree on one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        descriptor, scratch = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(descriptor, "wb") as file:
            file.write(os.urandom(32).hex().encode())
        with contextlib.suppress(FileExistsError):
            os.link(scratch, path)
        Path(scratch).unlink()
    return path.read_bytes().strip()


def hash_secret(secret: str) -> str:
    """An API key's hash. Its secret has 160 random bits, so a fast hash is enough."""
    return hashlib.sha256(secret.encode()).hexdigest()
