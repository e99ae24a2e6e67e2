"""Which encoder types exist, and how each is made from its options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from app.domain.entities import Content
from app.encoders.base import BaseEncoder
from app.encoders.combined import CombinedEncoder, CombineOptions
from app.encoders.content import PixelBudget, picture_type
from app.encoders.hog_color import HogColorEncoder, HogColorOptions
from app.encoders.onnx_models import OnnxModels
from app.encoders.onnx_pictures import OnnxOptions, OnnxPictureEncoder
from app.encoders.options import OptionTable
from app.encoders.pictures import PictureLimits
from app.encoders.texts import TfidfEncoder, TfidfOptions
from app.encoders.vectors import VectorEncoder, VectorOptions

PICTURE_TYPES, TEXT_TYPES = ("hog-color", "onnx"), ("tfidf",)
OPTIONS = OptionTable(CombineOptions, HogColorOptions, OnnxOptions, TfidfOptions, VectorOptions)


def content_form(options: Mapping[str, Any]) -> str:
    """Return what the encoder of a collection takes: ``"picture"``, ``"text"`` or ``"vector"``."""
    kind = options["parts"][0]["type"] if options["type"] == "combine" else options["type"]
    return "picture" if kind in PICTURE_TYPES else "text" if kind in TEXT_TYPES else "vector"


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
        budget = PixelBudget(limits.max_picture_pixels)
        pictures = PictureLimits(limits.max_picture_bytes, limits.max_picture_pixels, budget)
        models = OnnxModels()
        self._makers: dict[str, Callable[[Mapping[str, Any]], BaseEncoder]] = {
            "combine": lambda options: CombinedEncoder(options, self.make),
            "hog-color": lambda options: HogColorEncoder(pictures),
            "onnx": lambda options: OnnxPictureEncoder(options, models, pictures),
            "tfidf": lambda options: TfidfEncoder(options, limits.max_text_chars),
            "vector": VectorEncoder,
        }

    @property
    def types(self) -> tuple[str, ...]:
        """Names of all encoder types."""
        return OPTIONS.types

    def make(self, options: Mapping[str, Any]) -> BaseEncoder:
        """Return the encoder that ``{"type": ..., ...}`` describes; needs no file yet.

        Raises
        ------
        InvalidFieldError
            If the type or an option is not one of those there are.
        """
        OPTIONS.check(options)
        return self._makers[options["type"]](options)

    def settle(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of a new collection's encoder, with those that are settled by its making.

        Raises
        ------
        InvalidFieldError
            If the encoder cannot work; names the option.
        """
        return {**options, **self.make(options).settled_options()}

    def with_first_item(self, options: Mapping[str, Any], first: Content) -> dict[str, Any]:
        """Return the options as they are once a collection has its first item."""
        return {**options, **self.make(options).options_from(first)}

    def pending_options(self, options: Mapping[str, Any], used: Mapping[str, Any]) -> dict[str, Any]:
        """Return which of the options that items were encoded with are still to be stored.

        Raises
        ------
        InvalidFieldError
            If another value has been stored meanwhile; names the field of an item.
        """
        return {} if options == used else self.make(options).pending_options(used)

    def restore(self, options: Mapping[str, Any], state: Mapping[str, Any]) -> BaseEncoder:
        """Return the encoder of a model version, from what its `state` was when it was published."""
        return self.make(options).restore(state)

    def picture_type(self, content: bytes) -> str:
        """Return the media type of a picture that an encoder accepted."""
        return picture_type(content)
