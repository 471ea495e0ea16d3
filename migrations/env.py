"""Runs revisions on the connection that `service.db.migrate` opened and locked."""

from __future__ import annotations

from typing import Any, Literal

from alembic import context
from alembic.autogenerate.api import AutogenContext
from sqlalchemy import BigInteger

from service.db.models import Base
from service.db.types import Json, UtcDateTime


def render_type(kind: str, item: Any, autogen: AutogenContext) -> str | Literal[False]:
    """A new revision names our own column types by the names that the models use."""
    name = "UtcDateTime()" if isinstance(item, UtcDateTime) else None
    if type(item) is type(Json) and kind == "type":
        name = "Json"
    if isinstance(item, BigInteger) and "sqlite" in item._variant_mapping:
        name = "AutoId"
    if kind != "type" or name is None:
        return False
    autogen.imports.add("from service.db.types import AutoId, Json, UtcDateTime")
    return name


connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=Base.metadata,
    compare_type=True,
    transaction_per_migration=True,
    render_as_batch=bool(context.config.attributes.get("renders_batch", True)),
    render_item=render_type,
)
with context.begin_transaction():
    context.run_migrations()
