"""Checking that a supervision fits the samples it comes with."""

from __future__ import annotations

from solver.linalg.matrices import Samples
from solver.supervision.annotations import Annotations
from solver.supervision.labels import Labels
from solver.supervision.multi_labels import MultiLabels
from solver.supervision.paired_rows import PairedRows
from solver.supervision.signed_pairs import AnySupervision, SignedPairs
from solver.validation.errors import SupervisionError

OF_SEARCHES = (
    "for GridSearchCV, cross_val_score and other splits of scikit-learn, give PairedEstimator(estimator) "
    "PairedSamples(X, Z) and labels"
)


KINDS = (Labels, MultiLabels, PairedRows, SignedPairs)


def check_sizes(X: Samples, Z: Samples, supervision: AnySupervision | Annotations) -> None:
    """Raise SupervisionError unless `supervision` is a supervision of as many samples as there are."""
    if isinstance(supervision, Annotations):
        sizes = supervision.shape
    elif isinstance(supervision, KINDS):
        sizes = len(supervision.x_order), len(supervision.z_order)
    else:
        raise SupervisionError(
            f"expected Labels, MultiLabels, PairedRows or SignedPairs, got {type(supervision).__name__}"
        )
    for name, samples, size in zip("XZ", (X, Z), sizes, strict=True):
        if samples.shape[0] != size:
            hint = f"; {OF_SEARCHES}" if samples.shape[0] < size else ""
            raise SupervisionError(f"{name} has {samples.shape[0]} samples, the supervision has {size}{hint}")
