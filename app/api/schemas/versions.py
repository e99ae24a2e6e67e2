"""Wire models of model versions and of what served when."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from app.api.schemas.base import Strict, whole
from app.domain.entities import Activation, ModelVersion
from app.services.models.versions import LARGEST_VERSION

_LONG_FACTS = frozenset({"classes", "curves", "history", "singular_values", "unmatched_labels"})


class ModelOut(BaseModel):
    """A model version."""

    version: int
    is_active: bool
    created_at: datetime
    index_revision: int
    manifest_hash: str = Field(description="SHA-256 of the bundle's manifest, which holds all its sums")
    facts: dict[str, Any] = Field(
        description="how it was learned (`method`, `parameters`, `seed`, `data_hash`, `code_version`), how "
        "the fit went (`convergence`, `history` per iteration, `singular_values`), how good it is "
        "(`held_out` MAP, that of `chance`, and precision-recall `curves` of both directions), what it was "
        "judged by (`gate`, `index`), which items it leaves out (`not_learned_from`, for their size; "
        "`not_ranked`), and why it does not serve (`not_activated`)"
    )

    @classmethod
    def of(cls, model: ModelVersion) -> Self:
        """Return the wire form."""
        return cls(
            version=model.version,
            is_active=model.is_active,
            created_at=model.created_at,
            index_revision=model.index_revision,
            manifest_hash=model.manifest_hash,
            facts=dict(model.facts),
        )


class ModelSummary(ModelOut):
    """A model version without its lists: curves, classes, singular values, the history of its fit."""

    @classmethod
    def of(cls, model: ModelVersion) -> Self:
        """Return the wire form."""
        whole = super().of(model)
        whole.facts = {name: fact for name, fact in whole.facts.items() if name not in _LONG_FACTS}
        return whole


class ModelList(BaseModel):
    """Versions, newest first."""

    models: list[ModelSummary]


class ActivateIn(Strict):
    """What an activation or a rollback can be told; nothing is needed."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{}, {"expected_version": 1, "reason": "better on mobile"}]},
    )

    expected_version: Annotated[int, Field(ge=0, le=LARGEST_VERSION), BeforeValidator(whole)] | None = Field(
        None, description="the version that must be active now, 0 for none; 409 otherwise"
    )
    reason: str | None = Field(None, min_length=1, max_length=500, description="kept in the history")


class ActivationOut(BaseModel):
    """That a version began to serve."""

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

    activations: list[ActivationOut]
