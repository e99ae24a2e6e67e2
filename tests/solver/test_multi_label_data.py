"""Several labels per sample on real data: product pictures and names that share a category or a colour."""

import csv
import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image
from sklearn.feature_extraction.text import TfidfVectorizer

from solver import FeatureScaler, Labels, LowRankBilinear, MultiLabels, alpha_max, mean_average_precision
from solver.evaluation.metrics import chance_average_precision
from solver.linalg import FloatArray
from tests.solver.dense import DenseProblem

pytestmark = pytest.mark.data

EVERY = 5  # a fifth of the pictures takes the network seven seconds
SIZE = 224


@dataclass(frozen=True)
class Products:
    """Scaled features of pictures, tf-idf of names, and what both may share."""

    X: FloatArray
    Z: Any
    categories: npt.NDArray[np.bool_]
    colours: npt.NDArray[np.bool_]
    train: npt.NDArray[np.bool_]

    @property
    def indicators(self) -> npt.NDArray[np.bool_]:
        return np.hstack([self.categories, self.colours])

    def supervision(self) -> MultiLabels:
        return MultiLabels(self.indicators[self.train])

    def fit(self, fraction: float, supervision: Any) -> LowRankBilinear:
        X, Z = self.X[self.train], self.Z[self.train]
        return LowRankBilinear(fraction * alpha_max(X, Z, supervision)).fit(X, Z, supervision)

    def held_out_maps(
        self, model: LowRankBilinear, relevant: npt.NDArray[np.bool_]
    ) -> tuple[float, float, float]:
        """Return MAP from picture to name, from name to picture, and that of a random order."""
        x, z = model.project_x(self.X[~self.train]), model.project_z(self.Z[~self.train])
        of_test = relevant[~self.train]
        return (
            mean_average_precision(x, z, of_test, of_test),
            mean_average_precision(z, x, of_test, of_test),
            chance_average_precision(of_test, of_test),
        )


def _indicators(values: list[str]) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = np.asarray(values)[:, None] == np.unique(values)[None, :]
    return found


def _describe(pictures: list[Path], network: Path, onnxruntime: Any) -> FloatArray:
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, 1
    session = onnxruntime.InferenceSession(str(network), options, providers=["CPUExecutionProvider"])
    features = []
    for path in pictures:
        with Image.open(path) as picture:
            pixels = np.asarray(picture.convert("RGB").resize((SIZE, SIZE)), np.float32)
        batch = np.ascontiguousarray(((pixels - 128) / 128).transpose(2, 0, 1)[None])
        features.append(session.run(["features"], {"image": batch})[0][0])
    return np.asarray(features)


@pytest.fixture(scope="module")
def products(test_data: Path, onnxruntime: Any) -> Products:
    table = test_data / "products" / "items.csv"
    with table.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))[::EVERY]
    train = np.array([row["split"] == "train" for row in rows])
    files = [table.parent / row["image"] for row in rows]
    pictures = _describe(files, test_data / "weights" / "mobilenet_v2.onnx", onnxruntime)
    words = TfidfVectorizer(min_df=2, sublinear_tf=True, dtype=np.float32)
    words.fit([row["text"] for row in rows if row["split"] == "train"])
    return Products(
        FeatureScaler().fit(pictures[train]).transform(pictures),
        words.transform([row["text"] for row in rows]),
        _indicators([row["label"] for row in rows]),
        _indicators([row["colour"] for row in rows]),
        train,
    )


@pytest.fixture(scope="module")
def fitted(products: Products) -> Callable[[float], LowRankBilinear]:
    """Return a function of the share of alpha_max that fits categories and colours, once for each."""
    return functools.cache(lambda fraction: products.fit(fraction, products.supervision()))


@pytest.mark.parametrize("fraction", [1 / 3, 1 / 100, 1 / 1000])
def test_category_and_colour_are_certified_in_dense_float64(
    fraction: float,
    products: Products,
    fitted: Callable[[float], LowRankBilinear],
) -> None:
    model = fitted(fraction)
    assert model.converged_
    assert model.duality_gap_ <= 1e-3
    shared = products.indicators[products.train].astype(np.float32)
    signs = np.where(shared @ shared.T > 0, 1.0, -1.0)
    X, Z = products.X[products.train], products.Z[products.train]
    dense = DenseProblem.of_pairs(X, Z, signs, fit_intercept=True)
    gap = dense.relative_gap_of(model)
    assert gap <= 1e-3
    assert gap == pytest.approx(model.duality_gap_, abs=1e-9)


def test_held_out_items_find_those_of_their_category_or_colour(
    products: Products, fitted: Callable[[float], LowRankBilinear]
) -> None:
    several = fitted(1 / 100)
    either = products.held_out_maps(several, products.indicators)
    categories = products.held_out_maps(several, products.categories)
    colours = products.held_out_maps(several, products.colours)
    print(f"products, MAP x->z, z->x, chance: {either=}, {categories=}, {colours=}")  # noqa: T201
    # Measured: .723 and .715 where chance has .179, .733 and .755 (.085), .404 and .367 (.115).
    assert min(either[:2]) > 0.70
    assert min(categories[:2]) > 0.62
    assert min(colours[:2]) > 0.36
    assert either[2] < 0.25


def test_colours_are_found_because_they_were_taught(
    products: Products, fitted: Callable[[float], LowRankBilinear]
) -> None:
    several = fitted(1 / 100)
    of_category = Labels(products.categories[products.train].argmax(axis=1))
    alone = products.fit(1 / 100, of_category)
    for taught, untaught in zip(
        products.held_out_maps(several, products.colours)[:2],
        products.held_out_maps(alone, products.colours)[:2],
        strict=True,
    ):
        assert taught > untaught + 0.10  # .404 and .367 against .266 and .247 was measured
