"""What a method of the comparison cannot learn from is refused, and the reason is named."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from solver import (
    CCA,
    GMLDA,
    GMMFA,
    PLS,
    RCA,
    SCM,
    WMCA,
    Labels,
    MsAlg,
    MultiLabels,
    MvDA,
    mean_average_precision,
)
from solver.baselines import CentredBasis
from solver.validation import InvalidInputError, SupervisionError
from tests.solver.every_estimator import make_pairs

PAIRS = make_pairs()
X, Z, LABELS = PAIRS.X, PAIRS.Z, Labels(PAIRS.x_labels, PAIRS.z_labels)
MIRRORED = [np.vstack([side[:40], -side[:40]]) for side in (X, Z)]  # all classes have mean zero
POINTS = np.repeat(np.eye(4)[:3], 5, axis=0)
THIRD = PAIRS.z_labels == 2
LACKING = np.ones((60, 2), dtype=bool)
LACKING[0, 0] = False


@pytest.mark.parametrize(
    ("model", "arguments", "error", "reason"),
    [
        (CCA(), (X, np.full_like(Z, 0.1), LABELS), InvalidInputError, "^Z holds the same sample only"),
        (
            CCA(pairs="rows"),
            (X, Z, LABELS),
            SupervisionError,
            "rows cannot be pairs: X has 60 samples, Z has 50",
        ),
        (PLS(deflation="canonical"), (X, Z, LABELS), SupervisionError, "needs pairs of rows"),
        (MsAlg(), (np.zeros_like(X), Z, LABELS), InvalidInputError, "sum to zero"),
        (MvDA(), (*MIRRORED, Labels(np.arange(80) % 4)), InvalidInputError, "the classes do not differ"),
        (RCA(), (POINTS, POINTS, Labels(np.repeat(np.arange(3), 5))), InvalidInputError, "nothing to learn"),
        (
            WMCA(),
            (X, Z, MultiLabels(LACKING, np.tile([[True, False]], (50, 1)))),
            SupervisionError,
            "no set of labels occurs in both",
        ),
        *(
            (method(), arguments, InvalidInputError, f"the classes of a modality do not {reason}")
            for method in (GMLDA, GMMFA)
            for arguments, reason in (
                ((X, Z[THIRD], Labels(PAIRS.x_labels, PAIRS.z_labels[THIRD])), "differ"),
                ((np.eye(4)[PAIRS.x_labels], Z, LABELS), "vary within themselves"),
            )
        ),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else None,
)
def test_it_is_refused(model: Any, arguments: Any, error: type[Exception], reason: str) -> None:
    with pytest.raises(error, match=reason):
        model.fit(*arguments)


def test_coordinates_along_the_axes_give_the_centred_samples() -> None:
    samples = np.random.default_rng(0).standard_normal((20, 5)) + 3.0
    basis = CentredBasis.of(samples, "X")
    np.testing.assert_allclose(basis.coordinates @ basis.axes.T + basis.mean, samples, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(basis.coordinates, axis=0), basis.lengths, rtol=1e-12)
    assert basis.n_bytes == 8 * (5 * 5 + 20 * 5)


@pytest.fixture
def wikipedia(test_data: Path) -> dict[str, Any]:
    with np.load(test_data / "wikipedia" / "wikipedia.npz", allow_pickle=False) as arrays:
        return dict(arrays)


def _scores(model: Any, data: dict[str, Any], text: str = "T") -> tuple[float, float]:
    """MAP of image and text queries on the test split."""
    model.fit(data["I_tr"], data[f"{text}_tr"], Labels(data["y_tr"]))
    x, z, labels = model.project_x(data["I_te"]), model.project_z(data[f"{text}_te"]), data["y_te"]
    return mean_average_precision(x, z, labels, labels), mean_average_precision(z, x, labels, labels)


@pytest.mark.data
def test_cca_needs_no_ridge_where_features_sum_to_one(wikipedia: dict[str, Any]) -> None:
    model = CCA(reg=0.0)
    image_query, text_query = _scores(model, wikipedia)
    # Ten topics that sum to one have nine degrees of freedom. Published: .249 and .196; chance .119.
    assert len(model.correlations_) == 9
    assert model.correlations_.max() < 1.0
    assert image_query == pytest.approx(0.249, abs=0.03)
    assert text_query == pytest.approx(0.196, abs=0.03)


@pytest.mark.data
def test_scm_is_ahead_of_cca(wikipedia: dict[str, Any]) -> None:
    image_query, text_query = _scores(SCM(reg=0.0, C=1.0), wikipedia)
    # Published: .277 and .226.
    assert image_query == pytest.approx(0.277, abs=0.05)  # here a little better
    assert text_query == pytest.approx(0.226, abs=0.04)
    assert image_query + text_query > sum(_scores(CCA(reg=0.0), wikipedia)) + 0.04


@pytest.mark.data
def test_cca_overfits_a_thousand_word_features_without_ridge(wikipedia: dict[str, Any]) -> None:
    bare, ridge = CCA(9, reg=0.0), CCA(9, reg=10.0)
    without, with_ridge = (float(np.mean(_scores(model, wikipedia, "T_tfidf"))) for model in (bare, ridge))
    # It finds near certain correlations, and what they say is near chance (.119).
    assert bare.correlations_[0] > 0.85
    assert without < 0.15
    assert with_ridge > without + 0.03
