"""/v1/bundles: upload a working directory as a tar.gz; its digest is what a job spec names."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

import anyio
import anyio.to_thread
import obstore
from fastapi import Request
from fastapi.responses import JSONResponse
from obstore.exceptions import BaseError
from pydantic import BaseModel, Field

from service.api.auth import Operator
from service.api.dependencies import Ctx
from service.api.problems import Problem, documented
from service.api.routing import make_router
from service.bundles.archive import ArchiveFacts, BundleRefused, inspect_archive
from service.context import Context
from training.protocol.bucket import bundle_key

router = make_router("/v1/bundles", "bundles")
MEDIA_TYPE = "application/gzip"
_BODY = {
    "requestBody": {
        "required": True,
        "content": {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}},
    }
}


class BundleView(BaseModel):
    digest: str = Field(description="sha256 of the bytes: the spec's `workdir`")
    size_bytes: int
    file_count: int
    unpacked_bytes: int


@router.post("", status_code=201, response_model=BundleView, responses=documented(413, 415), openapi_extra=_BODY)
async def upload_bundle(request: Request, context: Ctx, who: Operator) -> JSONResponse:  # noqa: ARG001 - the role
    """Keep an archive under its own digest. Uploading the same bytes again is the same success."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != MEDIA_TYPE:
        raise Problem(415, "unsupported_media_type", f"A bundle is {MEDIA_TYPE}.", remedy="Send a tar.gz archive.")
    folder = context.settings.data_dir / "uploads"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor, name = tempfile.mkstemp(dir=folder, suffix=".tar.gz")
    path = Path(name)
    try:
        digest, size_bytes = await _receive(request, descriptor)
        facts = await anyio.to_thread.run_sync(_keep, context, path, digest)
    finally:
        await anyio.to_thread.run_sync(path.unlink)
    view = BundleView(
        digest=digest, size_bytes=size_bytes, file_count=facts.file_count, unpacked_bytes=facts.unpacked_bytes
    )
    return JSONResponse(view.model_dump(), 201)


async def _receive(request: Request, descriptor: int) -> tuple[str, int]:
    """The digest and the size of what arrives. Errors: Problem 413 from the limit below, 503 for a full disk."""
    hasher, size_bytes = hashlib.sha256(), 0
    try:
        async with anyio.wrap_file(os.fdopen(descriptor, "wb")) as file:
            async for chunk in request.stream():
                hasher.update(chunk)
                size_bytes += len(chunk)
                await file.write(chunk)
    except OSError as error:
        raise Problem(
            503, "disk_full", "The service cannot store the bundle now.", remedy="Try again later."
        ) from error
    return hasher.hexdigest(), size_bytes


def _keep(context: Context, path: Path, digest: str) -> ArchiveFacts:
    """Errors: Problem 422 for a bad archive, 503 for the bucket."""
    try:
        facts = inspect_archive(path)
    except BundleRefused as error:
        remedy = "Send a tar.gz of plain files, folders and links inside it."
        raise Problem(422, "invalid_bundle", f"The bundle is refused: {error}.", remedy=remedy) from error
    key = bundle_key(digest)
    try:
        obstore.head(context.bucket, key)
    except FileNotFoundError:
        _put(context, key, path)
    except BaseError as error:
        raise _no_bucket() from error
    return facts


def _put(context: Context, key: str, path: Path) -> None:
    try:
        obstore.put(context.bucket, key, path)
    except (BaseError, OSError) as error:
        raise _no_bucket() from error


def _no_bucket() -> Problem:
    return Problem(503, "bucket_unavailable", "The bucket is out of reach.", remedy="Try again later.")
