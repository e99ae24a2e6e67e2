"""Options of every encoder type: one description for the checks and for the OpenAPI document."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, Required

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
from typing_extensions import TypedDict

from app.domain.errors import InvalidFieldError
from app.domain.limits import STORABLE_PATTERN
from app.domain.names import join_words

MAX_TERMS = 200_000
"""Largest ``max_features`` of a new collection: a model holds some hundred numbers for each term."""
_MAX_COUNT = 1_000_000
"""Largest of any other count: a row of that many features takes 4 MB."""
_MAX_SIDE = 2048
"""Largest side of a model's square input, in pixels: that input takes 48 MiB."""
_MAX_RUN = 5
"""Longest run of words: longer ones hardly ever occur twice."""


def _expect(phrase: str) -> WrapValidator:
    """Return a validator that words every refusal as ``expected <phrase>, got <value>``."""

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


_Finite = Annotated[
    float,
    Field(ge=-sys.float_info.max, le=sys.float_info.max),
    WithJsonSchema({"type": "number"}),
]
_NonZero = Annotated[
    _Finite, AfterValidator(_check_not_zero), WithJsonSchema({"type": "number", "not": {"const": 0}})
]
_NonZeros = Annotated[list[_NonZero], Field(min_length=3, max_length=3)]
_Finites = Annotated[list[_Finite], Field(min_length=3, max_length=3)]
_Text = Annotated[
    str,
    AfterValidator(_check_no_nul),
    WithJsonSchema({"type": "string", "minLength": 1, "pattern": STORABLE_PATTERN}),
]


def _config(title: str, description: str) -> ConfigDict:
    return ConfigDict(
        extra="forbid", strict=True, title=title, json_schema_extra={"description": description}
    )


@with_config(_config("hog-color", "pictures: oriented gradients and colours"))
class HogColorOptions(TypedDict, total=False):
    """Options of encoder `hog-color`: none."""

    type: Required[Literal["hog-color"]]


@with_config(_config("onnx", "pictures: an ONNX image model on the server"))
class OnnxOptions(TypedDict, total=False):
    """Options of encoder `onnx`."""

    type: Required[Literal["onnx"]]
    path: Required[Annotated[_Text, Field(description="the model file"), _expect("a file path")]]
    sha256: Annotated[
        str,
        Field(
            pattern="^[0-9a-f]{64}$",
            description="of the model file, taken from it when absent; no other is used afterwards",
        ),
        _expect("64 hexadecimal digits"),
    ]
    size: Annotated[
        int,
        Field(ge=1, le=_MAX_SIDE, description="side of its square input"),
        _expect(f"an integer from 1 to {_MAX_SIDE}"),
    ]
    mean: Annotated[
        _Finite | _Finites,
        Field(description="subtracted from each pixel; for all channels, or for each"),
        _expect("a number or three"),
    ]
    scale: Annotated[
        _NonZero | _NonZeros,
        Field(description="then divides it; for all channels, or for each"),
        _expect("non-zero, or three"),
    ]
    output: Annotated[
        _Text,
        Field(description="name of the output; the first when absent"),
        _expect("the name of an output"),
    ]


@with_config(_config("tfidf", "texts: words, then runs of words; learned at each retrain"))
class TfidfOptions(TypedDict, total=False):
    """Options of encoder `tfidf`."""

    type: Required[Literal["tfidf"]]
    # Collections of earlier releases may have more terms than the document allows new ones.
    max_features: Annotated[
        int,
        Field(
            ge=1,
            le=_MAX_COUNT,
            description="terms kept at most",
            json_schema_extra={"maximum": MAX_TERMS},
        ),
        _expect(f"an integer from 1 to {_MAX_COUNT}"),
    ]
    ngrams: Annotated[
        int,
        Field(ge=1, le=_MAX_RUN, description="longest run of words"),
        _expect(f"an integer from 1 to {_MAX_RUN}"),
    ]


@with_config(_config("vector", "features of your own"))
class VectorOptions(TypedDict, total=False):
    """Options of encoder `vector`."""

    type: Required[Literal["vector"]]
    dim: Annotated[
        int,
        Field(ge=1, le=_MAX_COUNT, description="taken from the first item when absent"),
        _expect(f"an integer from 1 to {_MAX_COUNT}"),
    ]


EncoderOptions = Annotated[
    HogColorOptions | OnnxOptions | TfidfOptions | VectorOptions, Field(discriminator="type")
]
_ADAPTER: TypeAdapter[Any] = TypeAdapter(EncoderOptions)


class _WithoutFieldTitles(GenerateJsonSchema):
    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


_DOCUMENT = _ADAPTER.json_schema(schema_generator=_WithoutFieldTitles)
_SCHEMAS: dict[str, dict[str, Any]] = {
    kind: _DOCUMENT["$defs"][reference.rpartition("/")[2]]
    for kind, reference in _DOCUMENT["discriminator"]["mapping"].items()
}
TYPES = tuple(_SCHEMAS)


def option_schemas() -> dict[str, dict[str, Any]]:
    """Return the JSON schema of each encoder type's options, by type."""
    return copy.deepcopy(_SCHEMAS)


def check_options(options: Mapping[str, Any]) -> None:
    """Check ``{"type": ..., ...}``; a file that is not named is no mistake yet.

    Raises
    ------
    InvalidFieldError
        If the type or an option is unknown, or a value is not allowed; of several mistakes, names the first.
    """
    kind = str(options.get("type"))
    if kind not in TYPES:
        raise InvalidFieldError("encoder.type", f"unknown type {kind!r}, expected {join_words(TYPES)}")
    try:
        _ADAPTER.validate_python(dict(options))
    except ValidationError as invalid:
        order = list(options)
        mistakes = [error for error in invalid.errors() if error["type"] != "missing"]
        if not mistakes:
            return
        first = min(mistakes, key=lambda error: order.index(str(error["loc"][1])))
        name = str(first["loc"][1])
        if first["type"] == "extra_forbidden":
            names = sorted(_SCHEMAS[kind]["properties"].keys() - {"type"})
            reason = f"{kind} has no option {name!r}; it has {join_words(names, 'and') or 'none'}"
            raise InvalidFieldError("encoder", reason) from invalid
        raise InvalidFieldError(f"encoder.{name}", first["msg"]) from invalid
