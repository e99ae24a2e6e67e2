"""Options of encoders: one description of each type, for the checks and for the OpenAPI document."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, Literal, Required, Union, get_args

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    WrapValidator,
    with_config,
)
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticCustomError
from typing_extensions import TypedDict, get_type_hints

from app.domain.errors import InvalidFieldError
from app.domain.names import STORABLE_PATTERN, join_words, plain_message

MAX_COUNT = 1_000_000
"""Largest count of an option: a row of that many features takes 4 MB."""


def expect(phrase: str) -> WrapValidator:
    """Return a validator that words every refusal as ``expected <phrase>, got <value>``; for values that
    their schema does not describe in such words by itself."""

    def check(value: Any, validate: Callable[[Any], Any]) -> Any:
        try:
            return validate(value)
        except ValidationError as error:
            context = {"phrase": phrase, "value": repr(value)}
            raise PydanticCustomError("option", "expected {phrase}, got {value}", context) from error

    return WrapValidator(check)


def _check_not_zero(number: float) -> float:
    if number == 0:
        raise ValueError("is zero")
    return number


def _check_no_nul(text: str) -> str:
    if "\x00" in text:
        raise ValueError("contains NUL")
    return text


Finite = Annotated[
    float, Field(ge=-sys.float_info.max, le=sys.float_info.max), WithJsonSchema({"type": "number"})
]
NonZero = Annotated[
    Finite, AfterValidator(_check_not_zero), WithJsonSchema({"type": "number", "not": {"const": 0}})
]
NonZeros = Annotated[list[NonZero], Field(min_length=3, max_length=3)]
Finites = Annotated[list[Finite], Field(min_length=3, max_length=3)]
StoredText = Annotated[
    str,
    AfterValidator(_check_no_nul),
    WithJsonSchema({"type": "string", "minLength": 1, "pattern": STORABLE_PATTERN}),
]
FilePath = Annotated[StoredText, expect("a file path")]
OutputName = Annotated[StoredText, expect("the name of an output")]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$"), expect("64 hexadecimal digits")]
_STEPS = ("center", "l2", "pca", "sqrt", "standardize")
_MAX_STEPS = 8
DEFAULT_ENERGY = 0.95
"""Share of the variance that `pca` keeps."""
Step = Annotated[
    str, Field(pattern=rf"^({'|'.join(_STEPS)}|pca:0\.[5-9][0-9]{{0,5}})$", examples=[*_STEPS, "pca:0.9"])
]
Steps = Annotated[
    list[Step],
    Field(min_length=1, max_length=_MAX_STEPS, description="changes of the features, one after the other"),
    expect(f"a list of {join_words(_STEPS)} (pca:0.9 with a share of the variance from .5 to 1)"),
]


_TYPED_DICT: Any = TypedDict
_REQUIRED: Any = Required
_LITERAL: Any = Literal
"""Of names and fields that are known at run time only."""


def describe_options(title: str, description: str) -> ConfigDict:
    """Return the configuration of a type's options, to be given by ``with_config``."""
    return ConfigDict(
        extra="forbid", strict=True, title=title, json_schema_extra={"description": description}
    )


def options_of(kind: str, description: str, required: Collection[str] = (), **fields: Any) -> Any:
    """Return the options of a type: these, of which some are required, and those that every encoder has."""
    kinds = {name: _REQUIRED[field] if name in required else field for name, field in fields.items()}
    own = {"steps": Steps, "type": _REQUIRED[_LITERAL[kind]], **kinds}
    return with_config(describe_options(kind, description))(_TYPED_DICT(kind, own, total=False))


def names_file(option: str) -> bool:
    """Return whether an option of any type names a file on the server, by its own name."""
    return option == "path" or option.endswith("_path")


def without_paths(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return an encoder's options as clients see them: where the server has its files is left out."""
    shown = {name: value for name, value in options.items() if not names_file(name)}
    return {**shown, "parts": [without_paths(part) for part in shown["parts"]]} if "parts" in shown else shown


def type_name(options: Any) -> str:
    """Return the name of the type whose options these are."""
    (name,) = get_args(get_type_hints(options)["type"])
    return str(name)


class _WithoutFieldTitles(GenerateJsonSchema):
    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


class OptionTable:
    """The options of all encoder `types`: a TypedDict for each, whose field ``type`` is a literal."""

    def __init__(self, *options: Any) -> None:
        union: Any = Union[options]  # noqa: UP007 - the members are known at run time only
        self._adapter: TypeAdapter[Any] = TypeAdapter(Annotated[union, Field(discriminator="type")])
        self._schemas: dict[str, dict[str, Any]] = {
            type_name(one): TypeAdapter(one).json_schema(schema_generator=_WithoutFieldTitles)
            for one in options
        }
        self.types = tuple(self._schemas)

    def schemas(self) -> dict[str, dict[str, Any]]:
        """Return the JSON schema of each type's options, by type."""
        return copy.deepcopy(self._schemas)

    def check(self, options: Mapping[str, Any]) -> None:
        """Check ``{"type": ..., ...}``; a file that is not named is no mistake yet.
        Raises InvalidFieldError, which names the first of several mistakes."""
        kind = str(options.get("type"))
        if kind not in self.types:
            raise InvalidFieldError(
                "encoder.type", f"unknown type {kind!r}, expected {join_words(self.types)}"
            )
        try:
            self._adapter.validate_python(dict(options))
        except ValidationError as invalid:
            order = list(options)
            mistakes = [error for error in invalid.errors() if error["type"] != "missing"]
            if not mistakes:
                return
            first = min(mistakes, key=lambda error: order.index(str(error["loc"][1])))
            name = str(first["loc"][1])
            if first["type"] == "extra_forbidden":
                names = sorted(self._schemas[kind]["properties"].keys() - {"type"})
                reason = f"{kind} has no option {name!r}; it has {join_words(names, 'and') or 'none'}"
                raise InvalidFieldError("encoder", reason) from invalid
            expected = _describe_values(self._schemas[kind]["properties"][name])
            reason = f"expected {expected}, got {options[name]!r}"
            if first["type"] == "option" or not expected:
                reason = plain_message(first["msg"])
            raise InvalidFieldError(f"encoder.{name}", reason) from invalid


def _describe_values(schema: Mapping[str, Any]) -> str:
    """Return in words what a schema of a few values, a whole number or a flag allows; empty for others."""
    if "enum" in schema:
        return join_words(map(repr, schema["enum"]))
    if schema.get("type") == "integer" and schema.keys() >= {"minimum", "maximum"}:
        return f"an integer from {schema['minimum']} to {schema['maximum']}"
    return "true or false" if schema.get("type") == "boolean" else ""
