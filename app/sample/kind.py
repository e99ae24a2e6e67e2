"""Kinds of scenes, read from files: what their pictures differ in, how they are drawn and described."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any
from zlib import crc32

import numpy as np
from numpy.random import Generator
from PIL import Image, ImageOps

from app.domain.names import join_words
from app.sample.drawing import Layer, Palette, Scene, Shape, is_true, layers, read_sprites

Words = Mapping[str, str | Mapping[str, str]]
"""Alternatives ``one|other`` for a slot: fixed, or chosen by the value of the facet that names it."""

PHRASES: Mapping[str, Any] = tomllib.loads((files("app.sample") / "phrases.toml").read_text("utf-8"))
"""Words that all kinds share."""

_SLOT = re.compile(r"\{(\w+)\}")
_EITHER = re.compile(r"<([^<>]*)>")
_NUMBER = re.compile(r"\[([^\[\]/]*)/([^\[\]/]*)\]")
_ARTICLE = re.compile(r"\b([Aa])n? (?=(\w+))")
_CONSONANT_SOUND = re.compile(r"(one|uni|use|eu)", re.IGNORECASE)


def slots_of(words: Words, facets: Mapping[str, Any]) -> dict[str, str]:
    """Return the alternatives for each slot of a picture's templates."""
    # A slot ``{sail}`` is named after a facet, as are ``{sail2}`` and ``{sail3}``. A facet without words of
    # its own is described by the shared words for colours and numbers, or by its value.
    time, cover = facets["time"], facets["cover"]
    air = PHRASES["air"].get(time if cover < 2 or time == "overcast" else "", PHRASES["air"][str(cover)])
    slots = {name: PHRASES[name][time] for name in ("when", "tones", "light")} | {"air": air}
    slots |= {name: _default_words(value) for name, value in facets.items() if name not in words}
    for slot, options in words.items():
        if isinstance(options, str):
            slots[slot] = options
        else:
            value = facets[slot.rstrip("23")]
            slots[slot] = options.get(str(value)) or options["yes" if is_true(value) else "no"]
    return slots


def _default_words(value: Any) -> str:
    if isinstance(value, tuple):
        rows = [PHRASES["colours"].get(entry, entry).split("|") for entry in value]
        return "|".join(join_words([row[k % len(row)] for row in rows], "and") for k in range(3))
    if isinstance(value, int):
        return str(PHRASES["numbers"].split("|")[value])
    return str(PHRASES["colours"].get(value, value))


def fill(template: str, slots: Mapping[str, str], plural: bool, rng: Generator) -> str:
    """Return the sentence that a template gives: ``{slot}``, ``<either|or>`` (at random) and ``[one/many]``
    (by number). Alternatives of slots may hold slots and alternatives themselves."""

    def pick(options: str) -> str:
        words = options.split("|")
        return words[int(rng.integers(len(words)))]

    text = template
    while _SLOT.search(text) or _EITHER.search(text):
        text = _SLOT.sub(lambda match: f"<{slots[match[1]]}>", text, count=1)
        text = _EITHER.sub(lambda match: pick(match[1]), text, count=1)
    text = _NUMBER.sub(lambda match: match[2 if plural else 1], text)
    text = re.sub(r" +([,.;])", r"\1", re.sub(r" {2,}", " ", text)).strip()
    text = _ARTICLE.sub(_article, text)
    return text[0].upper() + text[1:].rstrip(".") + "."


def _article(match: re.Match[str]) -> str:
    """Return ``a`` or ``an`` to suit the word that follows."""
    vowel = match[2][0].lower() in "aeiou" and not _CONSONANT_SOUND.match(match[2])
    return match[1] + ("n " if vowel or match[2].startswith(("hour", "honest")) else " ")


def compose(
    subject: Sequence[str], setting: Sequence[str], slots: Mapping[str, str], plural: bool, rng: Generator
) -> tuple[str, ...]:
    """Return two or three different sentences, the first of them about the subject."""
    subject, setting = rng.permutation(list(subject)).tolist(), rng.permutation(list(setting)).tolist()
    chosen = [subject[0], *(setting[:2] if rng.random() < 0.3 else (subject[1], setting[0]))]
    return tuple(fill(template, slots, plural, rng) for template in chosen[: 2 + int(rng.random() < 0.5)])


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
    layers: tuple[tuple[str, Layer], ...]  # what each draws, and its arguments
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
        scene = Scene(facets, self.palette, self.sprites, rng)
        for verb, layer in self.layers:
            scene.draw(verb, layer)
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


@dataclass(frozen=True, slots=True)
class Sample:
    """One drawn picture with its texts."""

    id: str  # kind and number, for example ``"sailing-boats-007"``
    kind: str  # one of ``KINDS``
    image: Image.Image  # RGB, 256 by 256 pixels
    sentences: tuple[str, ...]  # two or three, in English


def draw_sample(kind: str, index: int, seed: int = 0) -> Sample:
    """Draw one picture of one of ``KINDS`` (else ValueError); the same arguments always give the same picture
    and sentences. `index` counts the pictures of a kind from 0, `seed` is that of the whole set."""
    drawn, (choosing, drawing, wording) = sources_of(kind, index, seed)
    facets = drawn.choose(choosing)
    image = drawn.draw(facets, drawing)
    return Sample(f"{kind.replace(' ', '-')}-{index:03d}", kind, image, drawn.describe(facets, wording))


def sources_of(kind: str, index: int, seed: int) -> tuple[Kind, tuple[Generator, ...]]:
    """Return the kind, and one source of randomness each for its facets, drawing and wording."""
    if kind not in KINDS:
        raise ValueError(f"unknown kind {kind!r}; the kinds are: {', '.join(KINDS)}")
    # The label's checksum, unlike its position, stays the same when kinds are added.
    source = np.random.SeedSequence([seed, crc32(kind.encode()), index])
    return read_kind(kind), tuple(np.random.default_rng(child) for child in source.spawn(3))
