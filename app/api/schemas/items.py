"""Wire models of items and feedback."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import ConfigDict, Field, GetJsonSchemaHandler, JsonValue
from pydantic.json_schema import JsonSchemaValue

from app.api.schemas.base import Identifier, Label, RawIn, Strict
from app.api.schemas.filters import FilterIn
from app.api.schemas.searches import QueryIn
from app.domain.entities import Content
from app.domain.errors import InvalidFieldError
from app.domain.filters import ItemFilter
from app.domain.names import MAX_LABELS, join_path
from app.services.catalogue.preparation import ItemChange, NewItem
from app.services.catalogue.service import NewFeedback


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


class ItemIn(RawIn, ItemFactsIn):
    """A new item."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"modality": "text", "text": "a red shoe", "labels": ["shoes"]}]}
    )

    def to_item(self, place: str = "", item_id: str | None = None, content: Content | None = None) -> NewItem:
        """Return the service's form of what stands at `place` of the request, with the content of a form's
        file if it is given; raises InvalidFieldError unless it has one content."""
        return NewItem(
            modality=self.modality,
            content=content or self.to_content(place),
            place=place,
            id=item_id or self.id,
            labels=tuple(self.labels),
            pair_id=self.pair_id,
            metadata=self.metadata,
            train=self.train,
        )


_CHANGED = frozenset({"id", "modality", "labels", "metadata"})  # what a line may have that changes an item


class ItemLineIn(ItemIn):
    """A new item, or without content other labels and metadata for one that is stored."""

    HINTS: ClassVar[dict[str, str]] = {
        "content_url": "is of a list of items, which has no content: items:export has lines to import"
    }

    modality: str = Field("", min_length=1, description="required, unless there is no content")

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Say that one of the forms is given, with a modality, or none, with an id."""
        schema = super().__get_pydantic_json_schema__(core_schema, handler)
        line = handler.resolve_ref_schema(schema)
        del line["properties"]["modality"]["default"]
        forms = line["oneOf"]
        for form in forms:
            form["required"].append("modality")
        nulls = {form: {"type": "null"} for form in cls.FORMS}
        others = sorted(cls.model_fields.keys() - _CHANGED - nulls.keys())
        forms.append(
            {"title": "change", "required": ["id"], "properties": nulls | dict.fromkeys(others, False)}
        )
        return schema

    def to_row(self, place: str = "") -> NewItem | ItemChange:
        """Return the service's form; raises InvalidFieldError for what is neither."""
        if self.id is None or any(getattr(self, form) is not None for form in self.FORMS):
            if not self.modality:
                raise InvalidFieldError(join_path(place, "modality"), "Field required")
            return self.to_item(place)
        others = sorted(self.model_fields_set - _CHANGED - {*self.FORMS})
        if others:
            reason = "only labels and metadata are changed by a line without content"
            raise InvalidFieldError(join_path(place, others[0]), reason)
        labels = tuple(self.labels) if "labels" in self.model_fields_set else None
        return ItemChange((self.id,), labels, self.metadata, place)


class LabelsIn(Strict):
    """An item's labels."""

    labels: list[Label] = Field(max_length=MAX_LABELS, fail_fast=True)


class PassingIn(Strict):
    """Which items are meant: those that pass a filter, or all."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [
                {
                    "required": ["filter"],
                    "properties": {"filter": {"type": "object"}, "all": {"const": False}},
                },
                {"required": ["all"], "properties": {"all": {"const": True}, "filter": {"type": "null"}}},
            ]
        }
    )

    filter: FilterIn | None = Field(None, description="one that lets every item through is refused")
    all: bool = Field(default=False, description="true in place of a filter means every item")
    dry_run: bool = Field(default=False, description="count only, and change nothing")

    def to_filter(self) -> ItemFilter:
        """Return the domain's filter; raises InvalidFieldError where it is not said which items are meant."""
        if self.all == (self.filter is not None):
            raise InvalidFieldError("filter", 'expected a filter, or "all": true in its place for every item')
        item_filter = (self.filter or FilterIn()).to_filter()
        if not (self.all or item_filter.conditions) and item_filter.accepts(None):
            raise InvalidFieldError(
                "filter", 'lets every item through: say "all": true in its place if they are meant'
            )
        return item_filter


class ItemsDeleteIn(PassingIn):
    """Items to delete."""


class ItemsUpdateIn(PassingIn):
    """Items to change, and how; what is not given stays as it is."""

    labels: list[Label] | None = Field(
        None, max_length=MAX_LABELS, fail_fast=True, description="in place of all that they have"
    )
    add_labels: list[Label] = Field(default_factory=list, max_length=MAX_LABELS, fail_fast=True)
    remove_labels: list[Label] = Field(default_factory=list, max_length=MAX_LABELS, fail_fast=True)
    metadata: dict[str, JsonValue] = Field(
        default_factory=dict, description="keys to set, or to remove where they are null"
    )

    def to_change(self) -> ItemChange:
        """Return the service's form."""
        labels = None if self.labels is None else tuple(self.labels)
        added, removed = tuple(self.add_labels), tuple(self.remove_labels)
        return ItemChange(labels=labels, metadata=self.metadata, added=added, removed=removed)


class ItemsIn(Strict):
    """Items to store, all or none."""

    items: list[ItemIn] = Field(min_length=1, fail_fast=True)


class FeedbackIn(Strict):
    """One item's relevance to one query."""

    query: QueryIn
    source: str = Field(description="modality of the query")
    target: str = Field(description="modality of the item")
    item_id: Identifier = Field(description="the item, such as one that a search returned")
    relevant: bool = Field(description="whether the item answers the query")

    def to_feedback(self, place: str) -> NewFeedback:
        """Return the service's form; raises InvalidFieldError unless the query has exactly one form."""
        query = self.query.to_query(join_path(place, "query"))
        return NewFeedback(
            self.source, self.target, self.item_id, self.relevant, query.content, query.item_id, place
        )


class FeedbackListIn(Strict):
    """Feedback to store, all or none."""

    feedback: list[FeedbackIn] = Field(min_length=1, fail_fast=True)
