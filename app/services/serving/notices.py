"""What a client should know of an answer beside its hits."""

from __future__ import annotations

from collections.abc import Sequence

from app.domain.entities import Hit, Notice, WordReport
from app.domain.names import some_of
from app.services.serving.gallery import Gallery

_WEAK = 0.005
"""Probability of a match that people read as none. With a model of 1624 products, the best results of all 406
held-out texts and of all 353 combinations of a colour and an article type are above it; below are those of
words that mean little to the model, such as names of models, and of words that most items suit."""
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


def weak_match_notices(hits: Sequence[Hit]) -> tuple[Notice, ...]:
    """Return a notice if even the first result of a text hardly is a match; nothing where it is not shown."""
    if not hits or hits[0].rank > 1:
        return ()
    probability = hits[0].probability
    if probability is None or probability >= _WEAK:
        return ()
    message = (
        f"no result stands out: the best is a match with a probability of {100 * probability:.1f} %; "
        "other or more words may help"
    )
    return (Notice("weak-match", message),)
