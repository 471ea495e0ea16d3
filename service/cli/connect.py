"""A client for the account that is signed in, and jobs by id or by name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from service.cli.config import Account, load_account
from service.cli.errors import CliError
from service.client.api import Godwit
from service.client.transport import Transport


@contextmanager
def open_client(account: Account | None = None) -> Iterator[Godwit]:
    """Errors: NotSignedIn, BadInput."""
    account = account or load_account(os.environ)
    with Transport(account.url, account.key) as transport:
        yield Godwit(transport)


def find_job_id(client: Godwit, job: str) -> str:
    """`job` itself if it is an id, else the newest job of that name. Errors: CliError."""
    if job.startswith("job-"):
        return job
    named = client.list_jobs(name=job, limit=1)
    if not named:
        raise CliError(f"there is no job named {job[:100]!r}", remedy="list the jobs with 'godwit ls'")
    return named[0].id
