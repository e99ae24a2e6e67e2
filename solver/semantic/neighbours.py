"""Class posteriors by similarity-weighted voting over labelled anchors, of the same or the other modality."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

from solver.linalg.matrices import FloatArray, Samples
from solver.validation.errors import InvalidInputError

MAX_INVERSE_TEMPERATURE = 1e4
"""There the nearest anchor already takes the whole vote wherever similarities differ by 1e-3."""
_BLOCK_ROWS = 1024
"""Rows predicted in one block: their similarities to 3000 anchors take 25 MB in float64."""


@dataclass(frozen=True, slots=True, eq=False)
class NeighbourClassifier:
    """Softmax-weighted vote of all anchors z_i on the class of a sample x.

    The posterior of class c is ``sum_{i: c_i = c} exp(t s(x, z_i)) / sum_i exp(t s(x, z_i))`` with the
    inverse temperature t and a bilinear similarity s: the Nadaraya-Watson estimator with that kernel [1]_.

    Parameters
    ----------
    coefficients : ndarray of shape (n_mapped, rank)
        Linear part of the projection of mapped samples.
    intercepts : ndarray of shape (rank,)
        Constant part of the projection.
    anchors : ndarray of shape (n_anchors, rank)
        Projected training samples; a similarity is an inner product with one.
    indicators : ndarray of shape (n_anchors, n_classes)
        1 where an anchor belongs to a class, else 0.
    inverse_temperature : float in (0, 1e4]
        Factor t of the similarities inside the softmax: the larger, the fewer anchors share the vote.
    is_exclusive : bool
        Whether every anchor has exactly one class; if not, each label has a probability of its own.

    Raises
    ------
    InvalidInputError
        If shapes do not match, or an indicator or the inverse temperature is out of range.

    References
    ----------
    .. [1] E. Nadaraya, "On Estimating Regression", Theory of Probability and Its Applications 9, 1964.
    """

    coefficients: FloatArray
    intercepts: FloatArray
    anchors: FloatArray
    indicators: FloatArray
    inverse_temperature: float
    is_exclusive: bool

    def __post_init__(self) -> None:
        """Check shapes and ranges."""
        if self.coefficients.ndim != 2 or self.intercepts.shape != self.coefficients.shape[1:]:
            raise InvalidInputError(
                f"coefficients {self.coefficients.shape} do not match intercepts {self.intercepts.shape}"
            )
        if self.anchors.ndim != 2 or self.anchors.shape[1] != len(self.intercepts) or not len(self.anchors):
            raise InvalidInputError(
                f"anchors {self.anchors.shape} must be at least one, each with {len(self.intercepts)} factors"
            )
        if self.indicators.ndim != 2 or len(self.indicators) != len(self.anchors):
            raise InvalidInputError(
                f"indicators {self.indicators.shape} do not match {len(self.anchors)} anchors"
            )
        is_binary = ((self.indicators == 0) | (self.indicators == 1)).all()
        if not is_binary or (self.is_exclusive and not (self.indicators.sum(axis=1) == 1).all()):
            raise InvalidInputError(
                "indicators must be 0 or 1, with a single 1 in each row where classes are exclusive"
            )
        if not 0.0 < self.inverse_temperature <= MAX_INVERSE_TEMPERATURE:
            raise InvalidInputError(
                f"inverse temperature must be > 0 and at most {MAX_INVERSE_TEMPERATURE:g}, "
                f"got {self.inverse_temperature}"
            )

    @property
    def n_classes(self) -> int:
        """Number of classes or labels."""
        return int(self.indicators.shape[1])

    def predict(self, mapped: Samples) -> FloatArray:
        """Return posteriors of mapped samples, of shape (n_samples, n_classes), in float64."""
        posteriors = np.empty((mapped.shape[0], self.n_classes))
        coefficients, anchors = self.coefficients.astype(np.float64), self.anchors.astype(np.float64)
        indicators = self.indicators.astype(np.float64)
        for start in range(0, mapped.shape[0], _BLOCK_ROWS):
            rows = slice(start, start + _BLOCK_ROWS)
            projected = mapped[rows].astype(np.float64) @ coefficients + self.intercepts
            votes = softmax(self.inverse_temperature * (projected @ anchors.T), axis=1)
            posteriors[rows] = votes @ indicators
        return posteriors
