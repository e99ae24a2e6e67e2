"""Data of one's own in a comparison: tables, facets, and the table of what users look for."""

import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from app.cli.compare.command import ProtocolName, Sources, default_methods
from app.cli.compare.own_data import (
    ComparedSet,
    FileCache,
    SetEncoder,
    TableColumns,
    encoder_words,
    facets_of,
    load_table,
)
from app.cli.compare.report import chosen_rows, quality_table, quality_values
from app.domain.errors import InvalidFieldError
from app.domain.reports import Supervision
from app.encoders.registry import ContentLimits, EncoderRegistry
from app.settings import Settings
from solver import DatasetError, compare
from solver.comparison import METHODS
from solver.datasets import PairedFeatures, annotate_rows

COLUMNS: dict[str, Any] = {
    "id": "id",
    "picture": "image",
    "text": "text",
    "labels": None,
    "pair": None,
    "split": None,
    "image_encoder": {"type": "hog-color"},
    "text_encoder": {"type": "tfidf"},
}
ALL = Supervision()
N_ROWS = 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with twelve pictures and a table of them; the last row has no label."""
    folder = tmp_path_factory.mktemp("table")
    with (folder / "items.csv").open("w", newline="", encoding="utf-8") as stream:
        table = csv.writer(stream)
        table.writerow(["id", "image", "text", "label", "colour", "price", "product", "part"])
        for row in range(N_ROWS):
            pixels = np.full((16, 16, 3), 20 * (row % 3), np.uint8)
            Image.fromarray(pixels).save(folder / f"{row}.png")
            label = "" if row == N_ROWS - 1 else ("bag", "shoe")[row % 2]
            part = "test" if row < 4 else "Train"
            cells = [f"thing {label}", label, ("red", "blue", "")[row % 3], row + 0.5, f"p{row // 2}", part]
            table.writerow([row, f"{row}.png", *cells])
    return folder


def _load(folder: Path, supervision: Supervision = ALL, **changes: Any) -> ComparedSet:
    return _load_file(folder / "items.csv", supervision, **changes)


def _load_file(file: Path, supervision: Supervision, **changes: Any) -> ComparedSet:
    registry = EncoderRegistry(ContentLimits(1 << 20, 1 << 20, 1000))
    encoder = SetEncoder(registry, FileCache(file.parent / "cache"))
    return load_table(file, TableColumns(**{**COLUMNS, **changes}), supervision, encoder, 0)


def test_a_table_gives_features_split_facets_and_partners(folder: Path) -> None:
    whole_words = {"type": "tfidf", "characters": 0}
    loaded = _load(folder, split="part", pair="product", text_encoder=whole_words)
    data, annotations = loaded.data, loaded.annotations
    assert len(data.X) == len(data.Z) == N_ROWS - 1
    assert data.labels.tolist()[:2] == ["bag", "shoe"]
    assert data.is_train.tolist() == [False] * 4 + [True] * 7
    assert annotations is not None
    assert list(annotations.facets) == ["label", "colour"]  # a price puts no rows together
    assert annotations.is_paired(np.array([0]), np.arange(3)).tolist() == [[True, True, False]]
    assert loaded.name == "items"
    assert len(loaded.rows) == N_ROWS - 1
    assert data.Z.shape[1] == 5  # thing, bag, shoe, and two pairs of words


def test_a_table_without_a_split_column_has_a_drawn_one(folder: Path) -> None:
    data = _load(folder, Supervision(facets=("part", "colour"))).data
    for label in ("bag", "shoe"):
        assert 1 <= int((~data.is_train[data.labels == label]).sum()) <= 2


def test_without_labels_partners_are_learned_and_without_these_a_facet(folder: Path) -> None:
    pairs = _load(folder, Supervision(labels=False), pair="product")
    assert pairs.data.labels.tolist() == [f"p{row // 2}" for row in range(N_ROWS)]
    assert (pairs.class_name, pairs.relevance, pairs.classes) == ("partner", "partner", "groups of partners")
    assert pairs.annotations is not None
    assert list(pairs.annotations.facets) == ["colour", "part"], "labels are no facet, either"
    assert len(pairs.annotations.pairs) == 2 * N_ROWS
    np.testing.assert_array_equal(pairs.data.is_train[::2], pairs.data.is_train[1::2])
    assert default_methods(pairs) == ["LowRankBilinear", "CCA", "PLS", "MsAlg"]
    rows = _load(folder, Supervision(labels=False))
    assert len(set(rows.data.labels.tolist())) == N_ROWS
    facet = _load(folder, Supervision(labels=False, facets=("colour",), pairs=False))
    assert set(facet.data.labels.tolist()) == {"red", "blue"}
    assert len(facet.rows) == 8, "a third of the rows have no colour"
    assert (facet.class_name, facet.relevance) == ("colour", "same colour")
    assert default_methods(facet) == [name for name, method in METHODS.items() if not method.is_optional]
    assert facet.annotations is not None
    assert len(facet.annotations.pairs) == 0
    (folder / "plain.csv").write_text("id,image,text\n0,0.png,one\n1,1.png,two\n", encoding="utf-8")
    with pytest.raises(InvalidFieldError, match="--table: its rows have no labels, pairs or facets"):
        _load_file(folder / "plain.csv", Supervision(pairs=False))
    assert _load_file(folder / "plain.csv", ALL).class_name == "partner"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"split": "fold"}, "--split-column: there is no other column 'fold'"),
        ({"split": "colour"}, "column 'colour': row 0 has 'red'"),
        ({"pair": "twin"}, "--pair-column: there is no other column 'twin'"),
        ({"supervision": Supervision(facets=("size",))}, "--facets: no item has a value of 'size'"),
        ({"labels": ("class",)}, "has no column 'class'"),
        ({"image_encoder": {"type": "sift"}}, "--image-encoder: "),
        ({"image_encoder": {"type": "tfidf"}}, "--image-encoder: content: expected a text"),
        ({"text_encoder": {"type": "tfidf", "max_features": 0}}, "--text-encoder: .*max_features"),
    ],
)
def test_columns_and_encoders_that_do_not_fit_are_named(
    folder: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises((InvalidFieldError, DatasetError), match=message):
        _load(folder, **changes)


def test_features_are_described_by_the_types_of_their_encoders() -> None:
    parts = [{"type": "hog-color"}, {"type": "onnx", "path": "a.onnx"}]
    assert encoder_words({"type": "tfidf", "ngrams": 1}) == "tfidf"
    assert encoder_words({"type": "combine", "parts": parts}) == "hog-color+onnx"


def test_keys_that_put_training_rows_together_are_facets() -> None:
    entries: list[dict[str, Any]] = [
        {
            "tags": ["a", "b"] if row % 4 in (1, 2) else ["b"],
            "is_new": row % 2 == 0,
            "label": row % 3,
            "is_old": row % 2 == 1,
            "constant": "x",
            "unique": str(row),
            "size": row + 0.5,
            "text": "long" * 30 if row % 2 else "short",
        }
        for row in range(8)
    ]
    entries[0] |= {"constant": "y"}  # not in a training row
    facets = facets_of((entries, entries), [False] + [True] * 7, None)
    assert list(facets) == ["is_new", "metadata.label", "tags"]  # "is_old" divides the rows as "is_new" does
    assert facets["tags"][0][:2] == [("b",), ("a", "b")]
    assert facets["is_new"][1][:2] == [("true",), ("false",)]
    assert list(facets_of((entries, entries), [True] * 8, ["unique"])) == ["unique"]


def test_a_key_that_one_modality_lacks_is_no_facet() -> None:
    first = [{"colour": ("red", "blue")[row % 2]} for row in range(8)]
    second: list[dict[str, Any]] = [{} for _ in range(8)]
    assert facets_of((first, second), [True] * 8, None) == {}
    with pytest.raises(InvalidFieldError, match="--facets: no item has a value of 'colour'"):
        facets_of((first, second), [True] * 8, ["colour"])


def _sources(**given: Any) -> Sources:
    none = dict.fromkeys(("protocol", "data", "table", "collection"))
    columns = TableColumns(**COLUMNS)
    return Sources(**{"sets": (), "features": (), **none, "columns": columns, "supervision": ALL, **given})


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"sets": ("products",), "features": (Path("a.npz"),)},
        {"features": (Path("a.npz"),), "table": Path("a.csv")},
        {"table": Path("a.csv"), "collection": "shop"},
        {"collection": "shop", "protocol": ProtocolName.VOC2007, "data": Path()},
    ],
)
def test_exactly_one_kind_of_source_is_given(tmp_path: Path, given: dict[str, Any]) -> None:
    with pytest.raises(InvalidFieldError, match="--features, --table and --collection") as refused:
        _sources(**given).loaders(Settings(data_dir=tmp_path), FileCache(tmp_path), 0)
    assert refused.value.field == "sets"


@pytest.mark.parametrize(
    ("given", "supervision", "message"),
    [
        ({"features": (Path("a.npz"),)}, Supervision(facets=("colour",)), r"--facets: .* facet_NAME"),
        ({"sets": ("products",)}, Supervision(facets=("colour",)), "--facets: of one's own data only"),
        ({"sets": ("products",)}, Supervision(labels=False), "--no-labels and --no-pairs: of one's own"),
    ],
)
def test_what_a_source_cannot_leave_out_is_refused(
    tmp_path: Path, given: dict[str, Any], supervision: Supervision, message: str
) -> None:
    sources = _sources(**given, supervision=supervision)
    with pytest.raises(InvalidFieldError, match=message):
        sources.loaders(Settings(data_dir=tmp_path), FileCache(tmp_path), 0)


def test_the_quality_table_has_a_line_for_each_method_with_the_facets() -> None:
    rng = np.random.default_rng(0)
    labels, colours = np.arange(60) % 3, np.arange(60) % 2
    X, Z = (np.eye(3)[labels] + 0.3 * rng.standard_normal((60, 3)) for _ in range(2))
    ids = tuple(map(str, range(60)))
    names = labels.astype(np.str_)
    data = PairedFeatures(X, Z, names, np.arange(60) % 5 > 0, ids, ids)
    values = [(name,) for name in names.tolist()], [(str(colour),) for colour in colours]
    annotations = annotate_rows({"label": (values[0],) * 2, "colour": (values[1],) * 2}, [""] * 60)
    options: dict[str, Any] = {"n_jobs": 1, "n_resamples": 50, "n_permutations": 50}
    comparison = compare(data, annotations=annotations, methods=["CCA", "MsAlg"], **options)
    header, lines = quality_table(comparison, chosen_rows(comparison))
    # Without partners there are no columns of their ranks.
    assert header[2:] == ["MAP", "nDCG@10", "label P@10", "colour P@10", "lists"]
    assert {line[0] for line in lines} == {"CCA", "MsAlg"}
    gains = [float(line[3]) for line in lines]
    assert gains == sorted(gains, reverse=True)
    assert all(line[-1].endswith(" of 24") for line in lines)
    found = quality_values(comparison.qualities[0])
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["mean"]["recall_at_1"] is None
    assert math.isclose(found["mean"]["ndcg"], (found["x_to_z"]["ndcg"] + found["z_to_x"]["ndcg"]) / 2)
