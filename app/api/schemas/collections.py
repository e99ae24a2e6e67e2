"""Wire models of collections."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field, WithJsonSchema

from app.api.schemas.base import NAME, Strict
from app.api.schemas.encoders import EncoderIn
from app.domain.entities import Modality


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
