"""Which pairs and which classes a supervision gives to the baselines."""

from __future__ import annotations

import numpy as np

from solver.linalg.matrices import FloatArray
from solver.logistic import class_targets
from solver.supervision.labels import Labels
from solver.supervision.multi_labels import MultiLabels
from solver.supervision.paired_rows import PairedRows
from solver.supervision.signed_pairs import AnySupervision
from solver.supervision.sizes import check_sizes
from solver.validation.errors import SupervisionError
from solver.validation.parameters import one_of

PAIRS = one_of("auto", "rows", "similar")  # rule of the parameter `pairs`


def mean_cross_product(X: FloatArray, Z: FloatArray, supervision: AnySupervision, pairs: str) -> FloatArray:
    """Return the mean of ``x_i z_j^T`` over pairs of samples. SupervisionError if the supervision is of other
    samples, or rows are asked for and their numbers differ."""
    # "rows" are sample i of one modality with sample i of the other, "similar" all similar pairs; "auto" is
    # rows where the supervision carries them (`PairedRows`, or labels that are the same row by row on both
    # sides), all similar pairs otherwise.
    if rows_are_pairs(X, Z, supervision, pairs):
        paired: FloatArray = X.T @ Z / len(X)
        return paired
    return supervision.sum_over_similar(X, Z) / supervision.n_similar


def rows_are_pairs(X: FloatArray, Z: FloatArray, supervision: AnySupervision, pairs: str) -> bool:
    """Say whether row i of X goes with row i of Z; parameters and errors as in `mean_cross_product`."""
    check_sizes(X, Z, supervision)
    if pairs == "rows" and len(X) != len(Z):
        raise SupervisionError(f"rows cannot be pairs: X has {len(X)} samples, Z has {len(Z)}")
    return pairs == "rows" or (pairs == "auto" and _has_paired_rows(supervision))


def class_indicators(supervision: AnySupervision, needed_by: str) -> tuple[FloatArray, FloatArray]:
    """Return (n_samples, n_classes) arrays of 0 and 1; parameters and errors as in `class_targets`."""
    x_targets, z_targets = class_targets(supervision, needed_by)
    return x_targets.indicators, z_targets.indicators


def _has_paired_rows(supervision: AnySupervision) -> bool:
    if isinstance(supervision, Labels | MultiLabels):
        return np.array_equal(supervision.x_targets, supervision.z_targets)
    return isinstance(supervision, PairedRows)
