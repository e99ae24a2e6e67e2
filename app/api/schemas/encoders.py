"""Wire models of encoders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue

from app.encoders.options import names_file
from app.encoders.registry import OPTIONS, TYPES


class EncoderIn(BaseModel):
    """An encoder: its type and its own options, which the encoders themselves check."""

    model_config = ConfigDict(extra="allow")

    type: str

    def options(self) -> dict[str, Any]:
        """Return type and options, whole numbers as integers."""
        return _with_integers(self.model_dump())

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Describe every type with its options."""
        schema = handler(core_schema)
        resolved = handler.resolve_ref_schema(schema)
        for keyword in ("properties", "required", "additionalProperties"):
            resolved.pop(keyword, None)
        types = OPTIONS.schemas()
        parts = [options for kind, options in types.items() if kind not in ("combine", "vector")]
        types["combine"]["properties"]["parts"]["items"] = {"oneOf": parts}
        resolved["oneOf"] = list(types.values())
        return schema


class EncoderOut(BaseModel):
    """A type of encoder."""

    type: str
    content: Literal["picture", "text", "sound", "vector"] | None = Field(
        description="what it takes; null where its parts decide"
    )
    description: str
    options: dict[str, Any] = Field(description="JSON schema of each option, by name")
    required: list[str] = Field(description="options without a default")


class EncoderList(BaseModel):
    """All types of encoders, by name."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "encoders": [
                        {
                            "type": "word-frequency",
                            "content": "text",
                            "description": "texts: frequencies of words; learned at each retrain",
                            "options": {
                                "max_words": {
                                    "type": "integer",
                                    "minimum": 1,
                                    "maximum": 200_000,
                                    "description": "words kept at most, the most frequent ones",
                                }
                            },
                            "required": [],
                        }
                    ]
                }
            ]
        }
    )

    encoders: list[EncoderOut]

    @classmethod
    def of_registry(cls) -> Self:
        """Return the types there are."""
        return cls(encoders=[_describe(kind, schema) for kind, schema in OPTIONS.schemas().items()])


def _describe(kind: str, schema: Mapping[str, Any]) -> EncoderOut:
    return EncoderOut(
        type=kind,
        content=TYPES[kind].content,
        description=schema.get("description", ""),
        options={name: option for name, option in schema["properties"].items() if name != "type"},
        required=[name for name in schema["required"] if name != "type"],
    )


def _with_integers(options: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: [_with_integers(part) if isinstance(part, dict) else part for part in value]
        if name == "parts" and isinstance(value, list)
        else _with_integer(value)
        for name, value in options.items()
    }


def _with_integer(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def without_paths(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return an encoder's options as clients see them: where the server has its files is left out."""
    shown = {name: value for name, value in options.items() if not names_file(name)}
    return {**shown, "parts": [without_paths(part) for part in shown["parts"]]} if "parts" in shown else shown
