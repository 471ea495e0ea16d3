"""Identifiers: short, lower-case, safe in URLs, labels and DNS names."""

from __future__ import annotations

import secrets

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_LENGTH = 12


def new_id(kind: str) -> str:
    """`<kind>-<12 random characters>`, 60 bits."""
    return f"{kind}-{''.join(secrets.choice(_ALPHABET) for _ in range(_LENGTH))}"


def cluster_name(job_id: str, fence: int) -> str:
    """The one name that an attempt's cluster can have."""
    return f"gdw-{job_id.removeprefix('job-')}-{fence}"
