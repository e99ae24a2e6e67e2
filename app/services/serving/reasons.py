"""Why a hit has its score: what each part of the common space gave, and the words that the model knows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from app.answers import Reason
from app.domain.entities import Content, Matrix
from app.domain.errors import InvalidFieldError
from app.domain.names import join_words
from app.domain.searches import WordReport
from app.domain.words import is_minor, is_telling, spell_words, split_stretches, split_words
from app.services.models.model_bundles import LoadedModel, ProjectedQuery
from solver import SpacePart

_FACET, _CONTENT = "facet:", "content:"
_NAMES = {"cosine": "prior", "signs": "feedback"}
_WORDS, _LIKENESS = "words", "likeness"
_MEASURES = ("ndcg", "map", "recall")
_OWN_NAMES = frozenset(
    {"pairs", "distinctness", "similarity", _WORDS, _LIKENESS, *_NAMES.values(), *_MEASURES}
)
_MOST_STRESSED = 4
"""Words of a text of which those that name no value count more. Names of products are longer: with as much
weight on their brands, the first ten had the colour of half of them, and of three quarters without it."""
_FIRM = 0.9
"""What was learned of a facet stands against a name from this probability on: a "t shirt" is no shirt."""
_LIKELY = 0.5
"""A query and a hit agree on a value that either has more probably than not."""


def parts_of(model: LoadedModel) -> tuple[SpacePart, ...]:
    """Return the parts of a model's space by the names that people read, of which several may have one: the
    facet of labels is ``label``, those of a modality's own content are ``words`` or ``likeness``."""
    forms = (model.encoders[name].content_form for name in model.modality_names)
    return _rename_parts(model.projector.parts, *forms)


@lru_cache(maxsize=16)
def _rename_parts(parts: Sequence[SpacePart], x_form: str, z_form: str) -> tuple[SpacePart, ...]:
    forms = {"x": x_form, "z": z_form}

    def rename(term: str) -> str:
        if term.startswith(_FACET):
            facet = term.removeprefix(_FACET)
            return f"metadata.{facet}" if facet in _OWN_NAMES else facet
        if term.startswith(_CONTENT):
            return _WORDS if forms[term.removeprefix(_CONTENT)] == "text" else _LIKENESS
        return _NAMES.get(term, term)

    return tuple(part._replace(name=rename(part.name)) for part in parts)


def are_of_words(model: LoadedModel) -> npt.NDArray[np.bool_]:
    """Return which dimensions of a model's space are of words themselves, of which nothing was learned."""
    return _are_of_words(parts_of(model))


@lru_cache(maxsize=16)
def _are_of_words(parts: Sequence[SpacePart]) -> npt.NDArray[np.bool_]:
    return np.repeat([part.name == _WORDS for part in parts], [part.width for part in parts])


def emphasise(model: LoadedModel, query: ProjectedQuery, emphasis: Mapping[str, float]) -> ProjectedQuery:
    """Return a query whose parts are scaled by name, or moved from 0 to 1 of the way to the weights that are
    best for a measure; raises InvalidFieldError for a name that is neither."""
    parts = parts_of(model)
    names = list(dict.fromkeys(part.name for part in parts))
    for name, weight in emphasis.items():
        if name in model.emphases and weight > 1.0:
            raise InvalidFieldError(
                f"emphasis.{name}", "expected 0 to 1: how far to go to the weights for it"
            )
        if name not in names and name not in model.emphases:
            message = f"version {model.version} has no such part; its parts are {join_words(names, 'and')}"
            measures = f", its measures {join_words(model.emphases, 'and')}" if model.emphases else ""
            raise InvalidFieldError(f"emphasis.{name[:100]}", message + measures)
    # Words that count alone leave nothing else to weigh: it is taken as it was learned.
    weighed = query.projected if query.before_emphasis is None or query.judged is None else query.judged
    weights = np.array([emphasis.get(part.name, 1.0) for part in parts])
    for measure, best in model.emphases.items():
        ratios = [best.get(part.name, part.scale**2) / part.scale**2 for part in model.projector.parts]
        weights *= 1.0 + emphasis.get(measure, 0.0) * (np.array(ratios) - 1.0)
    scales = np.repeat(weights, [part.width for part in parts])
    scaled = (weighed * scales).astype(np.float32)
    return ProjectedQuery(scaled, query.notices, query.can_match, query.is_like, weighed)


def words_apart(model: LoadedModel, text: str, report: WordReport | None) -> tuple[list[str], bool]:
    """Return the words of a short text that name no value that was learned, and whether no known one does."""
    # Neither those that are not known for sure, nor any of a longer text.
    unknown = set() if report is None else {*report.unknown}
    guessed = set() if report is None else {*report.guessed, *report.misspelt}
    names = _words_of_values(model.projector.parts)
    stretches = split_stretches(text)
    telling = {word: parts for word, parts in stretches if is_telling(word) or word in names}
    n_known = sum(word in telling for word, _ in stretches)
    if not names or n_known > _MOST_STRESSED:
        return [], False
    apart = []
    for word, start, end in spell_words(text):
        written = text[start:end].lower()
        if word not in telling or guessed & {word, written}:
            continue
        if unknown & {word, written}:
            n_known -= 1
        elif all(names.isdisjoint(forms_of(part)) for part in telling[word]):
            apart.append(written)
    return apart, len(apart) == n_known


@lru_cache(maxsize=1024)  # most texts consist of the same words
def forms_of(word: str) -> frozenset[str]:
    """Return a word and its other forms: a last letter more or less, two after hissing sounds, -y or -ies."""
    others = {f"{word}s", f"{word}es", f"{word.removesuffix('y')}ies", f"{word.removesuffix('ies')}y"}
    return frozenset({word, word[:-1], word.removesuffix("es")} | others)


@lru_cache(maxsize=16)
def _words_of_values(parts: Sequence[SpacePart]) -> frozenset[str]:
    """Return the words of values that say something, and what else is a whole value, such as a size."""
    values = (split_words(value) for part in parts for value in part.values)
    return frozenset(word for words in values for word in words if is_telling(word) or len(words) == 1)


def follow_names(model: LoadedModel, text: str, projected: Matrix) -> Matrix:
    """Return a projected short text with the values that its words name, in facets of which what was learned
    says others, but not firmly: parts of words mislead where no text that was learned from has the name."""
    words = {word for word, _ in split_stretches(text) if is_telling(word)}
    if len(words) > _MOST_STRESSED:
        return projected
    parts, followed = model.projector.parts, projected
    values = _values_by_word(parts)
    names = values.keys() & {form for word in words for form in forms_of(word)}
    if not names:
        return projected
    matched = Counter(place for name in names for place in values[name])
    for number, (part, columns) in enumerate(_columns_of(parts)):
        # "sports bra" names a bra, and sports shoes with half of their name.
        shares = {
            column: count**2 / n_words
            for (of_part, column, n_words), count in matched.items()
            if of_part == number
        }
        if not shares:
            continue
        largest = max(shares.values())
        named = [column for column, share in shares.items() if share == largest]
        learned = projected[0, columns] / part.scale
        if learned[named].sum() >= _LIKELY or learned.max() >= _FIRM:
            continue
        followed = followed.copy() if followed is projected else followed
        followed[0, columns] = 0.0
        followed[0, columns.start + np.array(named)] = part.scale / len(named)
    return followed


@lru_cache(maxsize=16)
def _values_by_word(parts: Sequence[SpacePart]) -> Mapping[str, list[tuple[int, int, int]]]:
    """Return the values that have each word, as number of the part, column in it, and number of words."""
    values: dict[str, list[tuple[int, int, int]]] = {}
    for number, part in enumerate(parts):
        for column, value in enumerate(part.values):
            words = set(filter(is_telling, split_words(value)))
            for word in words:
                values.setdefault(word, []).append((number, column, len(words)))
    return values


def stress(
    model: LoadedModel, modality: str, query: ProjectedQuery, words: Matrix, are_all: bool
) -> ProjectedQuery:
    """Return a query whose words that name no value, projected, count as much as all that was learned, or
    alone if all its words are such: what was learned of them misleads where few texts have them."""
    # With more weight 300 products for "puma shoes" began with a brand's other things. As learned, .36 to .77
    # of the first ten that can have a word of training names had it, .43 to .68 beside a type.
    if are_all:
        learned = query.projected
        return ProjectedQuery(words, query.notices, query.can_match, query.is_like, learned, learned)
    own = [part.scale**2 for part in model.content_parts(modality)]
    of_content = "distinctness", _WORDS, _LIKENESS  # that of pictures is no part of a text
    others = [part.scale**2 for part in parts_of(model) if part.name not in of_content]
    projected = (query.projected + sum(others) / sum(own) * words).astype(np.float32)
    return replace(
        query, projected=projected, judged=query.projected if query.before_emphasis is None else None
    )


_RIDGE = 3.0  # of the mean of a dimension: less loses words of many texts, and more those of one
_TINY = 1e-12


def learn_background(model: LoadedModel, vectors: Matrix) -> Matrix:
    """Return what takes away from words what items have in common, by (n, rank) vectors of some."""
    rows = vectors[:, are_of_words(model)]
    covariance = (rows.T @ rows).astype(np.float64)
    ridge = max(_RIDGE * float(np.trace(covariance)) / max(len(covariance), 1), _TINY)
    inverse: Matrix = np.linalg.inv(covariance + ridge * np.eye(len(covariance)))
    return (ridge * inverse).astype(np.float32)


def clear(model: LoadedModel, words: Matrix, background: Matrix) -> Matrix:
    """Return (n, rank) projected words without what items have in common."""
    # Features share dimensions: a word of one text scored less there than what "men" and "ties" gave others
    # by chance. (S + r)^-1 w, by the covariance S of items, has an item with the word first for 196 of 200
    # words of one of 800 products (153 by w itself), and for 200 of 200 other ones (190).
    columns = are_of_words(model)
    own = words[:, columns]
    cleared = own @ background
    shares = np.einsum("ij,ij->i", own, cleared) / np.maximum(np.einsum("ij,ij->i", own, own), _TINY)
    projected = np.zeros_like(words)
    projected[:, columns] = cleared / np.maximum(shares, _TINY)[:, None]
    return projected


def explain(
    parts: Sequence[SpacePart], query: ProjectedQuery, vectors: Matrix, is_cosine: bool
) -> list[list[Reason]]:
    """Return what each part gives of the score of each of the (n_hits, rank) vectors, the largest first."""
    sent, rows = query.projected[0].astype(np.float64), vectors.astype(np.float64)
    plain = sent if query.before_emphasis is None else query.before_emphasis[0]
    lengths = np.linalg.norm(rows, axis=1) * np.linalg.norm(sent) if is_cosine else np.ones(len(rows))
    shares = rows * sent / np.where(lengths > 0.0, lengths, 1.0)[:, None]
    reasons: list[dict[str, Reason]] = [{} for _ in rows]
    for part, columns in _columns_of(parts):
        of_part = shares[:, columns].sum(axis=1).tolist()
        both = np.minimum(plain[columns], rows[:, columns]) > _LIKELY * part.scale
        for of_hit, score, agrees in zip(reasons, of_part, both, strict=True):
            reason = of_hit.setdefault(part.name, Reason(part.name, 0.0, []))
            reason.score += score
            if part.values:
                reason.agrees += [part.values[number] for number in np.flatnonzero(agrees)]
    return [sorted(of_hit.values(), key=lambda reason: -reason.score) for of_hit in reasons]


def _columns_of(parts: Sequence[SpacePart]) -> Iterator[tuple[SpacePart, slice]]:
    start = 0
    for part in parts:
        yield part, slice(start, start + part.width)
        start += part.width


def words_in(model: LoadedModel, modality: str, text: str) -> list[str] | None:
    """Return the words of a text that a modality's encoder knows; None of an encoder without a list."""
    report = model.encoders[modality].look_up_words(Content(text=text))
    if report is None:
        return None
    others = {*report.unknown, *report.guessed, *report.misspelt}
    spelled = ((word, text[start:end].lower()) for word, start, end in spell_words(text))
    words = [written for word, written in spelled if not (is_minor(word) or {word, written} & others)]
    return list(dict.fromkeys(words)) if report.n_known else []
