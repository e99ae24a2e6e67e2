"""Quality on real sets: a change that makes a method worse fails here, before a comparison is run."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from solver import CCA, Labels, SemanticBilinear, mean_average_precision
from solver.base import CrossModalEstimator
from solver.datasets import PairedFeatures, load_npz, load_wikipedia
from solver.preprocessing import FeatureScaler

pytestmark = pytest.mark.data

# Maps and classifiers that the whole search finds on the training split, by its own folds, are among these.
SEMANTIC: dict[str, dict[str, Any]] = {
    "audio_digits": {"scalings": ("l2", "standard"), "kernels": ("rbf",), "n_kept": 2, "n_rounds": 4},
    "wikipedia": {"scalings": ("sqrt",), "kernels": ("rbf",), "n_kept": 2, "n_rounds": 4},
}


def _loaded(name: str, root: Path) -> PairedFeatures:
    if name == "wikipedia":
        return load_wikipedia(root / name)
    return load_npz(root / name / f"{name}.npz", "I", "A")


def _quality(model: CrossModalEstimator, data: PairedFeatures, scalings: tuple[str, str]) -> float:
    """Return the test split's MAP in %, averaged over both directions; fitted on the training split alone."""
    train = data.is_train
    scalers = [
        FeatureScaler(kind).fit(side[train]) for kind, side in zip(scalings, (data.X, data.Z), strict=True)
    ]
    sides = [scaler.transform(side) for scaler, side in zip(scalers, (data.X, data.Z), strict=True)]
    model.fit(sides[0][train], sides[1][train], Labels(data.labels[train]))
    x, z = model.project_x(sides[0][~train]), model.project_z(sides[1][~train])
    labels = data.labels[~train]
    directions = mean_average_precision(x, z, labels, labels), mean_average_precision(z, x, labels, labels)
    return 100.0 * float(np.mean(directions))


@pytest.mark.parametrize(("name", "bar"), [("audio_digits", 97.8), ("wikipedia", 29.4)])
def test_semantic_bilinear_keeps_its_quality(name: str, bar: float, test_data: Path) -> None:
    model = SemanticBilinear(**SEMANTIC[name])
    assert _quality(model, _loaded(name, test_data), ("none", "none")) >= bar


def test_cca_finds_what_the_table_says(test_data: Path) -> None:
    # Chosen by three folds of the training split, as `lrbs compare audio_digits` does.
    model = CCA(10, reg=0.03, correlation_power=1.0, metric="cosine", pairs="similar")
    found = _quality(model, _loaded("audio_digits", test_data), ("l2", "standard"))
    assert found == pytest.approx(86.0, abs=1.0)
