"""Wire models of administration: retrains, jobs, keys."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from app.api.schemas.base import Integer, Strict
from app.domain.entities import ApiKey, Job


class RetrainIn(Strict):
    """What a retrain can be told; everything has a default."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{}, {"alpha": 0.001, "scaling": "l2"}]}
    )

    method: str = Field("lrbs", pattern="^lrbs$")
    alpha: float | None = Field(
        None, gt=0, le=1e6, description="penalty weight; chosen on held-out items when absent"
    )
    scaling: str | None = Field(None, pattern="^(none|center|standard|l2|sqrt)$")
    tol: float = Field(1e-3, gt=0, lt=1)
    max_iter: Integer = Field(200, ge=1, le=100_000)
    seed: Integer = Field(0, ge=0, lt=2**32)


class JobOut(BaseModel):
    """A job."""

    id: str
    collection: str
    state: str
    parameters: dict[str, Any]
    progress: dict[str, Any]
    error: str | None
    model_version: int | None
    attempts: int
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None

    @classmethod
    def of(cls, job: Job) -> JobOut:
        """Return the wire form."""
        return cls(
            id=job.id,
            collection=job.collection,
            state=job.state.value,
            parameters=dict(job.parameters),
            progress=dict(job.progress),
            error=job.error,
            model_version=job.model_version,
            attempts=job.attempts,
            created_at=job.created_at,
            started_at=job.started_at,
            finished_at=job.finished_at,
        )


class KeyIn(Strict):
    """A new key."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"scope": "search", "name": "shop window"}]}
    )

    scope: str = Field(pattern="^(search|write|admin)$")
    name: str | None = Field(None, min_length=1, max_length=64, description="what people call it")


class KeyOut(BaseModel):
    """A key; the secret is shown once, when it is made."""

    id: str
    name: str | None
    scope: str
    created_at: datetime
    secret: str | None = None

    @classmethod
    def of(cls, key: ApiKey, secret: str | None = None) -> KeyOut:
        """Return the wire form."""
        return cls(id=key.id, name=key.name, scope=key.scope.value, created_at=key.created_at, secret=secret)


class KeyList(BaseModel):
    """All keys, without secrets."""

    keys: list[KeyOut]
