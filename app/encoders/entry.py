"""What the registry knows of a type of encoder, and what an encoder gets when it is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

from app.encoders.base import BaseEncoder
from app.encoders.model_files import MOST_LOADED, LoadedFiles
from app.encoders.pictures import PictureLimits

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Resources:
    """What encoders of one process share."""

    pictures: PictureLimits
    max_text_chars: int
    # returns the encoder of given options, for one that consists of others
    make: Callable[[Mapping[str, Any]], BaseEncoder]
    _files: dict[Callable[[Path], Any], LoadedFiles[Any]] = field(default_factory=dict, init=False)

    def files(self, load: Callable[[Path], T], most: int = MOST_LOADED) -> LoadedFiles[T]:
        """Return what loads files by `load`, a function of a module, and keeps some for everybody."""
        return cast("LoadedFiles[T]", self._files.setdefault(load, LoadedFiles(load, most)))


@dataclass(frozen=True, slots=True)
class EncoderType:
    """A type of encoder: the `ENCODER` of a module, or what an entry point of another package names."""

    # a TypedDict (see `app.encoders.options`) whose field ``type`` is a literal, the name of the type
    options: Any
    # from checked options and what encoders share
    make: Callable[[Mapping[str, Any], Resources], BaseEncoder]
    content: str | None  # ``"picture"``, ``"sound"``, ``"text"`` or ``"vector"``; None where its parts decide
