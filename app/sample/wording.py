"""Sentences from templates: slots, alternatives, number agreement and articles."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from numpy.random import Generator

from app.sample.chance import chance, pick

__all__ = ["Description", "Slots", "compose", "counted", "fill", "join"]

Slots = Mapping[str, str | Sequence[str]]

_NUMBERS = (
    "no",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
)
_SLOT = re.compile(r"\{(\w+)\}")
_EITHER = re.compile(r"<([^<>]*)>")
_NUMBER = re.compile(r"\[([^\[\]/]*)/([^\[\]/]*)\]")
_ARTICLE = re.compile(r"\b([Aa])n? (?=(\w+))")
_CONSONANT_SOUND = re.compile(r"(one|uni|use|eu)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Description:
    """What can be said about one picture.

    Parameters
    ----------
    subject
        Templates about the main things.
    setting
        Templates about light, weather and surroundings.
    slots
        Words for the templates' ``{slots}``; of several, one is picked each time.
    plural
        Whether ``[one/many]`` in the templates takes its second form.
    """

    subject: tuple[str, ...]
    setting: tuple[str, ...]
    slots: Slots = field(default_factory=dict)
    plural: bool = False


def fill(template: str, slots: Slots, plural: bool, rng: Generator) -> str:
    """Return the sentence that a template gives.

    Parameters
    ----------
    template
        Text with ``{slot}``, ``<either|or>`` (by chance) and ``[one/many]`` (by number).
    slots
        Words for the slots; they may hold slots and alternatives themselves.
    plural
        Which form of ``[one/many]`` to take.
    rng
        Source of chance.
    """

    def word(match: re.Match[str]) -> str:
        value = slots[match[1]]
        return value if isinstance(value, str) else pick(rng, value)

    text = template
    while _SLOT.search(text) or _EITHER.search(text):
        text = _SLOT.sub(word, text, count=1)
        text = _EITHER.sub(lambda match: pick(rng, match[1].split("|")), text, count=1)
    text = _NUMBER.sub(lambda match: match[2 if plural else 1], text)
    text = re.sub(r" +([,.;])", r"\1", re.sub(r" {2,}", " ", text)).strip()
    text = _ARTICLE.sub(_article, text)
    return text[0].upper() + text[1:].rstrip(".") + "."


def _article(match: re.Match[str]) -> str:
    """Return ``a`` or ``an`` to suit the word that follows."""
    vowel = match[2][0].lower() in "aeiou" and not _CONSONANT_SOUND.match(match[2])
    return match[1] + ("n " if vowel or match[2].startswith(("hour", "honest")) else " ")


def compose(description: Description, rng: Generator) -> tuple[str, ...]:
    """Return two or three different sentences, the first of them about the main things."""
    subject = [description.subject[int(i)] for i in rng.permutation(len(description.subject))]
    setting = [description.setting[int(i)] for i in rng.permutation(len(description.setting))]
    templates = [subject.pop()]
    for _ in range(2 if chance(rng, 0.5) else 1):
        templates.append(setting.pop() if chance(rng, 0.5) else subject.pop())
    return tuple(fill(template, description.slots, description.plural, rng) for template in templates)


def counted(number: int, one: str, many: str | None = None) -> str:
    """Return for example ``"a boat"`` or ``"three boats"``."""
    if number == 1:
        return f"a {one}"
    return f"{_NUMBERS[number] if number < len(_NUMBERS) else 'many'} {many or one + 's'}"


def join(words: Sequence[str]) -> str:
    """Return words as a list in a sentence: ``"a, b and c"``."""
    if len(words) == 1:
        return words[0]
    return f"{', '.join(words[:-1])} and {words[-1]}"
