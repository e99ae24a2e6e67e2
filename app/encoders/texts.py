"""What text encoders do alike: take texts within a limit, and take them apart into words."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from typing import Any

from typing_extensions import override

from app.domain.entities import Content
from app.domain.errors import ContentTooLargeError, InvalidFieldError, WrongContentError
from app.encoders.base import BaseEncoder


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


def words_of(terms: Iterable[str]) -> list[str]:
    """Return the single words among the runs of words of a text."""
    return [term for term in terms if " " not in term]


def terms_between(shortest: int, longest: int) -> Callable[[str], list[str]]:
    """Return what lists the runs of words of a text; a single word is a run of one."""
    return analyzer(ngram_range=(shortest, longest))


def analyzer(**options: Any) -> Callable[[str], list[str]]:
    """Return what takes a text apart, of scikit-learn's vectorizers, whose import takes a while."""
    analyze: Callable[[str], list[str]] = _vectorizers().CountVectorizer(**options).build_analyzer()
    return analyze


def _vectorizers() -> Any:
    """Return scikit-learn's vectorizers, imported with the first model that has texts: it takes a while."""
    return importlib.import_module("sklearn.feature_extraction.text")


def import_vectorizers() -> None:
    """Import what text models need: a server does so before its first search, where it has any."""
    _vectorizers()
