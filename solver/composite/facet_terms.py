"""Class posteriors of a facet for one modality, what they contradict, and the map that predicts them best."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy.linalg
import scipy.optimize
import scipy.sparse
from scipy.special import expit, log_expit, softmax

from solver.linalg import Centered, FloatArray, Samples, is_sparse
from solver.progress import Heartbeat
from solver.scaling.feature_maps import (
    MIN_RELATIVE_EIGENVALUE,
    FeatureMap,
    FeatureMapConfig,
    draw_landmarks,
    gamma_of,
    kernel_distances,
)
from solver.scaling.scaler import Scaler
from solver.supervision.annotations import WRONG, BoolArray, Facet
from solver.supervision.kinds import Indices
from solver.threads import row_blocks
from solver.validation import InvalidInputError

ROUNDING = 1e-6
"""Axes along which samples vary less, relative to the longest, are rounding of float32 features."""


def centre(products: FloatArray) -> FloatArray:
    """Return the inner products of the centred samples; the symmetric ones of the samples are overwritten."""
    means = products.mean(axis=0)
    products -= means
    products -= (means - means.mean())[:, None]
    return products


def principal_axes(moments: FloatArray, n_axes: int, floor: float) -> tuple[FloatArray, FloatArray]:
    """Return the leading eigenvectors, as columns, and eigenvalues in descending order; overwrites `moments`.
    Those below the share `floor` of the largest are left out. InvalidInputError if all are zero."""
    values, vectors = scipy.linalg.eigh(moments, check_finite=False, overwrite_a=True, driver="evd")
    if not values[-1] > 0.0:
        raise InvalidInputError("all samples are the same: there is nothing to learn from")
    order = np.flatnonzero(values > floor * values[-1])[::-1][:n_axes]
    return vectors[:, order], values[order]


_BLOCK_ROWS = 4096  # rows made dense in one block: 8192 features of them take 256 MiB in float64


@dataclass(frozen=True, slots=True, eq=False)
class PrincipalSpace:
    """A feature map and the principal axes of the mapped samples."""

    feature_map: FeatureMap
    mean: FloatArray  # (n_mapped,), of the mapped samples
    axes: FloatArray  # (n_mapped, rank), orthonormal columns
    variances: FloatArray  # (rank,), of the fitting samples, in descending order

    @classmethod
    def fit(
        cls, samples: Samples, config: FeatureMapConfig, n_landmarks: int, n_components: int, seed: int
    ) -> tuple[PrincipalSpace, FloatArray]:
        """Fit map and axes; return also the (n_samples, rank) coordinates of the samples, in float64.
        InvalidInputError if all samples are the same."""
        # At most `n_components` axes; they are those of this many samples, drawn at random, where there are
        # more.
        fit = _fit_linear if config.kernel == "linear" else _fit_kernel
        feature_map, mean, axes, coordinates = fit(samples, config, n_landmarks, n_components, seed)
        n_samples = len(coordinates)
        variances = np.mean(coordinates**2, axis=0)
        if min(n_components, n_samples if config.kernel == "linear" else n_landmarks) < n_samples:
            # The axes are those of a part: turn them to those of all samples.
            rotation, variances = principal_axes(coordinates.T @ coordinates / n_samples, n_components, 0.0)
            axes, coordinates = axes @ rotation, coordinates @ rotation
        order = np.argsort(-variances)
        order = order[variances[order] > ROUNDING**2 * variances[order[0]]]
        return cls(feature_map, mean, axes[:, order], variances[order]), coordinates[:, order]

    def coordinates(self, samples: Samples) -> FloatArray:
        """Return the (n_samples, rank) coordinates of raw samples, in float64."""
        mapped = self.feature_map.transform(samples)
        return (_dense(mapped, np.arange(mapped.shape[0])) - self.mean) @ self.axes

    def lift(self, coefficients: FloatArray, intercepts: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return coefficients, of shape (rank, n_scores), and intercepts for mapped samples of those for
        coordinates."""
        lifted: FloatArray = self.axes @ coefficients
        return lifted, intercepts - self.mean @ lifted


_Fit = tuple[FeatureMap, FloatArray, FloatArray, FloatArray]
"""Map, mean and axes of the mapped samples, and the coordinates of all samples."""


def _fit_linear(
    samples: Samples, config: FeatureMapConfig, n_landmarks: int, n_components: int, seed: int
) -> _Fit:
    feature_map = config.fit(samples, n_landmarks, seed)
    mapped = feature_map.transform(samples)
    mean, n_samples = _mean(mapped), mapped.shape[0]
    rows = np.sort(np.random.default_rng(seed).permutation(n_samples)[:n_components])
    drawn = _dense(mapped, rows) - mean
    if drawn.shape[1] <= len(rows):
        axes, _ = principal_axes(drawn.T @ drawn, n_components, ROUNDING**2)
    else:
        vectors, values = principal_axes(drawn @ drawn.T, n_components, ROUNDING**2)
        axes = drawn.T @ (vectors / np.sqrt(values))
        if len(rows) == n_samples:
            return feature_map, mean, axes, vectors * np.sqrt(values)
    return feature_map, mean, axes, _coordinates(mapped, mean, axes)


def _fit_kernel(
    samples: Samples, config: FeatureMapConfig, n_landmarks: int, n_components: int, seed: int
) -> _Fit:
    """Return the space of a kernel, whose map ends in the principal coordinates of its landmarks."""
    # So one decomposition gives both the map and the axes. What the landmarks have in common, and the centred
    # kernel lacks, distinguishes none of them.
    scaler = Scaler(config.scaling).fit(samples)
    landmarks, rows = draw_landmarks(samples, scaler, n_landmarks, seed)
    distances = kernel_distances(config.kernel, landmarks, landmarks)
    gamma = gamma_of(distances, config.width)
    kernel = np.exp(-gamma * distances)
    common = kernel.mean(axis=0)
    vectors, values = principal_axes(centre(kernel), n_components, MIN_RELATIVE_EIGENVALUE)
    whitening = vectors / np.sqrt(values)
    feature_map = FeatureMap(
        scaler, config.kernel, gamma, landmarks, np.ascontiguousarray(whitening, np.float32)
    )
    mapped = np.empty((samples.shape[0], len(values)))
    mapped[rows] = vectors * np.sqrt(values) + common @ whitening
    others = np.setdiff1d(np.arange(len(mapped)), rows)
    if len(others):
        mapped[others] = feature_map.transform(samples[others])
    mean = mapped.mean(axis=0)
    return feature_map, mean, np.eye(len(values)), mapped - mean


def _coordinates(mapped: Samples, mean: FloatArray, axes: FloatArray) -> FloatArray:
    """Return the coordinates of mapped samples, a block of rows at a time."""
    coordinates = np.empty((mapped.shape[0], axes.shape[1]))
    for rows in row_blocks(mapped.shape[0], _BLOCK_ROWS):
        coordinates[rows] = (_dense(mapped, np.arange(rows.start, rows.stop)) - mean) @ axes
    return coordinates


def _mean(mapped: Samples) -> FloatArray:
    if isinstance(mapped, Centered):
        return np.asarray(mapped.sparse.mean(axis=0), np.float64).ravel() - mapped.shift.astype(np.float64)
    return np.asarray(mapped.mean(axis=0), np.float64).ravel()


def _dense(mapped: Samples, rows: np.ndarray) -> FloatArray:
    if isinstance(mapped, Centered):
        dense: FloatArray = mapped.sparse[rows].toarray().astype(np.float64) - mapped.shift
        return dense
    chosen = mapped[rows]
    if is_sparse(chosen):
        chosen = chosen.toarray()
    return np.asarray(chosen, np.float64)


RIDGES = 10.0 ** np.arange(-6.0, -0.9, 0.5)
"""Penalties to try, as shares of the total variance: from hardly any to almost nothing but the mean."""
_LEAST_FREE = 1e-9
"""One minus the leverage at least, against division by nothing: the more is taken, the more of the sample's
own value its prediction holds, all of it where samples are fewer than coordinates and hardly penalised."""
_LEAST_LEFT = 1e-4
"""Of all variance, for the samples to be what is left without others: of less, rounding takes the rest."""


@dataclass(frozen=True, slots=True, eq=False)
class RidgeFit:
    """Ridge regressions of one penalty."""

    coefficients: FloatArray  # (rank, n_targets), of the coordinates
    intercepts: FloatArray  # (n_targets,), added to the scores
    left_out: FloatArray  # (n_samples, n_targets), by the regression on all others


class RidgePath:
    """Ridge regressions of all penalties on the same samples, in principal coordinates (n_samples, rank).
    `variances` are given where the axes are the principal ones of these samples and `others`."""

    # The regression on all samples but one needs no fit of its own: its error on that sample is the error of
    # the regression on all, divided by one minus the sample's leverage (D. M. Allen, "The Relationship
    # between Variable Selection and Data Augmentation and a Method for Prediction", Technometrics 16, 1974).
    # The covariance of the samples is that with others, less what these and the mean add to it, which the
    # matrix inversion lemma takes out of each inverse: for few others that costs far less than new axes.

    def __init__(
        self, coordinates: FloatArray, variances: FloatArray | None = None, others: FloatArray | None = None
    ) -> None:
        n_samples, self._mean = len(coordinates), coordinates.mean(axis=0)
        centred = coordinates - self._mean
        self._axes: FloatArray | None = None
        self._removed = coordinates[:0]
        if variances is None:
            variances, self._axes = _eigen(centred.T @ centred / n_samples)
        elif others is not None:
            variances = variances * (n_samples + len(others)) / n_samples
            self._removed = np.vstack([others / n_samples**0.5, self._mean])
        self._variances = variances
        self._rotated = centred if self._axes is None else centred @ self._axes
        self._squares = self._rotated**2

    def fits(self, targets: FloatArray, ridges: Iterable[float]) -> Iterator[RidgeFit]:
        """Yield the regressions of targets with one penalty, a share of all variance, after the other."""
        n_samples, mean = len(targets), targets.mean(axis=0)
        centred = targets - mean
        covariances = self._rotated.T @ centred / n_samples
        total = float(self._variances.sum()) - float(np.vdot(self._removed, self._removed))
        for ridge in ridges:
            shrinkage = 1.0 / (self._variances + ridge * total)
            coefficients = shrinkage[:, None] * covariances
            leverage = (1.0 + self._squares @ shrinkage) / n_samples
            if len(self._removed):
                weighted = shrinkage[:, None] * self._removed.T
                root = np.linalg.cholesky(np.eye(len(self._removed)) - self._removed @ weighted)
                weighted = scipy.linalg.solve_triangular(root, weighted.T, lower=True).T
                coefficients += weighted @ (weighted.T @ covariances)
                leverage += np.sum((self._rotated @ weighted) ** 2, axis=1) / n_samples
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
    values, vectors = scipy.linalg.eigh(moments, check_finite=False, driver="evd")
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
        return _softmax(calibrated)[0] if self.is_exclusive else expit(calibrated)


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
        return softmax(scores, axis=1) if self.is_exclusive else expit(scores)


class FacetLearner:
    """Learns the posteriors of facets from the same samples; those known of the same samples share a path.
    `variances` are given where the axes are the principal ones of all samples."""

    def __init__(
        self, coordinates: FloatArray, heartbeat: Heartbeat, variances: FloatArray | None = None
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
            samples, others = self._coordinates[is_known], self._coordinates[~is_known]
            variances = self._variances if 2 * len(others) <= len(samples) else None
            if variances is not None and samples.var(axis=0).sum() < _LEAST_LEFT * variances.sum():
                variances = None
            self._paths[key] = RidgePath(samples, variances, others if len(others) else None)
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


_LEAST_CHANCE = 1e-12  # chances of values that no sample has are not divided by
_FIRM = 0.9  # least posterior of the value that content speaks for


@dataclass(frozen=True, slots=True)
class Contradiction:
    """A value that a sample carries and that is probably wrong, by a model of all other samples.

    Parameters
    ----------
    side : int
        Modality, 0 or 1.
    row : int
        Of the sample.
    facet : str
        Whose value it is.
    carried, likely : str
        The value, and the one that the content speaks for.
    probability : float
        Of the likely value.
    """

    side: int
    row: int
    facet: str
    carried: str
    likely: str
    probability: float


def find_contradictions(
    facets: Mapping[str, Facet], fits: Mapping[str, tuple[FacetPosteriors, FacetPosteriors]], pairs: Indices
) -> tuple[Contradiction, ...]:
    """Return the carried values that posteriors without the sample firmly contradict, the surest first."""
    # A sample's content may have nothing that shows its value. Where its partners' content speaks for it
    # rather than for the likely one, it is taken to be right. With a twentieth of the values of 2030 products
    # shuffled, .97 of what was listed was wrong then instead of .90, .49 of what was wrong was listed instead
    # of .50; with none shuffled 27 of 16240 were listed instead of 86.
    # Wrong values are taken to be as frequent among each other as right ones are. Posteriors learned from
    # wrong values, too: where the content leaves no doubt, what they say of another value is just the chance
    # of a wrong one. A carried value that is less likely than this is probably wrong.
    sure: list[tuple[float, Contradiction]] = []
    for name, both in fits.items():
        facet = facets[name]
        for side, (fit, carried) in enumerate(zip(both, facet.sides, strict=True)):
            chance = WRONG * carried.sum(axis=0) / max(int(carried.any(axis=1).sum()), 1)
            lift = np.where(carried, fit.left_out / np.maximum(chance, _LEAST_CHANCE), np.inf)
            others = np.where(carried, 0.0, fit.left_out)
            worst, likely = lift.argmin(axis=1), others.argmax(axis=1)
            rows, places = np.arange(len(carried)), (pairs[:, side], pairs[:, 1 - side])
            left_out = both[1 - side].left_out
            partners = scipy.sparse.csr_array((np.ones(len(pairs)), places), (len(carried), len(left_out)))
            of_partners = partners @ left_out
            is_sure = (lift[rows, worst] <= 1.0) & (others[rows, likely] >= _FIRM)
            is_sure &= of_partners[rows, worst] <= of_partners[rows, likely]
            for row in np.flatnonzero(is_sure).tolist():
                probability = float(others[row, likely[row]])
                entry = Contradiction(
                    side, row, name, facet.values[worst[row]], facet.values[likely[row]], probability
                )
                sure.append((float(lift[row, worst[row]]), entry))
    sure.sort(key=lambda pair: pair[0])
    return tuple(entry for _, entry in sure)


_WIDTHS = {"linear": (1.0,), "rbf": (0.5, 2.0), "laplacian": (0.5, 2.0)}
"""Kernel widths to try, as exponents at the median distance."""
PREDICTED = 0.99  # of the variance of targets, in what the best map leaves: more is chance
_MARGIN, _EXPLAINED = 1.03, 0.9
"""A linear map is taken if its error is at most 3 % above the best one's, and it explains nine tenths of what
that explains: a query costs far less with it."""


def candidate_maps(
    samples: Samples, scalings: Sequence[str], kernels: Sequence[str]
) -> list[FeatureMapConfig]:
    """Return the kinds of feature maps that suit the samples; InvalidInputError if there is none."""
    configs = [
        FeatureMapConfig(scaling, kernel, width)
        for scaling in scalings
        for kernel in kernels
        for width in _WIDTHS[kernel]
    ]
    suitable = [config for config in configs if config.suits(samples)]
    if not suitable:
        raise InvalidInputError(
            "no feature map suits the samples: add 'l2' to scalings, or 'linear' to kernels"
        )
    return suitable


def choose_map(
    samples: Samples,
    configs: Sequence[FeatureMapConfig],
    targets: Sequence[tuple[Indices, FloatArray]],
    heartbeat: Heartbeat,
) -> FeatureMapConfig:
    """Return the kind of map with the smallest left-out error, or a linear one that is hardly worse."""
    # Targets are rows and what is known of them; kernels are taken as they are here, without landmarks. What
    # no map predicts, such as a column of chance, would only make all of them look alike.
    tasks = _Task.of(targets)
    find_coordinates = _coordinates_by_map(samples)
    of_groups = []
    for config in configs:
        heartbeat()
        coordinates, variances = find_coordinates(config)
        of_groups.append([error for task in tasks for error in task.errors(coordinates, variances)])
    table = np.array(of_groups)
    is_predicted = table.min(axis=0) < PREDICTED
    errors = table[:, is_predicted if is_predicted.any() else slice(None)].mean(axis=1)
    best = errors.min()
    is_good = (errors <= _MARGIN * best) & (1.0 - errors >= _EXPLAINED * (1.0 - best))
    good = [config for config, is_one in zip(configs, is_good, strict=True) if is_one]
    return next((config for config in good if config.kernel == "linear"), configs[int(np.argmin(errors))])


def least_error(samples: Samples, config: FeatureMapConfig, targets: FloatArray) -> float:
    """Return the smallest left-out error of targets under a map, relative to their variance."""
    coordinates, variances = _coordinates_by_map(samples)(config)
    return _Task.of([(np.arange(len(targets)), targets)])[0].errors(coordinates, variances)[0]


def _coordinates_by_map(
    samples: Samples,
) -> Callable[[FeatureMapConfig], tuple[FloatArray, FloatArray]]:
    """Return what returns the (n_samples, rank) principal coordinates of samples under a map, and the
    variance along each axis; distances are computed once a scaling."""

    @lru_cache(maxsize=1)
    def distances_of(scaling: str, kernel: str) -> FloatArray:
        scaled = Scaler(scaling).fit(samples).transform(samples)
        scaled = scaled.sparse if isinstance(scaled, Centered) else scaled
        return kernel_distances(kernel, scaled, scaled)

    def find_coordinates(config: FeatureMapConfig) -> tuple[FloatArray, FloatArray]:
        distances = distances_of(config.scaling, "laplacian" if config.kernel == "laplacian" else "rbf")
        if config.kernel == "linear":
            products = -0.5 * distances
        else:
            products = np.exp(-gamma_of(distances, config.width) * distances)
        vectors, values = principal_axes(centre(products), len(products), ROUNDING**2)
        return vectors * np.sqrt(values), values / len(products)

    return find_coordinates


@dataclass(frozen=True, slots=True, eq=False)
class _Task:
    """Groups of targets, (n_rows, n_targets), of the same samples, predicted together."""

    rows: Indices
    targets: FloatArray
    group: Indices  # (n_targets,), group of each target, from 0

    @classmethod
    def of(cls, targets: Sequence[tuple[Indices, FloatArray]]) -> list[_Task]:
        """Return the tasks of groups of targets, each with its rows."""
        groups: dict[bytes, tuple[Indices, list[FloatArray]]] = {}
        for unordered, group in targets:
            order = np.argsort(unordered, kind="stable")
            rows = unordered[order].astype(np.intp)
            groups.setdefault(rows.tobytes(), (rows, []))[1].append(group[order])
        return [
            cls(rows, np.hstack(parts), np.repeat(np.arange(len(parts)), [part.shape[1] for part in parts]))
            for rows, parts in groups.values()
        ]

    def errors(self, coordinates: FloatArray, variances: FloatArray) -> list[float]:
        """Return each group's smallest mean squared error of all penalties, relative to its variance."""
        is_whole = np.array_equal(self.rows, np.arange(len(coordinates)))
        path = RidgePath(coordinates if is_whole else coordinates[self.rows], variances if is_whole else None)
        errors = np.array(
            [np.sum((self.targets - fit.left_out) ** 2, axis=0) for fit in path.fits(self.targets, RIDGES)]
        )
        spread = np.sum((self.targets - self.targets.mean(axis=0)) ** 2, axis=0)
        chosen = [self.group == number for number in range(int(self.group[-1]) + 1)]
        return [
            float(errors[:, part].sum(axis=1).min() / spread[part].sum()) if spread[part].any() else 1.0
            for part in chosen
        ]
