"""Class posteriors of a facet, for one modality: ridge regression, whose scores are calibrated."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import scipy.linalg
import scipy.optimize
import scipy.sparse
from scipy.special import expit, log_expit, softmax

from solver.linalg.matrices import FloatArray
from solver.supervision.annotations import BoolArray

RIDGES = 10.0 ** np.arange(-6.0, -0.9, 0.5)
"""Penalties to try, as shares of the total variance: from hardly any to almost nothing but the mean."""
_LEAST_FREE = 1e-9
"""One minus the leverage at least, against division by nothing: the more is taken, the more of the sample's
own value its prediction holds, all of it where samples are fewer than coordinates and hardly penalised."""


@dataclass(frozen=True, slots=True, eq=False)
class RidgeFit:
    """Ridge regressions of one penalty."""

    coefficients: FloatArray  # (rank, n_targets), of the coordinates
    intercepts: FloatArray  # (n_targets,), added to the scores
    left_out: FloatArray  # (n_samples, n_targets), by the regression on all others


class RidgePath:
    """Ridge regressions of all penalties on the same samples, in principal coordinates (n_samples, rank).
    `variances` are given where the axes are the principal ones of just these samples."""

    # The regression on all samples but one needs no fit of its own: its error on that sample is the error of
    # the regression on all, divided by one minus the sample's leverage (D. M. Allen, "The Relationship
    # between Variable Selection and Data Augmentation and a Method for Prediction", Technometrics 16, 1974).

    def __init__(self, coordinates: FloatArray, variances: FloatArray | None = None) -> None:
        self._mean = coordinates.mean(axis=0)
        centred = coordinates - self._mean
        self._axes: FloatArray | None = None
        if variances is None:
            variances, self._axes = _eigen(centred.T @ centred / len(coordinates))
        self._variances = variances
        self._rotated = centred if self._axes is None else centred @ self._axes
        self._squares = self._rotated**2

    def fits(self, targets: FloatArray, ridges: Iterable[float]) -> Iterator[RidgeFit]:
        """Yield the regressions of targets with one penalty, a share of all variance, after the other."""
        n_samples, mean = len(targets), targets.mean(axis=0)
        centred = targets - mean
        covariances = self._rotated.T @ centred / n_samples
        for ridge in ridges:
            shrinkage = 1.0 / (self._variances + ridge * float(self._variances.sum()))
            coefficients = shrinkage[:, None] * covariances
            leverage = (1.0 + self._squares @ shrinkage) / n_samples
            errors = centred - self._rotated @ coefficients
            left_out = targets - errors / np.maximum(1.0 - leverage, _LEAST_FREE)[:, None]
            if self._axes is not None:
                coefficients = self._axes @ coefficients
            yield RidgeFit(coefficients, mean - self._mean @ coefficients, left_out)


def _eigen(moments: FloatArray) -> tuple[FloatArray, FloatArray | None]:
    """Return eigenvalues and eigenvectors; None for the latter where the matrix is diagonal already."""
    diagonal = np.diag(moments)
    if np.abs(moments - np.diag(diagonal)).max(initial=0.0) <= 1e-9 * diagonal.max(initial=0.0):
        return diagonal, None
    values, vectors = scipy.linalg.eigh(moments, check_finite=False)
    return np.maximum(values, 0.0), vectors


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


_MAX_LOSS_RATIO = 1.02
"""Weaker penalties are skipped once the loss exceeds the best one by 2 %: they overfit still more."""
_LEAST_LIKELY = 1e-12
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


def predicts(
    posteriors: FloatArray, indicators: BoolArray, is_exclusive: bool, others: BoolArray | None = None
) -> bool:
    """Return whether posteriors (n_samples, n_values) that were not fitted to these samples say more of their
    values than chance explains; or than `others` explain, of which each sample has one at most."""
    # Chance is to guess by frequency always. Others are to guess by the frequency among all other samples
    # with the same other value, or without any; posteriors say more if the geometric mean with them is
    # better. By Akaike's criterion each value has to gain a nat; here two, since the penalty was chosen, too.
    # To guess by samples with the same other value costs half a nat for it, and half for each value that
    # these have, even where there is no more to say: so much is no gain.
    n_samples, n_values = indicators.shape
    least = 2.0 * n_values
    baseline = np.broadcast_to(indicators.mean(axis=0), indicators.shape)
    if others is not None:
        groups = np.where(others.any(axis=1), others.argmax(axis=1), others.shape[1])
        places = np.ones(n_samples), (groups, np.arange(n_samples))
        table = scipy.sparse.csr_array(places, shape=(others.shape[1] + 1, n_samples))
        together = table @ indicators.astype(np.float64)
        least += 0.5 * (np.count_nonzero(together) + len(np.unique(groups)))
        counts = together[groups] - indicators
        baseline = (counts + baseline) / np.bincount(groups)[groups, None]
        posteriors = _mean_of(posteriors, baseline, is_exclusive)
    losses = []
    for guesses in (baseline, posteriors):
        likely = np.where(indicators, guesses, 1.0 if is_exclusive else 1.0 - guesses)
        losses.append(-float(np.log(np.maximum(likely, _LEAST_LIKELY)).sum()))
    return bool(losses[0] - losses[1] > least)


def _mean_of(first: FloatArray, second: FloatArray, is_exclusive: bool) -> FloatArray:
    """Return the geometric mean of two posteriors, made to sum to one."""
    mean: FloatArray = np.sqrt(first * second)
    others = np.sqrt((1.0 - first) * (1.0 - second)) + mean
    mean /= np.maximum(mean.sum(axis=1, keepdims=True) if is_exclusive else others, _LEAST_LIKELY)
    return mean
