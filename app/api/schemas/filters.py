"""The wire form of filters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

from app.api.schemas.base import Identifier, Label, Strict
from app.domain.errors import InvalidFieldError
from app.domain.filters import NO_FILTER, Condition, ItemFilter, as_stored
from app.domain.names import is_storable, join_path, join_words, plain_message
from app.domain.words import split_words

MAX_FILTER_KEYS, MAX_FILTER_VALUES, MAX_FILTER_DEPTH, MAX_FILTER_CONDITIONS = 100, 1000, 20, 128
_LONGEST_TEXT = 200
_LONGEST_BOUND = 100  # characters of a text that ends a range: engines keep as much of each value
_TYPES = {str: "string", int: "number", float: "number", bool: "boolean", type(None): "null"}
_KINDS = {"string": ["a text"], "number": ["a number"], "boolean": ["true", "false"], "null": ["null"]}
_ELEMENTS, _BOUNDS = ("string", "number", "boolean"), ("number", "string")


def _one_of(*kinds: str) -> AfterValidator:
    """Return the check that a value is of some kinds, which says in one sentence what it expects."""

    def check(value: Any) -> Any:
        if _TYPES.get(type(value)) not in kinds:
            raise ValueError(f"expected {join_words(word for kind in kinds for word in _KINDS[kind])}")
        if not is_storable(value):
            raise ValueError("contains NUL, a lone surrogate, NaN or infinity")
        if kinds == _BOUNDS and isinstance(value, str) and len(value) > _LONGEST_BOUND:
            raise ValueError(f"expected at most {_LONGEST_BOUND} characters, got {len(value)}")
        if kinds == _BOUNDS and isinstance(value, str) and (likely := as_stored(value)):
            raise ValueError(f"expected {likely}")
        return value

    return AfterValidator(check)


def _check_words(text: str) -> str:
    if not split_words(text):
        raise ValueError("expected a word at least")
    if len(text) > _LONGEST_TEXT:
        raise ValueError(f"expected at most {_LONGEST_TEXT} characters, got {len(text)}")
    return text


_Value = Annotated[Any, _one_of(*_KINDS), WithJsonSchema({"type": [*_KINDS]})]
_Element = Annotated[Any, _one_of(*_ELEMENTS), WithJsonSchema({"type": [*_ELEMENTS]})]
_Bound = Annotated[Any, _one_of(*_BOUNDS), WithJsonSchema({"type": [*_BOUNDS], "maxLength": _LONGEST_BOUND})]
_Values = Annotated[list[_Value], Field(max_length=MAX_FILTER_VALUES, fail_fast=True)]
_Labels = Annotated[list[Label], Field(max_length=MAX_FILTER_VALUES, fail_fast=True)]
_LABELS: TypeAdapter[list[str]] = TypeAdapter(_Labels, config=ConfigDict(strict=True))
_VALUES: TypeAdapter[Any] = TypeAdapter(_Values)


class LabelConditions(Strict):
    """Labels of which an item has any, all, or none."""

    any: _Labels | None = None
    all: _Labels = Field(default_factory=list)
    none: _Labels = Field(default_factory=list)
    _is_list: bool = PrivateAttr(default=False)

    @classmethod
    def read(cls, value: Any) -> Any:
        """Return the form of a list, any of whose labels are asked for; an object as it is."""
        if isinstance(value, dict):
            return value
        if not isinstance(value, list):
            raise ValueError("expected a list of labels, or an object of any, all and none")
        conditions = cls(any=_LABELS.validate_python(value))
        conditions._is_list = True
        return conditions

    def parts(self, path: str) -> Iterator[Condition | ItemFilter]:
        """Yield the domain's conditions."""
        if self.any is not None:
            yield Condition("labels", "in", tuple(self.any), path=path if self._is_list else f"{path}.any")
        for number, label in enumerate(self.all):
            yield Condition("labels", "in", (label,), path=f"{path}.all.{number}")
        if self.none:
            yield ItemFilter((Condition("labels", "in", tuple(self.none), path=f"{path}.none"),), "none")


class ValueConditions(Strict):
    """What holds for the value under a key, all of it. Null stands for a key that is absent: such an item
    passes `ne` and `not_in`, and no range. Numbers are compared with numbers, texts with texts."""

    eq: _Value = Field(None, description="the same; a text that spells a number is that number")
    ne: _Value = None
    in_: _Values = Field([], alias="in", description="any of these")
    not_in: _Values = Field([])
    lt: _Bound = Field(None, description="below; dates of ISO 8601 are texts in their order")
    lte: _Bound = None
    gt: _Bound = None
    gte: _Bound = None
    exists: bool = Field(default=True, description="whether there is a value other than null")
    contains: _Element = Field(None, description="a list with such an element")
    text: Annotated[str, AfterValidator(_check_words)] = Field(
        "",
        description="a text with all these words",
        json_schema_extra={"minLength": 1, "maxLength": _LONGEST_TEXT},
    )

    @staticmethod
    def read(value: Any) -> Any:
        """Return the form of a value, or of a list of which any is asked for; an object as it is."""
        if isinstance(value, dict):
            return value
        if isinstance(value, list):
            return {"in": _VALUES.validate_python(value)}
        return {"eq": value}

    def parts(self, key: str) -> Iterator[Condition | ItemFilter]:
        """Yield the domain's conditions."""
        for name in sorted(self.model_fields_set):
            value = getattr(self, name)
            values = () if name == "exists" else tuple(value) if isinstance(value, list) else (value,)
            operator = "in" if name in ("eq", "ne", "in_", "not_in") else name
            condition = Condition("metadata", operator, values, key)
            is_negated = name in ("ne", "not_in") or (name == "exists" and not value)
            yield ItemFilter((condition,), "none") if is_negated else condition


_Labelled = Annotated[
    LabelConditions, BeforeValidator(LabelConditions.read, json_schema_input_type=_Labels | LabelConditions)
]
_Valued = Annotated[
    ValueConditions,
    BeforeValidator(ValueConditions.read, json_schema_input_type=_Value | _Values | ValueConditions),
]


class FilterIn(Strict):
    """Which items are meant: what stands together holds together.

    Values are 1000 at most, conditions 128, objects and lists in each other 20. An empty list of `labels`, of
    `any`, or of values lets nothing through, since no item has any of none; what is absent asks for nothing.
    """

    labels: _Labelled | None = Field(None, description="any of a list, or conditions")
    metadata: dict[str, _Valued] = Field(
        default_factory=dict,
        max_length=MAX_FILTER_KEYS,
        description="each key with its value, any of its values, or conditions; none passes an empty list",
    )
    ids: list[Identifier] | None = Field(None, fail_fast=True, description="any of these items")
    modality: str | None = None
    pair_id: Identifier | None = None
    all: list[FilterIn] = Field(default_factory=list, fail_fast=True, description="each of these holds")
    any: list[FilterIn] | None = Field(None, fail_fast=True, description="one of these holds at least")
    not_: FilterIn | None = Field(None, alias="not", description="this does not hold")

    @model_validator(mode="before")
    @classmethod
    def _check_size(cls, data: Any) -> Any:
        """Refuse too many values, and too many brackets in each other, before any is looked at."""
        count = _count(data)
        if count > MAX_FILTER_VALUES:
            raise ValueError(f"{count} labels and values, at most {MAX_FILTER_VALUES} allowed together")
        return data

    def to_filter(self, path: str = "filter") -> ItemFilter:
        """Return the domain's filter, of which `path` is the place in the request; raises InvalidFieldError
        (names it) where it has too many conditions."""
        if not self.model_fields_set:  # as of most searches
            return NO_FILTER
        item_filter = self._read(path)
        n_conditions = len(item_filter.conditions)
        if n_conditions > MAX_FILTER_CONDITIONS:
            message = f"{n_conditions} conditions, at most {MAX_FILTER_CONDITIONS} allowed together"
            raise InvalidFieldError(path, message)
        return item_filter

    def _read(self, path: str) -> ItemFilter:
        parts: list[Condition | ItemFilter] = []
        if self.labels is not None:
            parts += self.labels.parts(join_path(path, "labels"))
        for key, conditions in self.metadata.items():
            parts += conditions.parts(key)
        if self.ids is not None:
            parts.append(Condition("id", "in", tuple(self.ids)))
        if self.modality is not None:
            parts.append(Condition("modality", "in", (self.modality,)))
        if self.pair_id is not None:
            parts.append(Condition("pair_id", "in", (self.pair_id,)))
        parts += (one._read(f"{path}.all.{number}") for number, one in enumerate(self.all))
        if self.any is not None:
            alternatives = (one._read(f"{path}.any.{number}") for number, one in enumerate(self.any))
            parts.append(ItemFilter(tuple(alternatives), "any"))
        if self.not_ is not None:
            parts.append(ItemFilter((self.not_._read(f"{path}.not"),), "none"))
        return ItemFilter(tuple(parts))


def read_filter(value: Mapping[str, Any], place: str) -> ItemFilter:
    """Return the domain's form of a filter; raises InvalidFieldError (names a field of `place`)."""
    try:
        return FilterIn.model_validate(value).to_filter(place)
    except ValidationError as error:
        first = error.errors()[0]
        field = join_path(place, ".".join(map(str, first["loc"])))
        raise InvalidFieldError(field, plain_message(first["msg"])) from error


def _count(data: Any, depth: int = 0) -> int:
    """Return about how many values JSON has; each entry of a list is one at least."""
    if depth > MAX_FILTER_DEPTH:
        raise ValueError(f"more than {MAX_FILTER_DEPTH} objects and lists in each other")
    if isinstance(data, list):
        return sum(max(_count(value, depth + 1), 1) for value in data)
    if isinstance(data, dict):
        # Absent fields may be null; many keys that are null are conditions.
        return max(sum(_count(value, depth + 1) for value in data.values()), len(data) // 4)
    return int(data is not None)
