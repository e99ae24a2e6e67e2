"""Class posteriors of a facet, for one modality."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, softmax

from solver.composite.calibration import Calibration
from solver.composite.ridge import RIDGES, RidgeFit, RidgePath
from solver.linalg.matrices import FloatArray
from solver.supervision.annotations import BoolArray

_MAX_LOSS_RATIO = 1.02
"""Weaker penalties are skipped once the loss exceeds the best one by 2 %: they overfit still more."""
_MIN_VALUES = 2  # values that samples of a modality must have for a facet to distinguish any of them


@dataclass(frozen=True, slots=True, eq=False)
class FacetPosteriors:
    """Posteriors of one facet: a softmax, or sigmoids, of linear scores of principal coordinates."""

    coefficients: FloatArray  # (rank, n_values)
    intercepts: FloatArray  # (n_values,)
    left_out: FloatArray  # (n_samples, n_values), of each fitting sample without that sample
    log_loss: float  # of those, in nats per sample
    is_exclusive: bool

    def posteriors(self, coordinates: FloatArray) -> FloatArray:
        """Return the (n_samples, n_values) posteriors of samples that were not learned from."""
        scores = coordinates @ self.coefficients + self.intercepts
        posteriors: FloatArray = softmax(scores, axis=1) if self.is_exclusive else expit(scores)
        return posteriors


class FacetLearner:
    """Learns the posteriors of facets from the same samples; those known of the same samples share a path.
    `variances` are given where the axes are the principal ones of just these samples."""

    def __init__(
        self, coordinates: FloatArray, heartbeat: Callable[[], None], variances: FloatArray | None = None
    ) -> None:
        self._coordinates, self._variances = coordinates, variances
        self._heartbeat = heartbeat
        self._paths: dict[bytes, RidgePath] = {}

    def fit(self, indicators: BoolArray, is_exclusive: bool) -> FacetPosteriors | None:
        """Return the posteriors; None where fewer than two values occur.
        Samples without a value are not learned from."""
        if int(indicators.any(axis=0).sum()) < _MIN_VALUES:
            return None
        is_known = indicators.any(axis=1)
        key = is_known.tobytes()
        if key not in self._paths:
            self._heartbeat()
            variances = self._variances if is_known.all() else None
            self._paths[key] = RidgePath(self._coordinates[is_known], variances)
        targets = indicators[is_known].astype(np.float64)
        fit, calibration = self._calibrate(self._paths[key], targets, is_exclusive)

        # Samples whose value is unknown were not learned from: the regression predicts them as it is.
        scores = self._coordinates @ fit.coefficients + fit.intercepts
        scores[is_known] = fit.left_out
        return FacetPosteriors(
            calibration.scale * fit.coefficients,
            calibration.scale * fit.intercepts + calibration.offsets,
            calibration.posteriors(scores),
            calibration.loss,
            is_exclusive,
        )

    def _calibrate(
        self, path: RidgePath, targets: FloatArray, is_exclusive: bool
    ) -> tuple[RidgeFit, Calibration]:
        fits: list[tuple[RidgeFit, Calibration]] = []
        for fit in path.fits(targets, RIDGES[::-1]):
            self._heartbeat()
            start = fits[-1][1] if fits else None
            fits.append((fit, Calibration.fit(fit.left_out, targets, is_exclusive, start)))
            losses = [calibration.loss for _, calibration in fits]
            if losses[-1] > _MAX_LOSS_RATIO * min(losses):
                break
        return fits[int(np.argmin(losses))]
