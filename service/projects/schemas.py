"""Projects as the API shows and takes them."""

from __future__ import annotations

from datetime import datetime
from typing import Self

from pydantic import BaseModel, Field

from service.db.models import Project
from service.keys.schemas import NewKeyView
from training.protocol.base import Name, Value


class ProjectCreate(Value):
    name: Name
    allows_unbudgeted_jobs: bool = Field(default=False, description="let jobs run that no budget covers")


class ProjectUpdate(Value):
    allows_unbudgeted_jobs: bool


class ProjectView(BaseModel):
    id: str
    name: str
    allows_unbudgeted_jobs: bool
    created_at: datetime

    @classmethod
    def of(cls, project: Project) -> Self:
        return cls.model_validate(project, from_attributes=True)


class NewProjectView(ProjectView):
    """A new project with the key of its first admin."""

    key: NewKeyView
