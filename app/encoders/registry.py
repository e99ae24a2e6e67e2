"""Which encoder types exist, and how each is made from its options."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from app.domain.errors import InvalidFieldError
from app.domain.names import listed
from app.encoders.content import PixelBudget, picture_type
from app.encoders.hog_color import describe
from app.encoders.onnx_models import OnnxModels
from app.encoders.pictures import OnnxDescriber, PictureEncoder
from app.encoders.texts import TfidfEncoder
from app.encoders.vectors import VectorEncoder

AnyEncoder = PictureEncoder | TfidfEncoder | VectorEncoder

PICTURE_TYPES = ("hog-color", "onnx")


@dataclass(frozen=True, slots=True)
class ContentLimits:
    """Largest content that encoders accept."""

    max_picture_bytes: int
    max_picture_pixels: int
    max_text_chars: int


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _MAX_COUNT


def _is_number(value: Any) -> bool:
    numbers = value if isinstance(value, list) and len(value) == 3 else [value]
    return all(
        isinstance(v, int | float) and not isinstance(v, bool) and abs(v) <= sys.float_info.max
        for v in numbers
    )


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and "\x00" not in value


def _is_sha256(value: Any) -> bool:
    return isinstance(value, str) and _SHA256.fullmatch(value) is not None


_SHA256 = re.compile("[0-9a-f]{64}")
MAX_TERMS = 200_000
"""Of a new collection's `tfidf`: a model holds some hundred numbers for each."""
_MAX_COUNT = 1_000_000
_MAX_SIDE = 2048
_COUNT = (_is_count, f"an integer from 1 to {_MAX_COUNT}")
_NUMBERS = (_is_number, "a number or three")
_OPTIONS: dict[str, dict[str, tuple[Callable[[Any], bool], str]]] = {
    "hog-color": {},
    "onnx": {
        "path": (_is_name, "a file path"),
        "sha256": (_is_sha256, "64 hexadecimal digits"),
        "size": (lambda v: _is_count(v) and v <= _MAX_SIDE, f"an integer from 1 to {_MAX_SIDE}"),
        "mean": _NUMBERS,
        "scale": (
            lambda v: _is_number(v) and 0 not in (v if isinstance(v, list) else [v]),
            "non-zero, or three",
        ),
        "output": (_is_name, "the name of an output"),
    },
    "tfidf": {
        "max_features": _COUNT,
        "ngrams": (lambda v: _is_count(v) and v <= 5, "an integer from 1 to 5"),
    },
    "vector": {"dim": _COUNT},
}


class EncoderRegistry:
    """Makes encoders; those of one ONNX model share it.

    Parameters
    ----------
    limits : ContentLimits
        Handed to every encoder.
    """

    def __init__(self, limits: ContentLimits) -> None:
        # As many as the largest picture has, in however many: memory follows from the sum.
        pictures = (
            limits.max_picture_bytes,
            limits.max_picture_pixels,
            PixelBudget(limits.max_picture_pixels),
        )
        models = OnnxModels()
        self._makers: dict[str, Callable[[Mapping[str, Any]], AnyEncoder]] = {
            "hog-color": lambda options: PictureEncoder(describe, *pictures),
            "onnx": lambda options: PictureEncoder(OnnxDescriber(options, models), *pictures),
            "tfidf": lambda options: TfidfEncoder(options, limits.max_text_chars),
            "vector": VectorEncoder,
        }

    @property
    def types(self) -> tuple[str, ...]:
        """Names of all encoder types."""
        return tuple(self._makers)

    def make(self, options: Mapping[str, Any]) -> AnyEncoder:
        """Return the encoder that ``{"type": ..., ...}`` describes; needs no file yet.

        Raises
        ------
        InvalidFieldError
            If the type or an option is not one of those there are.
        """
        kind = str(options.get("type"))
        if kind not in self._makers:
            raise InvalidFieldError("encoder.type", f"unknown type {kind!r}, expected {listed(self.types)}")
        _check_options(kind, options)
        return self._makers[kind](options)

    def settled(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of a new collection's encoder, with what is found in its file.

        Raises
        ------
        InvalidFieldError
            If the encoder cannot work; names the option.
        """
        encoder = self.make(options)
        # Collections of earlier releases may have more.
        if options.get("max_features", 0) > MAX_TERMS:
            raise InvalidFieldError("encoder.max_features", f"expected at most {MAX_TERMS}")
        return {**options, **(encoder.settled() if isinstance(encoder, PictureEncoder) else {})}

    def restored(self, options: Mapping[str, Any], state: Mapping[str, Any]) -> AnyEncoder:
        """Return the encoder of a model version, from what its `state` was when it was published."""
        encoder = self.make(options)
        if isinstance(encoder, TfidfEncoder):
            return encoder.restore(state)
        return self.make({**options, **state}) if state else encoder

    def picture_type(self, content: bytes) -> str:
        """Return the media type of a picture that an encoder accepted."""
        return picture_type(content)


def _check_options(kind: str, options: Mapping[str, Any]) -> None:
    known = _OPTIONS[kind]
    for name, value in options.items():
        if name == "type":
            continue
        if name not in known:
            raise InvalidFieldError(
                "encoder", f"{kind} has no option {name!r}; it has {listed(sorted(known), 'and') or 'none'}"
            )
        is_valid, expected = known[name]
        if not is_valid(value):
            raise InvalidFieldError(f"encoder.{name}", f"expected {expected}, got {value!r}")
