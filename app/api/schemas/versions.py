"""Wire models of model versions and their activations."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.config import JsonDict

from app.api.schemas.base import EXAMPLE_TIME, Strict, whole
from app.api.schemas.reports import REPORT_EXAMPLE, TrainingReportOut
from app.domain.entities import Activation, ModelVersion
from app.domain.limits import LARGEST_VERSION

_MODEL: JsonDict = {
    "version": 1,
    "is_active": True,
    "created_at": EXAMPLE_TIME,
    "index_revision": 12,
    "manifest_hash": "0" * 64,
    "report": REPORT_EXAMPLE,
}


class ModelOut(BaseModel):
    """A model version."""

    model_config = ConfigDict(json_schema_extra={"examples": [_MODEL]})

    version: int
    is_active: bool
    created_at: datetime
    index_revision: int
    manifest_hash: str = Field(description="SHA-256 of the bundle's manifest, which holds all its sums")
    report: TrainingReportOut

    @classmethod
    def of(cls, model: ModelVersion) -> Self:
        """Return the wire form."""
        return cls(
            version=model.version,
            is_active=model.is_active,
            created_at=model.created_at,
            index_revision=model.index_revision,
            manifest_hash=model.manifest_hash,
            report=TrainingReportOut.of(model.report),
        )

    @classmethod
    def summary_of(cls, model: ModelVersion) -> Self:
        """Return the wire form without long lists."""
        return cls.of(model).model_copy(update={"report": TrainingReportOut.summary_of(model.report)})


class ModelList(BaseModel):
    """Versions, newest first, without the long lists of their reports."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"models": [_MODEL]}]})

    models: list[ModelOut]


class ActivateIn(Strict):
    """Options of an activation or a rollback; all may be left out."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{}, {"expected_version": 1, "reason": "better on mobile"}]},
    )

    expected_version: Annotated[int, Field(ge=0, le=LARGEST_VERSION), BeforeValidator(whole)] | None = Field(
        None, description="the version that must be active now, 0 for none; 409 otherwise"
    )
    reason: str | None = Field(None, min_length=1, max_length=500, description="kept in the history")


_ACTIVATION: JsonDict = {
    "version": 2,
    "previous": 1,
    "at": EXAMPLE_TIME,
    "by": "key 0123456789abcdef",
    "reason": None,
}


class ActivationOut(BaseModel):
    """Record of a version becoming active."""

    version: int
    previous: int | None
    at: datetime
    by: str
    reason: str | None

    @classmethod
    def of(cls, entry: Activation) -> ActivationOut:
        """Return the wire form."""
        return cls(
            version=entry.version, previous=entry.previous, at=entry.at, by=entry.by, reason=entry.reason
        )


class ActivationList(BaseModel):
    """Activations, newest first."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"activations": [_ACTIVATION]}]})

    activations: list[ActivationOut]
