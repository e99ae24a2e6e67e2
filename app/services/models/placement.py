"""Where items stand in galleries: by content, what they carry, and partners; also before any training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import partial
from typing import Any
from unicodedata import normalize

import numpy as np

from app.db.session import UnitOfWork
from app.domain.entities import MOST_PARTNERS, Collection, Content, Features, Item, Matrix, ShownItem
from app.domain.errors import not_trainable
from app.encoders.base import BaseEncoder
from app.services.models.model_bundles import UNTRAINED, LoadedModel, Names
from app.services.models.originals import Originals, accepts, encode_names, item_features
from app.services.storage.pacing import Pause, in_batches, no_pause
from solver import CompositeProjector, Projector, can_be_ranked, is_sparse, untrained_projector

LABEL = "label"
"""Name of the facet of the items' labels."""
MOST_NAMES = 1000
"""Names that are learned as words, and as texts of their own, the most frequent ones."""
_TRUTHS = frozenset({"true", "false"})  # values that name nothing without their facet, like numbers
_OF_IMPORTS = frozenset({"source", "split"})  # keys that imports write: they say nothing of an item
_LONGEST_VALUE = 100  # longer texts are descriptions
_ITEMS_AT_ONCE = 2000  # their features have to fit into memory beside the model
_CHARACTERS_AT_ONCE = 200_000  # of texts, which are encoded then
_OF_OTHERS = 0.25  # weight of a name of which nothing was learned, beside 1
_NUMBERS_KEPT = 1 << 20  # of projections of names, four megabytes


def facet_values(metadata: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """Return an item's values of a facet; none where they are unknown or not categorical."""
    values = [categorical(value) for value in entries_of(metadata.get(key))]
    return tuple(dict.fromkeys(value for value in values if value is not None))


def facet_name(key: str) -> str:
    """Return the name of the facet of a metadata key."""
    return f"metadata.{key}" if key == LABEL else key


def entries_of(value: Any) -> list[Any]:
    """Return a metadata value as a list; none where it is null or empty."""
    values = value if isinstance(value, list) else [value]
    return [entry for entry in values if entry is not None and entry != ""]


def categorical(value: Any) -> str | None:
    """Return a metadata value as the name of one; None where it is not categorical."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return normalize("NFC", value) if len(value) <= _LONGEST_VALUE else None
    if isinstance(value, float):
        return str(int(value) if value.is_integer() else value)
    return str(value) if isinstance(value, int) else None


def telling_names(values: Iterable[str]) -> list[str]:
    """Return the values that say something alone: no numbers, and neither true nor false."""
    return [value for value in values if any(map(str.isalpha, value)) and value.casefold() not in _TRUTHS]


def most_frequent_names(counts: Counter[str]) -> list[str]:
    """Return the names that say something alone, the most frequent first."""
    return sorted(telling_names(counts), key=lambda name: (-counts[name], name))[:MOST_NAMES]


def words_of(item: ShownItem, without: Sequence[str] = ()) -> Iterator[tuple[str, str]]:
    """Yield the labels and values of an item that say something alone, with their facets, but for some."""
    keys = {facet_name(key): key for key in item.metadata if key not in _OF_IMPORTS}
    facets = {facet: facet_values(item.metadata, key) for facet, key in keys.items()}
    for facet, values in ({LABEL: item.labels} | facets).items():
        if facet not in without:
            yield from ((facet, word) for word in telling_names(values))


def names_of(items: Iterable[Item]) -> Names:
    """Return what names items: all facets but ids and free texts, of which there are many values, and most
    items of a modality have one of their own."""
    counts: dict[tuple[str, str], Counter[str]] = {}
    for item in items:
        for facet, word in words_of(item):
            counts.setdefault((item.modality, facet), Counter())[word] += 1
    without = {facet for (_, facet), of in counts.items() if len(of) > max(MOST_NAMES, of.total() // 2)}
    return Names(sorted(without))


def count_names(items: Iterable[Item], names: Names) -> Counter[str]:
    """Return how many items carry each of the names."""
    return Counter(word for item in items for _, word in words_of(item, names.without or ()))


Sides = Mapping[str, tuple[Sequence[Item], Matrix]]
"""By modality: items with the (n_items, rank) projections of their content, finite."""


def find_pairs(modality_names: Sequence[str], items: Iterable[Item]) -> set[str]:
    """Return the pairs whose items are partners, from all items of these pairs, ranked or not."""
    counts = {name: Counter[str]() for name in modality_names}
    for item in items:
        if item.pair_id is not None:
            counts[item.modality][item.pair_id] += 1
    first, second = counts.values()
    return {
        pair_id
        for pair_id in first.keys() & second.keys()
        if max(first[pair_id], second[pair_id]) <= MOST_PARTNERS
    }


def project_items(
    model: LoadedModel, modality: str, items: Sequence[Item], step: Callable[[], None] = no_pause
) -> tuple[list[Item], Matrix, list[Item]]:
    """Return the items that can be ranked, the (n, rank) projections of their content, and the others; `step`
    is called between batches."""
    ranked: list[Item] = []
    others: list[Item] = []
    parts = [np.zeros((0, model.projector.rank), np.float32)]
    encoder = model.encoders[modality]
    if not encoder.is_fitted_with_model and encoder.content_form != "vector":  # which has no other original
        others += [item for item in items if item.features is None]
        items = [item for item in items if item.features is not None]
    for batch in in_batches(items, _ITEMS_AT_ONCE, lambda item: len(item.text or ""), _CHARACTERS_AT_ONCE):
        step()
        projected = model.project(modality, item_features(batch, encoder))
        accepted = can_be_ranked(projected)
        parts.append(projected[accepted])
        for item, can_be in zip(batch, accepted.tolist(), strict=True):
            (ranked if can_be else others).append(item)
    return ranked, np.concatenate(parts), others


def place_items(
    model: LoadedModel, sides: Sides, pair_ids: AbstractSet[str], step: Callable[[], None] = no_pause
) -> dict[str, Matrix]:
    """Return the vectors of items in both galleries. All items of `pair_ids`, as of `find_pairs`, are among
    them."""
    places = enumerate(model.modality_names)
    return {name: _place_side(model, number, sides, pair_ids, step) for number, name in places}


def fill_galleries(
    model: LoadedModel, items: Sequence[Item], step: Callable[[], None] = no_pause
) -> tuple[LoadedModel, dict[str, Matrix]]:
    """Return a model with all items of a collection in its galleries, and by modality the projections of
    their content."""
    names, sides = model.modality_names, {}
    for name in names:
        side = [item for item in items if item.modality == name]
        sides[name] = project_items(model, name, side, step)[:2]
    placed = place_items(model, sides, find_pairs(names, items), step)
    galleries = {name: (tuple(item.id for item in side), placed[name]) for name, (side, _) in sides.items()}
    return replace(model, galleries=galleries), {name: projected for name, (_, projected) in sides.items()}


def place_changed(
    model: LoadedModel, work: UnitOfWork, collection: Collection, items: Sequence[Item]
) -> dict[str, tuple[list[Item], Matrix, list[Item]]]:
    """Return by modality the items that can be ranked, their vectors in galleries, and the others: of some
    that changed, and of all items of their pairs."""
    members: list[Item] = []
    if model.projector.uses_partners:
        with_partners = {item.pair_id for item in items if item.pair_id is not None}
        members = work.items.of_pairs(collection, with_partners)
    pair_ids = find_pairs(model.modality_names, members)
    together = {item.id: item for item in [*items, *(item for item in members if item.pair_id in pair_ids)]}
    sides = {}
    for name in model.modality_names:
        side = [item for item in together.values() if item.modality == name]
        sides[name] = project_items(model, name, model.with_features(work, collection, name, side))
    placed = place_items(model, {name: side[:2] for name, side in sides.items()}, pair_ids)
    return {name: (ranked, placed[name], others) for name, (ranked, _, others) in sides.items()}


def _place_side(
    model: LoadedModel, number: int, sides: Sides, pair_ids: AbstractSet[str], step: Pause
) -> Matrix:
    """Return the vectors of the first modality (0) or the second. What an item does not carry itself its
    partners may."""
    place = partial(model.projector.place, side="xz"[number])
    (own, of_own), (others, of_others) = (sides[model.modality_names[n]] for n in (number, 1 - number))
    partners: dict[str | None, list[int]] = {}
    for row, item in enumerate(others if model.projector.uses_partners else ()):
        if item.pair_id in pair_ids:
            partners.setdefault(item.pair_id, []).append(row)
    parts = [of_own[:0]]
    for start in range(0, len(own), _ITEMS_AT_ONCE):
        step()
        items = own[start : start + _ITEMS_AT_ONCE]
        projected = of_own[start : start + _ITEMS_AT_ONCE]
        means = np.full_like(projected, np.nan)
        rows = [partners.get(item.pair_id, []) for item in items]
        paired = [[others[n] for n in of_item] for of_item in rows]
        words = _project_words(model, number, items, paired, step)
        values: dict[str, list[tuple[str, ...]]] = {facet: [] for facet in model.projector.facets}
        for row, item in enumerate(items):
            if rows[row]:
                means[row] = np.mean(of_others[rows[row]], axis=0, dtype=np.float64)
            for facet, entries in values.items():
                of_partners = (value for partner in paired[row] for value in _values(partner, facet))
                entries.append(_values(item, facet) or tuple(dict.fromkeys(of_partners)))
        parts.append(place(projected, means, values, words))
    return np.concatenate(parts)


def _project_words(
    model: LoadedModel, number: int, items: Sequence[Item], paired: Sequence[Sequence[Item]], step: Pause
) -> Matrix | None:
    """Return the mean projections of the names that the items of a modality and their partners carry, as
    texts of the other modality, or of their own; NaN without any that the encoder knows."""
    # Names of columns that nothing was learned of, such as sizes by chance, find items, too, but count less:
    # held-out items, by which probabilities are fitted, have none.
    names, sides = model.names, (model.modality_names[1 - number], model.modality_names[number])
    takers = [side for side in sides if side != model.empty and model.encoders[side].content_form == "text"]
    if names.without is None or not model.projector.uses_words or not takers:
        return None
    learned = frozenset(model.projector.facets)
    carried: list[dict[str, float]] = []
    for item, partners in zip(items, paired, strict=True):
        of_item = [of for carrier in (item, *partners) for of in words_of(carrier, names.without)]
        others = {word: _OF_OTHERS for facet, word in of_item if learned and facet not in learned}
        carried.append(others | {word: 1.0 for facet, word in of_item if not learned or facet in learned})
    recent, encoder = names.projected.get(takers[0], {}), model.encoders[takers[0]]
    of_word = {word: recent.get(word) for words in carried for word in words}
    contents = [Content(text=word) for word in of_word if word not in recent]
    contents = [content for content in contents if accepts(encoder, content)]
    features = encode_names(encoder, contents, step)
    if features is not None:
        for content, projected in zip(contents, model.project(takers[0], features), strict=True):
            if np.isfinite(projected).all() and projected.any():
                of_word[content.text or ""] = projected.copy()
        newest = list((recent | of_word).items())[-_NUMBERS_KEPT // model.projector.rank :]
        names.projected[takers[0]] = dict(newest)
    elif contents:
        names.n_missed += 1
    means = np.full((len(items), model.projector.rank), np.nan, np.float32)
    for row, words in enumerate(carried):
        vectors = {word: vector for word in words if (vector := of_word.get(word)) is not None}
        if vectors:
            counts = [words[word] for word in vectors]
            means[row] = np.average(list(vectors.values()), axis=0, weights=counts)
    return means


def _values(item: Item, facet: str) -> tuple[str, ...]:
    """Return what an item carries of a facet of `facet_name`."""
    if facet == LABEL:
        return item.labels
    return facet_values(item.metadata, LABEL if facet == facet_name(LABEL) else facet)


_MOST_ITEMS = 20_000
"""Of a modality: all of them are read and placed when the first search comes."""

_ITEMS_PER_BATCH = 250  # bounds how long a batch holds the interpreter, to some ten milliseconds
_CHARACTERS_LEARNED_AT_ONCE = 200_000  # of texts that are learned from in a fifth of a second
_FEWEST_TESTED, _MOST_TESTED = 20, 500  # pairs by which vectors of one length are seen to be of one space
_LEAST_FARTHER = 0.75  # mean share of the other pairs' vectors that are farther away than a partner then
NO_ITEMS = "without a training it takes items of both modalities to find one by the other"
NOT_CONNECTED = (
    "without a training nothing connects {!r} and {!r}: that takes items with the same pair_id, a text "
    "encoder and labels or values to name, or vectors of the same space"
)


def check_size(counts: dict[str, int], collection: Collection) -> str | None:
    """Return why a collection with these numbers of items cannot be searched untrained; None if it may be."""
    if not any(counts.values()):
        return NO_ITEMS
    if max(counts.values()) > _MOST_ITEMS:
        return f"without a training, no more than {_MOST_ITEMS} items of a modality are searched"
    return None


def share_space(x: Features, z: Features, encoders: Iterable[BaseEncoder]) -> bool | None:
    """Return whether features of both modalities are of one space, from those of partners, row by row; None
    where nothing but their length says so: there are too few pairs."""
    # Of one length by chance are those that are made of what a collection's items say, as sparse ones are.
    is_made = is_sparse(x) or is_sparse(z) or any(encoder.is_fitted_with_model for encoder in encoders)
    if x.shape[1] != z.shape[1] or is_made:
        return False
    first, second = (np.asarray(rows[:: len(rows) // _MOST_TESTED + 1], np.float64) for rows in (x, z))
    is_same = (first == second).all(axis=1)
    if len(first) < _FEWEST_TESTED:
        return True if len(first) and is_same.all() else None
    cosines = (first @ second.T) / np.maximum(np.linalg.norm(second, axis=1), np.finfo(np.float64).tiny)
    own = np.diagonal(cosines)[:, None]
    # Without a common space about half are farther away than the partner: .54 of Wikipedia's articles, whose
    # texts and pictures are of the same classes; with one, but three times as much noise, .98.
    farther = ((cosines < own).sum(axis=1) + ((cosines == own).sum(axis=1) - 1) / 2) / (len(own) - 1)
    return bool(np.where(is_same, 1.0, farther).mean() > _LEAST_FARTHER)


def make_untrained(
    originals: Originals, work: UnitOfWork, collection: Collection, pause: Callable[[], None]
) -> LoadedModel:
    """Return a model of all items that learned nothing but words; raises ConflictError if they have none."""
    items: list[Item] = []
    for batch in in_batches(work.items.changes_since(collection, 0), _ITEMS_PER_BATCH):
        items += [change.item for change in batch if change.item is not None]
        pause()
    items = originals.encodable(work, collection, items)
    names = names_of(items)
    words = count_names(items, names)
    sides = [[item for item in items if item.modality == name] for name in collection.modality_names]
    if not any(sides):
        raise not_trainable("its items have nothing that its encoders take")
    empty = next((name for name, side in zip(collection.modality_names, sides, strict=True) if not side), "")
    encoders = originals.fit_encoders(collection, items, most_frequent_names(words), pause)
    pause()
    by_pair = [{item.pair_id: item for item in side} for side in sides]
    pair_ids = sorted(find_pairs(collection.modality_names, items))
    pair_ids = pair_ids[:: len(pair_ids) // _MOST_TESTED + 1]
    x, z = (
        item_features([of[pair_id] for pair_id in pair_ids] or side[:1], encoders[side[0].modality])
        if side
        else np.zeros((0, 1), np.float32)
        for of, side in zip(by_pair, sides, strict=True)
    )
    shares = not empty and share_space(x, z, encoders.values())
    x_further, z_further = (encoders[name].n_further for name in collection.modality_names)
    n_characters = sum(len(item.text or "") for item in items)
    n_characters += sum(len(word) * count for word, count in words.items())
    model = LoadedModel(
        UNTRAINED,
        collection.revision,
        untrained_projector(x, z, shares_space=shares is not False, n_further=(x_further, z_further)),
        encoders,
        collection.modalities,
        {},
        originals=originals,
        names=names,
        is_slow=n_characters > _CHARACTERS_LEARNED_AT_ONCE or not originals.learns_quickly(collection),
        assumes_space=shares is None,
        empty=empty,
    )
    return fill_galleries(model, items, pause)[0]


def connects(projector: Projector, placed: Iterable[Matrix]) -> bool:
    """Return whether content of one modality can find items of the other untrained, where these stand: the
    first modality's, and the second's."""
    assert isinstance(projector, CompositeProjector)
    for side, rows in zip((projector.z, projector.x), placed, strict=True):
        finds = [head.is_own or head.kind == "cosine" for head in side.heads]
        if rows[:, np.repeat(finds, side.widths)].any():
            return True
    return False
