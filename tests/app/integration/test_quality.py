"""Quality on real sets: a change that makes a method worse fails here, before a comparison is run."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.cli.compare.own_data import FileCache, SetLoader
from app.encoders.registry import ContentLimits, EncoderRegistry
from solver import (
    CCA,
    GMLDA,
    GMMFA,
    PLS,
    SCM,
    Labels,
    LowRankBilinear,
    MsAlg,
    SemanticBilinear,
    SemanticMatching,
    mean_average_precision,
)
from solver.base import CrossModalEstimator
from solver.datasets import PairedFeatures
from solver.scaling.estimator import FeatureScaler

pytestmark = pytest.mark.data
Load = Callable[[str], PairedFeatures]

# What the whole search chooses on the training split, by its own folds, and little else; from as many
# samples as the bar takes. Of CNN features, a trained service is asked (tests/app/e2e/test_real_data.py).
SEMANTIC: dict[str, dict[str, Any]] = {
    "audio_digits": {"scalings": ("l2", "standard"), "kernels": ("rbf",), "max_samples": 700},
    "wikipedia": {"scalings": ("sqrt",), "kernels": ("rbf",), "max_samples": 1500},
    "wikipedia_tfidf": {"scalings": ("sqrt", "l2"), "kernels": ("rbf", "linear"), "max_samples": 700},
}

# What three folds of the training split choose in `lrbs compare wikipedia` without PCA, and what it finds.
BASELINES: list[tuple[type[CrossModalEstimator], tuple[str, str], dict[str, Any], float]] = [
    (SemanticMatching, ("sqrt", "sqrt"), {"C": 1.0, "z_C": 3.0}, 28.3),
    (
        SCM,
        ("center", "l2"),
        {"pairs": "rows", "reg": 0.3, "correlation_power": 1.0, "C": 1.0, "z_C": 10.0},
        27.3,
    ),
    (
        CCA,
        ("l2", "l2"),
        {"pairs": "similar", "reg": 0.3, "n_components": 7, "correlation_power": 1.0, "metric": "inner"},
        25.1,
    ),
    (
        GMLDA,
        ("l2", "l2"),
        {"reg": 0.3, "coupling": 3.0, "eigenvalue_power": 0.5, "metric": "inner"},
        25.5,
    ),
    (GMMFA, ("l2", "l2"), {"reg": 0.3, "eigenvalue_power": 0.5, "metric": "inner"}, 24.9),
    (PLS, ("sqrt", "l2"), {"pairs": "similar", "n_components": 7, "metric": "inner"}, 23.5),
    (MsAlg, ("standard", "center"), {"n_components": 6, "metric": "inner"}, 24.2),
]


@pytest.fixture(scope="module")
def load(test_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Load:
    encoders = EncoderRegistry(ContentLimits(1, 1, 20_000))
    loader = SetLoader(test_data, encoders, FileCache(tmp_path_factory.mktemp("cache")))
    return lambda name: loader.load(name).data


def _quality(model: CrossModalEstimator, data: PairedFeatures, scalings: tuple[str, str]) -> float:
    """Return the test split's MAP in %, averaged over both directions; fitted on the training split alone."""
    train, labels = data.is_train, data.labels[~data.is_train]
    sides = zip(scalings, (data.X, data.Z), strict=True)
    X, Z = (FeatureScaler(kind).fit(side[train]).transform(side) for kind, side in sides)
    model.fit(X[train], Z[train], Labels(data.labels[train]))
    x, z = model.project_x(X[~train]), model.project_z(Z[~train])
    directions = mean_average_precision(x, z, labels, labels), mean_average_precision(z, x, labels, labels)
    return 100.0 * float(np.mean(directions))


@pytest.mark.parametrize(
    ("name", "bar"),
    [("audio_digits", 97.8), ("wikipedia", 29.4), ("wikipedia_tfidf", 30.5)],
)
def test_semantic_bilinear_keeps_its_quality(name: str, bar: float, load: Load) -> None:
    quick = {"n_kept": 1, "n_rounds": 3, "n_folds": 3, "n_landmarks": 200}
    model = SemanticBilinear(**SEMANTIC[name], **quick)
    assert _quality(model, load(name), ("none", "none")) >= bar


@pytest.mark.parametrize(("Baseline", "scalings", "parameters", "expected"), BASELINES)
def test_baselines_find_what_the_table_says(
    Baseline: type[CrossModalEstimator],
    scalings: tuple[str, str],
    parameters: Mapping[str, Any],
    expected: float,
    load: Load,
) -> None:
    assert _quality(Baseline(**parameters), load("wikipedia"), scalings) == pytest.approx(expected, abs=1.0)


def test_the_paper_s_method_finds_what_the_table_says(load: Load) -> None:
    quality = _quality(LowRankBilinear(alpha_fraction=0.03), load("wikipedia"), ("sqrt", "l2"))
    assert quality == pytest.approx(26.7, abs=1.0)
