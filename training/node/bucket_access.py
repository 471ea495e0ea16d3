"""The job's bucket, opened when it is first needed and again after a failure: it may be out of reach for a while."""

from __future__ import annotations

import threading

from obstore.exceptions import BaseError
from obstore.store import ObjectStore

from training.protocol.bucket import open_bucket

BUCKET_ERRORS = (OSError, BaseError, ValueError)
"""What a bucket that is out of reach raises, on opening or later. FileNotFoundError is among them: catch it first."""


class BucketAccess:
    """Safe to use from any thread."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._lock = threading.Lock()
        self._store: ObjectStore | None = None

    def open(self) -> ObjectStore:
        """The store. Errors: BUCKET_ERRORS."""
        with self._lock:
            if self._store is None:
                self._store = open_bucket(self._url)
            return self._store
