"""Plain labels as supervision, any supervision as annotations, and whether it fits the samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from solver.linalg.matrices import Samples, to_dense
from solver.supervision.annotations import Annotations, BoolArray, Facet
from solver.supervision.base import Supervision
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


LABEL = "label"
"""Name of the facet that labels become."""

_OF_BOTH = ([1, 1], [2, 2])  # numbers of axes of the arrays of both modalities

AnyLabels = Annotations | AnySupervision | npt.ArrayLike | tuple[npt.ArrayLike, npt.ArrayLike] | None
"""What says which samples are similar: a supervision, or plain labels, or nothing where rows are pairs."""


def supervision_of(supervision: AnyLabels, X: Samples, Z: Samples) -> Any:
    """Return a supervision as it is, plain labels (one array, or a tuple) as one, and None as pairs of rows.
    SupervisionError if it is none, or one array cannot be that of both modalities."""
    if isinstance(supervision, (Annotations, *KINDS)):
        return supervision
    n_x, n_z = X.shape[0], Z.shape[0]
    is_of_both = isinstance(supervision, tuple) and [*map(n_axes, supervision)] in _OF_BOTH
    sides: Any = supervision if is_of_both else (supervision, supervision)
    axes = n_axes(sides[0])
    if supervision is not None and axes not in (1, 2):
        raise SupervisionError(
            "expected Labels, MultiLabels, PairedRows, SignedPairs or an array of labels, got "
            f"{type(supervision).__name__}"
        )
    if not is_of_both and n_x != n_z:
        what = "nothing says which belong together" if supervision is None else "one array cannot label both"
        raise SupervisionError(
            f"X has {n_x} samples and Z has {n_z}: {what}; give labels of both as (x_labels, z_labels)"
        )
    if supervision is None:
        return PairedRows(n_x)
    if axes == 1:
        return Labels(*sides)
    if isinstance(supervision, list) and len(supervision) == 2 != n_x:
        raise SupervisionError("labels of both modalities are a tuple, (x_labels, z_labels), not a list")
    sides = [side if hasattr(side, "shape") else np.asarray(side) for side in sides]
    if all(side.shape[1] == 1 for side in sides):  # columns of a table
        return Labels(*(to_dense(side)[:, 0] for side in sides))
    return MultiLabels(*sides)


def n_axes(array: Any) -> int:
    """Return the number of axes; 0 of what is no array."""
    try:
        return int(np.ndim(array))
    except ValueError:  # lists of different lengths
        return 0


def annotations_of(supervision: Annotations | Supervision) -> Annotations:
    """Return annotations as they are, labels as one facet, and paired rows as pairs; or SupervisionError."""
    if isinstance(supervision, Annotations):
        return supervision
    if isinstance(supervision, PairedRows):
        rows = np.arange(len(supervision.x_order))
        return Annotations((len(rows), len(rows)), {}, np.column_stack([rows, rows]))
    if isinstance(supervision, Labels):
        one_hot = np.eye(len(supervision.classes), dtype=np.bool_)
        return _of_facet(one_hot[supervision.x_targets], one_hot[supervision.z_targets])
    if isinstance(supervision, MultiLabels):
        return _of_facet(supervision.x_targets, supervision.z_targets)
    raise SupervisionError(
        f"Annotations, Labels, MultiLabels or PairedRows are needed, not {type(supervision).__name__}"
    )


def _of_facet(x_indicators: BoolArray, z_indicators: BoolArray) -> Annotations:
    values = tuple(str(number) for number in range(x_indicators.shape[1]))
    facet = Facet(values, x_indicators, z_indicators)
    return Annotations((len(x_indicators), len(z_indicators)), {LABEL: facet})
