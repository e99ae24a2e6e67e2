"""Wire models of model versions and their activations."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, ConfigDict, Field

from app.api.schemas.base import Strict, whole
from app.domain.limits import LARGEST_VERSION


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
