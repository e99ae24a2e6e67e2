"""Which encoder types exist, and how each is made from its options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from app.domain.entities import Content
from app.domain.errors import InvalidFieldError
from app.encoders.content import PixelBudget, picture_type
from app.encoders.hog_color import HogColorOptions, describe
from app.encoders.onnx_models import OnnxModels
from app.encoders.options import OptionTable
from app.encoders.pictures import OnnxDescriber, OnnxOptions, PictureEncoder
from app.encoders.texts import MAX_TERMS, TfidfEncoder, TfidfOptions
from app.encoders.vectors import VectorEncoder, VectorOptions

AnyEncoder = PictureEncoder | TfidfEncoder | VectorEncoder

PICTURE_TYPES, TEXT_TYPES = ("hog-color", "onnx"), ("tfidf",)
OPTIONS = OptionTable(HogColorOptions, OnnxOptions, TfidfOptions, VectorOptions)


@dataclass(frozen=True, slots=True)
class ContentLimits:
    """Largest content that encoders accept."""

    max_picture_bytes: int
    max_picture_pixels: int
    max_text_chars: int


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
        return OPTIONS.types

    def make(self, options: Mapping[str, Any]) -> AnyEncoder:
        """Return the encoder that ``{"type": ..., ...}`` describes; needs no file yet.

        Raises
        ------
        InvalidFieldError
            If the type or an option is not one of those there are.
        """
        OPTIONS.check(options)
        return self._makers[options["type"]](options)

    def settle(self, options: Mapping[str, Any]) -> dict[str, Any]:
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
        return {**options, **(encoder.file_options() if isinstance(encoder, PictureEncoder) else {})}

    def with_first_item(self, options: Mapping[str, Any], first: Content) -> dict[str, Any]:
        """Return the options as they are once a collection has its first item."""
        encoder = self.make(options)
        return {**options, **(encoder.options_from(first) if isinstance(encoder, VectorEncoder) else {})}

    def pending_options(self, options: Mapping[str, Any], used: Mapping[str, Any]) -> dict[str, Any]:
        """Return which of the options that items were encoded with are still to be stored.

        Raises
        ------
        InvalidFieldError
            If another value has been stored meanwhile; names the field of an item.
        """
        if options == used:
            return {}
        encoder = self.make(options)
        return encoder.pending_options(used) if isinstance(encoder, VectorEncoder) else {}

    def restore(self, options: Mapping[str, Any], state: Mapping[str, Any]) -> AnyEncoder:
        """Return the encoder of a model version, from what its `state` was when it was published."""
        encoder = self.make(options)
        if isinstance(encoder, TfidfEncoder):
            return encoder.restore(state)
        return self.make({**options, **state}) if state else encoder

    def picture_type(self, content: bytes) -> str:
        """Return the media type of a picture that an encoder accepted."""
        return picture_type(content)
