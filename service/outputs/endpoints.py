"""/v1/jobs/{job_id}/outputs: list and download."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated
from urllib.parse import quote

from fastapi import Path
from fastapi.responses import StreamingResponse
from obstore.exceptions import BaseError
from pydantic import BaseModel

from service.api.auth import Viewer
from service.api.dependencies import Ctx
from service.api.pagination import Page
from service.api.problems import Problem, invalid, not_found
from service.api.routing import make_router
from service.context import Context
from service.db.session import session_scope
from service.jobs.queries import find_job
from service.outputs.files import OutputFile, is_safe_path, leads_outside, list_outputs
from training.protocol.bucket import iter_bytes

router = make_router("/v1/jobs/{job_id}/outputs", "outputs")


class OutputView(BaseModel):
    path: str
    fence: int
    size_bytes: int
    modified_at: datetime


@router.get("")
def list_outputs_endpoint(job_id: str, context: Ctx, who: Viewer) -> Page[OutputView]:
    """The job's files, by path."""
    files = _load(context, job_id, who.project_id)
    return Page(items=[OutputView.model_validate(file, from_attributes=True) for file in files])


@router.get(
    "/{path:path}",
    response_class=StreamingResponse,
    responses={200: {"content": {"application/octet-stream": {}}, "description": "the file's bytes"}},
)
def download_output(
    job_id: str, path: Annotated[str, Path(min_length=1, max_length=1024)], context: Ctx, who: Viewer
) -> StreamingResponse:
    """One file's bytes, as a download."""
    if not is_safe_path(path):
        raise invalid("path", "must be a relative path inside the outputs", "Use a path from the list of outputs.")
    file = next((file for file in _load(context, job_id, who.project_id) if file.path == path), None)
    if file is None or leads_outside(context.settings.bucket, file.key):
        raise not_found("output")
    name = quote(path.rsplit("/", 1)[-1])
    headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{name}", "Content-Length": str(file.size_bytes)}
    return StreamingResponse(_read(context, file), media_type="application/octet-stream", headers=headers)


def _load(context: Context, job_id: str, project_id: str) -> list[OutputFile]:
    """Errors: Problem 404, 503. No transaction is open while the bucket is asked."""
    with session_scope(context.sessions, is_reader=True) as session:
        found_id = find_job(session, job_id, project_id).id
    try:
        return list_outputs(context.bucket, found_id)
    except BaseError as error:
        raise Problem(503, "bucket_unavailable", "The bucket is out of reach.", remedy="Try again later.") from error


def _read(context: Context, file: OutputFile) -> Iterator[bytes]:
    yield from iter_bytes(context.bucket, file.key, chunk_bytes=1024 * 1024)
