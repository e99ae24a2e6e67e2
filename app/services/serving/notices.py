"""What a client should know of an answer beside its hits."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from app.answers import Notice
from app.domain.names import some_of
from app.domain.searches import SAMPLE, Hit, ItemFilter, WordReport, explain_filter
from app.domain.words import spell_words
from app.services.serving.gallery import Gallery

_WEAK = 0.005  # probability of a match that people read as none
# With a model of 1624 products, the best results of all 406 held-out texts and of all 353 combinations of a
# colour and an article type are above it; below are those of words that mean little to the model, such as
# names of models, and of words that most items suit.
NearestWords = Callable[[str], tuple[str, ...]]
_WORDS_REPLACED, _LONGEST_TYPED = 5, 500
"""Unknown words of a query, and its letters: each is compared with all known words, which takes time."""
_WORDS_LISTED = 20  # a query may be a text of thousands of unknown words; a person reads a few


def unranked_notices(gallery: Gallery, modality: str) -> tuple[Notice, ...]:
    """Return a notice if the model cannot place some items of the gallery."""
    if not gallery.unranked:
        return ()
    unranked = some_of(sorted(gallery.unranked))
    message = f"of {modality!r}, {unranked} lie outside the model's range and are not ranked"
    return (Notice("not-ranked", message, ()),)


def filter_notices(gallery: Gallery, item_filter: ItemFilter) -> tuple[Notice, ...]:
    """Return a notice of why a filter lets nothing of the gallery through; none if it lets something."""
    if gallery.count_matching(item_filter):
        return ()
    sample = [(item.labels, item.metadata) for item in gallery.first_items(SAMPLE)]
    return explain_filter(item_filter, sample, gallery.count_matching, gallery.size)


def word_notices(
    report: WordReport | None, text: str | None, nearest_words: NearestWords | None
) -> tuple[Notice, ...]:
    """Return a notice if a query has unknown words, or none at all; it offers other queries where the encoder
    knows near ones."""
    if report is None or (report.n_known and not report.unknown + report.guessed):
        return ()
    words = report.unknown or report.guessed
    if not words:
        return (Notice("no-words", "the query has no word, so nothing is ranked", ()),)
    if not report.unknown:
        message = f"no text has {some_of(words)}: words that are spelled alike decide the ranking"
    elif report.n_known:
        message = f"the model does not know {some_of(words)}: the other words decide the ranking"
    else:
        message = f"the model knows no word of the query, so nothing is ranked: {some_of(words)}"
    others = () if nearest_words is None else _nearest_queries(text or "", words, nearest_words)
    return (Notice("unknown-words", message, words[:_WORDS_LISTED], others),)


def _nearest_queries(text: str, unknown: Sequence[str], nearest_words: NearestWords) -> tuple[str, ...]:
    """Return a text with known words in place of unknown ones, the nearest of each first."""
    if len(text) > _LONGEST_TYPED:
        return ()
    near = {word: nearest_words(word) for word in unknown[:_WORDS_REPLACED]}
    queries = []
    for rank in range(max(map(len, near.values()), default=0)):
        query = text
        for _, start, end in reversed(list(spell_words(text))):
            words = near.get(text[start:end].lower(), ())
            if words:
                query = query[:start] + words[min(rank, len(words) - 1)] + query[end:]
        queries.append(query)
    return tuple(query for query in dict.fromkeys(queries) if query != text)


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
    return (Notice("weak-match", message, ()),)
