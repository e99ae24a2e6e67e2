"""What a client should know beside the hits of an answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from app.answers import Notice
from app.domain.entities import IndexedItem
from app.domain.filters import ItemFilter
from app.domain.names import join_words, some_of
from app.domain.searches import LONGEST_TYPED, SAMPLE, Hit, WordReport, explain_filter, floor_percent
from app.domain.words import fold, is_minor, is_telling, spell_words
from app.services.models.placement import words_of
from app.services.serving.galleries import Gallery
from app.services.serving.snapshot import Snapshot

NearestWords = Callable[[str], tuple[str, ...]]
_WORDS_REPLACED = 5  # unknown words of a query: each is compared with all known words, which takes time
_SHORTEST_SLIP = 4  # letters: of shorter words too many are one letter apart
_WORDS_LISTED = 20  # a query may be a text of thousands of unknown words; a person reads a few


def unranked_notices(gallery: Gallery, modality: str) -> tuple[Notice, ...]:
    """Return a notice if the model cannot place some items of the gallery."""
    if not gallery.unranked:
        return ()
    unranked = some_of(sorted(gallery.unranked))
    message = f"of {modality!r}, {unranked} lie outside the model's range and are not ranked"
    return (Notice("not-ranked", message, ()),)


def untrained_notices(snapshot: Snapshot) -> tuple[Notice, ...]:
    """Return a notice if nothing was trained."""
    if snapshot.model.is_trained:
        return ()
    message = "ranked by words, labels and likeness alone: nothing has been trained yet"
    if snapshot.model.assumes_space:
        message += "; vectors of both modalities are taken to be of one space, as they have one length"
    return (Notice("not-trained", message, ()),)


def filter_notices(gallery: Gallery, choice: ItemFilter, at_once: bool, has_hits: bool) -> tuple[Notice, ...]:
    """Return a notice of why a filter lets nothing of the gallery through, or leaves nothing out."""

    def read() -> Iterator[IndexedItem]:
        if at_once:
            raise BlockingIOError  # to say why takes many times as long as a search
        yield from gallery.first_items(SAMPLE)

    passes = has_hits or gallery.count_matching(choice) > 0
    return explain_filter(choice, read(), gallery.count_matching, passes)


def word_notices(
    report: WordReport | None,
    text: str | None,
    nearest_words: NearestWords | None,
    *,
    is_trained: bool,
    finds_later: bool,
) -> tuple[Notice, ...]:
    """Return a notice if a query has unknown words, or none at all; it offers other queries where the encoder
    knows near ones. Words of later items are unknown unless it `finds_later` ones."""
    if report is not None:  # "the" is missed by no person, but one letter alone is all that was asked
        lists = (report.unknown, report.guessed, report.misspelt, report.unseen)
        says = is_telling if report.n_known else (lambda word: is_minor(word) or is_telling(word))
        report = WordReport(report.n_known, *(tuple(filter(says, words)) for words in lists))
    words = () if report is None else report.misspelt or report.unknown or report.guessed
    if report is not None and not (words or is_trained):
        words = report.unseen
    if report is None or (report.n_known and not words):
        return ()
    if not words:
        return (Notice("no-words", "no word of the query says anything, so nothing is ranked by it", ()),)
    others: tuple[str, ...] = ()
    if nearest_words is not None and len(text or "") <= LONGEST_TYPED:
        # Beside a word that is like none, another one is none either.
        telling = [word for word in words[:_WORDS_REPLACED] if len(word) >= _SHORTEST_SLIP]
        if report.n_known or all(map(nearest_words, telling)):
            others = _nearest_queries(text or "", words, nearest_words)
    if report.misspelt:
        if not others:  # long texts are not respelled
            return ()
        message = f"no text or name has {some_of(words)}: ranked by {others[0]!r} instead"
    elif not (report.unknown or report.guessed):
        message = f"no text, label or value has {some_of(words)}: likeness of meaning decides the ranking"
    elif not report.unknown:
        message = f"no text has {some_of(words)}: words that are spelled alike decide the ranking"
    elif report.n_known:
        message = f"the model does not know {some_of(words)}: the other words decide the ranking"
    elif others:
        message = f"the model knows no word of the query, {some_of(words)}: ranked by {others[0]!r} instead"
    else:
        message = f"the model knows no word of the query, so nothing is ranked by it: {some_of(words)}"
    if report.unknown and is_trained and not finds_later:
        message += "; a training learns the words of newer items"
    return (Notice("unknown-words", message, words[:_WORDS_LISTED], others),)


def with_filters(notices: tuple[Notice, ...], filters: Mapping[str, str]) -> tuple[Notice, ...]:
    """Return notices of which the first, of unknown words, says which filters find those that are values."""
    unknown, *others = notices
    likely = [filters[word] for word in map(fold, unknown.words) if word in filters]
    hint = f"; filters find {join_words(likely, 'and')}" if likely else ""
    return (replace(unknown, message=unknown.message + hint), *others)


def with_slips(report: WordReport, text: str, nearest_words: NearestWords) -> WordReport:
    """Return a report in which words a slip from a known one are misspelt, if all unknown ones are: with a
    letter wrong, missing or too many, or two exchanged."""
    doubtful = [w for w in (*report.unknown, *report.guessed) if is_telling(w) and w not in report.misspelt]
    if not report.n_known or not 0 < len(doubtful) <= _WORDS_REPLACED or len(text) > LONGEST_TYPED:
        return report
    from rapidfuzz.distance import OSA

    pieces = {text[start:end].lower() for _, start, end in spell_words(text)}  # that can be replaced
    likely = [word for word in doubtful if len(word) >= _SHORTEST_SLIP and word.isalpha() and word in pieces]
    unknown = set(report.unknown) & set(doubtful)
    compared = likely if unknown <= {*likely} else []  # which takes time
    near = {word: other for word in compared for other in nearest_words(word)[:1]}
    slips = tuple(word for word, other in near.items() if OSA.distance(fold(word), fold(other)) == 1)
    return report if unknown - {*slips} else replace(report.knowing(slips), misspelt=report.misspelt + slips)


def part_notice(notice: Notice) -> Notice:
    """Return the notice of a part of a query that says nothing, beside others that do."""
    reason = f"the model knows no word of {some_of(notice.words)}" if notice.words else "it has no word"
    return replace(notice, message=f"a part of the query does not count: {reason}")


def _nearest_queries(text: str, unknown: Sequence[str], nearest_words: NearestWords) -> tuple[str, ...]:
    """Return a text with known words in place of unknown ones, the nearest of each first."""
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


def weak_match_notices(hits: Sequence[Hit], weak: float, text: str | None) -> tuple[Notice, ...]:
    """Return a notice if even the best result of a text, or of a file without one, is a match with less than
    the probability `weak`, or has nothing of it; none where the first has the text as a label or value."""
    if not hits or hits[0].rank > 1:
        return ()
    probability = max((hit.probability for hit in hits if hit.probability is not None), default=None)
    if probability is None and hits[0].score == 0.0:
        message = "nothing connects the query with any of these items: their order says nothing"
        return (Notice("weak-match", message, ()),)
    if probability is None or probability >= weak:
        return ()
    if text is not None and any(fold(word) == fold(text) for _, word in words_of(hits[0].item)):
        return ()
    hint = "other or more words may help" if text else "nothing like the query may have been learned from"
    percent = f"{floor_percent(probability)} %"
    message = f"no result stands out: the best is a match with a probability of {percent}; {hint}"
    return (Notice("weak-match", message, ()),)
