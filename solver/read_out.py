"""Class posteriors read out of a similarity to samples of the other modality, whose classes are known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

from solver.errors import InvalidInputError
from solver.linalg import FloatArray

_ROWS_AT_ONCE = 2048


@dataclass(frozen=True, slots=True, eq=False)
class ReadOut:
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
    scale : float, > 0
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
        if not 0.0 < self.scale < np.inf:
            raise InvalidInputError(f"scale must be finite and > 0, got {self.scale}")

    @property
    def n_classes(self) -> int:
        """Number of classes or labels."""
        return int(self.indicators.shape[1])

    def predict(self, mapped: FloatArray) -> FloatArray:
        """Return posteriors of mapped samples, of shape (n_samples, n_classes), in float64."""
        posteriors = np.empty((len(mapped), self.n_classes))
        indicators = self.indicators.astype(np.float32)
        for start in range(0, len(mapped), _ROWS_AT_ONCE):
            rows = slice(start, start + _ROWS_AT_ONCE)
            projected = mapped[rows] @ self.coefficients + self.intercepts
            posteriors[rows] = softmax(self.scale * (projected @ self.anchors.T), axis=1) @ indicators
        return posteriors
