"""What a method of the comparison cannot learn from is refused, and the reason is named."""

from typing import Any

import numpy as np
import pytest

from solver import CCA, GMLDA, GMMFA, PLS, RCA, WMCA, Labels, MsAlg, MultiLabels, MvDA
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
