"""From the scores of regressions to class posteriors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.optimize
from scipy.special import expit, log_expit

from solver.linalg.matrices import FloatArray

_MOST_STEPS = 60
"""Of the optimiser: the likelihood is smooth and convex, and hardly changes after half as many."""
_OFFSET_PENALTY = 1e-4  # keeps the offset of a value that no sample has from growing without end
_MOST_SURE = 12.0
"""Log-odds at most, of the mean sample: where scores separate all values the likelihood has no maximum, and
posteriors of 0 and 1 would leave nothing to rank by."""
_LARGEST_SCALE = 1e6  # of scores that hardly differ at all
_START = 5.0  # scale of scores between 0 and 1 that makes a softmax of them about as sure as they are


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """Posteriors ``softmax(scale * scores + offsets)``, or the logistic sigmoid of the same."""

    # Platt scaling (J. Platt, "Probabilistic Outputs for Support Vector Machines", Advances in Large Margin
    # Classifiers, 1999) with a common scale, fitted by likelihood to scores that the regression had not seen.

    scale: float  # positive
    offsets: FloatArray  # (n_values,), added to the scaled scores
    loss: float  # mean negative log-likelihood, in nats per sample
    is_exclusive: bool  # softmax; else sigmoids

    @classmethod
    def fit(
        cls, scores: FloatArray, indicators: FloatArray, is_exclusive: bool, start: Calibration | None = None
    ) -> Calibration:
        """Fit scale and offsets to scores, (n_samples, n_values), of samples that the regression had not
        seen. From `start`, of similar scores, it is not far to the optimum."""
        likelihood = _softmax_loss if is_exclusive else _sigmoid_loss

        def evaluate(parameters: FloatArray) -> tuple[float, FloatArray]:
            scale, offsets = np.exp(parameters[0]), parameters[1:]
            loss, slopes = likelihood(scale * scores + offsets, indicators)
            penalty = _OFFSET_PENALTY * float(offsets @ offsets)
            gradient = slopes.sum(axis=0) + 2.0 * _OFFSET_PENALTY * offsets
            return loss + penalty, np.concatenate([[scale * float(np.vdot(slopes, scores))], gradient])

        scale, offsets = (
            (_START, np.zeros(scores.shape[1])) if start is None else (start.scale, start.offsets)
        )
        largest = np.log(_MOST_SURE / max(float(np.mean(np.ptp(scores, axis=1))), 1.0 / _LARGEST_SCALE))
        first = np.concatenate([[min(np.log(scale), largest)], offsets])
        result = scipy.optimize.minimize(
            evaluate,
            first,
            jac=True,
            method="L-BFGS-B",
            bounds=[(None, largest), *[(None, None)] * len(offsets)],
            options={"maxiter": _MOST_STEPS},
        )
        return cls(float(np.exp(result.x[0])), result.x[1:], float(result.fun), is_exclusive)

    def posteriors(self, scores: FloatArray) -> FloatArray:
        """Return the (n_samples, n_values) posteriors of scores."""
        calibrated = self.scale * scores + self.offsets
        posteriors: FloatArray = _softmax(calibrated)[0] if self.is_exclusive else expit(calibrated)
        return posteriors


def _softmax(scores: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return posteriors and the normalisers, ``log(sum(exp(scores)))`` of each row."""
    largest = scores.max(axis=1, keepdims=True)
    posteriors = np.exp(scores - largest)
    totals = posteriors.sum(axis=1, keepdims=True)
    posteriors /= totals
    return posteriors, (np.log(totals) + largest).ravel()


def _softmax_loss(scores: FloatArray, indicators: FloatArray) -> tuple[float, FloatArray]:
    slopes, normalisers = _softmax(scores)
    loss = (float(normalisers.sum()) - float(np.vdot(scores, indicators))) / len(scores)
    slopes -= indicators
    slopes /= len(scores)
    return loss, slopes


def _sigmoid_loss(scores: FloatArray, indicators: FloatArray) -> tuple[float, FloatArray]:
    """Return the mean negative log-likelihood, summed over values, and its derivative by each score."""
    likelihood = indicators * log_expit(scores) + (1.0 - indicators) * log_expit(-scores)
    return -float(np.sum(likelihood)) / len(scores), (expit(scores) - indicators) / len(scores)
