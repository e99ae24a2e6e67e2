"""What a client should know of an answer beside its hits."""

from __future__ import annotations

from app.domain.entities import Notice, WordReport
from app.domain.names import some_of
from app.services.serving.galleries import Gallery

_WORDS_LISTED = 20
"""A query may be a text of thousands of unknown words; a person reads a few."""


def unranked_notices(gallery: Gallery, modality: str) -> tuple[Notice, ...]:
    """Return a notice if the model cannot place some items of the gallery."""
    if not gallery.unranked:
        return ()
    unranked = some_of(sorted(gallery.unranked))
    message = f"of {modality!r}, {unranked} lie outside the model's range and are not ranked"
    return (Notice("not-ranked", message),)


def word_notices(report: WordReport | None) -> tuple[Notice, ...]:
    """Return a notice if a query has unknown words, or none at all; `report` as of `look_up_words`."""
    if report is None or (report.n_known and not report.unknown):
        return ()
    if not report.unknown:
        return (Notice("no-words", "the query has no word of two letters or more, so nothing is ranked"),)
    words = some_of(report.unknown)
    message = (
        f"the model does not know {words}: the other words decide the ranking"
        if report.n_known
        else f"the model knows no word of the query, so nothing is ranked: {words}"
    )
    return (Notice("unknown-words", message, report.unknown[:_WORDS_LISTED]),)
