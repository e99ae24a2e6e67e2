"""The texts that were just asked, projected, for those who go back, search while typing, or ask the same."""
# They are kept with the model version that projected them, and so are never those of another one.

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass

from app.answers import Notice
from app.domain.entities import Matrix
from app.domain.searches import ShownItem

LONGEST_TEXT = 1000
"""Characters of a text that is kept, and of one that is encoded at once: people type less."""
_MOST_TEXTS = 512
"""Of both modalities: about a megabyte."""


@dataclass(frozen=True, slots=True, eq=False)
class ProjectedQuery:
    """A projected query, of shape (1, rank), and what is to be said of its words, of which some are known if
    it `can_match`."""

    projected: Matrix
    notices: tuple[Notice, ...] = ()
    can_match: bool = True


class RecentTexts:
    """The last texts of one model version, by modality and to the letter: encoders differ in what counts."""

    def __init__(self) -> None:
        self.text_bytes: dict[str, float] = {}
        """By modality: the longest mean length of the texts that one answer showed."""
        self._queries: dict[tuple[str, str], ProjectedQuery] = {}
        self._lock = threading.Lock()

    def get(self, modality: str, text: str) -> ProjectedQuery | None:
        """Return a text that was asked; it is the newest one again."""
        if len(text) > LONGEST_TEXT:
            return None
        with self._lock:
            query = self._queries.pop((modality, text), None)
            if query is not None:
                self._queries[modality, text] = query
        return query

    def put(self, modality: str, text: str, query: ProjectedQuery) -> None:
        """Keep a text, and forget the one that was asked longest ago."""
        if len(text) > LONGEST_TEXT:
            return
        with self._lock:
            self._queries[modality, text] = query
            if len(self._queries) > _MOST_TEXTS:
                del self._queries[next(iter(self._queries))]

    def note_texts(self, modality: str, items: Iterable[ShownItem]) -> None:
        """Take note of how much text an answer shows."""
        lengths = [len(item.text) for item in items if item.text is not None]
        if lengths:
            mean = sum(lengths) / len(lengths)
            self.text_bytes[modality] = max(mean, self.text_bytes.get(modality, 0.0))
