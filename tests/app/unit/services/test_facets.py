from dataclasses import asdict

import numpy as np
import pytest

from app.cli.commands import column_lines, data_lines
from app.domain.entities import Item
from app.domain.errors import InvalidFieldError
from app.domain.reports import Column, Supervision
from app.services.models.placement import facet_name, facet_values
from app.services.training.data import pairs_of
from app.services.training.facets import categorical_keys, columns_of, weigh
from app.services.training.requests import check_facets, teaches_without_labels
from tests.app.refused import refused

NAMES = ("image", "text")


def items(count: int = 8, **keys: object) -> list[Item]:
    """Return items of two classes; a callable makes the value of a key from the item's number."""
    return [
        Item(
            "",
            "",
            labels=("class " + str(n % 2),),
            metadata={key: value(n) if callable(value) else value for key, value in keys.items()},
        )
        for n in range(count)
    ]


def chosen(x: list[Item], z: list[Item] | None = None, supervision: Supervision | None = None) -> list[str]:
    reasons = columns_of((x, x if z is None else z), supervision or Supervision())
    return [facet_name(key) for key, reason in reasons.items() if reason is None]


@pytest.mark.parametrize(
    "value",
    [
        lambda n: ["red", "blue", "green"][n % 3],
        lambda n: n // 2 % 2 == 0,
        lambda n: 2000 + n // 4,
        lambda n: [["a", "b"], ["b"], ["a"]][n % 3],
        lambda n: [None, "red", "blue"][n % 3],
        lambda n: 37.5 + n // 4,  # sizes that a table brought as numbers teach what they taught as texts
        lambda n: 15_000 + n // 4,
    ],
)
def test_a_key_with_a_few_shared_values_is_a_facet(value: object) -> None:
    assert chosen(items(kind=value)) == ["kind"]


@pytest.mark.parametrize(
    "value",
    [
        "the same of all",
        lambda n: f"sku {n}",
        lambda n: n + 0.5,
        lambda n: "x" * 101 if n % 2 else "y",
        lambda n: 10_000 * (n % 2),
        lambda n: {"inner": n % 2},
        lambda n: "odd" if n % 2 else "even",  # as the labels
    ],
)
def test_other_keys_are_no_facets(value: object) -> None:
    assert chosen(items(key=value)) == []


def test_numbers_that_measure_are_facets_only_where_they_are_few() -> None:
    for number in (0.5, 10_000):
        assert chosen(items(80, price=lambda n, number=number: number + n // 4)) == ["price"]
        assert chosen(items(84, price=lambda n, number=number: number + n // 4)) == []
    assert chosen(items(84, year=lambda n: 1900 + n // 4)) == ["year"]
    assert facet_values({"size": 42.0}, "size") == facet_values({"size": 42}, "size") == ("42",)


def test_values_must_be_shared_by_both_modalities() -> None:
    x, z = items(kind=lambda n: "ab"[n // 4]), items(kind=lambda n: "bc"[n // 4])
    assert chosen(x, z) == []
    assert chosen(x, x[:4] + x[4:]) == ["kind"]


def test_one_of_two_keys_that_divide_the_items_alike_is_enough() -> None:
    x = items(colour=lambda n: "ab"[n // 4], code=lambda n: n // 4)
    assert chosen(x) == ["code"]
    # Keys that were asked for are taken as they are.
    assert chosen(x, supervision=Supervision(facets=("colour", "code"))) == ["colour", "code"]


def test_a_key_called_label_does_not_take_the_place_of_the_labels() -> None:
    x = items(label=lambda n: "ab"[n // 4])
    assert columns_of((x, x), Supervision()) == {"label": None}
    assert chosen(x) == ["metadata.label"]


def test_a_facet_without_a_shared_value_is_refused_by_name() -> None:
    x, z = items(colour=lambda n: "ab"[n % 2]), items(colour=lambda n: "cd"[n % 2])
    with refused("training-data", match=r"facet 'colour': no value .* both modalities"):
        columns_of((x, z), Supervision(facets=("colour",)))


def test_unknown_facets_are_refused_before_the_training() -> None:
    x = items(colour="a")
    check_facets(NAMES, (x, x), Supervision(facets=("colour",)))
    with pytest.raises(InvalidFieldError, match="'image'") as caught:
        check_facets(NAMES, (x, x), Supervision(facets=("colour", "size")))
    assert caught.value.field == "supervision.facets.1"
    with pytest.raises(
        InvalidFieldError, match=r"key 'color' \(did you mean 'colour'\?\); keys are 'colour'"
    ):
        check_facets(NAMES, (x, x), Supervision(facets=("color",)))
    with pytest.raises(InvalidFieldError, match="'text'"):
        check_facets(NAMES, (x, items(size="a")), Supervision(facets=("colour",)))


def test_values_are_text_and_unknown_where_they_are_not_categorical() -> None:
    assert facet_values({"a": [True, 3, "x", "x", None, ""]}, "a") == ("true", "3", "x")
    assert facet_values({"a": {"b": 1}}, "a") == facet_values({}, "a") == ()


def test_a_value_is_one_however_its_accents_are_composed() -> None:
    values = {facet_values({"colour": form}, "colour") for form in ("caf\u00e9", "cafe\u0301")}
    assert values == {("caf\u00e9",)}


def test_pairs_or_facets_suffice_without_labels() -> None:
    paired = [Item("", "", pair_id=f"p{n}") for n in range(4)]
    assert teaches_without_labels((paired, paired), Supervision())
    assert not teaches_without_labels((paired, paired), Supervision(pairs=False))
    assert not teaches_without_labels((paired, paired[:3]), Supervision())
    described = items(kind=lambda n: "ab"[n // 4])
    assert teaches_without_labels((described, described), Supervision(labels=False))
    assert not teaches_without_labels((described, described), Supervision(labels=False, facets=()))


def test_items_with_equal_ids_are_paired_and_large_groups_stay_linear() -> None:
    x, z = np.array(["a", "", "b", "a"]), np.array(["b", "a", "", "c"])
    assert sorted(map(tuple, pairs_of(x, z).tolist())) == [(0, 1), (2, 0), (3, 1)]
    many = pairs_of(np.full(100, "a"), np.full(30, "a"))
    assert len(many) == 100
    assert (set(many[:, 0]), set(many[:, 1])) == (set(range(100)), set(range(30)))
    assert pairs_of(x, np.array(["", "d"])).shape == (0, 2)


def test_the_files_that_items_came_from_are_no_facet_but_a_column_of_that_name_is() -> None:
    files = [{"source": f"{number % 2}.csv", "kind": "ab"[number // 2 % 2]} for number in range(8)]
    assert categorical_keys((files, files), None) == ["kind"]
    shops = [{**facts, "source": ("web", "shop")[number % 2]} for number, facts in enumerate(files)]
    assert categorical_keys((shops, shops), None) == ["kind", "source"]


def test_each_column_has_a_reason_to_be_left_out() -> None:
    x = items(
        84,
        colour=lambda n: "abc"[n // 2 % 3],
        colour_code=lambda n: n // 2 % 3,
        sku=lambda n: f"sku {n}",
        price=lambda n: 0.5 + n // 2,
        description=lambda n: "x" * 101 if n % 2 else "y",
        constant="a",
        name=lambda n: f"class {n % 2}",
        source=lambda n: f"{n % 2}.csv",
    )
    reasons = columns_of((x, x), Supervision())
    assert next(iter(reasons.items())) == ("colour", None)
    assert None not in [reasons[key] for key in reasons.keys() - {"colour"}]
    for key, words in {
        "colour_code": "as the column 'colour' does",
        "sku": "a value of their own",
        "price": "more than 20 measures",
        "description": "long texts",
        "constant": "fewer than two",
        "name": "as the labels do",
    }.items():
        assert words in (reasons[key] or ""), key
    assert "source" not in reasons  # which no table has
    many = items(2100, many=lambda n: n // 2)
    assert columns_of((many, many), Supervision()) == {"many": "it has more than 1000 values"}
    alone = columns_of((x, items(40, other="a")), Supervision())
    assert "one modality" in (alone["colour"] or "")
    assert "one modality" in (alone["other"] or "")
    crowded = items(
        400, **{f"k{n:02d}": lambda i, n=n: (i >> n % 8 & 1) + (i % (n + 2) == 0) for n in range(1, 21)}
    )
    assert (
        sum(
            "16 columns" in (reason or "")
            for reason in columns_of((crowded, crowded), Supervision()).values()
        )
        == 4
    )


def test_a_column_is_reported_with_its_weight_or_why_it_has_none() -> None:
    hostile = "\x1b[31m" + "k" * 500
    columns = [
        Column(name, None, reason) for name, reason in {"a": "", "b": "", "c": "", hostile: "out"}.items()
    ]
    a, b, c, cut = weigh(columns, {"facet:label": 1.0, "facet:a": 0.5, "facet:b": 0.0}, {"b": "chance"})
    assert (a.weight, b.weight, b.reason, c.weight) == (0.5, None, "chance", None)
    assert "not ranked better" in c.reason
    assert len(cut.name) == 100
    assert all("composite" in column.reason for column in weigh(columns[:3], {}, {}))
    doubt = {"id": "x1", "facet": "label", "carried": "\x1b[2J", "likely": "b", "probability": 0.987}
    data = {"columns": [asdict(column) for column in (a, b, cut)], "doubtful": [doubt] * 5}
    lines = column_lines({"data": data}, {"x1": "a \x1b[2J shoe\n"})
    assert lines[0].startswith("column 'a': in with weight 0.5, ")
    assert lines[1] == "column 'b': out, chance"
    assert lines[3] == "labels worth a look: 5, first"
    assert lines[4].startswith("  x1 'a \\x1b[2J shoe' has ")
    assert [line.endswith("its content says 'b' (99%)") for line in lines[4:]] == [True] * 3
    assert "\x1b" not in "".join(lines)
    learned = {"facets": {"label": 3, "a": 4, "b": 5}, "n_pairs": 7, "n_signs": 0, **data}
    weights = {"facet:label": 1.0, "facet:a": 0.5, "facet:b": 0.0, "pairs": 0.3}
    first, *_ = data_lines({"data": learned, "fit": {"weights": weights, "dimensions": {}}})
    assert first == "learned from facets label (3), a (4); 7 pairs"
    first, *_ = data_lines({"data": learned, "fit": {"weights": {}, "dimensions": {}}})
    assert first == "learned from facets label (3), a (4), b (5); 7 pairs"
