"""Any supervision as annotations."""

from __future__ import annotations

import numpy as np

from solver.supervision.annotations import Annotations, BoolArray, Facet
from solver.supervision.base import Supervision
from solver.supervision.labels import Labels
from solver.supervision.multi_labels import MultiLabels
from solver.supervision.paired_rows import PairedRows
from solver.validation.errors import SupervisionError

LABEL = "label"
"""Name of the facet that labels become."""


def annotations_of(supervision: Annotations | Supervision) -> Annotations:
    """Return annotations as they are, labels as one facet, and paired rows as pairs.

    Raises
    ------
    SupervisionError
        If it is another kind of supervision.
    """
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
