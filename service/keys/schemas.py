"""API keys as the API shows and takes them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, Self

from pydantic import AwareDatetime, BaseModel, Field

from service.db.models import ApiKey
from training.protocol.base import Text, Value

RoleName = Literal["viewer", "operator", "admin"]


class KeyCreate(Value):
    name: Annotated[Text, Field(min_length=1, max_length=100)]
    role: RoleName = "operator"
    expires_at: AwareDatetime | None = Field(default=None, description="none: until it is revoked")


class KeyView(BaseModel):
    id: str
    name: str
    role: RoleName
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None = Field(description="to within ten minutes")

    @classmethod
    def of(cls, key: ApiKey) -> Self:
        return cls.model_validate(key, from_attributes=True)


class NewKeyView(KeyView):
    secret: str = Field(description="the whole key, shown only this once")


class MeView(BaseModel):
    """Who the service takes the caller for."""

    key_id: str
    project_id: str
    project_name: str
    role: RoleName
