"""Encoder `vector`: features that the client brings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import Field
from typing_extensions import override

from app.domain.entities import Content, Matrix
from app.domain.errors import InvalidFieldError, wrong_content
from app.domain.names import MAX_MAGNITUDE
from app.encoders.base import BaseEncoder
from app.encoders.entry import EncoderType
from app.encoders.options import MAX_COUNT, options_of

_FIELD, _DIM = "vector", "dim"
"""Field of an item that holds its vector, and the option that says how long it is."""


_OPTIONS = options_of(
    "vector",
    "features of your own",
    dim=Annotated[int, Field(ge=1, le=MAX_COUNT, description="default: that of the first item")],
)


class VectorEncoder(BaseEncoder):
    """Passes vectors through after checking them; of any dimension while ``dim`` is not known."""

    content_form = "vector"
    is_quick = True

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._dim: int | None = options.get(_DIM)

    @override
    def check(self, field: str, raw: Content) -> None:
        if raw.vector is None:
            raise wrong_content(field, "vector")
        if len(raw.vector) == 0 or (self._dim is not None and len(raw.vector) != self._dim):
            raise InvalidFieldError(
                field, f"has {len(raw.vector)} numbers, expected {self._dim or 'at least 1'}"
            )
        values = np.asarray(raw.vector, dtype=np.float64)
        bad = np.flatnonzero(~(np.abs(values) <= MAX_MAGNITUDE))
        if len(bad):
            raise InvalidFieldError(
                f"{field}.{bad[0]}", f"expected a number within +-{MAX_MAGNITUDE:g}, got {values[bad[0]]:g}"
            )

    @override
    def options_from(self, first: Content) -> dict[str, Any]:
        return {_DIM: len(first.vector)} if self._dim is None and first.vector else {}

    @override
    def pending_options(self, used: Mapping[str, Any]) -> dict[str, Any]:
        if self._dim is None:
            return {_DIM: used[_DIM]}
        if self._dim != used.get(_DIM):
            raise InvalidFieldError(_FIELD, f"has {used.get(_DIM)} numbers, expected {self._dim}")
        return {}

    @override
    def encode(self, raw: Sequence[Content]) -> Matrix:
        return np.asarray([content.vector for content in raw], dtype=np.float32)


ENCODER = EncoderType(_OPTIONS, lambda options, resources: VectorEncoder(options), "vector")
