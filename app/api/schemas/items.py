"""Wire models of items."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue
from pydantic.config import JsonDict

from app.api.schemas.base import Identifier, Label, Strict
from app.api.schemas.content import RawIn, content_url
from app.domain.entities import Content, Item
from app.domain.limits import MAX_LABELS
from app.services.catalogue.preparation import NewItem


class ItemFactsIn(Strict):
    """A new item but for its content."""

    id: Identifier | None = None
    modality: str
    labels: list[Label] = Field(default_factory=list, max_length=MAX_LABELS, fail_fast=True)
    pair_id: Identifier | None = None
    metadata: dict[str, JsonValue] = Field(
        default_factory=dict, description="at most 20 000 characters of JSON"
    )
    train: bool = True

    def with_content(self, content: Content, place: str = "", item_id: str | None = None) -> NewItem:
        """Return the service's form of what stands at `place` of the request."""
        return NewItem(
            modality=self.modality,
            content=content,
            place=place,
            id=item_id or self.id,
            labels=tuple(self.labels),
            pair_id=self.pair_id,
            metadata=self.metadata,
            train=self.train,
        )


class ItemIn(RawIn, ItemFactsIn):
    """A new item."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"modality": "text", "text": "a red shoe", "labels": ["shoes"]}]},
    )

    def to_item(self, place: str = "", item_id: str | None = None) -> NewItem:
        """Return the service's form; raises InvalidFieldError unless it has one content."""
        return self.with_content(self.to_content(place), place, item_id)


class LabelsIn(Strict):
    """An item's labels."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"labels": ["shoes"]}]})

    labels: list[Label] = Field(max_length=MAX_LABELS, fail_fast=True)


class ItemsIn(Strict):
    """Items to store, all or none."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "items": [
                        {"id": "t1", "modality": "text", "text": "a red running shoe", "labels": ["shoes"]},
                        {"id": "t2", "modality": "text", "text": "a leather wallet", "labels": ["wallets"]},
                    ]
                }
            ]
        },
    )

    items: list[ItemIn] = Field(min_length=1, fail_fast=True)


class WrittenOut(BaseModel):
    """Outcome of a write."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"ids": ["t1", "t2"], "revision": 13}]})

    ids: list[str]
    revision: int


class ImportedOut(BaseModel):
    """Outcome of an import."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"revision": 14, "created": 1, "updated": 1, "unchanged": 0, "ids": ["t1", "t2"]}]
        }
    )

    revision: int = Field(description="of the collection; as it was when nothing changed")
    created: int
    updated: int
    unchanged: int = Field(description="were there already, the same; they keep their revision")
    ids: list[str] = Field(description="in the order of the lines")


_ITEM: JsonDict = {
    "id": "i1",
    "modality": "image",
    "text": None,
    "content_url": "/v1/collections/products/items/i1/content",
    "labels": ["shoes"],
    "pair_id": "t1",
    "metadata": {"price": 59.9},
    "train": True,
    "revision": 12,
}


class ItemOut(BaseModel):
    """An item."""

    model_config = ConfigDict(json_schema_extra={"examples": [_ITEM]})

    id: str
    modality: str
    text: str | None
    content_url: str | None
    labels: list[str]
    pair_id: str | None
    metadata: dict[str, Any]
    train: bool
    revision: int

    @classmethod
    def of(cls, collection: str, item: Item) -> ItemOut:
        """Return the wire form."""
        return cls(
            id=item.id,
            modality=item.modality,
            text=item.text,
            content_url=content_url(collection, item),
            labels=list(item.labels),
            pair_id=item.pair_id,
            metadata=dict(item.metadata),
            train=item.train,
            revision=item.revision,
        )


class ItemPage(BaseModel):
    """One page of items; `next_cursor` is null on the last."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"items": [_ITEM], "next_cursor": "42"}]})

    items: list[ItemOut]
    next_cursor: str | None


class PartnersOut(BaseModel):
    """Partners by the ids of the items that have one."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"partners": {"t1": _ITEM}}]})

    partners: dict[str, ItemOut]
