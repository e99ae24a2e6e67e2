"""What text encoders do alike: take texts within a limit, and take them apart into words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from typing_extensions import override

from app.domain.entities import Content
from app.domain.errors import ContentTooLargeError, InvalidFieldError, WrongContentError
from app.encoders.base import BaseEncoder

_WORD = re.compile(r"\b\w\w+\b")
"""What scikit-learn's vectorizers take for a word; importing these would take a third of a second."""


class TextEncoder(BaseEncoder):
    """Encodes texts.

    Parameters
    ----------
    max_chars : int
        Longest text.
    """

    content_form = "text"

    def __init__(self, max_chars: int) -> None:
        self._max_chars = max_chars

    @override
    def check(self, field: str, raw: Content) -> None:
        if raw.text is None or not raw.text.strip():
            raise WrongContentError(field, "text")
        if "\x00" in raw.text:
            raise InvalidFieldError(field, "contains a NUL character")
        if len(raw.text) > self._max_chars:
            raise ContentTooLargeError(
                field, f"{len(raw.text)} characters, at most {self._max_chars} allowed"
            )


def words_as_written(text: str) -> list[str]:
    """Return the words of a text, of two characters or more, in capitals where the text has them."""
    return _WORD.findall(text)


def words_of(terms: Iterable[str]) -> list[str]:
    """Return the single words among the runs of words of a text."""
    return [term for term in terms if " " not in term]


def terms_between(shortest: int, longest: int) -> Callable[[str], list[str]]:
    """Return what lists the runs of words of a text, in small letters; a single word is a run of one."""

    def list_terms(text: str) -> list[str]:
        words = words_as_written(text.lower())
        terms = words if shortest == 1 else []
        for length in range(max(shortest, 2), min(longest, len(words)) + 1):
            terms = terms + [
                " ".join(words[start : start + length]) for start in range(len(words) - length + 1)
            ]
        return terms

    return list_terms


def parts_between(shortest: int, longest: int) -> Callable[[str], list[str]]:
    """Return what lists the parts of words: the letters of a word with a space at each edge, this many each.

    A word with its edges that is shorter than that is a part of its own, once.
    """

    def list_parts(text: str) -> list[str]:
        parts = []
        for word in text.lower().split():
            edged = f" {word} "
            for length in range(shortest, min(longest, max(len(edged), shortest)) + 1):
                parts += [edged[start : start + length] for start in range(max(len(edged) - length, 0) + 1)]
        return parts

    return list_parts
