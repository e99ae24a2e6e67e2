"""What a comparison learns from and is measured by, of all that the rows of one's own data carry."""
# The words are those of a training: labels, facets and pairs, each of which may be left out. Methods of a
# comparison learn from one class of each row: its label, or else its partners, or else its first facet
# (`solver.datasets.row_classes`). Rows without one are left out.

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from app.cli.compare.facets import Values, facets_of
from app.domain.errors import InvalidFieldError
from app.domain.reports import Supervision
from app.services.training.facets import MetadataSides
from app.services.training.requests import class_of
from solver import Annotations
from solver.datasets import LABEL, RowClasses, annotate_rows, draw_split, row_classes

IsTrain = npt.NDArray[np.bool]


@dataclass(frozen=True, slots=True)
class CarriedRows:
    """What rows of both modalities carry."""

    labels: tuple[Values, Values]  # the main one first
    # rows of the same name, empty where a row has none; None: each row is its own
    partners: Sequence[str] | None
    metadata: MetadataSides
    is_train: IsTrain | None  # drawn when None

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.labels[0])

    def take(self, rows: npt.NDArray[np.intp]) -> CarriedRows:
        """Return some of the rows."""
        numbers = rows.tolist()
        (x_labels, z_labels), (x_metadata, z_metadata) = self.labels, self.metadata
        return CarriedRows(
            ([x_labels[row] for row in numbers], [z_labels[row] for row in numbers]),
            None if self.partners is None else [self.partners[row] for row in numbers],
            ([x_metadata[row] for row in numbers], [z_metadata[row] for row in numbers]),
            None if self.is_train is None else self.is_train[rows],
        )


@dataclass(frozen=True, slots=True, eq=False)
class LearnedRows:
    """The rows that have a class."""

    rows: npt.NDArray[np.intp]  # their numbers
    classes: RowClasses
    is_train: IsTrain
    annotations: Annotations  # what they are measured by


def learned_rows(carried: CarriedRows, supervision: Supervision, option: str, seed: int) -> LearnedRows:
    """Return the rows to compare methods on; the seed is of a split that is drawn. Raises InvalidFieldError
    (names the option) if nothing is left to learn from, or a facet does not exist."""
    names = None if supervision.facets == "auto" else supervision.facets
    nothing = [""] * len(carried)
    own = [str(row) for row in range(len(carried))] if carried.partners is None else carried.partners
    labels = [class_of(x or z) if x or z else "" for x, z in zip(*carried.labels, strict=True)]
    classes = row_classes(
        labels if supervision.labels else nothing, own if supervision.pairs else nothing, {}
    ) or row_classes(nothing, nothing, _first_facets(carried, names, seed))
    if classes is None or not len(classes.rows):
        raise InvalidFieldError(option, "its rows have no labels, pairs or facets to learn from")
    rows = classes.rows
    carried, classes = carried.take(rows), RowClasses(classes.names[rows], classes.kind)
    partners = carried.partners if supervision.pairs else [""] * len(rows)
    is_train = carried.is_train
    if is_train is None:
        is_train = classes.draw_split(carried.partners, seed)
    facets = {LABEL: carried.labels} if classes.kind == LABEL else {}
    facets |= facets_of(carried.metadata, is_train.tolist(), names)
    if not facets and partners is None:
        partners = [str(row) for row in range(len(rows))]
    return LearnedRows(rows, classes, is_train, annotate_rows(facets, partners))


def _first_facets(
    carried: CarriedRows, names: Sequence[str] | None, seed: int
) -> dict[str, tuple[Values, Values]]:
    is_train = carried.is_train
    if is_train is None:
        is_train = draw_split(np.full(len(carried), ""), carried.partners, seed)
    return facets_of(carried.metadata, is_train.tolist(), names)
