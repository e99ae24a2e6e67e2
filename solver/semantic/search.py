"""Model selection: feature maps and penalties, kernel ridge, blended neighbours, and the matrix M."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import scipy.linalg
from sklearn.exceptions import ConvergenceWarning as SklearnConvergenceWarning

from solver.bilinear.estimator import LowRankBilinear
from solver.bilinear.solving import BilinearProblem, regularisation_path
from solver.evaluation.metrics import bidirectional_map
from solver.linalg import FloatArray, Samples, Sides, compact, lift_factors
from solver.logistic import IMPOSSIBLE_SCORE, LinearClassifier, Regression, Targets
from solver.losses.base import LOSSES
from solver.progress import Heartbeat
from solver.scaling.feature_maps import KERNELS, FeatureMap, FeatureMapConfig
from solver.scaling.scaler import SCALINGS
from solver.semantic import learners
from solver.semantic.ensemble import (
    MAX_INVERSE_TEMPERATURE,
    Branch,
    Classifier,
    Ensemble,
    NeighbourClassifier,
    WeightedClassifier,
)
from solver.supervision.kinds import Indices, Supervision
from solver.threads import single_threaded_blas
from solver.validation import (
    COUNT,
    FRACTION,
    N_FOLDS,
    POSITIVE,
    SEED,
    ConvergenceWarning,
    InvalidInputError,
    RankWarning,
    SupervisionError,
    integer_from,
    number_within,
    one_of,
    optional,
    parameter,
    some_of,
)

SEARCHED_SCALINGS = ("standard", "l2", "sqrt")  # kinds of `Scaler` to try by default
WIDTHS = {"linear": (1.0,), "rbf": (0.3, 1.0, 3.0), "laplacian": (0.3, 1.0, 3.0)}
"""Kernel widths to try: exponents at the median distance, three for each kernel, half a decade apart."""
INVERSE_PENALTIES = (3.0, 15.0, 75.0)
"""Inverse penalties ``C`` to try of the logistic regressions, each five times weaker than the one before."""
_MAX_LOSS_RATIO = 1.02
"""Weaker penalties are skipped once the log loss exceeds the best one by 2 %: they overfit still more."""


_MAX_RIDGE_FEATURES = 2000
"""Their covariance matrix takes 32 MB, and its eigenvectors a few seconds for each fold."""


@dataclass(eq=False, repr=False, kw_only=True)
class SearchOptions:
    """The parameters of `SemanticBilinear`, which describes them: search space and effort, and the blend."""

    loss: str = parameter("squared", one_of(*LOSSES))
    alpha_fraction: float | None = parameter(None, optional(FRACTION))
    scalings: tuple[str, ...] = parameter(SEARCHED_SCALINGS, some_of(*SCALINGS))
    kernels: tuple[str, ...] = parameter(KERNELS, some_of(*KERNELS))
    n_landmarks: int = parameter(400, COUNT)
    n_folds: int = parameter(5, N_FOLDS)
    n_kept: int = parameter(6, COUNT)
    n_rounds: int = parameter(8, COUNT)
    max_samples: int = parameter(3000, integer_from(10))
    neighbour_share: float = parameter(0.1, number_within(0.0, 1.0, closed="left"))
    inverse_temperature: float = parameter(2.0, number_within(0.0, MAX_INVERSE_TEMPERATURE, closed="right"))
    tol: float = parameter(1e-3, POSITIVE)
    random_state: int = parameter(0, SEED)
    n_jobs: int | None = parameter(None, optional(COUNT))


def count_steps(options: SearchOptions, configs: Sequence[learners.ClassifierConfig] = ()) -> int:
    """Return about how many steps a search takes, or a fit of classifiers that were chosen before."""
    if configs:
        return len(configs) * (1 + options.n_folds)
    n_maps = len(options.scalings) * sum(len(WIDTHS[kernel]) for kernel in options.kernels)
    n_classifiers = options.n_kept * len(INVERSE_PENALTIES) + len(learners.VOTE_SHARPNESS)
    return (n_maps + n_classifiers) * (1 + options.n_folds) + n_classifiers


def fit_posteriors(
    samples: Samples,
    targets: Targets,
    options: SearchOptions,
    heartbeat: Heartbeat,
    configs: Sequence[learners.ClassifierConfig] = (),
) -> learners.Posteriors:
    """Choose classifiers by out-of-fold predictions and fit them, or fit the choice `configs` again.
    SupervisionError if most samples are alone in their class, InvalidInputError if no map suits them."""
    # A ridge regression of the class indicators, where all penalties share one eigendecomposition, screens
    # the feature maps. On the best of them logistic regressions are fitted; the ridge regressions of kernel
    # maps, calibrated by a temperature, are candidates too, and so are votes of the nearest samples on the
    # best kernel map. The average is built greedily: each round adds, with repetition, the classifier that
    # makes it most likely (Caruana et al., "Ensemble Selection from Libraries of Models", ICML 2004). There
    # is a new search where samples or options rule out one of the maps of `configs`.
    # Filters are set once, around all threads: they are a property of the process. A classifier that has not
    # fully converged is judged by its predictions like any other.
    with single_threaded_blas(), warnings.catch_warnings():
        warnings.simplefilter("ignore", SklearnConvergenceWarning)
        learners.check_classes_can_be_held_out(targets)
        rng = np.random.default_rng(options.random_state)
        rows = learners.stratified_sample(targets, options.max_samples, rng)
        sample, sample_targets = samples[rows], targets.subset(rows)
        folds = learners.make_folds(sample_targets, options.n_folds, rng)
        kinds = dict.fromkeys(config.feature_map for config in configs)
        if kinds and all(
            kind.scaling in options.scalings and kind.kernel in options.kernels and kind.suits(samples)
            for kind in kinds
        ):
            plans = [learners.ClassifierPlan(config) for config in configs]
            feature_maps = {
                kind: kind.fit(sample, options.n_landmarks, options.random_state) for kind in kinds
            }
        else:
            search = _Search(sample, sample_targets, folds, options, heartbeat)
            screened = search.screen_feature_maps()
            plans = search.choose_classifiers(screened)
            feature_maps = {entry.kind: entry.feature_map for entry in screened}
        if len(rows) < samples.shape[0]:
            folds = learners.make_folds(targets, options.n_folds, rng)
            plans = [replace(plan, out_of_fold=None) for plan in plans]
        return learners.fit_ensemble(samples, targets, feature_maps, plans, folds, options.n_jobs, heartbeat)


@dataclass(frozen=True, slots=True, eq=False)
class _ScreenedMap:
    """A fitted feature map with the ridge regression that it was screened by."""

    kind: FeatureMapConfig
    feature_map: FeatureMap
    mapped: FloatArray  # (n_samples, n_mapped), in coordinates of their row space
    ridge: learners.RidgeScreening


@dataclass(frozen=True, slots=True, eq=False)
class _Search:
    """A search on some samples; fields as the parameters of `fit_posteriors`."""

    samples: Samples
    targets: Targets
    folds: list[Indices]
    options: SearchOptions
    heartbeat: Heartbeat

    def screen_feature_maps(self) -> list[_ScreenedMap]:
        """Return the feature maps with the smallest out-of-fold error of ridge regression, best first.
        Maps that leave sparse samples too large to be made dense are skipped."""
        kinds = [
            FeatureMapConfig(scaling, kernel, width)
            for scaling in self.options.scalings
            for kernel in self.options.kernels
            for width in WIDTHS[kernel]
        ]
        screened: list[_ScreenedMap] = []
        for kind in kinds:
            if kind.suits(self.samples):
                self.heartbeat()
                feature_map = kind.fit(self.samples, self.options.n_landmarks, self.options.random_state)
                mapped, _ = learners.to_row_space(feature_map.transform(self.samples))
                if isinstance(mapped, np.ndarray):
                    ridge = learners.RidgeScreening.of(mapped, self.targets, self.folds, self.heartbeat)
                    screened.append(_ScreenedMap(kind, feature_map, mapped, ridge))
                    screened.sort(key=lambda entry: entry.ridge.error)
                    del screened[self.options.n_kept :]
        if not screened:
            raise InvalidInputError("none of the given scalings and kernels suits these samples")
        return screened

    def choose_classifiers(self, screened: Sequence[_ScreenedMap]) -> list[learners.ClassifierPlan]:
        """Return the classifiers of an average that is likely out of fold, with their predictions."""
        kernel_maps = [entry for entry in screened if entry.kind.kernel != "linear"]
        candidates = [
            (entry.kind, learner, predicted)
            for entry in screened
            for learner, predicted in self._predict_candidates(entry, votes=entry in kernel_maps[:1])
        ]
        predictions = [predicted for *_, predicted in candidates]
        weights = _greedy_weights(predictions, self.targets, self.options.n_rounds)
        return [
            learners.ClassifierPlan(learners.ClassifierConfig(kind, learner, weight), predicted)
            for (kind, learner, predicted), weight in zip(candidates, weights, strict=True)
            if weight > 0.0
        ]

    def _predict_candidates(
        self, entry: _ScreenedMap, votes: bool
    ) -> Iterator[tuple[learners.Learner, FloatArray]]:
        """Yield classifiers of a feature map with their out-of-fold predictions."""
        yield from self._predict_logistic(entry.mapped)
        if self.targets.is_exclusive and entry.feature_map.n_mapped <= _MAX_RIDGE_FEATURES:
            yield entry.ridge.to_learner(self.targets)
        for sharpness in learners.VOTE_SHARPNESS if votes else ():
            self.heartbeat()
            learner = learners.VoteLearner(sharpness, self.options.max_samples, self.options.random_state)
            yield learner, self._cross_predict([learner.fit] * len(self.folds), entry.mapped)

    def _predict_logistic(self, mapped: Samples) -> Iterator[tuple[learners.Learner, FloatArray]]:
        """Yield logistic regressions by inverse penalty, up to the first that clearly overfits."""
        regressions = [Regression(self.targets.is_exclusive) for _ in self.folds]
        best_loss = np.inf
        for inverse_penalty in INVERSE_PENALTIES:
            self.heartbeat()
            # Each starts from its previous fit.
            fits = [partial(regression.fit, inverse_penalty=inverse_penalty) for regression in regressions]
            predicted = self._cross_predict(fits, mapped)
            yield learners.LogisticLearner(inverse_penalty), predicted
            loss = self.targets.log_loss(predicted)
            if loss > _MAX_LOSS_RATIO * best_loss:
                break  # the weakest penalties also take longest
            best_loss = min(best_loss, loss)

    def _cross_predict(
        self, fits: Sequence[Callable[[Samples, Targets], Classifier]], mapped: Samples
    ) -> FloatArray:
        jobs = self.options.n_jobs
        return learners.cross_predict(fits, mapped, self.targets, self.folds, jobs, self.heartbeat)


def _greedy_weights(predictions: Sequence[FloatArray], targets: Targets, n_rounds: int) -> list[float]:
    """Return the weight of each prediction in an average that is likely, built in `n_rounds` rounds."""
    counts, total = [0] * len(predictions), np.zeros(targets.indicators.shape)
    for n_before in range(n_rounds):
        losses = [targets.log_loss((total + predicted) / (n_before + 1)) for predicted in predictions]
        best = int(np.argmin(losses))
        counts[best] += 1
        total = total + predictions[best]
    return [count / n_rounds for count in counts]


_RIDGES = (0.03, 0.3, 3.0)  # penalties to try, a decade apart, of a kernel that is 1 between equal samples
_SHARES = tuple(number / 8 for number in range(1, 8))
"""Shares of the average to try, as fine as that of eight rounds."""


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """One modality: raw samples, their classes, and the posteriors fitted to them."""

    samples: Samples
    targets: Targets
    posteriors: learners.Posteriors


def blend_kernel_ridge(side: Side, options: SearchOptions, heartbeat: Heartbeat) -> learners.Posteriors:
    """Return posteriors with a share of kernel ridge regression, where out of fold that is more likely.
    The given ones come back where classes overlap, no feature map has an RBF kernel, or no share helps."""
    # The kernel is that of the heaviest feature map with an RBF kernel; at most `max_samples` are landmarks.
    # The other classifiers see its Nystroem approximation by fewer.
    every = side.posteriors.ensemble.branches
    branches = [branch for branch in every if branch.feature_map.kernel == "rbf"]
    if not branches or not side.targets.is_exclusive:
        return side.posteriors
    feature_map = max(branches, key=lambda branch: branch.weight).feature_map
    rng = np.random.default_rng(options.random_state)
    rows = learners.stratified_sample(side.targets, options.max_samples, rng)
    sample_targets = side.targets.subset(rows)
    folds = learners.make_folds(sample_targets, options.n_folds, rng)
    with single_threaded_blas():
        landmarks, kernel = feature_map.kernel_matrix(side.samples[rows])
        others = side.posteriors.out_of_fold[rows]
        best = _best_regression(kernel, sample_targets, folds, others, heartbeat)
        if best is None:
            return side.posteriors
        exact_map = replace(feature_map, landmarks=landmarks, whitening=best.dual.astype(np.float32))
        return _blend(side, best, exact_map, rows)


@dataclass(frozen=True, slots=True, eq=False)
class _Regression:
    """A kernel ridge regression with its share of the average."""

    dual: FloatArray  # (n_samples, n_classes), coefficients of the kernel with each sample
    inverse_temperature: float  # factor of the scores inside the softmax
    out_of_fold: FloatArray  # (n_samples, n_classes), posteriors of each sample without its fold
    share: float


def _best_regression(
    kernel: FloatArray, targets: Targets, folds: Sequence[Indices], others: FloatArray, heartbeat: Heartbeat
) -> _Regression | None:
    """Return the regression and the share that are most likely together with other posteriors."""
    best, best_loss = None, targets.log_loss(others)
    for ridge in _RIDGES:
        heartbeat()
        dual, scores = _solve(kernel, targets.indicators, folds, ridge)
        inverse_temperature, predicted = learners.calibrate(scores, targets)
        for share in _SHARES:
            loss = targets.log_loss((1.0 - share) * others + share * predicted)
            if loss < best_loss:
                best, best_loss = _Regression(dual, inverse_temperature, predicted, share), loss
    return best


def _solve(
    kernel: FloatArray, indicators: FloatArray, folds: Sequence[Indices], ridge: float
) -> tuple[FloatArray, FloatArray]:
    """Return dual coefficients, and the score of each sample by the regression without its fold."""
    # With G = (K + 1 + ridge I)^-1, where 1 adds a penalised constant, and A = G Y, the errors on a fold f
    # that is left out are G_ff^-1 A_f: no regression without it has to be fitted.
    system = kernel + 1.0
    system[np.diag_indices_from(system)] += ridge
    inverse = scipy.linalg.inv(system, overwrite_a=True, check_finite=False)
    dual: FloatArray = inverse @ indicators
    scores = np.empty_like(dual)
    for fold in folds:
        errors = scipy.linalg.solve(inverse[np.ix_(fold, fold)], dual[fold], check_finite=False)
        scores[fold] = indicators[fold] - errors
    return dual, scores


def _blend(
    side: Side, regression: _Regression, feature_map: FeatureMap, rows: Indices
) -> learners.Posteriors:
    targets, posteriors = side.targets, side.posteriors
    t, share, is_seen = regression.inverse_temperature, regression.share, targets.indicators.any(axis=0)
    constants = np.where(is_seen, t * regression.dual.sum(axis=0), IMPOSSIBLE_SCORE)
    classifier = LinearClassifier(t * np.eye(len(constants)), constants, True)
    predicted = np.empty(targets.indicators.shape)
    predicted[rows] = regression.out_of_fold
    others = np.setdiff1d(np.arange(len(predicted)), rows)
    predicted[others] = classifier.predict(feature_map.transform(side.samples[others]))
    out_of_fold = (1.0 - share) * posteriors.out_of_fold + share * predicted
    branch = Branch(feature_map, (WeightedClassifier(classifier, share),))
    ensemble = Ensemble((*posteriors.ensemble.scale_weights(1.0 - share).branches, branch))
    return learners.Posteriors(ensemble, out_of_fold, targets.log_loss(out_of_fold), posteriors.configs)


ALPHA_FRACTIONS = (0.03, 0.003, 0.0003)
"""Penalty weights to try, as shares of `alpha_max`: a decade apart, the middle one near 1e-3, which once was
the only one."""
_N_FOLDS = 3
"""A weight has to win on each: where it makes no difference, it does so by chance in one of eight cases."""
_TOL, _MAX_ITER = 3e-2, 20
"""Gap and step limit of each solution: enough to rank samples by it, as when methods are compared."""


def choose_alpha_fraction(
    posteriors: Sides,
    targets: tuple[Targets, Targets],
    supervision: Supervision,
    options: SearchOptions,
    heartbeat: Heartbeat,
) -> float | None:
    """Return the `ALPHA_FRACTIONS` entry with the highest MAP among those that beat the identity on every
    fold. None if none does. The posteriors, (n_samples, n_classes), are out of fold."""
    # For true posteriors the identity is optimal: sum_c p(c|x) p(c|z) is the probability of equal classes. A
    # learned M can mend biased ones, but its penalty weighs every class alike while the loss hardly sees a
    # class with few samples, so a strong penalty drops such classes first.
    x_folds, z_folds = learners.paired_folds(*targets, options.max_samples, _N_FOLDS, options.random_state)
    rng = np.random.default_rng(options.random_state)
    gains: list[list[float]] = []
    for number in range(len(x_folds)):
        split = [_split(folds, number, rng) for folds in (x_folds, z_folds)]
        try:
            identity, *learned = _qualities(split, posteriors, targets, supervision, options, heartbeat)
        except SupervisionError:
            return None
        gains.append([quality - identity for quality in learned])
    # A fold without a pair of equal classes has no quality: its NaN is no gain.
    prefers = np.all(np.asarray(gains) > 0.0, axis=0)
    if not prefers.any():
        return None
    mean = np.where(prefers, np.mean(gains, axis=0), -np.inf)
    return ALPHA_FRACTIONS[int(np.argmax(mean))]


def warn_of_low_rank(rank: int, loss: str, targets: tuple[Targets, Targets]) -> None:
    """Give a `RankWarning` if a learned M has a lower rank than both modalities have classes in common."""
    # Not of labels that do not exclude each other, since one may follow from others. The softmax loss needs
    # one direction fewer: posteriors sum to one, and it does not see constants.
    x, z = (side.indicators.any(axis=0) for side in targets)
    n_classes = int(np.sum(x & z))
    if targets[0].is_exclusive and rank < n_classes - (loss == "softmax"):
        warnings.warn(
            f"M has rank {rank}, below the number of classes, {n_classes}: classes with few samples may not "
            "be found; with alpha_fraction=None M is the identity where that ranks held-out samples better",
            RankWarning,
            stacklevel=3,
        )


def _split(folds: Sequence[Indices], number: int, rng: np.random.Generator) -> tuple[Indices, Indices]:
    """Return the rows to learn M from, and those of one fold, in random order, to judge it on."""
    # Ties are ranked by row number, which must not say anything about the class.
    fitting = np.concatenate([fold for other, fold in enumerate(folds) if other != number])
    return fitting, rng.permutation(folds[number])


def _qualities(
    split: Sequence[tuple[Indices, Indices]],
    posteriors: Sides,
    targets: tuple[Targets, Targets],
    supervision: Supervision,
    options: SearchOptions,
    heartbeat: Heartbeat,
) -> Iterator[float]:
    """Yield the MAP of the held-out rows under the identity, then under M of each penalty weight.
    SupervisionError if the other rows lack similar or dissimilar pairs, or nothing separates them."""
    (P, Q), ((x_fitting, x_rows), (z_fitting, z_rows)) = posteriors, split
    classes = _classes(targets[0], x_rows), _classes(targets[1], z_rows)
    yield bidirectional_map(P[x_rows], Q[z_rows], *classes).mean
    problem = BilinearProblem(
        P[x_fitting],
        Q[z_fitting],
        supervision.subset(x_fitting, z_fitting),
        fit_intercept=False,
        n_threads=options.n_jobs,
        loss=options.loss,
    )
    if problem.largest_alpha == 0.0:
        raise SupervisionError("no posterior separates similar pairs from dissimilar ones")
    alphas = [fraction * problem.largest_alpha for fraction in ALPHA_FRACTIONS]
    path = regularisation_path(problem, alphas, tol=_TOL, max_iter=_MAX_ITER, callback=lambda _: heartbeat())
    for point in path:
        yield bidirectional_map(*point.project(P[x_rows], Q[z_rows]), *classes).mean


def _classes(targets: Targets, rows: Indices) -> FloatArray:
    """Return the class of each row, or the indicators of several."""
    indicators = targets.indicators[rows]
    return indicators.argmax(axis=1) if targets.is_exclusive else indicators


_ALPHA_FRACTION = 0.03
"""Penalty weight as a share of `alpha_max`, the strongest that `select_on` tries by default."""
_BLEND_TOL, _BLEND_MAX_ITER = 0.1, 3
"""The similarity is stopped early, which regularises it further: only its predictions are used."""
_BLEND_FOLDS = 3
"""Each fold costs one more fit of the similarity; without it two thirds of the anchors still vote."""


def fuse(
    x: Side, z: Side, supervision: Supervision, options: SearchOptions, heartbeat: Heartbeat
) -> tuple[learners.Posteriors, learners.Posteriors]:
    """Return the posteriors of both modalities, each blended with a neighbour classifier;
    the given ones for share 0, or if without some fold no similar pair or no informative feature is left."""
    # The similarity is a `LowRankBilinear` with the softmax loss, stopped after a few steps, on the feature
    # map of the heaviest branch of each side. For out-of-fold predictions both the matrix and the anchors
    # come from the other folds. If x[i] and z[i] belong together and have equal classes in every row, they
    # are in the same fold; if pairs are in another order, the out-of-fold posteriors leak the paired sample.
    share = float(options.neighbour_share)
    if share == 0.0:
        return x.posteriors, z.posteriors
    seed = options.random_state
    folds = learners.paired_folds(x.targets, z.targets, options.max_samples, _BLEND_FOLDS, seed)
    x_side, z_side = _SplitSide.of(x, folds[0]), _SplitSide.of(z, folds[1])
    row_sets = [(x_side.rows, z_side.rows)]
    row_sets += zip(x_side.rows_without_each_fold(), z_side.rows_without_each_fold(), strict=True)
    x_classifiers, z_classifiers = [], []
    for rows in row_sets:
        classifiers = _fit_classifiers((x_side, z_side), rows, supervision, options, heartbeat)
        if classifiers is None:
            return x.posteriors, z.posteriors
        x_classifiers.append(classifiers[0])
        z_classifiers.append(classifiers[1])
    return x_side.blend(x_classifiers, share), z_side.blend(z_classifiers, share)


@dataclass(frozen=True, slots=True, eq=False)
class _SplitSide:
    """One modality, mapped by the heaviest branch;
    the rows that the similarity is learned from, split into folds."""

    side: Side
    mapped: Samples
    rows: Indices
    folds: list[Indices]

    @classmethod
    def of(cls, side: Side, folds: list[Indices]) -> _SplitSide:
        """Return a modality, of which the samples in folds are learned from."""
        feature_map = side.posteriors.ensemble.heaviest_branch.feature_map
        return cls(side, feature_map.transform(side.samples), np.sort(np.concatenate(folds)), folds)

    def rows_without_each_fold(self) -> list[Indices]:
        """Return for each fold the sampled rows that are not in it."""
        return [np.setdiff1d(self.rows, fold) for fold in self.folds]

    def blend(self, classifiers: list[NeighbourClassifier], share: float) -> learners.Posteriors:
        """Blend in the first of the classifiers; the others, one without each fold, predict out of fold."""
        whole, *without_folds = classifiers
        targets, posteriors = self.side.targets, self.side.posteriors
        predicted = np.zeros(targets.indicators.shape)
        not_sampled = np.setdiff1d(np.arange(self.mapped.shape[0]), self.rows)
        predicted[not_sampled] = whole.predict(self.mapped[not_sampled])
        for fold, classifier in zip(self.folds, without_folds, strict=True):
            predicted[fold] = classifier.predict(self.mapped[fold])
        out_of_fold = (1.0 - share) * posteriors.out_of_fold + share * predicted
        ensemble = posteriors.ensemble.blend(whole, share)
        return learners.Posteriors(ensemble, out_of_fold, targets.log_loss(out_of_fold), posteriors.configs)


def _fit_classifiers(
    sides: tuple[_SplitSide, _SplitSide],
    rows: tuple[Indices, Indices],
    supervision: Supervision,
    options: SearchOptions,
    heartbeat: Heartbeat,
) -> list[NeighbourClassifier] | None:
    """Learn a similarity from some rows of both modalities, and return a classifier of either by the other.
    None if no pair of them is similar, or if no feature distinguishes similar pairs."""
    (A, a_basis), (B, b_basis) = (
        compact(side.mapped[chosen]) for side, chosen in zip(sides, rows, strict=True)
    )
    try:
        subset = supervision.subset(*rows)
    except SupervisionError:
        return None
    bilinear = LowRankBilinear(
        alpha_fraction=_ALPHA_FRACTION,
        loss="softmax",
        tol=_BLEND_TOL,
        max_iter=_BLEND_MAX_ITER,
        n_threads=options.n_jobs,
    )
    with warnings.catch_warnings():
        # It is judged by its predictions, like the other classifiers.
        warnings.simplefilter("ignore", ConvergenceWarning)
        try:
            bilinear.fit(A, B, subset, callback=lambda _: heartbeat())
        except SupervisionError:
            return None
    classifiers = []
    for basis, factors, intercept, anchors, side, chosen in (
        (a_basis, bilinear.x_factors_, bilinear.x_intercept_, bilinear.project_z(B), sides[1], rows[1]),
        (b_basis, bilinear.z_factors_, bilinear.z_intercept_, bilinear.project_x(A), sides[0], rows[0]),
    ):
        lifted = lift_factors(basis, factors).astype(factors.dtype, copy=False)
        targets = side.side.targets.subset(chosen)
        indicators, t = targets.indicators.astype(np.float32), float(options.inverse_temperature)
        classifiers.append(
            NeighbourClassifier(lifted, intercept, anchors, indicators, t, targets.is_exclusive)
        )
    return classifiers
