"""A kind of scene, read from a file: what its pictures differ in, how they are drawn and described."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from numpy.random import Generator
from PIL import Image, ImageOps

from app.sample.layers import Layer, layers
from app.sample.scene import Palette, Scene
from app.sample.sprites import Shape, read_sprites
from app.sample.wording import PHRASES, Words, compose, slots_of

__all__ = ["KINDS", "Kind", "read_kind"]

_FOLDER = files("app.sample")
KINDS = tuple(sorted(file.name[:-5].replace("_", " ") for file in (_FOLDER / "kinds").iterdir()))
"""Labels of the kinds, one for each file in the folder ``kinds``."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of scene."""

    # A picture takes one of the values of each facet, all equally likely, or several of them where it is
    # written as ``{of = "red blue", count = "number"}``. `number` decides between singular and plural; `time`
    # and `cover`, the clouds from 0 to 2, make the sky; pictures with `side` ``right`` are mirrored. `words`
    # fill the slots of the templates in `subject` and `setting`; a ``ground`` adds those about the sky.

    facets: Mapping[str, Any]
    palette: Palette
    sprites: Mapping[str, tuple[Shape, ...]]
    layers: tuple[Layer, ...]
    words: Words
    subject: tuple[str, ...]
    setting: tuple[str, ...]

    def choose(self, rng: Generator) -> dict[str, Any]:
        """Draw the facets of one picture."""
        facets: dict[str, Any] = {}
        for name, options in self.facets.items():
            if isinstance(options, Mapping):
                values, count = _values(options["of"]), facets.get(options["count"], options["count"])
                facets[name] = tuple(values[int(k)] for k in rng.permutation(len(values))[:count])
            else:
                values = _values(options)
                facets[name] = values[int(rng.integers(len(values)))]
        facets["lit"] = "yes" if facets["time"] in {"sunset", "dusk", "night"} else "no"
        return facets

    def draw(self, facets: Mapping[str, Any], rng: Generator) -> Image.Image:
        """Draw a picture with these facets."""
        scene = Scene(facets, self.palette, self.sprites, rng)
        for layer in self.layers:
            scene.draw(layer)
        image = scene.canvas.finish(rng)
        return ImageOps.mirror(image) if facets.get("side") == "right" else image

    def describe(self, facets: Mapping[str, Any], rng: Generator) -> tuple[str, ...]:
        """Return two or three sentences about a picture with these facets."""
        slots = slots_of(self.words, facets)
        return compose(self.subject, self.setting, slots, facets.get("number", 1) > 1, rng)


def _values(options: str | list[Any]) -> list[Any]:
    return options.split() if isinstance(options, str) else options


def _lines(text: str) -> tuple[str, ...]:
    return tuple(line.strip() for line in text.splitlines() if line.strip())


@cache
def read_kind(label: str) -> Kind:
    """Return the kind of a label, read from the file named after it."""
    shared = tomllib.loads((_FOLDER / "shared.toml").read_text("utf-8"))
    file = _FOLDER / "kinds" / f"{label.replace(' ', '_')}.toml"
    read = tomllib.loads(file.read_text("utf-8"))
    setting = f"{read['setting']}\n{PHRASES['setting'] if 'ground' in read['words'] else ''}"
    return Kind(
        {**shared["facets"], **read["facets"]},
        {**shared["colours"], **read.get("colours", {})},
        read_sprites({**shared["sprites"], **read["sprites"]}),
        layers(read["layers"]),
        read["words"],
        _lines(read["subject"]),
        _lines(setting),
    )
