"""Published behaviour on the set of Rasiwasia et al. (2010); nothing is tuned here."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from solver import CCA, SCM, Labels, mean_average_precision

pytestmark = pytest.mark.data


@pytest.fixture
def wikipedia(test_data: Path) -> dict[str, Any]:
    with np.load(test_data / "wikipedia" / "wikipedia.npz", allow_pickle=False) as arrays:
        return dict(arrays)


def _scores(model: Any, data: dict[str, Any], text: str = "T") -> tuple[float, float]:
    """MAP of image and text queries on the test split."""
    model.fit(data["I_tr"], data[f"{text}_tr"], Labels(data["y_tr"]))
    x, z, labels = model.project_x(data["I_te"]), model.project_z(data[f"{text}_te"]), data["y_te"]
    return mean_average_precision(x, z, labels, labels), mean_average_precision(z, x, labels, labels)


def test_cca_needs_no_ridge_where_features_sum_to_one(wikipedia: dict[str, Any]) -> None:
    model = CCA(reg=0.0)
    image_query, text_query = _scores(model, wikipedia)
    # Ten topics that sum to one have nine degrees of freedom. Published: .249 and .196; chance .119.
    assert len(model.correlations_) == 9
    assert model.correlations_.max() < 1.0
    assert image_query == pytest.approx(0.249, abs=0.03)
    assert text_query == pytest.approx(0.196, abs=0.03)


def test_scm_is_ahead_of_cca(wikipedia: dict[str, Any]) -> None:
    image_query, text_query = _scores(SCM(reg=0.0, C=1.0), wikipedia)
    # Published: .277 and .226.
    assert image_query == pytest.approx(0.277, abs=0.05)  # here a little better
    assert text_query == pytest.approx(0.226, abs=0.04)
    assert image_query + text_query > sum(_scores(CCA(reg=0.0), wikipedia)) + 0.04


def test_cca_overfits_a_thousand_word_features_without_ridge(wikipedia: dict[str, Any]) -> None:
    bare, ridge = CCA(9, reg=0.0), CCA(9, reg=10.0)
    without, with_ridge = (float(np.mean(_scores(model, wikipedia, "T_tfidf"))) for model in (bare, ridge))
    # It finds near certain correlations, and what they say is near chance (.119).
    assert bare.correlations_[0] > 0.85
    assert without < 0.15
    assert with_ridge > without + 0.03
