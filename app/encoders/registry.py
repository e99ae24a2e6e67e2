"""Which encoder types exist, and how each is made from its options."""

from __future__ import annotations

import importlib
import logging
import pkgutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any

from app.domain.entities import Content
from app.domain.errors import ServiceError
from app.encoders import types
from app.encoders.base import BaseEncoder
from app.encoders.entry import EncoderType, Resources
from app.encoders.options import OptionTable, type_name
from app.encoders.pictures import PictureLimits, PixelBudget, picture_type, rendition, sound_type
from app.encoders.steps import SteppedEncoder

ENTRY_POINT_GROUP = "lrbs.encoders"
"""Packages name their encoder types in it: ``[project.entry-points."lrbs.encoders"]``."""
_logger = logging.getLogger(__name__)


def find_types() -> dict[str, EncoderType]:
    """Return the types of the modules in `app.encoders.types`, and those of other packages, by their names.
    A type of another package that cannot be used is logged and left out: a server serves everything else."""
    by_name = {}
    for module in sorted(pkgutil.iter_modules(types.__path__), key=lambda module: module.name):
        entry: EncoderType = importlib.import_module(f"{types.__name__}.{module.name}").ENCODER
        by_name[type_name(entry.options)] = entry
    for source, entry in _types_of_packages():
        name = type_name(entry.options)
        if name in by_name:
            _logger.warning("the encoder type %r of %s is left out: there is one already", name, source)
        else:
            by_name[name] = entry
    return by_name


def _types_of_packages() -> Iterator[tuple[str, EncoderType]]:
    for point in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda point: (point.name, point.value)):
        try:
            entry = point.load()
            if not isinstance(entry, EncoderType):
                raise TypeError(f"expected an EncoderType, got {entry!r}")
            OptionTable(entry.options)
        except Exception as error:  # the code of another package may raise anything
            _logger.warning("the encoder of the entry point %s cannot be used: %s", point.value, error)
        else:
            yield point.value, entry


TYPES = find_types()
OPTIONS = OptionTable(*(entry.options for entry in TYPES.values()))


def content_form(options: Mapping[str, Any]) -> str | None:
    """Return what the encoder of a collection takes: ``"picture"``, ``"sound"``, ``"text"`` or ``"vector"``.
    None where the package is gone that brought its type, or its parts are not named."""
    first = options.get("parts", [{}])[0] if options["type"] == "combine" else options
    kind = first.get("type")
    return TYPES[kind].content if kind in TYPES else None


@dataclass(frozen=True, slots=True)
class ContentLimits:
    """Largest content that encoders accept."""

    max_picture_bytes: int
    max_picture_pixels: int
    max_text_chars: int


class EncoderRegistry:
    """Makes encoders; those of one model file share it."""

    def __init__(self, limits: ContentLimits) -> None:
        # As many as the largest picture has, in however many: memory follows from the sum.
        budget = PixelBudget(limits.max_picture_pixels)
        pictures = PictureLimits(limits.max_picture_bytes, limits.max_picture_pixels, budget)
        self._resources = Resources(pictures, limits.max_text_chars, self.make)

    @property
    def types(self) -> tuple[str, ...]:
        """Names of all encoder types."""
        return OPTIONS.types

    def make(self, options: Mapping[str, Any]) -> BaseEncoder:
        """Return the encoder that ``{"type": ..., ...}`` describes; needs no file yet.
        Raises InvalidFieldError."""
        OPTIONS.check(options)
        encoder = TYPES[options["type"]].make(options, self._resources)
        return SteppedEncoder(encoder, options["steps"]) if "steps" in options else encoder

    def settle(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of a new collection's encoder, with those that are settled by its making.
        Raises InvalidFieldError, which names the option, if the encoder cannot work."""
        return {**options, **self.make(options).settled_options()}

    def with_first_item(self, options: Mapping[str, Any], first: Content) -> dict[str, Any]:
        """Return the options as they are once a collection has its first item."""
        return {**options, **self.make(options).options_from(first)}

    def pending_options(self, options: Mapping[str, Any], used: Mapping[str, Any]) -> dict[str, Any]:
        """Return which of the options that items were encoded with are still to be stored. Raises
        InvalidFieldError, which names the field of an item, if another value has been stored meanwhile."""
        return {} if options == used else self.make(options).pending_options(used)

    def restore(self, options: Mapping[str, Any], state: Mapping[str, Any]) -> BaseEncoder:
        """Return the encoder of a model version, from what its `state` was when it was published."""
        return self.make(options).restore(state)

    def media_type(self, content: Content) -> str | None:
        """Return the media type of a picture or sound that an encoder accepted; None of other content."""
        if content.picture is not None:
            return picture_type(content.picture)
        return None if content.sound is None else sound_type(content.sound)

    def rendition(self, content: bytes, media_type: str) -> bytes | None:
        """Return a stored picture as a JPEG; None where browsers show it as it is, or it cannot be opened."""
        limits = self._resources.pictures
        try:
            return rendition(content, media_type, limits.max_pixels, limits.budget)
        except ServiceError as error:  # limits are lower now, or an extra is gone
            _logger.warning("no JPEG of a stored picture: %s", error)
            return None
