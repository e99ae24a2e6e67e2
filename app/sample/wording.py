"""Sentences from templates: slots, alternatives, number agreement and articles."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from numpy.random import Generator

from app.sample.layers import is_true

__all__ = ["PHRASES", "Words", "compose", "fill", "slots_of"]

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
        return "|".join(_join([row[k % len(row)] for row in rows]) for k in range(3))
    return str(
        PHRASES["numbers"].split("|")[value]
        if isinstance(value, int)
        else PHRASES["colours"].get(value, value)
    )


def _join(words: Sequence[str]) -> str:
    """Return words as a list in a sentence: ``"a, b and c"``."""
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


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
