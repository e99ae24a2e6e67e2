"""Class posteriors of one modality: an average of classifiers, fitted with what it says out of fold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from solver.errors import SupervisionError
from solver.evaluation.splits import stratified_folds
from solver.linalg.centered import Centered
from solver.linalg.matrices import FloatArray, Samples, is_sparse
from solver.linalg.row_space import RowSpaceBasis, can_be_compact
from solver.logistic import LinearClassifier, Regression, Targets
from solver.semantic.feature_maps import FeatureMap
from solver.semantic.neighbours import NeighbourClassifier
from solver.supervision.base import Indices

_LEAST_OF_A_CLASS = 2
_MOST_LAPLACIAN_FEATURES = 256


@dataclass(frozen=True, slots=True, eq=False)
class Member:
    """One classifier of an average.

    Parameters
    ----------
    features : FeatureMap
        Of raw samples.
    head : LinearClassifier or NeighbourClassifier
        Posteriors from its features.
    weight : float
        Share in the average.
    """

    features: FeatureMap
    head: LinearClassifier | NeighbourClassifier
    weight: float

    @property
    def is_read_out(self) -> bool:
        """Whether its posteriors are read out of a similarity."""
        return isinstance(self.head, NeighbourClassifier)


@dataclass(frozen=True, slots=True)
class FeatureMapConfig:
    """A kind of feature map.

    Parameters
    ----------
    scaling, kernel, width
        As of `FeatureMap.fit`.
    """

    scaling: str
    kernel: str
    width: float

    def suits(self, samples: Samples) -> bool:
        """Say whether it can be had: no square roots of negative features, no long sums of distances."""
        if self.kernel == "laplacian" and samples.shape[1] > _MOST_LAPLACIAN_FEATURES:
            return False
        return self.scaling != "sqrt" or bool(samples.min() >= 0)


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a classifier of an average is fitted.

    Parameters
    ----------
    kind : FeatureMapConfig
        Of its feature map.
    inverse_penalty : float
        Of its logistic regression.
    weight : float
        Share in the average.
    """

    kind: FeatureMapConfig
    inverse_penalty: float
    weight: float


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A classifier to be fitted.

    Parameters
    ----------
    recipe : Recipe
        How.
    features : FeatureMap
        Of that kind, fitted.
    out_of_fold : ndarray of shape (n_samples, n_classes) or None
        What it predicts for each training sample without its fold, where that is known.
    """

    recipe: Recipe
    features: FeatureMap
    out_of_fold: FloatArray | None


@dataclass(frozen=True, slots=True, eq=False)
class Posteriors:
    """Fitted class posteriors of one modality.

    Parameters
    ----------
    members : tuple of Member
        Their weights sum to one.
    out_of_fold : ndarray of shape (n_samples, n_classes)
        For every training sample, what the same recipe predicts when its classifiers are fitted without
        its fold. Scaling and landmarks are those of all searched samples, without their classes; the choice
        of recipe and weights has seen all classes.
    log_loss : float
        Mean negative log-likelihood of those, in nats per sample.
    recipes : tuple of Recipe
        By which the classifiers were fitted.
    """

    members: tuple[Member, ...]
    out_of_fold: FloatArray
    log_loss: float
    recipes: tuple[Recipe, ...]

    def predict(self, samples: Samples) -> FloatArray:
        """Return posteriors of raw samples, of shape (n_samples, n_classes), in float64."""
        return average(self.members, samples)


def average(members: Sequence[Member], samples: Samples) -> FloatArray:
    """Return the weighted mean of the members' posteriors; each map is applied once, one held at a time."""
    of_map: dict[int, list[Member]] = {}
    for member in members:
        of_map.setdefault(id(member.features), []).append(member)
    parts: list[FloatArray] = []
    for sharing in of_map.values():
        mapped = sharing[0].features.transform(samples)
        parts += [member.weight * member.head.predict(mapped) for member in sharing]
    total: FloatArray = np.sum(parts, axis=0)
    return total


def fit_parts(
    samples: Samples,
    targets: Targets,
    parts: Sequence[Part],
    folds: Sequence[Indices],
    n_jobs: int,
    heartbeat: Callable[[], None],
) -> Posteriors:
    """Fit classifiers on all samples, and without each fold where it is not known what that gives.

    Parameters
    ----------
    samples : ndarray or CSR array of shape (n_samples, n_features)
        Raw features.
    targets : Targets
        Their classes.
    parts : sequence of Part
        The classifiers.
    folds : sequence of ndarray of int
        Rows that are held out together.
    n_jobs : int
        Classifiers fitted at once.
    heartbeat : callable
        Called now and then; what it raises ends the fit.
    """
    members, total = [], np.zeros(targets.indicators.shape)
    for part in parts:
        heartbeat()
        inverse, weight = part.recipe.inverse_penalty, part.recipe.weight
        mapped, basis = rotated(part.features.transform(samples))
        predicted = part.out_of_fold
        if predicted is None:
            regressions = [Regression(targets.is_exclusive) for _ in folds]
            predicted = cross_fitted(regressions, mapped, targets, folds, inverse, n_jobs, heartbeat)
        total += weight * predicted
        head = Regression(targets.is_exclusive).fit(mapped, targets, inverse)
        if basis is not None:
            head = LinearClassifier(basis.lift(head.coefficients), head.intercepts, head.is_exclusive)
        members.append(Member(part.features, head, weight))
    recipes = tuple(part.recipe for part in parts)
    return Posteriors(tuple(members), total, targets.log_loss(total), recipes)


def require_company(targets: Targets) -> None:
    """Refuse samples of which most are the only one of their class: none could be held out.

    Raises
    ------
    SupervisionError
        If they are.
    """
    sizes = _class_sizes(targets)
    if np.mean(sizes < _LEAST_OF_A_CLASS) > 0.5:
        raise SupervisionError("most samples are the only one of their class: none can be held out")


def usable_folds(targets: Targets, n_folds: int) -> int:
    """Return how many of `n_folds` folds, two or more, leave the typical sample others of its class.

    With more of them than a class has samples, a fold would hold out a part of one class and nothing of
    another, and what is predicted without it would be biased against the truth: with two samples of each
    of two classes and four folds, every sample looks like one of the other class. Of several labels the
    most common one counts, although folds are dealt by whole sets of labels.
    """
    return max(min(n_folds, int(np.median(_class_sizes(targets)))), 2)


def _class_sizes(targets: Targets) -> FloatArray:
    """Return for each sample with a label how many samples carry it; of several, the most common one."""
    sizes = (targets.indicators * targets.indicators.sum(axis=0)).max(axis=1)
    labelled: FloatArray = sizes[sizes > 0]
    return labelled if len(labelled) else np.array([len(sizes)], np.float64)


def deal_folds(targets: Targets, n_folds: int, rng: np.random.Generator) -> list[Indices]:
    """Return disjoint sets of rows, each with its share of every class (of labels: of every set of them)."""
    return [np.sort(fold) for fold in stratified_folds(targets.indicators, n_folds, rng)]


def draw(targets: Targets, max_samples: int, rng: np.random.Generator) -> Indices:
    """Return the rows to search on: all, or an even share of every class, two of each at least."""
    n_samples = len(targets.indicators)
    if n_samples <= max_samples:
        return np.arange(n_samples)
    (by_class,) = stratified_folds(targets.indicators, 1, rng)
    is_drawn = np.zeros(n_samples, np.bool_)
    is_drawn[by_class[np.arange(max_samples) * n_samples // max_samples]] = True
    for carried in targets.indicators.T > 0:
        for rows in (by_class[carried[by_class]], by_class[~carried[by_class]]):
            n_missing = max(_LEAST_OF_A_CLASS - int(is_drawn[rows].sum()), 0)
            is_drawn[rows[~is_drawn[rows]][:n_missing]] = True
    return np.flatnonzero(is_drawn)


def cross_fitted(
    regressions: Sequence[Regression],
    mapped: Samples,
    targets: Targets,
    folds: Sequence[Indices],
    inverse_penalty: float,
    n_jobs: int,
    heartbeat: Callable[[], None],
) -> FloatArray:
    """Return predictions for every sample from a regression on the other folds, one for each fold.

    One at a time is fitted on sparse or `Centered` samples, since the optimiser keeps tens of copies of the
    coefficients of all their features.
    """
    if not isinstance(mapped, np.ndarray):
        n_jobs = 1
    predicted = np.zeros(targets.indicators.shape)

    def fit_one(regression: Regression, held: Indices) -> None:
        fitted = others(held, mapped.shape[0])
        head = regression.fit(mapped[fitted], targets.rows(fitted), inverse_penalty)
        predicted[held] = head.predict(mapped[held])

    with ThreadPoolExecutor(n_jobs) as pool:
        running = [pool.submit(fit_one, *each) for each in zip(regressions, folds, strict=True)]
        try:
            for done in running:
                done.result()
                heartbeat()
        except BaseException:  # whatever ends the search: what has not begun is not begun any more
            for each in running:
                each.cancel()
            raise
    return predicted


def rotated(mapped: Samples) -> tuple[Samples, RowSpaceBasis | None]:
    """Return samples with more features than there are samples in the span of these, others as dense ones.

    Neither ridge nor logistic regression, which both penalise the norm of a coefficient vector, notice.
    Sparse samples that would take too much memory are returned as they are.
    """
    n_samples, n_features = mapped.shape
    is_dense = not (is_sparse(mapped) or isinstance(mapped, Centered))
    if not is_dense and not can_be_compact(n_samples, n_features):
        return mapped, None
    if n_features <= n_samples:
        return (mapped if is_dense else mapped.toarray()), None
    basis = RowSpaceBasis(mapped.astype(np.float64))
    return basis.reduced, basis


def others(held: Indices, n_samples: int) -> Indices:
    """Return the rows that are not held out."""
    is_fitted = np.ones(n_samples, np.bool_)
    is_fitted[held] = False
    return np.flatnonzero(is_fitted)
