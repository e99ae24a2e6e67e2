"""Wire models of collections."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema
from pydantic.config import JsonDict

from app.api.schemas.base import EXAMPLE_TIME, NAME, Strict
from app.api.schemas.encoders import EncoderIn, without_paths
from app.domain.entities import Collection, Modality
from app.encoders.registry import content_form


class ModalityIn(Strict):
    """One side of a collection."""

    encoder: EncoderIn


class CollectionIn(Strict):
    """A new collection: two modalities, the first is X."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "name": "products",
                    "modalities": {
                        "image": {"encoder": {"type": "hog-color"}},
                        "text": {"encoder": {"type": "tfidf"}},
                    },
                }
            ]
        },
    )

    name: Annotated[str, WithJsonSchema(NAME)]
    modalities: dict[str, ModalityIn] = Field(
        json_schema_extra={"minProperties": 2, "maxProperties": 2, "propertyNames": NAME}
    )

    def to_modalities(self) -> list[Modality]:
        """Return the domain's modalities, in the order given."""
        entries = self.modalities.items()
        return [Modality(name, entry.encoder.options()) for name, entry in entries]


_COLLECTION: JsonDict = {
    "name": "products",
    "modalities": {
        "image": {"encoder": {"type": "hog-color"}, "content": "picture"},
        "text": {"encoder": {"type": "tfidf"}, "content": "text"},
    },
    "revision": 12,
    "active_version": 1,
    "created_at": EXAMPLE_TIME,
}


class ModalityOut(BaseModel):
    """One of the two kinds of data of a collection."""

    encoder: dict[str, Any] = Field(description="its type and options, without the paths of files")
    content: str = Field(description='what it takes: "picture", "text", "sound" or "vector"')


class CollectionOut(BaseModel):
    """A collection."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{**_COLLECTION, "items": {"image": 5, "text": 7}}]}
    )

    name: str
    modalities: dict[str, ModalityOut]
    revision: int
    active_version: int | None
    created_at: datetime
    items: dict[str, int] | None = None

    @classmethod
    def of(cls, collection: Collection, counts: dict[str, int] | None = None) -> CollectionOut:
        """Return the wire form."""
        modalities = {
            modality.name: ModalityOut(
                encoder=without_paths(modality.encoder), content=content_form(modality.encoder)
            )
            for modality in collection.modalities
        }
        return cls(
            name=collection.name,
            modalities=modalities,
            revision=collection.revision,
            active_version=collection.active_version,
            created_at=collection.created_at,
            items=None
            if counts is None
            else {name: counts.get(name, 0) for name in collection.modality_names},
        )


class CollectionList(BaseModel):
    """All collections."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"collections": [_COLLECTION]}]})

    collections: list[CollectionOut]
