"""Class posteriors read out of a similarity to samples of the other modality, whose classes are known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

from solver.errors import InvalidInputError
from solver.linalg.matrices import FloatArray, Samples

LARGEST_SCALE = 1e4
_ROWS_AT_ONCE = 1024


@dataclass(frozen=True, slots=True, eq=False)
class NeighbourClassifier:
    """Posteriors of a class in proportion to the sum of ``exp(scale * s(x, z_i))`` over its anchors z_i.

    Parameters
    ----------
    coefficients : ndarray of shape (n_mapped, rank)
        Linear part of the projection of mapped samples.
    intercepts : ndarray of shape (rank,)
        Constant part.
    anchors : ndarray of shape (n_anchors, rank)
        Projected training samples of the other modality; their inner products are the similarities s.
    indicators : ndarray of shape (n_anchors, n_classes)
        1 where an anchor is of a class.
    scale : float in (0, 1e4]
        How sharply similarities are told apart.
    is_exclusive : bool
        Whether every anchor has exactly one class; else each label has a probability of its own.
    """

    coefficients: FloatArray
    intercepts: FloatArray
    anchors: FloatArray
    indicators: FloatArray
    scale: float
    is_exclusive: bool

    def __post_init__(self) -> None:
        """Refuse parts that do not fit each other."""
        if self.coefficients.ndim != 2 or self.intercepts.shape != self.coefficients.shape[1:]:
            raise InvalidInputError(
                f"coefficients {self.coefficients.shape} and intercepts {self.intercepts.shape} do not fit"
            )
        if self.anchors.ndim != 2 or self.anchors.shape[1] != len(self.intercepts) or not len(self.anchors):
            raise InvalidInputError(
                f"anchors {self.anchors.shape} do not have {len(self.intercepts)} factors"
            )
        if self.indicators.ndim != 2 or len(self.indicators) != len(self.anchors):
            raise InvalidInputError(
                f"indicators {self.indicators.shape} are not of {len(self.anchors)} anchors"
            )
        is_binary = ((self.indicators == 0) | (self.indicators == 1)).all()
        if not is_binary or (self.is_exclusive and not (self.indicators.sum(axis=1) == 1).all()):
            raise InvalidInputError(
                "indicators must be 0 or 1, and one of each row 1 where classes are exclusive"
            )
        if not 0.0 < self.scale <= LARGEST_SCALE:
            raise InvalidInputError(f"scale must be > 0 and at most {LARGEST_SCALE:g}, got {self.scale}")

    @property
    def n_classes(self) -> int:
        """Number of classes or labels."""
        return int(self.indicators.shape[1])

    def predict(self, mapped: Samples) -> FloatArray:
        """Return posteriors of mapped samples, of shape (n_samples, n_classes), in float64."""
        posteriors = np.empty((mapped.shape[0], self.n_classes))
        coefficients, anchors = self.coefficients.astype(np.float64), self.anchors.astype(np.float64)
        indicators = self.indicators.astype(np.float64)
        for start in range(0, mapped.shape[0], _ROWS_AT_ONCE):
            rows = slice(start, start + _ROWS_AT_ONCE)
            projected = mapped[rows].astype(np.float64) @ coefficients + self.intercepts
            posteriors[rows] = softmax(self.scale * (projected @ anchors.T), axis=1) @ indicators
        return posteriors
