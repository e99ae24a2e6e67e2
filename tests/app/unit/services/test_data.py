"""Short queries that a retrain makes of the items' facets."""

from dataclasses import replace

import numpy as np
import pytest

from app.domain.entities import Content
from app.encoders.registry import ContentLimits, EncoderRegistry
from app.encoders.types.tfidf import TfidfEncoder
from app.services.training.data import (
    LabelledItems,
    Named,
    Values,
    as_values,
    frequent_combinations,
    short_queries,
    with_names,
)

TEXTS = ["a red handbag", "a blue handbag", "a red shoe", "a grey shoe"]
COLOURS, KINDS = ["red", "blue", "red", "grey"], ["Handbags", "Handbags", "Shoes", "Shoes"]
ENCODER = TfidfEncoder({"type": "tfidf", "characters": 5}, 1000).fit(TEXTS)
PICTURES = EncoderRegistry(ContentLimits(1 << 20, 1 << 20, 1000)).make({"type": "hog-color"})


def items(colours: list[str], kinds: list[str]) -> LabelledItems:
    n = len(colours)
    features, names = np.eye(n, 5, dtype=np.float32), np.asarray([str(number) for number in range(n)])
    sides = [as_values([(value,) for value in side]) for side in (colours, kinds)]
    facets = {name: (side, side) for name, side in zip(("colour", "kind"), sides, strict=True)}
    blank = np.full(n, "")
    return LabelledItems(features, features, blank, blank, names, names, facets, encoders=(PICTURES, ENCODER))


def combined(facets: dict[str, tuple[Values, Values]]) -> list[Named]:
    """Return the combinations of several values."""
    return [named for named in frequent_combinations(facets) if len(named) > 1]


def asked(data: LabelledItems) -> list[set[str]]:
    """Return the values that each query names."""
    annotations = data.annotations()
    of_x, of_z = short_queries(data, annotations)
    assert of_x is None
    if of_z is None:
        return []
    named: list[set[str]] = [set() for _ in range(of_z.samples.shape[0])]
    for facet, indicators in of_z.indicators.items():
        for query, value in zip(*np.nonzero(indicators), strict=True):
            named[query].add(annotations.facets[facet].values[value])
    return named


def test_queries_are_the_combinations_that_items_carry() -> None:
    data = items(COLOURS, KINDS)
    expected = [{"red", "Handbags"}, {"blue", "Handbags"}, {"red", "Shoes"}, {"grey", "Shoes"}]
    expected += [{"red"}, {"blue"}, {"grey"}, {"Handbags"}, {"Shoes"}]
    assert sorted(map(sorted, asked(data))) == sorted(map(sorted, expected))
    _, of_z = short_queries(data, data.annotations())
    assert of_z is not None
    encoded = ENCODER.encode([Content(text=" ".join(values)) for values in (["blue"], ["blue", "Handbags"])])
    (row,) = np.flatnonzero((of_z.n_named == 2) & of_z.indicators["colour"][:, 0])
    np.testing.assert_array_equal(of_z.samples.toarray()[row], encoded.toarray()[1])


def test_of_items_that_are_held_out_nothing_is_used() -> None:
    rows = np.asarray([0, 2, 3])
    assert {"blue", "Handbags"} not in asked(items(COLOURS, KINDS).take(rows, rows))


def test_numbers_and_truth_values_are_no_queries_of_any_encoder() -> None:
    sides = {
        name: (as_values([(value,)]),) * 2
        for name, value in (("size", "42"), ("new", "true"), ("kind", "Shoes"))
    }
    assert frequent_combinations(sides) == [(("kind", "Shoes"),)]


def test_of_many_items_evenly_spaced_ones_are_counted() -> None:
    colours = as_values([("red",), ("blue",)] * 20_000)
    kinds = as_values([("Shoes",)] * 40_000)
    (first, *rest) = combined({"colour": (colours, colours), "kind": (kinds, kinds)})
    assert first in ((("colour", colour), ("kind", "Shoes")) for colour in ("red", "blue"))
    assert len(rest) <= 1


@pytest.mark.parametrize(
    "colours",
    [["17", "23", "17", "42"], ["true", "false", "true", "True"], ["mauve", "ochre", "mauve", "xyzzy"]],
)
def test_values_whose_words_no_text_has_make_no_query(colours: list[str]) -> None:
    assert asked(items(colours, KINDS)) == [{"Handbags"}, {"Shoes"}]


def test_without_encoders_there_are_none_and_with_one_facet_those_of_one_value() -> None:
    data = items(COLOURS, KINDS)
    one = LabelledItems(
        data.X, data.Z, data.x_labels, data.z_labels, data.x_ids, data.z_ids, {"kind": data.facets["kind"]}
    )
    assert short_queries(one, one.annotations()) == (None, None)
    assert frequent_combinations(one.facets) == [(("kind", "Handbags"),), (("kind", "Shoes"),)]


def test_the_most_frequent_combinations_come_first_and_equal_values_are_none() -> None:
    sides = [
        as_values(entries)
        for entries in ([("a", "b"), ("b",), ()], [("x",), ("x",), ("x",)], [("B",), ("B",), ("B",)])
    ]
    facets = {name: (side, side) for name, side in zip("fgh", sides, strict=True)}
    assert frequent_combinations(facets)[0] == (("g", "x"),)
    assert combined(facets) == [
        (("g", "x"), ("h", "B")),
        (("f", "b"), ("g", "x")),
        (("f", "a"), ("g", "x")),
        (("f", "a"), ("h", "B")),
    ]


def test_names_of_a_column_of_chance_are_not_learned_from() -> None:
    rng = np.random.default_rng(0)
    kinds = rng.choice(["Handbags", "Shoes", "Boots"], 200).tolist()
    data = items([f"bin {word}" for word in rng.choice(["kora", "lupa", "mita"], 200)], kinds)
    one_of_each = np.unique(kinds, return_inverse=True)[1][:, None] == np.arange(3)
    features = one_of_each + rng.normal(0, 0.1, (200, 3))
    words = {"Handbags": "purse", "Shoes": "puma", "Boots": "wellies"}
    texts = [Content(text=f"{rng.choice(['cheap', 'new'])} {words[kind]}") for kind in kinds]
    names = [*texts, *(Content(text=value) for side in data.facets.values() for (value,) in set(side[0]))]
    encoder = TfidfEncoder({"type": "tfidf", "characters": 3}, 1000).fit([one.text or "" for one in names])
    data = replace(data, X=features, Z=encoder.encode(texts), encoders=(PICTURES, encoder))
    named = with_names(data)
    learned = {facet: set(of_z[200:]) - {()} for facet, (_, of_z) in named.facets.items()}
    assert learned == {"colour": set(), "kind": {("Handbags",), ("Shoes",), ("Boots",)}}
