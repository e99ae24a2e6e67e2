"""A stored collection as a set of a comparison."""

from pathlib import Path

import numpy as np
import pytest

from app.cli.compare.own_data import ComparedSet, FileCache, SetEncoder, load_collection
from app.domain.entities import Content
from app.domain.errors import CollectionNotFoundError, InvalidFieldError
from app.domain.reports import Supervision
from app.encoders.registry import ContentLimits, EncoderRegistry
from app.services.catalogue.preparation import NewItem
from tests.app.integration.conftest import Pairs

N_PAIRS = 10
ALL = Supervision()


def _load(pairs: Pairs, folder: Path, supervision: Supervision = ALL) -> ComparedSet:
    encoder = SetEncoder(EncoderRegistry(ContentLimits(1, 1, 1000)), FileCache(folder))
    return load_collection(pairs.services, "shop", supervision, encoder, 0)


def _items(pairs: Pairs, n_test: int) -> list[NewItem]:
    """Return vectors and texts of the same pairs, two spare captions, and an item without a partner."""
    items = []
    for row in range(N_PAIRS):
        facts = {"metadata": {"colour": ("red", "blue")[row // 2 % 2]}, "train": row >= n_test}
        label, name = ("bag", "shoe")[row % 2], f"pair-{row}"
        items.append(pairs.item("x", f"x{row}", np.full(3, row), label, pair_id=name, **facts))
        text = Content(text=f"{label} number{row}")
        items.append(NewItem("text", text, f"t{row}", (label,), pair_id=name, **facts))
    items.append(NewItem("text", Content(text="bag again"), "t0-b", ("bag",), pair_id="pair-0"))
    items.append(pairs.item("x", "alone", np.ones(3), "bag"))
    return items


def test_items_of_one_pair_id_are_rows_with_their_stored_features_and_facets(
    pairs: Pairs, tmp_path: Path
) -> None:
    pairs.make("shop", x="vector", text="tfidf")
    with pytest.raises(InvalidFieldError, match="--collection: no two items"):
        _load(pairs, tmp_path)
    pairs.services.catalogue.add_items("shop", _items(pairs, n_test=4))
    loaded = _load(pairs, tmp_path)
    assert loaded.data.x_ids == tuple(f"x{row}" for row in range(N_PAIRS))
    np.testing.assert_array_equal(loaded.data.X, np.outer(np.arange(N_PAIRS), np.ones(3)))
    assert loaded.data.is_train.tolist() == [False] * 4 + [True] * 6
    assert loaded.data.labels.tolist() == ["bag", "shoe"] * 5
    assert loaded.modalities == ("x", "text")
    assert "2 items are in no pair" in loaded.features
    annotations = loaded.annotations
    assert annotations is not None
    assert set(annotations.facets) == {"label", "colour"}
    assert annotations.pairs.tolist() == [[row, row] for row in range(N_PAIRS)]
    assert loaded.data.Z.shape[0] == N_PAIRS
    assert loaded.data.Z[0].any()  # its label's word; its number is in no training text
    unlabelled = _load(pairs, tmp_path, Supervision(labels=False))
    assert unlabelled.data.labels.tolist() == [f"pair-{row}" for row in range(N_PAIRS)]
    assert unlabelled.annotations is not None
    assert set(unlabelled.annotations.facets) == {"colour"}


def test_without_test_items_a_part_is_drawn(pairs: Pairs, tmp_path: Path) -> None:
    pairs.make("shop", x="vector", text="tfidf")
    pairs.services.catalogue.add_items("shop", _items(pairs, n_test=0))
    assert int((~_load(pairs, tmp_path).data.is_train).sum()) == 2


def test_a_missing_collection_is_named(pairs: Pairs, tmp_path: Path) -> None:
    with pytest.raises(CollectionNotFoundError, match="shop"):
        _load(pairs, tmp_path)
